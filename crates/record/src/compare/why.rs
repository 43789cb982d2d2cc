//! Why runs last longer than others: the clock and what held it, the memory's clock, one GPU for which the others wait, the host.
//!
//! A cause is known by what its quantity would do to the time alone. What explains less than [`EXPLAINS_MIN`] of the change is left
//! out, so that noise has no name.

use gpuvitals_core::number::float;
use serde::Serialize;

use super::cells::Quantity;
use super::metric::RunMetric;
use super::run::ComparedRun;

/// Share of the change that a cause has to explain.
const EXPLAINS_MIN: f64 = 0.25;
/// Smallest loss of a clock that is one, as a share.
const LOSS_MIN: f64 = 0.003;
/// Loss of one GPU's clock from which the others wait for it.
const LOSS_OF_ONE_MIN: f64 = 0.01;
/// Rise of the share of time under a limit from which that limit is the reason.
const SHARE_RISE_MIN: f64 = 0.02;
/// Share of time under a limit, the same in all runs, from which it is the reason.
const SHARE_HELD_MIN: f64 = 0.2;
/// Fall of the utilisation that is one, in %.
const IDLE_MIN_PCT: f64 = 1.0;
/// The same of the GPUs that wait for one that is as busy as before.
const WAITING_MIN_PCT: f64 = 5.0;

/// Why the time of a run changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeCause {
    /// Name for programs: `clock_heat`, `clock_power_limit`, `clock_hardware`, `clock_lock`, `clock`, `memory`, `slowest_gpu` or `host`.
    pub id: &'static str,
    /// Share of the change that it explains, 0 to 1.
    pub explains: f64,
    /// What happened, with the values of the first runs and of the second.
    pub sentence: String,
    /// Index of the GPU, or its key; none: all of them.
    pub gpu: Option<String>,
}

/// A quantity on both sides, first and second runs.
#[derive(Debug, Clone, Copy)]
struct Sides {
    base: f64,
    new: f64,
}

/// The runs of both sides, and which of them are the slow ones.
pub(super) struct Slowed<'a> {
    pub(super) base: &'a [ComparedRun],
    pub(super) new: &'a [ComparedRun],
    /// Change of the time from the first to the second, as a share.
    pub(super) change: f64,
}

impl Sides {
    /// Change from the fast to the slow runs as a share of the fast, negative if they have less.
    fn slowed(self, slowed: &Slowed<'_>) -> f64 {
        if slowed.change >= 0.0 { self.new / self.base - 1.0 } else { self.base / self.new - 1.0 }
    }

    /// The slow runs' less the fast ones'.
    fn more(self, slowed: &Slowed<'_>) -> f64 {
        if slowed.change >= 0.0 { self.new - self.base } else { self.base - self.new }
    }

    fn text(self, unit: &str) -> String {
        format!("{:.0} -> {:.0} {unit} ({:+.1} %)", self.base, self.new, 100.0 * (self.new / self.base - 1.0))
    }

    fn percent(self) -> String {
        format!("{:.0} % of the time, now {:.0} %", 100.0 * self.base, 100.0 * self.new)
    }
}

/// The causes, the heaviest first; none if nothing that was recorded explains the change.
pub(super) fn causes(slowed: &Slowed<'_>) -> Vec<ChangeCause> {
    let gpus = slowed.gpus();
    let mut causes: Vec<ChangeCause> =
        [slowed.clock(gpus), slowed.memory(gpus), slowed.waiting(gpus)].into_iter().flatten().collect();
    causes.retain(|cause| cause.explains >= EXPLAINS_MIN);
    causes.sort_by(|a, b| b.explains.total_cmp(&a.explains));
    causes
}

