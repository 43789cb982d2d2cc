//! What a client needs beside the URL: whom it trusts, and who it is.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Whom a client trusts and who it is. Nothing of it stands in a URL.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Authorities (PEM) that sign the queue's certificate; none: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key (PEM) of the client, where the queue asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Who it is: sent as `authorization: Bearer …` (to NATS as its token).
    pub token: Option<Token>,
    /// The same for NATS where it knows users by JWT and key: the file that `nsc` writes (`.creds`).
    pub credentials: Option<PathBuf>,
}

/// A secret that names its bearer. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// A token; white space around it (a file's last line break) does not count.
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
