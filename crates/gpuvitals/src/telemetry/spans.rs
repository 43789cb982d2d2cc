//! Spans that have ended and wait to be sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

/// Spans that wait at most, as in OpenTelemetry's own processors; at some 500 bytes each about 1 MB.
const SPANS_MAX: usize = 2048;
/// Spans that go together; as many wake the exporter before its time.
pub(super) const BATCH: usize = 512;

/// The spans, and the stop of who takes them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    inner: Mutex<Inner>,
    woken: Condvar,
    /// Spans that found no room.
    pub(super) dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    spans: VecDeque<SpanData>,
    is_stopped: bool,
}

impl Waiting {
    fn add(&self, span: SpanData) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.spans.len() >= SPANS_MAX || inner.is_stopped {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inner.spans.push_back(span);
        if inner.spans.len() == BATCH {
            self.woken.notify_one();
        }
    }

    /// Waits so long, or until a batch is full where that is asked for, or until the stop. Whether it is to stop.
    pub(super) fn wait(&self, time: Duration, for_batch: bool) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |inner: &mut Inner| inner.is_stopped || (for_batch && inner.spans.len() >= BATCH);
        let waited = self.woken.wait_timeout_while(inner, time, |inner| !is_due(inner));
        waited.unwrap_or_else(PoisonError::into_inner).0.is_stopped
    }

    /// The oldest, a batch at most.
    pub(super) fn take(&self) -> Vec<SpanData> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inner.spans.len().min(BATCH);
        inner.spans.drain(..count).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).spans.len()
    }

    /// No more are taken in.
    pub(super) fn stop(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).is_stopped = true;
        self.woken.notify_one();
    }
}

/// Puts spans there that have ended and are sampled.
#[derive(Debug)]
pub(super) struct Processor(Arc<Waiting>);

impl Processor {
    /// To that place.
    pub(super) fn new(waiting: Arc<Waiting>) -> Self {
        Self(waiting)
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.add(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
