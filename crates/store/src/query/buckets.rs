//! Values by steps of time.
//!
//! Rows whose key occurs once are counted where they are read, part by part and by all cores. Rows in
//! contested times (see [`crate::reader`]) are set apart, merged, and then counted. If they exceed the bound,
//! the range is halved and answered piece by piece.
//!
//! The 99th percentile is exact, by nearest rank: the smallest value that at least 99 % of the values do not exceed.
//! Of fewer than 100 values that is the largest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use foldhash::fast::RandomState;
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{self, Aggregate, BucketQuery, BucketSeries, Buckets, GroupBy, QueryError};
use gpuvitals_core::{IdentityColumn, MetricId};

use super::fold::p99_position;
use super::grid::Grid;
use super::tally::{Counted, Labels, RankRun, Ranks, Samples, Tally};
use super::{POINTS_MAX, ROWS_MAX, VALUES_MAX};
use crate::merge::{MergeError, Order, RowKeys, as_text, merge};
use crate::reader::{Columns, Part, Reading, Scope, contested, parallel};

/// Parts with fewer rows in all are read by one thread.
const WIDE_ROWS: usize = 100_000;
/// Name of the group of rows that have no node or model.
const UNKNOWN: &str = "unknown";

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
    let grid = Grid::new(query.start_ns, query.end_ns, query.step_ns)?;
    if let Some(metric) = query.metrics.iter().find(|metric| metric.metric().table != query.table) {
        return Err(QueryError::UnknownMetric { column: metric.metric().column, table: query.table });
    }
    let mut answer = Answer { query, grid, groups: BTreeMap::new() };
    let mut partial = BTreeSet::new();
    let mut pieces = vec![grid];
    while let Some(piece) = pieces.pop() {
        match (Piece { query, grid: &piece, reading }).answer(&mut partial) {
            Ok(tally) => answer.fill(&piece, &tally)?,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::TooMuch) if piece.buckets > 1 => {
                let (before, rest) = piece.split(piece.buckets / 2);
                pieces.extend([rest, before]);
            }
            Err(Stop::TooMuch) => return Err(QueryError::TooManyValues { max: VALUES_MAX.min(ROWS_MAX) }),
        }
    }
    Ok(history::Part { answer: answer.finish(), missing: partial.into_iter().collect() })
}

/// A range of buckets answered at once.
struct Piece<'a> {
    query: &'a BucketQuery,
    grid: &'a Grid,
    reading: Reading<'a>,
}

/// The result of a part.
struct Yield {
    tally: Tally,
    apart: Option<RecordBatch>,
}

