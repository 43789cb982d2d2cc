//! `/health`, and the probes `/healthz` and `/readyz`.

use axum::Extension;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use gpuvitals_core::{Health, Status};
use gpuvitals_listener::{Certificate, vitals};

use super::answered::Answered;
use super::stats;
use crate::api::Api;
use crate::dto::{Component, HealthReport, Moment};
use crate::error::ErrorBody;

/// Health of the gateway and of the parts behind it.
///
/// 200 while it is healthy or degraded, 503 with the same shape if it is unhealthy.
#[utoipa::path(
    get, path = "/health", tag = "operation", operation_id = "health",
    responses(
        (status = 200, description = "Healthy or degraded.", body = HealthReport),
        (status = 503, description = "Unhealthy.", body = HealthReport),
        (status = 500, description = "A defect.", body = ErrorBody),
    )
)]
pub(crate) async fn health(Shared(api): Shared<Api>, certificate: Served) -> Answered {
    let mut report = report(&api, certificate);
    report.recording_end = api.end_of_recording().await.map(Moment);
    let status =
        if report.status == Status::Unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let response: Response = stats::fresh(status, &report)?;
    Ok(response)
}

/// Whether the process answers, for liveness probes.
#[utoipa::path(
    get, path = "/healthz", tag = "operation", operation_id = "alive",
    responses((status = 200, description = "It answers.", content_type = "text/plain", body = String))
)]
pub(crate) async fn alive() -> Response {
    vitals::probe(&Health::healthy(0))
}

/// Readiness, for probes: 503 while it is unhealthy; the text gives the reason, or says that it is degraded.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", operation_id = "ready",
    responses(
        (status = 200, description = "Healthy or degraded.", content_type = "text/plain", body = String),
        (status = 503, description = "Unhealthy.", content_type = "text/plain", body = String),
    )
)]
pub(crate) async fn ready(Shared(api): Shared<Api>, certificate: Served) -> Response {
    let report = report(&api, certificate);
    let parts = [&report.collector, &report.queue, &report.store].into_iter();
    let parts = parts.chain(&report.clusters).chain(&report.certificate);
    let reasons: Vec<&str> =
        parts.filter(|part| part.status == report.status).map(|part| part.reason.as_str()).collect();
    vitals::probe(&Health { status: report.status, reason: reasons.join("; "), since_ns: 0 })
}

/// The certificate that the listener serves, if there is one.
type Served = Option<Extension<Certificate>>;

fn report(api: &Api, certificate: Served) -> HealthReport {
    let certificate = certificate.map(|Extension(certificate)| Component::from(certificate.health()));
    let (collectors, queues) = (api.status().collectors(), api.status().queues());
    let (collector, queue) = (Component::of_all(&collectors), Component::of_all(&queues));
    let store = Component::from(api.history().health());
    let clusters = api.status().clusters();
    let clusters = (!clusters.is_empty())
        .then(|| Component::from(Health::of_all(clusters.iter().map(|cluster| cluster.health()))));
    // A cluster is no part of the pipeline: degraded at worst.
    let beside = clusters.iter().chain(&certificate).map(|part| part.status).max();
    HealthReport {
        status: collector.status.max(queue.status).max(store.status).max(beside.unwrap_or(Status::Healthy)),
        service: "telemetry-api-gateway",
        timestamp: Moment(api.config().clock.now_ns()),
        version: env!("CARGO_PKG_VERSION"),
        collector,
        collectors: collectors.into_iter().map(Into::into).collect(),
        queue,
        queues: queues.into_iter().map(Into::into).collect(),
        store,
        clusters,
        certificate,
        recording_end: None,
    }
}
