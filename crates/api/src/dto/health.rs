//! Health.

use gpuvitals_core::Health;
use serde::Serialize;
use utoipa::ToSchema;

use super::Moment;

/// How well something does: `healthy`, `degraded` (works in part, recovers by itself, nothing acknowledged is lost) or
/// `unhealthy` (does not work; a person is needed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HealthStatus {
    Healthy,
    Degraded,
    Unhealthy,
}

impl From<gpuvitals_core::Status> for HealthStatus {
    fn from(status: gpuvitals_core::Status) -> Self {
        match status {
            gpuvitals_core::Status::Healthy => Self::Healthy,
            gpuvitals_core::Status::Degraded => Self::Degraded,
            gpuvitals_core::Status::Unhealthy => Self::Unhealthy,
        }
    }
}

/// Health of a part of the pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"status": "healthy", "reason": "", "since": "2026-11-20T15:58:12Z"}))]
pub(crate) struct Component {
    /// How well it does.
    pub(crate) status: HealthStatus,
    /// Why it is not healthy; empty when it is.
    pub(crate) reason: String,
    /// Since when.
    pub(crate) since: Moment,
}

impl From<Health> for Component {
    fn from(health: Health) -> Self {
        Self { status: health.status.into(), reason: health.reason, since: Moment(health.since_ns) }
    }
}

/// Health of the gateway and of what is behind it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthReport {
    /// The worst of the parts.
    pub(crate) status: HealthStatus,
    /// Who answers.
    #[schema(example = "telemetry-api-gateway")]
    pub(crate) service: &'static str,
    /// When this was said.
    pub(crate) timestamp: Moment,
    /// Version of the program.
    #[schema(example = "0.1.0")]
    pub(crate) version: &'static str,
    /// Who takes rows from the queue to the store.
    pub(crate) collector: Component,
    /// The message queue.
    pub(crate) queue: Component,
    /// The store.
    pub(crate) store: Component,
}