impl Piece<'_> {
    fn answer(&self, partial: &mut BTreeSet<String>) -> Result<Tally, Stop> {
        let scope = Scope::new(self.query.table, &self.query.gpus, self.grid.start_ns, self.grid.end_ns);
        let mut unread = Vec::new();
        let parts = self.reading.parts(&scope, &mut unread).map_err(Stop::Error)?;
        let contests = contested(&parts);
        let candidates: Vec<_> = parts.iter().map(|part| part.candidates(&scope)).collect();
        let rows: usize = candidates.iter().flatten().flatten().map(Range::len).sum();
        let (values, set_apart) = (AtomicU64::new(0), AtomicU64::new(0));
        let yields = parallel(&parts, rows >= WIDE_ROWS, |at, part| {
            self.reading.go_on().map_err(Unread::Question)?;
            let full = |sum: &AtomicU64, max| sum.load(Ordering::Relaxed) > max;
            if full(&values, VALUES_MAX) || full(&set_apart, ROWS_MAX) {
                return Ok(None);
            }
            let contest = contests.get(at).map_or(&[][..], Vec::as_slice);
            let rows = match candidates.get(at) {
                Some(Ok(rows)) => rows.as_slice(),
                Some(Err(words)) => return Err(Unread::Part(words.clone())),
                None => &[],
            };
            let found = self.part(part, rows, &scope, contest)?;
            values.fetch_add(found.tally.values() as u64, Ordering::Relaxed);
            let apart = found.apart.as_ref().map_or(0, RecordBatch::num_rows) as u64;
            set_apart.fetch_add(apart, Ordering::Relaxed);
            Ok(Some(found))
        });
        let mut whole = self.tally(0..self.grid.buckets);
        let mut apart = Vec::new();
        for found in yields {
            match found {
                Ok(None) => return Err(Stop::TooMuch),
                Ok(Some(found)) => {
                    whole.absorb(found.tally);
                    apart.extend(found.apart);
                    self.bound(&whole)?;
                }
                Err(Unread::Part(words)) => unread.push(words),
                Err(Unread::Merge(error)) => return Err(error.into()),
                Err(Unread::Question(error)) => return Err(Stop::Error(error)),
            }
        }
        if values.into_inner() > VALUES_MAX || set_apart.into_inner() > ROWS_MAX {
            return Err(Stop::TooMuch);
        }
        if let Some(merged) = merge(self.query.table, &apart, Order::GpuTime)? {
            let keys = RowKeys::of(&merged).map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
            let labels = labels(&merged, self.query.group_by, keys);
            whole.add(&merged, std::slice::from_ref(&(0..merged.num_rows())), &labels, self.grid, &[])?;
            self.bound(&whole)?;
        }
        partial.extend(unread);
        Ok(whole)
    }

    fn tally(&self, window: Range<usize>) -> Tally {
        Tally::new(&self.query.metrics, window, self.query.aggregates.contains(&Aggregate::P99))
    }

    /// Checks the cells against the bound of an answer.
    fn bound(&self, tally: &Tally) -> Result<(), Stop> {
        let series = tally.names.len() * self.query.metrics.len() * self.query.aggregates.len().max(1);
        let points = (series as u64).saturating_mul(self.grid.buckets as u64);
        let over = points > POINTS_MAX;
        if over { Err(Stop::Error(QueryError::TooManyPoints { max: POINTS_MAX })) } else { Ok(()) }
    }

    fn part(
        &self,
        part: &Part,
        rows: &[Range<usize>],
        scope: &Scope,
        contest: &[(i64, i64)],
    ) -> Result<Yield, Unread> {
        let by_gpu = self.query.group_by == GroupBy::Gpu;
        // Rows that may have twins are merged with them by key; otherwise the key of one GPU is known.
        let with_keys = !contest.is_empty() || (by_gpu && scope.only_key().is_none());
        let names = self.query.metrics.iter().map(|metric| metric.metric().column);
        let key_columns = [self.query.table.subject().name(), IdentityColumn::Partition.name()];
        let group_column = match self.query.group_by {
            GroupBy::Node => Some(IdentityColumn::Node.name()),
            GroupBy::Model => Some(IdentityColumn::Model.name()),
            GroupBy::Gpu | GroupBy::All => None,
        };
        let columns =
            Columns::time_and(names.chain(group_column).chain(key_columns.into_iter().filter(|_| with_keys)));
        let records = part.read(&columns, rows).map_err(Unread::Part)?;
        let keys = match scope.only_key() {
            Some(key) => Ok(RowKeys::one(key, records.num_rows())),
            None if by_gpu => RowKeys::of(&records),
            None => Ok(RowKeys::default()),
        };
        let keys = keys.map_err(|row| Unread::Merge(MergeError::Nobody { part: 0, row: row.0 }))?;
        let (min_ns, max_ns) = part.times();
        let bucket = |time: i64| {
            let time = time.clamp(self.grid.start_ns, self.grid.end_ns);
            usize::try_from((time - self.grid.origin_ns) / self.grid.step_ns).unwrap_or(0)
        };
        let mut tally = self.tally(bucket(min_ns)..bucket(max_ns) + 1);
        let labels = labels(&records, self.query.group_by, keys);
        let all = 0..records.num_rows();
        let apart = tally
            .add(&records, std::slice::from_ref(&all), &labels, self.grid, contest)
            .map_err(Unread::Merge)?;
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

fn labels(records: &RecordBatch, group_by: GroupBy, keys: RowKeys) -> Labels {
    let column = match group_by {
        GroupBy::Gpu => return Labels { ids: Some(keys.ids), names: keys.keys },
        GroupBy::All => return Labels { ids: None, names: vec![Arc::from("all")] },
        GroupBy::Node => IdentityColumn::Node,
        GroupBy::Model => IdentityColumn::Model,
    };
    let text = records.column_by_name(column.name()).and_then(as_text);
    let dictionary = text.as_ref().and_then(|array| array.as_dictionary_opt::<Int32Type>());
    let Some((keys, texts)) = dictionary.and_then(|d| Some((d.keys(), d.values().as_string_opt::<i32>()?)))
    else {
        return Labels { ids: None, names: vec![Arc::from(UNKNOWN)] };
    };
    let mut names: Vec<Arc<str>> = texts.iter().map(|text| Arc::from(text.unwrap_or(UNKNOWN))).collect();
    let unknown = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.push(Arc::from(UNKNOWN));
    let id = |key: Option<i32>| key.and_then(|key| u32::try_from(key).ok()).unwrap_or(unknown);
    let ids = if keys.null_count() == 0 {
        keys.values().iter().map(|&key| id(Some(key))).collect()
    } else {
        keys.iter().map(id).collect()
    };
    Labels { ids: Some(ids), names }
}

/// Series under construction.
struct Answer<'a> {
    query: &'a BucketQuery,
    grid: Grid,
    /// By group: one line per metric and aggregate, in the order asked.
    groups: BTreeMap<Arc<str>, Vec<Vec<Option<f64>>>>,
}

