//! `/stats`.

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Answered;
use crate::api::Api;
use crate::dto::{QueueStats, Stats};
use crate::error::{ApiError, ErrorBody};

/// Counts of queue, gateway, store and source since they started.
///
/// The queue's own `GET /stats`, with `gateway`, `store` and `source` beside it.
#[utoipa::path(
    get, path = "/stats", tag = "operation", operation_id = "stats",
    responses(
        (status = 200, description = "The statistics.", body = Stats),
        (status = 500, description = "A defect.", body = ErrorBody),
    )
)]
pub(crate) async fn stats(Shared(api): Shared<Api>) -> Answered {
    let stats = Stats {
        queue: QueueStats::deserialize(api.status().queue_stats())?,
        gateway: api.gateway_stats(),
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
