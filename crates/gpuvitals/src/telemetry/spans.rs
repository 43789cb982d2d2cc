//! Spans: the SDK's batch processor, bounded and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry::{Context, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};

use super::counts::{Counts, Signal};
use super::settings::Otlp;
use super::transport::Transport;
use crate::failure::{Exit, Failure};

/// Most spans that wait, the SDK's own default; at some 500 bytes each about 1 MB.
const SPANS_MAX: usize = 2048;
/// Longest name or text of a span, bytes: the path of a request may have some 64 KiB.
const TEXT_MAX: usize = 256;

/// The provider of the program's tracer.
///
/// # Errors
/// When the library refuses the endpoint.
pub(super) fn provider(
    settings: &Otlp,
    transport: &Transport,
    resource: Resource,
    counts: &Arc<Counts>,
) -> Result<SdkTracerProvider, Failure> {
    let inner = transport
        .spans(settings.timeout)
        .map_err(|error| Failure::caused(Exit::Config, "configuration: otlp.endpoint", error))?;
    let counted = Exporter { inner, counts: Arc::clone(counts), signal: Signal::new("traces") };
    let config = BatchConfigBuilder::default().with_max_queue_size(SPANS_MAX).build();
    let batches = BatchSpanProcessor::builder(counted).with_batch_config(config).build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(Processor { batches, counts: Arc::clone(counts) })
        .with_sampler(settings.sampler())
        .with_resource(resource)
        .build())
}

/// Bounds and counts the spans before the SDK's processor.
#[derive(Debug)]
struct Processor {
    batches: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl SpanProcessor for Processor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        if self.counts.spans_waiting.fetch_add(1, Ordering::Relaxed) >= SPANS_MAX as u64 {
            self.counts.spans_waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.spans_no_room.fetch_add(1, Ordering::Relaxed);
            return;
        }
        shorten(&mut span);
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Cuts texts that a client chooses.
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

/// The library's exporter, counted.
#[derive(Debug)]
struct Exporter {
    inner: opentelemetry_otlp::SpanExporter,
    counts: Arc<Counts>,
    signal: Signal,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        let exported = self.inner.export(batch).await;
        self.counts.spans_waiting.fetch_sub(count, Ordering::Relaxed);
        match &exported {
            Ok(()) => {
                self.counts.spans_sent.fetch_add(count, Ordering::Relaxed);
                self.signal.taken();
            }
            Err(error) => {
                self.counts.spans_not_taken.fetch_add(count, Ordering::Relaxed);
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                self.signal.not_taken(&error.to_string());
            }
        }
        exported
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
