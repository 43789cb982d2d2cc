//! Two sets of runs beside each other: what changed, how sure that is, whether a gate failed, and why.
//!
//! The unit is the run. A change has an interval of 95 %: Student's quantile times its standard deviation, whose variance is that of a
//! bootstrap over the runs, and over blocks of steps within each, beside an assumed noise (`compare/bootstrap.rs`). Its verdict needs both:
//! a change that an interval of 99 % tells from none, and one that is large enough to matter.

mod bootstrap;
mod cells;
mod conditions;
mod metric;
mod run;
mod why;

use std::collections::BTreeMap;

use serde::Serialize;

use metric::Better;
use why::Slowed;

pub use conditions::RunDifference;
pub use metric::{GateError, MetricGate, RunMetric};
pub use run::{ComparedRun, RunSource};
pub use why::ChangeCause;

/// Most runs of a side: the pairs of a set grow by their square.
pub const RUNS_MAX: usize = 100;

/// What a change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    /// Better, and by more than what does not matter.
    Improvement,
    /// Surely not worse by more than what does not matter, and not surely better.
    Same,
    /// Noise hides which of them it is.
    CannotTell,
    /// Worse, and by more than what does not matter.
    Regression,
}

/// A metric of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricChange {
    /// The middle of the first runs: the median of the means of all pairs of them.
    pub base: f64,
    /// The middle of the second runs.
    pub new: f64,
    /// Change from the first to the second, %.
    pub change_pct: f64,
    /// Lower end of the change's interval of 95 %, %.
    pub low_pct: f64,
    /// Upper end, %.
    pub high_pct: f64,
    /// Smallest change that these runs tell from noise, %: an interval of 99 % of it excludes none; of 99.5 %, if the runs are far noisier
    /// than usual.
    pub detectable_pct: f64,
    /// Whether the change is told from noise so.
    pub certain: bool,
    /// What it means; none of a metric that gets neither better nor worse.
    pub verdict: Option<ChangeVerdict>,
}

/// A gate, and whether it held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GateOutcome {
    /// What may not change.
    pub metric: RunMetric,
    /// By how much, %: above 0 it may not rise, below 0 it may not fall.
    pub limit_pct: f64,
    /// A regression fails it.
    pub verdict: ChangeVerdict,
}

/// A run, as the comparison names it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutline {
    /// Directory of its recording.
    pub recording: String,
    /// Steps after the warm-up; 0: neither marks nor signals show any.
    pub steps: usize,
    /// GPUs that it used.
    pub gpus: usize,
}

/// What the comparison of two sets of runs found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    /// The first runs.
    pub base: Vec<RunOutline>,
    /// The second runs.
    pub new: Vec<RunOutline>,
    /// What differs beside the figures.
    pub differs: Vec<RunDifference>,
    /// Each metric that all runs have.
    pub metrics: BTreeMap<RunMetric, MetricChange>,
    /// Each gate that was asked for, and how it ended.
    pub gates: Vec<GateOutcome>,
    /// The worst of the gates.
    pub verdict: ChangeVerdict,
    /// Why the time changed, the heaviest first; none: it did not, or nothing that was recorded explains it.
    pub why: Vec<ChangeCause>,
    /// What these runs cannot tell, and what is assumed; none: there are enough of them.
    pub caution: Option<String>,
}

/// What becomes of runs that are two different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnlikeRuns {
    /// They are not compared.
    Refused,
    /// They are compared anyway.
    Compared,
}

/// Why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A side has no run, or too many.
    #[error("a comparison needs 1 to {RUNS_MAX} runs on each side")]
    Runs,
    /// They are two different things.
    #[error("the runs are not alike: {}", words(.0))]
    Unlike(Vec<RunDifference>),
    /// A gate is on a metric that a run lacks.
    #[error("{metric} is not known of every run: {}", .metric.remedy())]
    Missing {
        /// The metric of the gate.
        metric: RunMetric,
    },
    /// There is no gate, because the runs lack the metrics of the usual ones.
    #[error(
        "neither the time nor the energy is known of every run: one has a single row, or no values; --gate judges another metric"
    )]
    Nothing,
}

fn words(differences: &[RunDifference]) -> String {
    let word =
        |it: &RunDifference| format!("{} {} and {}", it.what, it.base.join(" or "), it.new.join(" or "));
    differences.iter().map(word).collect::<Vec<_>>().join("; ")
}

