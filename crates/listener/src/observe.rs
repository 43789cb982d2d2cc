//! Around every request: its id and span, access, time-outs, counts, log, and the headers that every answer has.

use std::any::Any;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use tonic::Status;
use tracing::Instrument;

use crate::answer::{echo, refuse, refuse_until};
use crate::connection::{Activity, Open, Peer};
use crate::host::Misdirected;
use crate::limits::Terms;
use crate::origin::foreign;
use crate::throttle::Throttle;
use crate::tokens::Denied;
use crate::trace;
use crate::upload::Upload;

/// Id of a request: the client's own, or a new one.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken from a client, in bytes.
const REQUEST_ID_LEN_MAX: usize = 64;
/// Paths that never need a token or a certificate.
const PROBES: [&str; 3] = ["/health", "/healthz", "/readyz"];
/// Paths that machines ask every few seconds; answers that are as usual are no news.
const ROUTINE: [&str; 5] = ["/health", "/healthz", "/readyz", "/stats", "/metrics"];
/// Bytes of an answer that are handed over at a time.
const PIECE_LEN: usize = 64 << 10;
/// Bytes per second that a client has to read of an answer of known length, on average since it began. Such an answer
/// is in memory until its last piece is handed over: at this rate, 16 MiB are for 34 minutes. Far below any usable line.
const READ_RATE_MIN: u64 = 8 << 10;
/// What an answer that is not a page may load: nothing.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Door {
    terms: Terms,
    /// First half of new ids, different in each process.
    process: u64,
    requests: AtomicU64,
    throttle: Option<Throttle>,
    /// Whether only this machine reaches the port.
    is_loopback: bool,
    began: Instant,
}

impl Door {
    pub(crate) fn new(terms: Terms, address: SocketAddr) -> Self {
        let (throttle, is_loopback) = (terms.access.throttle(address), address.ip().is_loopback());
        let process = RandomState::new().hash_one(());
        Self { terms, process, requests: AtomicU64::new(0), throttle, is_loopback, began: Instant::now() }
    }

