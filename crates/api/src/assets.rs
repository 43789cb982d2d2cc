//! Files that are part of the program: the web page and Swagger UI, compressed when the program was built.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, VARY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::compress;
use crate::error::ApiError;
use crate::tag;

/// Largest file in bytes, decompressed.
const FILE_LEN_MAX: u64 = 64 << 20;

mod built {
    include!(concat!(env!("OUT_DIR"), "/page.rs"));
}

/// The files of the web page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    files: Arc<BTreeMap<String, Asset>>,
}

impl Page {
    /// The page that was there when the program was built (`dashboard/dist`); if none was, as [`Page::none`].
    pub fn embedded() -> Self {
        let files = built::FILES.iter().map(|(path, gzip)| ((*path).to_owned(), Asset::gzipped(path, gzip)));
        Self { files: Arc::new(files.collect()) }
    }

    /// No page: `/` explains in one sentence how to get one.
    pub fn none() -> Self {
        Self::default()
    }

    /// A page of these files: path without leading `/`, content. Files under `assets/` are taken never to change.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let files = files.into_iter().map(|(path, content)| (path.to_owned(), Asset::plain(path, content)));
        Self { files: Arc::new(files.collect()) }
    }

    /// The file of exactly that path. Nothing else is ever opened: no path leads out of the list.
    pub(crate) fn get(&self, path: &str) -> Option<&Asset> {
        self.files.get(path)
    }
}

/// For how long a client may keep a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// For ever: another content has another name.
    Immutable,
    /// As long as it asks whether it is still the same.
    Revalidate,
}

/// A file, compressed.
#[derive(Debug, Clone)]
pub(crate) struct Asset {
    gzip: Bytes,
    media_type: &'static str,
    etag: HeaderValue,
}

impl Asset {
    /// A file that is compressed already.
    pub(crate) fn gzipped(path: &str, gzip: &'static [u8]) -> Self {
        Self::of(path, Bytes::from_static(gzip))
    }

    /// A file that is not.
    pub(crate) fn plain(path: &str, content: &[u8]) -> Self {
        Self::of(path, compress::gzip(content).map(Bytes::from).unwrap_or_default())
    }

    fn of(path: &str, gzip: Bytes) -> Self {
        // A gzip file ends with checksum and length of its content, which identify a version.
        let tail = gzip.last_chunk::<8>().map_or(0, |tail| u64::from_be_bytes(*tail));
        let etag = HeaderValue::from_str(&format!("\"{tail:016x}\""));
        Self { gzip, media_type: media_type(path), etag: etag.unwrap_or(HeaderValue::from_static("\"\"")) }
    }

    /// The file, or that it is still the same.
    ///
    /// # Errors
    /// When it cannot be decompressed, which would be a defect.
    pub(crate) fn respond(&self, headers: &HeaderMap, keep: Keep) -> Result<Response, ApiError> {
        let same = tag::is_had(&self.etag, headers);
        let mut response = if same {
            StatusCode::NOT_MODIFIED.into_response()
        } else if compress::accepts_gzip(headers) {
            let mut response = Body::from(self.gzip.clone()).into_response();
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        } else {
            Body::from(self.content()?).into_response()
        };
        let keep = match keep {
            Keep::Immutable => "public, max-age=31536000, immutable",
            Keep::Revalidate => "no-cache",
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(ETAG, self.etag.clone());
        Ok(response)
    }

    fn content(&self) -> Result<Vec<u8>, ApiError> {
        let mut content = Vec::new();
        let mut reader = GzDecoder::new(self.gzip.as_ref()).take(FILE_LEN_MAX);
        reader.read_to_end(&mut content).map_err(ApiError::Compress)?;
        Ok(content)
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "yaml" => "application/yaml",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
