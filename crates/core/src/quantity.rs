//! Durations, sizes and counts as people write them.

use std::time::Duration;

/// A text that is not a duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}")]
pub struct QuantityError {
    text: String,
    what: &'static str,
}

/// A duration: `500ms`, `30s`, `5m`, `1h`, `7d`; a bare number is seconds.
///
/// # Errors
/// If the text is not one, negative or beyond a century.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0), ("", 1.0)];
    scaled(text, &units)
        .filter(|seconds| *seconds <= 3.2e9)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| QuantityError {
            text: text.to_owned(),
            what: "duration; write 500ms, 30s, 5m, 1h or 7d",
        })
}

/// A size in bytes: `64KiB`, `256MiB`, `2GiB`, also `KB`, `MB`, `GB`; a bare number is bytes.
///
/// # Errors
/// If the text is not one, or negative.
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
        ("", 1.0),
    ];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    scaled(text, &units)
        .filter(|bytes| *bytes < 1e18)
        .map(|bytes| bytes as u64)
        .ok_or_else(|| QuantityError { text: text.to_owned(), what: "size; write 64KiB, 256MiB or 2GiB" })
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<f64>().ok().map(|n| n * factor)
}

/// `1 GPU`, `2 GPUs`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert!(duration("-1s").is_err() && duration("soon").is_err() && duration("").is_err());
        assert_eq!(bytes("64KiB"), Ok(65536));
        assert_eq!(bytes("2 GB"), Ok(2_000_000_000));
        assert!(bytes("lots").is_err());
    }
}
