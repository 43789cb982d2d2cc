//! The queue on the network: two ports, HTTP and gRPC on the one for people, gRPC alone on the other.
//!
//! # Limits
//!
//! Connections, streams of a connection, headers, frames and what is under way of a stream are bounded by
//! [`ServerConfig`]. A connection beyond the bound is closed as soon as it is made. A connection on which nothing is
//! asked for [`ServerConfig::connection_idle`] is closed too; an open stream is something asked, an answer that is not
//! read is not.
//!
//! # The end
//!
//! Once told to stop, the server makes no new connections, answers the frames that it has read, tells every stream
//! `UNAVAILABLE`, and drops after [`ServerConfig::drain`] what is still open.

mod admin;
mod body;
mod connection;
mod dead;
mod door;
mod grpc;
pub(crate) mod headers;
pub mod http;
pub mod intake;
mod metrics;
mod pace;
mod partial;
mod publish;
mod refusal;
mod subscription;
mod tls;
mod tokens;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub use http::HttpLimits;
pub use metrics::{Meter, Protocol, families};
pub use tls::{TlsError, TlsFiles, tls_config};
pub use tokens::{Permission, Tokens};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::door::{Door, Port};
use crate::service::Queue;

/// How long accepting pauses after an error that may pass: no file descriptor left, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How much longer than the drain the end may take.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Most connections over both ports. One more is closed at once.
    pub max_connections: usize,
    /// After how long a connection on which nothing is asked is closed.
    pub connection_idle: Duration,
    /// How long a TLS handshake or the headers of a request may take.
    pub handshake: Duration,
    /// Bounds of requests by HTTP; [`HttpLimits::request_time`] holds for unary calls too.
    pub http: HttpLimits,
    /// Most bytes of a request's headers; at least 8 KiB.
    pub max_header_bytes: u32,
    /// Most bytes of a frame's payload.
    pub max_frame_bytes: usize,
    /// Most requests at once on one connection of HTTP/2.
    pub max_streams: u32,
    /// Most messages a second that one connection may publish by gRPC; what comes faster is read later. `None`: no limit.
    pub messages_per_second: Option<NonZeroU32>,
    /// How long the end may take.
    pub drain: Duration,
    /// Certificate and what goes with it, for both ports; `None`: unencrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may do what; `None`: everybody everything.
    pub tokens: Option<Tokens>,
    /// What is counted about clients.
    pub meter: Arc<Meter>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            connection_idle: Duration::from_mins(1),
            handshake: Duration::from_secs(10),
            http: HttpLimits::default(),
            max_header_bytes: 16 << 10,
            max_frame_bytes: 4 << 20,
            max_streams: 64,
            messages_per_second: None,
            drain: Duration::from_secs(5),
            tls: None,
            tokens: None,
            meter: Arc::default(),
        }
    }
}

/// Why the server ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A listening socket failed for good.
    #[error("accepting connections")]
    Accept(#[source] io::Error),
}

/// Serves a queue until `stop`, and then until what is under way has ended: HTTP and gRPC on `admin`, gRPC on `grpc`.
/// A queue that is to deliver what it holds is shut down before ([`Queue::shutdown`]): subscribers still acknowledge
/// while the server runs.
///
/// # Errors
///
/// A listening socket failed.
pub async fn serve(
    admin: Option<TcpListener>,
    grpc: Option<TcpListener>,
    queue: Queue,
    config: ServerConfig,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let stop = stop.child_token();
    let meter = Arc::clone(&config.meter);
    let server = Server {
        door: Door::new(&queue, &config, &meter),
        queue,
        meter,
        seats: Arc::new(Semaphore::new(config.max_connections)),
        config: Arc::new(config),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
    };
    let ended = tokio::try_join!(server.accept(admin, Port::Admin), server.accept(grpc, Port::Grpc));
    stop.cancel();
    server.tasks.close();
    // Every connection ends within the drain; nothing is to hang on one that does not.
    let limit = server.config.drain.saturating_add(STRAGGLERS);
    if tokio::time::timeout(limit, server.tasks.wait()).await.is_err() {
        tracing::warn!(open = server.tasks.len(), "connections were still open at the end of the drain time");
    }
    ended.map(drop)
}

struct Server {
    door: Door,
    queue: Queue,
    meter: Arc<Meter>,
    /// One for every connection there may be.
    seats: Arc<Semaphore>,
    config: Arc<ServerConfig>,
    /// Connections, and the requests on them.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    async fn accept(&self, listener: Option<TcpListener>, port: Port) -> Result<(), ServeError> {
        let Some(listener) = listener else { return Ok(()) };
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_about_the_peer(&error) => continue,
                Err(error) if may_pass(&error) => {
                    tracing::warn!(%error, "no connection can be accepted now");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    self.stop.cancel();
                    return Err(ServeError::Accept(error));
                }
            };
            let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() else {
                self.queue.connection_refused(self.config.max_connections);
                continue;
            };
            let (door, config, meter) =
                (self.door.clone(), Arc::clone(&self.config), Arc::clone(&self.meter));
            let (tasks, stop) = (self.tasks.clone(), self.stop.child_token());
            self.tasks.spawn(async move {
                meter.connected();
                connection::serve(stream, door, port, &config, tasks, stop).await;
                meter.disconnected();
                drop(seat);
            });
        }
    }
}

/// The peer went away before it was accepted.
fn is_about_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut)
}

/// Too little of something that others may give back.
fn may_pass(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    scarce.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
