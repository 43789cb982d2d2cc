//! Attributes are written as a list of pairs.

/// `key=value,key=value`, both percent-encoded.
///
/// # Errors
/// The first entry that is not a pair.
pub(super) fn attributes(text: &str) -> Result<Vec<(String, String)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (key, value) = entry.split_once('=').ok_or_else(|| entry.to_owned())?;
            let key = key.trim();
            if key.is_empty() {
                return Err(entry.to_owned());
            }
            Ok((decoded(key), decoded(value.trim())))
        })
        .collect()
}

/// Without percent-encoding; anything else stays.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        // A sign would be read as part of a number.
        let hex = hex.filter(|hex| *first == b'%' && hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