impl Answer<'_> {
    fn fill(&mut self, piece: &Grid, tally: &Tally) -> Result<(), QueryError> {
        let (metrics, aggregates) = (&self.query.metrics, &self.query.aggregates);
        let lines = metrics.len() * aggregates.len();
        let offset =
            usize::try_from((piece.origin_ns - self.grid.origin_ns) / self.grid.step_ns).unwrap_or(0);
        for name in &tally.names {
            if !self.groups.contains_key(name) {
                let points = ((self.groups.len() + 1) * lines) as u64 * self.grid.buckets as u64;
                if points > POINTS_MAX {
                    return Err(QueryError::TooManyPoints { max: POINTS_MAX });
                }
                self.groups.insert(Arc::clone(name), vec![vec![None; self.grid.buckets]; lines]);
            }
        }
        for (metric, counted) in tally.counted.iter().enumerate() {
            let p99 = aggregates.contains(&Aggregate::P99).then(|| percentiles(counted, tally.buckets()));
            for (group, name) in tally.names.iter().enumerate() {
                let Some(lines) = self.groups.get_mut(name) else { continue };
                let cells = group * tally.buckets()..(group + 1) * tally.buckets();
                for (line, &aggregate) in lines.iter_mut().skip(metric * aggregates.len()).zip(aggregates) {
                    let line = line.iter_mut().skip(offset);
                    for (slot, (at, cell)) in
                        line.zip(cells.clone().zip(counted.cells.get(cells.clone()).unwrap_or(&[])))
                    {
                        let value = match aggregate {
                            Aggregate::Min => cell.min,
                            Aggregate::Max => cell.max,
                            Aggregate::Mean => cell.sum / count(cell.count),
                            Aggregate::Last => cell.last,
                            Aggregate::Count => count(cell.count),
                            Aggregate::P99 => {
                                p99.as_ref().and_then(|p99| p99.get(&at)).copied().unwrap_or(cell.max)
                            }
                        };
                        *slot = (cell.count > 0 && value.is_finite()).then_some(value);
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Buckets {
        let times_ns = (0..self.grid.buckets).map(|bucket| self.grid.time(bucket)).collect();
        let mut series = Vec::new();
        let asked =
            self.query.metrics.iter().flat_map(|&m| self.query.aggregates.iter().map(move |&a| (m, a)));
        let mut groups = self.groups;
        for (line, (metric, aggregate)) in asked.enumerate() {
            for (group, lines) in &mut groups {
                let values = lines.get_mut(line).map(std::mem::take).unwrap_or_default();
                if values.iter().any(Option::is_some) {
                    series.push(BucketSeries { metric, aggregate, group: Arc::clone(group), values });
                }
            }
        }
        Buckets { times_ns, series }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no bucket has 2^53 values")]
fn count(count: u64) -> f64 {
    count as f64
}

/// The 99th percentile of each cell with 100 values or more, by the cell's position; below it is the largest.
fn percentiles(counted: &Counted, buckets: usize) -> HashMap<usize, f64, RandomState> {
    let mut runs: Vec<(usize, &Samples, &RankRun)> = Vec::new();
    for samples in &counted.samples {
        runs.extend(samples.runs.iter().filter_map(|run| {
            let cell = run.group as usize * buckets + run.bucket as usize;
            (counted.cells.get(cell)?.count >= 100).then_some((cell, samples, run))
        }));
    }
    runs.sort_by_key(|(cell, _, _)| *cell);
    let cells: Vec<&[(usize, &Samples, &RankRun)]> = runs.chunk_by(|a, b| a.0 == b.0).collect();
    let wide = runs.iter().map(|(_, _, run)| run.len as usize).sum::<usize>() >= WIDE_ROWS;
    let values = parallel(&cells, wide, |_, runs| Some((runs.first()?.0, percentile(runs, counted.metric)?)));
    values.into_iter().flatten().collect()
}

fn percentile(runs: &[(usize, &Samples, &RankRun)], metric: MetricId) -> Option<f64> {
    let (mut narrow, mut wide): (Vec<u32>, Vec<u64>) = (Vec::new(), Vec::new());
    for (_, samples, run) in runs {
        let range = run.start as usize..run.start as usize + run.len as usize;
        match &samples.ranks {
            Ranks::Narrow(ranks) => narrow.extend_from_slice(ranks.get(range)?),
            Ranks::Wide(ranks) => wide.extend_from_slice(ranks.get(range)?),
        }
    }
    let position = p99_position(narrow.len().max(wide.len()));
    let narrow = (position < narrow.len()).then(|| *narrow.select_nth_unstable(position).1);
    let wide = (position < wide.len()).then(|| *wide.select_nth_unstable(position).1);
    match (metric.metric().column_type, narrow, wide) {
        (ColumnType::I32, Some(rank), _) => Some(f64::from((rank ^ (1 << 31)).cast_signed())),
        (ColumnType::F32, Some(rank), _) => {
            Some(f64::from(f32::from_bits(if rank >> 31 == 1 { rank ^ (1 << 31) } else { !rank })))
        }
        (ColumnType::I64, _, Some(rank)) => {
            Some(super::fold::Number::float((rank ^ (1 << 63)).cast_signed()))
        }
        (ColumnType::F64, _, Some(rank)) => {
            Some(f64::from_bits(if rank >> 63 == 1 { rank ^ (1 << 63) } else { !rank }))
        }
        _ => None,
    }
}
