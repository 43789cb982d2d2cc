//! The other end of a port: how a client connects to a service, by gRPC and by plain `GET`, and its credentials.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_core::clock;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Request;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::{Service as _, ServiceExt as _};

use crate::secret::{self, SecretError};

/// Time limit of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A silent service is pinged after this time, and must answer within [`PING_LIMIT`]: a hanging one is noticed
/// within five seconds.
const PING_AFTER: Duration = Duration::from_millis(1_500);
const PING_LIMIT: Duration = Duration::from_secs(2);
/// Bytes that one stream may receive before they are read: some large frames.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Begins the header with a token.
const BEARER: &str = "Bearer ";
/// Largest answer to a request, in bytes.
const ANSWER_BYTES: usize = 16 << 20;
/// Longest wait for an answer of a service that is connected: a large body takes a while to get there. One of pieces may take so
/// long for each.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// Bytes of a piece that are handed over at once: a slow line takes them well within that time.
const PIECE_BYTES: usize = 64 << 10;
/// Largest server-sent event, in bytes.
const EVENT_BYTES: usize = 1 << 20;
/// The type of what a stream of events is sent as.
const EVENT_STREAM: &str = "text/event-stream";
/// Longest silence of a stream of events: heartbeats come several times as often.
const SILENCE_LIMIT: Duration = Duration::from_mins(1);

/// Time for which an answer wants its sender left alone: seconds, or until a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let nanos = until.as_nanosecond() - i128::from(clock::now_ns());
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

/// Trusted authorities and identity of a client. A URL contains none of it.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Authorities (PEM) that sign the service's certificate; none: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key (PEM) of the client, if the service asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Its token: sent as `authorization: Bearer …` (to NATS as its token).
    pub token: Option<BearerToken>,
    /// Credentials for NATS with users by JWT and key: the file that `nsc` writes (`.creds`).
    pub credentials: Option<PathBuf>,
}

/// A secret that names its bearer. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// A token; white space around it (a file's last line break) is ignored. None if that leaves nothing, or what is no
    /// visible ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let token = text.trim();
        let is_plain = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        let mut header = HeaderValue::try_from(format!("{BEARER}{token}")).ok().filter(|_| is_plain)?;
        header.set_sensitive(true);
        Some(Self(header))
    }

    /// The token that a file holds; `setting` names the file.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it, or it holds no token.
    pub fn read(path: &Path, setting: &'static str) -> Result<Self, CredentialError> {
        let text = secret::read(path).map_err(CredentialError::of(setting, path))?;
        Self::new(&text).ok_or_else(|| CredentialError::Token { setting, path: path.to_owned() })
    }

    /// The secret as text: for the one place that sends it.
    pub fn expose(&self) -> &str {
        self.0.to_str().ok().and_then(|text| text.strip_prefix(BEARER)).unwrap_or_default()
    }

    /// `Bearer …`, the header `authorization` of a request. No debug output shows it.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// A file with a secret that is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// It cannot be read, or others can read it.
    #[error("{setting}: {}", path.display())]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file as the settings name it.
        path: PathBuf,
        /// What the system or the library says.
        #[source]
        source: SecretError,
    },
    /// It holds no token.
    #[error("{setting}: {}: a token is one word of ASCII characters", path.display())]
    Token {
        /// The setting that names it.
        setting: &'static str,
        /// The file as the settings name it.
        path: PathBuf,
    },
    /// A line of it is no header.
    #[error("{setting} line {line}: write NAME: VALUE")]
    Header {
        /// The setting that names it.
        setting: &'static str,
        /// The line, from 1.
        line: usize,
    },
}

impl CredentialError {
    /// The error of a file that a setting names.
    pub fn of(setting: &'static str, path: &Path) -> impl FnOnce(SecretError) -> Self {
        let path = path.to_owned();
        move |source| Self::File { setting, path, source }
    }
}

