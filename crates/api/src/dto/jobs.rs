//! What jobs and pods used.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::energy::JOULES_PER_KWH;
use gpuvitals_core::history::Fleet;
use gpuvitals_core::usage::{BatchJob, Holding, HoldingSums};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};
use crate::condition::memory_mb;
use crate::config::JobPrices;

/// What jobs and pods used in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobList {
    /// The jobs and pods, or what they are put together by.
    pub(crate) jobs: Vec<JobUse>,
    /// All of them together.
    pub(crate) whole: JobSums,
    /// Time in which GPUs were sampled and nobody had them.
    pub(crate) nobody: JobSums,
    /// Hours of GPUs between samples that are too far apart: the GPU was lost, hung or asleep, or the host was. Time without an agent
    /// is not among them.
    pub(crate) unobserved_gpu_hours: f64,
    /// Whether the range begins or ends within an hour: then of that hour a part is taken that is as long.
    pub(crate) interpolated: bool,
    /// How many GPUs have no sums of an agent in the range, so that theirs are made from rows; missing if there are none.
    #[serde(skip_serializing_if = "is_none")]
    #[schema(required = false)]
    pub(crate) gpus_by_rows: usize,
    /// These sums beside the rows of their GPUs; missing unless `check=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) check: Option<JobCheck>,
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// How many there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
}

/// What one job or pod used in a range of time, in all and of each GPU.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobDetail {
    /// What it used on all its GPUs.
    pub(crate) job: JobUse,
    /// Of each GPU, by host.
    pub(crate) gpus: Vec<JobGpu>,
    /// What it could have done without; missing where that is not safe to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) advice: Option<JobAdvice>,
    /// Its steps, as the nodes of a Slurm job see them, in the order in which they began: of more than 50 those that began last. Steps may run
    /// at once and on the same GPUs, so they do not add up to the job. Missing if none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) steps: Vec<JobStep>,
    /// How many steps there are; missing if none is known.
    #[serde(skip_serializing_if = "is_none")]
    #[schema(required = false)]
    pub(crate) steps_total: usize,
    /// Whether the range begins or ends within an hour: then of that hour a part is taken that is as long.
    pub(crate) interpolated: bool,
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
}

/// What a job or pod used, or several that are put together.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobUse {
    /// What it is put together by: the holder, or what `by` asks for; null: without one.
    #[schema(value_type = Option<String>)]
    pub(crate) group: Option<String>,
    /// The holder: `pod:NAMESPACE/POD/CONTAINER`, `job:ID`, `run:NAME` or `user:NAME`; null: several.
    pub(crate) holder: Option<String>,
    /// Its cluster; null: none is named, or several.
    pub(crate) cluster: Option<String>,
    /// Its namespace; null: not known, or several.
    pub(crate) namespace: Option<String>,
    /// Its pod; null: none, or several.
    pub(crate) pod: Option<String>,
    /// Its container; null: none, or several.
    pub(crate) container: Option<String>,
    /// Its batch job; null: none, or several.
    pub(crate) job: Option<String>,
    /// `true` if some of its GPUs are simulated; missing if all were measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) simulated: bool,
    /// Whether it has a GPU still: of its GPUs one has no later row of anybody else. Null: the range ended before now.
    pub(crate) running: Option<bool>,
    /// How many GPUs it had; each MIG instance is one.
    pub(crate) gpus: usize,
    /// How many of them have no sums of an agent in the range: what it used of these is made from rows, which name one holder of a GPU and
    /// not its container. Missing if there are none.
    #[serde(skip_serializing_if = "is_none")]
    #[schema(required = false)]
    pub(crate) gpus_by_rows: usize,
    /// The hosts of its GPUs.
    pub(crate) hosts: Vec<String>,
    /// What the batch system told of the job; missing if it is none, or several, or nothing was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) about: Option<AboutJob>,
    /// What it used.
    #[serde(flatten)]
    pub(crate) sums: JobSums,
}

