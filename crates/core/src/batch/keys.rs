//! The keys of rows, as small integers: strings are compared once per dictionary value, never per row.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StringArray};
use foldhash::fast::RandomState;

use super::{Value, text_type};
use crate::{IdentityColumn, Table};

/// Keys of the GPUs or hosts of the rows of one batch: a number per row, and the text of each number. Two numbers may have the
/// same text.
#[derive(Debug, Default)]
pub struct RowKeys {
    /// Per row, an index into `keys`.
    pub ids: Vec<u32>,
    /// Key texts. Some may belong to no row.
    pub keys: Vec<Arc<str>>,
}

/// A row without a key, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("row {0} does not name its GPU or host")]
pub struct KeylessRow(pub usize);

impl RowKeys {
    /// Keys of a table's rows: `uuid`, or `uuid:partition`; in a table without GPUs the node, whatever else they say.
    ///
    /// # Errors
    /// The first row that has none.
    pub fn of(batch: &RecordBatch, table: Table) -> Result<Self, KeylessRow> {
        let text = |column: IdentityColumn| {
            batch
                .column_by_name(column.name())
                .and_then(as_dictionary)
                .filter(|array| array.null_count() < array.len())
        };
        let subject = table.subject();
        let Some(owner) = text(subject) else {
            return if batch.num_rows() == 0 {
                Ok(Self { ids: Vec::new(), keys: Vec::new() })
            } else {
                Err(KeylessRow(0))
            };
        };
        let owners = dictionary(&owner).ok_or(KeylessRow(0))?;
        let partitions = if subject == IdentityColumn::Uuid { text(IdentityColumn::Partition) } else { None };
        let partitions = partitions.as_ref().and_then(dictionary);
        // A few rows cut from many have a dictionary of all: then only theirs are looked at.
        if partitions.is_some() || owners.len() < owners.values().len() {
            Self::paired(owners, partitions)
        } else {
            Self::plain(owners)
        }
    }

    /// The columns of a table's key beside subject and time, as one text a row; none if it has none.
    pub fn rest(batch: &RecordBatch, table: Table) -> Option<Self> {
        table.key().next()?;
        let array = |array: &ArrayRef| as_dictionary(array).unwrap_or_else(|| Arc::clone(array));
        let columns: Vec<Option<ArrayRef>> =
            table.key().map(|column| batch.column_by_name(column.name).map(array)).collect();
        let mut known: HashMap<Arc<str>, u32, RandomState> = HashMap::default();
        let mut rest = Self { ids: Vec::with_capacity(batch.num_rows()), keys: Vec::new() };
        let mut key = String::new();
        for row in 0..batch.num_rows() {
            key.clear();
            for column in &columns {
                push_part(&mut key, column.as_ref(), row);
            }
            let id = known.get(key.as_str()).copied().unwrap_or_else(|| {
                let (id, key) = (u32::try_from(rest.keys.len()).unwrap_or(u32::MAX), Arc::from(key.as_str()));
                rest.keys.push(Arc::clone(&key));
                known.insert(key, id);
                id
            });
            rest.ids.push(id);
        }
        Some(rest)
    }

    /// The whole key of each row but its time: two rows of one time with the same text are one row. The texts are in the
    /// order of the GPU keys.
    ///
    /// # Errors
    /// As [`RowKeys::of`].
    pub fn whole(batch: &RecordBatch, table: Table) -> Result<Self, KeylessRow> {
        let subjects = Self::of(batch, table)?;
        let Some(rest) = Self::rest(batch, table) else { return Ok(subjects) };
        let mut known: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut whole = Self { ids: Vec::with_capacity(batch.num_rows()), keys: Vec::new() };
        for pair in subjects.ids.into_iter().zip(rest.ids) {
            let id = *known.entry(pair).or_insert_with(|| {
                let text = |keys: &[Arc<str>], id: u32| keys.get(id as usize).cloned().unwrap_or_default();
                let (subject, rest) = (text(&subjects.keys, pair.0), text(&rest.keys, pair.1));
                whole.keys.push(Arc::from(format!("{subject}{rest}")));
                u32::try_from(whole.keys.len() - 1).unwrap_or(u32::MAX)
            });
            whole.ids.push(id);
        }
        Ok(whole)
    }

