//! The connection to one API server: its token, its CA, and the patience it asks for.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use http_body_util::Limited;
use kube::Client;
use kube::client::ClientBuilder;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use tower::util::MapResponseLayer;

use crate::config::Cluster;
use crate::error::ClusterError;

/// Longest token; those of service accounts have some 1,200 bytes.
const TOKEN_LEN_MAX: usize = 16 << 10;
/// Longest file of certificates.
const CA_LEN_MAX: usize = 1 << 20;
/// Longest answer: a page of 500 nodes has some 5 MiB.
const BODY_LEN_MAX: usize = 64 << 20;
/// Longest patience that a server may ask for.
const PATIENCE_MAX: Duration = Duration::from_mins(5);
/// Patience for a server that refuses for its load and does not say how long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of one cluster.
pub(crate) struct Session {
    cluster: Arc<Cluster>,
    /// The token that `client` sends.
    token: Option<SecretString>,
    client: Option<Client>,
    pause: Pause,
}

impl Session {
    /// Nothing is read or connected yet.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, token: None, client: None, pause: Pause::default() }
    }

    /// The end of the server's pause, if one lasts.
    pub(crate) fn pause(&self) -> &Pause {
        &self.pause
    }

    /// A client with the present token. Reads the token's file; one that has changed makes a new client.
    ///
    /// # Errors
    /// If the token or the CA cannot be read, or is none.
    pub(crate) fn client(&mut self) -> Result<Client, ClusterError> {
        let token = self.read_token()?;
        let is_same = match (&self.token, &token) {
            (Some(one), Some(other)) => one.expose_secret() == other.expose_secret(),
            (one, other) => one.is_none() && other.is_none(),
        };
        if let Some(client) = self.client.as_ref().filter(|_| is_same) {
            return Ok(client.clone());
        }
        let client = self.connect(token.clone())?;
        self.token = token;
        Ok(self.client.insert(client).clone())
    }

    fn read_token(&self) -> Result<Option<SecretString>, ClusterError> {
        let settings = &self.cluster.settings;
        let path = settings.token_file.clone();
        let token = match &path {
            Some(path) => Some(SecretString::from(read(path, TOKEN_LEN_MAX)?.trim())),
            None => settings.token.as_ref().map(|token| token.0.clone()),
        };
        let is_token = |token: &SecretString| {
            let text = token.expose_secret();
            !text.is_empty()
                && text.len() <= TOKEN_LEN_MAX
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match token {
            Some(token) if !is_token(&token) => Err(ClusterError::Token { path }),
            token => Ok(token),
        }
    }

    fn connect(&self, token: Option<SecretString>) -> Result<Client, ClusterError> {
        let settings = &self.cluster.settings;
        let mut config = kube::Config::new(self.cluster.url.clone());
        config.root_cert = self.authorities()?;
        config.accept_invalid_certs = settings.skip_tls_verify;
        config.tls_server_name.clone_from(&settings.tls_server_name);
        config.auth_info.token = token;
        config.connect_timeout = Some(settings.exec_deadline);
        // Refusals are handled here, once: a client that waits by itself would hold one of the cluster's execs.
        config.default_retry = false;
        let pause = self.pause.clone();
        let watch = MapResponseLayer::new(move |response: Response<_>| {
            pause.hear(&response);
            response.map(|body| Limited::new(body, BODY_LEN_MAX))
        });
        Ok(ClientBuilder::try_from(config).map_err(ClusterError::of)?.with_layer(&watch).build())
    }

    /// The certificates of the CA; none: those of the system.
    fn authorities(&self) -> Result<Option<Vec<Vec<u8>>>, ClusterError> {
        let settings = &self.cluster.settings;
        let text = match (&settings.ca_file, &settings.ca_data) {
            (Some(path), _) => read(path, CA_LEN_MAX)?,
            (None, Some(data)) if data.trim_start().starts_with("-----BEGIN") => data.clone(),
            (None, Some(data)) => {
                let bytes = STANDARD.decode(data.trim()).map_err(|_| ClusterError::Authority)?;
                String::from_utf8(bytes).map_err(|_| ClusterError::Authority)?
            }
            (None, None) => return Ok(None),
        };
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| ClusterError::Authority)?;
        if certificates.is_empty() { Err(ClusterError::Authority) } else { Ok(Some(certificates)) }
    }
}

fn read(path: &Path, len_max: usize) -> Result<String, ClusterError> {
    let failed =
        |source: io::Error| ClusterError::File { path: PathBuf::from(path), source: Arc::new(source) };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    // One byte more than allowed: a longer file is refused, not cut.
    let mut limited = file.take(u64::try_from(len_max).unwrap_or(u64::MAX).saturating_add(1));
    limited.read_to_string(&mut text).map_err(failed)?;
    if text.len() > len_max { Err(failed(io::ErrorKind::FileTooLarge.into())) } else { Ok(text) }
}

/// The time before which a server wants no further request (`Retry-After`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Pause(Arc<Mutex<Option<Instant>>>);

impl Pause {
    /// The end of the pause; none if it is over.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).filter(|until| *until > now)
    }

    fn hear<B>(&self, response: &Response<B>) {
        let is_busy =
            matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let patience = match asked {
            Some(seconds) if is_busy => Duration::from_secs(seconds).min(PATIENCE_MAX),
            None if response.status() == StatusCode::TOO_MANY_REQUESTS => PATIENCE,
            _ => return,
        };
        let until = Instant::now() + patience;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(until, |known| known.max(until)));
    }
}