/// What the batch system told of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AboutJob {
    /// Name that its user gave it; null: not known.
    name: Option<String>,
    /// Its user, a number where `api.hide_users` is set; null: not known.
    user: Option<String>,
    /// Number of its user on the host; null: not known.
    uid: Option<i64>,
    /// How many GPUs were asked for on all its hosts; of a pod the sum of the limits of its containers. Null: not known. What it had stands
    /// in `gpus` of the job.
    gpus_asked: Option<i64>,
    /// Account that it is charged to; null: not known.
    account: Option<String>,
    /// Queue or partition that it ran in; null: not known.
    queue: Option<String>,
    /// Its array and its place there, `ARRAY_TASK`; null: it is of none.
    array_task: Option<String>,
    /// When it began; null: not known.
    start: Option<Moment>,
    /// When it ended; null: at the end of the range it ran, or that is not known.
    end: Option<Moment>,
    /// `running` or `ended` at the end of the range; of a job that is over how it ended, where Slurm said so: `completed`, `failed`,
    /// `cancelled`, `timeout` and so on. Null: nobody had told of it for long.
    state: Option<String>,
    /// How it ended, `CODE:SIGNAL`; null: at the end of the range it ran, or that is not known.
    exit_code: Option<String>,
    /// Its labels that the setting `jobs.labels` names; missing if it has none of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    labels: BTreeMap<String, String>,
}

/// A step of a batch job, seen by its processes: to half a minute.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobStep {
    /// What the batch system calls it: its number, or `batch`.
    #[schema(example = "0")]
    pub(crate) step: String,
    /// The hosts of its processes.
    pub(crate) hosts: Vec<String>,
    /// How many GPUs it may use there; null: not known.
    pub(crate) gpus: Option<usize>,
    /// When its first process was seen; null: not known.
    pub(crate) start: Option<Moment>,
    /// When none of its processes was seen any more; null: it runs, or that is not known.
    pub(crate) end: Option<Moment>,
    /// `running` or `ended` at the end of the range; null: nobody had told of it for long.
    #[schema(value_type = Option<String>)]
    pub(crate) state: Option<&'static str>,
    /// What the job used of these GPUs from the begin of the step to its end; null: not known.
    pub(crate) used: Option<JobSums>,
    /// Whether the step began or ended within an hour: then of that hour's sums a part is taken that is as long.
    pub(crate) interpolated: bool,
}

/// What a job that is over could have done without.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobAdvice {
    /// The advice in a sentence.
    #[schema(example = "2 of 8 GPUs never passed 1 %; with 6 this job would have saved 31.2 GPU hours")]
    pub(crate) text: String,
    /// How many GPUs it had.
    pub(crate) gpus: usize,
    /// How many of them did nothing from its begin to its end.
    pub(crate) idle_gpus: usize,
    /// Hours that it held these.
    pub(crate) saved_gpu_hours: f64,
}

/// What a job or pod used of one GPU or MIG instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobGpu {
    /// Key of the GPU, or of the instance.
    pub(crate) gpu: String,
    /// Its host; null: not known.
    pub(crate) hostname: Option<String>,
    /// Its model; null: not known.
    pub(crate) model: Option<String>,
    /// Its number on the host, that of the card for an instance; null: not known any more.
    pub(crate) index: Option<i32>,
    /// Its memory, MiB; null: not known any more.
    pub(crate) memory_mb: Option<i64>,
    /// The part of the held hours whose utilisation is known; null: none.
    pub(crate) known_gpu_hours: Option<f64>,
    /// What it used of it.
    #[serde(flatten)]
    pub(crate) sums: JobSums,
}

