//! A listener has limits and terms.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::access::Access;
use crate::meter::Meter;
use crate::origin::WebOrigin;
use crate::tokens::TokenScope;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Most connections. For one more, the longest idle one is closed; while none is idle, new ones are.
    pub connections: usize,
    /// Longest time of a connection without a request, until the head of its next request is complete, and until the peer
    /// takes the next piece of an answer. Above the usual minute between two scrapes.
    pub idle: Duration,
    /// Longest time of a TLS handshake.
    pub handshake: Duration,
    /// Most bytes of a request's headers.
    pub header_bytes: u32,
    /// Longest body that a request may announce, in bytes.
    pub body_bytes: u64,
    /// Longest time until the head of an answer, from the last of a body that came fast enough.
    pub request: Duration,
    /// Most requests at once on one connection of HTTP/2.
    pub streams: u32,
    /// Longest time that open requests may take to end after the shutdown began.
    pub drain: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            idle: Duration::from_secs(75),
            handshake: Duration::from_secs(10),
            header_bytes: 16 << 10,
            body_bytes: 16 << 10,
            request: Duration::from_secs(30),
            streams: 64,
            drain: Duration::from_secs(5),
        }
    }
}

/// The terms on which a service is served.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Who may use it.
    pub access: Access,
    /// Bounds on connections, bodies and times.
    pub limits: ListenerLimits,
    /// Which scope a request needs. Those for health need none.
    pub scope: fn(&Method, &str) -> TokenScope,
    /// Origins whose pages may use the service from a browser.
    pub origins: Vec<WebOrigin>,
    /// Path of the metrics.
    pub metrics_path: String,
    /// What is counted.
    pub meter: Arc<Meter>,
}

impl Terms {
    /// Terms of a service that is read only, for everyone, with the usual bounds.
    pub fn new(meter: Arc<Meter>) -> Self {
        Self {
            access: Access::open(),
            limits: ListenerLimits::default(),
            scope: |_, _| TokenScope::Read,
            origins: Vec::new(),
            metrics_path: "/metrics".to_owned(),
            meter,
        }
    }
}
