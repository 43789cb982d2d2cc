//! The other end of a port: how a client connects to a service, by gRPC and by plain `GET`, and its credentials.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_core::clock;
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tonic::Request;
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
/// Largest answer to a `GET`, in bytes.
const ANSWER_BYTES: usize = 16 << 20;

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

/// No answer to a `GET`.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The service cannot be reached, or broke off.
    #[error("the service does not answer: {0}")]
    Unreachable(String),
    /// The path is none.
    #[error("cannot make a request of it")]
    Request(#[from] http::Error),
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
    pub async fn get(&self, mut channel: Channel, path: &str) -> Result<(StatusCode, Bytes), GetError> {
        let mut request = http::Request::get(path);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(tonic::body::Body::empty())?;
        let unreachable =
            |error: &(dyn Error + 'static)| GetError::Unreachable(first_cause(error).to_string());
        let answer = match channel.ready().await {
            Ok(ready) => ready.call(request).await,
            Err(error) => Err(error),
        };
        let (head, body) = answer.map_err(|error| unreachable(&error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|error| unreachable(&*error))?;
        Ok((head.status, body.to_bytes()))
    }
}

/// The innermost cause of a connection's error: the layers above add nothing.
pub fn first_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    std::iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error)
}

fn read(path: &Path) -> Result<Vec<u8>, DialError> {
    std::fs::read(path).map_err(|source| DialError::Credential { path: path.to_owned(), source })
}
