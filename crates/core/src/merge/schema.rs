//! One schema for parts whose schemas differ.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::batch::{TIMESTAMP_COLUMN, as_dictionary, text_type, type_of, widened};
use crate::catalogue;
use crate::identity::INDEX_COLUMN;
use crate::{IdentityColumn, Table};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use foldhash::fast::RandomState;

use super::MergeError;

/// A column of the result, as the parts have it, in one type.
#[derive(Debug)]
pub(crate) enum UnifiedColumn {
    /// Numbers, all of the one Arrow type.
    Numbers(Vec<Option<ArrayRef>>, DataType),
    /// Keys into the one set of texts.
    Text(Vec<Option<Int32Array>>, ArrayRef),
}

/// The columns of the result.
#[derive(Debug)]
pub(crate) struct UnifiedColumns {
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Vec<UnifiedColumn>,
}

/// Place of a column in every schema: time, index, identity, the table's own, metrics in catalogue order, the rest by
/// name.
fn place(table: Table, name: &str) -> (u8, usize) {
    if name == TIMESTAMP_COLUMN {
        (0, 0)
    } else if name == INDEX_COLUMN {
        (1, 0)
    } else if let Some(column) = IdentityColumn::by_name(name) {
        (2, column as usize)
    } else if let Some(own) = table.columns().iter().position(|column| column.name == name) {
        (3, own)
    } else if let Some(id) = catalogue::by_column(name) {
        (4, usize::from(id.0))
    } else {
        (5, 0)
    }
}

/// Type a column has in the table; foreign columns are text as soon as one part has text.
fn wanted(table: Table, name: &str, is_text: bool) -> DataType {
    type_of(table, name).unwrap_or_else(|| if is_text { text_type() } else { DataType::Float64 })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Dictionary(_, _))
}

impl UnifiedColumns {
    pub(crate) fn unify(table: Table, parts: &[RecordBatch]) -> Result<Self, MergeError> {
        type FoundColumn<'a> = (&'a FieldRef, bool, Vec<Option<&'a ArrayRef>>);
        let mut found: BTreeMap<((u8, usize), &str), FoundColumn<'_>> = BTreeMap::new();
        let mut places: HashMap<&str, (u8, usize), RandomState> = HashMap::default();
        for (part, batch) in parts.iter().enumerate() {
            for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                let name = field.name().as_str();
                let place = *places.entry(name).or_insert_with(|| place(table, name));
                let (_, text, arrays) =
                    found.entry((place, name)).or_insert_with(|| (field, false, vec![None; parts.len()]));
                *text |= is_text(field.data_type());
                if let Some(slot) = arrays.get_mut(part) {
                    *slot = Some(array);
                }
            }
        }
        let mut fields = Vec::with_capacity(found.len());
        let mut columns = Vec::with_capacity(found.len());
        for ((_, name), (first, text, arrays)) in found {
            let wanted = wanted(table, name, text);
            columns.push(if wanted == text_type() {
                unify_text(name, &arrays)?
            } else {
                let same: Result<Vec<_>, _> = arrays
                    .iter()
                    .map(|array| array.map(|array| widen(name, array, &wanted)).transpose())
                    .collect();
                UnifiedColumn::Numbers(same?, wanted.clone())
            });
            // A store keeps the rows of thousands of GPUs: they share the description of a column, 150 bytes.
            let field = Field::new(name, wanted, name != TIMESTAMP_COLUMN);
            fields.push(if **first == field { Arc::clone(first) } else { Arc::new(field) });
        }
        Ok(Self { schema: Arc::new(Schema::new(fields)), columns })
    }
}

