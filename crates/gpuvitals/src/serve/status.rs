//! The gateway's view of the services behind it.

use std::sync::Arc;

use gpuvitals_api::{Peer, StatusView};
use gpuvitals_core::Status as HealthStatus;
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::figures::{Family, Kind, Number};
use serde_json::{Value, json};

use super::collectors::Collectors;
use crate::clusters::ClusterReaders;
use crate::pipe::{FINDING_ROWS, SidePipe, worst};
use crate::watched::Watched;

/// Queue and collectors elsewhere.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) queue: Watched,
    pub(super) collectors: Arc<Collectors>,
    pub(super) clusters: Option<Arc<ClusterReaders>>,
    pub(super) findings: Arc<SidePipe>,
}

impl StatusView for Status {
    fn queues(&self) -> Vec<Peer> {
        let mut queue = self.queue.peer();
        let of_clusters = self.clusters.as_ref().map(|clusters| clusters.queue());
        queue.health = worst(queue.health, of_clusters.into_iter().chain([self.findings.queue()]));
        vec![queue]
    }

    fn collectors(&self) -> Vec<Peer> {
        self.collectors.peers()
    }

    fn clusters(&self) -> Vec<Arc<ClusterView>> {
        self.clusters.as_ref().map(|clusters| clusters.views()).unwrap_or_default()
    }

    fn source(&self) -> Value {
        json!({})
    }

    fn families(&self) -> Vec<Family> {
        let mut health = Family::new(
            "gpuvitals_gateway_peer_status",
            Kind::Gauge,
            "Health of a queue or collector behind the gateway. 0: healthy, 1: degraded or not reached, 2: unhealthy.",
        );
        for (kind, peers) in [("queue", self.queues()), ("collector", self.collectors())] {
            for Peer { name, health: found, .. } in peers {
                let status = match found.status {
                    HealthStatus::Healthy => 0_u64,
                    HealthStatus::Degraded => 1,
                    HealthStatus::Unhealthy => 2,
                };
                health = health.with(vec![("kind", kind.to_owned()), ("peer", name)], Number::from(status));
            }
        }
        let mut families = crate::outgoing::families();
        families.push(health);
        families.extend(self.clusters.iter().flat_map(|clusters| clusters.families()));
        families.extend(self.findings.families(FINDING_ROWS));
        families
    }
}
