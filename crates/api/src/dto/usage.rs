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
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// How many groups there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
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
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// How many groups there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
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

/// The use of a fleet by step of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FleetUse {
    /// Start of each step, milliseconds UTC since 1970; multiples of the step without gaps.
    pub(crate) times: Vec<i64>,
    /// Width of a step in milliseconds.
    pub(crate) step_ms: i64,
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// All GPUs together.
    pub(crate) whole: FleetUseLine,
    /// The groups with the most energy, the most first.
    pub(crate) groups: Vec<FleetUseLine>,
    /// All other groups together; null if there are none.
    pub(crate) rest: Option<FleetUseLine>,
    /// How many groups there are in all.
    pub(crate) total: usize,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
}

/// The use of some GPUs: a value a step, and sums of the range. `null` where nothing is known.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FleetUseLine {
    /// Name of the group; null: the whole, the rest, or GPUs without such a name.
    #[schema(value_type = Option<String>)]
    pub(crate) group: Option<String>,
    /// `true` if simulated GPUs are among them; missing if all were measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) simulated: bool,
    /// GPUs that reported. One that changed hands within the step counts in each group by its share of the time.
    pub(crate) gpus: Vec<Option<f64>>,
    /// Those of them that a namespace, pod or job held.
    pub(crate) held_gpus: Vec<Option<f64>>,
    /// Those of these that did nothing.
    pub(crate) idle_gpus: Vec<Option<f64>>,
    /// Mean utilisation of the GPUs that report one, %.
    pub(crate) utilization_pct: Vec<Option<f64>>,
    /// Power together, W: the sum of each GPU's mean.
    pub(crate) power_w: Vec<Option<f64>>,
    /// How many GPUs that is of.
    pub(crate) power_gpus: Vec<Option<f64>>,
    /// Energy in kWh, as `/api/v1/analysis/energy` counts it.
    pub(crate) energy_kwh: Option<f64>,
    /// Hours of GPUs, as there.
    pub(crate) gpu_hours: Option<f64>,
    /// These hours times the utilisation.
    pub(crate) busy_gpu_hours: Option<f64>,
    /// Hours in which GPUs were held, as `/api/v1/analysis/idle` counts them.
    pub(crate) held_gpu_hours: Option<f64>,
    /// The part of them without work.
    pub(crate) idle_gpu_hours: Option<f64>,
    /// How many GPUs reported in the range.
    pub(crate) gpus_seen: usize,
}

/// Name, unit, meaning and values of a column.
type Measure = (&'static str, &'static str, &'static str, fn(&FleetUseLine) -> &[Option<f64>]);

impl FleetUseLine {
    /// What a line says of each step.
    pub(crate) const MEASURES: [Measure; 6] = [
        ("gpus", "", "GPUs that reported.", |line| &line.gpus),
        ("held_gpus", "", "Those of them that a namespace, pod or job held.", |line| &line.held_gpus),
        ("idle_gpus", "", "Those of these that did nothing.", |line| &line.idle_gpus),
        ("utilization_pct", "percent", "Mean utilisation of the GPUs that report one.", |line| {
            &line.utilization_pct
        }),
        ("power_w", "watts", "Power together: the sum of each GPU's mean.", |line| &line.power_w),
        ("power_gpus", "", "How many GPUs the power is of.", |line| &line.power_gpus),
    ];
}
