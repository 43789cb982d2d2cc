//! Joins several batches into one: fewer, larger batches are cheaper to transfer.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, new_null_array};
use arrow_schema::{Field, Schema};

use super::{Batch, MONOTONIC_COLUMN, text_at, text_type};
use crate::absence::{Absence, AbsenceReason};
use crate::catalogue::MetricId;

impl Batch {
    /// The rows of several batches of one table, in their order, as one batch; none if there is no batch, or
    /// two have different tables or hold one column in different types. A column that only some have is null
    /// in the others' rows; the monotonic clock is left out unless all have it. Origin and sequence are those
    /// of the last.
    pub fn concat(batches: &[Self]) -> Option<Self> {
        let (last, others) = batches.split_last()?;
        if others.is_empty() {
            return Some(last.clone());
        }
        if others.iter().any(|batch| batch.table != last.table) {
            return None;
        }
        let mut fields: Vec<Arc<Field>> = Vec::new();
        for field in batches.iter().flat_map(|batch| batch.records.schema_ref().fields()) {
            let is_known = fields.iter().any(|known| known.name() == field.name());
            if !is_known && (field.name() != MONOTONIC_COLUMN || all_have(batches, MONOTONIC_COLUMN)) {
                fields.push(Arc::clone(field));
            }
        }
        let mut columns = Vec::with_capacity(fields.len());
        for field in &fields {
            let parts: Vec<ArrayRef> = batches
                .iter()
                .map(|batch| match batch.records.column_by_name(field.name()) {
                    Some(column) => Arc::clone(column),
                    None => new_null_array(field.data_type(), batch.rows()),
                })
                .collect();
            columns.push(if *field.data_type() == text_type() { texts(&parts)? } else { values(&parts)? });
        }
        let records = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).ok()?;
        let mut whole = Self::new(last.table, records, last.origin.clone(), last.sequence).ok()?;
        whole.absences = absences(batches);
        Some(whole)
    }
}

fn all_have(batches: &[Batch], column: &str) -> bool {
    batches.iter().all(|batch| batch.records.column_by_name(column).is_some())
}

fn values(parts: &[ArrayRef]) -> Option<ArrayRef> {
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&parts).ok()
}

/// Each text once.
fn texts(parts: &[ArrayRef]) -> Option<ArrayRef> {
    let mut index: HashMap<&str, i32, foldhash::fast::RandomState> = HashMap::default();
    let mut texts: Vec<&str> = Vec::new();
    let mut keys: Vec<Option<i32>> = Vec::new();
    for part in parts {
        let part = part.as_dictionary_opt::<Int32Type>()?;
        for row in 0..part.len() {
            keys.push(text_at(part, row).map(|text| {
                *index.entry(text).or_insert_with(|| {
                    texts.push(text);
                    i32::try_from(texts.len() - 1).unwrap_or(i32::MAX)
                })
            }));
        }
    }
    let texts = Arc::new(StringArray::from_iter_values(texts));
    let array = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), texts).ok()?;
    Some(Arc::new(array))
}

fn absences(batches: &[Batch]) -> Vec<Absence> {
    let mut counts: HashMap<(&Arc<str>, MetricId, AbsenceReason), u32, foldhash::fast::RandomState> =
        HashMap::default();
    for absence in batches.iter().flat_map(|batch| &batch.absences) {
        let count = counts.entry((&absence.gpu, absence.metric, absence.reason)).or_insert(0);
        *count = count.saturating_add(absence.count);
    }
    let all = counts.into_iter();
    all.map(|((gpu, metric, reason), count)| Absence { gpu: Arc::clone(gpu), metric, reason, count })
        .collect()
}
