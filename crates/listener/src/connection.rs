//! One connection, from its handshake to its end, and the table of all that are open.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt as _;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::access::Access;
use crate::serve::ListenerLimits;

/// Bytes that one HTTP/2 stream may send before they are read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Largest HTTP/2 frame.
const PIECE_BYTES: u32 = 64 << 10;
/// How often a silent HTTP/2 peer is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);
/// hyper's least buffer.
const BUFFER_MIN: usize = 8 << 10;

/// What a request needs to know of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) has_certificate: bool,
    pub(crate) activity: Arc<Activity>,
}

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) app: Router,
    pub(crate) access: Access,
    pub(crate) limits: ListenerLimits,
    /// Requests of HTTP/2 run here; the listener waits for them at its end.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// Serves a connection until its peer goes, it is closed for being idle, or the listener stops.
    pub(crate) async fn serve(self, stream: TcpStream, activity: Arc<Activity>) {
        // Small answers must not wait for the acknowledgement of what came before; without it they are slower.
        let _set = stream.set_nodelay(true);
        let Some(tls) = self.access.terms().tls.clone() else {
            return self.talk(TokioIo::new(stream), Peer { has_certificate: false, activity }).await;
        };
        let handshake = tokio::time::timeout(self.limits.handshake, TlsAcceptor::from(tls).accept(stream));
        let shaken = tokio::select! {
            () = activity.end.cancelled() => return,
            shaken = handshake => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                self.talk(TokioIo::new(stream), Peer { has_certificate, activity }).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn talk(&self, io: impl Read + Write + Unpin + 'static, peer: Peer) {
        let end = peer.activity.end.clone();
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            self.app.clone().oneshot(request.map(Body::new))
        });
        let builder = self.builder();
        let mut connection = pin!(builder.serve_connection(io, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = end.cancelled() => {
                connection.as_mut().graceful_shutdown();
                if self.stop.is_cancelled() {
                    tokio::time::timeout(self.limits.drain, connection).await.unwrap_or(Ok(()))
                } else {
                    // It is idle, so nothing is lost. Its farewell goes out if the peer takes it at once.
                    connection.now_or_never().unwrap_or(Ok(()))
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection broke");
        }
    }

    fn builder(&self) -> auto::Builder<Spawn> {
        let ListenerLimits { header_bytes, streams, idle, .. } = self.limits;
        let mut builder = auto::Builder::new(Spawn(self.tasks.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            // Counted from the answer before.
            .header_read_timeout(idle)
            .max_buf_size(usize::try_from(header_bytes).unwrap_or(usize::MAX).max(BUFFER_MIN));
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(PIECE_BYTES)
            .max_header_list_size(header_bytes)
            .max_concurrent_streams(streams)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        builder
    }
}

/// Runs the requests of a connection where the listener waits for their end.
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

/// The requests of a connection.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Requests that are being answered.
    open: AtomicUsize,
    /// When the last one ended, a part of an answer was taken, or the connection was made; milliseconds since the listener began.
    idle_since: AtomicU64,
    began: Instant,
    /// Cancelled when the connection has to end.
    end: CancellationToken,
}

impl Activity {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a request, which lasts until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(self))
    }

    /// The peer took a part of an answer.
    pub(crate) fn progress(&self) {
        self.idle_since.store(self.now(), Ordering::Release);
    }

    /// Since when nothing is asked.
    fn idle_since(&self) -> Option<u64> {
        (self.open.load(Ordering::Acquire) == 0).then(|| self.idle_since.load(Ordering::Acquire))
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Open(Arc<Activity>);

impl Open {
    /// Ends the request.
    pub(crate) fn activity(self) -> Arc<Activity> {
        Arc::clone(&self.0)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.progress();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The open connections: as many as there are places. For one more, the longest idle one is closed.
#[derive(Debug)]
pub(crate) struct Table {
    places: usize,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
    next: AtomicU64,
    began: Instant,
    stop: CancellationToken,
}

impl Table {
    pub(crate) fn new(places: usize, stop: CancellationToken) -> Self {
        let began = Instant::now();
        Self { places, open: Mutex::default(), next: AtomicU64::new(0), began, stop }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Activity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all places are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.open().len() >= self.places
    }

    /// Takes a place for a new connection.
    pub(crate) fn enter(&self) -> (u64, Arc<Activity>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            open: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            began: self.began,
            end: self.stop.child_token(),
        });
        activity.idle_since.store(activity.now(), Ordering::Release);
        self.open().insert(id, Arc::clone(&activity));
        (id, activity)
    }

    pub(crate) fn leave(&self, id: u64) {
        self.open().remove(&id);
    }

    /// Closes the longest idle connection; whether there was one.
    pub(crate) fn displace(&self) -> bool {
        let mut open = self.open();
        let idle = open.iter().filter_map(|(id, activity)| Some((activity.idle_since()?, *id)));
        let Some((_, id)) = idle.min() else { return false };
        if let Some(activity) = open.remove(&id) {
            activity.end.cancel();
        }
        true
    }

    /// Closes the connections that have been idle for this long.
    pub(crate) fn close_idle(&self, idle: Duration) {
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let is_idle = |activity: &Activity| {
            activity.idle_since().is_some_and(|since| activity.now().saturating_sub(since) >= idle)
        };
        for activity in self.open().values().filter(|activity| is_idle(activity)) {
            activity.end.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::meter::Meter;
    use crate::observe::{Door, observe};
    use crate::serve::Terms;

    const LEN: usize = 4 << 20;
    const IDLE: Duration = Duration::from_secs(75);

    /// Asks for a large answer. Reads a part of it so often, with so many pauses of most of the idle time after each, and
    /// then the rest; how much came.
    async fn download(parts: usize, pauses: usize) -> usize {
        let terms = Terms::new(Arc::new(Meter::new("test")));
        let app = Router::new()
            .route("/large", get(|| async { Bytes::from(vec![b'x'; LEN]) }))
            .layer(axum::middleware::from_fn_with_state(Arc::new(Door::new(terms.clone())), observe));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let shared = Shared { app, access: terms.access, limits: terms.limits, tasks, stop: stop.clone() };
        let table = Table::new(1, stop);
        let (_, activity) = table.enter();
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(async move {
            shared.talk(TokioIo::new(server), Peer { has_certificate: false, activity }).await;
        });
        client.write_all(b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        let mut part = vec![0; LEN / 16];
        for _ in 0..parts {
            client.read_exact(&mut part).await.unwrap();
            for _ in 0..pauses {
                tokio::time::advance(IDLE.mul_f64(0.7)).await;
                table.close_idle(IDLE);
            }
        }
        let mut rest = Vec::new();
        let read = tokio::time::timeout(IDLE, client.read_to_end(&mut rest)).await;
        assert!(read.is_ok_and(|read| read.is_ok()) || rest.len() + parts * part.len() > LEN);
        serving.abort();
        parts * part.len() + rest.len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_download_lasts_as_long_as_its_client_reads() {
        assert!(download(10, 1).await > LEN);
        assert!(download(1, 3).await < LEN);
    }
}
