//! Credentials of a client: the authorities it trusts, and its own identity.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_listener::secret::{self, SecretError};

/// Trusted authorities and identity of a client. A URL contains none of it.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Authorities (PEM) that sign the queue's certificate; none: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key (PEM) of the client, if the queue asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Its token: sent as `authorization: Bearer …` (to NATS as its token).
    pub token: Option<BearerToken>,
    /// Credentials for NATS with users by JWT and key: the file that `nsc` writes (`.creds`).
    pub credentials: Option<PathBuf>,
}

/// A secret that names its bearer. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Arc<str>);

impl BearerToken {
    /// A token; white space around it (a file's last line break) is ignored.
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// The token that a file holds; `setting` names the file.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it, or it holds no token.
    pub fn read(path: &Path, setting: &'static str) -> Result<Self, CredentialError> {
        let token = Self::new(&secret::read(path).map_err(CredentialError::of(setting, path))?);
        let is_plain = |b: u8| b.is_ascii_graphic();
        if token.0.is_empty() || !token.0.bytes().all(is_plain) {
            return Err(CredentialError::Token { setting, path: path.to_owned() });
        }
        Ok(token)
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
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
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: SecretError,
    },
    /// It holds no token.
    #[error("{setting}: {}: a token is one word of ASCII characters", path.display())]
    Token {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl CredentialError {
    /// The error of a file that a setting names.
    pub(super) fn of(setting: &'static str, path: &Path) -> impl FnOnce(SecretError) -> Self {
        let path = path.to_owned();
        move |source| Self::File { setting, path, source }
    }
}
