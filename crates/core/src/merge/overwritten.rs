//! Rows of one key whose values contradict each other.

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use super::schema::{UnifiedColumn, UnifiedColumns};
use super::sort::{Join, Sorted};
use crate::batch::{MONOTONIC_COLUMN, TIMESTAMP_COLUMN, Value, numbers};
use crate::time;

/// Rows of a merge with a value in a column where another of the same key has a different one, which arrived later and stayed.
/// A repeat is none, and neither is a value where the other row had null.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overwritten {
    /// Number of rows that lost a value.
    pub rows: u64,
    /// The first of them, for people.
    pub first: Option<Arc<str>>,
}

impl Overwritten {
    /// Floats that differ by less than this share are one value: one of them may have been stored with fewer digits.
    pub const SAME: f64 = 1e-6;
    /// What the log says with the first.
    pub const SENTENCE: &str = "two rows of one GPU and time have different values: the later one stays; more of them are only counted";

    /// Adds those of another merge.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.first = self.first.take().or(other.first);
    }

    pub(super) fn of(columns: &UnifiedColumns, sorted: &Sorted) -> Self {
        let mut found = Self::default();
        let times = columns.columns.first();
        let names = columns.schema.fields().iter().map(|field| field.name().as_str());
        let columns: Vec<(&str, &UnifiedColumn)> = names
            .zip(&columns.columns)
            .filter(|(name, _)| ![TIMESTAMP_COLUMN, MONOTONIC_COLUMN].contains(name))
            .collect();
        for join in &sorted.joins {
            let mut contests =
                columns.iter().filter_map(|(name, column)| Some((*name, contest(column, sorted, join)?)));
            if let Some((name, (before, after))) = contests.next() {
                found.rows += lost(&columns, sorted, join);
                found.first.get_or_insert_with(|| {
                    let rank = sorted.ranks.get(join.row as usize);
                    let key = rank.and_then(|rank| sorted.keys.get(*rank as usize));
                    let (key, at) = (key.map_or("", AsRef::as_ref), time_of(times, sorted, join));
                    Arc::from(format!("{name} of {key}{at} was {before} and became {after}"))
                });
            }
        }
        found
    }
}

/// The rows of a join that have a value which did not stay. There is at least one.
fn lost(columns: &[(&str, &UnifiedColumn)], sorted: &Sorted, join: &Join) -> u64 {
    let Some(rows) = sorted.joined_rows.get(join.start as usize..join.end as usize) else { return 1 };
    let mut is_lost = vec![false; rows.len()];
    for (_, column) in columns {
        let mut stayed: Option<JoinedCell> = None;
        for (pick, is_lost) in rows.iter().zip(&mut is_lost).rev() {
            let Some(cell) = cell(column, pick.part as usize, pick.row as usize) else { continue };
            *is_lost |= !stayed.get_or_insert(cell).is_same(&cell);
        }
    }
    is_lost.into_iter().map(u64::from).sum::<u64>().max(1)
}

/// A value of a row.
#[derive(Clone, Copy)]
enum JoinedCell {
    Number(Value),
    /// The place of a text among those of its column.
    Text(i32),
}

impl JoinedCell {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => is_same(*one, *other),
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => false,
        }
    }
}

fn cell(column: &UnifiedColumn, part: usize, row: usize) -> Option<JoinedCell> {
    match column {
        UnifiedColumn::Numbers(parts, _) => {
            numbers(parts.get(part)?.as_ref()?)?.value(row).map(JoinedCell::Number)
        }
        UnifiedColumn::Text(parts, _) => {
            let keys = parts.get(part)?.as_ref().filter(|keys| row < keys.len() && keys.is_valid(row))?;
            Some(JoinedCell::Text(keys.value(row)))
        }
    }
}

