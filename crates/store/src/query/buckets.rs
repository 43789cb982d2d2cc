//! Values by steps of time.
//!
//! Rows whose key occurs once are counted where they are read, part by part and by all cores. Rows in
//! contested times (see [`crate::reader`]) are set apart, merged, and then counted. If there is too much of either at
//! once, the range is halved and answered piece by piece.
//!
//! Tracks ([`gpuvitals_core::history::Track`]) are only exact if those of a GPU are added in the order of their times. So
//! with tracks every step with a contested time is contested as a whole, for all parts; in the other steps a GPU's parts
//! are apart in time, and are added in their order.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use gpuvitals_core::history::tally::{Run, StepGrid, Tally, label_columns, labels};
use gpuvitals_core::history::{self, BucketQuery, Buckets, COUNTS_MAX, GroupColumn, Measured, QueryError};
use gpuvitals_core::{IdentityColumn, MetricId};

use super::ROWS_MAX;
use super::rolled;
use super::stretches::{Source, sources};
use crate::grain::Grain;
use crate::reader::{Columns, Part, Reading, Scope, contested, joined, parallel};
use gpuvitals_core::batch::{RowKeys, timestamps};
use gpuvitals_core::merge::{MergeError, Order, merge};

/// Parts with fewer values in all are read by one thread.
const WIDE_VALUES: usize = 100_000;
/// Most GPUs named of which one thread alone looks for the rows: of a part in which none was looked for, those of all are found first.
const NAMED_BY_ONE: usize = 64;

/// Why a piece of the range has no answer.
enum Stop {
    /// Too much at once: the piece is halved.
    TooMuch,
    Error(QueryError),
}

impl From<MergeError> for Stop {
    fn from(error: MergeError) -> Self {
        Self::Error(error.into())
    }
}

/// Answers the question.
///
/// # Errors
/// When the question makes no sense or its answer is too large; see [`QueryError`].
pub(crate) fn buckets(
    reading: Reading<'_>,
    query: &BucketQuery,
) -> Result<history::Part<Buckets>, QueryError> {
    let grid = StepGrid::new(query.steps()?, query.start_ns, query.end_ns);
    query.check_metrics()?;
    let mut answer = Tally::new(&grid, (0, grid.steps.count - 1), query).buckets;
    let mut missing: BTreeSet<String> =
        reading.lost(&Scope::new(query.table, &query.gpus, query.start_ns, query.end_ns)).collect();
    let sources = sources(reading.snapshot, query).into_iter().rev();
    let piece = |Source { grain, start_ns, end_ns }| (grain, StepGrid { start_ns, end_ns, ..grid });
    let mut pieces: Vec<(Grain, StepGrid)> = sources.map(piece).collect();
    while let Some((grain, piece)) = pieces.pop() {
        match (BucketPiece { query, grain, grid: &piece, reading }).add_to(&mut answer, &mut missing) {
            Ok(()) => {}
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::TooMuch) => match piece.halves() {
                Some((before, rest)) => pieces.extend([(grain, rest), (grain, before)]),
                None => return Err(QueryError::TooManyValues { max: COUNTS_MAX.min(ROWS_MAX) }),
            },
        }
    }
    Ok(history::Part { answer, missing: missing.into_iter().collect() })
}

/// A range of buckets answered at once.
struct BucketPiece<'a> {
    query: &'a BucketQuery,
    grain: Grain,
    grid: &'a StepGrid,
    reading: Reading<'a>,
}

/// The result of a part.
struct Yield {
    tally: Tally,
    apart: Option<RecordBatch>,
}

