//! The collector's own small API: health, statistics, the rows of a GPU, and metrics for Prometheus.
//!
//! | path | answer |
//! |---|---|
//! | `GET /health` | `{"status", "timestamp"}`; 503 if it is unhealthy |
//! | `GET /healthz`, `GET /readyz` | whether the process answers; whether it is ready (not unhealthy), as text |
//! | `GET /stats` | `{"total_processed", "active_gpus", "file_entries", "cache_entries", "uptime_seconds"}` |
//! | `GET /telemetry/{gpu}?limit=&reverse=` | `[{"gpu_id", "metrics", "timestamp"}]`, newest first; header `x-partial`: what could not be read |
//! | `GET /metrics` | Prometheus text |

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gpuvitals_core::Health;
use gpuvitals_core::clock;
use gpuvitals_core::figures::Family;
use gpuvitals_store::{NoGpu, Store};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::config::Limits;
use crate::dto::{Moment, RowMetrics};
use crate::error::{ApiError, ErrorBody, ErrorCode};
use crate::figures;
use crate::parameter::{self, Asked, Named};
use crate::probe;
use crate::route::rows::GpuRows;
use crate::route::stats::fresh;
use crate::serve::{Bounded, ServeError, crashed, traced};

/// Open connections at most; more wait to be accepted.
const CONNECTIONS: usize = 256;
/// Header that names the unreadable parts of an answer: the answer itself is a bare array.
const PARTIAL: HeaderName = HeaderName::from_static("x-partial");
/// Longest text of it in characters.
const PARTIAL_LEN_MAX: usize = 1_024;

/// The API's view of the collector.
pub trait CollectorView: Send + Sync {
    /// Rows made durable since the start, repeats among them.
    fn rows_stored(&self) -> u64;
    /// How the collector is.
    fn health(&self) -> Health;
    /// Its figures.
    fn families(&self) -> Vec<Family>;
}

/// The collector's API. Cheap to clone.
#[derive(Clone)]
pub struct CollectorApi(Arc<State>);

struct State {
    store: Store,
    view: Arc<dyn CollectorView>,
    limits: Limits,
    queries: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    started: Instant,
}

impl fmt::Debug for CollectorApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorApi").finish_non_exhaustive()
    }
}

impl CollectorApi {
    /// The API of a collector that fills that store.
    pub fn new(store: Store, view: Arc<dyn CollectorView>) -> Self {
        let limits = Limits::default();
        let queries = Arc::new(Semaphore::new(limits.queries));
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Self(Arc::new(State { store, view, limits, queries, connections, started: Instant::now() }))
    }

    /// The collector's figures.
    pub fn families(&self) -> Vec<Family> {
        let open = CONNECTIONS.saturating_sub(self.0.connections.available_permits());
        let mut families = self.0.view.families();
        families.push(Family::gauge("gpuvitals_collector_connections", "Connections that are open.", open));
        families
    }
}

/// Serves the API on a socket until the shutdown, and then until open requests have ended or [`Limits::drain`] has
/// passed.
///
/// # Errors
/// When the socket fails.
pub async fn serve(
    listener: TcpListener,
    api: CollectorApi,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let limits = api.0.limits.clone();
    let app = Router::new()
        .route("/health", get(health))
        .route("/healthz", get(probe::alive))
        .route("/readyz", get(ready))
        .route("/stats", get(stats))
        .route("/telemetry/{gpu}", get(telemetry))
        .route("/metrics", get(metrics))
        .fallback(nothing)
        .layer(CatchPanicLayer::custom(crashed))
        .layer(middleware::from_fn_with_state(limits.request_timeout, in_time))
        .layer(middleware::from_fn(traced))
        .with_state(api.clone());
    let listener = Bounded::new(listener, Arc::clone(&api.0.connections));
    let begun = shutdown.clone();
    let served = axum::serve(listener, app).with_graceful_shutdown(async move { begun.cancelled().await });
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(limits.drain).await;
    };
    tokio::select! {
        done = served.into_future() => done.map_err(ServeError::Io),
        () = overdue => Ok(()),
    }
}

async fn in_time(Shared(limit): Shared<Duration>, request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    answered.unwrap_or_else(|_| ApiError::Timeout(limit.as_secs()).into_response())
}

async fn health(Shared(api): Shared<CollectorApi>) -> Result<Response, ApiError> {
    figures::told(worst(&api), clock::now_ns())
}

