//! Energy and idleness of GPUs by holder, from values by steps of time.
//!
//! The energy of a GPU is its counter's if that agrees with integrated power within [`TOLERANCE`], and integrated power
//! otherwise. Each step's energy belongs to the holders of that step by their shares of the samples, so that the sums over
//! holders and over GPUs are the same.

use std::sync::Arc;

use gpuvitals_core::history::{BucketQuery, Buckets, Cell, GroupColumn};
use gpuvitals_core::{IdentityColumn, MetricId, Table};

use crate::cells::GpuCells;
use crate::energy::{EnergySource, TOLERANCE};
use crate::findings::threshold::IDLE_BELOW_PCT;
use crate::integral::seconds;
use crate::robust::Spread;

const COUNTER: MetricId = MetricId::of("energy_j");
const POWERS: [MetricId; 2] = [MetricId::of("power_w"), MetricId::of("power_average_w")];
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
/// Columns by which rows are told apart, behind the GPU.
const COLUMNS: [IdentityColumn; 5] = [
    IdentityColumn::Cluster,
    IdentityColumn::Node,
    IdentityColumn::Namespace,
    IdentityColumn::Pod,
    IdentityColumn::Job,
];

/// The use of one GPU by one holder.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuUse {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// Cluster, node, namespace, pod and job.
    texts: Vec<Option<Arc<str>>>,
    /// Energy, joules; none without power and counter.
    pub joules: Option<f64>,
    /// Where the energy comes from.
    pub source: EnergySource,
    /// Seconds with values.
    pub seconds: f64,
    /// Seconds of steps in which the GPU did nothing.
    pub idle_seconds: f64,
    /// Energy of those steps, joules.
    pub idle_joules: Option<f64>,
}

impl GpuUse {
    /// Its text in a column.
    pub fn text(&self, column: IdentityColumn) -> Option<&Arc<str>> {
        let place = COLUMNS.iter().position(|one| *one == column)?;
        self.texts.get(place)?.as_ref()
    }

    /// Whether a job or pod holds the GPU.
    pub fn is_held(&self) -> bool {
        [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Job]
            .into_iter()
            .any(|column| self.text(column).is_some())
    }
}

/// What to ask the history for.
pub fn usage_query(start_ns: i64, end_ns: i64, step_ns: i64) -> BucketQuery {
    let metrics = [COUNTER, UTILIZATION].into_iter().chain(POWERS).collect();
    BucketQuery {
        group_by: [GroupColumn::Gpu].into_iter().chain(COLUMNS.map(GroupColumn::Identity)).collect(),
        ..BucketQuery::of(Table::GpuEvents, metrics, start_ns, end_ns, step_ns)
    }
}

/// The use of each GPU by each of its holders, from the answer to [`usage_query`] between two instants, both inclusive.
pub fn usage(buckets: &Buckets, start_ns: i64, end_ns: i64) -> Vec<GpuUse> {
    let gpus = GpuCells::by_gpu(buckets);
    // One that is only in a single step is sampled like the others.
    let usual_s = Spread::of(gpus.values().filter_map(GpuCells::interval_s)).map(|it| it.median);
    let interval_s = |cells: &GpuCells<'_>| {
        cells.interval_s().or(usual_s).unwrap_or_else(|| cells.interval_of_step_s(start_ns, end_ns))
    };
    let mut uses: Vec<GpuUse> =
        gpus.iter().flat_map(|(gpu, cells)| cells.uses(gpu, interval_s(cells))).collect();
    uses.sort_by(|a, b| (&a.gpu, &a.texts).cmp(&(&b.gpu, &b.texts)));
    uses
}

/// The energy of a GPU by steps, joules.
struct StepEnergy {
    joules: Vec<Option<f64>>,
    source: EnergySource,
}

