//! The connection to the receiver: gRPC, or protobuf over HTTP/1.1. Spans go through the library's exporter over it, metrics
//! as ready requests.

use std::error::Error as _;
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_listener::client;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol as Wire, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::attributes::decoded;
use super::encoded;
use super::error::{HEADERS_VARIABLE, OtlpError};
use super::settings::OtlpSettings;
use crate::verdict::Verdict;

/// The method that takes metrics, by gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
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
    Endpoint(#[from] http::Error),
}

impl ExportError {
    /// What it means for so many data points.
    pub(super) fn verdict(&self, samples: u64) -> Verdict {
        let reason = causes(self);
        if self.passes() {
            Verdict::Later { reason, after: self.pause() }
        } else {
            Verdict::Refused { samples, reason }
        }
    }

    /// Whether they may be taken later. As OTLP has it: <https://opentelemetry.io/docs/specs/otlp/#failures>, and `#failures-1`
    /// for HTTP.
    fn passes(&self) -> bool {
        match self {
            Self::Late | Self::Unreachable(_) => true,
            Self::Answered(status, _) => matches!(status.as_u16(), 429 | 502..=504),
            // The receiver did not send this: the connection ended.
            Self::Refused(status) if status.source().is_some() => true,
            Self::Refused(status) => match status.code() {
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss => true,
                // Without a time to wait it will never have room.
                Code::ResourceExhausted => self.pause().is_some(),
                _ => false,
            },
            Self::Endpoint(_) => false,
        }
    }

    /// The time for which the receiver asks to be left alone, if it does.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Answered(_, after) => *after,
            Self::Refused(status) => status.get_details_retry_info().and_then(|info| info.retry_delay),
            Self::Late | Self::Unreachable(_) | Self::Endpoint(_) => None,
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
        let (head, body) = request.into_parts();
        let (parts, mut body) = self.agent.run(Request::from_parts(head, &*body))?.into_parts();
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
    /// As the settings say; by gRPC without a client for HTTP. For gRPC the caller is inside the runtime that drives the
    /// connection.
    ///
    /// # Errors
    /// When headers or authorities cannot be read.
    pub(super) fn new(settings: &OtlpSettings, http: Option<ureq::Agent>) -> Result<Self, OtlpError> {
        let headers = headers(settings)?;
        Ok(match http {
            None => Self::Grpc(channel(settings)?, MetadataMap::from_headers(headers)),
            Some(agent) => {
                Self::Http(Http { agent, headers }, settings.endpoint.trim_end_matches('/').to_owned())
            }
        })
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
                let mut request = tonic::Request::new(metrics);
                metadata.clone_into(request.metadata_mut());
                request.set_timeout(timeout);
                let calling = encoded::call(channel.clone(), METHOD, request);
                let answer = tokio::time::timeout(timeout, calling).await;
                answer
                    .map_err(|_| ExportError::Late)?
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

fn channel(settings: &OtlpSettings) -> Result<Channel, OtlpError> {
    let mut endpoint = Endpoint::from_shared(settings.endpoint.clone())
        .map_err(OtlpError::of("otlp.endpoint"))?
        .connect_timeout(settings.timeout)
        .timeout(settings.timeout);
    if settings.has_tls() {
        let tls = match settings.ca() {
            Some(path) => {
                let unusable = format!("otlp.ca: cannot use {}", path.display());
                let pem = std::fs::read(path).map_err(OtlpError::of(unusable))?;
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(OtlpError::of("otlp.ca"))?;
    }
    Ok(endpoint.connect_lazy())
}

/// Headers of the file and of the environment, which wins.
fn headers(settings: &OtlpSettings) -> Result<HeaderMap, OtlpError> {
    let mut headers = match settings.headers_file() {
        Some(path) => client::headers(path, "otlp.headers_file")?,
        None => HeaderMap::new(),
    };
    let variable = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
    for entry in variable.split(',').filter(|entry| !entry.trim().is_empty()) {
        let (name, value) = entry
            .split_once('=')
            .ok_or_else(|| OtlpError::Variable("write NAME=VALUE,NAME=VALUE".to_owned()))?;
        let name = name.trim();
        let is_none = || OtlpError::Variable(format!("{name:?} is no header, or its value cannot be one"));
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
        let (never, at_once) = ((false, None), (true, None));
        for (status, after, later) in
            [(429, ten, (true, ten)), (503, None, at_once), (500, None, never), (400, ten, never)]
        {
            assert_eq!(later_of(&ExportError::Answered(StatusCode::from_u16(status).unwrap(), after)), later);
        }
        let of = |status: Status| later_of(&ExportError::Refused(Box::new(status)));
        assert_eq!(of(Status::unavailable("later")), at_once);
        assert_eq!(of(Status::invalid_argument("never")), never);
        assert_eq!(of(Status::resource_exhausted("full for good")), never);
        let wanted = ErrorDetails::with_retry_info(ten);
        let full = Status::with_error_details(Code::ResourceExhausted, "full", wanted);
        assert_eq!(of(full), (true, ten));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(of(Status::from_error(Box::new(broken))), at_once, "the connection ended");
    }

    /// Whether it is sent again, and the pause before.
    fn later_of(error: &ExportError) -> (bool, Option<Duration>) {
        match error.verdict(7) {
            Verdict::Later { after, .. } => (true, after),
            Verdict::Refused { samples, .. } => {
                assert_eq!(samples, 7, "all of them");
                (false, None)
            }
            Verdict::Taken { .. } => panic!("{error:?}"),
        }
    }
}