impl BucketPiece<'_> {
    /// Adds the values of the range to the answer.
    fn add_to(&self, answer: &mut Buckets, missing: &mut BTreeSet<String>) -> Result<(), Stop> {
        let scope = Scope::new(self.query.table, &self.query.gpus, self.grid.start_ns, self.grid.end_ns)
            .by(self.grain);
        let mut unread = Vec::new();
        let parts = self.reading.parts(&scope, &mut unread).map_err(Stop::Error)?;
        // Rollups of different rows are added up.
        let is_raw = self.grain == Grain::Raw;
        let contests = if is_raw { self.contests(&parts) } else { Vec::new() };
        let are_many = scope.keys().is_some_and(|keys| keys.len() > NAMED_BY_ONE);
        let candidates = parallel(&parts, are_many, |_, part| part.candidates(&scope));
        let rows: usize = candidates.iter().flatten().flatten().map(Range::len).sum();
        let values = rows.saturating_mul(self.query.metrics.len());
        let (counts, set_apart) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_full =
            || counts.load(Ordering::Relaxed) > COUNTS_MAX || set_apart.load(Ordering::Relaxed) > ROWS_MAX;
        let yields = parallel(&parts, values >= WIDE_VALUES, |at, part| {
            self.reading.go_on().map_err(Unread::Question)?;
            if is_full() {
                return Ok(None);
            }
            let contest = contests.get(at).map_or(&[][..], Vec::as_slice);
            let rows = match candidates.get(at) {
                Some(Ok(rows)) => rows.as_slice(),
                Some(Err(words)) => return Err(Unread::Part(words.clone())),
                None => &[],
            };
            let found = self.part(part, rows, &scope, contest)?;
            counts.fetch_add(found.tally.buckets.counts() as u64, Ordering::Relaxed);
            let apart = found.apart.as_ref().map_or(0, RecordBatch::num_rows) as u64;
            set_apart.fetch_add(apart, Ordering::Relaxed);
            Ok(Some(found))
        });
        if is_full() {
            return Err(Stop::TooMuch);
        }
        let (mut counted, mut apart) = (Vec::new(), Vec::new());
        for (part, found) in parts.iter().zip(yields) {
            match found {
                Ok(None) => return Err(Stop::TooMuch),
                Ok(Some(found)) => {
                    counted.push((part.times(), found.tally.buckets));
                    // In the order of arrival: of two values the later one wins.
                    apart.extend(found.apart);
                }
                Err(Unread::Part(words)) => unread.push(words),
                Err(Unread::Merge(error)) => return Err(error.into()),
                Err(Unread::Question(error)) => return Err(Stop::Error(error)),
            }
        }
        self.put_together(answer, counted)?;
        if let Some(merged) = merge(self.query.table, &apart, Order::GpuTime)? {
            let keys = RowKeys::of(&merged, self.query.table)
                .map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
            let labels = labels(&merged, self.query, keys);
            let mut tally = self.tally(i64::MIN, i64::MAX);
            tally.add(&merged, &labels, self.grid, &[])?;
            self.merge(answer, tally.buckets)?;
        }
        missing.extend(unread);
        answer.check(self.query.aggregates.len()).map_err(Stop::Error)
    }

    /// Adds the values of parts, with the first and the last time of each.
    fn put_together(&self, answer: &mut Buckets, mut parts: Vec<((i64, i64), Buckets)>) -> Result<(), Stop> {
        if answer.has_tracks() {
            parts.sort_by_key(|(times, _)| *times);
        }
        // The cells of one part alone are moved.
        if parts.len() > 1 {
            answer.add_groups_of(parts.iter().map(|(_, buckets)| buckets));
        }
        for (_, buckets) in parts {
            self.reading.go_on().map_err(Stop::Error)?;
            answer.read(self.grain.step_ns());
            self.merge(answer, buckets)?;
        }
        Ok(())
    }

    /// The contested times of each part.
    fn contests(&self, parts: &[Part]) -> Vec<Vec<(i64, i64)>> {
        let contests = contested(parts);
        if !self.is_tracked() {
            return contests;
        }
        let steps = &self.grid.steps;
        let whole_steps = |&(from, to): &(i64, i64)| {
            let (from, to) = self.grid.between(from, to);
            (steps.time(from), steps.time(to + 1).saturating_sub(1))
        };
        let joint = joined(contests.iter().flatten().map(whole_steps).collect());
        vec![joint; parts.len()]
    }

    fn is_tracked(&self) -> bool {
        self.query.aggregates.iter().any(|aggregate| aggregate.needs_tracks())
    }

    /// Adds to the answer while it is within the bound of points.
    fn merge(&self, answer: &mut Buckets, buckets: Buckets) -> Result<(), Stop> {
        answer.merge(buckets).map_err(|error| Stop::Error(QueryError::failed(error)))?;
        answer.check_points(self.query.aggregates.len()).map_err(Stop::Error)
    }

    /// No values yet, of the steps between two instants.
    fn tally(&self, min_ns: i64, max_ns: i64) -> Tally {
        Tally::new(self.grid, self.grid.between(min_ns, max_ns), self.query)
    }

    /// Names of the columns that a metric needs.
    fn columns(&self, metric: MetricId) -> Vec<String> {
        if self.grain == Grain::Raw {
            return vec![metric.metric().column.to_owned()];
        }
        let aggregates = &self.query.aggregates;
        rolled::columns(metric, aggregates).chain(rolled::times(aggregates)).collect()
    }

    fn part(
        &self,
        part: &Part,
        rows: &[Range<usize>],
        scope: &Scope,
        contest: &[(i64, i64)],
    ) -> Result<Yield, Unread> {
        let by_gpu = self.query.group_by.contains(&GroupColumn::Gpu) || self.is_tracked();
        // Rows that may have twins are merged with them by key; otherwise the key of one GPU is known.
        let with_keys = !contest.is_empty() || (by_gpu && scope.only_key().is_none());
        let names = self.query.metrics.iter().flat_map(|metric| self.columns(*metric));
        let key_columns = [self.query.table.subject().name(), IdentityColumn::Partition.name()];
        let group_columns = self.query.group_by.iter().filter_map(|column| match column {
            GroupColumn::Gpu => None,
            GroupColumn::Identity(column) => Some(column.name()),
        });
        let columns = group_columns
            .chain(label_columns(&self.query.selector))
            .chain(key_columns.into_iter().filter(|_| with_keys));
        let names: Vec<String> = names.chain(columns.map(str::to_owned)).collect();
        let columns = Columns::time_and(names.iter().map(String::as_str));
        let records = part.read_during(&columns, rows, scope).map_err(Unread::Part)?;
        self.reading.go_on().map_err(Unread::Question)?;
        let keys = match scope.only_key() {
            Some(key) => Ok(RowKeys::one(key, records.num_rows())),
            None if by_gpu => RowKeys::of(&records, self.query.table),
            None => Ok(RowKeys::default()),
        };
        let keys = keys.map_err(|row| Unread::Merge(MergeError::Nobody { part: 0, row: row.0 }))?;
        let (min_ns, max_ns) = part.times();
        let mut tally = self.tally(min_ns, max_ns);
        let labels = labels(&records, self.query, keys);
        if self.grain != Grain::Raw {
            let count = |measured: &mut Measured, runs: &[Run]| rolled::count(measured, &records, runs);
            tally.add_as(timestamps(&records), &labels, self.grid, count).map_err(Unread::Merge)?;
            return Ok(Yield { tally, apart: None });
        }
        let apart = tally.add(&records, &labels, self.grid, contest).map_err(Unread::Merge)?;
        let apart = (!apart.is_empty()).then(|| {
            let rows = apart.into_iter().flatten().filter_map(|row| u32::try_from(row).ok());
            take_record_batch(&records, &UInt32Array::from_iter_values(rows))
        });
        Ok(Yield { tally, apart: apart.transpose().map_err(|error| Unread::Merge(error.into()))? })
    }
}

/// Why a part gave nothing.
enum Unread {
    Part(String),
    Merge(MergeError),
    Question(QueryError),
}
