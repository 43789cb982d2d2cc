//! Health.

use gpuvitals_core::{Health, Status};
use serde::Serialize;
use utoipa::ToSchema;

use super::Moment;
use crate::peer::Peer;

/// How well something does: `healthy`, `degraded` (works in part, recovers by itself, nothing acknowledged is lost) or
/// `unhealthy` (does not work; a person is needed).
#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes `Status` in the document")]
enum HealthStatus {
    Healthy,
    Degraded,
    Unhealthy,
}

/// Health of a part of the pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"status": "healthy", "reason": "", "since": "2026-11-20T15:58:12Z"}))]
pub(crate) struct Component {
    /// How well it does.
    #[schema(value_type = HealthStatus)]
    pub(crate) status: Status,
    /// Why it is not healthy; empty when it is.
    pub(crate) reason: String,
    /// When it came into this state.
    pub(crate) since: Moment,
}

impl From<Health> for Component {
    fn from(health: Health) -> Self {
        Self { status: health.status, reason: health.reason, since: Moment(health.since_ns) }
    }
}

/// Health of one of several.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "name": "10.0.0.7:8080", "status": "healthy", "reason": "", "since": "2026-11-20T15:58:12Z", "reached": true
}))]
pub(crate) struct NamedComponent {
    /// Name of the process: its address.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) health: Component,
    /// Whether it answers. One that does not is degraded: nobody here knows whether it works.
    pub(crate) reached: bool,
}

impl From<Peer> for NamedComponent {
    fn from(peer: Peer) -> Self {
        Self { name: peer.name, health: Component::from(peer.health), reached: !peer.stats.is_null() }
    }
}

impl Component {
    /// Several as one: the worst status, and the reasons of all that are not healthy.
    pub(crate) fn of_all(peers: &[Peer]) -> Self {
        let named = |peer: &Peer| match peers {
            [_] => peer.health.clone(),
            _ => Health { reason: format!("{}: {}", peer.name, peer.health.reason), ..peer.health.clone() },
        };
        Self::from(Health::of_all(peers.iter().map(named)))
    }
}

/// Health of the gateway and of the parts behind it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthReport {
    /// The worst of the parts.
    #[schema(value_type = HealthStatus)]
    pub(crate) status: Status,
    /// The answering service.
    #[schema(example = "telemetry-api-gateway")]
    pub(crate) service: &'static str,
    /// Time of the answer.
    pub(crate) timestamp: Moment,
    /// Version of the program.
    #[schema(example = "0.1.0")]
    pub(crate) version: &'static str,
    /// The collectors together, which move rows from the queue to the store.
    pub(crate) collector: Component,
    /// The same for each collector.
    pub(crate) collectors: Vec<NamedComponent>,
    /// The message queues together.
    pub(crate) queue: Component,
    /// The same for each message queue.
    pub(crate) queues: Vec<NamedComponent>,
    /// Where the rows are kept.
    pub(crate) store: Component,
    /// The clusters whose nodes are read from outside, together; null if none is configured.
    pub(crate) clusters: Option<Component>,
    /// The certificate of the gateway's port: degraded before it is valid, and from two weeks before it expires on. Null without TLS.
    pub(crate) certificate: Option<Component>,
    /// The instant of the newest row, if the rows are a recording: what made them has ended; after a replay that of its newest row. The
    /// fleet is then looked at as of it (`at`). Null where more may come.
    pub(crate) recording_end: Option<Moment>,
}