impl Slowed<'_> {
    /// How many GPUs stand beside each other.
    fn gpus(&self) -> usize {
        self.base.iter().chain(self.new).map(|run| run.gpus.len()).min().unwrap_or(0)
    }

    /// What a slower quantity explains of the longer time: a clock that lost 2 % lets a step last 2.04 % longer.
    fn explained(&self, loss: f64) -> f64 {
        let longer = 1.0 / (1.0 - loss) - 1.0;
        let time = if self.change >= 0.0 { self.change } else { 1.0 / (1.0 + self.change) - 1.0 };
        if time > 0.0 { (longer / time).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// A quantity of one GPU on both sides: the mean of the runs.
    fn of_gpu(&self, at: usize, quantity: Quantity) -> Option<Sides> {
        let of = |runs: &[ComparedRun]| mean(runs.iter().filter_map(|run| run.gpus.get(at)?.mean(quantity)));
        Some(Sides { base: of(self.base)?, new: of(self.new)? })
    }

    /// The same of all GPUs.
    fn of_all(&self, gpus: usize, quantity: Quantity) -> Option<Sides> {
        let of: Vec<Sides> = (0..gpus).filter_map(|at| self.of_gpu(at, quantity)).collect();
        let base = mean(of.iter().map(|sides| sides.base))?;
        Some(Sides { base, new: mean(of.iter().map(|sides| sides.new))? })
    }

    /// The clock fell: on one GPU, for which the others wait, or on all.
    fn clock(&self, gpus: usize) -> Option<ChangeCause> {
        let losses = self.losses(gpus, Quantity::GpuClock);
        let (worst, loss) = losses.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let others = mean(losses.iter().filter(|(at, _)| *at != worst).map(|(_, loss)| *loss));
        let explains = self.explained(loss);
        if let Some(others) = others
            && loss >= LOSS_OF_ONE_MIN
            && others < loss / 2.0
        {
            let (name, sides) = (self.name(worst)?, self.of_gpu(worst, Quantity::GpuClock)?);
            let (_, held) = self.held(|quantity| self.of_gpu(worst, quantity));
            let sentence = format!(
                "the clock of GPU {name}: {}{held}; the others differ by {:.1} % and wait for it",
                sides.text("MHz"),
                100.0 * others.abs()
            );
            return Some(ChangeCause { id: "slowest_gpu", explains, sentence, gpu: Some(name) });
        }
        let sides = self.of_all(gpus, Quantity::GpuClock)?;
        let loss = -sides.slowed(self);
        if loss < LOSS_MIN {
            return None;
        }
        let (id, held) = self.held(|quantity| self.of_all(gpus, quantity));
        let sentence = format!("the clock under load: {}{held}", sides.text("MHz"));
        Some(ChangeCause { id, explains: self.explained(loss), sentence, gpu: None })
    }

    /// How much each GPU lost of a quantity from the fast to the slow runs, as a share.
    fn losses(&self, gpus: usize, quantity: Quantity) -> Vec<(usize, f64)> {
        (0..gpus)
            .filter_map(|at| Some((at, -self.of_gpu(at, quantity)?.slowed(self))))
            .filter(|(_, loss)| loss.is_finite())
            .collect()
    }

    /// What held the clock, for programs and as the rest of a sentence: the limit whose share of time rose most, or that held it in
    /// all runs, or a lock.
    fn held(&self, of: impl Fn(Quantity) -> Option<Sides>) -> (&'static str, String) {
        let limits = [
            ("clock_heat", "heat", Quantity::Heat),
            ("clock_power_limit", "the power limit", Quantity::AtPowerLimit),
            ("clock_hardware", "the hardware's own slowdown", Quantity::Hardware),
        ];
        let known: Vec<_> =
            limits.into_iter().filter_map(|(id, what, quantity)| Some((id, what, of(quantity)?))).collect();
        let risen = known
            .iter()
            .filter(|(_, _, share)| share.more(self) >= SHARE_RISE_MIN)
            .max_by(|a, b| a.2.more(self).total_cmp(&b.2.more(self)));
        let lasting = known
            .iter()
            .filter(|(_, _, share)| share.base.min(share.new) >= SHARE_HELD_MIN)
            .max_by(|a, b| a.2.new.total_cmp(&b.2.new));
        if let Some(&(id, what, share)) = risen {
            return (id, format!(", held by {what} for {}", share.percent()));
        }
        if let Some((base, new)) = self.locks() {
            return ("clock_lock", format!(", whose lock differs: {base}, now {new}"));
        }
        match lasting {
            Some(&(id, what, share)) => (id, format!(", held by {what} for {}", share.percent())),
            None => ("clock", String::new()),
        }
    }

    /// What holds the clocks of the first runs and of the second, if that is not the same.
    fn locks(&self) -> Option<(String, String)> {
        let lock = |runs: &[ComparedRun]| runs.first()?.gpus.first()?.facts.clock_lock();
        let (base, new) = (lock(self.base)?, lock(self.new)?);
        (base != new).then_some((base, new))
    }

    /// The clock of the memory fell.
    fn memory(&self, gpus: usize) -> Option<ChangeCause> {
        let sides = self.of_all(gpus, Quantity::MemClock)?;
        let loss = -sides.slowed(self);
        let sentence = format!("the clock of the memory: {}", sides.text("MHz"));
        let cause = ChangeCause { id: "memory", explains: self.explained(loss), sentence, gpu: None };
        (loss >= LOSS_MIN).then_some(cause)
    }

    /// The GPUs had less to do: all of them, so the host kept them waiting; or all but one, for which they wait.
    fn waiting(&self, gpus: usize) -> Option<ChangeCause> {
        let sides = self.of_all(gpus, Quantity::Utilization)?;
        let idle = -sides.more(self);
        if idle < IDLE_MIN_PCT {
            return None;
        }
        let explains = self.explained(-sides.slowed(self));
        let of_each: Vec<(usize, f64)> = (0..gpus)
            .filter_map(|at| Some((at, -self.of_gpu(at, Quantity::Utilization)?.more(self))))
            .collect();
        let (busiest, its) = of_each.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let others = mean(of_each.iter().filter(|(at, _)| *at != busiest).map(|(_, idle)| *idle));
        let busy = format!("{:.0} % busy, now {:.0} %", sides.base, sides.new);
        if others.is_some_and(|others| others >= WAITING_MIN_PCT && its < others / 3.0) {
            let name = self.name(busiest)?;
            let sentence = format!("GPU {name} has as much to do as before, the others wait for it: {busy}");
            return Some(ChangeCause { id: "slowest_gpu", explains, sentence, gpu: Some(name) });
        }
        let cpu = self.figure(RunMetric::CpuPct).map_or_else(String::new, |cpu| {
            format!("; the host's CPUs: {:.0} %, now {:.0} %", cpu.base, cpu.new)
        });
        let sentence = format!("the GPUs wait for the host or for data: {busy}{cpu}");
        Some(ChangeCause { id: "host", explains, sentence, gpu: None })
    }

    /// The mean of a figure on both sides.
    fn figure(&self, metric: RunMetric) -> Option<Sides> {
        let of = |runs: &[ComparedRun]| {
            mean(runs.iter().filter_map(|run| mean(run.figures.get(&metric)?.iter().copied())))
        };
        Some(Sides { base: of(self.base)?, new: of(self.new)? })
    }

    /// Index of a GPU, or its key where the index is not known.
    fn name(&self, at: usize) -> Option<String> {
        let facts = &self.new.first()?.gpus.get(at)?.facts;
        Some(facts.gpu.map_or_else(|| facts.id.clone(), |index| index.to_string()))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / float(count))
}
