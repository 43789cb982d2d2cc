//! All rows of a range, in no order: each part as it lies in its file, on several threads. Only rows that may have twins in another part are
//! merged.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use gpuvitals_core::batch::{BatchError, timestamps};
use gpuvitals_core::history::tally::{SelectorVerdict, label_columns};
use gpuvitals_core::history::{self, BucketQuery, QueryError, RowsQuery, TakeRows};
use gpuvitals_core::merge::{Order, merge, without_empty};
use gpuvitals_core::time::DAY_NS;
use gpuvitals_core::{Batch, Origin};

use super::pieces::pieces;
use super::range::ranges;
use super::stretches::{Source, sources, whole_steps};
use crate::manifest::FileEntry;
use crate::reader::{Columns, Part, Reading, Scope, contested, joined, parallel};
use crate::snapshot::Snapshot;

/// Gives the rows to `take`.
///
/// # Errors
/// If the range ends before it starts, rows do not fit together, or `take` refuses some.
pub(crate) fn sweep(
    reading: Reading<'_>,
    query: &RowsQuery,
    take: &TakeRows,
) -> Result<history::Part<()>, QueryError> {
    let (start_ns, end_ns) = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
    if end_ns < start_ns {
        return Err(QueryError::Range { start_ns, end_ns, step_ns: 1 });
    }
    let scope = Scope::new(query.table, &query.gpus, start_ns, end_ns);
    let mut missing: BTreeSet<String> = reading.lost(&scope).collect();
    for scope in scopes(reading.snapshot, query, scope) {
        missing.extend(sweep_scope(reading, query, take, &scope)?);
    }
    Ok(history::Part { answer: (), missing: missing.into_iter().collect() })
}

/// What is read: rows by the day where that is allowed and all rows of a day were put together, and the rows themselves elsewhere. What
/// was given cannot be taken back: so a rollup that turns out to be damaged is missing in this answer, and is not read in the next one.
fn scopes(snapshot: &Snapshot, query: &RowsQuery, whole: Scope) -> Vec<Scope> {
    let within = |(from_ns, until_ns): (i64, i64)| (from_ns.max(whole.start_ns), until_ns.min(whole.end_ns));
    let days = query.days_within.and_then(|times| whole_steps(within(times), DAY_NS));
    let Some((from_ns, until_ns)) = days.filter(|_| !has_damage(snapshot, &whole)) else {
        return vec![whole];
    };
    let by_day = BucketQuery::of(query.table, Vec::new(), from_ns, until_ns, DAY_NS);
    let mut days: Vec<Source> = Vec::new();
    for next in sources(snapshot, &by_day) {
        // Neighbours are read at once, and so by all threads.
        let is_next =
            |last: &&mut Source| (last.grain, last.end_ns.saturating_add(1)) == (next.grain, next.start_ns);
        if let Some(last) = days.last_mut().filter(is_next) {
            last.end_ns = next.end_ns;
        } else {
            days.push(next);
        }
    }
    let days = days.into_iter().map(|source| whole.during(source.start_ns, source.end_ns).by(source.grain));
    let edges = [(whole.start_ns, from_ns.saturating_sub(1)), (until_ns.saturating_add(1), whole.end_ns)];
    let edges = edges.into_iter().filter(|(from_ns, until_ns)| from_ns <= until_ns);
    edges.map(|(from_ns, until_ns)| whole.during(from_ns, until_ns)).chain(days).collect()
}

/// Whether a file of rows is damaged of which nothing else is left: it is named where rows are read.
fn has_damage(snapshot: &Snapshot, scope: &Scope) -> bool {
    let is_gone = |file: &&Arc<FileEntry>| {
        let is_rolled = |rollup: &Arc<FileEntry>| (rollup.table, rollup.order) == (file.table, file.order);
        file.damage().is_some() && scope.meets_rows(file) && !snapshot.rollups.iter().any(is_rolled)
    };
    snapshot.files.iter().any(|file| is_gone(&file))
}

/// Gives the rows of one scope to `take`, and says what is missing.
fn sweep_scope(
    reading: Reading<'_>,
    query: &RowsQuery,
    take: &TakeRows,
    scope: &Scope,
) -> Result<Vec<String>, QueryError> {
    let mut missing = Vec::new();
    let parts = reading.parts(scope, &mut missing)?;
    let (columns, contests, is_refused) = (Columns::of(query), contested(&parts), AtomicBool::new(false));
    let sweep = Sweep { reading, query, columns, contests, take, is_refused };
    for swept in parallel(&parts, true, |at, part| sweep.alone(at, part, scope)) {
        missing.extend(swept?);
    }
    let contests = joined(sweep.contests.iter().flatten().copied().collect());
    for (from_ns, until_ns) in contests {
        let scope = scope.during(from_ns.max(scope.start_ns), until_ns.min(scope.end_ns));
        if scope.start_ns > scope.end_ns {
            continue;
        }
        let (some, unread) = pieces(reading, &parts, &scope)?;
        missing.extend(unread);
        for piece in some {
            missing.extend(sweep.merged(&parts, &piece)?);
        }
    }
    Ok(missing)
}

/// A question whose rows are being given.
struct Sweep<'a> {
    reading: Reading<'a>,
    query: &'a RowsQuery,
    columns: Columns,
    /// Per part the times in which its rows may have twins.
    contests: Vec<Vec<(i64, i64)>>,
    take: &'a TakeRows,
    /// Whether `take` has refused rows: what it holds is bounded, so no thread gives it more.
    is_refused: AtomicBool,
}

