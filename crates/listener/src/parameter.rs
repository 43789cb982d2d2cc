//! Parameters of requests: those that every service reads, and why one is refused.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use axum::extract::rejection::{PathRejection, QueryRejection};

use crate::echo;

/// Longest text about a query string, in characters.
const WORDS_MAX: usize = 1_024;

/// Why the parameters of a request are refused.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// A value is not allowed.
    #[error("{name} is {value:?}; allowed is {allowed}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// What was given, shortened.
        value: String,
        /// What may be given, in words.
        allowed: Cow<'static, str>,
    },
    /// One is unknown, or stands twice.
    #[error("{}", words(.0))]
    Query(#[from] QueryRejection),
    /// One in the path cannot be read.
    #[error("the path is not UTF-8 after decoding")]
    Path(#[from] PathRejection),
}

impl ParameterError {
    /// A parameter with a value that is not allowed.
    pub fn value(name: &'static str, value: &str, allowed: impl Into<Cow<'static, str>>) -> Self {
        Self::Value { name, value: echo(value), allowed: allowed.into() }
    }
}

/// The words about a query string. Axum puts its own before those of the parameter.
fn words(rejection: &QueryRejection) -> String {
    let text = rejection.body_text();
    let words = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
    words.chars().take(WORDS_MAX).collect()
}

/// A whole number, of digits alone.
///
/// # Errors
/// If it is none, or out of the range.
pub fn whole(name: &'static str, text: &str, range: RangeInclusive<usize>) -> Result<usize, ParameterError> {
    let is_digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_digits && range.contains(number));
    let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
    number.ok_or_else(|| ParameterError::value(name, text, allowed()))
}

/// `true` or `false`.
///
/// # Errors
/// If it is neither.
pub fn flag(name: &'static str, text: &str) -> Result<bool, ParameterError> {
    text.parse().map_err(|_| ParameterError::value(name, text, "true or false"))
}
