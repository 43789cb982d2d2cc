//! Text in a URL.

use std::fmt::Write as _;

/// Percent-encoding of everything but unreserved characters (RFC 3986).
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~,".contains(&byte) {
            out.push(byte.into());
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}
