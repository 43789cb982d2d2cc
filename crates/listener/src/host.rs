//! The names that a request may address a service by.
//!
//! The owner of a host name can point it at 127.0.0.1 (DNS rebinding): to a browser, the owner's page and a service on loopback are then
//! one site. The service knows such a request by the name that it is addressed by.

use std::net::IpAddr;

use gpuvitals_settings::{Typed, Value, text};
use http::header::HOST;
use http::{Request, Version};

use crate::answer::echo;
use crate::authority::Authority;

/// A host name, in lower case, without a final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    fn new(text: &str) -> Self {
        Self(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase())
    }

    /// The name of this machine; none if it has none.
    pub(crate) fn of_machine() -> Option<Self> {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        Some(Self::new(name.trim())).filter(|name| !name.0.is_empty())
    }

    /// Whether nobody else can own it: `localhost` or an address.
    fn is_local(&self) -> bool {
        let Self(name) = self;
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        name == "localhost" || name.ends_with(".localhost") || address.parse::<IpAddr>().is_ok()
    }
}

impl Typed for HostName {
    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        let can_be = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if text.trim_matches('.').is_empty() || !text.chars().all(can_be) {
            return Err(format!(
                "{text:?} is no host name; write it without a scheme and a port: gpu.example.org"
            ));
        }
        Ok(Self::new(&text))
    }
}

/// Names of this machine, and those of the setting `listener.hosts`.
#[derive(Debug, Clone)]
pub(crate) struct OwnNames(Vec<HostName>);

/// A request that a service on loopback does not answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misdirected {
    /// It is not clear which host it is for.
    #[error("the request must name its host once, in the header Host or in :authority")]
    Unclear,
    /// It is for another host.
    #[error(
        "this service listens on loopback without tokens, and {0:?} is no name of this machine; if a proxy or a port forward uses that \
         name, add it to the setting listener.hosts"
    )]
    Foreign(String),
}

impl OwnNames {
    pub(crate) fn new(hosts: &[HostName]) -> Self {
        Self(HostName::of_machine().into_iter().chain(hosts.iter().cloned()).collect())
    }

    /// Whether a host, as an authority has it, is this machine.
    pub(crate) fn has(&self, host: &str) -> bool {
        let host = HostName::new(host);
        host.is_local() || self.0.contains(&host)
    }

    /// Checks the host that a request is for: every place that names one has to name this machine.
    ///
    /// # Errors
    /// When there is none, it is given twice, or it is another.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Misdirected> {
        let mut named = request.headers().get_all(HOST).iter();
        let (header, is_double) = (named.next(), named.next().is_some());
        let target = request.uri().authority();
        // In HTTP/2, `:authority` stands for the header.
        let needs_header = request.version() < Version::HTTP_2 || target.is_none();
        if is_double || header.is_none() && needs_header {
            return Err(Misdirected::Unclear);
        }
        let header = header.map(|header| header.to_str().map_err(|_| Misdirected::Unclear)).transpose()?;
        for text in header.into_iter().chain(target.map(http::uri::Authority::as_str)) {
            // The port makes no difference.
            let Authority { host, .. } = Authority::parse(text, 80).map_err(|_| Misdirected::Unclear)?;
            if !self.has(&host) {
                return Err(Misdirected::Foreign(echo(&host)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_host_of_this_machine_once() {
        let hosts = [HostName::read(&"GPU.example.org".into()).unwrap()];
        let names = OwnNames::new(&hosts);
        let check = |version: Version, uri: &str, hosts: &[&[u8]]| {
            let mut request = Request::builder().version(version).uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            names.check(&request.body(()).unwrap())
        };
        let machine = HostName::of_machine().unwrap().0.to_uppercase();
        let own =
            ["localhost", "LocalHost:8081", "a.localhost.", "127.0.0.1:1", "[::1]", "[::1]:8081", "10.0.0.1"];
        for own in own.into_iter().chain(["gpu.example.org:443", "gpu.example.org.", &machine]) {
            assert_eq!(check(Version::HTTP_11, "/", &[own.as_bytes()]), Ok(()), "{own}");
            assert_eq!(check(Version::HTTP_2, &format!("http://{own}/"), &[]), Ok(()), "{own}");
        }
        let evil = [
            "evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example:80",
            "a.gpu.example.org",
        ];
        for evil in evil {
            let foreign = |found| matches!(found, Err(Misdirected::Foreign(host)) if evil.starts_with(&host));
            assert!(foreign(check(Version::HTTP_11, "/", &[evil.as_bytes()])), "{evil}");
            assert!(foreign(check(Version::HTTP_2, &format!("http://{evil}/"), &[])), "{evil}");
            // The target of a proxy's request counts, too.
            assert!(foreign(check(Version::HTTP_11, &format!("http://{evil}/"), &[b"localhost"])), "{evil}");
            assert!(foreign(check(Version::HTTP_2, "http://localhost/", &[evil.as_bytes()])), "{evil}");
        }
        let unclear: [&[&[u8]]; 7] = [
            &[],
            &[b"localhost", b"localhost"],
            &[b""],
            &[b"a b"],
            &[b"\xff"],
            &[b"localhost:x"],
            &[b"evil.example@localhost"],
        ];
        for hosts in unclear {
            assert_eq!(check(Version::HTTP_11, "/", hosts), Err(Misdirected::Unclear), "{hosts:?}");
        }
        assert_eq!(check(Version::HTTP_10, "/", &[]), Err(Misdirected::Unclear));
        assert_eq!(check(Version::HTTP_2, "/", &[]), Err(Misdirected::Unclear));
    }

    #[test]
    fn a_host_of_the_setting_is_a_name_alone() {
        for wrong in ["", ".", "http://a", "a:80", "a/b", "*.a", "a b"] {
            let refused = HostName::read(&wrong.into()).unwrap_err();
            assert!(refused.contains("gpu.example.org"), "{wrong}: {refused}");
        }
    }
}