impl Sweep<'_> {
    /// Gives the rows of a part that have no twins, and says what is missing.
    fn alone(&self, at: usize, part: &Part, scope: &Scope) -> Result<Option<String>, QueryError> {
        self.reading.go_on()?;
        if self.is_refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let read = || {
            let rows = self.rows_alone(at, part, scope)?;
            (!rows.is_empty()).then(|| part.read(&self.columns, &rows)).transpose()
        };
        match read() {
            Err(words) => return Ok(Some(words)),
            Ok(None) => {}
            Ok(Some(records)) => self.give(records)?,
        }
        Ok(None)
    }

    /// The numbers of these rows. Where not all rows of the part are wanted, what decides that is read first.
    fn rows_alone(&self, at: usize, part: &Part, scope: &Scope) -> Result<Vec<Range<usize>>, String> {
        let rows = part.candidates(scope)?;
        let (selector, (min_ns, max_ns)) = (&self.query.selector, part.times());
        let has_twins = self.contests.get(at).is_some_and(|times| !times.is_empty());
        if rows.is_empty() || !has_twins && selector.is_empty() && scope.covers(min_ns, max_ns) {
            return Ok(rows);
        }
        let records = part.read(&Columns::time_and(label_columns(selector)), &rows)?;
        let is_selected = self.selected(&records);
        let is_wanted = |row: usize, time_ns: i64| {
            scope.meets_times(time_ns, time_ns)
                && !self.is_contested(at, time_ns)
                && is_selected.as_ref().is_none_or(|selected| selected.get(row) == Some(&true))
        };
        let read = timestamps(&records).iter().zip(rows.into_iter().flatten()).enumerate();
        let wanted = read.filter(|(row, (time_ns, _))| is_wanted(*row, **time_ns));
        let numbers: Vec<u32> = wanted.filter_map(|(_, (_, number))| u32::try_from(number).ok()).collect();
        Ok(ranges(&numbers))
    }

    /// Gives the rows of some GPUs and times that may have twins, merged, and says what is missing.
    fn merged(&self, parts: &[Part], scope: &Scope) -> Result<Vec<String>, QueryError> {
        let read = parallel(parts, true, |at, part| {
            self.reading.go_on().map(|()| self.read_contested(at, part, scope))
        });
        let (mut batches, mut missing): (Vec<RecordBatch>, _) = (Vec::new(), Vec::new());
        for of_part in read {
            match of_part? {
                Ok(records) => batches.extend(records),
                Err(words) => missing.push(words),
            }
        }
        if let Some(merged) = merge(scope.table, &batches, Order::GpuTime)? {
            let selected = self.selected(&merged);
            self.give_selected(merged, selected.as_deref())?;
        }
        Ok(missing)
    }

    fn read_contested(&self, at: usize, part: &Part, scope: &Scope) -> Result<Option<RecordBatch>, String> {
        let is_met = |(from_ns, until_ns): &(i64, i64)| scope.meets_times(*from_ns, *until_ns);
        if !self.contests.get(at).is_some_and(|times| times.iter().any(is_met)) {
            return Ok(None);
        }
        let rows = part.candidates(scope)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let records = part.read(&Columns::time_and([]), &rows)?;
        let read = timestamps(&records).iter().zip(rows.into_iter().flatten());
        let is_wanted = |time_ns: i64| scope.meets_times(time_ns, time_ns) && self.is_contested(at, time_ns);
        let wanted = read.filter(|(time_ns, _)| is_wanted(**time_ns));
        let numbers: Vec<u32> = wanted.filter_map(|(_, number)| u32::try_from(number).ok()).collect();
        (!numbers.is_empty()).then(|| part.read(&self.columns, &ranges(&numbers))).transpose()
    }

    /// Whether a row of a part with this time may have a twin.
    fn is_contested(&self, at: usize, time_ns: i64) -> bool {
        let times = self.contests.get(at).map_or(&[][..], Vec::as_slice);
        let next = times.partition_point(|&(_, until_ns)| until_ns < time_ns);
        times.get(next).is_some_and(|&(from_ns, _)| from_ns <= time_ns)
    }

    /// Whether each row is selected; none: all are.
    fn selected(&self, records: &RecordBatch) -> Option<Vec<bool>> {
        let selector = &self.query.selector;
        let of_null = SelectorVerdict::of_null(selector);
        let verdicts = SelectorVerdict::of_rows(records, selector)?;
        Some(verdicts.into_iter().map(|verdict| of_null.then(verdict).selects(selector)).collect())
    }

    fn give_selected(&self, records: RecordBatch, selected: Option<&[bool]>) -> Result<(), QueryError> {
        let Some(selected) = selected else { return self.give(records) };
        let batch = self.batch(records)?.filter(selected);
        batch.map_or(Ok(()), |batch| (self.take)(&batch))
    }

    fn give(&self, records: RecordBatch) -> Result<(), QueryError> {
        let taken = (self.take)(&self.batch(records)?);
        if taken.is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        taken
    }

    fn batch(&self, records: RecordBatch) -> Result<Batch, QueryError> {
        let table = self.query.table;
        let batch = |records: &RecordBatch| -> Result<_, QueryError> {
            Ok(Batch::new(table, without_empty(records)?, Origin::default(), 0))
        };
        match batch(&records)? {
            // Another release wrote a column in another type: a merge makes it the table's.
            Err(error @ BatchError::Type { .. }) => {
                let merged = merge(table, &[records], Order::GpuTime)?;
                let merged = merged.ok_or_else(|| QueryError::failed(error))?;
                batch(&merged)?.map_err(QueryError::failed)
            }
            batch => batch.map_err(QueryError::failed),
        }
    }
}