    /// The client's id, if it can stand in a log, or a new one.
    fn request_id(&self, request: &Request) -> HeaderValue {
        let is_plain = |id: &&HeaderValue| {
            let bytes = id.as_bytes();
            !bytes.is_empty() && bytes.len() <= REQUEST_ID_LEN_MAX && bytes.iter().all(u8::is_ascii_graphic)
        };
        request.headers().get(REQUEST_ID).filter(is_plain).cloned().unwrap_or_else(|| {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let id = format!("{:012x}-{number:x}", self.process >> 16);
            // Hexadecimal digits are always a header's value.
            HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("none"))
        })
    }

    /// Refuses a request to another host where only the address protects: a foreign page may have sent it (DNS rebinding).
    fn check_host(&self, request: &Request) -> Result<(), Misdirected> {
        let terms = self.terms.access.terms();
        if self.is_loopback && !terms.has_tokens() { terms.names.check(request) } else { Ok(()) }
    }

    /// The name of the token that admits a request, if it needs one.
    fn admit(&self, request: &Request, has_certificate: bool) -> Result<Option<String>, Denied> {
        let (method, path) = (request.method(), request.uri().path());
        if is_probe(request) {
            return Ok(None);
        }
        let looks = matches!(*method, Method::GET | Method::HEAD);
        let is_metrics = looks && path == self.terms.metrics_path;
        let scope = (self.terms.scope)(method, path);
        let terms = self.terms.access.terms();
        Ok(terms.check(has_certificate, request.headers(), scope, is_metrics)?.map(str::to_owned))
    }

    /// Counts a request against the rate of its client; an error says how long that has to wait.
    fn has_allowance(
        &self,
        request: &Request,
        token: Option<&str>,
        peer: Option<&Peer>,
    ) -> Result<(), Duration> {
        let Some(throttle) = self.throttle.as_ref().filter(|_| !is_probe(request)) else { return Ok(()) };
        throttle.admit(token, peer.and_then(|peer| peer.address), self.began.elapsed())
    }

    /// The answer, unless it is refused here.
    async fn answer(&self, mut request: Request, next: Next) -> (Response, Option<String>) {
        if let Err(misdirected) = self.check_host(&request) {
            return (misdirect(&misdirected, Speech::of(&request)), None);
        }
        let peer = request.extensions().get::<Peer>();
        let admitted = self.admit(&request, peer.is_some_and(|peer| peer.has_certificate));
        // Whose token is not known is counted by address.
        let token = admitted.as_ref().ok().and_then(Option::as_deref);
        if let Err(wait) = self.has_allowance(&request, token, peer) {
            self.terms.meter.limited.fetch_add(1, Ordering::Relaxed);
            return (limit(wait, Speech::of(&request)), admitted.ok().flatten());
        }
        let token = match admitted {
            Ok(token) => token,
            Err(denied) => {
                self.terms.meter.denied.fetch_add(1, Ordering::Relaxed);
                return (deny(denied, Speech::of(&request)), None);
            }
        };
        let terms = self.terms.access.terms();
        if let Some(origin) = foreign(&request, &self.terms.origins, self.is_loopback.then_some(&terms.names))
        {
            let origin = echo(&String::from_utf8_lossy(origin.as_bytes()));
            let text = format!(
                "a page of {origin} may change nothing here; the setting cors lists the origins that may"
            );
            return (refuse(StatusCode::FORBIDDEN, "forbidden", &text), token);
        }
        let limits = &self.terms.limits;
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > limits.body_bytes) {
            let text = format!("the request has a body of more than {} bytes", limits.body_bytes);
            return (refuse(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &text), token);
        }
        if let Some(certificate) = terms.certificate.clone() {
            request.extensions_mut().insert(certificate);
        }
        let speech = Speech::of(&request);
        let (upload, request) = Upload::watch(request);
        let answer = upload.answered(limits.request, next.run(request)).await;
        let answer = answer.unwrap_or_else(|| {
            let text = format!("the answer took longer than {} s", limits.request.as_secs());
            match speech {
                Speech::Grpc => Status::deadline_exceeded(text).into_http(),
                Speech::Http => refuse(StatusCode::SERVICE_UNAVAILABLE, "timeout", &text),
            }
        });
        (answer, token)
    }
}

/// Serves one request.
pub(crate) async fn observe(
    State(door): State<Arc<Door>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let open = request.extensions().get::<Peer>().map(|peer| peer.activity.begin());
    let id = door.request_id(&request);
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let route = path.as_ref().map(MatchedPath::as_str);
    let span = trace::served(&method, route.unwrap_or_default(), uri.path(), request.headers());
    let (mut response, token) = door.answer(request, next).instrument(span.clone()).await;
    let status = response.status();
    trace::answered(&span, status);
    door.terms.meter.answered(route, status, began.elapsed());
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(REQUEST_ID, id.clone());
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let path = uri.path().to_owned();
    let log = Log { method, path, id, status, token, began, bytes: 0 };
    response.map(|body| Body::new(AnswerBody::new(body, log, open)))
}

/// Answers a request whose handler panicked.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
pub(crate) fn crashed(panic: Box<dyn Any + Send + 'static>) -> Response {
    let words =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = words.unwrap_or("no words"), "a handler panicked");
    let text = "the request failed on a defect of the service; its log says more";
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

/// Whether it is one that is answered to everyone, however often.
fn is_probe(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && PROBES.contains(&request.uri().path())
}

/// What a client speaks, and so reads a refusal in.
#[derive(Debug, Clone, Copy)]
enum Speech {
    Http,
    Grpc,
}

impl Speech {
    fn of(request: &Request) -> Self {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_grpc = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
        if is_grpc { Self::Grpc } else { Self::Http }
    }
}

