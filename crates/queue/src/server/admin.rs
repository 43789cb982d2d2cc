//! What the queue says about itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gpuvitals_core::figures::Family;
use gpuvitals_core::{Health, time};
use gpuvitals_listener::Vitals;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::metrics::{self, ServerMeter};
use super::refusal::{ErrorBody, Refusal};
use super::served::Served;
use crate::frame::Millis;
use crate::service::Queue;
use crate::stats::{GroupStats, QueueStats, TopicStats};

/// Names in the path.
pub(crate) type Named<T> = Result<Path<T>, PathRejection>;

/// Name of a topic in the path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TopicName {
    /// Letters, digits, `.`, `_` and `-`, at most 100; for a topic of dead letters `.dead` behind them. Created by the first publish.
    #[param(pattern = "^[A-Za-z0-9._-]{1,105}$")]
    pub(crate) topic: String,
}

/// The names of the topics.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Topics {
    #[schema(value_type = Vec<String>)]
    topics: Vec<Arc<str>>,
}

/// The groups of a topic.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Groups {
    /// Each by its name.
    groups: BTreeMap<String, GroupStats>,
}

/// The queue's vitals.
#[derive(Debug)]
pub(super) struct QueueVitals {
    pub(super) queue: Queue,
    pub(super) meter: Arc<ServerMeter>,
}

impl Vitals for QueueVitals {
    fn health(&self) -> Health {
        let health = self.queue.health();
        Health { status: health.status, reason: health.reasons.join("; "), since_ns: 0 }
    }

    fn families(&self) -> Vec<Family> {
        metrics::families(&self.queue, &self.meter)
    }
}

/// Numbers of everything.
#[utoipa::path(
    get, path = "/stats", tag = "topics", operation_id = "stats",
    responses((status = 200, description = "Numbers.", body = QueueStats))
)]
pub(crate) async fn stats(State(served): State<Served>) -> Json<QueueStats> {
    Json(served.queue().stats())
}

/// Numbers of one topic.
#[utoipa::path(
    get, path = "/stats/{topic}", tag = "topics", operation_id = "topic_stats", params(TopicName),
    responses(
        (status = 200, description = "Numbers.", body = TopicStats),
        (status = 400, description = "The path is not UTF-8.", body = ErrorBody),
        (status = 404, description = "No such topic.", body = ErrorBody),
    )
)]
pub(crate) async fn topic_stats(
    State(served): State<Served>,
    topic: Named<TopicName>,
) -> Result<Json<TopicStats>, Refusal> {
    let Path(TopicName { topic }) = topic?;
    Ok(Json(served.queue().topic_stats(&topic)?))
}

/// Names of the topics, sorted.
#[utoipa::path(
    get, path = "/topics", tag = "topics", operation_id = "topics",
    responses((status = 200, description = "Names.", body = Topics))
)]
pub(crate) async fn topics(State(served): State<Served>) -> Json<Topics> {
    Json(Topics { topics: served.queue().topics() })
}

/// The groups of a topic.
#[utoipa::path(
    get, path = "/topics/{topic}/groups", tag = "topics", operation_id = "groups", params(TopicName),
    responses(
        (status = 200, description = "Groups by name.", body = Groups),
        (status = 400, description = "The path is not UTF-8.", body = ErrorBody),
        (status = 404, description = "No such topic.", body = ErrorBody),
    )
)]
pub(crate) async fn groups(
    State(served): State<Served>,
    topic: Named<TopicName>,
) -> Result<Json<Groups>, Refusal> {
    let Path(TopicName { topic }) = topic?;
    Ok(Json(Groups { groups: served.queue().topic_stats(&topic)?.groups }))
}

/// Ends a group and its consumers. What only it waited for goes, unless it was the topic's last.
#[utoipa::path(
    delete, path = "/topics/{topic}/groups/{group}", tag = "topics", operation_id = "remove_group",
    params(TopicName, ("group" = String, Path, description = "Name of the group.")),
    responses(
        (status = 204, description = "It is gone."),
        (status = 400, description = "The path is not UTF-8.", body = ErrorBody),
        (status = 404, description = "No such topic or group.", body = ErrorBody),
    )
)]
pub(crate) async fn remove_group(
    State(served): State<Served>,
    names: Named<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let Path((topic, group)) = names?;
    served.queue().remove_group(&topic, &group)?;
    Ok(StatusCode::NO_CONTENT)
}

// The listener answers for the vitals; the document describes it here.

/// How well the queue does.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes `Status` in the document")]
enum HealthStatus {
    Healthy,
    Degraded,
    Unhealthy,
}

/// How the queue is.
#[derive(ToSchema)]
#[schema(as = Health)]
#[expect(dead_code, reason = "describes an answer of the listener in the document")]
struct QueueReport {
    #[schema(inline)]
    status: HealthStatus,
    /// Why it is not healthy; absent if it is healthy.
    #[schema(nullable = false)]
    reason: Option<String>,
    #[schema(format = DateTime)]
    timestamp: String,
}

/// How the queue is.
#[utoipa::path(
    get, path = "/health", tag = "operation", operation_id = "health",
    responses(
        (status = 200, description = "It works, well or with losses near.", body = QueueReport),
        (status = 503, description = "It takes nothing.", body = QueueReport),
    )
)]
#[expect(dead_code, reason = "the listener answers")]
pub(super) fn health() {}

/// Whether the process answers, for liveness probes.
#[utoipa::path(
    get, path = "/healthz", tag = "operation", operation_id = "alive",
    responses((status = 200, description = "It answers.", content_type = "text/plain", body = String))
)]
#[expect(dead_code, reason = "the listener answers")]
pub(super) fn alive() {}

/// Whether the queue takes messages, for readiness probes; the text says what is not well.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", operation_id = "ready",
    responses(
        (status = 200, description = "It takes messages.", content_type = "text/plain", body = String),
        (status = 503, description = "It takes nothing.", content_type = "text/plain", body = String),
    )
)]
#[expect(dead_code, reason = "the listener answers")]
pub(super) fn ready() {}

/// Figures for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "operation", operation_id = "metrics",
    responses((status = 200, description = "Text format 0.0.4.", content_type = "text/plain", body = String))
)]
#[expect(dead_code, reason = "the listener answers")]
pub(super) fn metrics() {}

/// An instant as RFC 3339.
pub(crate) fn spelled(at: Millis) -> String {
    time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}
