//! The way to the receiver: gRPC, or protobuf by HTTP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::{RootCerts, TlsConfig};

use super::resource::decoded;
use super::settings::{Otlp, Protocol};
use crate::failure::{Exit, Failure};
use crate::secret;

/// Headers beside those of the file, as OpenTelemetry has them: `name=value,name=value`, percent-encoded.
const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Longest piece of a receiver's words in a log line, characters.
const ECHO_MAX: usize = 200;
/// Most bytes of an answer.
const ANSWER_MAX: u64 = 64 << 10;

/// Why something was not taken.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may be, later.
    Away(String),
    /// It will never be.
    Refused(String),
}

/// Sends, one at a time. The thread that calls waits.
#[derive(Debug)]
pub(super) struct Sender {
    way: Way,
    timeout: Duration,
}

enum Way {
    Grpc { runtime: tokio::runtime::Runtime, channel: Channel, metadata: MetadataMap },
    Http { agent: ureq::Agent, endpoint: String, headers: Vec<(HeaderName, HeaderValue)> },
}

impl std::fmt::Debug for Way {
    // Headers are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Grpc { .. }) { "Grpc" } else { "Http" })
    }
}

impl Sender {
    /// As the settings say; no connection yet.
    ///
    /// # Errors
    /// When headers or authorities cannot be read.
    pub(super) fn new(settings: &Otlp) -> Result<Self, Failure> {
        let headers = headers(settings)?;
        let way = match settings.protocol {
            Protocol::Grpc => grpc(settings, headers)?,
            Protocol::Http => http(settings, headers)?,
        };
        Ok(Self { way, timeout: settings.timeout })
    }

    /// Sends spans, waiting so long at most. How many of them were refused.
    ///
    /// # Errors
    /// When none was taken.
    pub(super) fn spans(&self, request: &ExportTraceServiceRequest, wait: Duration) -> Result<u64, Trouble> {
        let answer: ExportTraceServiceResponse = match &self.way {
            Way::Grpc { runtime, channel, metadata } => {
                let mut client = TraceServiceClient::new(channel.clone());
                let request = self.request(request.clone(), metadata, wait);
                runtime.block_on(in_time(wait, async { client.export(request).await }))?
            }
            Way::Http { agent, endpoint, headers } => {
                self.post(agent, &format!("{endpoint}/v1/traces"), headers, request, wait)?
            }
        };
        let refused = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(refused).unwrap_or(0))
    }

    /// Sends metrics, waiting so long at most. How many data points were refused.
    ///
    /// # Errors
    /// When none was taken.
    pub(super) fn metrics(
        &self,
        request: &ExportMetricsServiceRequest,
        wait: Duration,
    ) -> Result<u64, Trouble> {
        let answer: ExportMetricsServiceResponse = match &self.way {
            Way::Grpc { runtime, channel, metadata } => {
                let mut client = MetricsServiceClient::new(channel.clone());
                let request = self.request(request.clone(), metadata, wait);
                runtime.block_on(in_time(wait, async { client.export(request).await }))?
            }
            Way::Http { agent, endpoint, headers } => {
                self.post(agent, &format!("{endpoint}/v1/metrics"), headers, request, wait)?
            }
        };
        let refused = answer.partial_success.map_or(0, |partial| partial.rejected_data_points);
        Ok(u64::try_from(refused).unwrap_or(0))
    }

    fn request<T>(&self, message: T, metadata: &MetadataMap, wait: Duration) -> Request<T> {
        let mut request = Request::new(message);
        metadata.clone_into(request.metadata_mut());
        request.set_timeout(wait.min(self.timeout));
        request
    }

    fn post<A: Message + Default>(
        &self,
        agent: &ureq::Agent,
        url: &str,
        headers: &[(HeaderName, HeaderValue)],
        message: &impl Message,
        wait: Duration,
    ) -> Result<A, Trouble> {
        let request = agent.post(url).config().timeout_global(Some(wait.min(self.timeout))).build();
        let request = request.header("content-type", "application/x-protobuf");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let away = |error: ureq::Error| Trouble::Away(error.to_string());
        let mut response = request.send(message.encode_to_vec().as_slice()).map_err(away)?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().unwrap_or_default();
        match status.as_u16() {
            // An answer that cannot be read says nothing of a refusal.
            200..=299 => Ok(A::decode(body.as_slice()).unwrap_or_default()),
            408 | 429 | 502..=504 => Err(Trouble::Away(status.to_string())),
            _ => Err(Trouble::Refused(status.to_string())),
        }
    }
}

