//! Compression, for clients that accept it: zstd where they can, else gzip.

use std::io::{self, Write};

use axum::http::header::ACCEPT_ENCODING;
use axum::http::{HeaderMap, HeaderValue};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::accept::offers;

/// Level of zstd: faster than gzip's fastest, and smaller.
const ZSTD_LEVEL: i32 = 1;

/// How content is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    /// As it is.
    Plain,
    /// A gzip file.
    Gzip,
    /// A zstd frame.
    Zstd,
}

impl Encoding {
    /// The best that a client accepts.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        if accepts(headers, "zstd") {
            Self::Zstd
        } else if accepts_gzip(headers) {
            Self::Gzip
        } else {
            Self::Plain
        }
    }

    /// Its name in a header; none: as it is.
    pub(crate) fn name(self) -> Option<HeaderValue> {
        match self {
            Self::Plain => None,
            Self::Gzip => Some(HeaderValue::from_static("gzip")),
            Self::Zstd => Some(HeaderValue::from_static("zstd")),
        }
    }

    /// The content, compressed. Fast rather than small: a client waits for it.
    ///
    /// # Errors
    /// Never in memory.
    pub(crate) fn pack(self, content: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(content),
            Self::Gzip => gzip(&content),
            Self::Zstd => zstd::bulk::compress(&content, ZSTD_LEVEL),
        }
    }
}

/// Content as a gzip file.
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
    accepts(headers, "gzip") || accepts(headers, "*")
}

fn accepts(headers: &HeaderMap, way: &str) -> bool {
    offers(headers, ACCEPT_ENCODING).any(|(name, _)| name.eq_ignore_ascii_case(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_what() {
        let check = |value: &'static str, accepted| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(Encoding::accepted(&headers), accepted, "{value}");
        };
        check("gzip", Encoding::Gzip);
        check("deflate, GZIP;q=0.5", Encoding::Gzip);
        check("gzip, deflate, br, zstd", Encoding::Zstd);
        check("gzip, zstd;q=0", Encoding::Gzip);
        check("*", Encoding::Gzip);
        check("br, gzip;q=0", Encoding::Plain);
        check("identity", Encoding::Plain);
        check("", Encoding::Plain);
        assert_eq!(Encoding::accepted(&HeaderMap::new()), Encoding::Plain);
    }
}