    /// Rows that all belong to one GPU.
    pub fn one(key: &Arc<str>, rows: usize) -> Self {
        Self { ids: vec![0; rows], keys: vec![Arc::clone(key)] }
    }

    fn plain(owners: &DictionaryArray<Int32Type>) -> Result<Self, KeylessRow> {
        let texts = texts(owners);
        let holes = owners.null_count() > 0
            || texts.is_none_or(|texts| texts.iter().any(|text| text.is_none_or(str::is_empty)));
        if let Some(row) =
            holes.then(|| (0..owners.len()).find(|&row| text(owners, texts, row).is_none())).flatten()
        {
            return Err(KeylessRow(row));
        }
        let ids = owners.keys().values().iter().map(|&key| u32::try_from(key).unwrap_or(u32::MAX)).collect();
        let keys =
            texts.map_or_else(Vec::new, |texts| texts.iter().map(|t| Arc::from(t.unwrap_or(""))).collect());
        Ok(Self { ids, keys })
    }

    fn paired(
        owners: &DictionaryArray<Int32Type>,
        partitions: Option<&DictionaryArray<Int32Type>>,
    ) -> Result<Self, KeylessRow> {
        let (owner_texts, partition_texts) = (texts(owners), partitions.and_then(texts));
        let mut known: HashMap<(Option<usize>, Option<usize>), u32, RandomState> = HashMap::default();
        let mut whole = Self { ids: Vec::with_capacity(owners.len()), keys: Vec::new() };
        let mut last = None;
        for row in 0..owners.len() {
            let pair = (owners.key(row), partitions.and_then(|partitions| partitions.key(row)));
            let id = if let Some((seen, id)) = last
                && seen == pair
            {
                id
            } else if let Some(&id) = known.get(&pair) {
                id
            } else {
                let owner = text(owners, owner_texts, row).ok_or(KeylessRow(row))?;
                let id = u32::try_from(whole.keys.len()).unwrap_or(u32::MAX);
                whole.keys.push(
                    match partitions.and_then(|partitions| text(partitions, partition_texts, row)) {
                        None => Arc::from(owner),
                        Some(partition) => Arc::from(format!("{owner}:{partition}")),
                    },
                );
                known.insert(pair, id);
                id
            };
            last = Some((pair, id));
            whole.ids.push(id);
        }
        Ok(whole)
    }
}

/// A text column as dictionary, whether it is one or holds plain strings; `None` if it is no text.
pub fn as_dictionary(array: &ArrayRef) -> Option<ArrayRef> {
    if *array.data_type() == text_type() {
        return Some(Arc::clone(array));
    }
    let strings = array.as_string_opt::<i32>()?;
    Some(Arc::new(strings.iter().collect::<DictionaryArray<Int32Type>>()))
}

/// Adds a column's part of a key. No name of a GPU or host has a control character, so texts never run into each other;
/// numbers have one width, so they sort as texts.
fn push_part(key: &mut String, column: Option<&ArrayRef>, row: usize) {
    key.push('\0');
    let Some(column) = column else { return };
    let number = super::numbers(column).and_then(|numbers| numbers.value(row));
    if let Some(Value::Int(number)) = number {
        // A string takes everything.
        let _written = write!(key, "{number:020}");
    } else if let Some(texts) = column.as_dictionary_opt::<Int32Type>() {
        key.push_str(super::text_at(texts, row).unwrap_or_default());
    }
}

fn dictionary(array: &ArrayRef) -> Option<&DictionaryArray<Int32Type>> {
    array.as_dictionary_opt::<Int32Type>()
}

fn texts(array: &DictionaryArray<Int32Type>) -> Option<&StringArray> {
    array.values().as_string_opt::<i32>()
}

fn text<'a>(
    array: &DictionaryArray<Int32Type>,
    texts: Option<&'a StringArray>,
    row: usize,
) -> Option<&'a str> {
    let texts = texts?;
    let key = array.key(row)?;
    // An empty text is none, as in `Identity`.
    (key < texts.len() && texts.is_valid(key)).then(|| texts.value(key)).filter(|text| !text.is_empty())
}
