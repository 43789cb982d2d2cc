//! The connection to the receiver: gRPC, or protobuf over HTTP/1.1. Spans go through the library's exporter over it, metrics
//! as ready requests.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use gpuvitals_listener::client::{self, Credentials};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol as Wire, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use prost::{DecodeError, Message as _};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use ureq::http::header::CONTENT_TYPE;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::attributes::decoded;
use super::settings::{Otlp, Protocol};
use crate::client::http_client;
use crate::failure::{Exit, Failure};

/// Headers beside those of the file, as OpenTelemetry has them: `name=value,name=value`, percent-encoded.
const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Longest part of a receiver's message in a log line, characters.
const ECHO_MAX: usize = 200;
/// Longest answer that is read, bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// Why the receiver has not taken metrics.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("no answer came in time")]
    Late,
    #[error("{}", words(.0))]
    Refused(Box<Status>),
    #[error("{0}")]
    Answered(StatusCode, Option<Duration>),
    #[error("no answer came")]
    Unreachable(#[source] HttpError),
    #[error("otlp.endpoint")]
    Endpoint(#[from] ureq::http::Error),
    #[error("a request is not what was encoded; a bug")]
    Request(#[from] DecodeError),
}

/// What to do with metrics that were not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Retry, after the delay that the receiver asked for, if any.
    Later(Option<Duration>),
    /// Drop them: the receiver will never accept them.
    Never,
}

impl ExportError {
    /// As OTLP has it: <https://opentelemetry.io/docs/specs/otlp/#failures>, and `#failures-1` for HTTP.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Late | Self::Unreachable(_) => Verdict::Later(None),
            Self::Answered(status, after) => match status.as_u16() {
                429 | 502..=504 => Verdict::Later(*after),
                _ => Verdict::Never,
            },
            // The receiver did not send this: the connection ended.
            Self::Refused(status) if status.source().is_some() => Verdict::Later(None),
            Self::Refused(status) => {
                let wanted = status.get_details_retry_info().and_then(|info| info.retry_delay);
                match status.code() {
                    Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss => Verdict::Later(wanted),
                    // Without a time to wait it will never have room.
                    Code::ResourceExhausted if wanted.is_some() => Verdict::Later(wanted),
                    _ => Verdict::Never,
                }
            }
            Self::Endpoint(_) | Self::Request(_) => Verdict::Never,
        }
    }
}

/// A connection to the receiver; made when it is first used.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    Grpc(Channel, MetadataMap),
    Http(Http, String),
}

/// The program's HTTP client for the library. The thread that calls waits, for the timeout at most.
#[derive(Debug, Clone)]
pub(super) struct Http {
    agent: ureq::Agent,
    headers: HeaderMap,
}

impl Http {
    fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(self.headers.clone());
        let (parts, mut body) = self.agent.run(request.map(Vec::from))?.into_parts();
        let body = body.with_config().limit(ANSWER_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

#[tonic::async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.send(request)
    }
}

impl Transport {
    /// As the settings say. For gRPC the caller is inside the runtime that drives the connection.
    ///
    /// # Errors
    /// When headers or authorities cannot be read.
    pub(super) fn new(settings: &Otlp) -> Result<Self, Failure> {
        let headers = headers(settings)?;
        match settings.protocol {
            Protocol::Grpc => Ok(Self::Grpc(channel(settings)?, MetadataMap::from_headers(headers))),
            Protocol::Http => {
                let endpoint = settings.endpoint.trim_end_matches('/').to_owned();
                let access = Credentials { ca: settings.ca(), ..Credentials::default() };
                let is_encrypted = endpoint.starts_with("https:");
                let agent = http_client(is_encrypted, &access, settings.timeout)
                    .map_err(|error| error.in_setting("otlp.ca"))?;
                Ok(Self::Http(Http { agent, headers }, endpoint))
            }
        }
    }

    /// The library's exporter of spans. A batch that fails is tried again a few times within `timeout`.
    ///
    /// # Errors
    /// When the library refuses the endpoint.
    pub(super) fn spans(&self, timeout: Duration) -> Result<SpanExporter, ExporterBuildError> {
        match self {
            Self::Grpc(channel, metadata) => SpanExporter::builder()
                .with_tonic()
                .with_channel(channel.clone())
                .with_metadata(metadata.clone())
                .with_timeout(timeout)
                .build(),
            Self::Http(client, endpoint) => SpanExporter::builder()
                .with_http()
                .with_http_client(client.clone())
                .with_endpoint(format!("{endpoint}/v1/traces"))
                .with_protocol(Wire::HttpBinary)
                .with_timeout(timeout)
                .build(),
        }
    }

