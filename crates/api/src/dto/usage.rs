//! Energy, and GPUs that are held without work.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};

/// Energy of GPUs in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EnergyList {
    /// The groups, the most energy first.
    pub(crate) groups: Vec<EnergyGroup>,
    /// All groups together.
    pub(crate) whole: EnergyGroup,
    /// First instant.
    pub(crate) start: Moment,
    /// Last instant.
    pub(crate) end: Moment,
    /// How many groups there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
}

/// Energy of some GPUs.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct EnergyGroup {
    /// Key of the GPU, name of the node, namespace, job or pod; null: those without one.
    #[schema(value_type = Option<String>)]
    pub(crate) group: Option<String>,
    /// Energy in kWh; null without power and counter.
    pub(crate) energy_kwh: Option<f64>,
    /// The part of it that the GPUs' counters say; the rest is integrated power. Null as the energy is.
    pub(crate) counted_kwh: Option<f64>,
    /// `counter`, `integrated`, or `both` if it differs among the GPUs; null without energy.
    pub(crate) source: Option<&'static str>,
    /// Hours of GPUs between their rows, without gaps; null if each has a single row.
    pub(crate) gpu_hours: Option<f64>,
    /// These hours times the utilisation; null where that is not known.
    pub(crate) busy_gpu_hours: Option<f64>,
    /// The part of them in which a limit held the clocks down; null where that is not known.
    pub(crate) throttled_gpu_hours: Option<f64>,
    /// How many GPUs.
    pub(crate) gpus: usize,
}

/// GPUs that were held without work in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdleList {
    /// The groups, the most idle hours first.
    pub(crate) groups: Vec<IdleGroup>,
    /// All groups together.
    pub(crate) whole: IdleGroup,
    /// First instant.
    pub(crate) start: Moment,
    /// Last instant.
    pub(crate) end: Moment,
    /// How many groups there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
}

/// Some held GPUs.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct IdleGroup {
    /// Key of the GPU, name of the node, namespace, job or pod; null: those without one.
    #[schema(value_type = Option<String>)]
    pub(crate) group: Option<String>,
    /// Hours of GPUs that were held, 0 without any; null if each has a single row.
    pub(crate) held_gpu_hours: Option<f64>,
    /// The part of them without work; null where the utilisation is not known.
    pub(crate) idle_gpu_hours: Option<f64>,
    /// Energy of that part, kWh.
    pub(crate) idle_energy_kwh: Option<f64>,
    /// Its cost at the price of the request; null without a price.
    pub(crate) idle_cost: Option<f64>,
    /// How many GPUs were held.
    pub(crate) gpus: usize,
}
