//! One connection, from its handshake to its end, and the table of all that are open.

use std::collections::HashMap;
use std::net::SocketAddr;
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
use crate::limits::ListenerLimits;

/// Bytes that one HTTP/2 stream may send before they are read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Largest HTTP/2 frame.
const PIECE_BYTES: u32 = 64 << 10;
/// Bytes of one HTTP/2 answer above which hyper takes no more of it until the peer takes some. By default hyper takes 400 KB.
const SEND_BYTES: usize = 64 << 10;
/// How often a silent HTTP/2 peer is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);
/// hyper's least buffer.
const BUFFER_MIN: usize = 8 << 10;

/// What a request needs to know of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) has_certificate: bool,
    /// None if it has gone already.
    pub(crate) address: Option<SocketAddr>,
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
        let address = stream.peer_addr().ok();
        let Some(tls) = self.access.terms().tls.clone() else {
            return self.talk(TokioIo::new(stream), Peer { has_certificate: false, address, activity }).await;
        };
        let handshake = tokio::time::timeout(self.limits.handshake, TlsAcceptor::from(tls).accept(stream));
        let shaken = tokio::select! {
            () = activity.end.cancelled() => return,
            shaken = handshake => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                self.talk(TokioIo::new(stream), Peer { has_certificate, address, activity }).await;
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
            .max_send_buf_size(SEND_BYTES)
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
    /// Requests that wait for the service, not for the peer.
    open: AtomicUsize,
    /// When the last one ended, a part of an answer was taken, or the connection was made; milliseconds since the listener
    /// began. Earlier if the answer is read too slowly.
    idle_since: AtomicU64,
    began: Instant,
    /// Cancelled when the connection has to end.
    end: CancellationToken,
}

impl Activity {
    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        self.millis(Instant::now())
    }

    /// A request waits for the service until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(self))
    }

    /// The peer took a part of an answer.
    pub(crate) fn progress(&self) {
        self.idle_since.fetch_max(self.now(), Ordering::AcqRel);
    }

    /// The peer took a part of an answer that counts as progress until this time, at most until now.
    pub(crate) fn progress_until(&self, at: Instant) {
        self.idle_since.fetch_max(self.millis(at).min(self.now()), Ordering::AcqRel);
    }

    /// Since when no request waits for the service.
    fn idle_since(&self) -> Option<u64> {
        (self.open.load(Ordering::Acquire) == 0).then(|| self.idle_since.load(Ordering::Acquire))
    }
}

/// A request that waits for the service.
#[derive(Debug)]
pub(crate) struct Open(Arc<Activity>);

impl Open {
    /// The service has an answer.
    pub(crate) fn end(self) -> Arc<Activity> {
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
    use std::convert::Infallible;

    use axum::routing::get;
    use bytes::Bytes;
    use futures_util::{Stream, StreamExt as _, stream};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::limits::Terms;
    use crate::meter::Meter;
    use crate::observe::{Door, observe};

    const LEN: usize = 4 << 20;
    const PIPE_LEN: usize = 64 << 10;
    const IDLE: Duration = Duration::from_secs(75);
    const REQUEST: &[u8] = b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n";

    /// A connection to a service that answers with what `body` returns.
    struct Visit {
        client: DuplexStream,
        table: Table,
        serving: JoinHandle<()>,
    }

    impl Visit {
        async fn new(request: &[u8], body: impl Fn() -> Body + Clone + Send + Sync + 'static) -> Self {
            let terms = Terms::new(Arc::new(Meter::new("test")));
            let app = Router::new().route("/it", get(|| async move { body() })).layer(
                axum::middleware::from_fn_with_state(
                    Arc::new(Door::new(terms.clone(), SocketAddr::from(([127, 0, 0, 1], 0)))),
                    observe,
                ),
            );
            let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
            let shared =
                Shared { app, access: terms.access, limits: terms.limits, tasks, stop: stop.clone() };
            let table = Table::new(1, stop);
            let (_, activity) = table.enter();
            let (mut client, server) = tokio::io::duplex(PIPE_LEN);
            let serving = tokio::spawn(async move {
                shared
                    .talk(TokioIo::new(server), Peer { has_certificate: false, address: None, activity })
                    .await;
            });
            client.write_all(request).await.unwrap();
            Self { client, table, serving }
        }

        /// Lets the service do all that it can now, and then so many idle times pass.
        async fn pass(&self, times: f64) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::time::advance(IDLE.mul_f64(times)).await;
            self.table.close_idle(IDLE);
        }

        /// Whether the connection is closed without any more time.
        async fn is_closed(&mut self) -> bool {
            tokio::time::timeout(Duration::from_millis(1), &mut self.serving).await.is_ok()
        }
    }

