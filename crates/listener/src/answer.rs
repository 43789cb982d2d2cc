//! The answer to a request that fails: always `{error, message, code}`.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// Longest piece of a request that is repeated in an answer, in characters.
const ECHO_MAX: usize = 64;
/// Seconds after which a client that was refused for want of room may try again.
const RETRY_AFTER_S: &str = "1";

#[derive(Debug, Serialize)]
struct ErrorBody<'a, C, M> {
    /// The HTTP status in words.
    error: String,
    /// The error and its remedy, for people.
    message: &'a str,
    /// The error, for programs.
    code: C,
    #[serde(flatten)]
    more: Option<M>,
}

/// The answer to a request that fails.
pub fn refuse(status: StatusCode, code: impl Serialize, message: &str) -> Response {
    refuse_with(status, code, message, None::<()>)
}

/// [`refuse`] with further fields.
pub fn refuse_with(
    status: StatusCode,
    code: impl Serialize,
    message: &str,
    more: Option<impl Serialize>,
) -> Response {
    let error = status.canonical_reason().unwrap_or("error").to_lowercase();
    // Texts can always be written.
    let text = serde_json::to_vec(&ErrorBody { error, message, code, more }).unwrap_or_default();
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // Browsers ask their user for this one: the password is the token.
        let login = HeaderValue::from_static("Basic realm=\"gpuvitals\", charset=\"UTF-8\"");
        headers.append(WWW_AUTHENTICATE, login);
    }
    response
}

/// As [`refuse`]; the client may try again after this time.
pub(crate) fn refuse_until(status: StatusCode, code: &str, message: &str, wait: Duration) -> Response {
    let mut response = refuse(status, code, message);
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// A piece of a request, short enough to be repeated in an answer.
pub fn echo(text: &str) -> String {
    let mut short: String = text.chars().take(ECHO_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