impl GpuCells<'_> {
    /// Samples of a holder in a step: of the metric that has most.
    fn samples(&self, group: usize, step: usize) -> f64 {
        let counts =
            self.buckets.metrics().iter().filter_map(|measured| self.cell(measured.metric, group, step));
        counts.map(|cell| count(cell.count)).fold(0.0, f64::max)
    }

    fn steps(&self) -> std::ops::Range<usize> {
        0..self.buckets.steps().count
    }

    /// Samples in a step.
    fn all_samples(&self, step: usize) -> f64 {
        self.groups.iter().map(|group| self.samples(*group, step)).sum()
    }

    /// Time of the newest sample of a step.
    fn newest_ns(&self, step: usize) -> Option<i64> {
        let cells = self.buckets.metrics().iter().filter_map(|measured| self.whole(measured.metric, step));
        cells.map(|cell| cell.last_ns).max()
    }

    /// Seconds between two samples: the samples of a step came since the newest of the one before. None of a single step.
    fn interval_s(&self) -> Option<f64> {
        let mut before = None;
        let mut least: Option<f64> = None;
        for step in self.steps() {
            let Some(newest_ns) = self.newest_ns(step) else { continue };
            if let Some(before_ns) = before.replace(newest_ns) {
                let interval = seconds(newest_ns - before_ns) / self.all_samples(step);
                least = Some(least.map_or(interval, |least| least.min(interval)));
            }
        }
        least.filter(|interval| *interval > 0.0)
    }

    /// The same by the fullest step, as far as it was asked for.
    fn interval_of_step_s(&self, start_ns: i64, end_ns: i64) -> f64 {
        let steps = self.buckets.steps();
        let asked_s = |step| {
            let (from, to) =
                (steps.time(step).max(start_ns), (steps.time(step) + steps.step_ns - 1).min(end_ns));
            seconds(to - from + 1)
        };
        let intervals = self.steps().map(|step| asked_s(step) / self.all_samples(step));
        intervals.filter(|interval| interval.is_finite()).fold(seconds(steps.step_ns), f64::min)
    }

    fn energy(&self, interval_s: f64) -> StepEnergy {
        let integrated: Vec<Option<f64>> = self
            .steps()
            .map(|step| {
                self.first(&POWERS, step).map(|cell| cell.sum * interval_s * self.thinned(step, &cell))
            })
            .collect();
        let mut before: Option<f64> = None;
        let mut counted = Vec::new();
        for step in self.steps() {
            let cell = self.whole(COUNTER, step);
            let rise = cell.map(|cell| cell.last - before.unwrap_or(cell.min)).filter(|rise| *rise >= 0.0);
            before = cell.map(|cell| cell.last).or(before);
            counted.push(rise);
        }
        let both =
            integrated.iter().zip(&counted).filter_map(|(power, counter)| Some(((*power)?, (*counter)?)));
        let (power_j, counter_j) = both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let rises = counted.iter().flatten().any(|rise| *rise > 0.0);
        let largest_step = integrated.iter().flatten().copied().fold(0.0, f64::max);
        let agrees = (power_j - counter_j).abs() <= TOLERANCE * power_j.max(counter_j) + largest_step;
        let has_power = integrated.iter().any(Option::is_some);
        if rises && (agrees || !has_power) {
            let joules = counted.iter().zip(&integrated).map(|(counter, power)| counter.or(*power));
            StepEnergy { joules: joules.collect(), source: EnergySource::Counter }
        } else {
            StepEnergy { joules: integrated, source: EnergySource::Integrated }
        }
    }

    /// How many more samples the GPU has in a step than this metric, which may be read less often.
    fn thinned(&self, step: usize, cell: &Cell) -> f64 {
        self.all_samples(step) / count(cell.count)
    }

    fn uses(&self, gpu: &Arc<str>, interval_s: f64) -> Vec<GpuUse> {
        let energy = self.energy(interval_s);
        let use_of = |group: &usize| {
            let name = self.buckets.groups().get(*group)?;
            let mut sum = GpuUse {
                gpu: Arc::clone(gpu),
                texts: name.iter().skip(1).cloned().collect(),
                joules: None,
                source: energy.source,
                seconds: 0.0,
                idle_seconds: 0.0,
                idle_joules: None,
            };
            for (step, joules) in energy.joules.iter().enumerate() {
                let samples = self.samples(*group, step);
                if samples <= 0.0 {
                    continue;
                }
                let own = joules.map(|joules| joules * samples / self.all_samples(step));
                let is_idle =
                    self.cell(UTILIZATION, *group, step).is_some_and(|cell| cell.max < IDLE_BELOW_PCT);
                sum.seconds += samples * interval_s;
                sum.joules = with(sum.joules, own);
                if is_idle {
                    sum.idle_seconds += samples * interval_s;
                    sum.idle_joules = with(sum.idle_joules, own);
                }
            }
            Some(sum)
        };
        self.groups.iter().filter_map(use_of).filter(|sum| sum.seconds > 0.0).collect()
    }
}

