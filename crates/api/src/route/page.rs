//! The web page's files, the page itself for its own addresses, and 404 for every other path: the page again for a
//! browser, which then says what there is.

use axum::extract::State as Shared;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, HeaderMap, VARY};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
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
/// Where the page has views, a path a line; a test of `dashboard/src/app/pages.ts` writes and compares the list.
const VIEWS: &str = include_str!("pages.txt");
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
    let mut response = match page.get(INDEX) {
        Some(index) if is_view(path) => index.respond(&headers, Keep::Revalidate)?,
        Some(index) if is_for_a_person(path, &headers) => {
            // Whole, whatever the browser kept: a missing page is never unchanged.
            let mut response = index.respond(&HeaderMap::new(), Keep::Revalidate)?;
            *response.status_mut() = StatusCode::NOT_FOUND;
            // A program gets JSON at the same path.
            response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
            response
        }
        None if name.is_empty() || name == INDEX => {
            Asset::plain(INDEX, PLACEHOLDER.as_bytes()).respond(&headers, Keep::Revalidate)?
        }
        _ => return Err(ApiError::not_found(path)),
    };
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// Whether somebody looks at the answer: a browser asks so for what stands in its address bar.
fn is_for_a_person(path: &str, headers: &HeaderMap) -> bool {
    let asked = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    !path.starts_with("/api/") && asked.is_some_and(|accepted| accepted.contains("text/html"))
}

/// Whether the page has a view at this path.
fn is_view(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path == "/index.html" || VIEWS.lines().any(|view| fits(view.trim_end_matches('/'), path))
}

/// Whether a path is what a view's says; a segment of it that begins with a colon stands for any text.
fn fits(view: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let named = |part: &str, segment: &str| part.starts_with(':') && !segment.is_empty();
    view.split('/').all(|part| segments.next().is_some_and(|segment| part == segment || named(part, segment)))
        && segments.next().is_none()
}

/// 405, in the shape of all errors; `allowed` are the methods of the path.
pub(crate) fn refuse_method(method: &Method, path: &str, allowed: &'static str) -> Response {
    let short = |text: &str| text.chars().take(64).collect();
    ApiError::Method { method: short(method.as_str()), path: short(path), allowed }.into_response()
}
