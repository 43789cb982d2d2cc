//! Rows.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination, RowMetrics, Scalar};

/// One row: the values of one GPU at one instant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "gpu_id": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21", "hostname": "sim-node-01",
    "metrics": {"utilization_pct": 97.0, "power_w": 612.4, "temperature_c": 64.0, "memory_used_mb": 70144},
    "timestamp": "2026-11-20T16:00:00Z"
}))]
pub(crate) struct TelemetryEntry<'a> {
    /// Identity of the GPU; in rows of `system_events` the name of the host.
    #[schema(value_type = String)]
    pub(crate) gpu_id: Cow<'a, str>,
    /// Host it was in.
    pub(crate) hostname: Option<&'a str>,
    /// Values by column; a value that was not read is left out.
    #[schema(value_type = std::collections::BTreeMap<String, Scalar<'static>>)]
    pub(crate) metrics: RowMetrics<'a>,
    /// When the values were taken.
    pub(crate) timestamp: Moment,
    /// `true` if the values were made up by a simulation; missing if they were measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) simulated: bool,
}

/// Some of the rows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TelemetryList<'a> {
    /// The rows, by time in the order asked, then by GPU.
    pub(crate) data: Vec<TelemetryEntry<'a>>,
    /// How many match in all; missing where `after` or `kind` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = usize, example = 3600)]
    pub(crate) total: Option<usize>,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What to give as `after` for the rows that follow; missing if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "1795190390000000000_4750552d61")]
    pub(crate) next: Option<String>,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}