/// Sums of what was used, in the order in which they are shown wherever some of them stand beside each other.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobSums {
    /// Hours of GPUs; of a GPU that several hold at once its part, by `share` of its rows of `gpu_usage`.
    pub(crate) held_gpu_hours: f64,
    /// These hours times the utilisation; null where that is not known.
    pub(crate) busy_gpu_hours: Option<f64>,
    /// The rest of the hours whose utilisation is known: held for nothing. Null where that is not known.
    pub(crate) wasted_gpu_hours: Option<f64>,
    /// The part of the hours in which the GPU did nothing; null where the utilisation is not known.
    pub(crate) idle_gpu_hours: Option<f64>,
    /// The part of the held hours in which a limit held the clocks down; null where that is not known.
    pub(crate) throttled_gpu_hours: Option<f64>,
    /// The part of the held hours in which somebody else had the GPU too.
    pub(crate) shared_gpu_hours: f64,
    /// Energy in kWh; null without power and counter.
    pub(crate) energy_kwh: Option<f64>,
    /// Energy of the time in which the GPUs did nothing, kWh; null without any.
    pub(crate) idle_energy_kwh: Option<f64>,
    /// Highest power of one GPU in the hours of the range, watts; null without power.
    pub(crate) power_max_w: Option<f64>,
    /// Highest temperature of one GPU in these hours, °C; null without one.
    pub(crate) temperature_max_c: Option<f64>,
    /// Most memory in use on one GPU in these hours, MB; null where that is not known.
    pub(crate) memory_max_mb: Option<f64>,
    /// Cost of the held hours; missing without the setting `jobs.price_per_gpu_hour`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) cost: Option<f64>,
    /// Cost of the wasted hours; missing as well, and where they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) wasted_cost: Option<f64>,
    /// Cost of the energy; missing without the setting `jobs.price_per_kwh`, and without energy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) energy_cost: Option<f64>,
    /// CO2 of the energy, kg; missing without the setting `jobs.carbon_g_per_kwh`, and without energy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) carbon_kg: Option<f64>,
}

/// Sums of a ledger beside the GPUs' own time and energy, which are read from the rows of their samples as
/// `/api/v1/analysis/energy` reads them: of the GPUs that have both.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobCheck {
    /// How many GPUs have both; MIG instances count with their card.
    pub(crate) gpus: usize,
    /// How many have samples and no sums, as those of files and of clusters read from outside.
    pub(crate) gpus_without_sums: usize,
    /// Hours by the sums: of jobs and pods, of nobody, and not observed.
    pub(crate) gpu_hours: f64,
    /// Hours from the first sample of each GPU in the range to its last.
    pub(crate) own_gpu_hours: f64,
    /// By how much the sums are above the GPUs' own hours, %; null without any.
    pub(crate) residual_pct: Option<f64>,
    /// Energy by the sums, of the GPUs that have it by the samples too, kWh; null without any.
    pub(crate) energy_kwh: Option<f64>,
    /// Energy by the samples, of the same GPUs, kWh; null without any.
    pub(crate) own_energy_kwh: Option<f64>,
    /// By how much the sums are above it, %; null without any.
    pub(crate) energy_residual_pct: Option<f64>,
    /// The part of the hours that is of hours of which only a part was asked for, %: up to so much a residual may say nothing.
    pub(crate) interpolated_pct: Option<f64>,
}

impl JobUse {
    /// Of a group of holders, with what is told of it if it is one batch job; `is_current`: the range ends now.
    pub(crate) fn of(held: &Holding, told: Option<&BatchJob>, is_current: bool, prices: JobPrices) -> Self {
        let [namespace, pod, container, job] =
            held.names.each_ref().map(|name| name.as_ref().map(ToString::to_string));
        Self {
            group: held.group.as_ref().map(ToString::to_string),
            holder: held.holder.as_ref().map(ToString::to_string),
            cluster: held.cluster.as_ref().map(ToString::to_string),
            namespace,
            pod,
            container,
            job,
            simulated: held.is_simulated,
            running: is_current.then_some(held.is_last),
            gpus: held.gpus.len(),
            gpus_by_rows: held.by_rows.len(),
            hosts: held.nodes.iter().map(ToString::to_string).collect(),
            about: told.map(AboutJob::of),
            sums: JobSums::of(&held.sums, prices),
        }
    }
}

