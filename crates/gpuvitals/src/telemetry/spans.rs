//! Spans that have ended and wait to be sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::{Context, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

/// Spans that wait at most, as in OpenTelemetry's own processors; at some 500 bytes each about 1 MB.
pub(super) const SPANS_MAX: usize = 2048;
/// Longest name or text of a span, bytes: a path that somebody asks for may have some 64 KiB.
const TEXT_MAX: usize = 256;
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
    /// That were taken to be sent, and may have to be sent again.
    under_way: usize,
    is_stopped: bool,
}

impl Waiting {
    fn add(&self, span: SpanData) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.spans.len() + inner.under_way >= SPANS_MAX || inner.is_stopped {
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

    /// The oldest, a batch at most. They are still counted, and have their room, until they are settled.
    pub(super) fn take(&self) -> Vec<SpanData> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inner.spans.len().min(BATCH);
        inner.under_way += count;
        inner.spans.drain(..count).collect()
    }

    /// What was taken is sent, or given up.
    pub(super) fn settle(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).under_way = 0;
    }

    /// How many there are, those under way among them.
    pub(super) fn len(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.spans.len() + inner.under_way
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

/// Cuts what others may make as long as they like.
fn shorten(span: &mut SpanData) {
    let cut = |text: &str| text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default().to_owned();
    if span.name.len() > TEXT_MAX {
        span.name = cut(&span.name).into();
    }
    for attribute in &mut span.attributes {
        if let Value::String(text) = &attribute.value
            && text.as_str().len() > TEXT_MAX
        {
            attribute.value = Value::String(cut(text.as_str()).into());
        }
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        if span.span_context.is_sampled() {
            shorten(&mut span);
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
