//! Health of a component, with its reason and start time.

use serde::Serialize;

/// Health of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Works in full.
    Healthy,
    /// Works in part, or not at the moment; nothing acknowledged is lost. Recovers by itself.
    Degraded,
    /// Does not work; a person must act.
    Unhealthy,
}

impl Status {
    const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unhealthy];

    /// Its name, as it is serialised.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// The status of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Health with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// How well the component works.
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

    /// Several parts as one: the worst status, and the reasons of all that are not healthy.
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Vec<Self> = parts.into_iter().collect();
        let status = parts.iter().map(|part| part.status).max().unwrap_or(Status::Healthy);
        let since = parts.iter().filter(|part| part.status == status).map(|part| part.since_ns);
        // All are healthy since the last of them is.
        let since_ns = if status == Status::Healthy { since.max() } else { since.min() };
        let ill = parts.iter().filter(|part| part.status != Status::Healthy);
        // Two parts may suffer from the same.
        let mut reasons: Vec<&str> = Vec::new();
        for reason in ill.map(|part| part.reason.as_str()) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Self { status, reason: reasons.join("; "), since_ns: since_ns.unwrap_or(0) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_is_as_ill_as_its_worst_part_and_names_every_reason_once() {
        let part = |status, reason: &str, since_ns| Health { status, reason: reason.to_owned(), since_ns };
        let healthy = |since_ns| part(Status::Healthy, "", since_ns);
        assert_eq!(Health::of_all([]), healthy(0));
        assert_eq!(Health::of_all([healthy(3), healthy(5)]), healthy(5));
        let parts = [
            part(Status::Degraded, "the queue is away", 7),
            healthy(1),
            part(Status::Unhealthy, "the disk failed", 9),
            part(Status::Unhealthy, "the log is gone", 8),
            part(Status::Degraded, "the queue is away", 9),
        ];
        let reasons = "the queue is away; the disk failed; the log is gone";
        assert_eq!(Health::of_all(parts), part(Status::Unhealthy, reasons, 8));
    }
}