    /// Reads so many parts of a large answer, with so long a pause after each, in idle times, and then the rest; whether
    /// all of it came.
    async fn download(parts: usize, part_len: usize, pause: f64) -> bool {
        let mut visit = Visit::new(REQUEST, || Body::from(vec![b'x'; LEN])).await;
        let mut part = vec![0; part_len];
        for _ in 0..parts {
            if visit.client.read_exact(&mut part).await.is_err() {
                return false;
            }
            visit.pass(pause).await;
        }
        let mut rest = Vec::new();
        let _until_idle = tokio::time::timeout(IDLE, visit.client.read_to_end(&mut rest)).await;
        visit.serving.abort();
        parts * part_len + rest.len() > LEN
    }

    /// A stream that is quiet for a moment and then always has more.
    fn endless(handed: Arc<AtomicUsize>) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let quiet = stream::once(tokio::task::yield_now()).map(|()| Ok(Bytes::from_static(b"hello")));
        quiet.chain(stream::repeat_with(move || {
            handed.fetch_add(PIPE_LEN, Ordering::Relaxed);
            Ok(Bytes::from(vec![b'x'; PIPE_LEN]))
        }))
    }

    /// A stream of which one frame is far more than a connection takes at once.
    fn large_frames() -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::repeat_with(|| Ok(Bytes::from(vec![b'x'; LEN])))
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_lasts_as_long_as_its_client_reads() {
        // 11 KiB/s for 225 s.
        assert!(download(10, LEN / 16, 0.3).await);
        assert!(!download(1, LEN / 16, 1.0).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_read_too_slowly_is_cut() {
        // 5 KiB/s and 948 B/s; never idle for long.
        assert!(!download(15, LEN / 16, 0.7).await);
        assert!(!download(20, PIPE_LEN, 0.9).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_if_its_client_does_not_read() {
        let mut visit = Visit::new(REQUEST, || Body::from_stream(endless(Arc::default()))).await;
        assert!(!visit.is_closed().await);
        for _ in 0..5 {
            visit.client.read_exact(&mut vec![0; LEN / 16]).await.unwrap();
            visit.pass(0.9).await;
            assert!(!visit.is_closed().await);
        }
        visit.pass(0.2).await;
        assert!(visit.is_closed().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_frame_of_a_stream_may_be_read_slowly() {
        let mut visit = Visit::new(REQUEST, || Body::from_stream(large_frames())).await;
        for _ in 0..5 {
            visit.client.read_exact(&mut vec![0; LEN / 16]).await.unwrap();
            visit.pass(0.9).await;
            assert!(!visit.is_closed().await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_stays() {
        let hello = || stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"hello"))]);
        let mut visit =
            Visit::new(REQUEST, move || Body::from_stream(hello().chain(stream::pending()))).await;
        visit.client.read_exact(&mut [0; 16]).await.unwrap();
        for _ in 0..3 {
            visit.pass(2.0).await;
            assert!(!visit.is_closed().await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_taken_of_an_answer_that_an_http2_peer_does_not_read() {
        let window = (16_u32 << 20).to_be_bytes();
        let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS with an initial window of 16 MiB, WINDOW_UPDATE with as much, HEADERS of a GET that ends its stream.
        request.extend_from_slice(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4]);
        request.extend_from_slice(&window);
        request.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0]);
        request.extend_from_slice(&window);
        request.extend_from_slice(&[0, 0, 18, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x04, 3]);
        request.extend_from_slice(b"/it\x01\x09localhost");
        let handed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&handed);
        let mut visit = Visit::new(&request, move || Body::from_stream(endless(Arc::clone(&counted)))).await;
        assert!(!visit.is_closed().await);
        let handed = handed.load(Ordering::Relaxed);
        assert!((PIPE_LEN..=5 * PIPE_LEN).contains(&handed), "{handed}");
        visit.pass(1.1).await;
        assert!(visit.is_closed().await);
    }
}