/// The headers that a file holds, in lines `NAME: VALUE`; `setting` names the file.
///
/// # Errors
/// When the file cannot be read, others can read it, or a line is no header. The line is not repeated.
pub fn headers(path: &Path, setting: &'static str) -> Result<HeaderMap, CredentialError> {
    let text = secret::read(path).map_err(CredentialError::of(setting, path))?;
    let mut headers = HeaderMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let header = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, mut value) = header.ok_or(CredentialError::Header { setting, line: at + 1 })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A service that cannot be dialled as it was named. Whether it can be reached is not checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// A certificate or key that cannot be read.
    #[error("cannot read {}", path.display())]
    Credential {
        /// The file as the settings name it.
        path: PathBuf,
        /// What the system or the library says.
        #[source]
        source: std::io::Error,
    },
    /// An address, certificates or a key that cannot be used.
    #[error("cannot connect to {authority}")]
    Endpoint {
        /// The service's `host:port`.
        authority: String,
        /// What the system or the library says.
        #[source]
        source: tonic::transport::Error,
    },
}

/// No answer to a request, or a refusal.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The service cannot be reached, or broke off.
    #[error("the service does not answer: {0}")]
    Unreachable(String),
    /// The path is none.
    #[error("cannot make a request of it")]
    Request(#[from] http::Error),
    /// The service refuses it.
    #[error("it answers {status}: {message}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// Its reason.
        message: String,
    },
}

/// Address of a service, and the client's credentials.
#[derive(Clone, Debug)]
pub struct Dial {
    endpoint: Endpoint,
    bearer: Option<HeaderValue>,
    authority: Arc<str>,
}

impl Dial {
    /// The service at `host:port`, an IPv6 address in brackets. The connection is noticed to be dead within 3.5 s.
    ///
    /// # Errors
    /// If a credential cannot be read or used, or the authority is none.
    pub fn new(authority: &str, tls: bool, access: &Credentials) -> Result<Self, DialError> {
        Self::at(authority, authority, tls, access)
    }

    /// The service at `authority` by one of its addresses, `ip:port`: its certificate is for the name in the authority.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn at(address: &str, authority: &str, tls: bool, access: &Credentials) -> Result<Self, DialError> {
        let unusable = |source| DialError::Endpoint { authority: authority.to_owned(), source };
        let scheme = if tls { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(unusable)?;
        if tls {
            let mut config = match &access.ca {
                Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
                None => ClientTlsConfig::new().with_native_roots(),
            };
            if let Some((chain, key)) = &access.identity {
                config = config.identity(Identity::from_pem(read(chain)?, read(key)?));
            }
            if let Some((host, _)) = authority.rsplit_once(':').filter(|_| address != authority) {
                config = config.domain_name(host.trim_matches(['[', ']']));
            }
            endpoint = endpoint.tls_config(config).map_err(unusable)?;
        }
        if let Ok(origin) = format!("{scheme}://{authority}").parse::<Uri>()
            && address != authority
        {
            endpoint = endpoint.origin(origin);
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(STREAM_WINDOW_BYTES)
            .max_frame_size(64 << 10);
        let bearer = access.token.as_ref().map(BearerToken::header);
        Ok(Self { endpoint, bearer, authority: address.into() })
    }

    /// Where it connects to, `host:port`.
    pub fn authority(&self) -> &Arc<str> {
        &self.authority
    }

    /// How it connects.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A request with the client's token.
    pub fn request<T>(&self, body: T) -> Request<T> {
        let mut request = Request::new(body);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().as_mut().insert(AUTHORIZATION, bearer.clone());
        }
        request
    }

    /// A plain request over a connection of this service.
    ///
    /// # Errors
    /// When no whole answer comes.
    pub async fn get(&self, channel: Channel, path: &str) -> Result<(StatusCode, Bytes), GetError> {
        let answer = self.send(channel, http::Request::get(path), Body::empty()).await?;
        let (head, body) = answer.into_parts();
        Ok((head.status, whole(body).await?))
    }

    /// Sends a request with the client's token, and waits for the head of its answer.
    async fn send(
        &self,
        mut channel: Channel,
        mut request: http::request::Builder,
        body: Body,
    ) -> Result<http::Response<Body>, GetError> {
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(body)?;
        let answer = match channel.ready().await {
            Ok(ready) => ready.call(request).await,
            Err(error) => Err(error),
        };
        answer.map_err(|error| unreachable(&error))
    }
}

/// A service that is asked over one connection, which is made when it is needed.
#[derive(Clone, Debug)]
pub struct ServiceClient {
    dial: Dial,
    channel: Channel,
}

