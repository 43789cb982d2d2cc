//! The queue on the network: HTTP and gRPC on one port.
//!
//! Frames and what is under way of a stream are bounded by [`ServerConfig`], connections and requests by its
//! [`ListenerLimits`].
//!
//! Once told to stop, the server makes no new connections, answers the frames that it has read, tells every stream
//! `UNAVAILABLE`, and drops what is still open after [`ListenerLimits::drain`].

mod admin;
mod body;
mod config;
mod dead;
mod document;
mod grpc;
pub(crate) mod headers;
pub mod http;
pub mod intake;
mod metrics;
mod paths;
mod publish;
mod refusal;
mod served;
mod subscription;

use std::sync::Arc;

use gpuvitals_listener::{AcceptError, ListenerLimits, Terms};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::service::Queue;

pub use config::{HttpLimits, ServerConfig};
pub use document::document;
pub use http::{admin_router, scope};
pub use metrics::{Protocol, ServerMeter, families};

/// Serves a queue until `stop`, and then until what is under way has ended. A queue that is to deliver what it holds is
/// shut down before ([`Queue::shutdown`]): subscribers still acknowledge while the server runs.
///
/// # Errors
///
/// The listening socket failed.
pub async fn serve(
    socket: TcpListener,
    queue: Queue,
    config: ServerConfig,
    stop: CancellationToken,
) -> Result<(), AcceptError> {
    let limits = ListenerLimits {
        // Handlers have their own bounds: the body, and then the queue's answer, may take this long each.
        request: 2 * config.http.request_time + config.limits.handshake,
        body_bytes: u64::MAX,
        ..config.limits
    };
    let terms = Terms {
        access: config.access.clone(),
        limits,
        scope,
        origins: config.origins.clone(),
        ..Terms::new(Arc::clone(config.meter.listener()))
    };
    let app = http::router(queue, &config, stop.clone());
    gpuvitals_listener::serve(socket, app, terms, stop).await
}
