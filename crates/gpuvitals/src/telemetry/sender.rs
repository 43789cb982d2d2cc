//! The way to the receiver: gRPC, or protobuf by HTTP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use ureq::http::{HeaderMap, HeaderName, HeaderValue};
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
    /// It may be, later: not before so long, where the receiver says when.
    Away(String, Option<Duration>),
    /// It will never be.
    Refused(String),
}

/// What a receiver did not take of a request that it took.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Partial {
    /// Spans, or data points.
    pub(super) refused: u64,
    /// Why, or a warning.
    pub(super) words: String,
}

/// What is sent: where to, and what the answer says.
pub(super) trait Signal: Message + Clone + 'static {
    /// Behind the endpoint, by HTTP.
    const PATH: &'static str;
    /// The method of gRPC.
    const METHOD: &'static str;
    type Answer: Message + Default + 'static;

    /// What was refused, and the receiver's words.
    fn refused(answer: Self::Answer) -> Option<(i64, String)>;
}

impl Signal for ExportTraceServiceRequest {
    const PATH: &'static str = "/v1/traces";
    const METHOD: &'static str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    type Answer = ExportTraceServiceResponse;

    fn refused(answer: Self::Answer) -> Option<(i64, String)> {
        answer.partial_success.map(|partial| (partial.rejected_spans, partial.error_message))
    }
}

impl Signal for ExportMetricsServiceRequest {
    const PATH: &'static str = "/v1/metrics";
    const METHOD: &'static str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    type Answer = ExportMetricsServiceResponse;

    fn refused(answer: Self::Answer) -> Option<(i64, String)> {
        answer.partial_success.map(|partial| (partial.rejected_data_points, partial.error_message))
    }
}

/// Sends, one at a time. The thread that calls waits.
#[derive(Debug)]
pub(super) struct Sender(Way);

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
        match settings.protocol {
            Protocol::Grpc => grpc(settings, headers),
            Protocol::Http => http(settings, headers),
        }
        .map(Self)
    }

    /// Sends, waiting so long at most. What of it was refused.
    ///
    /// # Errors
    /// When nothing was taken.
    pub(super) fn send<S: Signal>(&self, message: &S, wait: Duration) -> Result<Partial, Trouble> {
        let answer: S::Answer = match &self.0 {
            Way::Grpc { runtime, channel, metadata } => {
                let mut request = Request::new(message.clone());
                metadata.clone_into(request.metadata_mut());
                request.set_timeout(wait);
                runtime.block_on(in_time(wait, call::<S>(channel.clone(), request)))?
            }
            Way::Http { agent, endpoint, headers } => {
                post(agent, &format!("{endpoint}{}", S::PATH), headers, message, wait)?
            }
        };
        let (refused, words) = S::refused(answer).unwrap_or_default();
        let words = words.chars().take(ECHO_MAX).collect();
        Ok(Partial { refused: u64::try_from(refused).unwrap_or(0), words })
    }
}

fn post<A: Message + Default>(
    agent: &ureq::Agent,
    url: &str,
    headers: &[(HeaderName, HeaderValue)],
    message: &impl Message,
    wait: Duration,
) -> Result<A, Trouble> {
    let request = agent.post(url).config().timeout_global(Some(wait)).build();
    let request = request.header("content-type", "application/x-protobuf");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let away = |error: ureq::Error| Trouble::Away(error.to_string(), None);
    let mut response = request.send(message.encode_to_vec().as_slice()).map_err(away)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().unwrap_or_default();
    match status.as_u16() {
        // An answer that cannot be read says nothing of a refusal.
        200..=299 => Ok(A::decode(body.as_slice()).unwrap_or_default()),
        // These alone are to be tried again, says the specification.
        429 | 502..=504 => Err(Trouble::Away(status.to_string(), retry_after(response.headers()))),
        _ => Err(Trouble::Refused(status.to_string())),
    }
}

/// Seconds of `Retry-After`; a date is not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn call<S: Signal>(channel: Channel, request: Request<S>) -> Result<S::Answer, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = tonic_prost::ProstCodec::<S, S::Answer>::default();
    let answer = client.unary(request, PathAndQuery::from_static(S::METHOD), codec).await?;
    Ok(answer.into_inner())
}

async fn in_time<A>(wait: Duration, answer: impl Future<Output = Result<A, Status>>) -> Result<A, Trouble> {
    match tokio::time::timeout(wait, answer).await {
        Ok(answer) => answer.map_err(|status| trouble(&status)),
        Err(_) => Err(Trouble::Away("no answer came in time".to_owned(), None)),
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
    let after = retry_delay(status.details());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Trouble::Away(words, after),
        // One that does not say when has no room for good.
        Code::ResourceExhausted if after.is_some() => Trouble::Away(words, after),
        _ => Trouble::Refused(words),
    }
}

/// `google.rpc.Status`, as far as it is read.
#[derive(Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// When a receiver wants to be tried again; none where it does not say.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let details = Details::decode(details).ok()?.details;
    let info = details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?);
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))
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
    // With a thread of its own: between two sendings somebody must answer pings, and hear that the connection has ended.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("otlp-grpc")
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

#[cfg(test)]
mod tests {
    use tonic::codegen::Bytes;

    use super::*;

    #[test]
    fn a_receiver_without_room_is_tried_again_where_it_says_when() {
        let delay = RetryInfo { retry_delay: Some(Delay { seconds: 7, nanos: 500_000_000 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = Details { details: vec![Detail { type_url, value: delay.encode_to_vec() }] };
        let details = Bytes::from(details.encode_to_vec());
        let after = Some(Duration::from_millis(7_500));
        for (code, details, expected) in [
            (Code::ResourceExhausted, details.clone(), Some(after)),
            (Code::ResourceExhausted, Bytes::new(), None),
            (Code::Unavailable, details.clone(), Some(after)),
            (Code::Unavailable, Bytes::new(), Some(None)),
            (Code::Unavailable, Bytes::from_static(b"none"), Some(None)),
            (Code::InvalidArgument, details, None),
            (Code::Internal, Bytes::new(), None),
        ] {
            let came = match trouble(&Status::with_details(code, "words", details)) {
                Trouble::Away(_, after) => Some(after),
                Trouble::Refused(_) => None,
            };
            assert_eq!(came, expected, "{code:?}");
        }
    }
}
