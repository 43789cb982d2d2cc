//! Section `otlp` of the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use opentelemetry_sdk::trace::Sampler;
use serde::Deserialize;
use ureq::http::Uri;

use super::resource;
use crate::config::{Override, overrides};
use crate::failure::{Exit, Failure};
use crate::quantity::deserialize_duration;

/// Section `otlp`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    /// Where to; empty: nowhere.
    pub endpoint: String,
    /// How.
    pub protocol: Protocol,
    /// File of headers that go with every request.
    headers_file: String,
    /// Authorities that sign the receiver's certificate.
    ca: String,
    /// How long an answer may take.
    #[serde(deserialize_with = "deserialize_duration")]
    pub timeout: Duration,
    /// Whether spans are sent.
    pub traces: bool,
    /// Which traces.
    sampler: SamplerKind,
    /// Share of them, where the sampler takes one.
    sampler_arg: f64,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// Time between two sendings of all metrics.
    #[serde(deserialize_with = "deserialize_duration")]
    pub interval: Duration,
    /// `service.name`; empty: `gpuvitals-` and the role.
    pub service_name: String,
    /// Other attributes of the resource, `key=value,key=value`.
    pub resource_attributes: String,
}

/// The flag over it, of every service.
#[derive(Debug, Clone, Args)]
pub(crate) struct TelemetryFlags {
    /// Send traces and metrics there, by OTLP: http://HOST:4318 [default: nowhere]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl TelemetryFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        overrides([("otlp.endpoint", &self.otlp_endpoint)])
    }
}

/// How the receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Protocol {
    /// Protobuf by HTTP/1.1.
    #[serde(rename = "http/protobuf")]
    Http,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Which traces are taken, by OpenTelemetry's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SamplerKind {
    AlwaysOn,
    AlwaysOff,
    #[serde(rename = "traceidratio")]
    Ratio,
    #[serde(rename = "parentbased_always_on")]
    ParentOn,
    #[serde(rename = "parentbased_always_off")]
    ParentOff,
    #[serde(rename = "parentbased_traceidratio")]
    ParentRatio,
}

impl Otlp {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: otlp.{text}")));
        if self.endpoint.contains('@') {
            // It is not repeated: what stands before the @ is one.
            return refuse(
                "endpoint: a secret does not stand in a URL; otlp.headers_file names a file of headers"
                    .to_owned(),
            );
        }
        if !self.endpoint.is_empty()
            && let Err(why) = endpoint(&self.endpoint)
        {
            return refuse(format!(
                "endpoint is {:?}: {why}; write http://HOST:4318, or http://HOST:4317 with protocol: grpc, or https://",
                self.endpoint
            ));
        }
        if !(0.0..=1.0).contains(&self.sampler_arg) {
            return refuse(format!("sampler_arg is {}, it is a share from 0 to 1", self.sampler_arg));
        }
        for (name, time) in [("timeout", self.timeout), ("interval", self.interval)] {
            if time.is_zero() {
                return refuse(format!("{name} is 0, it must be above 0"));
            }
        }
        if let Err(entry) = resource::attributes(&self.resource_attributes) {
            return refuse(format!("resource_attributes has {entry:?}; write key=value,key=value"));
        }
        Ok(())
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

    /// File of headers, where one is named.
    pub(super) fn headers_file(&self) -> Option<&Path> {
        (!self.headers_file.is_empty()).then(|| Path::new(&self.headers_file))
    }

    /// File of authorities, where one is named.
    pub(super) fn ca(&self) -> Option<PathBuf> {
        (!self.ca.is_empty()).then(|| PathBuf::from(&self.ca))
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