/// Compares two sets of runs. Without a gate there are the usual ones: on the time of a step, or of the run where no steps are known,
/// and on the energy.
///
/// # Errors
/// If there is no run, if they are not alike, if a gate is on a metric that they lack, or if they lack those of the usual gates.
pub fn compare(
    base: &[ComparedRun],
    new: &[ComparedRun],
    gates: &[MetricGate],
    unlike: UnlikeRuns,
) -> Result<RunComparison, CompareError> {
    if ![base, new].iter().all(|runs| (1..=RUNS_MAX).contains(&runs.len())) {
        return Err(CompareError::Runs);
    }
    let differs = conditions::differences(base, new);
    if unlike == UnlikeRuns::Refused && differs.iter().any(|difference| difference.refuses) {
        let refused = differs.into_iter().filter(|difference| difference.refuses);
        return Err(CompareError::Unlike(refused.collect()));
    }
    let mut metrics = BTreeMap::new();
    for metric in RunMetric::ALL {
        let gate = gates.iter().copied().find(|gate| gate.metric == metric);
        metrics.extend(change(metric, gate, base, new).map(|change| (metric, change)));
    }
    let usual = usual_gates(&metrics);
    let mut outcomes = Vec::new();
    for gate in if gates.is_empty() { usual.as_slice() } else { gates } {
        let MetricGate { metric, limit } = *gate;
        let change = metrics.get(&metric).ok_or(CompareError::Missing { metric })?;
        let limit_pct = percent(limit);
        outcomes.push(GateOutcome { metric, limit_pct, verdict: verdict(change, limit) });
    }
    let verdict = outcomes.iter().map(|outcome| outcome.verdict).max().ok_or(CompareError::Nothing)?;
    Ok(RunComparison {
        base: outlines(base),
        new: outlines(new),
        differs,
        why: why(base, new, &metrics),
        caution: caution(base, new, &outcomes, &metrics),
        metrics,
        gates: outcomes,
        verdict,
    })
}

/// A metric of both sides; none if a run lacks it.
fn change(
    metric: RunMetric,
    gate: Option<MetricGate>,
    base: &[ComparedRun],
    new: &[ComparedRun],
) -> Option<MetricChange> {
    let apart = bootstrap::apart(&blocks(base, metric)?, &blocks(new, metric)?)?;
    let mut change = MetricChange {
        base: apart.base,
        new: apart.new,
        change_pct: percent(apart.change),
        low_pct: percent(apart.low),
        high_pct: percent(apart.high),
        detectable_pct: percent(apart.least),
        certain: apart.is_certain,
        verdict: None,
    };
    let judged = gate.or_else(|| (metric.better() != Better::Neither).then(|| MetricGate::usual(metric)));
    change.verdict = judged.map(|gate| verdict(&change, gate.limit));
    Some(change)
}

fn blocks(runs: &[ComparedRun], metric: RunMetric) -> Option<Vec<&[f64]>> {
    runs.iter().map(|run| run.figures.get(&metric).map(Vec::as_slice)).collect()
}

/// What a change means where this much does not matter, as a share with the sign of what is worse.
fn verdict(change: &MetricChange, limit: f64) -> ChangeVerdict {
    let matters = percent(limit.abs());
    let MetricChange { change_pct, low_pct, high_pct, certain, .. } = *change;
    let (at, high) = if limit > 0.0 { (change_pct, high_pct) } else { (-change_pct, -low_pct) };
    if certain && at >= matters {
        ChangeVerdict::Regression
    } else if certain && at <= -matters {
        ChangeVerdict::Improvement
    } else if high <= matters {
        ChangeVerdict::Same
    } else {
        ChangeVerdict::CannotTell
    }
}

/// The metric of the time: a step, or where none is known the run.
fn time_of(metrics: &BTreeMap<RunMetric, MetricChange>) -> Option<RunMetric> {
    [RunMetric::StepS, RunMetric::DurationS].into_iter().find(|metric| metrics.contains_key(metric))
}

fn usual_gates(metrics: &BTreeMap<RunMetric, MetricChange>) -> Vec<MetricGate> {
    let energy = [RunMetric::StepEnergyJ, RunMetric::EnergyJ];
    let energy = energy.into_iter().find(|metric| metrics.contains_key(metric));
    time_of(metrics).into_iter().chain(energy).map(MetricGate::usual).collect()
}

/// Why the time changed; nothing if it cannot be told that it did.
fn why(
    base: &[ComparedRun],
    new: &[ComparedRun],
    metrics: &BTreeMap<RunMetric, MetricChange>,
) -> Vec<ChangeCause> {
    let time = time_of(metrics).and_then(|metric| metrics.get(&metric));
    let changed = time.filter(|time| time.certain);
    changed.map_or_else(Vec::new, |time| why::causes(&Slowed { base, new, change: time.change_pct / 100.0 }))
}

/// What the runs of these gates are too few for.
fn caution(
    base: &[ComparedRun],
    new: &[ComparedRun],
    gates: &[GateOutcome],
    metrics: &BTreeMap<RunMetric, MetricChange>,
) -> Option<String> {
    let runs = [base.len(), new.len()];
    let is_open = gates.iter().any(|gate| gate.verdict == ChangeVerdict::CannotTell);
    if !runs.contains(&1) && !is_open {
        return None;
    }
    let told: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let least = metrics.get(&gate.metric)?.detectable_pct;
            Some(format!("of {} a change beyond {least:.1} %", gate.metric))
        })
        .collect();
    // Several runs of either side say how much runs differ.
    let assumed = if runs == [1, 1] {
        let usual = percent(bootstrap::RUN_NOISE_USUAL);
        format!("; one run does not say how much runs differ, {usual} % is assumed")
    } else {
        String::new()
    };
    Some(format!("these runs can tell from noise {}{assumed}; more runs tell smaller ones", told.join(", ")))
}

fn outlines(runs: &[ComparedRun]) -> Vec<RunOutline> {
    let outline = |run: &ComparedRun| RunOutline {
        recording: run.name.clone(),
        steps: run.steps,
        gpus: run.gpus.len(),
    };
    runs.iter().map(outline).collect()
}

/// A share in percent, to a thousandth.
fn percent(share: f64) -> f64 {
    gpuvitals_core::integral::rounded(100.0 * share)
}