async fn ready(Shared(api): Shared<CollectorApi>) -> Response {
    let health = worst(&api);
    probe::ready(health.status, &health.reason)
}

/// Health of the collector or the store, whichever is worse.
fn worst(api: &CollectorApi) -> Health {
    let (collector, store) = (api.0.view.health(), api.0.store.health());
    if store.status > collector.status { store } else { collector }
}

#[derive(Serialize)]
struct StatsAnswer {
    /// Rows made durable since the start.
    total_processed: u64,
    /// GPUs that have rows in the store.
    active_gpus: u64,
    /// Rows in files.
    file_entries: u64,
    /// Rows in memory: those that are not in files yet, and the newest of each GPU of those that are.
    cache_entries: u64,
    uptime_seconds: u64,
}

async fn stats(Shared(api): Shared<CollectorApi>) -> Result<Response, ApiError> {
    let store = api.0.store.stats();
    fresh(
        StatusCode::OK,
        &StatsAnswer {
            total_processed: api.0.view.rows_stored(),
            active_gpus: store.gpus,
            file_entries: store.flushed.rows + store.merged.rows,
            cache_entries: store.tail_rows + store.recent_rows,
            uptime_seconds: api.0.started.elapsed().as_secs(),
        },
    )
}

/// Which rows of a GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsWanted {
    limit: Option<String>,
    reverse: Option<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    gpu_id: Cow<'a, str>,
    metrics: RowMetrics<'a>,
    timestamp: Moment,
}

async fn telemetry(
    Shared(api): Shared<CollectorApi>,
    Named(gpu): Named,
    Asked(wanted): Asked<RowsWanted>,
) -> Result<Response, ApiError> {
    let limits = &api.0.limits;
    let limit = parameter::limit(wanted.limit.as_ref(), limits.page, limits.page_max)?;
    let oldest_first = parameter::flag("reverse", wanted.reverse.as_ref())?;
    let state = match api.0.store.fleet().find(&gpu).cloned() {
        Ok(state) => state,
        Err(NoGpu::Unknown) => {
            return Ok(refused(
                StatusCode::NOT_FOUND,
                ErrorCode::UnknownGpu,
                "no GPU of this name has rows here".to_owned(),
            ));
        }
        Err(why @ NoGpu::Ambiguous(_)) => return Err(ApiError::no_gpu(&gpu, why)),
    };
    let permit = Arc::clone(&api.0.queries).acquire_owned().await.map_err(|_| ApiError::Overloaded)?;
    let store = api.0.store.clone();
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let rows = store.end_rows(&state.key, limit, !oldest_first)?;
        let partial = rows.partial.join("; ");
        if !partial.is_empty() {
            tracing::warn!(words = partial, "rows were left out of an answer");
        }
        let found = rows.batch.as_ref().and_then(|batch| GpuRows::of(batch, None));
        let list: Vec<Row<'_>> = found
            .iter()
            .flat_map(GpuRows::entries)
            .map(|entry| Row { gpu_id: entry.gpu_id, metrics: entry.metrics, timestamp: entry.timestamp })
            .collect();
        let mut response = fresh(StatusCode::OK, &list)?;
        if !partial.is_empty() {
            response.headers_mut().insert(PARTIAL, header_text(&partial));
        }
        Ok(response)
    });
    read.await.unwrap_or(Err(ApiError::Crashed))
}

/// As much of a text as fits in a header; a character that is not printable ASCII becomes `?`.
fn header_text(text: &str) -> HeaderValue {
    let printable = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let text: String = text.chars().take(PARTIAL_LEN_MAX).map(printable).collect();
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("yes"))
}

async fn metrics(Shared(api): Shared<CollectorApi>) -> Response {
    figures::page(&api.families())
}

async fn nothing(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(64).collect();
    let words = format!(
        "there is nothing at {path:?}; a collector answers /health, /healthz, /readyz, /stats, /metrics and \
         /telemetry/{{gpu}}"
    );
    refused(StatusCode::NOT_FOUND, ErrorCode::NotFound, words)
}

fn refused(status: StatusCode, code: ErrorCode, message: String) -> Response {
    let error = status.canonical_reason().unwrap_or("error").to_lowercase();
    let body = serde_json::to_vec(&ErrorBody { error, message, code }).unwrap_or_default();
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
}