impl ServiceClient {
    /// Of a service that is not connected to yet.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect_lazy(dial: Dial) -> Self {
        Self { channel: dial.endpoint().connect_lazy(), dial }
    }

    /// Posts JSON; answers the body of what comes back.
    ///
    /// # Errors
    /// When no whole answer comes, or a refusal.
    pub async fn post(&self, path: &str, json: Vec<u8>) -> Result<Bytes, GetError> {
        let answered = self.send_body(path, "application/json", json.into());
        timeout(ANSWER_LIMIT, answered).await.unwrap_or_else(|_| Err(silent(ANSWER_LIMIT)))
    }

    /// Posts a body of pieces, whose length is not announced; answers the body of what comes back. It may take long, as long as the
    /// service takes them.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub async fn post_pieces(&self, path: &str, pieces: Vec<Bytes>) -> Result<Bytes, GetError> {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let pieces = pieces.into_iter().flat_map(small_pieces).map(move |piece| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(piece)
        });
        let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
        let mut answered = pin!(self.send_body(path, "application/octet-stream", body));
        loop {
            let before = taken.load(Ordering::Relaxed);
            match timeout(ANSWER_LIMIT, answered.as_mut()).await {
                Ok(answered) => return answered,
                Err(_) if taken.load(Ordering::Relaxed) > before => {}
                Err(_) => return Err(silent(ANSWER_LIMIT)),
            }
        }
    }

    async fn send_body(
        &self,
        path: &str,
        content_type: &'static str,
        body: axum::body::Body,
    ) -> Result<Bytes, GetError> {
        let request = http::Request::post(path).header(CONTENT_TYPE, content_type);
        let answer = self.dial.send(self.channel.clone(), request, Body::new(body)).await?;
        whole(accepted(answer).await?).await
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// When the service cannot be reached, refuses it, or sends something else: a page, where it is another one than was meant.
    pub async fn events(&self, path: &str) -> Result<EventReader, GetError> {
        let request = http::Request::get(path).header(ACCEPT, EVENT_STREAM);
        let answered = async {
            let answer = self.dial.send(self.channel.clone(), request, Body::empty()).await?;
            let kind = answer.headers().get(CONTENT_TYPE);
            let are_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()));
            let body = accepted(answer).await?;
            if are_events {
                Ok(body)
            } else {
                Err(GetError::Unreachable("it sends no events at this path".to_owned()))
            }
        };
        let body = timeout(ANSWER_LIMIT, answered).await.unwrap_or_else(|_| Err(silent(ANSWER_LIMIT)))?;
        Ok(EventReader { body, buffer: Vec::new(), heard: Instant::now() })
    }
}

/// A piece in smaller ones.
fn small_pieces(mut piece: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let len = piece.len().min(PIECE_BYTES);
        (len > 0).then(|| piece.split_to(len))
    })
}

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    /// Its kind; empty if it has none.
    pub kind: String,
    /// Its text.
    pub data: String,
}

/// A stream of server-sent events that is open. Lines end with a line feed, as those of our services do.
#[derive(Debug)]
pub struct EventReader {
    body: Body,
    buffer: Vec<u8>,
    /// When anything came last.
    heard: Instant,
}

impl EventReader {
    /// The next event; none when the service ends the stream. Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// When the stream breaks off, or nothing comes for long: a service says that it is still there.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, GetError> {
        loop {
            while let Some(block) = self.block() {
                if let Some(event) = event_of(&block) {
                    return Ok(Some(event));
                }
            }
            if self.buffer.len() > EVENT_BYTES {
                return Err(GetError::Unreachable(format!("an event has more than {EVENT_BYTES} bytes")));
            }
            let coming = timeout_at(self.heard + SILENCE_LIMIT, self.body.frame());
            let Some(frame) = coming.await.map_err(|_| silent(SILENCE_LIMIT))? else { return Ok(None) };
            self.heard = Instant::now();
            if let Ok(data) = frame.map_err(|error| unreachable(&error))?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// What has come up to the next empty line.
    fn block(&mut self) -> Option<String> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}

/// The event of some lines; none if they have no data, as comments.
fn event_of(block: &str) -> Option<ServerEvent> {
    let values = |field: &'static str| {
        let value = move |line: &str| Some(line.strip_prefix(field)?.trim_start_matches(' ').to_owned());
        block.lines().filter_map(value)
    };
    let data: Vec<String> = values("data:").collect();
    let kind = values("event:").next_back().unwrap_or_default();
    (!data.is_empty()).then(|| ServerEvent { kind, data: data.join("\n") })
}

