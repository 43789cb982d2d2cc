//! The port of a role: its address, and its protection, which is the section `listener` of the configuration.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use gpuvitals_listener::{Access, Settings};
use tokio::net::TcpListener;

use crate::config::{Refusal, settings};
use crate::failure::{Exit, Failure};

settings! {
    /// The protection of every port that this process serves
    pub(crate) struct Listener = "listener" {
        /// Serve TLS with this certificate chain (PEM); it is read again when it changes
        tls_cert: Option<PathBuf> = "", flag "--tls-cert FILE";
        /// Private key of the certificate (PEM)
        tls_key: Option<PathBuf> = "", flag "--tls-key FILE";
        /// Only serve clients with a certificate of one of these authorities (PEM)
        tls_client_ca: Option<PathBuf> = "", flag "--tls-client-ca FILE";
        /// File of the tokens that clients must have, mode 0600; `gpuvitals token create` makes them. Empty: they need none
        token_file: Option<PathBuf> = "", flag "--token-file FILE";
        /// Ask for a token at the metrics, too; an agent always does
        guard_metrics: bool = false;
        /// Serve an address beyond this machine although clients need neither a token nor a certificate there
        insecure: bool = false, flag "--insecure BOOL";
    }
}

/// What a port shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Data and commands.
    Service,
    /// The metrics of an agent: a token file protects them.
    Metrics,
}

impl Listener {
    /// The files that protect a port.
    pub(crate) fn settings(&self, shown: Shown) -> Settings {
        Settings {
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            tls_client_ca: self.tls_client_ca.clone(),
            token_file: self.token_file.clone(),
            guard_metrics: self.guard_metrics || shown == Shown::Metrics,
            insecure: self.insecure,
        }
    }

    /// Whether TLS is served.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// The scheme of an address that is served.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.has_tls() { "https" } else { "http" }
    }

    /// The file of the tokens, if clients must have one.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Refuses impossible settings.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let (cert, key) = (("listener.tls_cert", &self.tls_cert), ("listener.tls_key", &self.tls_key));
        Refusal::unless_both(cert, key)?;
        Refusal::unless_with(("listener.tls_client_ca", &self.tls_client_ca), cert)
    }
}

/// Takes a port; `flag` names another one.
///
/// # Errors
/// When it is taken or may not be used.
pub(crate) fn listen(address: IpAddr, port: u16, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let address = SocketAddr::new(address, port);
    let refused = |error: std::io::Error| {
        let (exit, hint) = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                let hint = format!("; is another gpuvitals running? {flag} 0 takes a free one");
                (Exit::Unavailable, hint)
            }
            std::io::ErrorKind::PermissionDenied => (Exit::Permission, String::new()),
            _ => (Exit::Unavailable, String::new()),
        };
        Failure::caused(exit, format!("cannot listen on {address}{hint}"), error)
    };
    let socket = gpuvitals_listener::bind(address).map_err(refused)?;
    let address = socket.local_addr().map_err(refused)?;
    Ok((socket, address))
}

/// Reads the files that protect a port, and refuses an address beyond this machine that everyone could use. The metrics
/// alone may be open there.
///
/// # Errors
/// When a file cannot be read or used, holds a secret that others can read, or nothing protects the port and that was not
/// asked for.
pub(crate) fn access(listener: &Listener, address: SocketAddr, shown: Shown) -> Result<Access, Failure> {
    let failed = |error| Failure::caused(Exit::Config, "configuration: listener", error);
    let access = Access::load(listener.settings(shown)).map_err(failed)?;
    access.check_address(address, shown == Shown::Metrics).map_err(failed)?;
    Ok(access)
}
