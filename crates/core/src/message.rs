//! The JSON message anyone may publish: `{"timestamp": RFC 3339, "fields": {name: value, …}}`, one, or an array.
//!
//! Field names are read as [`crate::foreign::meaning`] says: identity, metrics under any known spelling, and
//! whatever else there is under its own name. A bad message is refused with its place; its neighbours are taken.

use serde_json::{Map, Value as Json};

use crate::batch::{Batch, BatchBuilder, Origin, Value, ValueError};
use crate::catalogue::Table;
use crate::foreign::{Meaning, meaning, vendor_of};
use crate::identity::{Identity, IdentityColumn, IdentityError};
use crate::time::{self, TimeError};

/// Largest JSON document in bytes.
pub const DOCUMENT_LEN_MAX: usize = 4 << 20;

/// Why a document or a message in it is refused.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Larger than [`DOCUMENT_LEN_MAX`].
    #[error("the document is {0} bytes, more than {DOCUMENT_LEN_MAX}")]
    TooLarge(usize),
    /// Not JSON, or not a message or an array of them.
    #[error("not a message {{\"timestamp\", \"fields\"}} or an array of them")]
    Shape(#[source] Option<serde_json::Error>),
    /// Not a time.
    #[error("timestamp: {0}")]
    Time(#[from] TimeError),
    /// Not a GPU.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// None of its fields has a value.
    #[error("no field has a value that can be stored")]
    Empty,
}

/// What became of a document.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The rows that were taken.
    pub batch: Option<Batch>,
    /// Index in the array and reason of each message that was refused.
    pub refused: Vec<(usize, MessageError)>,
    /// Values that were left out of a row that was taken.
    pub invalid: Vec<(usize, ValueError)>,
}

/// Parses a document into rows of `gpu_events` with `source = "json"` unless it names another.
///
/// # Errors
/// When it is too large or no JSON of the right shape.
pub fn parse(document: &[u8], origin: Origin, sequence: u64) -> Result<Parsed, MessageError> {
    if document.len() > DOCUMENT_LEN_MAX {
        return Err(MessageError::TooLarge(document.len()));
    }
    let json: Json = serde_json::from_slice(document).map_err(|e| MessageError::Shape(Some(e)))?;
    let messages = match json {
        Json::Array(messages) => messages,
        message @ Json::Object(_) => vec![message],
        _ => return Err(MessageError::Shape(None)),
    };
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut parsed = Parsed::default();
    for (index, message) in messages.into_iter().enumerate() {
        if let Err(error) = add(&mut builder, &message, index, &mut parsed.invalid) {
            parsed.refused.push((index, error));
        }
    }
    parsed.batch = builder.finish(origin, sequence);
    Ok(parsed)
}

/// The message of one row of a batch: its identity and its values by column name.
pub fn render(batch: &Batch, row: usize) -> Json {
    let mut fields = Map::new();
    let identity = batch.identity(row);
    for column in IdentityColumn::ALL {
        if let Some(text) = identity.get(column) {
            fields.insert(column.name().to_owned(), text.into());
        }
    }
    if let Some(index) = identity.index {
        fields.insert(crate::identity::INDEX_COLUMN.to_owned(), index.into());
    }
    for (id, column) in batch.metrics() {
        if let Some(value) = column.value(row) {
            fields.insert(id.metric().column.to_owned(), value.to_json());
        }
    }
    let timestamp = batch.timestamps().get(row).copied().map(time::format);
    serde_json::json!({ "timestamp": timestamp, "fields": fields })
}

fn add(
    builder: &mut BatchBuilder,
    message: &Json,
    index: usize,
    invalid: &mut Vec<(usize, ValueError)>,
) -> Result<(), MessageError> {
    let timestamp = match message.get("timestamp") {
        Some(Json::String(text)) => time::parse(text)?,
        Some(Json::Number(number)) => time::parse(&number.to_string())?,
        _ => return Err(MessageError::Shape(None)),
    };
    let Some(Json::Object(fields)) = message.get("fields") else { return Err(MessageError::Shape(None)) };
    let identity = builder.intern(&identity_of(fields)?);
    let valued = fields.iter().any(|(name, value)| {
        matches!(meaning(name), Meaning::Metric(..) | Meaning::Unknown) && !matches!(value, Json::Null)
    });
    if !valued {
        return Err(MessageError::Empty);
    }
    let row = builder.row(timestamp, identity);
    for (name, value) in fields {
        let outcome = match (meaning(name), value) {
            (Meaning::Metric(id, factor), value) => {
                number_of(value).map(|number| builder.set(row, id, scaled(number, factor)))
            }
            (Meaning::Unknown, Json::String(text)) => match text.trim().parse::<f64>() {
                Ok(number) => Some(builder.set_extra(row, name, number)),
                Err(_) => Some(builder.set_extra_text(row, name, text)),
            },
            (Meaning::Unknown, value) => number_of(value).map(|n| builder.set_extra(row, name, n.as_f64())),
            _ => None,
        };
        if let Some(Err(error)) = outcome {
            invalid.push((index, error));
        }
    }
    Ok(())
}

fn scaled(value: Value, factor: f64) -> Value {
    #[expect(clippy::float_cmp, reason = "exactly one means: leave the number as it came")]
    if factor == 1.0 { value } else { Value::Float(value.as_f64() * factor) }
}

fn number_of(value: &Json) -> Option<Value> {
    match value {
        Json::Number(number) => number.as_i64().map(Value::Int).or_else(|| number.as_f64().map(Value::Float)),
        Json::String(text) => text.trim().parse().ok().map(Value::Float),
        Json::Bool(flag) => Some(Value::Int(i64::from(*flag))),
        _ => None,
    }
}

fn identity_of(fields: &Map<String, Json>) -> Result<Identity, MessageError> {
    let mut identity = Identity::default();
    for (name, value) in fields {
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            _ => continue,
        };
        match meaning(name) {
            Meaning::Gpu => match text.parse::<i32>() {
                Ok(number) => identity.index = Some(number),
                Err(_) if identity.uuid().is_none() => identity.set(IdentityColumn::Uuid, &text)?,
                Err(_) => {}
            },
            Meaning::Identity(column) => identity.set(column, &text)?,
            _ => {}
        }
    }
    if identity.get(IdentityColumn::Source).is_none() {
        identity.set(IdentityColumn::Source, "json")?;
    }
    if identity.get(IdentityColumn::Vendor).is_none()
        && let Some(vendor) = identity.get(IdentityColumn::Model).and_then(vendor_of)
    {
        identity.set(IdentityColumn::Vendor, vendor)?;
    }
    identity.resolve()?;
    Ok(identity)
}
