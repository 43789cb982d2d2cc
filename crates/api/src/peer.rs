//! A service behind the gateway.

use gpuvitals_core::Health;

/// A queue or collector behind the gateway.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its name for people: an address.
    pub name: String,
    /// How it does; `degraded` if it is not reached.
    pub health: Health,
    /// Its own `GET /stats`: a JSON object; null if it is not reached.
    pub stats: serde_json::Value,
}
