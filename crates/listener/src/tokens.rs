//! Named tokens with scopes, stored as hashes.
//!
//! A file of tokens is text with a line for each: name, scopes with commas between them, the SHA-256 of the token in
//! hexadecimal, and when it was made. Empty lines and lines that begin with `#` do not count. A token has 256 random bits,
//! so its plain hash reveals nothing.

use std::fmt;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use gpuvitals_log::Fresh;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use subtle::ConstantTimeEq;

use crate::secret::{self, SecretError};

/// Most tokens of a file.
const TOKENS_MAX: usize = 1_000;
/// Longest name of a token, in bytes.
const NAME_LEN_MAX: usize = 64;
/// Random bytes of a token.
const RANDOM_LEN: usize = 32;
/// What a token begins with, so that it is recognised where it leaked.
const PREFIX: &str = "gpv_";

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Publish messages to any topic.
    Publish,
    /// Receive and acknowledge messages, and read dead letters.
    Subscribe,
    /// Read telemetry, statistics and metrics.
    Read,
    /// Ask the nodes of a job for what their flight recorders have, and list and read it.
    Flight,
    /// Change or delete what is held; includes the other scopes.
    Admin,
}

impl TokenScope {
    /// Every scope that a token can have.
    pub const ALL: [Self; 5] = [Self::Publish, Self::Subscribe, Self::Read, Self::Flight, Self::Admin];

    /// Its name in a file of tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Read => "read",
            Self::Flight => "flight",
            Self::Admin => "admin",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// A token as the file holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Name of its owner.
    pub name: String,
    /// What it permits.
    pub scopes: Vec<TokenScope>,
    /// When it was made, RFC 3339.
    pub created: String,
    #[serde(skip)]
    hash: [u8; SHA256_OUTPUT_LEN],
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        write!(f, "{} {} ", self.name, scopes.join(","))?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " {}", self.created)
    }
}

/// Why a file of tokens is not used or not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] SecretError),
    /// It cannot be written.
    #[error("cannot be written")]
    Write(#[source] io::Error),
    /// A line is not a token.
    #[error("line {0} is not NAME SCOPES HASH TIME; gpuvitals token create writes such lines")]
    Line(usize),
    /// Too many tokens.
    #[error("{0} tokens are more than {TOKENS_MAX}")]
    TooMany(usize),
    /// A name that cannot be used.
    #[error("{0:?} is not a name: 1 to {NAME_LEN_MAX} letters, digits, '-', '_' and '.'")]
    Name(String),
    /// A name that is there already.
    #[error("there is a token named {0:?}; revoke it first")]
    Taken(String),
    /// A name that is not there.
    #[error("there is no token named {0:?}")]
    Unknown(String),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("a client certificate is needed")]
    NoCertificate,
    #[error("a token is needed: authorization: Bearer <token>")]
    NoToken,
    #[error("the token is not known")]
    Unknown,
    #[error("the token lacks the scope {}", .0.as_str())]
    TokenScope(TokenScope),
}

/// The tokens of a file.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// When it cannot be read, others can read it, or a line is not a token. Errors never repeat a line.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        Self::parse(&secret::read(path)?)
    }

    fn parse(text: &str) -> Result<Self, TokenError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let tokens: Vec<Token> = lines
            .map(|(number, line)| token(line).ok_or(TokenError::Line(number)))
            .collect::<Result<_, _>>()?;
        if tokens.len() > TOKENS_MAX { Err(TokenError::TooMany(tokens.len())) } else { Ok(Self(tokens)) }
    }

    /// All of them, in the order of the file.
    pub fn list(&self) -> &[Token] {
        &self.0
    }

    /// Adds a token to a file, which is made if it is not there, and returns the secret.
    ///
    /// # Errors
    /// When the name cannot be used, or the file cannot be read or written.
    pub fn create(path: &Path, name: &str, scopes: &[TokenScope], now: String) -> Result<String, TokenError> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_plain) {
            return Err(TokenError::Name(name.to_owned()));
        }
        let mut tokens = match Self::read(path) {
            Err(TokenError::Read(SecretError::Read(error))) if error.kind() == io::ErrorKind::NotFound => {
                Self::default()
            }
            read => read?,
        };
        if tokens.0.iter().any(|token| token.name == name) {
            return Err(TokenError::Taken(name.to_owned()));
        }
        if tokens.0.len() >= TOKENS_MAX {
            return Err(TokenError::TooMany(tokens.0.len() + 1));
        }
        let mut random = [0; RANDOM_LEN];
        SystemRandom::new().fill(&mut random).map_err(|_| TokenError::Random)?;
        let secret = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let hash = hash(secret.as_bytes());
        tokens.0.push(Token { name: name.to_owned(), scopes: scopes.to_vec(), created: now, hash });
        tokens.write(path)?;
        Ok(secret)
    }

    /// Removes a token from a file.
    ///
    /// # Errors
    /// When there is none of that name, or the file cannot be read or written.
    pub fn revoke(path: &Path, name: &str) -> Result<(), TokenError> {
        let mut tokens = Self::read(path)?;
        let before = tokens.0.len();
        tokens.0.retain(|token| token.name != name);
        if tokens.0.len() == before {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        tokens.write(path)
    }

    /// Replaces the file at once: a service that reads it meanwhile finds the old one or the new one.
    fn write(&self, path: &Path) -> Result<(), TokenError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let old = std::fs::metadata(path).ok();
        let mode = old.as_ref().map_or(0o600, |file| file.permissions().mode());
        let write = || {
            let fresh = Fresh::create_private(path, beside.into())?;
            let mut file = fresh.file();
            // A service that reads it may run as another user than the one who changes it.
            if let Some(old) = &old {
                std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(mode))?;
            for token in &self.0 {
                writeln!(file, "{token}")?;
            }
            fresh.put()
        };
        write().map_err(TokenError::Write)?;
        Ok(())
    }

    /// The name of the token that a request brings, if it permits this.
    pub(crate) fn check(&self, headers: &HeaderMap, scope: TokenScope) -> Result<&str, Denied> {
        let given = hash(&bearer(headers).ok_or(Denied::NoToken)?);
        // Every token is compared, so that the time it takes says nothing.
        let found =
            self.0.iter().fold(
                None,
                |found, token| {
                    if bool::from(token.hash.ct_eq(&given)) { Some(token) } else { found }
                },
            );
        let token = found.ok_or(Denied::Unknown)?;
        let permits = token.scopes.iter().any(|of| *of == scope || *of == TokenScope::Admin);
        if permits { Ok(&token.name) } else { Err(Denied::TokenScope(scope)) }
    }
}

