//! The JSON message that anyone may publish: `{"timestamp": RFC 3339, "fields": {name: value, …}}`, one, or
//! an array.
//!
//! [`crate::foreign::meaning`] interprets field names: identity, metrics under any known spelling, and
//! everything else under its own name. A bad message is refused with its place; its neighbours are taken.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use serde_json::{Map, Value as Json};

use crate::absence::AbsenceReason;
use crate::batch::{Batch, BatchBuilder, Origin, Value, ValueError, is_local, numbers, text_at};
use crate::catalogue::{MetricId, Table, second_by_dcgm};
use crate::foreign::{
    self, DialectColumn, Meaning, ToolField, Topic, absence, blank_float, blank_integer, gpu_rank, meaning,
    meaning_among, no_reading, scaled, vendor_of,
};
use crate::identity::{INDEX_COLUMN, Identity, IdentityColumn, IdentityError};
use crate::time::{self, TimeError};
use crate::wire::ROWS_MAX;

/// Largest JSON document in bytes.
pub const DOCUMENT_LEN_MAX: usize = 4 << 20;

/// Longest name in an error.
const NAME_LEN_MAX: usize = 64;

/// A refused document or message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Larger than [`DOCUMENT_LEN_MAX`].
    #[error("the document is {0} bytes, more than {DOCUMENT_LEN_MAX}")]
    TooLarge(usize),
    /// More messages than a batch may have rows.
    #[error("the document has {0} messages, more than {ROWS_MAX}")]
    TooMany(usize),
    /// Not JSON, or not a message or an array of them.
    #[error("this is no message {{\"timestamp\", \"fields\"}} and no array of them")]
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

/// The result of parsing a document.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The rows taken.
    pub batch: Option<Batch>,
    /// Index in the array and reason of each refused message.
    pub refused: Vec<(usize, MessageError)>,
    /// Values left out of rows that were taken.
    pub invalid: Vec<(usize, ValueError)>,
}

/// Parses a document into rows of `gpu_events` with `source = "json"` unless it names another.
///
/// # Errors
/// If it is too large, has too many messages or is not JSON of the right shape.
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
    if messages.len() > ROWS_MAX {
        return Err(MessageError::TooMany(messages.len()));
    }
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

/// A row of a batch as a message that [`parse`] reads as the same row, without columns that have no value or stay on their machine.
/// `None` if the batch has no such row.
pub fn render(batch: &Batch, row: usize) -> Option<Json> {
    let timestamp = time::format(*batch.timestamps().get(row)?);
    let mut fields = Map::new();
    let identity = batch.identity(row);
    if let Some(index) = identity.index {
        fields.insert(INDEX_COLUMN.to_owned(), index.into());
    }
    for column in IdentityColumn::ALL {
        if let Some(text) = identity.get(column) {
            fields.insert(column.name().to_owned(), text.into());
        }
    }
    for (metric, values) in batch.metrics() {
        if let Some(value) = values.value(row) {
            fields.insert(metric.metric().column.to_owned(), value.to_json());
        }
    }
    for (name, values) in batch.extras().filter(|(name, _)| !is_local(name)) {
        let number = numbers(values).and_then(|numbers| numbers.value(row));
        let text = values.as_dictionary_opt::<Int32Type>().and_then(|texts| text_at(texts, row));
        let value = number.map(Value::to_json).or_else(|| text.map(Json::from));
        fields.extend(value.map(|value| (name.to_owned(), value)));
    }
    Some(serde_json::json!({ "timestamp": timestamp, "fields": fields }))
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
    let identity = identity_of(fields)?;
    let topic = Topic::of(&fields.keys().map(String::as_str));
    let mut cells: Vec<(&str, MessageCell<'_>)> =
        fields.iter().filter_map(|(n, v)| Some((n.as_str(), cell(n, v, topic)?))).collect();
    distinct(&mut cells, fields);
    // A row needs at least one value: without one it says nothing, not even that the GPU was seen.
    if !cells.iter().any(|(_, cell)| cell.is_value()) {
        invalid.extend(cells.iter().filter_map(|(name, cell)| Some((index, cell.refusal(name)?))));
        return Err(MessageError::Empty);
    }
    // What belongs to the card is stored on the card, once for all its instances.
    let card = identity.card();
    let is_of_card = |name: &str, cell: &MessageCell<'_>| match *cell {
        MessageCell::Metric(id, _) | MessageCell::Absent(id, _) => {
            card.is_some() && foreign::is_of_card(id, name)
        }
        _ => false,
    };
    let has = |of_card| cells.iter().any(|(name, cell)| cell.is_value() && is_of_card(name, cell) == of_card);
    let mut row_of = |identity: &Identity| {
        let identity = builder.intern(identity);
        builder.row(timestamp, identity)
    };
    let own = has(false).then(|| row_of(&identity));
    let of_card = card.as_ref().filter(|_| has(true)).map(&mut row_of);
    let beside = message.as_object().into_iter().flat_map(Map::keys);
    let beside = beside.filter(|key| !matches!(key.as_str(), "timestamp" | "fields"));
    invalid.extend(beside.map(|key| (index, ValueError::Beside(key.chars().take(NAME_LEN_MAX).collect()))));
    for (name, cell) in &cells {
        let (first, second) = if is_of_card(name, cell) { (of_card, own) } else { (own, of_card) };
        let Some(row) = first.or(second) else { continue };
        let outcome = match *cell {
            MessageCell::Metric(id, value) => builder.set(row, id, value),
            MessageCell::Number(number) => builder.set_extra(row, name, number),
            MessageCell::Text(text) => builder.set_extra_text(row, name, text),
            MessageCell::Absent(id, reason) => {
                builder.absent(row, id, reason);
                cell.refusal(name).map_or(Ok(()), Err)
            }
            MessageCell::Nested | MessageCell::Reserved => cell.refusal(name).map_or(Ok(()), Err),
        };
        if let Err(error) = outcome {
            invalid.push((index, error));
        }
    }
    Ok(())
}

