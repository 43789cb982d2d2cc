//! Traces and metrics over OTLP, off unless an endpoint is named.
//!
//! One thread exports, over a connection of its own. Spans wait for it in a bounded place, where those that find no room
//! are dropped and counted; metrics are the families of `/metrics`, read when they are due, so both say the same. An
//! endpoint that is away or slow holds up that thread and nobody else. A process has one exporter, as it has one log.

mod convert;
mod environment;
mod exporter;
mod figures;
mod resource;
mod sender;
mod settings;
mod spans;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpuvitals_api::figures::Figures;
use gpuvitals_core::figures::Family;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::config::Config;
use crate::failure::Failure;
use exporter::Exporter;

pub(crate) use environment::{environment, unread};
pub(crate) use settings::{Otlp, TelemetryFlags};

/// How long the end may take; what is not sent then is dropped and named.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Name of what makes the spans and metrics.
const SCOPE: &str = "gpuvitals";

static EXPORTER: OnceLock<Arc<Exporter>> = OnceLock::new();

/// Starts exporting for a service, where the settings name an endpoint. Gives what makes its spans, where they are wanted.
///
/// # Errors
/// When headers or authorities cannot be read, or there is no thread.
pub(crate) fn start(config: &Config, service: &str) -> Result<Option<SdkTracer>, Failure> {
    let settings = &config.otlp;
    if settings.endpoint.is_empty() {
        return Ok(None);
    }
    let resource = resource::of(settings, service, &config.sampling.node());
    let exporter = Arc::new(Exporter::start(settings, resource)?);
    let tracer = settings.traces.then(|| {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(spans::Processor::new(Arc::clone(exporter.spans())))
            .with_sampler(settings.sampler())
            .build();
        provider.tracer(SCOPE)
    });
    // A process has one service.
    let _started_before = EXPORTER.set(exporter);
    Ok(tracer)
}

/// From now on these figures go out as metrics.
pub(crate) fn show(figures: Figures) {
    if let Some(exporter) = EXPORTER.get() {
        exporter.show(figures);
    }
}

/// What the exporter counts about itself; nothing where there is none.
pub(crate) fn families() -> Vec<Family> {
    EXPORTER.get().map_or_else(Vec::new, |exporter| exporter.families())
}

/// Sends what is left, within a bound.
pub(crate) fn finish() {
    if let Some(exporter) = EXPORTER.get() {
        exporter.finish();
    }
}