async fn in_time<A>(
    wait: Duration,
    answer: impl Future<Output = Result<tonic::Response<A>, Status>>,
) -> Result<A, Trouble> {
    match tokio::time::timeout(wait, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(trouble(&status)),
        Err(_) => Err(Trouble::Away("no answer came in time".to_owned())),
    }
}

fn trouble(status: &Status) -> Trouble {
    let words = match status.code() {
        // Their words may repeat what was sent.
        Code::Unauthenticated | Code::PermissionDenied => status.code().description().to_owned(),
        code => {
            let message: String = status.message().chars().take(ECHO_MAX).collect();
            format!("{}: {message}", code.description())
        }
    };
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss
        | Code::ResourceExhausted => Trouble::Away(words),
        _ => Trouble::Refused(words),
    }
}

fn grpc(settings: &Otlp, headers: Vec<(String, String)>) -> Result<Way, Failure> {
    let bad = |what: &str| Failure::new(Exit::Config, format!("configuration: otlp.{what}"));
    let mut metadata = MetadataMap::new();
    for (name, value) in headers {
        let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|_| bad(&no_header(&name)))?;
        let value: AsciiMetadataValue = value.parse().map_err(|_| bad(&no_header(&name)))?;
        metadata.insert(key, value);
    }
    let endpoint = Endpoint::from_shared(settings.endpoint.clone())
        .map_err(|_| bad("endpoint is no URL"))?
        .connect_timeout(settings.timeout);
    let endpoint = if settings.endpoint.starts_with("https:") {
        let mut tls = ClientTlsConfig::new();
        tls = match settings.ca() {
            Some(path) => {
                let pem = std::fs::read(&path).map_err(|e| unusable(&path, e))?;
                tls.ca_certificate(Certificate::from_pem(pem))
            }
            None => tls.with_native_roots(),
        };
        endpoint.tls_config(tls).map_err(|e| Failure::caused(Exit::Config, "configuration: otlp.ca", e))?
    } else {
        endpoint
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::io("cannot start the runtime of the exporter", e))?;
    let channel = {
        let _inside = runtime.enter();
        endpoint.connect_lazy()
    };
    Ok(Way::Grpc { runtime, channel, metadata })
}

fn http(settings: &Otlp, headers: Vec<(String, String)>) -> Result<Way, Failure> {
    let mut config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    if settings.endpoint.starts_with("https:") {
        let roots: Vec<CertificateDer<'static>> = match settings.ca() {
            Some(path) => CertificateDer::pem_file_iter(&path)
                .and_then(Iterator::collect)
                .map_err(|e| unusable(&path, e))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let roots: Vec<_> =
            roots.iter().map(|one| ureq::tls::Certificate::from_der(one).to_owned()).collect();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots));
        config = config.tls_config(tls.unversioned_rustls_crypto_provider(provider).build());
    }
    let headers = headers.into_iter().map(|(name, value)| {
        let bad = || Failure::new(Exit::Config, format!("configuration: otlp.{}", no_header(&name)));
        let value = HeaderValue::from_str(&value).map_err(|_| bad())?;
        Ok((HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value))
    });
    Ok(Way::Http {
        agent: config.build().into(),
        endpoint: settings.endpoint.trim_end_matches('/').to_owned(),
        headers: headers.collect::<Result<_, Failure>>()?,
    })
}

fn no_header(name: &str) -> String {
    format!("headers_file or {HEADERS_VARIABLE}: {name:?} is no header, or its value cannot be one")
}

fn unusable(path: &std::path::Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::caused(Exit::Config, format!("configuration: otlp.ca: cannot use {}", path.display()), error)
}

/// Headers of the file and of the environment, which wins; names in lower case.
fn headers(settings: &Otlp) -> Result<Vec<(String, String)>, Failure> {
    const SETTING: &str = "otlp.headers_file";
    let file =
        settings.headers_file().map(|path| secret::read(path, SETTING)).transpose()?.unwrap_or_default();
    let bad = |where_: &str| Failure::new(Exit::Config, format!("configuration: {where_}"));
    let mut headers = Vec::new();
    for (at, line) in file.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| bad(&format!("{SETTING} line {}: write NAME: VALUE", at + 1)))?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let variable = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
    for entry in variable.split(',').filter(|entry| !entry.trim().is_empty()) {
        let (name, value) = entry
            .split_once('=')
            .ok_or_else(|| bad(&format!("{HEADERS_VARIABLE}: write NAME=VALUE,NAME=VALUE")))?;
        let name = name.trim().to_ascii_lowercase();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, decoded(value.trim())));
    }
    Ok(headers)
}