/// The first two values of the rows of a join that differ, in words.
fn contest(column: &UnifiedColumn, sorted: &Sorted, join: &Join) -> Option<(String, String)> {
    let rows = sorted.joined_rows.get(join.start as usize..join.end as usize)?;
    let mut rows = rows.iter().map(|pick| (pick.part as usize, pick.row as usize));
    match column {
        UnifiedColumn::Numbers(parts, _) => {
            let mut values = rows.filter_map(|(part, row)| numbers(parts.get(part)?.as_ref()?)?.value(row));
            let first = values.next()?;
            let other = values.find(|value| !is_same(first, *value))?;
            Some((first.to_json().to_string(), other.to_json().to_string()))
        }
        UnifiedColumn::Text(parts, texts) => {
            let texts = texts.as_string_opt::<i32>()?;
            let mut values = rows.by_ref().filter_map(|(part, row)| {
                let keys = parts.get(part)?.as_ref().filter(|keys| row < keys.len() && keys.is_valid(row))?;
                let key = usize::try_from(keys.value(row)).ok()?;
                (key < texts.len()).then(|| texts.value(key))
            });
            let first = values.next()?;
            let other = values.find(|value| *value != first)?;
            Some((first.to_owned(), other.to_owned()))
        }
    }
}

fn is_same(one: Value, other: Value) -> bool {
    if let (Value::Int(one), Value::Int(other)) = (one, other) {
        return one == other;
    }
    let (one, other) = (one.as_f64(), other.as_f64());
    one.to_bits() == other.to_bits() || (one - other).abs() <= Overwritten::SAME * one.abs().max(other.abs())
}

/// When the rows of a join were measured, for people. Times are the first column.
fn time_of(times: Option<&UnifiedColumn>, sorted: &Sorted, join: &Join) -> String {
    let Some(UnifiedColumn::Numbers(parts, _)) = times else { return String::new() };
    let pick = sorted.picks.get(join.row as usize);
    let time = pick.and_then(|pick| {
        let times = parts.get(pick.part as usize)?.as_ref()?.as_primitive_opt::<Int64Type>()?;
        times.values().get(pick.row as usize).copied()
    });
    time.map_or_else(String::new, |time| format!(" at {}", time::format(time)))
}

#[cfg(test)]
mod tests {
    use crate::merge::{Merge, Order};
    use crate::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

    use super::*;

    #[test]
    fn the_first_contradiction_says_what_became_of_what() {
        let part = |power: f64, pod: &str| {
            let mut builder = BatchBuilder::new(Table::GpuEvents);
            let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
            let identity = builder.intern(&identity.with(IdentityColumn::Pod, pod).unwrap());
            let row = builder.row(1_795_168_800_000_000_000, identity);
            builder.set(row, MetricId::of("power_w"), Value::Float(power)).unwrap();
            builder.finish(Origin::default(), 0).unwrap().records().clone()
        };
        let found = |parts: &[arrow_array::RecordBatch]| {
            Merge::plan(Table::GpuEvents, parts, Order::GpuTime).unwrap().overwritten()
        };
        assert_eq!(found(&[part(7.5, "a"), part(7.5, "a")]), Overwritten::default());
        let found_first = |parts: &[arrow_array::RecordBatch]| found(parts).first.unwrap().to_string();
        assert_eq!(
            found_first(&[part(7.5, "a"), part(8.0, "a")]),
            "power_w of GPU-1 at 2026-11-20T10:00:00Z was 7.5 and became 8.0"
        );
        assert!(found_first(&[part(7.5, "a"), part(7.5, "b")]).ends_with(" was a and became b"));
        // Each row that was replaced counts, and none that says what stayed.
        let rows =
            |powers: &[f64]| found(&powers.iter().map(|power| part(*power, "a")).collect::<Vec<_>>()).rows;
        assert_eq!([rows(&[1.0, 2.0]), rows(&[1.0, 2.0, 3.0, 4.0]), rows(&[1.0, 2.0, 1.0])], [1, 3, 1]);
    }
}
