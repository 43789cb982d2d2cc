//! gzip, for clients that accept it.

use std::io::{self, Write};

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Content as a gzip file. Fast rather than small: a client waits for it.
///
/// # Errors
/// Never in memory.
pub(crate) fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(content.len() / 6 + 64), Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()
}

/// Whether a client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|offer| {
            let mut parts = offer.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts.any(|part| {
                part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0))
            });
            (name.eq_ignore_ascii_case("gzip") || name == "*") && !refused
        })
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn who_accepts_gzip() {
        let check = |value: &'static str, accepted| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), accepted, "{value}");
        };
        check("gzip", true);
        check("deflate, GZIP;q=0.5", true);
        check("*", true);
        check("br, gzip;q=0", false);
        check("identity", false);
        check("", false);
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
