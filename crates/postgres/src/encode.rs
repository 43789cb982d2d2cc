//! Rows of a table as PostgreSQL's binary COPY: rows of one key put together, in the order of their keys.
//!
//! The stream is the header, then for each row the number of its columns (16 bits) and each column as its length (32 bits, -1:
//! null) and its bytes, big endian, then -1 instead of a number of columns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array};
use bytes::{BufMut, Bytes, BytesMut};
use foldhash::fast::RandomState;
use gpuvitals_core::batch::{
    MONOTONIC_COLUMN, MetricColumn, RowKeys, TIMESTAMP_COLUMN, Value, numbers, text_at,
};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Batch, Identity, IdentityColumn, Table};

use crate::error::PostgresError;
use crate::schema::{self, EXTRAS, Kind};

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Bytes after which a piece of the stream is handed over.
const PIECE_BYTES: usize = 256 << 10;

/// Keys of batches of one table.
#[derive(Debug)]
pub(crate) struct Keyed<'a> {
    table: Table,
    batches: Vec<(&'a Batch, RowKeys)>,
    /// Every subject once.
    pub(crate) subjects: Vec<Arc<str>>,
}

/// A row of a batch, with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pick {
    subject: i32,
    time_ns: i64,
    rest: u32,
    batch: u32,
    row: u32,
    identity: u32,
}

impl Pick {
    fn key(self) -> (i32, i64, u32) {
        (self.subject, self.time_ns, self.rest)
    }
}

/// Rows of a table, sorted by key and arrival.
#[derive(Debug)]
pub(crate) struct Gathered<'a> {
    table: Table,
    batches: Vec<&'a Batch>,
    picks: Vec<Pick>,
    /// The place in `identities` of each distinct key's row.
    whose: Vec<u32>,
    /// Every identity once.
    pub(crate) identities: Vec<Arc<Identity>>,
}

impl<'a> Keyed<'a> {
    /// # Errors
    /// If a row names nobody.
    pub(crate) fn new(table: Table, batches: &[&'a Batch]) -> Result<Self, PostgresError> {
        let keyed = batches.iter().map(|batch| {
            let keys = RowKeys::of(batch.records(), table);
            Ok((*batch, keys.map_err(|row| PostgresError::Nobody(table, row))?))
        });
        let batches = keyed.collect::<Result<Vec<_>, _>>()?;
        let used = batches.iter().flat_map(|(_, keys)| {
            let ids: BTreeSet<u32> = keys.ids.iter().copied().collect();
            ids.into_iter().filter_map(|id| keys.keys.get(id as usize))
        });
        let subjects: BTreeSet<&Arc<str>> = used.collect();
        let subjects = subjects.into_iter().cloned().collect();
        Ok(Self { table, batches, subjects })
    }

    /// The rows in order. `numbers` are those of the subjects.
    pub(crate) fn gather(self, numbers: &[i32]) -> Gathered<'a> {
        let by_name: HashMap<&str, i32, RandomState> =
            self.subjects.iter().map(AsRef::as_ref).zip(numbers.iter().copied()).collect();
        let mut rests: HashMap<Arc<str>, u32, RandomState> = HashMap::default();
        let mut identities = Identities::default();
        let mut picks = Vec::new();
        for ((batch, keys), number) in self.batches.iter().zip(0_u32..) {
            let subjects: Vec<i32> =
                keys.keys.iter().map(|key| by_name.get(key.as_ref()).copied().unwrap_or_default()).collect();
            let rest = RowKeys::rest(batch.records(), self.table);
            let rest_numbers: Vec<u32> = rest
                .iter()
                .flat_map(|rest| &rest.keys)
                .map(|key| {
                    let next = number_of(rests.len());
                    *rests.entry(Arc::clone(key)).or_insert(next)
                })
                .collect();
            let columns = IdentityColumns::of(batch);
            let mut last = None;
            let rows = batch.timestamps().iter().zip(&keys.ids).zip(0_u32..);
            for ((&time_ns, &subject), row) in rows {
                let place = row as usize;
                let rest = rest.as_ref().and_then(|rest| rest.ids.get(place));
                let rest = rest.and_then(|id| rest_numbers.get(*id as usize)).copied().unwrap_or(0);
                let code = columns.code(place);
                let identity = match &last {
                    Some((seen, identity)) if *seen == code => *identity,
                    _ => identities.of_row(batch, number, place, &code),
                };
                last = Some((code, identity));
                let subject = subjects.get(subject as usize).copied().unwrap_or_default();
                picks.push(Pick { subject, time_ns, rest, batch: number, row, identity });
            }
        }
        picks.sort_unstable();
        let groups = picks.chunk_by(|a, b| a.key() == b.key());
        let whose = groups.map(|group| identities.merged(group)).collect();
        Gathered {
            table: self.table,
            batches: self.batches.into_iter().map(|(batch, _)| batch).collect(),
            picks,
            whose,
            identities: identities.all,
        }
    }
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

/// Identities, each once.
#[derive(Debug, Default)]
struct Identities {
    all: Vec<Arc<Identity>>,
    index: HashMap<Arc<Identity>, u32, RandomState>,
    codes: HashMap<(u32, Vec<Option<i32>>), u32, RandomState>,
}

impl Identities {
    fn of_row(&mut self, batch: &Batch, number: u32, row: usize, code: &[Option<i32>]) -> u32 {
        if let Some(&known) = self.codes.get(&(number, code.to_owned())) {
            return known;
        }
        let place = self.intern(batch.identity(row));
        self.codes.insert((number, code.to_owned()), place);
        place
    }

