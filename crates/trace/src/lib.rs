//! How a trace crosses the network: in W3C's headers `traceparent` and `tracestate`, and the span of a request that came.
//!
//! A span that nobody wants is not looked at, so nothing here costs anything where no traces are sent.

mod served;

pub use served::{answered, note, served};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Injector, TextMapPropagator};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What every request of a trace has.
const TRACEPARENT: &str = "traceparent";

/// Makes a span that is not entered yet part of the trace that a request names; without one, or with one that cannot be
/// read, it stays where it is.
pub fn follow(span: &Span, headers: &HeaderMap) {
    if !span.is_disabled() && headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        // Where spans are not traces, there is nothing to be part of.
        let _not_traced = span.set_parent(parent);
    }
}

/// Names a span in the headers of a request, so that whoever gets it can follow.
pub fn pass_on(span: &Span, headers: &mut HeaderMap) {
    if !span.is_disabled() {
        TraceContextPropagator::new().inject_context(&span.context(), &mut Outgoing(headers));
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}
