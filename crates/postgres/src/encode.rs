//! Rows of a table as PostgreSQL's binary COPY: rows of one key put together, in the order of their keys.
//!
//! The stream is the header, then for each row the number of its columns (16 bits) and each column as its length (32 bits, -1:
//! null) and its bytes, big endian, then -1 instead of a number of columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch};
use bytes::{BufMut, Bytes, BytesMut};
use foldhash::fast::RandomState;
use gpuvitals_core::batch::{
    MONOTONIC_COLUMN, MetricColumn, RowKeys, TIMESTAMP_COLUMN, Value, numbers, text_at,
};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::merge::{Merge, MergeError, Order, Overwritten};
use gpuvitals_core::{Batch, Identity, IdentityColumn, Origin, Table};

use crate::error::PostgresError;
use crate::schema::{self, ColumnKind, EXTRAS};

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Bytes after which a piece of the stream is handed over.
const PIECE_BYTES: usize = 256 << 10;

/// Rows of a table, each key once, by GPU and time.
#[derive(Debug)]
pub(crate) struct Gathered {
    batch: Batch,
    /// Of each row the place in `subjects`.
    owners: Vec<u32>,
    /// Names of the GPUs or hosts.
    pub(crate) subjects: Vec<Arc<str>>,
    /// Of each row the place in `identities`.
    whose: Vec<u32>,
    /// Identities of the rows, each once.
    pub(crate) identities: Vec<Arc<Identity>>,
    /// The rows that were put together although they differ.
    pub(crate) overwritten: Overwritten,
}

impl Gathered {
    /// Puts rows together, oldest arrival first; none if there are none.
    ///
    /// # Errors
    /// If a row names nobody, or columns of two batches do not fit together.
    pub(crate) fn new(table: Table, batches: &[&Batch]) -> Result<Option<Self>, PostgresError> {
        let refused = |error| PostgresError::Rows(table, error);
        let parts: Vec<RecordBatch> = batches.iter().map(|batch| batch.records().clone()).collect();
        let plan = Merge::plan(table, &parts, Order::GpuTime).map_err(refused)?;
        if plan.rows() == 0 {
            return Ok(None);
        }
        let merged = plan.batch(0..plan.rows()).map_err(refused)?;
        let overwritten = plan.overwritten();
        let keys = RowKeys::of(&merged, table);
        let keys = keys.map_err(|row| refused(MergeError::Nobody { part: 0, row: row.0 }))?;
        let batch = Batch::new(table, merged, Origin::default(), 0);
        let batch = batch.map_err(|error| PostgresError::Columns(table, error))?;
        let mut subjects = Vec::new();
        let owners = numbered(keys.ids.into_iter(), |id, _| {
            subjects.push(keys.keys.get(*id as usize).cloned().unwrap_or_default());
        });
        let (columns, mut identities) = (IdentityColumns::of(&batch), Vec::new());
        let codes = (0..batch.rows()).map(|row| columns.code(row));
        let whose = numbered(codes, |_, row| identities.push(Arc::new(batch.identity(row))));
        Ok(Some(Self { batch, owners, subjects, whose, identities, overwritten }))
    }

    /// The stream. The numbers are those of the subjects and identities.
    pub(crate) fn copy<'a>(&'a self, subjects: &'a [i32], identities: &'a [i32]) -> CopyStream<'a> {
        let records = self.batch.records();
        let all = records.schema_ref().fields().iter().zip(records.columns());
        let named = all.filter_map(|(field, array)| Some((field.name().as_str(), ColumnValues::of(array)?)));
        let mut names = vec!["subject_id", TIMESTAMP_COLUMN, "identity_id"];
        let (mut columns, mut extras) = (Vec::new(), Vec::new());
        for (name, values) in named {
            match schema::column(self.table(), name) {
                Some((name, kind)) => {
                    names.push(name);
                    columns.push((kind, values));
                }
                None if is_foreign(name) => extras.push((name, values)),
                None => {}
            }
        }
        names.extend((!extras.is_empty()).then_some(EXTRAS));
        let out = BytesMut::from(HEADER);
        CopyStream {
            gathered: self,
            subjects,
            identities,
            names,
            columns,
            extras,
            row: 0,
            out,
            has_ended: false,
        }
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// The first and the last time.
    pub(crate) fn span(&self) -> (i64, i64) {
        let times = self.batch.timestamps();
        let first = times.iter().copied().min().unwrap_or(0);
        (first, times.iter().copied().max().unwrap_or(first))
    }

    pub(crate) fn table(&self) -> Table {
        self.batch.table()
    }
}

/// The stream of some rows, in pieces.
pub(crate) struct CopyStream<'a> {
    gathered: &'a Gathered,
    subjects: &'a [i32],
    identities: &'a [i32],
    /// Names of its columns.
    pub(crate) names: Vec<&'static str>,
    columns: Vec<(ColumnKind, ColumnValues<'a>)>,
    extras: Vec<(&'a str, ColumnValues<'a>)>,
    row: usize,
    out: BytesMut,
    has_ended: bool,
}

