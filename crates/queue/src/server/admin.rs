//! What the queue says about itself.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gpuvitals_core::Status;
use gpuvitals_core::figures::{Format, render};
use gpuvitals_core::time;
use serde::Serialize;
use std::sync::Arc;

use super::http::Served;
use super::metrics;
use super::refusal::Refusal;
use crate::frame::Millis;
use crate::service::Clock;
use crate::stats::{GroupStats, Health, QueueStats, TopicStats};

/// Name of a topic in the path.
pub(crate) type Named<T> = Result<Path<T>, PathRejection>;

#[derive(Debug, Serialize)]
struct HealthAnswer {
    #[serde(flatten)]
    health: Health,
    /// When that was so.
    timestamp: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Topics {
    topics: Vec<Arc<str>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Groups {
    groups: BTreeMap<String, GroupStats>,
}

/// How the queue is; one that takes nothing answers with 503.
pub(crate) async fn health(State(served): State<Served>) -> Response {
    let health = served.queue().health();
    let status = code(health.status);
    (status, Json(HealthAnswer { health, timestamp: spelled(Clock::system().now()) })).into_response()
}

fn code(status: Status) -> StatusCode {
    match status {
        Status::Healthy | Status::Degraded => StatusCode::OK,
        Status::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The process answers.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the queue takes messages; the text says what is not well.
pub(crate) async fn ready(State(served): State<Served>) -> Response {
    let health = served.queue().health();
    let reasons = health.reasons.join("; ");
    let text = match health.status {
        Status::Healthy => "ok\n".to_owned(),
        Status::Degraded => format!("ok; {reasons}\n"),
        Status::Unhealthy => format!("{reasons}\n"),
    };
    (code(health.status), text).into_response()
}

pub(crate) async fn stats(State(served): State<Served>) -> Json<QueueStats> {
    Json(served.queue().stats())
}

pub(crate) async fn topic_stats(
    State(served): State<Served>,
    topic: Named<String>,
) -> Result<Json<TopicStats>, Refusal> {
    let Path(topic) = topic?;
    Ok(Json(served.queue().topic_stats(&topic)?))
}

pub(crate) async fn topics(State(served): State<Served>) -> Json<Topics> {
    Json(Topics { topics: served.queue().topics() })
}

pub(crate) async fn groups(
    State(served): State<Served>,
    topic: Named<String>,
) -> Result<Json<Groups>, Refusal> {
    let Path(topic) = topic?;
    Ok(Json(Groups { groups: served.queue().topic_stats(&topic)?.groups }))
}

/// Ends a group; what only it waited for goes.
pub(crate) async fn remove_group(
    State(served): State<Served>,
    names: Named<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let Path((topic, group)) = names?;
    served.queue().remove_group(&topic, &group)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Figures for Prometheus.
pub(crate) async fn metrics(State(served): State<Served>) -> Response {
    let text = render(&metrics::families(served.queue(), served.meter()));
    ([(CONTENT_TYPE, Format::Prometheus.content_type())], text).into_response()
}

/// An instant as RFC 3339.
pub(crate) fn spelled(at: Millis) -> String {
    time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}