fn token(line: &str) -> Option<Token> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, scopes, hex, created] = *words.as_slice() else { return None };
    let scopes = scopes.split(',').map(TokenScope::parse).collect::<Option<_>>()?;
    let mut hash = [0; SHA256_OUTPUT_LEN];
    if hex.len() != 2 * hash.len() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Token { name: name.to_owned(), scopes, created: created.to_owned(), hash })
}

fn hash(text: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

/// The token of a request: as a bearer, or as the password of a basic login, which is what browsers ask for.
fn bearer(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, credentials) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.trim().as_bytes().to_vec());
    }
    let login =
        BASE64_STANDARD.decode(credentials.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = login.iter().position(|byte| *byte == b':')?;
    Some(login.get(colon + 1..)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_brings_its_token_as_bearer_or_as_password() {
        let known = Token {
            name: "known".to_owned(),
            scopes: vec![TokenScope::Read],
            created: String::new(),
            hash: hash(b"gpv_known"),
        };
        let tokens = Tokens(vec![known]);
        let basic = |scheme: &str, login: &str| format!("{scheme} {}", BASE64_STANDARD.encode(login));
        for (header, wanted) in [
            ("Bearer gpv_known".to_owned(), Ok("known")),
            ("bearer  gpv_known ".to_owned(), Ok("known")),
            (basic("Basic", "anybody:gpv_known"), Ok("known")),
            (basic("BASIC", ":gpv_known"), Ok("known")),
            ("Bearer gpv_knowN".to_owned(), Err(Denied::Unknown)),
            (format!("Bearer {}", "x".repeat(5_000)), Err(Denied::Unknown)),
            (basic("Basic", "gpv_known"), Err(Denied::NoToken)),
            ("Basic gpv_known".to_owned(), Err(Denied::NoToken)),
            (basic("Digest", "anybody:gpv_known"), Err(Denied::NoToken)),
            ("gpv_known".to_owned(), Err(Denied::NoToken)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(tokens.check(&headers, TokenScope::Read), wanted, "{header}");
        }
    }

    #[test]
    fn a_file_has_a_token_on_each_line_comments_and_at_most_so_many() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let create = |name: &str| Tokens::create(&path, name, &[TokenScope::Publish], "now".to_owned());
        create("first").unwrap();
        let line = std::fs::read_to_string(&path).unwrap();
        let fill = |count: usize| {
            let lines = (0..count).map(|number| line.replacen("first", &format!("t{number}"), 1));
            let text = format!("# Comment.\n\n  {}", lines.collect::<String>());
            std::fs::write(&path, text).unwrap();
            Tokens::read(&path).map(|tokens| tokens.list().len())
        };
        assert!(matches!(fill(TOKENS_MAX + 1), Err(TokenError::TooMany(1_001))));
        assert_eq!(fill(TOKENS_MAX).unwrap(), TOKENS_MAX);
        assert!(matches!(create("another"), Err(TokenError::TooMany(1_001))));
        assert_eq!(Tokens::read(&path).unwrap().list().len(), TOKENS_MAX, "and the file stays as it is");
    }
}
