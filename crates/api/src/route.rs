//! The paths. A handler parses, asks and renders; its parameters and its place in the document stand beside it.

pub(crate) mod analysis;
mod answered;
pub(crate) mod changes;
pub(crate) mod clusters;
pub(crate) mod course;
pub(crate) mod docs;
pub mod document;
pub(crate) mod explain;
pub(crate) mod fleet_use;
pub(crate) mod gpus;
pub(crate) mod health;
pub(crate) mod hints;
pub(crate) mod hosts;
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod prom;
pub(crate) mod query;
pub(crate) mod rows;
pub(crate) mod silences;
pub(crate) mod stats;
pub(crate) mod stream;
mod table;
pub(crate) mod telemetry;
pub(crate) mod topology;
pub(crate) mod usage;

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::Response;
use axum::routing::get;

use crate::api::Api;

use answered::READING;

/// All paths: those of the table, and those that the document does not describe or that take more than one method.
pub(crate) fn router() -> Router<Api> {
    table::paths()
        .route("/docs", get(docs::index))
        .route("/docs/", get(docs::index))
        .route("/docs/{file}", get(docs::file))
        .route("/openapi.json", get(docs::json))
        .route("/openapi.yaml", get(docs::yaml))
        .merge(silences::paths())
        .merge(prom::paths())
        .fallback(page::page)
        .method_not_allowed_fallback(not_allowed)
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    page::refuse_method(&method, uri.path(), READING)
}
