//! `/healthz` and `/readyz`, for process supervisors: the same pair on every service.
//!
//! A process that answers is alive. One that is not unhealthy is ready.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use gpuvitals_core::Status;

/// Answers `/healthz`.
pub(crate) async fn alive() -> Response {
    text(StatusCode::OK, "ok\n".to_owned())
}

/// Answers `/readyz` of a service in this state; `reason` is empty if it is healthy.
pub(crate) fn ready(status: Status, reason: &str) -> Response {
    match status {
        Status::Healthy => text(StatusCode::OK, "ok\n".to_owned()),
        Status::Degraded => text(StatusCode::OK, format!("ok; {reason}\n")),
        Status::Unhealthy => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn text(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")], body).into_response()
}
