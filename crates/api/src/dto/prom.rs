//! The frame of Prometheus' answers.

use serde::Serialize;
use utoipa::ToSchema;

/// An answer as Prometheus gives it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromBody<T> {
    /// Always `success`.
    #[schema(example = "success")]
    pub(crate) status: &'static str,
    /// What was asked for.
    pub(crate) data: T,
    /// What the answer lacks, in words; missing if that is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) warnings: Vec<String>,
}

impl<T> PromBody<T> {
    /// An answer that lacks nothing.
    pub(crate) fn of(data: T) -> Self {
        Self { status: "success", data, warnings: Vec::new() }
    }
}

/// A request without an answer, as Prometheus says it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromErrorBody {
    /// Always `error`.
    #[schema(example = "error")]
    pub(crate) status: &'static str,
    /// The kind of error: `bad_data`, `execution`, `unavailable`, `not_found` or `internal`.
    #[serde(rename = "errorType")]
    #[schema(example = "bad_data")]
    pub(crate) error_type: &'static str,
    /// The error, for people.
    pub(crate) error: String,
}
