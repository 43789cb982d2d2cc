//! What is said of the files of a flight recorder.

use gpuvitals_flight::FlightError;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::table::text;

/// Why something cannot be done.
pub(super) fn failure(error: FlightError) -> Failure {
    match error {
        FlightError::Io { action, path, source } => {
            Failure::io(format!("cannot {action} {}", path.display()), source)
        }
        FlightError::Unknown { .. }
        | FlightError::Torn { .. }
        | FlightError::Begun { .. }
        | FlightError::NoRing { .. }
        | FlightError::BundleName { .. }
        | FlightError::BundleLength { .. } => Failure::new(Exit::Usage, error.to_string()),
        FlightError::Json { .. } | FlightError::Later { .. } | FlightError::Batch(_) => {
            Failure::caused(Exit::Data, "cannot read the incident", error)
        }
        _ => Failure::caused(Exit::Io, "cannot use the flight recorder", error),
    }
}

/// A text that is shown on a terminal, whoever wrote it.
pub(super) fn safe(words: &str) -> String {
    text(&words.into())
}

/// JSON for people and programs.
///
/// # Errors
/// When it cannot be written, which would be a defect.
pub(super) fn pretty(value: &Value) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| format!("{text}\n"))
        .map_err(|error| Failure::caused(Exit::Bug, "cannot write JSON", error))
}
