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

use super::counts::{OtlpCounts, tell};
use super::error::OtlpError;
use super::settings::OtlpSettings;
use super::transport::Transport;
use crate::counts::add;
use crate::verdict::Verdict;

/// Most spans that wait, the SDK's own default; at some 500 bytes each about 1 MB.
const SPANS_MAX: usize = 2048;
/// Longest name or text of a span, bytes: the path of a request may have some 64 KiB.
const TEXT_MAX: usize = 256;

/// The provider of the program's tracer.
///
/// # Errors
/// When the library refuses the endpoint.
pub(super) fn provider(
    settings: &OtlpSettings,
    transport: &Transport,
    resource: Resource,
    counts: &Arc<OtlpCounts>,
) -> Result<SdkTracerProvider, OtlpError> {
    let inner = transport.spans(settings.timeout).map_err(OtlpError::of("otlp.endpoint"))?;
    let counted = Exporter { inner, counts: Arc::clone(counts) };
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
    counts: Arc<OtlpCounts>,
}

impl SpanProcessor for Processor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        if self.counts.spans_waiting.fetch_add(1, Ordering::Relaxed) >= SPANS_MAX as u64 {
            self.counts.spans_waiting.fetch_sub(1, Ordering::Relaxed);
            add(&self.counts.spans.no_room, 1);
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
    counts: Arc<OtlpCounts>,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        let exported = self.inner.export(batch).await;
        self.counts.spans_waiting.fetch_sub(count, Ordering::Relaxed);
        let verdict = match &exported {
            Ok(()) => Verdict::Taken { left_out: 0 },
            Err(error) => Verdict::Refused { samples: count, reason: error.to_string() },
        };
        let before = self.counts.spans.answered(count, &verdict);
        tell("traces", before, &verdict);
        exported
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
