//! The URL of a service, as a setting names it.

use std::fmt;
use std::str::FromStr;

use gpuvitals_settings::{Typed, Value, text};

use crate::authority::Authority;

/// The URL of a service: `http://host:port`, with TLS `https://`. One that names no port has this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrl<const PORT: u16> {
    /// Whether it is reached by TLS.
    pub tls: bool,
    /// Where it is.
    pub authority: Authority,
}

impl<const PORT: u16> fmt::Display for ServiceUrl<PORT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl<const PORT: u16> FromStr for ServiceUrl<PORT> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            // The text is not repeated: it may hold a secret.
            _ => return Err("a service's URL begins with http:// or https://".to_owned()),
        };
        if rest.contains('@') {
            let why =
                "the URL has a user in it; the setting that ends with token_file names the file of a token";
            return Err(why.to_owned());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority = Authority::parse(rest, PORT).map_err(|error| error.to_string())?;
        Ok(Self { tls, authority })
    }
}

impl<const PORT: u16> Typed for ServiceUrl<PORT> {
    fn read(value: &Value) -> Result<Self, String> {
        text(value)?.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_services_are_read_and_written() {
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<ServiceUrl<8080>>().ok().map(|url| url.to_string());
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
