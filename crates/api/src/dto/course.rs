//! Where metrics go, and where they are unusual.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};

/// Where metrics of the GPUs go.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrendList {
    /// GPUs and metrics: those that reach their limit first, and then the others, the steepest first.
    pub(crate) trends: Vec<TrendEntry>,
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// How many trends are steady enough.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
}

/// Where a metric of a GPU goes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrendEntry {
    /// Key of the GPU.
    pub(crate) gpu: String,
    /// Its name for people.
    pub(crate) name: String,
    /// Name of the metric.
    pub(crate) metric: &'static str,
    /// Unit of the metric; empty for none.
    pub(crate) unit: &'static str,
    /// Value at the end, on the line through its values.
    pub(crate) level: f64,
    /// Change a day: the median slope between two points.
    pub(crate) per_day: f64,
    /// -1 to 1: the share of pairs of points that rise, less that of those that fall.
    pub(crate) steadiness: f64,
    /// Points that it is made from.
    pub(crate) points: usize,
    /// How far it may go: `limit_at`, or what another metric of the GPU says; null if none does.
    pub(crate) limit: Option<f64>,
    /// When the line reaches the limit; null if it does not, or not within ten years.
    pub(crate) reaches_limit_at: Option<Moment>,
}

/// GPUs whose values in an hour are unusual.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnomalyList {
    /// GPUs and metrics, the most unusual first.
    pub(crate) anomalies: Vec<AnomalyEntry>,
    /// Why nothing is judged: the history is too young; null otherwise.
    pub(crate) note: Option<String>,
    /// GPUs that are not judged, since they have reported for less than an hour.
    pub(crate) too_young: usize,
    /// First instant of the hour.
    pub(crate) start: Moment,
    /// Last instant of the hour.
    pub(crate) end: Moment,
    /// How many values are as unusual as asked for.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
}

/// A GPU whose value is unusual.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnomalyEntry {
    /// Key of the GPU.
    pub(crate) gpu: String,
    /// Its name for people.
    pub(crate) name: String,
    /// Name of the metric.
    pub(crate) metric: &'static str,
    /// Unit of the metric; empty for none.
    pub(crate) unit: &'static str,
    /// Its mean in the hour; of a counter the newest value.
    pub(crate) value: f64,
    /// How unusual it is, in deviations: the distance from its own, or the mean of both distances if that is larger; 0 if they
    /// contradict each other. One that is not known is 0.
    pub(crate) score: f64,
    /// In words, with both distances.
    pub(crate) sentence: String,
    /// Beside itself in the same hour of those days before on which it was under like load; null if fewer than three are known.
    pub(crate) own: Option<UsualValues>,
    /// Beside the others of its model under like load in the same hour; null if they are fewer than three.
    pub(crate) peers: Option<UsualValues>,
}

/// What is usual.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsualValues {
    /// Median of the values.
    pub(crate) median: f64,
    /// The median distance to it, scaled to a standard deviation.
    pub(crate) deviation: f64,
    /// Values that it is made from.
    pub(crate) count: usize,
    /// Distance of the GPU's value in deviations, which are 4 % of the median and 5 % of the range of the model's values at least;
    /// negative below it.
    pub(crate) distance: f64,
}
