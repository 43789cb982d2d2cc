//! The content of quoted fields that have quotes inside.

use memchr::memchr;

/// `a""b` reads `a"b`.
pub(super) fn undoubled(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((head, tail)) = memchr(b'"', rest).and_then(|at| rest.split_at_checked(at + 1)) {
        text.extend_from_slice(head);
        rest = tail.strip_prefix(b"\"").unwrap_or(tail);
    }
    text.extend_from_slice(rest);
    text
}

/// `"ab"cd` reads `abcd`; a quote after the closing one is a character.
pub(super) fn mended(raw: &[u8]) -> Vec<u8> {
    let inner = raw.strip_prefix(b"\"").unwrap_or(raw);
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'"' {
            text.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'"') => text.push(b'"'),
            after => {
                text.extend(after);
                text.extend(bytes);
                break;
            }
        }
    }
    text
}
