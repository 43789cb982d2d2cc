//! `/metrics`, `/health` and the probes of a service that has nothing else to show.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gpuvitals_core::Health;
use gpuvitals_core::Status;
use gpuvitals_core::clock;
use gpuvitals_core::figures::{Family, Format, render};
use gpuvitals_listener::Figures;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::dto::Moment;
use crate::error::ApiError;
use crate::probe;
use crate::route::stats::fresh;
use crate::serve::{Bounded, ServeError, traced};

/// Open connections at most; more wait to be accepted.
const CONNECTIONS: usize = 32;

/// How a service is, whenever that is asked.
type Judge = Arc<dyn Fn() -> Health + Send + Sync>;

/// Serves them and the health of the service until the shutdown. Requests still open then are dropped.
///
/// # Errors
/// If the socket fails.
pub async fn serve(
    listener: TcpListener,
    figures: Figures,
    judge: impl Fn() -> Health + Send + Sync + 'static,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let judge: Judge = Arc::new(judge);
    let app = Router::new()
        .route("/metrics", get(metrics))
        .with_state(figures)
        .route("/health", get(health))
        .route("/healthz", get(probe::alive))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn(traced))
        .with_state(judge);
    let listener = Bounded::new(listener, Arc::new(Semaphore::new(CONNECTIONS)));
    tokio::select! {
        done = axum::serve(listener, app).into_future() => done.map_err(ServeError::Io),
        () = shutdown.cancelled() => Ok(()),
    }
}

async fn metrics(State(figures): State<Figures>) -> Response {
    page(&figures.read())
}

/// The answer of `/metrics`.
pub(crate) fn page(families: &[Family]) -> Response {
    let headers = [(CONTENT_TYPE, Format::Prometheus.content_type()), (CACHE_CONTROL, "no-store")];
    (headers, render(families)).into_response()
}

async fn health(State(judge): State<Judge>) -> Result<Response, ApiError> {
    told(judge(), clock::now_ns())
}

async fn ready(State(judge): State<Judge>) -> Response {
    let health = judge();
    probe::ready(health.status, &health.reason)
}

#[derive(Serialize)]
struct HealthAnswer {
    status: Status,
    timestamp: Moment,
    /// Why it is not healthy.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// The answer about the health of a service.
pub(crate) fn told(health: Health, now_ns: i64) -> Result<Response, ApiError> {
    let status = health.status;
    let code = if status == Status::Unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    fresh(code, &HealthAnswer { status, timestamp: Moment(now_ns), reason: health.reason })
}