/// The answer to a request beyond the rate of its client.
fn limit(wait: Duration, speech: Speech) -> Response {
    let text = "more requests a second than listener.request_rate allows; send fewer, or wait for retry-after seconds";
    match speech {
        Speech::Grpc => Status::resource_exhausted(text).into_http(),
        Speech::Http => refuse_until(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", text, wait),
    }
}

/// The answer to a request for another host, or for none. gRPC's clients read its status whatever that of HTTP is.
fn misdirect(misdirected: &Misdirected, speech: Speech) -> Response {
    let text = misdirected.to_string();
    let (status, code) = match misdirected {
        Misdirected::Unclear => (StatusCode::BAD_REQUEST, "bad_host"),
        Misdirected::Foreign(_) => (StatusCode::MISDIRECTED_REQUEST, "misdirected"),
    };
    match speech {
        Speech::Grpc => {
            let mut response = Status::permission_denied(text).into_http();
            *response.status_mut() = status;
            response
        }
        Speech::Http => refuse(status, code, &text),
    }
}

fn deny(denied: Denied, speech: Speech) -> Response {
    let text = denied.to_string();
    match (denied, speech) {
        (Denied::NoCertificate | Denied::TokenScope(_), Speech::Grpc) => {
            Status::permission_denied(text).into_http()
        }
        (_, Speech::Grpc) => Status::unauthenticated(text).into_http(),
        (Denied::NoCertificate | Denied::TokenScope(_), Speech::Http) => {
            refuse(StatusCode::FORBIDDEN, "forbidden", &text)
        }
        (_, Speech::Http) => refuse(StatusCode::UNAUTHORIZED, "unauthorized", &text),
    }
}

/// A request for the log, written when its answer has been sent or given up.
struct Log {
    method: Method,
    path: String,
    id: HeaderValue,
    status: StatusCode,
    token: Option<String>,
    began: Instant,
    bytes: u64,
}

impl Drop for Log {
    fn drop(&mut self) {
        let Self { method, path, id, status, token, began, bytes } = self;
        let (status, ms) = (status.as_u16(), milliseconds(began.elapsed()));
        let id = id.to_str().unwrap_or_default();
        let token = token.as_deref();
        if status >= 500 {
            tracing::warn!(%method, path, status, ms, bytes, id, token, "request");
        } else if status < 400 && ROUTINE.contains(&path.as_str()) {
            tracing::debug!(%method, path, status, ms, bytes, id, token, "request");
        } else {
            tracing::info!(%method, path, status, ms, bytes, id, token, "request");
        }
    }
}

/// Milliseconds, cut to whole microseconds.
fn milliseconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// An answer's body, whose bytes are counted and handed over in pieces. While it has nothing to send, it keeps its
/// connection open, so a quiet stream lasts. Otherwise the connection counts as idle since the peer took the last piece.
struct AnswerBody {
    body: Body,
    /// The part of the last frame that is not handed over yet.
    rest: Bytes,
    log: Log,
    began: Instant,
    /// Of known length, so it has to be read at [`READ_RATE_MIN`].
    is_sized: bool,
    activity: Option<Arc<Activity>>,
    /// Held while the body has nothing to send.
    quiet: Option<Open>,
}

impl AnswerBody {
    fn new(body: Body, log: Log, open: Option<Open>) -> Self {
        let (is_sized, activity) = (body.size_hint().exact().is_some(), open.map(Open::end));
        Self { body, rest: Bytes::new(), log, began: Instant::now(), is_sized, activity, quiet: None }
    }

    /// Hands over the rest of a frame, or its next piece.
    fn piece(&mut self) -> Frame<Bytes> {
        let len = self.rest.len().min(PIECE_LEN);
        self.log.bytes += u64::try_from(len).unwrap_or(u64::MAX);
        Frame::data(self.rest.split_to(len))
    }

    /// The peer took all that was handed over, or nearly: hyper asks for more only then.
    fn taken(&self) {
        let Some(activity) = &self.activity else { return };
        if self.is_sized {
            let due = Duration::from_millis(self.log.bytes.saturating_mul(1_000) / READ_RATE_MIN);
            activity.progress_until(self.began + due);
        } else {
            activity.progress();
        }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.taken();
        if self.rest.is_empty() {
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else {
                if self.quiet.is_none() {
                    self.quiet = self.activity.as_ref().map(Activity::begin);
                }
                return Poll::Pending;
            };
            self.quiet = None;
            match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(self.piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), u64::try_from(self.rest.len()).unwrap_or(u64::MAX));
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(rest));
        }
        whole
    }
}