/// Numbers in a wider type. A column that the catalogue has narrowed is refused: a stored value is never
/// truncated.
///
/// # Errors
/// If it does not fit.
pub fn widen(name: &str, array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, MergeError> {
    widened(array, wanted).ok_or_else(|| MergeError::Type {
        column: name.to_owned(),
        found: array.data_type().clone(),
        wanted: wanted.clone(),
    })
}

/// A text column as dictionary; `None` if it is no text. Numbers become their shortest decimal spelling.
pub fn as_text(array: &ArrayRef) -> Option<ArrayRef> {
    if let Some(text) = as_dictionary(array) {
        return Some(text);
    }
    let numbers = widen("", array, &DataType::Float64).ok()?;
    let spelt =
        numbers.as_primitive::<Float64Type>().iter().map(|value| value.map(|value| value.to_string()));
    let strings: StringArray = spelt.collect();
    Some(Arc::new(strings.iter().collect::<DictionaryArray<Int32Type>>()))
}

/// One set of texts for all parts.
fn unify_text(name: &str, arrays: &[Option<&ArrayRef>]) -> Result<UnifiedColumn, MergeError> {
    let refuse = |array: &ArrayRef| MergeError::Type {
        column: name.to_owned(),
        found: array.data_type().clone(),
        wanted: text_type(),
    };
    let mut dictionaries = Vec::with_capacity(arrays.len());
    for array in arrays {
        dictionaries.push(match array {
            None => None,
            Some(array) => Some(as_text(array).ok_or_else(|| refuse(array))?),
        });
    }
    // One part's texts stay as they are, unless most belong to no row.
    if let [Some(only)] = dictionaries.as_slice()
        && let Some(only) = only.as_dictionary_opt::<Int32Type>()
        && only.values().len() <= only.len()
    {
        return Ok(UnifiedColumn::Text(vec![Some(only.keys().clone())], Arc::clone(only.values())));
    }
    let mut texts: Vec<&str> = Vec::new();
    let mut index: HashMap<&str, i32, RandomState> = HashMap::default();
    let mut keys = Vec::with_capacity(arrays.len());
    let mut last: Option<(&ArrayRef, Vec<Option<i32>>)> = None;
    for array in &dictionaries {
        let Some((dictionary, values)) = array.as_ref().and_then(|array| {
            let dictionary = array.as_dictionary_opt::<Int32Type>()?;
            Some((dictionary, dictionary.values().as_string_opt::<i32>()?))
        }) else {
            keys.push(None);
            continue;
        };
        if array.as_ref().is_some_and(|array| array.len() < values.len()) {
            keys.push(Some(intern_rows(dictionary, values, &mut texts, &mut index)));
            continue;
        }
        // Batches of one source share their texts more often than not.
        if !matches!(&last, Some((seen, _)) if Arc::ptr_eq(seen, dictionary.values())) {
            let map = values
                .iter()
                .map(|text| {
                    let text = text?;
                    let next = i32::try_from(texts.len()).unwrap_or(i32::MAX);
                    Some(*index.entry(text).or_insert_with(|| {
                        texts.push(text);
                        next
                    }))
                })
                .collect();
            last = Some((dictionary.values(), map));
        }
        let map = last.as_ref().map_or(&[][..], |(_, map)| map.as_slice());
        keys.push(Some(remap(dictionary.keys(), map)));
    }
    Ok(UnifiedColumn::Text(keys, Arc::new(StringArray::from_iter_values(texts))))
}

/// Keys of a few rows that were cut from many, without a look at the texts of the others.
fn intern_rows<'a>(
    dictionary: &'a DictionaryArray<Int32Type>,
    values: &'a StringArray,
    texts: &mut Vec<&'a str>,
    index: &mut HashMap<&'a str, i32, RandomState>,
) -> Int32Array {
    let mut last: Option<(usize, Option<i32>)> = None;
    let rows = dictionary.keys_iter().map(|key| {
        let key = key?;
        if let Some((seen, new)) = last
            && seen == key
        {
            return new;
        }
        let new = (key < values.len() && values.is_valid(key)).then(|| {
            let text = values.value(key);
            let next = i32::try_from(texts.len()).unwrap_or(i32::MAX);
            *index.entry(text).or_insert_with(|| {
                texts.push(text);
                next
            })
        });
        last = Some((key, new));
        new
    });
    rows.collect()
}

fn remap(keys: &Int32Array, map: &[Option<i32>]) -> Int32Array {
    if (0_i32..).zip(map).all(|(old, new)| *new == Some(old)) {
        return keys.clone();
    }
    let new = |key: i32| usize::try_from(key).ok().and_then(|key| map.get(key).copied().flatten());
    if map.iter().all(Option::is_some) {
        // Keys under nulls may be anything.
        return keys.unary(|key| new(key).unwrap_or(0));
    }
    keys.iter().map(|key| key.and_then(new)).collect()
}