/// Gives each metric to one field. A shared DCGM name means the second of its metrics if the message has the first under
/// a name of its own. Of several fields with one meaning the one with the column's own name gets it, else the first; the
/// others are kept under their own names, as of a file.
fn distinct<'a>(cells: &mut Vec<(&'a str, MessageCell<'a>)>, fields: &'a Map<String, Json>) {
    let own: Vec<MetricId> = cells
        .iter()
        .filter(|(name, _)| second_by_dcgm(name).is_none())
        .filter_map(|(_, cell)| cell.id())
        .collect();
    for (name, cell) in cells.iter_mut() {
        if let MessageCell::Metric(id, _) = cell
            && own.contains(id)
            && let Some(second) = second_by_dcgm(name)
        {
            *id = second;
        }
    }
    cells.sort_by_key(|(name, cell)| cell.id().is_none_or(|id| id.metric().column != *name));
    let mut taken = Vec::with_capacity(cells.len());
    cells.retain_mut(|(name, cell)| {
        let Some(id) = cell.id() else { return true };
        if taken.contains(&id) {
            let kept = fields.get(*name).and_then(unknown);
            return kept.map(|kept| *cell = kept).is_some();
        }
        taken.push(id);
        true
    });
}

/// The content of a field.
#[derive(Debug, Clone, Copy)]
enum MessageCell<'a> {
    Metric(MetricId, Value),
    Absent(MetricId, AbsenceReason),
    Number(f64),
    Text(&'a str),
    /// An object or array under an unknown name: no table has a column for it.
    Nested,
    /// A value under a name that means something in other formats alone.
    Reserved,
}

impl MessageCell<'_> {
    /// The metric it has a value of.
    fn id(&self) -> Option<MetricId> {
        if let Self::Metric(id, _) = *self { Some(id) } else { None }
    }

    fn is_value(&self) -> bool {
        match *self {
            Self::Metric(id, value) => id.metric().admits(value.as_f64()),
            Self::Number(number) => number.is_finite(),
            Self::Text(_) => true,
            Self::Absent(..) | Self::Nested | Self::Reserved => false,
        }
    }

    /// The error, if this is not a usable value.
    fn refusal(&self, name: &str) -> Option<ValueError> {
        match *self {
            Self::Metric(id, value) => {
                let (column, value, (min, max)) = (id.metric().column, value.as_f64(), id.metric().range);
                Some(if value.is_finite() {
                    ValueError::OutOfRange { column, value, min, max }
                } else {
                    ValueError::NotFinite { column: column.to_owned() }
                })
            }
            Self::Absent(_, AbsenceReason::Invalid) => {
                Some(ValueError::NotNumber { column: name.to_owned() })
            }
            Self::Nested => Some(ValueError::Nested { column: name.to_owned() }),
            Self::Reserved => Some(ValueError::ExtraName(name.to_owned())),
            _ => None,
        }
    }
}

