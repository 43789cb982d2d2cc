//! `/api/v1/metrics`, the catalogue; `/metrics`, the gateway's own series.

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_listener::vitals;

use super::Answered;
use super::gpus::NoParams;
use crate::api::Api;
use crate::ask::{Ask, View};
use crate::dto::MetricList;
use crate::error::{ApiError, ErrorBody};
use crate::parameter::Asked;

/// The catalogue: every metric with its unit, range, names and meaning.
#[utoipa::path(
    get, path = "/api/v1/metrics", tag = "telemetry", operation_id = "list_metrics",
    responses(
        (status = 200, description = "Every metric there is.", body = MetricList),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn catalogue(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(NoParams {}): Asked<NoParams>,
) -> Answered {
    api.answer(Catalogue, &headers).await
}

/// The question for the catalogue.
#[derive(Debug)]
struct Catalogue;

impl Ask for Catalogue {
    fn is_of_store(&self) -> bool {
        false
    }

    fn answer(&self, _view: &View<'_>) -> Result<Vec<u8>, ApiError> {
        Ok(serde_json::to_vec(&MetricList::whole())?)
    }
}

/// Metrics for Prometheus: the gateway's own, and those of the parts beside it.
#[utoipa::path(
    get, path = "/metrics", tag = "operation", operation_id = "gateway_metrics",
    responses((status = 200, description = "Prometheus text format 0.0.4.", content_type = "text/plain", body = String))
)]
pub(crate) async fn gateway(Shared(api): Shared<Api>) -> Answered {
    Ok(vitals::page(&api.families()))
}
