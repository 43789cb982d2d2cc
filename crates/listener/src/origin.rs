//! Pages of other sites: which of them may use a service from a browser.

use gpuvitals_settings::{Typed, Value, text};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request};
use tower_http::cors::{Any, CorsLayer};

use crate::host::OwnNames;

/// In this header a browser says how the page of a request relates to the service. Pages cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The origin of a page: `https://host` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(HeaderValue);

impl Typed for WebOrigin {
    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_origin = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ']));
        let header = HeaderValue::from_str(&text).ok().filter(|_| is_origin);
        header
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no origin; write https://host or https://host:port"))
    }
}

/// Lets pages of these origins send requests and read the answers, those that refuse among them. Their browser sends neither cookies
/// nor a login with them; a token has to be in the header `authorization`.
pub(crate) fn cors(origins: &[WebOrigin]) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(origins.iter().map(|origin| origin.0.clone()).collect::<Vec<_>>())
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        .allow_headers([AUTHORIZATION, CONTENT_TYPE])
        .expose_headers(Any)
}

/// The origin of a foreign page that wants to change something and may not. A browser sends such a request with the login of its
/// user and from the address of this machine, so neither tokens nor a loopback address keep it out.
///
/// The owner of a host name can point it at 127.0.0.1; the browser then treats both as one site (DNS rebinding). So on a loopback port
/// (`names` are those of its machine) a page over plain HTTP is foreign unless its host is one of them.
pub(crate) fn foreign<'a, B>(
    request: &'a Request<B>,
    allowed: &[WebOrigin],
    names: Option<&OwnNames>,
) -> Option<&'a HeaderValue> {
    let headers = request.headers();
    let is_rebound = names.zip(headers.get(ORIGIN)).is_some_and(|(names, origin)| is_foreign(origin, names));
    let is_own_page = || headers.get(FETCH_SITE).is_some_and(|site| site == "same-origin" || site == "none");
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        || !is_rebound && is_own_page()
    {
        return None;
    }
    let is_allowed = |origin: &&HeaderValue| allowed.iter().any(|allowed| allowed.0 == **origin);
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| host_of(headers));
    let is_same = |origin: &&HeaderValue| {
        let text = origin.as_bytes();
        let named = text.strip_prefix(b"https://").or_else(|| text.strip_prefix(b"http://"));
        named.is_some() && named == host
    };
    headers.get(ORIGIN).filter(|origin| !is_allowed(origin) && (is_rebound || !is_same(origin)))
}

/// Whether an origin over plain HTTP is a name that somebody else may own.
fn is_foreign(origin: &HeaderValue, names: &OwnNames) -> bool {
    let Some(authority) = origin.to_str().ok().and_then(|text| text.strip_prefix("http://")) else {
        return false;
    };
    let host = authority
        .parse()
        .map_or_else(|_| authority.to_owned(), |authority: Authority| authority.host().to_owned());
    !names.has(&host)
}

fn host_of(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(HOST).map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostName;

    #[test]
    fn an_origin_is_a_scheme_with_a_host() {
        for good in ["https://ops.example", "http://127.0.0.1:5173"] {
            assert!(WebOrigin::read(&good.into()).is_ok(), "{good}");
        }
        for wrong in
            ["ops.example", "*", "https://", "https://a/", "https://*.a", "ftp://a", "https://a b", ""]
        {
            let refused = WebOrigin::read(&wrong.into()).unwrap_err();
            assert!(refused.contains("https://host:port"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn only_changes_by_pages_of_other_sites_are_foreign() {
        let friend = WebOrigin::read(&"https://ops.example".into()).unwrap();
        let is_foreign = |method: &str, headers: &[(&str, &str)]| {
            let mut request =
                Request::builder().method(method).uri("/topics/t/dead").header(HOST, "queue:9090");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let friend = std::slice::from_ref(&friend);
            foreign(&request.body(()).unwrap(), friend, None).is_some()
        };
        let evil = ("origin", "https://evil.example");
        for method in ["POST", "DELETE", "PUT"] {
            assert!(is_foreign(method, &[evil]));
            assert!(is_foreign(method, &[evil, ("sec-fetch-site", "cross-site")]));
            assert!(is_foreign(method, &[("origin", "null")]));
            assert!(is_foreign(method, &[("origin", "http://queue:9091"), ("sec-fetch-site", "same-site")]));
            assert!(!is_foreign(method, &[]), "no browser");
            assert!(!is_foreign(
                method,
                &[("origin", "https://ops.example"), ("sec-fetch-site", "cross-site")]
            ));
            assert!(!is_foreign(method, &[("origin", "http://queue:9090")]));
            // Behind a proxy that ends TLS under a name of its own.
            assert!(!is_foreign(method, &[("origin", "https://front"), ("sec-fetch-site", "same-origin")]));
        }
        assert!(!is_foreign("GET", &[evil]));
    }

    #[test]
    fn a_name_that_means_this_machine_makes_no_page_its_own() {
        let friend = WebOrigin::read(&"http://ops.example:8081".into()).unwrap();
        let names = OwnNames::new(&[HostName::read(&"gpu.example".into()).unwrap()]);
        let is_foreign = |host: &str, origin: &str, is_loopback: bool| {
            let request = Request::builder().method("POST").header(HOST, host).header(ORIGIN, origin);
            let request = request.header(FETCH_SITE, "same-origin").body(()).unwrap();
            foreign(&request, std::slice::from_ref(&friend), is_loopback.then_some(&names)).is_some()
        };
        assert!(is_foreign("evil.example:8081", "http://evil.example:8081", true));
        assert!(is_foreign("evil.example", "http://evil.example", true));
        assert!(!is_foreign("evil.example:8081", "http://evil.example:8081", false), "a name of the network");
        let own = [
            "localhost:8081",
            "a.localhost",
            "127.0.0.1:8081",
            "[::1]:8081",
            "ops.example:8081",
            "gpu.example",
        ];
        for own in own {
            assert!(!is_foreign(own, &format!("http://{own}"), true), "{own}");
        }
        assert!(!is_foreign("front", "https://front", true), "a proxy that ends TLS");
    }
}
