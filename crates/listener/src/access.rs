//! Access to a listener: its certificate, those of its clients, and their tokens, all read anew when their files change.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use rustls::ServerConfig;

use crate::certificate::Certificate;
use crate::host::OwnNames;
use crate::settings::{Listener, PortKind};
use crate::throttle::{DefaultRate, Throttle};
use crate::tls::{self, TlsError};
use crate::tokens::{Denied, TokenError, TokenScope, Tokens};

/// Version of a file: its inode and the time of its last change; none where it cannot be looked at.
type Version = Option<(u64, i64, i64)>;

/// Why access cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The certificate, its key or the authorities of clients.
    #[error("tls_cert, tls_key or tls_client_ca")]
    Tls(#[from] TlsError),
    /// The file of tokens.
    #[error("token_file: {}", path.display())]
    Tokens {
        /// The file that `token_file` names.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: TokenError,
    },
    /// A port beyond this machine that everyone could use.
    #[error(
        "{0} can be reached from other machines, and no token is needed there; `gpuvitals token create` makes one and \
         token_file (--token-file) names its file, or insecure (--insecure) lets everyone in"
    )]
    Open(SocketAddr),
}

impl Listener {
    fn versions(&self) -> [Version; 4] {
        [&self.tls_cert, &self.tls_key, &self.tls_client_ca, &self.token_file].map(|path| {
            let file = std::fs::metadata(path.as_ref()?).ok()?;
            Some((file.ino(), file.ctime(), file.ctime_nsec()))
        })
    }
}

/// What the files of the settings hold.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    settings: Listener,
    kind: PortKind,
    versions: [Version; 4],
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The certificate of `tls`.
    pub(crate) certificate: Option<Certificate>,
    tokens: Option<Tokens>,
    pub(crate) names: OwnNames,
}

impl Terms {
    fn load(settings: Listener, kind: PortKind) -> Result<Self, AccessError> {
        // Before they are read: what is written meanwhile is read again.
        let versions = settings.versions();
        let read = |path: &PathBuf| {
            Tokens::read(path).map_err(|source| AccessError::Tokens { path: path.clone(), source })
        };
        let tokens = settings.token_file.as_ref().map(read).transpose()?;
        let names = OwnNames::new(&settings.hosts);
        let (tls, certificate) = tls::config(&settings)?.unzip();
        Ok(Self { settings, kind, versions, tls, certificate, tokens, names })
    }

    /// Whether the metrics need a token, too: those of a port that shows nothing else always do.
    fn guards_metrics(&self) -> bool {
        self.settings.guard_metrics || self.kind == PortKind::Metrics
    }

    /// Whether clients need a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The name of the token that admits a request, if one is needed.
    pub(crate) fn check(
        &self,
        has_certificate: bool,
        headers: &HeaderMap,
        scope: TokenScope,
        is_metrics: bool,
    ) -> Result<Option<&str>, Denied> {
        if self.settings.tls_client_ca.is_some() && !has_certificate {
            return Err(Denied::NoCertificate);
        }
        match &self.tokens {
            Some(tokens) if !is_metrics || self.guards_metrics() => tokens.check(headers, scope).map(Some),
            _ => Ok(None),
        }
    }
}

/// Who may use a listener. Clones share what they hold.
#[derive(Debug, Clone)]
pub struct Access(Arc<ArcSwap<Terms>>);

impl Access {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// When a file cannot be read or used, or holds a secret that others can read.
    pub fn load(settings: &Listener, kind: PortKind) -> Result<Self, AccessError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(Terms::load(settings.clone(), kind)?))))
    }

    /// Access for everyone, without TLS.
    pub fn open() -> Self {
        let (settings, kind) = (Listener::OPEN, PortKind::Service);
        let names = OwnNames::new(&settings.hosts);
        let terms =
            Terms { settings, kind, versions: [None; 4], tls: None, certificate: None, tokens: None, names };
        Self(Arc::new(ArcSwap::from_pointee(terms)))
    }

    /// Refuses a port that everyone on the network could use, unless the settings allow that. Metrics alone need no
    /// protection.
    ///
    /// # Errors
    /// When neither tokens nor certificates of clients protect an address beyond this machine.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), AccessError> {
        let terms = self.0.load();
        let (tls, tokens) = (terms.tls.is_some(), terms.tokens.is_some());
        let certificates = terms.settings.tls_client_ca.is_some();
        let is_open = !address.ip().is_loopback() && !tokens && !certificates;
        let is_metrics = terms.kind == PortKind::Metrics;
        if is_open && !is_metrics && !terms.settings.insecure {
            return Err(AccessError::Open(address));
        }
        tracing::info!(%address, tls, tokens, client_certificates = certificates, "listening");
        if is_open && is_metrics {
            tracing::warn!(%address, "everyone who reaches this address can read the metrics");
        } else if is_open {
            tracing::warn!(%address, "insecure: everyone who reaches this address can use it without a token");
        } else if tokens && !tls && !address.ip().is_loopback() {
            tracing::warn!(%address, "tokens and data go over the network in the clear; listener.tls_cert turns TLS on");
        }
        Ok(())
    }

    /// Reads the files of other settings from now on. Open connections keep their TLS.
    ///
    /// # Errors
    /// As [`Self::load`]; then the old ones stay in force.
    pub fn replace(&self, settings: &Listener) -> Result<(), AccessError> {
        self.0.store(Arc::new(Terms::load(settings.clone(), self.terms().kind)?));
        Ok(())
    }

    /// The limit on requests at a port; none if there is none.
    pub(crate) fn throttle(&self, address: SocketAddr) -> Option<Throttle> {
        let terms = self.terms();
        let Listener { request_rate, request_burst, .. } = terms.settings;
        // All agents of a fleet publish with one token.
        let is_free = address.ip().is_loopback() || terms.kind == PortKind::Queue;
        let default = if is_free { DefaultRate::Free } else { DefaultRate::Limited };
        Throttle::new(request_rate, request_burst, default)
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        self.0.load_full()
    }

    /// Says when the certificate expires, and reads the files anew if one of them has changed; what cannot be used is logged, and the old stays in force.
    pub fn follow_files(&self) {
        let terms = self.terms();
        terms.certificate.iter().for_each(Certificate::watch);
        let versions = terms.settings.versions();
        if versions == terms.versions {
            return;
        }
        match self.replace(&terms.settings) {
            Ok(()) => tracing::info!("certificates or tokens have changed, and the new ones are in force"),
            Err(error) => {
                let reason = gpuvitals_core::causes(&error);
                tracing::error!(
                    reason,
                    "certificates or tokens have changed and cannot be used; the old ones stay in force"
                );
                // Once for each change.
                self.0.store(Arc::new(Terms { versions, ..Terms::clone(&terms) }));
            }
        }
    }
}
