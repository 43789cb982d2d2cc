//! One connection, from its handshake to its end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ServerConfig;
use super::door::{Caller, Door, Port};

/// How much one stream may send before it is read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Largest piece of a stream at once.
const PIECE_BYTES: u32 = 64 << 10;
/// How often a peer that says nothing is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);

/// Serves one connection until its peer goes, it is idle, or the server stops.
pub(super) async fn serve(
    stream: TcpStream,
    door: Door,
    port: Port,
    config: &ServerConfig,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        // The peer is gone already.
        tracing::debug!(%error, "connection");
        return;
    }
    let Some(tls) = &config.tls else {
        return talk(TokioIo::new(stream), door, port, config, tasks, stop).await;
    };
    let handshake = tokio::time::timeout(config.handshake, TlsAcceptor::from(Arc::clone(tls)).accept(stream));
    let shaken = tokio::select! {
        () = stop.cancelled() => return,
        shaken = handshake => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => talk(TokioIo::new(stream), door, port, config, tasks, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

async fn talk(
    io: impl Read + Write + Unpin + 'static,
    door: Door,
    port: Port,
    config: &ServerConfig,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let activity = Arc::<Activity>::default();
    let caller = Caller::new(stop.clone(), config, Arc::clone(&activity));
    let builder = builder(config, tasks);
    let mut connection = pin!(builder.serve_connection(io, door.of(port, caller)));
    let mut look = tokio::time::interval(config.connection_idle);
    look.tick().await;
    let mut seen = 0;
    // Until when what is open may end, once it is asked to.
    let mut end = pin!(tokio::time::sleep(Duration::ZERO));
    let mut ending = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection");
                }
                return;
            }
            () = stop.cancelled(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
                end.as_mut().reset(Instant::now() + config.drain);
            }
            _ = look.tick(), if !ending => {
                if activity.was_idle_since(&mut seen) {
                    stop.cancel();
                }
            }
            () = end.as_mut(), if ending => return,
        }
    }
}

fn builder(config: &ServerConfig, tasks: TaskTracker) -> auto::Builder<Spawn> {
    let mut builder = auto::Builder::new(Spawn(tasks));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.handshake)
        .max_buf_size(usize::try_from(config.max_header_bytes).unwrap_or(usize::MAX).max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(PIECE_BYTES)
        .max_header_list_size(config.max_header_bytes)
        .max_concurrent_streams(config.max_streams)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Runs the requests of a connection where the server waits for their end.
#[derive(Clone)]
struct Spawn(TaskTracker);

impl<F> hyper::rt::Executor<F> for Spawn
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// What is asked on a connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests so far.
    requests: AtomicU64,
    /// Those of them that are still being answered.
    open: AtomicU64,
}

impl Activity {
    /// Begins a request, which lasts until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Open {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    /// Whether nothing is open and nothing began since the last look.
    fn was_idle_since(&self, seen: &mut u64) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        let fresh = std::mem::replace(seen, requests) != requests;
        !fresh && self.open.load(Ordering::Relaxed) == 0
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Open(Arc<Activity>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