impl CopyStream<'_> {
    /// Adds the next row.
    fn add(&mut self, time_ns: i64, width: i16) {
        let (row, out) = (self.row, &mut self.out);
        let number = |numbers: &[i32], places: &[u32]| {
            let place = places.get(row).and_then(|place| numbers.get(*place as usize));
            place.copied().unwrap_or_default()
        };
        let subject = number(self.subjects, &self.gathered.owners);
        let identity = number(self.identities, &self.gathered.whose);
        out.put_i16(width);
        put(out, &subject.to_be_bytes());
        put(out, &time_ns.to_be_bytes());
        put(out, &identity.to_be_bytes());
        for (kind, values) in &self.columns {
            put_value(out, *kind, values, row);
        }
        if !self.extras.is_empty() {
            put_extras(out, &self.extras, row);
        }
        self.row += 1;
    }
}

impl Iterator for CopyStream<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let width = i16::try_from(self.names.len()).unwrap_or(i16::MAX);
        self.out.reserve(PIECE_BYTES + 4096);
        while self.out.len() < PIECE_BYTES && !self.has_ended {
            if let Some(time_ns) = self.gathered.batch.timestamps().get(self.row) {
                self.add(*time_ns, width);
            } else {
                self.out.put_i16(-1);
                self.has_ended = true;
            }
        }
        Some(self.out.split().freeze())
    }
}

/// Numbers things from 0 in the order in which they are met; `new` is told of each new one and its row.
fn numbered<T: Eq + std::hash::Hash>(
    things: impl Iterator<Item = T>,
    mut new: impl FnMut(&T, usize),
) -> Vec<u32> {
    let mut known: HashMap<T, u32, RandomState> = HashMap::default();
    let number = |(row, thing): (usize, T)| {
        if let Some(&number) = known.get(&thing) {
            return number;
        }
        let number = u32::try_from(known.len()).unwrap_or(u32::MAX);
        new(&thing, row);
        known.insert(thing, number);
        number
    };
    things.enumerate().map(number).collect()
}

/// Whether a column that the table does not have is one that nobody knows.
fn is_foreign(name: &str) -> bool {
    ![TIMESTAMP_COLUMN, MONOTONIC_COLUMN, INDEX_COLUMN].contains(&name)
        && IdentityColumn::by_name(name).is_none()
}

/// The identity columns of a batch, to tell rows of one identity by small numbers.
struct IdentityColumns<'a> {
    texts: Vec<&'a Int32Array>,
    index: Option<&'a Int32Array>,
}

impl<'a> IdentityColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let texts = IdentityColumn::ALL.into_iter().filter_map(|column| batch.identity_column(column));
        let index =
            batch.records().column_by_name(INDEX_COLUMN).and_then(|c| c.as_primitive_opt::<Int32Type>());
        Self { texts: texts.map(DictionaryArray::keys).collect(), index }
    }

    fn code(&self, row: usize) -> Vec<Option<i32>> {
        let columns = self.texts.iter().copied().chain(self.index);
        columns.map(|keys| keys.is_valid(row).then(|| keys.value(row))).collect()
    }
}

/// Values of a column.
enum ColumnValues<'a> {
    Numbers(MetricColumn<'a>),
    Text(&'a DictionaryArray<Int32Type>),
}

impl<'a> ColumnValues<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        numbers(array).map(Self::Numbers).or_else(|| array.as_dictionary_opt().map(Self::Text))
    }
}

fn put(out: &mut BytesMut, value: &[u8]) {
    out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
    out.put_slice(value);
}

fn put_value(out: &mut BytesMut, kind: ColumnKind, values: &ColumnValues<'_>, row: usize) {
    match values {
        ColumnValues::Numbers(numbers) => match numbers.value(row) {
            Some(value) => put_number(out, kind, value),
            None => out.put_i32(-1),
        },
        ColumnValues::Text(texts) => match text_at(texts, row) {
            Some(text) => put(out, text.as_bytes()),
            None => out.put_i32(-1),
        },
    }
}

fn put_number(out: &mut BytesMut, kind: ColumnKind, value: Value) {
    match (kind.width(), value) {
        (4, Value::Int(value)) => put(out, &i32::try_from(value).unwrap_or_default().to_be_bytes()),
        (_, Value::Int(value)) => put(out, &value.to_be_bytes()),
        (_, Value::Float32(value)) => put(out, &value.to_be_bytes()),
        (_, Value::Float(value)) => put(out, &value.to_be_bytes()),
    }
}

/// An object with the foreign columns that the row has.
fn put_extras(out: &mut BytesMut, extras: &[(&str, ColumnValues<'_>)], row: usize) {
    let mut object = serde_json::Map::new();
    for (name, values) in extras {
        let value = match values {
            ColumnValues::Numbers(numbers) => numbers.value(row).map(Value::to_json),
            ColumnValues::Text(texts) => text_at(texts, row).map(Into::into),
        };
        if let Some(value) = value {
            object.insert((*name).to_owned(), value);
        }
    }
    if object.is_empty() {
        return out.put_i32(-1);
    }
    // The first byte is the version of jsonb's binary form.
    put(out, format!("\u{1}{}", serde_json::Value::Object(object)).as_bytes());
}
