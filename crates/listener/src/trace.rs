//! Trace context on the network: W3C's headers `traceparent` and `tracestate` of a request, and the
//! `traceparent` of a frame.
//!
//! A disabled span is never formatted, so nothing here costs anything if no traces are sent.

use std::collections::HashMap;

use http::{HeaderMap, Method, StatusCode};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header of every traced request.
const TRACEPARENT: &str = "traceparent";
/// Bytes of a `traceparent` of version 00.
pub const TRACEPARENT_LEN: usize = 55;

/// Makes a span that is not entered yet part of the trace named by a request; without a readable one, the
/// span is unchanged.
pub fn follow(span: &Span, headers: &HeaderMap) {
    if !span.is_disabled() && headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        // If spans are not exported, they have no trace to join.
        let _not_traced = span.set_parent(parent);
    }
}

/// Makes a span that is not entered yet part of the trace of a `traceparent`, if it can be read.
pub fn follow_parent(span: &Span, traceparent: &str) {
    if !span.is_disabled() {
        let _not_traced = span.set_parent(context(traceparent));
    }
}

/// Links a span to the trace of a `traceparent`, if it can be read: for a span about frames of several
/// traces.
pub fn link(span: &Span, traceparent: &str) {
    if !span.is_disabled() {
        span.add_link(context(traceparent).span().span_context().clone());
    }
}

/// The `traceparent` of a span, for a frame that carries it on; none if the span is part of no trace.
pub fn parent(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

fn context(traceparent: &str) -> Context {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    TraceContextPropagator::new().extract(&carrier)
}

/// The span of a request, in the trace that its headers name. `route` is the path's pattern, so that there are few names;
/// empty where there is none for the path.
pub(crate) fn served(method: &Method, route: &str, path: &str, headers: &HeaderMap) -> Span {
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
    follow(&span, headers);
    span
}

/// Notes how the request of a span was answered; a fault of the server is an error, one of the client is none.
pub(crate) fn answered(span: &Span, status: StatusCode) {
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