impl AboutJob {
    fn of(job: &BatchJob) -> Self {
        let text = |text: Option<&Arc<str>>| text.map(ToString::to_string);
        Self {
            name: text(job.name()),
            user: text(job.user()),
            uid: job.uid,
            gpus_asked: job.gpus_asked,
            account: text(job.account()),
            queue: text(job.queue()),
            array_task: text(job.array_task()),
            start: job.start_ns.map(Moment),
            end: job.end_ns.map(Moment),
            state: job.runs.map(|runs| {
                let state = if runs { "running" } else { job.outcome.as_deref().unwrap_or("ended") };
                state.to_owned()
            }),
            exit_code: text(job.exit_code.as_ref()),
            labels: job.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }
}

impl JobGpu {
    /// Of what was held of one GPU, which may be in the fleet still.
    pub(crate) fn of(held: &Holding, fleet: &Fleet, prices: JobPrices) -> Self {
        let key = held.group.as_deref().unwrap_or_default();
        let gpu = fleet.get(key);
        Self {
            gpu: key.to_owned(),
            hostname: held.nodes.last().map(ToString::to_string),
            model: held.models.last().map(ToString::to_string),
            index: gpu.and_then(|gpu| gpu.identity.index),
            memory_mb: gpu.and_then(|gpu| memory_mb(gpu)),
            known_gpu_hours: held.sums.known_s().map(hours),
            sums: JobSums::of(&held.sums, prices),
        }
    }
}

impl JobSums {
    /// Of sums in seconds and joules, with what they cost.
    pub(crate) fn of(sums: &HoldingSums, prices: JobPrices) -> Self {
        let (held_gpu_hours, wasted_gpu_hours) = (hours(sums.held_s), sums.wasted_s.map(hours));
        let energy_kwh = sums.joules.map(kwh);
        let times = |price: Option<f64>, amount: Option<f64>| price.zip(amount).map(|(price, it)| price * it);
        Self {
            held_gpu_hours,
            busy_gpu_hours: sums.busy_s.map(hours),
            wasted_gpu_hours,
            idle_gpu_hours: sums.idle_s.map(hours),
            throttled_gpu_hours: sums.throttled_s.map(hours),
            shared_gpu_hours: hours(sums.shared_s),
            energy_kwh,
            idle_energy_kwh: sums.idle_joules.map(kwh),
            power_max_w: sums.power_max_w.map(Value::figure_of_singles),
            temperature_max_c: sums.temperature_max_c.map(Value::figure_of_singles),
            memory_max_mb: sums.memory_max_mb,
            cost: times(prices.per_gpu_hour, Some(held_gpu_hours)),
            wasted_cost: times(prices.per_gpu_hour, wasted_gpu_hours),
            energy_cost: times(prices.per_kwh, energy_kwh),
            carbon_kg: times(prices.carbon_g_per_kwh, energy_kwh).map(|grams| grams / 1e3),
        }
    }
}

impl JobCheck {
    /// Of the sums of so many GPUs, and their own seconds and joules.
    pub(crate) fn of(
        sums: &HoldingSums,
        (own_s, own_joules): (f64, Option<f64>),
        (gpus, gpus_without_sums): (usize, usize),
    ) -> Self {
        let above_pct = |sum: f64, own: f64| (own > 0.0).then(|| 100.0 * (sum - own) / own);
        let both = sums.joules.zip(own_joules);
        Self {
            gpus,
            gpus_without_sums,
            gpu_hours: hours(sums.held_s),
            own_gpu_hours: hours(own_s),
            residual_pct: above_pct(sums.held_s, own_s),
            energy_kwh: sums.joules.map(kwh),
            own_energy_kwh: own_joules.map(kwh),
            energy_residual_pct: both.and_then(|(sum, own)| above_pct(sum, own)),
            interpolated_pct: (sums.held_s > 0.0).then(|| 100.0 * sums.interpolated_s / sums.held_s),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands on a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

fn hours(seconds: f64) -> f64 {
    seconds / 3_600.0
}

fn kwh(joules: f64) -> f64 {
    joules / JOULES_PER_KWH
}
