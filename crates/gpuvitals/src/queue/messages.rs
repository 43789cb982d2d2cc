//! Frames opened for people: a line of JSON for each message, in the form that anyone may publish.

use gpuvitals_core::{causes, message, wire};
use gpuvitals_queue::{ContentType, Frame};
use serde_json::Value;

/// The messages of a frame.
///
/// # Errors
/// Why they cannot be read, in words.
pub(super) fn of(frame: &Frame) -> Result<Vec<String>, String> {
    let payload = gpuvitals_collect::unpacked(frame)?;
    match frame.content_type {
        ContentType::Batch => {
            let batch = wire::decode(&payload).map_err(|e| causes(&e))?;
            let rows = 0..batch.rows();
            Ok(rows.filter_map(|row| message::render(&batch, row)).map(|row| row.to_string()).collect())
        }
        ContentType::Json => {
            let document: Value = serde_json::from_slice(&payload).map_err(|e| e.to_string())?;
            let all = match document {
                Value::Array(all) => all,
                one => vec![one],
            };
            Ok(all.iter().map(Value::to_string).collect())
        }
    }
}