    fn intern(&mut self, identity: Identity) -> u32 {
        let identity = Arc::new(identity);
        if let Some(&known) = self.index.get(&identity) {
            return known;
        }
        let place = number_of(self.all.len());
        self.all.push(Arc::clone(&identity));
        self.index.insert(identity, place);
        place
    }

    /// The identity of rows that are one: of each column the last text.
    fn merged(&mut self, group: &[Pick]) -> u32 {
        let first = group.first().map_or(0, |pick| pick.identity);
        if group.iter().all(|pick| pick.identity == first) {
            return first;
        }
        let mut merged = Identity::default();
        for identity in group.iter().filter_map(|pick| self.all.get(pick.identity as usize)) {
            for column in IdentityColumn::ALL {
                if let Some(text) = identity.get(column) {
                    // It comes from an identity.
                    let _taken = merged.set(column, text);
                }
            }
            merged.index = identity.index.or(merged.index);
        }
        self.intern(merged)
    }
}

/// Values of a column of one batch.
enum Values<'a> {
    Numbers(MetricColumn<'a>),
    Text(&'a DictionaryArray<Int32Type>),
}

impl<'a> Values<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        numbers(array).map(Self::Numbers).or_else(|| array.as_dictionary_opt().map(Self::Text))
    }
}

/// A column of the stream, as each batch has it.
struct Column<'a>(Kind, Vec<Option<Values<'a>>>);

impl<'a> Gathered<'a> {
    /// The stream in pieces, with the names of its columns. `numbers` are those of the identities.
    pub(crate) fn copy(&self, numbers: &[i32]) -> (Vec<&'static str>, Vec<Bytes>) {
        let columns = self.columns();
        let extras = self.extras();
        let mut names = vec!["subject_id", TIMESTAMP_COLUMN, "identity_id"];
        names.extend(columns.keys());
        let has_extras = extras.iter().any(|columns| !columns.is_empty());
        names.extend(has_extras.then_some(EXTRAS));
        let width = i16::try_from(names.len()).unwrap_or(i16::MAX);
        let (mut pieces, mut out) = (Vec::new(), BytesMut::with_capacity(PIECE_BYTES + 4096));
        out.put_slice(HEADER);
        let groups = self.picks.chunk_by(|a, b| a.key() == b.key());
        for (group, identity) in groups.zip(&self.whose) {
            let Some(first) = group.first() else { continue };
            out.put_i16(width);
            put(&mut out, &first.subject.to_be_bytes());
            put(&mut out, &first.time_ns.to_be_bytes());
            put(&mut out, &numbers.get(*identity as usize).copied().unwrap_or_default().to_be_bytes());
            for Column(kind, batches) in columns.values() {
                put_value(&mut out, *kind, batches, group);
            }
            if has_extras {
                put_extras(&mut out, &extras, group);
            }
            if out.len() >= PIECE_BYTES {
                pieces.push(out.split().freeze());
            }
        }
        out.put_i16(-1);
        pieces.push(out.freeze());
        (names, pieces)
    }