/// A sum with one more; what is unknown adds nothing.
fn with(sum: Option<f64>, one: Option<f64>) -> Option<f64> {
    one.map_or(sum, |one| Some(sum.unwrap_or(0.0) + one))
}

#[expect(clippy::cast_precision_loss, reason = "no step has 2^53 values")]
fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::history::{GroupName, TimeSteps};
    use gpuvitals_core::time::SECOND_NS;

    use super::*;

    /// A GPU over four minutes, of which a job has the first two and another one the rest, idle; `counted`: W of the counter.
    fn uses(counted: Option<f64>) -> Vec<GpuUse> {
        uses_of(counted, (0, 240), 60)
    }

    /// What is asked of it: from and to a second, by steps of so many.
    fn uses_of(counted: Option<f64>, (from, to): (i64, i64), step: i64) -> Vec<GpuUse> {
        let query = usage_query(from * SECOND_NS, to * SECOND_NS - 1, step * SECOND_NS);
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        for second in from..to {
            let (job, busy, watts) = if second < 120 { ("a", 90.0, 500.0) } else { ("b", 0.0, 100.0) };
            let texts = [Some("GPU-1"), None, Some("n1"), Some("ns"), None, Some(job)];
            let name: GroupName = texts.iter().map(|text| text.map(Arc::from)).collect();
            let group = buckets.group(&name);
            let place = buckets.place(group, steps.at(second * SECOND_NS));
            for measured in buckets.metrics_mut() {
                let value = match measured.metric.metric().column {
                    "power_w" => watts,
                    "utilization_pct" => busy,
                    "energy_j" => match counted {
                        Some(share) => {
                            let done = f64::from(i32::try_from(second).unwrap());
                            share
                                * if second < 120 { 500.0 * done } else { 60_000.0 + 100.0 * (done - 120.0) }
                        }
                        None => continue,
                    },
                    _ => continue,
                };
                let one = Cell {
                    count: 1,
                    sum: value,
                    min: value,
                    max: value,
                    last_ns: second * SECOND_NS,
                    last: value,
                };
                measured.cells.get_mut(place).unwrap().merge(&one);
            }
        }
        usage(&buckets, query.start_ns, query.end_ns)
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 0.04 * expected + 1e-9, "{value} {expected}");
    }

    #[test]
    fn energy_is_the_counters_if_it_agrees_and_belongs_to_the_holders() {
        for (counted, source) in [
            (Some(1.0), EnergySource::Counter),
            (Some(0.2), EnergySource::Integrated),
            (None, EnergySource::Integrated),
        ] {
            let uses = uses(counted);
            let [a, b] = uses.as_slice() else { panic!("two holders: {uses:?}") };
            assert_eq!((a.source, a.text(IdentityColumn::Job).map(AsRef::as_ref)), (source, Some("a")));
            near(a.joules.unwrap(), 60_000.0);
            near(b.joules.unwrap(), 12_000.0);
            near(a.seconds, 120.0);
            assert!(a.idle_seconds < 1e-9 && a.is_held());
            near(b.idle_seconds, 120.0);
            near(b.idle_joules.unwrap(), 12_000.0);
        }
    }

    #[test]
    fn a_part_of_a_step_is_no_whole_one() {
        for (range, step) in [((10, 40), 60), ((10, 40), 3_600), ((50, 80), 60)] {
            let uses = uses_of(None, range, step);
            let [a] = uses.as_slice() else { panic!("one holder: {uses:?}") };
            near(a.seconds, 30.0);
            near(a.joules.unwrap(), 15_000.0);
            assert_eq!(a.idle_joules, None);
        }
    }
}
