//! Settings of the server: who may use it, and its limits.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_listener::{Access, ListenerLimits, WebOrigin};

use super::metrics::ServerMeter;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Bounds of connections and requests.
    pub limits: ListenerLimits,
    /// Bounds of bodies by HTTP.
    pub http: HttpLimits,
    /// Most bytes of a frame's payload.
    pub max_frame_bytes: usize,
    /// Who may use it.
    pub access: Access,
    /// Origins whose pages may use it from a browser.
    pub origins: Vec<WebOrigin>,
    /// What is counted about clients.
    pub meter: Arc<ServerMeter>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            limits: ListenerLimits::default(),
            http: HttpLimits::default(),
            max_frame_bytes: 4 << 20,
            access: Access::open(),
            origins: Vec::new(),
            meter: Arc::default(),
        }
    }
}

/// Bounds of what requests may send.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Longest body as it is sent, in bytes.
    pub body_bytes: usize,
    /// Longest body once unpacked, in bytes.
    pub unpacked_bytes: usize,
    /// Bytes of all bodies that are received and read at once, with those of messages that have come in part by gRPC;
    /// beyond it publishers are told to come again.
    pub bodies_bytes: usize,
    /// How long a body may take to arrive, and the queue to answer.
    pub request_time: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 4 << 20,
            unpacked_bytes: 16 << 20,
            bodies_bytes: 64 << 20,
            request_time: Duration::from_secs(30),
        }
    }
}
