//! Section `listener` of the configuration: the protection of every port.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use gpuvitals_settings::{Refusal, settings};

use crate::host::HostName;
use crate::throttle::RequestRate;

settings! {
    /// The protection of every port that this process serves
    pub struct Listener = "listener", check Self::check {
        /// Serve TLS with this certificate chain (PEM); it is read again when it changes
        pub(crate) tls_cert: Option<PathBuf> = "", flag "--tls-cert FILE";
        /// Private key of the certificate (PEM)
        pub(crate) tls_key: Option<PathBuf> = "", flag "--tls-key FILE";
        /// Only serve clients with a certificate of one of these authorities (PEM)
        pub(crate) tls_client_ca: Option<PathBuf> = "", flag "--tls-client-ca FILE";
        /// File of the tokens that clients must have, mode 0600; `gpuvitals token create` makes them. Empty: they need none
        pub(crate) token_file: Option<PathBuf> = "", flag "--token-file FILE";
        /// Ask for a token at the metrics, too; an agent always does
        pub(crate) guard_metrics: bool = false;
        /// Serve an address beyond this machine although clients need neither a token nor a certificate there
        pub(crate) insecure: bool = false, flag "--insecure BOOL";
        /// Host names by which a proxy or a port forward addresses a port on loopback, such as `gpu.example.org`; without tokens it
        /// answers 421 to any other but localhost, addresses and the name of this machine
        pub(crate) hosts: Vec<HostName> = [];
        /// Most requests a second of a token, or of an address without one: a number, off, or auto, which is off on loopback and for a
        /// broker, whose agents may share a token, and 1000 elsewhere
        pub(crate) request_rate: RequestRate = "auto";
        /// Most requests at once after a pause; empty: those of two seconds
        pub(crate) request_burst: Option<NonZeroU32> = "";
    }
}

/// What a port shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortKind {
    /// Data and commands.
    Service,
    /// Those of a queue.
    Queue,
    /// The metrics of an agent: a token file protects them.
    Metrics,
}

impl Listener {
    /// No protection, for this machine alone.
    pub(crate) const OPEN: Self = Self {
        tls_cert: None,
        tls_key: None,
        tls_client_ca: None,
        token_file: None,
        guard_metrics: false,
        insecure: false,
        hosts: Vec::new(),
        request_rate: RequestRate::Off,
        request_burst: None,
    };

    /// Whether requests are limited as in other settings.
    pub fn limits_as(&self, other: &Self) -> bool {
        (self.request_rate, self.request_burst) == (other.request_rate, other.request_burst)
    }

    /// Whether TLS is served.
    pub fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// The scheme of an address that is served.
    pub fn scheme(&self) -> &'static str {
        if self.has_tls() { "https" } else { "http" }
    }

    /// The file of the tokens, if clients must have one.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        let (cert, key) = (("listener.tls_cert", &self.tls_cert), ("listener.tls_key", &self.tls_key));
        Refusal::unless_both(cert, key)?;
        Refusal::unless_with(("listener.tls_client_ca", &self.tls_client_ca), cert)
    }
}