/// A field's value, if it belongs to a metric or an unknown column.
fn cell<'a>(name: &str, value: &'a Json, topic: Topic) -> Option<MessageCell<'a>> {
    let text = value.as_str().map(str::trim);
    let is_hosts = topic == Topic::Machine && foreign::is_anybodys_memory(name);
    let of_tool = foreign::nvidia_smi_column(name).filter(|_| !is_hosts);
    let meaning = match of_tool {
        Some(DialectColumn::Metric { id, field: Some(field), .. }) => return Some(worded(id, field, value)),
        Some(DialectColumn::Metric { id, factor, .. }) => Meaning::Metric(id, factor),
        _ => meaning_among(name, topic),
    };
    match meaning {
        Meaning::Metric(id, _) if value.is_null() || text.is_some_and(|text| no_reading(text).is_some()) => {
            let reason = text.and_then(no_reading).unwrap_or(AbsenceReason::NotSupported);
            Some(MessageCell::Absent(id, reason))
        }
        Meaning::Metric(id, factor) => Some(match number_of(id, value) {
            None => text
                .and_then(|text| foreign::number(text, id.metric()).ok())
                .map_or(MessageCell::Absent(id, AbsenceReason::Invalid), |number| {
                    MessageCell::Metric(id, number)
                }),
            Some(number) => {
                match blank(number, name).or(foreign::unread_by_dcgm(id, number.as_f64(), name)) {
                    Some(reason) => MessageCell::Absent(id, reason),
                    None => MessageCell::Metric(id, scaled(number, factor)),
                }
            }
        }),
        Meaning::Unknown => unknown(value),
        Meaning::Gpu | Meaning::Identity(_) => None,
        Meaning::Time | Meaning::MetricName | Meaning::MetricValue | Meaning::Labels => {
            (!value.is_null()).then_some(MessageCell::Reserved)
        }
    }
}

/// A value of a field that the tool spells with words or bits. A number stands for itself.
fn worded<'a>(id: MetricId, field: &ToolField, value: &'a Json) -> MessageCell<'a> {
    let reading = match value {
        Json::String(text) => match no_reading(text.trim()) {
            Some(reason) => Err(reason),
            None => field.value(text.trim(), None),
        },
        Json::Null => Err(AbsenceReason::NotSupported),
        Json::Array(_) | Json::Object(_) => return MessageCell::Nested,
        Json::Bool(_) | Json::Number(_) => number_of(id, value).ok_or(AbsenceReason::Invalid),
    };
    match reading {
        Ok(number) => MessageCell::Metric(id, number),
        Err(reason) => MessageCell::Absent(id, reason),
    }
}

/// The value of a field that is kept under its own name. A text stays one: `007` may be a name.
fn unknown(value: &Json) -> Option<MessageCell<'_>> {
    match value {
        Json::String(text) => {
            let text = text.trim();
            absence(text).is_none().then_some(MessageCell::Text(text))
        }
        Json::Bool(flag) => Some(MessageCell::Text(if *flag { "true" } else { "false" })),
        Json::Object(_) | Json::Array(_) => Some(MessageCell::Nested),
        _ => value.as_f64().map(MessageCell::Number),
    }
}

/// The reason, if the number is one of DCGM's blanks.
fn blank(number: Value, name: &str) -> Option<AbsenceReason> {
    match number {
        Value::Int(whole) => blank_integer(whole, foreign::is_dcgm(name)),
        other => blank_float(other.as_f64()),
    }
}

/// A number, also as text; `true` and `false` are 1 and 0 for a metric of two states and no number for any other.
fn number_of(id: MetricId, value: &Json) -> Option<Value> {
    let metric = id.metric();
    match value {
        Json::Number(number) => number.as_i64().map(Value::Int).or_else(|| number.as_f64().map(Value::Float)),
        Json::String(text) => {
            let text = text.trim();
            text.parse().ok().map(Value::Int).or_else(|| text.parse().ok().map(Value::Float))
        }
        Json::Bool(flag) if metric.is_flag() => Some(Value::Int(i64::from(*flag))),
        _ => None,
    }
}

fn identity_of(fields: &Map<String, Json>) -> Result<Identity, MessageError> {
    let mut identity = Identity::default();
    let mut gpu: Option<(usize, String)> = None;
    for (name, value) in fields {
        let (rank, meaning) = (gpu_rank(name), meaning(name));
        if rank.is_none() && !matches!(meaning, Meaning::Identity(_)) {
            continue;
        }
        let text = match value {
            Json::String(text) => text.trim().to_owned(),
            Json::Number(number) => number.to_string(),
            Json::Null => continue,
            // Without it the row would be filed under another GPU.
            _ => return Err(IdentityError::NotText { field: name.clone() }.into()),
        };
        if absence(&text).is_some() {
            continue;
        }
        match (rank, meaning) {
            (Some(rank), _) if gpu.as_ref().is_none_or(|(best, _)| rank < *best) => gpu = Some((rank, text)),
            (None, Meaning::Identity(column)) => identity.set(column, &text)?,
            _ => {}
        }
    }
    if let Some((_, text)) = gpu {
        identity.name_gpu(&text)?;
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
