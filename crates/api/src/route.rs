//! The paths. A handler parses, asks and renders; its parameters and its place in the document stand beside it.

pub(crate) mod docs;
pub(crate) mod gpus;
pub(crate) mod health;
pub(crate) mod hosts;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod rows;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod telemetry;

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::Response;
use axum::routing::get;

use crate::api::Api;
use crate::error::ApiError;

/// All paths.
pub(crate) fn router() -> Router<Api> {
    Router::new()
        .route("/api/v1/gpus", get(gpus::list))
        .route("/api/v1/gpus/{id}", get(gpus::one))
        .route("/api/v1/gpus/{id}/telemetry", get(telemetry::of_one))
        .route("/api/v1/telemetry", get(telemetry::of_several))
        .route("/api/v1/hosts", get(hosts::list))
        .route("/api/v1/hosts/{hostname}/gpus", get(gpus::of_host))
        .route("/api/v1/metrics", get(metrics::catalogue))
        .route("/api/v1/query", get(query::query))
        .route("/api/v1/stream", get(stream::stream))
        .route("/health", get(health::health))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/stats", get(stats::stats))
        .route("/metrics", get(metrics::gateway))
        .route("/docs", get(docs::index))
        .route("/docs/", get(docs::index))
        .route("/docs/{file}", get(docs::file))
        .route("/openapi.json", get(docs::json))
        .route("/openapi.yaml", get(docs::yaml))
        .fallback(page::page)
        .method_not_allowed_fallback(not_allowed)
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    page::refuse_method(&method, uri.path())
}

/// What a handler ends with.
pub(crate) type Answered = Result<Response, ApiError>;
