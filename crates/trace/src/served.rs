//! The span of a request that is served, alike in every service, by the conventions of OpenTelemetry for HTTP.

use http::{HeaderMap, Method, StatusCode};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The span of a request, in the trace that its headers name. `route` is the path's pattern, so that there are few names;
/// empty where there is none for the path.
pub fn served(method: &Method, route: &str, path: &str, headers: &HeaderMap) -> Span {
    // Anybody may invent a method, and names must be few.
    let known = matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::CONNECT
            | Method::OPTIONS
            | Method::TRACE
            | Method::PATCH
    );
    let (name, method) = if known { (method.as_str(), method.as_str()) } else { ("HTTP", "_OTHER") };
    let space = if route.is_empty() { "" } else { " " };
    let span = tracing::info_span!(
        "request",
        otel.name = %format_args!("{name}{space}{route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = (!route.is_empty()).then_some(route),
        http.response.status_code = Empty,
        url.path = path,
    );
    crate::follow(&span, headers);
    span
}

/// Notes how the request of a span was answered; a fault of the server is an error, one of the client is none.
pub fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Notes on the span that is entered what only its service knows.
pub fn note(key: &'static str, value: &'static str) {
    let span = Span::current();
    if !span.is_disabled() {
        span.set_attribute(key, value);
    }
}
