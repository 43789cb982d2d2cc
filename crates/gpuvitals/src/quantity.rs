//! Durations in flags.

use std::time::Duration;

use gpuvitals_core::quantity::duration;

use crate::failure::{Exit, Failure};

/// The duration that a flag was given.
///
/// # Errors
/// When it is none.
pub(crate) fn flag(name: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|error| Failure::new(Exit::Usage, format!("{name}: {error}")))
}
