//! `/api/v1/metrics`, the catalogue; `/metrics`, the gateway's own series.

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_listener::vitals;

use super::answered::Answered;
use super::gpus::NoParams;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::dto::{MetricList, metric_list};
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
    const OF_HISTORY: bool = false;

    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        view.render(Vec::new(), |_, _| Body::until(i64::MAX, &metric_list())).await
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
