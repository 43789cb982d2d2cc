//! The keys of rows, as small integers: strings are compared once per dictionary value, never per row.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StringArray};
use foldhash::fast::RandomState;

use super::text_type;
use crate::IdentityColumn;

/// GPU keys of the rows of one batch: a number per row, and the text of each number. Two numbers may have the
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
#[error("row {0} names neither a GPU nor a node")]
pub struct KeylessRow(pub usize);

impl RowKeys {
    /// Keys of a batch: `uuid`, or `uuid:partition`; in a table without GPUs the node.
    ///
    /// # Errors
    /// The first row that has none.
    pub fn of(batch: &RecordBatch) -> Result<Self, KeylessRow> {
        let text = |column: IdentityColumn| {
            batch
                .column_by_name(column.name())
                .and_then(as_dictionary)
                .filter(|array| array.null_count() < array.len())
        };
        let Some(owner) = text(IdentityColumn::Uuid).or_else(|| text(IdentityColumn::Node)) else {
            return if batch.num_rows() == 0 {
                Ok(Self { ids: Vec::new(), keys: Vec::new() })
            } else {
                Err(KeylessRow(0))
            };
        };
        let owners = dictionary(&owner).ok_or(KeylessRow(0))?;
        let partitions = text(IdentityColumn::Partition);
        let partitions = partitions.as_ref().and_then(dictionary);
        // A few rows cut from many have a dictionary of all: then only theirs are looked at.
        if partitions.is_some() || owners.len() < owners.values().len() {
            Self::paired(owners, partitions)
        } else {
            Self::plain(owners)
        }
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
