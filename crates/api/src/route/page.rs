//! The web page's files, the page itself for its own addresses, and 404 for every other path.

use axum::extract::State as Shared;
use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderMap};
use axum::http::{HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};

use super::answered::{Answered, READING};
use crate::api::Api;
use crate::assets::{Asset, Keep};
use crate::error::ApiError;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";
/// Folder of built files whose name contains their hash: they never change.
const HASHED: &str = "assets/";
const INDEX: &str = "index.html";
const PLACEHOLDER: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>gpuvitals</title>\n\
    <p>This program was built without its web page; <code>make build</code> builds it with the page. \
    The API is described at <a href=\"/docs\">/docs</a>.</p></html>\n";

/// Answers all other paths.
pub(crate) async fn page(Shared(api): Shared<Api>, method: Method, uri: Uri, headers: HeaderMap) -> Answered {
    let path = uri.path();
    if method != Method::GET && method != Method::HEAD {
        return Ok(refuse_method(&method, path, READING));
    }
    let name = path.trim_start_matches('/');
    let page = &api.config().page;
    if let Some(asset) = page.get(name).filter(|_| name != INDEX) {
        return asset
            .respond(&headers, if name.starts_with(HASHED) { Keep::Immutable } else { Keep::Revalidate });
    }
    if !is_view(path) {
        return Err(ApiError::not_found(path));
    }
    let mut response = match page.get(INDEX) {
        Some(index) => index.respond(&headers, Keep::Revalidate)?,
        None if name.is_empty() || name == INDEX => {
            Asset::plain(INDEX, PLACEHOLDER.as_bytes()).respond(&headers, Keep::Revalidate)?
        }
        None => return Err(ApiError::not_found(path)),
    };
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// Whether the page has a view at this path: those of `routeOf` in `dashboard/src/app/routes.ts`.
fn is_view(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    if matches!(
        path,
        "" | "/index.html"
            | "/gpus"
            | "/compare"
            | "/hosts"
            | "/jobs"
            | "/clusters"
            | "/queue"
            | "/statistics"
            | "/about"
    ) {
        return true;
    }
    if let Some(id) = path.strip_prefix("/gpus/") {
        return !id.contains('/');
    }
    let node = path.strip_prefix("/clusters/").and_then(|place| place.split_once('/'));
    node.is_some_and(|(cluster, node)| !cluster.is_empty() && !node.contains('/'))
}

/// 405, in the shape of all errors; `allowed` are the methods of the path.
pub(crate) fn refuse_method(method: &Method, path: &str, allowed: &'static str) -> Response {
    let short = |text: &str| text.chars().take(64).collect();
    ApiError::Method { method: short(method.as_str()), path: short(path), allowed }.into_response()
}
