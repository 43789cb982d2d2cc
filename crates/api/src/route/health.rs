//! `/health`.

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Answered, stats};
use crate::api::Api;
use crate::dto::{Component, HealthReport, HealthStatus, Moment};
use crate::error::ErrorBody;

/// Health of the gateway and of what is behind it.
///
/// 200 while it is healthy or degraded, 503 with the same shape when it is unhealthy.
#[utoipa::path(
    get, path = "/health", tag = "operation", operation_id = "health",
    responses(
        (status = 200, description = "Healthy or degraded.", body = HealthReport),
        (status = 503, description = "Unhealthy.", body = HealthReport),
        (status = 500, description = "A defect.", body = ErrorBody),
    )
)]
pub(crate) async fn health(Shared(api): Shared<Api>) -> Answered {
    let report = report(&api);
    let status = if report.status == HealthStatus::Unhealthy {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let response: Response = stats::fresh(status, &report)?;
    Ok(response)
}

fn report(api: &Api) -> HealthReport {
    let collector = Component::from(api.status().collector_health());
    let queue = Component::from(api.status().queue_health());
    let store = Component::from(api.store().health());
    HealthReport {
        status: collector.status.max(queue.status).max(store.status),
        service: "telemetry-api-gateway",
        timestamp: Moment(api.config().clock.now_ns()),
        version: env!("CARGO_PKG_VERSION"),
        collector,
        queue,
        store,
    }
}
