//! Section `otlp` of the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_listener::client::Credentials;
use gpuvitals_settings::{Bytes, Refusal, settings, words};
use http::Uri;
use opentelemetry_sdk::trace::Sampler;

use super::attributes::attributes;

settings! {
    /// Traces and metrics to an OpenTelemetry collector; the OTEL_* variables are understood as well
    pub struct OtlpSettings = "otlp", check Self::check {
        /// Send traces and metrics there, by OTLP: http://HOST:4318, or with grpc http://HOST:4317; https too; empty: nowhere
        pub endpoint: String = "", flag "--otlp-endpoint URL";
        /// Protocol
        protocol: Protocol = "http/protobuf";
        /// File of headers (lines NAME: VALUE) that go with every request, mode 0600; for tokens
        headers_file: Option<PathBuf> = "";
        /// Authorities (PEM) that sign the receiver's certificate; empty: those of the system
        ca: Option<PathBuf> = "";
        /// Time for an answer
        pub timeout: Duration = "10s", from "1ms";
        /// Send spans
        pub(super) traces: bool = true;
        /// Which traces that begin here are taken
        sampler: SamplerKind = "parentbased_always_on";
        /// Share of the traces, for traceidratio
        sampler_arg: f64 = 1.0, from 0.0 to 1.0;
        /// Send the metrics of /metrics
        pub(super) metrics: bool = true;
        /// Time between two sendings of the metrics
        pub(super) interval: Duration = "60s", from "1ms";
        /// Bytes of metrics that wait in memory at most while the receiver is away; then the oldest go
        pub(super) queue_max: Bytes = "16MiB", from "4MiB";
        /// service.name; empty: gpuvitals-agent, gpuvitals-broker, gpuvitals-collect, gpuvitals-stream, gpuvitals-up
        pub(super) service_name: String = "";
        /// More attributes of the sender: key=value,key=value
        pub(super) resource_attributes: String = "";
    }
}

/// How the receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Protobuf by HTTP/1.1.
    #[value(name = "http/protobuf")]
    Http,
    /// Protobuf by gRPC.
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

impl OtlpSettings {
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

    /// Whether anything is sent.
    pub fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// Whether the receiver is spoken to by HTTP/1.1, so that the program's client is needed.
    pub fn is_http(&self) -> bool {
        self.protocol == Protocol::Http
    }

    /// Whether the receiver is reached by TLS.
    pub fn has_tls(&self) -> bool {
        self.endpoint.starts_with("https:")
    }

    /// How the receiver's certificate is checked.
    pub fn access(&self) -> Credentials {
        Credentials { ca: self.ca.clone(), ..Credentials::default() }
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
    pub(super) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
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
