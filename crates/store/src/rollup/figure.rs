//! A figure is a column of a rollup.

use arrow_schema::DataType;
use gpuvitals_core::MetricId;
use gpuvitals_core::batch::data_type;
use gpuvitals_core::catalogue::{self, Instrument};

use crate::grain::Grain;

/// Time of the first row that was put together.
pub(crate) const FIRST_NS: &str = "first_ns";
/// Time of the newest one.
pub(crate) const LAST_NS: &str = "last_ns";

/// A figure of the values of a metric in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Min,
    Max,
    /// The newest value of the step.
    Last,
    Sum,
    Count,
    /// When the newest was taken, unless that is the time of the newest row.
    LastNs,
    /// Frequencies of the values.
    Sketch,
    /// The oldest value of the step.
    First,
    /// When it was taken, unless that is the time of the first row.
    FirstNs,
    /// The sum of the values before a fall, unless it is 0.
    Falls,
}

impl Figure {
    const ALL: [Self; 10] = [
        Self::Min,
        Self::Max,
        Self::Last,
        Self::Sum,
        Self::Count,
        Self::LastNs,
        Self::Sketch,
        Self::First,
        Self::FirstNs,
        Self::Falls,
    ];

    /// Those that the rollups of a grain have of a metric.
    pub(super) fn all(metric: MetricId, grain: Grain) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |figure| match figure {
            Self::Sketch => has_sketch(metric, grain),
            Self::First | Self::FirstNs | Self::Falls => has_track(metric),
            _ => true,
        })
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Min => "_min",
            Self::Max => "_max",
            Self::Last => "_last",
            Self::Sum => "_sum",
            Self::Count => "_count",
            Self::LastNs => "_last_ns",
            Self::Sketch => "_sketch",
            Self::First => "_first",
            Self::FirstNs => "_first_ns",
            Self::Falls => "_falls",
        }
    }

    /// Name of the column of a metric's figure, such as `power_w_max`.
    pub(crate) fn column(self, metric: MetricId) -> String {
        format!("{}{}", metric.metric().column, self.suffix())
    }

    /// The metric and figure of a column of a rollup.
    pub(crate) fn of(column: &str) -> Option<(MetricId, Self)> {
        let metric = |figure: Self| catalogue::by_column(column.strip_suffix(figure.suffix())?);
        Self::ALL.into_iter().find_map(|figure| Some((metric(figure)?, figure)))
    }

    pub(super) fn data_type(self, metric: MetricId) -> DataType {
        match self {
            Self::Min | Self::Max | Self::Last | Self::First => data_type(metric.metric().column_type),
            Self::Sum | Self::Falls => DataType::Float64,
            Self::Count => DataType::Int32,
            Self::LastNs | Self::FirstNs => DataType::Int64,
            Self::Sketch => DataType::Binary,
        }
    }
}

/// Whether rollups of a grain have the frequencies of a metric's values. Nobody asks for a percentile of a sum that only
/// grows.
pub(crate) fn has_sketch(metric: MetricId, grain: Grain) -> bool {
    grain.has_sketches() && metric.metric().instrument == Instrument::Gauge
}

/// Whether rollups have the tracks of a metric's values, from which rates follow.
pub(crate) fn has_track(metric: MetricId) -> bool {
    metric.metric().instrument == Instrument::Counter
}
