//! The queue by HTTP: publishing, what is held, dead letters, figures. The paths stand in `api/queue-openapi.yaml`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use super::body::Budget;
use super::metrics::Meter;
use super::refusal::{Refusal, echo};
use super::{admin, dead, publish};
use crate::service::Queue;

/// Bodies that are unpacked or are long are read by so many threads at most.
const READERS: usize = 4;

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

/// What a request does, and so which right it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// None: whether the queue is well is nobody's secret.
    Open,
    /// To look at numbers and names.
    Read,
    /// To look at messages.
    ReadMessages,
    /// To hand over messages.
    Publish,
    /// To change or throw away what is held.
    Manage,
}

impl Right {
    /// The right that a request needs. What is not known needs one too.
    pub fn needed(method: &Method, path: &str) -> Self {
        let looks = matches!(*method, Method::GET | Method::HEAD);
        match path {
            "/health" | "/healthz" | "/readyz" if looks => Self::Open,
            _ if path.starts_with("/publish/") => Self::Publish,
            // Deeper than the groups of a topic are its dead letters, which are messages of anyone.
            _ if looks && path.starts_with("/topics/") && !path.ends_with("/groups") => Self::ReadMessages,
            _ if looks => Self::Read,
            _ => Self::Manage,
        }
    }
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Served(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Queue,
    limits: HttpLimits,
    bodies: Budget,
    readers: Arc<Semaphore>,
    meter: Arc<Meter>,
}

impl Served {
    pub(crate) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    pub(crate) fn limits(&self) -> &HttpLimits {
        &self.0.limits
    }

    pub(crate) fn bodies(&self) -> &Budget {
        &self.0.bodies
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Waits for a turn to read a long body, or letters. It goes with the work, which does not end with the request.
    pub(crate) async fn reader(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let readers = Arc::clone(&self.0.readers);
        let turn = tokio::time::timeout(self.0.limits.request_time, readers.acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(Refusal::Overloaded)
    }
}

/// All paths. Who may ask what is for the caller to see to, by [`Right::needed`].
pub fn router(queue: Queue, limits: HttpLimits, meter: Arc<Meter>) -> Router {
    router_within(queue, limits, meter, Budget::new(limits.bodies_bytes))
}

/// [`router`], whose bodies share a budget with others.
pub(super) fn router_within(queue: Queue, limits: HttpLimits, meter: Arc<Meter>, bodies: Budget) -> Router {
    let readers = Arc::new(Semaphore::new(READERS));
    let served = Served(Arc::new(Inner { queue, limits, bodies, readers, meter }));
    Router::new()
        .route("/", get(index))
        .route("/publish/{topic}", post(publish::publish))
        .route("/health", get(admin::health))
        .route("/healthz", get(admin::alive))
        .route("/readyz", get(admin::ready))
        .route("/metrics", get(admin::metrics))
        .route("/stats", get(admin::stats))
        .route("/stats/{topic}", get(admin::topic_stats))
        .route("/topics", get(admin::topics))
        .route("/topics/{topic}/groups", get(admin::groups))
        .route("/topics/{topic}/groups/{group}", delete(admin::remove_group))
        .route("/topics/{topic}/dead", get(dead::list).delete(dead::purge))
        .route("/topics/{topic}/dead/replay", post(dead::replay))
        .fallback(nothing_there)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn_with_state(served.clone(), observe))
        .with_state(served)
}

/// What there is.
async fn index() -> Json<serde_json::Value> {
    Json(json!({
        "service": "gpuvitals-queue",
        "version": env!("CARGO_PKG_VERSION"),
        "paths": [
            "POST /publish/{topic}",
            "GET /health",
            "GET /healthz",
            "GET /readyz",
            "GET /metrics",
            "GET /stats",
            "GET /stats/{topic}",
            "GET /topics",
            "GET /topics/{topic}/groups",
            "DELETE /topics/{topic}/groups/{group}",
            "GET /topics/{topic}/dead",
            "DELETE /topics/{topic}/dead",
            "POST /topics/{topic}/dead/replay",
        ],
    }))
}

async fn nothing_there(uri: Uri) -> Response {
    Refusal::NotFound(echo(uri.path())).into_response()
}

async fn unknown_method(method: Method, uri: Uri) -> Response {
    Refusal::Method { method: echo(method.as_str()), path: echo(uri.path()) }.into_response()
}

/// Around every request: statistics, the log, and what every answer has in common.
async fn observe(State(served): State<Served>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let span = gpuvitals_trace::served(request.method(), route, &path, request.headers());
    let mut response = next.run(request).instrument(span.clone()).await;
    gpuvitals_trace::answered(&span, response.status());
    let status = response.status().as_u16();
    served.meter().answered(status);
    tracing::debug!(%method, path, status, "request");
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
