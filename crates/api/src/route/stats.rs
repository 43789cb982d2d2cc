//! `/stats`.

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answered::Answered;
use crate::api::Api;
use crate::dto::{QueueStats, Stats};
use crate::error::{ApiError, ErrorBody};

/// Counts of queue, gateway, collectors, store and source since they started.
///
/// The queue's own `GET /stats`, with `gateway`, `collectors`, `store` and `source` beside it.
#[utoipa::path(
    get, path = "/stats", tag = "operation", operation_id = "stats",
    responses(
        (status = 200, description = "The statistics.", body = Stats),
        (status = 500, description = "A defect.", body = ErrorBody),
    )
)]
pub(crate) async fn stats(Shared(api): Shared<Api>) -> Answered {
    let queue = api.status().queues().into_iter().map(|queue| queue.stats).find(Value::is_object);
    let collectors = api.status().collectors().into_iter();
    let stats = Stats {
        queue: queue.map(QueueStats::deserialize).transpose()?.unwrap_or_default(),
        gateway: api.gateway_stats(),
        collectors: collectors.map(|collector| (collector.name, collector.stats)).collect(),
        store: api.history().stats().own,
        source: api.status().source(),
    };
    fresh(StatusCode::OK, &stats)
}

/// JSON that must not be cached.
///
/// # Errors
/// If it cannot be written as JSON.
pub(crate) fn fresh(status: StatusCode, body: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(body)?;
    Ok((status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response())
}
