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
use serde::Serialize;

use super::metrics::{self, ServerMeter};
use super::refusal::Refusal;
use super::served::Served;
use crate::frame::Millis;
use crate::service::Queue;
use crate::stats::{GroupStats, QueueStats, TopicStats};

/// Name of a topic in the path.
pub(crate) type Named<T> = Result<Path<T>, PathRejection>;

#[derive(Debug, Serialize)]
pub(crate) struct Topics {
    topics: Vec<Arc<str>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Groups {
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

/// An instant as RFC 3339.
pub(crate) fn spelled(at: Millis) -> String {
    time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}