    /// Sends metrics, an encoded request, once and returns the receiver's answer.
    ///
    /// # Errors
    /// When the receiver has not taken them.
    pub(super) async fn metrics(
        &self,
        metrics: Bytes,
        timeout: Duration,
    ) -> Result<ExportMetricsServiceResponse, ExportError> {
        match self {
            Self::Grpc(channel, metadata) => {
                let mut request = tonic::Request::new(ExportMetricsServiceRequest::decode(metrics)?);
                metadata.clone_into(request.metadata_mut());
                request.set_timeout(timeout);
                let mut client = MetricsServiceClient::new(channel.clone());
                let answer = tokio::time::timeout(timeout, client.export(request)).await;
                let answer = answer.map_err(|_| ExportError::Late)?;
                answer
                    .map(tonic::Response::into_inner)
                    .map_err(|status| ExportError::Refused(Box::new(status)))
            }
            Self::Http(client, endpoint) => {
                let request = Request::post(format!("{endpoint}/v1/metrics"))
                    .header(CONTENT_TYPE, "application/x-protobuf")
                    .body(metrics)?;
                let client = client.clone();
                let sending = tokio::task::spawn_blocking(move || client.send(request));
                let answer = sending.await.unwrap_or_else(|panicked| Err(panicked.into()));
                let answer = answer.map_err(ExportError::Unreachable)?;
                if !answer.status().is_success() {
                    return Err(ExportError::Answered(
                        answer.status(),
                        client::retry_after(answer.headers()),
                    ));
                }
                // An answer that cannot be read refuses nothing.
                Ok(ExportMetricsServiceResponse::decode(answer.into_body()).unwrap_or_default())
            }
        }
    }
}

/// What a status says; of a denial only its kind, since the message may repeat what was sent.
fn words(status: &Status) -> String {
    let kind = status.code().description();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => kind.to_owned(),
        _ => format!("{kind}: {}", status.message().chars().take(ECHO_MAX).collect::<String>()),
    }
}

fn channel(settings: &Otlp) -> Result<Channel, Failure> {
    let bad =
        |error: tonic::transport::Error| Failure::caused(Exit::Config, "configuration: otlp.endpoint", error);
    let mut endpoint = Endpoint::from_shared(settings.endpoint.clone())
        .map_err(bad)?
        .connect_timeout(settings.timeout)
        .timeout(settings.timeout);
    if settings.endpoint.starts_with("https:") {
        let tls = match settings.ca() {
            Some(path) => {
                let pem = std::fs::read(&path).map_err(|e| unusable(&path, e))?;
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint = endpoint
            .tls_config(tls)
            .map_err(|e| Failure::caused(Exit::Config, "configuration: otlp.ca", e))?;
    }
    Ok(endpoint.connect_lazy())
}

fn unusable(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::caused(Exit::Config, format!("configuration: otlp.ca: cannot use {}", path.display()), error)
}

/// Headers of the file and of the environment, which wins.
fn headers(settings: &Otlp) -> Result<HeaderMap, Failure> {
    let mut headers = match settings.headers_file() {
        Some(path) => client::headers(path, "otlp.headers_file")?,
        None => HeaderMap::new(),
    };
    let bad = |text: String| Failure::new(Exit::Config, format!("configuration: {HEADERS_VARIABLE}: {text}"));
    let variable = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
    for entry in variable.split(',').filter(|entry| !entry.trim().is_empty()) {
        let (name, value) =
            entry.split_once('=').ok_or_else(|| bad("write NAME=VALUE,NAME=VALUE".to_owned()))?;
        let name = name.trim();
        let is_none = || bad(format!("{name:?} is no header, or its value cannot be one"));
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| is_none())?;
        let mut value = HeaderValue::from_str(&decoded(value.trim())).map_err(|_| is_none())?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn what_may_be_taken_later_is_sent_again_and_nothing_else() {
        let ten = Some(Duration::from_secs(10));
        for (status, after, verdict) in [
            (429, ten, Verdict::Later(ten)),
            (503, None, Verdict::Later(None)),
            (500, None, Verdict::Never),
            (400, ten, Verdict::Never),
        ] {
            let error = ExportError::Answered(StatusCode::from_u16(status).unwrap(), after);
            assert_eq!(error.verdict(), verdict, "{status}");
        }
        let of = |status: Status| ExportError::Refused(Box::new(status)).verdict();
        assert_eq!(of(Status::unavailable("later")), Verdict::Later(None));
        assert_eq!(of(Status::invalid_argument("never")), Verdict::Never);
        assert_eq!(of(Status::resource_exhausted("full for good")), Verdict::Never);
        let wanted = ErrorDetails::with_retry_info(ten);
        let full = Status::with_error_details(Code::ResourceExhausted, "full", wanted);
        assert_eq!(of(full), Verdict::Later(ten));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(of(Status::from_error(Box::new(broken))), Verdict::Later(None), "the connection ended");
    }
}
