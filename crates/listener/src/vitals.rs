//! `/health`, `/healthz`, `/readyz` and `/metrics`, alike on every service.
//!
//! Alive is a process that answers. Ready is one that is not unhealthy.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use gpuvitals_core::clock;
use gpuvitals_core::figures::{Family, Format, render};
use gpuvitals_core::time;
use gpuvitals_core::{Health, Status};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use crate::certificate::Certificate;

/// What a service says about itself.
pub trait Vitals: Send + Sync + 'static {
    /// Its health, for `/health`.
    fn health(&self) -> Health;

    /// Whether the process works at all, for `/healthz`: a new process is started where it is unhealthy.
    fn alive(&self) -> Health {
        Health::healthy(0)
    }

    /// Whether it may be asked, for `/readyz`.
    fn ready(&self) -> Health {
        self.health()
    }

    /// Its figures, for `/metrics`.
    fn families(&self) -> Vec<Family>;
}

/// The paths of a service's vitals.
pub fn routes<S: Clone + Send + Sync + 'static>(vitals: Arc<dyn Vitals>) -> Router<S> {
    probes(Arc::clone(&vitals)).route("/metrics", get(metrics).with_state(vitals))
}

/// [`routes`] without `/metrics`.
pub fn probes<S: Clone + Send + Sync + 'static>(vitals: Arc<dyn Vitals>) -> Router<S> {
    Router::new()
        .route("/health", get(health))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(vitals)
}

/// `status`, `timestamp`, and `reason` if it is not healthy.
async fn health(State(vitals): State<Arc<dyn Vitals>>, certificate: Served) -> Response {
    let Health { status, reason, .. } = with(vitals.health(), certificate);
    let mut report = json!({ "status": status, "timestamp": time::format(clock::now_ns()) });
    if let Some(report) = report.as_object_mut().filter(|_| !reason.is_empty()) {
        report.insert("reason".to_owned(), reason.into());
    }
    (code(status), axum::Json(report)).into_response()
}

async fn alive(State(vitals): State<Arc<dyn Vitals>>) -> Response {
    probe(&vitals.alive())
}

async fn ready(State(vitals): State<Arc<dyn Vitals>>, certificate: Served) -> Response {
    probe(&with(vitals.ready(), certificate))
}

/// The certificate that the listener serves, if there is one.
type Served = Option<Extension<Certificate>>;

/// With the health of the certificate.
fn with(health: Health, certificate: Served) -> Health {
    match certificate {
        Some(Extension(certificate)) => Health::of_all([health, certificate.health()]),
        None => health,
    }
}

async fn metrics(State(vitals): State<Arc<dyn Vitals>>) -> Response {
    page(&vitals.families())
}

/// The answer of `/metrics`.
pub fn page(families: &[Family]) -> Response {
    ([(CONTENT_TYPE, Format::Prometheus.content_type())], render(families)).into_response()
}

/// The answer to a probe; its text says what is not well.
pub fn probe(health: &Health) -> Response {
    let text = match health.status {
        Status::Healthy => "ok\n".to_owned(),
        Status::Degraded => format!("ok; {}\n", health.reason),
        Status::Unhealthy => format!("{}\n", health.reason),
    };
    (code(health.status), text).into_response()
}

fn code(status: Status) -> StatusCode {
    match status {
        Status::Healthy | Status::Degraded => StatusCode::OK,
        Status::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Reads the figures of a service.
#[derive(Clone)]
pub struct Figures(Arc<dyn Fn() -> Vec<Family> + Send + Sync>);

impl Figures {
    /// Those that `read` returns.
    pub fn new(read: impl Fn() -> Vec<Family> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// As they stand now.
    pub fn read(&self) -> Vec<Family> {
        (self.0)()
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}
