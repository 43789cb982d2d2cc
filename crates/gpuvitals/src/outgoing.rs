//! What goes out: by OTLP and by remote write, as the program starts both. A process has one service, and one sender of each.

use std::sync::OnceLock;

use gpuvitals_core::figures::Family;
use gpuvitals_listener::Figures;
use gpuvitals_outgoing::ReadFamilies;
use gpuvitals_outgoing::otlp::{OtlpExporter, OtlpSettings};
use gpuvitals_outgoing::remote_write::{RemoteWrite, RemoteWriteSettings};
use opentelemetry_sdk::trace::SdkTracer;

use crate::client::http_client;
use crate::failure::Failure;

static OTLP: OnceLock<OtlpExporter> = OnceLock::new();
static REMOTE_WRITE: OnceLock<Figures> = OnceLock::new();

/// Starts exporting over OTLP for a service, if the settings name an endpoint. Returns the tracer, if traces are wanted.
///
/// # Errors
/// When headers or authorities cannot be read, or no thread can be started.
pub(crate) fn start_otlp(
    settings: &OtlpSettings,
    service: &str,
    node: &str,
) -> Result<Option<SdkTracer>, Failure> {
    if !settings.is_on() {
        return Ok(None);
    }
    let client = || http_client(settings.has_tls(), &settings.access(), settings.timeout);
    let http = settings.is_http().then(client).transpose();
    let http = http.map_err(|failure| failure.in_setting("otlp.ca"))?;
    let (exporter, tracer) = OtlpExporter::start(settings, http, service, node)?;
    let _started_before = OTLP.set(exporter);
    Ok(tracer)
}

/// From now on these figures go out over OTLP.
pub(crate) fn show(figures: impl Into<ReadFamilies>) {
    if let Some(exporter) = OTLP.get() {
        exporter.show(figures.into());
    }
}

/// Sends what is left for OTLP.
pub(crate) fn finish_otlp() {
    if let Some(exporter) = OTLP.get() {
        exporter.finish();
    }
}

/// Starts sending what `families` reads by remote write, if the settings name a receiver; `node` is this machine. Called inside a
/// runtime.
///
/// # Errors
/// When a file of the settings cannot be used.
pub(crate) fn start_remote_write(
    settings: &RemoteWriteSettings,
    node: &str,
    families: ReadFamilies,
) -> Result<Option<RemoteWrite>, Failure> {
    if !settings.is_on() {
        return Ok(None);
    }
    let http = http_client(settings.has_tls(), &settings.access(), settings.timeout)
        .map_err(|failure| failure.in_setting("remote_write"))?;
    let sender = RemoteWrite::start(settings, http, node, families)?;
    let _started_before = REMOTE_WRITE.set(sender.figures());
    Ok(Some(sender))
}

/// Figures of all that sends; none if nothing does.
pub(crate) fn families() -> Vec<Family> {
    let mut families = OTLP.get().map(OtlpExporter::families).unwrap_or_default();
    families.extend(REMOTE_WRITE.get().map(Figures::read).unwrap_or_default());
    families
}
