//! Host and port of a service, as its URL has them.

use std::fmt;
use std::net::Ipv6Addr;

/// Host and port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Name or address, without brackets.
    pub host: String,
    /// Port of TCP.
    pub port: u16,
}

/// A text that is not host and port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not HOST or HOST:PORT")]
pub struct AuthorityError(pub String);

impl Authority {
    /// `host:port`, or `host` with this port; an IPv6 address is in brackets.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str, port: u16) -> Result<Self, AuthorityError> {
        Self::parts(text, port).ok_or_else(|| AuthorityError(text.to_owned()))
    }

    fn parts(text: &str, port: u16) -> Option<Self> {
        let (host, after) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let can_be = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let port = if after.is_empty() { port } else { after.strip_prefix(':')?.parse().ok()? };
        let is_valid = !host.is_empty() && host.chars().all(can_be) && port > 0;
        is_valid.then(|| Self { host: host.to_owned(), port })
    }
}

/// `host:port`, an IPv6 address in brackets.
impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
