//! The use of GPUs: from the coarsest rollups that lie in the range, from rows where there are none, in the order of time.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::{self, BucketQuery, QueryError, check_use, check_uses};
use gpuvitals_core::merge::{MergeError, Order, merge};
use gpuvitals_core::time::DAY_NS;
use gpuvitals_core::usage::{GpuUse, HOLDER_COLUMNS, RowsOfUse, Usage, UseQuery, use_columns};
use gpuvitals_core::{IdentityColumn, Table};

use super::pieces::pieces;
use super::stretches::{Source, sources};
use crate::grain::Grain;
use crate::reader::{Columns, Part, Reading, Scope, in_time, parallel};
use crate::rollup::{FIRST_NS, LAST_NS, StayColumns, use_names};
use gpuvitals_core::batch::timestamps;

/// Parts of rollups that are held at a time.
const PARTS_AT_ONCE: usize = 16;

/// Answers the question.
///
/// # Errors
/// When the range makes no sense, or rows do not fit together.
pub(crate) fn usage(
    reading: Reading<'_>,
    query: &UseQuery,
) -> Result<history::Part<Vec<GpuUse>>, QueryError> {
    check_use(query)?;
    let UseQuery { start_ns, end_ns, step_ns, .. } = *query;
    let scope = Scope::new(Table::GpuEvents, &query.gpus, start_ns, end_ns);
    let mut sums =
        Sums { reading, usage: Usage::of(query), rows: RowsOfUse::default(), missing: BTreeSet::new() };
    sums.missing.extend(reading.lost(&scope));
    // Every rollup divides a day; those that divide the steps have no row in two of them.
    let width_ns = step_ns.unwrap_or(DAY_NS);
    let by_step = BucketQuery::of(Table::GpuEvents, Vec::new(), start_ns, end_ns, width_ns);
    for Source { grain, start_ns, end_ns } in sources(reading.snapshot, &by_step) {
        let scope = scope.during(start_ns, end_ns).by(grain);
        let mut unread = Vec::new();
        let parts = reading.parts(&scope, &mut unread)?;
        sums.missing.extend(unread);
        if query.is_of_times() {
            sums.note_times(&parts, &scope)?;
        } else if grain == Grain::Raw {
            sums.add_rows(&parts, &scope)?;
        } else {
            sums.add_rollups(parts, &scope)?;
        }
    }
    Ok(history::Part { answer: sums.usage.finish(), missing: sums.missing.into_iter().collect() })
}

/// What has been added up.
struct Sums<'a> {
    reading: Reading<'a>,
    usage: Usage,
    rows: RowsOfUse,
    missing: BTreeSet<String>,
}

impl Sums<'_> {
    /// Notes the times of rows or rollups, in any order. Nothing of their values is read.
    fn note_times(&mut self, parts: &[Part], scope: &Scope) -> Result<(), QueryError> {
        let names = [FIRST_NS, LAST_NS].into_iter().filter(|_| scope.grain != Grain::Raw);
        let columns = columns(names);
        for some in parts.chunks(PARTS_AT_ONCE) {
            for records in self.read(some, scope, &columns)? {
                // A row has one time, a rollup's those of its first and last.
                let own = timestamps(&records);
                let times = |name: &str| {
                    let column = records.column_by_name(name);
                    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
                    column.map_or(own, |column| column.values())
                };
                let times = (times(FIRST_NS), times(LAST_NS));
                self.usage.note_times(&records, times, scope.end_ns).map_err(QueryError::failed)?;
            }
            check_uses(&self.usage)?;
        }
        Ok(())
    }

    /// Adds rollups, by the times of their files: those of a file are in the order of GPUs, and a GPU may reach over two of its parts.
    fn add_rollups(&mut self, mut parts: Vec<Part>, scope: &Scope) -> Result<(), QueryError> {
        parts.sort_by_key(Part::span_start);
        let columns = columns(use_names());
        for some in parts.chunks(PARTS_AT_ONCE) {
            for records in self.read(some, scope, &columns)? {
                self.add_stays(&records, scope.end_ns).map_err(QueryError::from)?;
            }
            check_uses(&self.usage)?;
        }
        Ok(())
    }

    /// A step that begins at the end of the range reaches beyond it, and is left out.
    fn add_stays(&mut self, records: &RecordBatch, end_ns: i64) -> Result<(), MergeError> {
        let keys = RowKeys::of(records, Table::GpuEvents)
            .map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
        let holders = self.usage.holders(records);
        let columns = StayColumns::of(records);
        for (row, (id, holder)) in keys.ids.iter().zip(holders).enumerate() {
            if let (Some(key), Some(stay)) = (keys.keys.get(*id as usize), columns.stay(row))
                && stay.last_ns <= end_ns
            {
                self.usage.add(key, holder, stay);
            }
        }
        Ok(())
    }

    /// Adds rows, merged by key.
    fn add_rows(&mut self, parts: &[Part], scope: &Scope) -> Result<(), QueryError> {
        let (pieces, unread) = pieces(self.reading, parts, scope)?;
        self.missing.extend(unread);
        pieces.iter().try_for_each(|piece| self.add_merged(parts, piece))
    }

    fn add_merged(&mut self, parts: &[Part], scope: &Scope) -> Result<(), QueryError> {
        let records = self.read(parts, scope, &columns(use_columns()))?;
        if let Some(merged) = merge(scope.table, &records, Order::GpuTime)? {
            self.rows.add(&mut self.usage, &merged).map_err(QueryError::failed)?;
            check_uses(&self.usage)?;
        }
        Ok(())
    }

    /// Reads the rows in scope of some parts, in their order.
    fn read(
        &mut self,
        parts: &[Part],
        scope: &Scope,
        columns: &Columns,
    ) -> Result<Vec<RecordBatch>, QueryError> {
        let reading = self.reading;
        let found = parallel(parts, true, |_, part| {
            reading.go_on()?;
            Ok::<_, QueryError>(read_part(part, scope, columns))
        });
        let mut records = Vec::with_capacity(found.len());
        for found in found {
            match found? {
                Ok(of_part) => records.extend(of_part),
                Err(words) => drop(self.missing.insert(words)),
            }
        }
        Ok(records)
    }
}

fn read_part(part: &Part, scope: &Scope, columns: &Columns) -> Result<Vec<RecordBatch>, String> {
    let rows = part.candidates(scope)?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let records = part.read(columns, &rows)?;
    let slice = |rows: Range<usize>| records.slice(rows.start, rows.len());
    Ok(in_time(timestamps(&records), scope).into_iter().map(slice).collect())
}

/// Time, GPU, holder, and these.
fn columns(names: impl Iterator<Item = &'static str>) -> Columns {
    let identity = HOLDER_COLUMNS.into_iter().chain([IdentityColumn::Uuid, IdentityColumn::Partition]);
    Columns::time_and(names.chain(identity.map(IdentityColumn::name)))
}
