//! The router of all paths: those of the table, and those that the document does not describe or that take more than one method.

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::Response;
use axum::routing::get;
use gpuvitals_listener::TokenScope;

use super::answered::READING;
use super::{docs, flight, page, prom, silences};
use crate::api::Api;

/// Where the paths of the incidents of jobs begin.
const FLIGHT: &str = "/api/v1/flight/";

/// The scope that a request to the API itself needs.
pub fn scope(method: &Method, path: &str) -> TokenScope {
    if path.starts_with(FLIGHT) { TokenScope::Flight } else { silences::scope(method, path) }
}

pub(crate) fn all() -> Router<Api> {
    super::paths()
        .route("/docs", get(docs::index))
        .route("/docs/", get(docs::index))
        .route("/docs/{file}", get(docs::file))
        .route("/openapi.json", get(docs::json))
        .route("/openapi.yaml", get(docs::yaml))
        .merge(silences::paths())
        .merge(flight::paths())
        .merge(prom::paths())
        .fallback(page::page)
        .method_not_allowed_fallback(not_allowed)
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    page::refuse_method(&method, uri.path(), READING)
}
