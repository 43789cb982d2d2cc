//! Section `otlp` of the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_settings::{Bytes, Refusal, settings, words};
use opentelemetry_sdk::trace::Sampler;
use ureq::http::Uri;

use super::attributes::attributes;

settings! {
    /// Traces and metrics to an OpenTelemetry collector; the OTEL_* variables are understood as well
    pub(crate) struct Otlp = "otlp", check Self::check {
        /// Send traces and metrics there, by OTLP: http://HOST:4318, or with grpc http://HOST:4317; https too; empty: nowhere
        pub endpoint: String = "", flag "--otlp-endpoint URL";
        /// Protocol
        pub protocol: Protocol = "http/protobuf";
        /// File of headers (lines NAME: VALUE) that go with every request, mode 0600; for tokens
        headers_file: Option<PathBuf> = "";
        /// Authorities (PEM) that sign the receiver's certificate; empty: those of the system
        ca: Option<PathBuf> = "";
        /// Time for an answer
        pub timeout: Duration = "10s", from "1ms";
        /// Send spans
        pub traces: bool = true;
        /// Which traces that begin here are taken
        sampler: SamplerKind = "parentbased_always_on";
        /// Share of the traces, for traceidratio
        sampler_arg: f64 = 1.0, from 0.0 to 1.0;
        /// Send the metrics of /metrics
        pub metrics: bool = true;
        /// Time between two sendings of the metrics
        pub interval: Duration = "60s", from "1ms";
        /// Bytes of metrics that wait in memory at most while the receiver is away; then the oldest go
        pub queue_max: Bytes = "16MiB", from "4MiB";
        /// service.name; empty: gpuvitals-agent, gpuvitals-broker, gpuvitals-collect, gpuvitals-stream, gpuvitals-up
        pub service_name: String = "";
        /// More attributes of the sender: key=value,key=value
        pub resource_attributes: String = "";
    }
}

/// How the receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Protobuf by HTTP/1.1.
    #[value(name = "http/protobuf")]
    Http,
    /// gRPC.
    #[value(name = "grpc")]
    Grpc,
}

/// Which traces are taken, by OpenTelemetry's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum SamplerKind {
    AlwaysOn,
    AlwaysOff,
    #[value(name = "traceidratio")]
    Ratio,
    #[value(name = "parentbased_always_on")]
    ParentOn,
    #[value(name = "parentbased_always_off")]
    ParentOff,
    #[value(name = "parentbased_traceidratio")]
    ParentRatio,
}

words!(Protocol, SamplerKind);

impl Otlp {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::new("otlp.endpoint", why));
        if self.endpoint.contains('@') {
            // It is not repeated: the part before the @ is a secret.
            return refuse(
                "a secret does not stand in a URL; otlp.headers_file names a file of headers".to_owned(),
            );
        }
        if !self.endpoint.is_empty()
            && let Err(why) = endpoint(&self.endpoint)
        {
            return refuse(format!(
                "{:?}: {why}; write http://HOST:4318, or http://HOST:4317 with protocol: grpc, or https://",
                self.endpoint
            ));
        }
        attributes(&self.resource_attributes).map(drop).map_err(|entry| {
            Refusal::new(
                "otlp.resource_attributes",
                format!("{entry:?} is no pair; write key=value,key=value"),
            )
        })
    }

    /// Which traces are taken.
    pub(super) fn sampler(&self) -> Sampler {
        let ratio = Sampler::TraceIdRatioBased(self.sampler_arg);
        match self.sampler {
            SamplerKind::AlwaysOn => Sampler::AlwaysOn,
            SamplerKind::AlwaysOff => Sampler::AlwaysOff,
            SamplerKind::Ratio => ratio,
            SamplerKind::ParentOn => Sampler::ParentBased(Box::new(Sampler::AlwaysOn)),
            SamplerKind::ParentOff => Sampler::ParentBased(Box::new(Sampler::AlwaysOff)),
            SamplerKind::ParentRatio => Sampler::ParentBased(Box::new(ratio)),
        }
    }

    /// File of headers, if one is set.
    pub(super) fn headers_file(&self) -> Option<&Path> {
        self.headers_file.as_deref()
    }

    /// File of authorities, if one is set.
    pub(super) fn ca(&self) -> Option<PathBuf> {
        self.ca.clone()
    }
}

/// Scheme, host and path.
fn endpoint(text: &str) -> Result<(), &'static str> {
    let uri: Uri = text.parse().map_err(|_| "it is no URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it does not begin with http:// or https://");
    }
    if uri.host().unwrap_or_default().is_empty() {
        return Err("it names no host");
    }
    if uri.query().is_some() {
        return Err("it has a query");
    }
    Ok(())
}
