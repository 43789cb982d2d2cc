//! Entity tags: a name of the bytes of an answer, so that who has them is not sent them again.

use std::hash::BuildHasher as _;

use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue};

/// The tag of these bytes.
pub(crate) fn of(body: &[u8]) -> HeaderValue {
    let hash = foldhash::quality::FixedState::default().hash_one(body);
    HeaderValue::from_str(&format!("\"{hash:016x}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether a client has what has this tag.
pub(crate) fn is_had(tag: &HeaderValue, headers: &HeaderMap) -> bool {
    let named = headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let mut named = named.flat_map(|tags| tags.split(',')).map(str::trim);
    named.any(|one| one == "*" || one.trim_start_matches("W/").as_bytes() == tag.as_bytes())
}
