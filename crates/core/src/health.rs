//! Health of a component, with its reason and start time.

use serde::Serialize;

/// Health of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything works.
    Healthy,
    /// Works in part, or not at the moment; nothing acknowledged is lost. Recovers by itself.
    Degraded,
    /// Does not work; a person must act.
    Unhealthy,
}

/// Health with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The status.
    pub status: Status,
    /// Why it is not healthy; empty when it is.
    pub reason: String,
    /// Start of this status, nanoseconds UTC since 1970.
    pub since_ns: i64,
}

impl Health {
    /// Healthy since `since_ns`.
    pub fn healthy(since_ns: i64) -> Self {
        Self { status: Status::Healthy, reason: String::new(), since_ns }
    }

    /// The state after an observation at `now_ns`: `since` moves only when the status does.
    pub fn observe(&mut self, status: Status, reason: impl Into<String>, now_ns: i64) {
        if self.status != status {
            self.since_ns = now_ns;
        }
        self.status = status;
        self.reason = reason.into();
    }
}
