//! Numbers that nvidia-smi reports as whole ones, in JSON.

use serde::Serializer;

/// A number as an integer.
///
/// # Errors
/// The serializer's.
pub fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded, and what is beyond the integers becomes the last of them"
    )]
    serializer.serialize_i64(value.round() as i64)
}

/// The same; null for none.
///
/// # Errors
/// The serializer's.
pub fn option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}
