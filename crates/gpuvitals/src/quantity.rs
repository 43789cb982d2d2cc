//! Durations and sizes in flags and configuration.

use std::time::Duration;

use gpuvitals_core::quantity::{bytes, duration};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::failure::{Exit, Failure};

/// The duration that a flag was given.
///
/// # Errors
/// When it is none.
pub(crate) fn flag(name: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|error| Failure::new(Exit::Usage, format!("{name}: {error}")))
}

/// Reads a [`duration`] in a configuration.
///
/// # Errors
/// When the text is no duration.
pub(crate) fn deserialize_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration(&text_or_number(deserializer)?).map_err(D::Error::custom)
}

/// Reads [`bytes()`] in a configuration.
///
/// # Errors
/// When the text is no size.
pub(crate) fn deserialize_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bytes(&text_or_number(deserializer)?).map_err(D::Error::custom)
}

/// A word that may be `on` or `off`, which YAML takes for a truth value where nobody quotes it.
pub(crate) fn deserialize_word<'de, T: serde::de::DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let word = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Bool(is) => serde_json::Value::from(if is { "on" } else { "off" }),
        word => word,
    };
    serde_json::from_value(word).map_err(D::Error::custom)
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format!("{other} is neither text nor number"))),
    }
}