    /// The columns that a batch has, by name.
    fn columns(&self) -> BTreeMap<&'static str, Column<'a>> {
        let mut columns: BTreeMap<&'static str, Column<'a>> = BTreeMap::new();
        for (place, batch) in self.batches.iter().enumerate() {
            for (field, array) in batch.records().schema_ref().fields().iter().zip(batch.records().columns())
            {
                let Some((name, kind)) = schema::column(self.table, field.name()) else { continue };
                let column = columns.entry(name).or_insert_with(|| {
                    Column(kind, std::iter::repeat_with(|| None).take(self.batches.len()).collect())
                });
                if let Some(values) = column.1.get_mut(place) {
                    *values = Values::of(array);
                }
            }
        }
        columns
    }

    /// Of each batch the columns that the table does not have.
    fn extras(&self) -> Vec<Vec<(&'a str, Values<'a>)>> {
        let of_batch = |batch: &&'a Batch| {
            let records = batch.records();
            let columns = records.schema_ref().fields().iter().zip(records.columns());
            let foreign = columns.filter(|(field, _)| {
                let name = field.name().as_str();
                let is_common = [TIMESTAMP_COLUMN, MONOTONIC_COLUMN, INDEX_COLUMN].contains(&name);
                !is_common
                    && IdentityColumn::by_name(name).is_none()
                    && schema::column(self.table, name).is_none()
            });
            foreign.filter_map(|(field, array)| Some((field.name().as_str(), Values::of(array)?))).collect()
        };
        self.batches.iter().map(of_batch).collect()
    }

    /// Times of the rows.
    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        self.picks.iter().map(|pick| pick.time_ns)
    }

    /// How many rows there are, each key once.
    pub(crate) fn rows(&self) -> usize {
        self.whose.len()
    }

    /// The table.
    pub(crate) fn table(&self) -> Table {
        self.table
    }
}

fn put(out: &mut BytesMut, value: &[u8]) {
    out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
    out.put_slice(value);
}

/// The last value of a column that one of the rows has.
fn put_value(out: &mut BytesMut, kind: Kind, batches: &[Option<Values<'_>>], group: &[Pick]) {
    for pick in group.iter().rev() {
        match batches.get(pick.batch as usize).and_then(Option::as_ref) {
            Some(Values::Numbers(numbers)) => {
                let Some(value) = numbers.value(pick.row as usize) else { continue };
                return put_number(out, kind, value);
            }
            Some(Values::Text(texts)) => {
                let Some(text) = text_at(texts, pick.row as usize) else { continue };
                return put(out, text.as_bytes());
            }
            None => {}
        }
    }
    out.put_i32(-1);
}

fn put_number(out: &mut BytesMut, kind: Kind, value: Value) {
    match (kind.width(), value) {
        (4, Value::Int(value)) => put(out, &i32::try_from(value).unwrap_or_default().to_be_bytes()),
        (_, Value::Int(value)) => put(out, &value.to_be_bytes()),
        (_, Value::Float32(value)) => put(out, &value.to_be_bytes()),
        (_, Value::Float(value)) => put(out, &value.to_be_bytes()),
    }
}

/// An object with the last value of each foreign column that one of the rows has.
fn put_extras(out: &mut BytesMut, batches: &[Vec<(&str, Values<'_>)>], group: &[Pick]) {
    let mut object = serde_json::Map::new();
    for pick in group {
        for (name, values) in batches.get(pick.batch as usize).into_iter().flatten() {
            let value = match values {
                Values::Numbers(numbers) => numbers.value(pick.row as usize).map(Value::to_json),
                Values::Text(texts) => text_at(texts, pick.row as usize).map(Into::into),
            };
            if let Some(value) = value {
                object.insert((*name).to_owned(), value);
            }
        }
    }
    if object.is_empty() {
        return out.put_i32(-1);
    }
    // The first byte is the version of jsonb's binary form.
    put(out, format!("\u{1}{}", serde_json::Value::Object(object)).as_bytes());
}

fn number_of(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
