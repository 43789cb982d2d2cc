//! What jobs and pods used.

use gpuvitals_core::energy::JOULES_PER_KWH;
use gpuvitals_core::usage::{Holding, HoldingSums};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};

/// What jobs and pods used in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobList {
    /// The jobs and pods, whoever held most GPU hours first.
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
    /// First instant.
    pub(crate) start: Moment,
    /// Last instant.
    pub(crate) end: Moment,
    /// How many jobs and pods there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
}

/// What a job or pod used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobUse {
    /// The holder: `pod:NAMESPACE/POD/CONTAINER` or `job:ID`.
    pub(crate) holder: String,
    /// Its cluster; null: none is named.
    pub(crate) cluster: Option<String>,
    /// Its namespace; null: not known.
    pub(crate) namespace: Option<String>,
    /// Its pod; null: none.
    pub(crate) pod: Option<String>,
    /// Its container; null: none.
    pub(crate) container: Option<String>,
    /// Its batch job; null: none.
    pub(crate) job: Option<String>,
    /// `true` if some of its GPUs are simulated; missing if all were measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) simulated: bool,
    /// How many GPUs it had.
    pub(crate) gpus: usize,
    /// The hosts of its GPUs.
    pub(crate) hosts: Vec<String>,
    /// What it used.
    #[serde(flatten)]
    pub(crate) sums: JobSums,
}

/// Sums of what was used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobSums {
    /// Hours of GPUs; of a GPU that several hold at once each has the same part.
    pub(crate) held_gpu_hours: f64,
    /// The part of them in which somebody else had the GPU too.
    pub(crate) shared_gpu_hours: f64,
    /// These hours times the utilisation; null where that is not known.
    pub(crate) busy_gpu_hours: Option<f64>,
    /// The part of them in which the GPU did nothing; null where the utilisation is not known.
    pub(crate) idle_gpu_hours: Option<f64>,
    /// The part of them in which a limit held the clocks down; null where that is not known.
    pub(crate) throttled_gpu_hours: Option<f64>,
    /// Energy in kWh; null without power and counter.
    pub(crate) energy_kwh: Option<f64>,
    /// Energy of the time in which the GPUs did nothing, kWh; null without any.
    pub(crate) idle_energy_kwh: Option<f64>,
    /// Highest power of one GPU in the hours of the range, watts; null without power.
    pub(crate) power_max_w: Option<f64>,
}

impl JobUse {
    /// Of a holding.
    pub(crate) fn of(held: &Holding) -> Self {
        let [namespace, pod, container, job] =
            held.names.each_ref().map(|name| name.as_ref().map(ToString::to_string));
        Self {
            holder: held.holder.to_string(),
            cluster: Some(held.cluster.to_string()).filter(|cluster| !cluster.is_empty()),
            namespace,
            pod,
            container,
            job,
            simulated: held.is_simulated,
            gpus: held.gpus.len(),
            hosts: held.nodes.iter().map(ToString::to_string).collect(),
            sums: JobSums::of(&held.sums),
        }
    }
}

impl JobSums {
    /// Of sums in seconds and joules.
    pub(crate) fn of(sums: &HoldingSums) -> Self {
        let hours = |seconds: f64| seconds / 3_600.0;
        let kwh = |joules: f64| joules / JOULES_PER_KWH;
        Self {
            held_gpu_hours: hours(sums.held_s),
            shared_gpu_hours: hours(sums.shared_s),
            busy_gpu_hours: sums.busy_s.map(hours),
            idle_gpu_hours: sums.idle_s.map(hours),
            throttled_gpu_hours: sums.throttled_s.map(hours),
            energy_kwh: sums.joules.map(kwh),
            idle_energy_kwh: sums.idle_joules.map(kwh),
            power_max_w: sums.power_max_w,
        }
    }
}
