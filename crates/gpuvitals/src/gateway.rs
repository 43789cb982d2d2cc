//! Section `gateway` of the configuration: where `gpuvitals serve` finds its collectors.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use gpuvitals_listener::client::{BearerToken, Credentials};
use gpuvitals_listener::{Authority, secret};
use gpuvitals_settings::{Refusal, Typed, Value, settings, text};

use crate::failure::{Exit, Failure};

/// Port of a collector that names none.
const COLLECTOR_PORT: u16 = 8080;

settings! {
    /// `gpuvitals serve`: the gateway to collectors elsewhere
    pub(crate) struct Gateway = "gateway", check Self::check {
        /// Collectors to ask: http:// or https://HOST:PORT, several with commas between them. A name with several addresses is as
        /// many collectors, and is looked up again every few seconds
        pub collectors: Vec<ServiceUrl> = ["http://127.0.0.1:8080"], flag "--collectors URLS";
        /// Longest wait for a collector; after it an answer goes without its rows, and names it
        pub timeout: Duration = "5s", from "100ms" to "1h";
        /// Authorities (PEM) that sign the collectors' certificates; empty: those of the system
        ca: Option<PathBuf> = "";
        /// Certificate chain (PEM) of the gateway, if the collectors ask for one
        client_cert: Option<PathBuf> = "";
        /// Its private key (PEM)
        client_key: Option<PathBuf> = "";
        /// File with the token that the collectors ask for, mode 0600
        token_file: Option<PathBuf> = "";
    }
}

impl Gateway {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        if self.collectors.is_empty() {
            return Err(Refusal::new("gateway.collectors", "it names no collector".to_owned()));
        }
        Refusal::unless_both(
            ("gateway.client_cert", &self.client_cert),
            ("gateway.client_key", &self.client_key),
        )
    }

    /// The gateway's credentials, read from their files.
    ///
    /// # Errors
    /// If the file of the token cannot be read, or others can read it.
    pub(crate) fn access(&self) -> Result<Credentials, Failure> {
        let read = |path: &PathBuf| BearerToken::read(path, "gateway.token_file");
        let token = self.token_file.as_ref().map(read).transpose();
        let token = token.map_err(|e| Failure::caused(Exit::Config, "configuration", e))?;
        if let Some(key) = &self.client_key {
            secret::warn_of_key(key);
        }
        let identity = self.client_cert.clone().zip(self.client_key.clone());
        Ok(Credentials { ca: self.ca.clone(), identity, token, ..Credentials::default() })
    }
}

/// The URL of a service: `http://host:port`, with TLS `https://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceUrl {
    pub(crate) tls: bool,
    pub(crate) authority: Authority,
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl FromStr for ServiceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            // The text is not repeated: it may hold a secret.
            _ => return Err("a collector's URL begins with http:// or https://".to_owned()),
        };
        if rest.contains('@') {
            return Err("the URL has a user in it; gateway.token_file names the file of a token".to_owned());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority = Authority::parse(rest, COLLECTOR_PORT).map_err(|error| error.to_string())?;
        Ok(Self { tls, authority })
    }
}

impl Typed for ServiceUrl {
    fn read(value: &Value) -> Result<Self, String> {
        text(value)?.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_collectors_are_read_and_written() {
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<ServiceUrl>().ok().map(|url| url.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check("http://a", Some("http://a:8080"));
        check("https://collector-0.b_c:1/", Some("https://collector-0.b_c:1"));
        check("http://[::1]", Some("http://[::1]:8080"));
        check("http://[::1]:7", Some("http://[::1]:7"));
        for text in [
            "a:8080",
            "grpc://a",
            "http://",
            "http://:1",
            "http://a:0",
            "http://a:x",
            "http://u:p@a",
            "http://a/b",
        ] {
            check(text, None);
        }
    }
}
