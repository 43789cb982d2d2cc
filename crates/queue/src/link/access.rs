//! Credentials of a client: the authorities it trusts, and its own identity.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Trusted authorities and identity of a client. A URL contains none of it.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Authorities (PEM) that sign the queue's certificate; none: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key (PEM) of the client, if the queue asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Its token: sent as `authorization: Bearer …` (to NATS as its token).
    pub token: Option<Token>,
    /// Credentials for NATS with users by JWT and key: the file that `nsc` writes (`.creds`).
    pub credentials: Option<PathBuf>,
}

/// A secret that names its bearer. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// A token; white space around it (a file's last line break) is ignored.
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
