//! The steps of a batch job: where and when each ran, and what the job used of its GPUs meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{Fleet, Part, QueryError, all_holdings, job_steps};
use gpuvitals_core::usage::{Holding, HoldingGroup, HoldingSums, HoldingsQuery, StepOnHost, job_of};

use crate::ask::{self, View};
use crate::config::JobPrices;
use crate::dto::{JobStep, JobSums, Moment};

/// Most steps of a job that are shown, those that began last: each is a question for the rows of the job.
const STEPS_MAX: usize = 50;
/// Most rows of `jobs` about steps that are joined.
const ROWS_MAX: usize = 200_000;

/// A step on all its hosts.
#[derive(Debug, Default)]
struct WholeStep {
    hosts: BTreeSet<Arc<str>>,
    /// How many GPUs its processes name.
    named: usize,
    /// Keys of those that are in the fleet.
    gpus: Vec<Arc<str>>,
    start_ns: Option<i64>,
    /// The last end, if it has ended on all hosts.
    end_ns: Option<i64>,
    runs: Option<bool>,
}

/// The steps of a job.
#[derive(Debug, Default)]
pub(super) struct StepsOfJob {
    /// Those that began last, in the order in which they began.
    pub shown: Vec<StepUse>,
    /// How many there are.
    pub total: usize,
}

/// A step, and what the job used of its GPUs meanwhile.
#[derive(Debug)]
pub(super) struct StepUse {
    name: Arc<str>,
    step: WholeStep,
    sums: Option<HoldingSums>,
}

/// The steps of a job, with what it used of the GPUs of each from the begin of the step to its end. A group of several jobs has none. Where
/// the rows about steps are too many, or a collector is away, the answer has no step and says what is missing.
///
/// # Errors
/// When the history fails.
pub(super) async fn of_job(
    view: &View,
    job: &Holding,
    (start_ns, end_ns): (i64, i64),
    fleet: &Fleet,
) -> Result<Part<StepsOfJob>, QueryError> {
    let Some((holder, id)) = job.holder.as_ref().and_then(|holder| Some((holder, job_of(holder)?))) else {
        return Ok(Part::default());
    };
    let (history, at_ns) = (view.history.as_ref(), end_ns.min(view.now_ns()));
    let told = job_steps(history, Arc::from(id), (start_ns, end_ns), ROWS_MAX).await;
    let Part { answer, mut missing } = match told {
        Err(error @ (QueryError::TooManyRows { .. } | QueryError::Away { .. })) => {
            let missing = vec![format!("the steps of the job: {error}")];
            return Ok(Part { answer: StepsOfJob::default(), missing });
        }
        told => told?,
    };
    let mut steps = together(answer.of(job.cluster.as_deref()), job.cluster.as_deref(), fleet, at_ns);
    let total = steps.len();
    let mut shown = Vec::new();
    for (name, step) in steps.split_off(total.saturating_sub(STEPS_MAX)) {
        let from_ns = step.start_ns.map(|step_ns| step_ns.max(start_ns));
        let until_ns = step.end_ns.unwrap_or(at_ns).min(at_ns);
        let span = from_ns.filter(|from_ns| *from_ns < until_ns && !step.gpus.is_empty());
        let sums = match span {
            Some(from_ns) => {
                let (gpus, by) = (step.gpus.clone(), HoldingGroup::Holder);
                let query = HoldingsQuery {
                    gpus,
                    start_ns: from_ns,
                    end_ns: until_ns,
                    by,
                    holder: Some(Arc::clone(holder)),
                };
                let Part { answer: held, missing: unread } = all_holdings(history, &query, None).await?;
                missing = ask::joined(missing, unread);
                let groups = held.finish().groups;
                groups.iter().find(|group| group.cluster == job.cluster).map(|group| group.sums)
            }
            None => None,
        };
        shown.push(StepUse { name, step, sums });
    }
    Ok(Part { answer: StepsOfJob { shown, total }, missing })
}

/// Each step on all its hosts, in the order in which they began. A row is of a whole hour: steps that began after the instant are in none.
fn together(
    on_hosts: Vec<StepOnHost>,
    cluster: Option<&str>,
    fleet: &Fleet,
    at_ns: i64,
) -> Vec<(Arc<str>, WholeStep)> {
    let mut by_name: BTreeMap<Arc<str>, WholeStep> = BTreeMap::new();
    let has_begun = |one: &StepOnHost| one.start_ns.is_none_or(|start_ns| start_ns <= at_ns);
    for one in on_hosts.into_iter().filter(has_begun) {
        let is_first = !by_name.contains_key(&one.step);
        let step = by_name.entry(Arc::clone(&one.step)).or_default();
        let runs = one.runs(at_ns);
        step.start_ns = step.start_ns.into_iter().chain(one.start_ns).min();
        step.runs = match (step.runs, runs) {
            _ if is_first => runs,
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let ended_ns = one.end_ns.filter(|_| runs == Some(false));
        step.end_ns = if is_first { ended_ns } else { step.end_ns.zip(ended_ns).map(|(a, b)| a.max(b)) };
        step.named += one.gpus.len();
        step.gpus.extend(one.gpus.iter().filter_map(|name| key_of(fleet, (cluster, &*one.host), name)));
        step.hosts.insert(one.host);
    }
    let sorted = |(name, mut step): (Arc<str>, WholeStep)| {
        step.gpus.sort();
        step.gpus.dedup();
        (name, step)
    };
    let mut steps: Vec<(Arc<str>, WholeStep)> = by_name.into_iter().map(sorted).collect();
    steps.sort_by_key(|(_, step)| step.start_ns);
    steps
}

/// The key of a GPU that is called so on a host: by its number there, if one GPU alone has it, or by its UUID.
fn key_of(fleet: &Fleet, (cluster, host): (Option<&str>, &str), name: &str) -> Option<Arc<str>> {
    let Ok(number) = name.parse::<i32>() else { return Some(Arc::clone(&fleet.get(name)?.key)) };
    let mut named = fleet.gpus.iter().filter(|gpu| {
        let identity = &gpu.identity;
        identity.index == Some(number)
            && identity.node() == Some(host)
            && identity.get(IdentityColumn::Cluster) == cluster
            && identity.get(IdentityColumn::Partition).is_none()
    });
    let gpu = named.next()?;
    named.next().is_none().then(|| Arc::clone(&gpu.key))
}

impl StepUse {
    /// As an answer has it.
    pub(super) fn shown(&self, prices: JobPrices) -> JobStep {
        let Self { name, step, sums } = self;
        JobStep {
            step: name.to_string(),
            hosts: step.hosts.iter().map(ToString::to_string).collect(),
            gpus: (step.named > 0).then_some(step.named),
            start: step.start_ns.map(Moment),
            end: step.end_ns.map(Moment),
            state: step.runs.map(|runs| if runs { "running" } else { "ended" }),
            used: sums.map(|sums| JobSums::of(&sums, prices)),
            interpolated: sums.is_some_and(|sums| sums.is_interpolated()),
        }
    }
}
