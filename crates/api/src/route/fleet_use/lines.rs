//! Sums over GPUs, step by step.

use std::collections::HashSet;

use gpuvitals_core::history::TimeSteps;
use gpuvitals_core::usage::GpuUse;

use crate::route::usage::card_of;

/// A sum over GPUs, and of how many.
#[derive(Debug, Clone, Copy, Default)]
struct GpuSum {
    sum: f64,
    gpus: f64,
}

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LineMeasure {
    Reports,
    Held,
    Idle,
    Busy,
    Power,
}

/// One line: of each step what some GPUs did in it on average.
#[derive(Debug)]
pub(super) struct Line<'a> {
    steps: Vec<[GpuSum; 5]>,
    /// Cards with instances that are in a sum: their instances are none beside them.
    cards: HashSet<(LineMeasure, usize, &'a str)>,
}

/// Seconds that a GPU reported in a step, and that its power was sampled, under any holder.
#[derive(Debug, Clone, Copy, Default)]
struct ReportedTime {
    seconds: f64,
    power_s: f64,
}

/// The whole and each of so many lines: the uses, which come in the order of their GPUs, that belong to it. Those without a line are in none.
pub(super) fn of<'a>(
    uses: &'a [GpuUse],
    steps: TimeSteps,
    line_of: &[Option<usize>],
    count: usize,
) -> (Line<'a>, Vec<Line<'a>>) {
    let mut whole = Line::new(steps);
    let mut lines: Vec<Line<'a>> = (0..count).map(|_| Line::new(steps)).collect();
    let step_of = |one: &GpuUse| {
        let from_ns = one.step_ns?.checked_sub(steps.origin_ns)?;
        usize::try_from(from_ns / steps.step_ns).ok().filter(|step| *step < steps.count)
    };
    let instances = uses.iter().filter_map(|one| card_of(&one.gpu));
    let cards: HashSet<&str> = instances.collect();
    let mut line_of = line_of.iter();
    let mut seen = vec![ReportedTime::default(); steps.count];
    for of_gpu in uses.chunk_by(|one, next| one.gpu == next.gpu) {
        seen.fill(ReportedTime::default());
        for (one, step) in of_gpu.iter().filter_map(|one| Some((one, step_of(one)?))) {
            let Some(seen) = seen.get_mut(step) else { continue };
            seen.seconds += one.held.seconds;
            seen.power_s += one.held.power.seconds;
        }
        for (one, line) in of_gpu.iter().zip(&mut line_of) {
            let (Some(line), Some(step)) = (line, step_of(one)) else { continue };
            let Some(seen) = seen.get(step) else { continue };
            let has_instances = cards.contains(one.gpu.as_ref());
            for line in std::iter::once(&mut whole).chain(lines.get_mut(*line)) {
                line.add(one, step, *seen, has_instances);
            }
        }
    }
    (whole, lines)
}

impl<'a> Line<'a> {
    fn new(steps: TimeSteps) -> Self {
        Self { steps: vec![Default::default(); steps.count], cards: HashSet::new() }
    }

    /// Adds what a GPU did under a holder in a step. A card comes before its instances.
    fn add(&mut self, one: &'a GpuUse, step: usize, seen: ReportedTime, has_instances: bool) {
        let held = &one.held;
        if held.seconds > 0.0 {
            let share = held.seconds / seen.seconds;
            let of_time = |seconds: Option<f64>| seconds.map(|seconds| seconds / seen.seconds);
            let is_held = one.is_held();
            let parts = [
                (LineMeasure::Reports, Some(share)),
                (LineMeasure::Held, is_held.then_some(share)),
                (LineMeasure::Idle, of_time(held.idle_s).filter(|_| is_held)),
                (LineMeasure::Busy, of_time(held.busy_s)),
            ];
            for (what, part) in parts {
                let Some(part) = part else { continue };
                let is_beside =
                    card_of(&one.gpu).is_some_and(|card| self.cards.contains(&(what, step, card)));
                if !is_beside {
                    self.sum(what, step, part, share);
                }
                if has_instances {
                    self.cards.insert((what, step, &one.gpu));
                }
            }
        }
        if held.power.seconds > 0.0 {
            let watts = held.power.joules / seen.power_s;
            self.sum(LineMeasure::Power, step, watts, held.power.seconds / seen.power_s);
        }
    }

    fn sum(&mut self, what: LineMeasure, step: usize, part: f64, gpus: f64) {
        if let Some(sum) = self.steps.get_mut(step).and_then(|sums| sums.get_mut(what as usize)) {
            sum.sum += part;
            sum.gpus += gpus;
        }
    }

    fn each(&self, value: impl Fn(&dyn Fn(LineMeasure) -> GpuSum) -> Option<f64>) -> Vec<Option<f64>> {
        let of = |sums: &[GpuSum; 5]| value(&|what| sums.get(what as usize).copied().unwrap_or_default());
        self.steps.iter().map(of).collect()
    }

    /// GPUs that report.
    pub(super) fn gpus(&self) -> Vec<Option<f64>> {
        self.each(|of| Some(of(LineMeasure::Reports).sum).filter(|gpus| *gpus > 0.0))
    }

    /// Those of them that somebody holds.
    pub(super) fn held(&self) -> Vec<Option<f64>> {
        self.each(|of| (of(LineMeasure::Reports).gpus > 0.0).then(|| of(LineMeasure::Held).sum))
    }

    /// Those of these that do nothing; none if nothing is known of any.
    pub(super) fn idle(&self) -> Vec<Option<f64>> {
        self.each(|of| {
            let (held, idle) = (of(LineMeasure::Held), of(LineMeasure::Idle));
            (of(LineMeasure::Reports).gpus > 0.0 && (held.gpus <= 0.0 || idle.gpus > 0.0)).then_some(idle.sum)
        })
    }

    /// Mean utilisation of those of which it is known, %.
    pub(super) fn utilization(&self) -> Vec<Option<f64>> {
        self.each(|of| {
            let busy = of(LineMeasure::Busy);
            (busy.gpus > 0.0).then(|| 100.0 * busy.sum / busy.gpus)
        })
    }

    /// Power together, watts.
    pub(super) fn power(&self) -> Vec<Option<f64>> {
        self.each(|of| (of(LineMeasure::Power).gpus > 0.0).then(|| of(LineMeasure::Power).sum))
    }

    /// How many GPUs the power is of.
    pub(super) fn with_power(&self) -> Vec<Option<f64>> {
        self.each(|of| Some(of(LineMeasure::Power).gpus).filter(|gpus| *gpus > 0.0))
    }
}
