//! Columns of the result, row by row or run by run.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::DataType;

use super::schema::UnifiedColumn;
use super::sort::{Join, Sorted};
use super::{MergeError, Pick};

/// Runs pay when they are at least this many rows long on average.
const RUN_ROWS_MIN: usize = 8;

/// Rows that are adjacent in a part and in the result.
#[derive(Debug, Clone, Copy)]
struct Run {
    part: usize,
    start: usize,
    rows: usize,
}

/// A range of the result's rows.
pub(crate) struct Chunk<'a> {
    sorted: &'a Sorted,
    first: usize,
    picks: &'a [Pick],
    joins: &'a [Join],
    runs: Option<Vec<Run>>,
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(sorted: &'a Sorted, rows: Range<usize>) -> Self {
        let first = rows.start;
        let start = sorted.joins.partition_point(|join| (join.row as usize) < rows.start);
        let end = sorted.joins.partition_point(|join| (join.row as usize) < rows.end);
        let picks = sorted.picks.get(rows).unwrap_or(&[]);
        let joins = sorted.joins.get(start..end).unwrap_or(&[]);
        Self { sorted, first, picks, joins, runs: runs(picks) }
    }

    pub(crate) fn column(&self, column: &UnifiedColumn) -> Result<ArrayRef, MergeError> {
        Ok(match column {
            UnifiedColumn::Text(parts, texts) => {
                let keys = self.numbers::<Int32Type>(&parts.iter().map(Option::as_ref).collect::<Vec<_>>());
                Arc::new(DictionaryArray::try_new(keys, Arc::clone(texts))?)
            }
            UnifiedColumn::Numbers(parts, DataType::Int32) => {
                Arc::new(self.numbers(&primitives::<Int32Type>(parts)))
            }
            UnifiedColumn::Numbers(parts, DataType::Int64) => {
                Arc::new(self.numbers(&primitives::<Int64Type>(parts)))
            }
            UnifiedColumn::Numbers(parts, DataType::Float32) => {
                Arc::new(self.numbers(&primitives::<Float32Type>(parts)))
            }
            UnifiedColumn::Numbers(parts, _) => Arc::new(self.numbers(&primitives::<Float64Type>(parts))),
        })
    }

    fn numbers<T: ArrowPrimitiveType>(&self, parts: &[Option<&PrimitiveArray<T>>]) -> PrimitiveArray<T> {
        if has_holes(parts) && !self.joins.is_empty() {
            let picks = self.filled_in(parts);
            return by_row(parts, &picks);
        }
        match &self.runs {
            Some(runs) => by_run(parts, runs, self.picks.len()),
            None => by_row(parts, self.picks),
        }
    }

    /// Per row the last of the rows it is made of that has a value.
    fn filled_in<T: ArrowPrimitiveType>(&self, parts: &[Option<&PrimitiveArray<T>>]) -> Vec<Pick> {
        let mut picks = self.picks.to_vec();
        let has_value = |pick: &&Pick| {
            parts.get(pick.part as usize).copied().flatten().is_some_and(|a| a.is_valid(pick.row as usize))
        };
        for join in self.joins {
            let rows = self.sorted.joined_rows.get(join.start as usize..join.end as usize).unwrap_or(&[]);
            if let (Some(slot), Some(value)) =
                (picks.get_mut(join.row as usize - self.first), rows.iter().rev().find(has_value))
            {
                *slot = *value;
            }
        }
        picks
    }
}

fn primitives<T: ArrowPrimitiveType>(parts: &[Option<ArrayRef>]) -> Vec<Option<&PrimitiveArray<T>>> {
    parts.iter().map(|part| part.as_ref().and_then(|array| array.as_primitive_opt::<T>())).collect()
}

/// The runs, if they are long enough to pay.
fn runs(picks: &[Pick]) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for run in picks.chunk_by(|a, b| a.part == b.part && a.row + 1 == b.row) {
        let first = run.first()?;
        runs.push(Run { part: first.part as usize, start: first.row as usize, rows: run.len() });
        if runs.len() * RUN_ROWS_MIN > picks.len() + RUN_ROWS_MIN {
            return None;
        }
    }
    Some(runs)
}

fn by_run<T: ArrowPrimitiveType>(
    parts: &[Option<&PrimitiveArray<T>>],
    runs: &[Run],
    rows: usize,
) -> PrimitiveArray<T> {
    let part = |run: &Run| parts.get(run.part).copied().flatten();
    if let [run] = runs
        && let Some(array) = part(run)
    {
        return array.slice(run.start, run.rows);
    }
    let mut values: Vec<T::Native> = Vec::with_capacity(rows);
    let mut nulls = NullBufferBuilder::new(rows);
    for run in runs {
        let range = run.start..run.start + run.rows;
        match part(run).and_then(|array| Some((array, array.values().get(range)?))) {
            None => {
                values.resize(values.len() + run.rows, T::Native::default());
                nulls.append_n_nulls(run.rows);
            }
            Some((array, slice)) => {
                values.extend_from_slice(slice);
                match array.nulls() {
                    None => nulls.append_n_non_nulls(run.rows),
                    Some(some) => nulls.append_buffer(&some.slice(run.start, run.rows)),
                }
            }
        }
    }
    PrimitiveArray::new(values.into(), nulls.finish())
}

/// Whether a part lacks the column, or a value of it.
fn has_holes<T: ArrowPrimitiveType>(parts: &[Option<&PrimitiveArray<T>>]) -> bool {
    parts.iter().any(|part| part.is_none_or(|part| part.null_count() > 0))
}

fn by_row<T: ArrowPrimitiveType>(parts: &[Option<&PrimitiveArray<T>>], picks: &[Pick]) -> PrimitiveArray<T> {
    let slices: Vec<&[T::Native]> =
        parts.iter().map(|part| part.map_or(&[][..], |array| array.values())).collect();
    let values: ScalarBuffer<T::Native> = match slices.as_slice() {
        [only] => picks.iter().map(|pick| only.get(pick.row as usize).copied().unwrap_or_default()).collect(),
        _ => picks
            .iter()
            .map(|pick| {
                let part = slices.get(pick.part as usize).copied().unwrap_or(&[]);
                part.get(pick.row as usize).copied().unwrap_or_default()
            })
            .collect(),
    };
    let nulls = has_holes(parts).then(|| {
        let valid: Vec<Option<Option<&NullBuffer>>> =
            parts.iter().map(|part| part.map(Array::nulls)).collect();
        NullBuffer::new(BooleanBuffer::collect_bool(picks.len(), |row| {
            picks.get(row).is_some_and(|pick| match valid.get(pick.part as usize) {
                Some(Some(None)) => true,
                Some(Some(Some(nulls))) => nulls.is_valid(pick.row as usize),
                _ => false,
            })
        }))
    });
    PrimitiveArray::new(values, nulls.filter(|nulls| nulls.null_count() > 0))
}