/// The body of an answer that is no refusal.
async fn accepted(answer: http::Response<Body>) -> Result<Body, GetError> {
    let (head, body) = answer.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let text = whole(body).await?;
    let error: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let message = error.get("message").and_then(serde_json::Value::as_str).unwrap_or("no reason given");
    Err(GetError::Refused { status: head.status, message: message.to_owned() })
}

async fn whole(body: Body) -> Result<Bytes, GetError> {
    let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|error| unreachable(&*error))?;
    Ok(body.to_bytes())
}

fn unreachable(error: &(dyn Error + 'static)) -> GetError {
    GetError::Unreachable(first_cause(error).to_string())
}

fn silent(limit: Duration) -> GetError {
    GetError::Unreachable(format!("nothing came within {} s", limit.as_secs()))
}

/// The innermost cause of a connection's error: the layers above add nothing.
pub fn first_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    std::iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error)
}

fn read(path: &Path) -> Result<Vec<u8>, DialError> {
    std::fs::read(path).map_err(|source| DialError::Credential { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::{get, post};
    use futures_util::stream;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{Meter, Terms, refuse};

    /// A client of this service, which runs as long as the test.
    fn client(app: Router) -> ServiceClient {
        let socket = crate::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let authority = socket.local_addr().unwrap().to_string();
        let terms = Terms::new(Arc::new(Meter::new("test")));
        tokio::spawn(crate::serve(socket, app, terms, CancellationToken::new()));
        ServiceClient::connect_lazy(Dial::new(&authority, false, &Credentials::default()).unwrap())
    }

    #[tokio::test]
    async fn events_are_read_however_the_network_cuts_them() {
        let pieces = [
            "retry: 3000\n: live\n\nevent: re",
            "quest\ndata: {\"a\":1}\n",
            "\nevent: two\ndata: x\ndata: y\n\n: still here\n\n",
        ];
        let body = move || async move {
            let pieces = stream::iter(pieces.map(Ok::<_, Infallible>));
            ([(CONTENT_TYPE, EVENT_STREAM)], axum::body::Body::from_stream(pieces))
        };
        let client = client(Router::new().route("/events", get(body)));
        let mut events = client.events("/events").await.unwrap();
        let mut found = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            found.push((event.kind, event.data));
        }
        let wanted = [("request", "{\"a\":1}"), ("two", "x\ny")];
        assert_eq!(found, wanted.map(|(kind, data)| (kind.to_owned(), data.to_owned())));
    }

    #[tokio::test]
    async fn a_body_of_pieces_may_be_longer_than_an_announced_one() {
        let app = Router::new().route(
            "/",
            post(|body: axum::body::Body| async {
                let whole = BodyExt::collect(body).await.unwrap().to_bytes();
                whole.len().to_string()
            }),
        );
        let client = client(app);
        let refused = client.post("/", vec![0; 1 << 20]).await.unwrap_err();
        let GetError::Refused { status, .. } = refused else { panic!("{refused}") };
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        let pieces = vec![Bytes::from(vec![0; 1 << 19]); 2];
        assert_eq!(client.post_pieces("/", pieces).await.unwrap(), (1 << 20).to_string());
    }

    #[tokio::test]
    async fn a_refusal_says_why() {
        let full = || async { refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "no room") };
        let client = client(Router::new().route("/", get(full)));
        let refused = client.events("/").await.unwrap_err();
        assert_eq!(refused.to_string(), "it answers 503 Service Unavailable: no room");
    }

    #[tokio::test]
    async fn a_page_in_place_of_events_is_said() {
        let client = client(Router::new().route("/", get(|| async { axum::response::Html("<p>\n\n</p>") })));
        let refused = client.events("/").await.unwrap_err();
        assert!(refused.to_string().contains("no events at this path"), "{refused}");
    }
}
