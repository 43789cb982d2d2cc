//! How a trace crosses the network: in W3C's headers `traceparent` and `tracestate` of a request, and as the `traceparent` of a
//! frame.
//!
//! A span that nobody wants is not looked at, so nothing here costs anything where no traces are sent.

mod served;

pub use served::{answered, note, served};

use std::collections::HashMap;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What every request of a trace has.
const TRACEPARENT: &str = "traceparent";
/// Bytes of a `traceparent` of version 00.
pub const TRACEPARENT_LEN: usize = 55;

/// Makes a span that is not entered yet part of the trace that a request names; without one, or with one that cannot be
/// read, it stays where it is.
pub fn follow(span: &Span, headers: &HeaderMap) {
    if !span.is_disabled() && headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        // Where spans are not traces, there is nothing to be part of.
        let _not_traced = span.set_parent(parent);
    }
}

/// Makes a span that is not entered yet part of the trace of a `traceparent`, if it can be read.
pub fn follow_parent(span: &Span, traceparent: &str) {
    if !span.is_disabled() {
        let _not_traced = span.set_parent(context(traceparent));
    }
}

/// Links a span to the trace of a `traceparent`, if it can be read: for one that is about frames of several traces.
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
