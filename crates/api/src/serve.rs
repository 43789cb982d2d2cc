//! The server: connections, limits and the common parts of all answers.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, InvalidHeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;
use tracing::{Instrument, Span};

use crate::api::Api;
use crate::error::ApiError;
use crate::route;

/// Largest body of a request in bytes. No path takes one; a small one is ignored.
const BODY_LEN_MAX: u64 = 16 << 10;
/// What an answer other than a page may load: nothing.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A configured origin is none.
    #[error("{origin:?} is no origin for CORS; write https://host or https://host:port")]
    Origin {
        /// As configured.
        origin: String,
        /// Cause.
        #[source]
        source: Option<InvalidHeaderValue>,
    },
    /// The socket failed.
    #[error("serving connections")]
    Io(#[source] io::Error),
}

/// Serves the API and the web page on a socket until the shutdown, and then until open requests have ended or
/// [`crate::Limits::drain`] has passed. Live streams end at once.
///
/// # Errors
/// When an origin for CORS is none, or the socket fails.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> Result<(), ServeError> {
    let cors = cors(&api.config().cors)?;
    let app = route::router()
        .layer(CatchPanicLayer::custom(crashed))
        .layer(cors)
        .layer(middleware::from_fn_with_state(api.clone(), observe))
        .with_state(api.clone());
    let listener = Bounded::new(listener, Arc::clone(api.connections()));
    let stopping = api.stopping().clone();
    let begun = shutdown.clone();
    let served = axum::serve(listener, app).with_graceful_shutdown(async move {
        begun.cancelled().await;
        stopping.cancel();
    });
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(api.config().limits.drain).await;
    };
    tokio::select! {
        done = served.into_future() => done.map_err(ServeError::Io),
        () = overdue => {
            tracing::warn!(open = api.gateway_stats().connections, "connections were still open at the end of the drain time");
            Ok(())
        }
    }
}

fn cors(origins: &[String]) -> Result<CorsLayer, ServeError> {
    let parse = |origin: &String| {
        let refused = |source| ServeError::Origin { origin: origin.clone(), source };
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['/', '*', ' '])) {
            return Err(refused(None));
        }
        HeaderValue::from_str(origin).map_err(|source| refused(Some(source)))
    };
    let origins: Vec<HeaderValue> = origins.iter().map(parse).collect::<Result<_, _>>()?;
    if origins.is_empty() {
        return Ok(CorsLayer::new());
    }
    Ok(CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD])
        .expose_headers([HeaderName::from_static("x-cache")]))
}

/// Around every request: limits, statistics, log, headers.
async fn observe(
    State(api): State<Api>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let uri = request.uri().clone();
    let span = span(&request);
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let limit = api.config().limits.request_timeout;
    let mut response = if length.is_some_and(|length| length > BODY_LEN_MAX) {
        ApiError::Body(BODY_LEN_MAX).into_response()
    } else {
        let answered = tokio::time::timeout(limit, next.run(request).instrument(span.clone())).await;
        answered.unwrap_or_else(|_| ApiError::Timeout(limit.as_secs()).into_response())
    };
    let took = began.elapsed();
    let status = response.status();
    gpuvitals_listener::trace::answered(&span, status);
    api.meter().answered(path.as_ref().map(MatchedPath::as_str), status.as_u16(), took);
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if status.is_server_error() {
        tracing::warn!(%method, %uri, status = status.as_u16(), took_us, "request");
    } else {
        tracing::debug!(%method, %uri, status = status.as_u16(), took_us, "request");
    }
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    response
}

fn span(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    gpuvitals_listener::trace::served(request.method(), route, request.uri().path(), request.headers())
}

/// Around every request of a service that has no more than a few paths: its span.
pub(crate) async fn traced(request: Request, next: Next) -> Response {
    let span = span(&request);
    let response = next.run(request).instrument(span.clone()).await;
    gpuvitals_listener::trace::answered(&span, response.status());
    response
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
pub(crate) fn crashed(panic: Box<dyn Any + Send + 'static>) -> Response {
    let words =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = words.unwrap_or("no words"), "a handler panicked");
    ApiError::Crashed.into_response()
}

/// A listener that serves no more connections than there may be open; one more is accepted and waits.
#[derive(Debug)]
pub(crate) struct Bounded {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl Bounded {
    /// Serves as many connections at a time as there are permits.
    pub(crate) fn new(listener: TcpListener, permits: Arc<Semaphore>) -> Self {
        Self { listener, permits }
    }
}

/// A connection and its place among the open ones.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // After accepting: a permit that waits for a connection would count as one. The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        // Small answers must not wait for the acknowledgement of earlier ones.
        let _set = stream.set_nodelay(true);
        (Connection { stream, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
