//! The name of a GPU's files.

use std::fmt::Write as _;

use crate::error::JsonlError;

const EXTENSION: &str = ".jsonl";
/// Between the GPU and the number of a full file.
const NUMBER_MARK: char = '~';
/// Longest name that file systems take, less the mark and the longest number.
const STEM_LEN_MAX: usize = 255 - EXTENSION.len() - 21;

/// The first part of the names of a GPU's files; different keys have different ones.
///
/// # Errors
/// If it is too long for a file name.
pub(crate) fn stem(gpu: &str) -> Result<String, JsonlError> {
    let mut stem = String::with_capacity(gpu.len());
    for byte in gpu.bytes() {
        // A leading dot would hide the file.
        if byte.is_ascii_alphanumeric() || b"-_@+".contains(&byte) || byte == b'.' && !stem.is_empty() {
            stem.push(byte.into());
        } else {
            let _written = write!(stem, "%{byte:02X}");
        }
    }
    if stem.len() > STEM_LEN_MAX {
        return Err(JsonlError::NameTooLong { gpu: gpu.to_owned(), len: stem.len(), max: STEM_LEN_MAX });
    }
    Ok(stem)
}

/// The file that grows.
pub(crate) fn current(stem: &str) -> String {
    format!("{stem}{EXTENSION}")
}

/// Name of the full file with that number, from 1.
pub(crate) fn full(stem: &str, number: u64) -> String {
    format!("{stem}{NUMBER_MARK}{number:08}{EXTENSION}")
}

/// Whose full file that is, and its number; also of one that was packed since (`.jsonl.gz`).
pub(crate) fn full_file(name: &str) -> Option<(&str, u64)> {
    let (stem, rest) = name.split_once(NUMBER_MARK)?;
    let (number, _) = rest.split_once(EXTENSION)?;
    Some((stem, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_two_keys_never_share_one() {
        for (key, name) in [
            ("gpu_0", "gpu_0.jsonl"),
            ("gpu_0@node-1.example.org", "gpu_0@node-1.example.org.jsonl"),
            ("GPU-5fd4f087:3", "GPU-5fd4f087%3A3.jsonl"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd.jsonl"),
            ("a%2Fb", "a%252Fb.jsonl"),
            ("a~00000001", "a%7E00000001.jsonl"),
            ("", ".jsonl"),
        ] {
            assert_eq!(current(&stem(key).unwrap()), name);
        }
        assert!(matches!(stem(&"x".repeat(300)), Err(JsonlError::NameTooLong { len: 300, .. })));
    }

    #[test]
    fn full_files_are_recognised_packed_or_not() {
        let name = full(&stem("gpu_0@n1").unwrap(), 7);
        assert_eq!(name, "gpu_0@n1~00000007.jsonl");
        assert_eq!(full_file(&name), Some(("gpu_0@n1", 7)));
        assert_eq!(full_file("gpu_0@n1~123456789.jsonl.gz"), Some(("gpu_0@n1", 123_456_789)));
        assert_eq!([full_file("gpu_0@n1.jsonl"), full_file("notes~1")], [None, None]);
    }
}
