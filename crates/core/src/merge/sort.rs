//! Result position of each row: GPUs as ranks, a counting sort by rank, and times sorted only if necessary.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Table;
use crate::batch::{MetricColumn, RowKeys, TIMESTAMP_COLUMN, Value, numbers};
use crate::catalogue::TableColumn;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use foldhash::fast::RandomState;

use super::{MergeError, Order, Pick};

/// A row of the result that several rows make up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Join {
    /// Row of the result.
    pub(crate) row: u32,
    /// Its parts in `joined_rows`: from here …
    pub(crate) start: u32,
    /// … to before here.
    pub(crate) end: u32,
}

/// The rows of all parts, in the order of the result.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// Per row of the result the last arrival among the rows that make it up.
    pub(crate) picks: Vec<Pick>,
    /// Per row of the result its GPU: the place of its key in `keys`.
    pub(crate) ranks: Vec<u32>,
    /// The keys of all GPUs of the parts, ascending.
    pub(crate) keys: Vec<Arc<str>>,
    /// Rows that several rows make up, ascending; none in a table with a version.
    pub(crate) joins: Vec<Join>,
    /// The rows that make them up, in order of arrival.
    pub(crate) joined_rows: Vec<Pick>,
}

#[derive(Debug, Clone, Copy)]
struct SortRow {
    time: i64,
    rank: u32,
    /// Place of the rest of its key among all; 0 in a table without.
    rest: u32,
    pick: Pick,
}

impl SortRow {
    fn is_one_with(&self, other: &Self) -> bool {
        self.time == other.time && self.rank == other.rank && self.rest == other.rest
    }
}

/// Sorts the rows of parts, of which `keys` are the GPUs or hosts.
pub(crate) fn sort(
    table: Table,
    parts: &[RecordBatch],
    keys: &[RowKeys],
    order: Order,
) -> Result<Sorted, MergeError> {
    let (keys, ranks) = ranked(keys);
    let rests = parts
        .iter()
        .map(|part| RowKeys::rest(part, table))
        .collect::<Option<_>>()
        .map(|rests: Vec<_>| ranked(&rests).1);
    let mut rows = Vec::with_capacity(ranks.iter().map(Vec::len).sum());
    for (part, (batch, ranks)) in parts.iter().zip(&ranks).enumerate() {
        let times = batch
            .column_by_name(TIMESTAMP_COLUMN)
            .and_then(|column| column.as_primitive_opt::<Int64Type>())
            .filter(|times| times.null_count() == 0)
            .ok_or(MergeError::Required { part, column: TIMESTAMP_COLUMN })?;
        let rests = rests.as_ref().and_then(|rests| rests.get(part));
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        rows.extend((0_u32..).zip(times.values()).zip(ranks).map(|((row, &time), &rank)| SortRow {
            time,
            rank,
            rest: rests.and_then(|rests| rests.get(row as usize)).copied().unwrap_or(0),
            pick: Pick { part, row },
        }));
    }
    match order {
        Order::GpuTime => by_gpu(&mut rows, keys.len()),
        Order::TimeGpu if rows.is_sorted_by_key(|row| (row.time, row.rank, row.rest)) => {}
        Order::TimeGpu => rows.sort_by_key(|row| (row.time, row.rank, row.rest)),
        // `!` turns the order of integers round without overflow.
        Order::NewestGpu => rows.sort_by_key(|row| (!row.time, row.rank, row.rest)),
    }
    match versions(table, parts)? {
        None => Ok(join(&rows, keys)),
        Some(versions) => Ok(newest(&rows, keys, &versions)),
    }
}

/// Sorts by GPU, time and the rest of the key; stable.
fn by_gpu(rows: &mut Vec<SortRow>, gpus: usize) {
    if rows.is_sorted_by_key(|row| (row.rank, row.time, row.rest)) {
        return;
    }
    let mut next = vec![0_usize; gpus + 1];
    for row in rows.iter() {
        if let Some(count) = next.get_mut(row.rank as usize + 1) {
            *count += 1;
        }
    }
    let mut total = 0;
    for slot in &mut next {
        total += *slot;
        *slot = total;
    }
    let starts = next.clone();
    let mut sorted = vec![SortRow { time: 0, rank: 0, rest: 0, pick: Pick { part: 0, row: 0 } }; rows.len()];
    for row in rows.iter() {
        if let Some(at) = next.get_mut(row.rank as usize) {
            if let Some(slot) = sorted.get_mut(*at) {
                *slot = *row;
            }
            *at += 1;
        }
    }
    for bounds in starts.windows(2) {
        let &[start, end] = bounds else { continue };
        if let Some(gpu) = sorted.get_mut(start..end)
            && !gpu.is_sorted_by_key(|row| (row.time, row.rest))
        {
            gpu.sort_by_key(|row| (row.time, row.rest));
        }
    }
    *rows = sorted;
}

/// Finds the rows that are one.
fn join(rows: &[SortRow], keys: Vec<Arc<str>>) -> Sorted {
    let mut sorted = Sorted {
        picks: Vec::with_capacity(rows.len()),
        ranks: Vec::with_capacity(rows.len()),
        keys,
        joins: Vec::new(),
        joined_rows: Vec::new(),
    };
    for same in rows.chunk_by(SortRow::is_one_with) {
        let Some(last) = same.last() else { continue };
        if same.len() > 1 {
            let start = small(sorted.joined_rows.len());
            sorted.joined_rows.extend(same.iter().map(|row| row.pick));
            let end = small(sorted.joined_rows.len());
            sorted.joins.push(Join { row: small(sorted.picks.len()), start, end });
        }
        sorted.picks.push(last.pick);
        sorted.ranks.push(last.rank);
    }
    sorted
}

/// Of the rows that are one keeps the one with the largest version, of equal ones the later.
fn newest(rows: &[SortRow], keys: Vec<Arc<str>>, versions: &[MetricColumn<'_>]) -> Sorted {
    let version = |row: &&SortRow| match versions
        .get(row.pick.part as usize)
        .and_then(|column| column.value(row.pick.row as usize))
    {
        Some(Value::Int(version)) => version,
        _ => i64::MIN,
    };
    let mut sorted =
        Sorted { picks: Vec::new(), ranks: Vec::new(), keys, joins: Vec::new(), joined_rows: Vec::new() };
    for same in rows.chunk_by(SortRow::is_one_with) {
        let Some(stays) = same.iter().max_by_key(version) else { continue };
        sorted.picks.push(stays.pick);
        sorted.ranks.push(stays.rank);
    }
    sorted
}

/// The versions of each part's rows; none of a table without.
fn versions<'a>(table: Table, parts: &'a [RecordBatch]) -> Result<Option<Vec<MetricColumn<'a>>>, MergeError> {
    let Some(TableColumn { name: column, .. }) = table.version() else { return Ok(None) };
    let of = |(part, batch): (usize, &'a RecordBatch)| {
        let versions = batch.column_by_name(column).and_then(numbers);
        versions.ok_or(MergeError::Required { part, column })
    };
    parts.iter().enumerate().map(of).collect::<Result<_, _>>().map(Some)
}

/// Row counts are checked to fit when a merge is planned.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The GPUs or hosts of each part's rows.
pub(crate) fn subjects(table: Table, parts: &[RecordBatch]) -> Result<Vec<RowKeys>, MergeError> {
    let of = |(part, batch): (usize, &RecordBatch)| {
        RowKeys::of(batch, table).map_err(|row| {
            let column = table.subject().name();
            if batch.column_by_name(column).is_none() {
                MergeError::Required { part, column }
            } else {
                MergeError::Nobody { part, row: row.0 }
            }
        })
    };
    parts.iter().enumerate().map(of).collect()
}

/// The keys, ascending, and per part and row the rank of its key.
fn ranked(parts: &[RowKeys]) -> (Vec<Arc<str>>, Vec<Vec<u32>>) {
    let (mut keys, maps) = numbered(parts);
    keys.sort_unstable();
    let mut ranked: Vec<Arc<str>> = Vec::with_capacity(keys.len());
    let mut rank_of = vec![0_u32; keys.len()];
    for (key, number) in keys {
        if ranked.last() != Some(key) {
            ranked.push(Arc::clone(key));
        }
        if let Some(rank) = rank_of.get_mut(number as usize) {
            *rank = small(ranked.len() - 1);
        }
    }
    let of = |map: &[u32], id: u32| map.get(id as usize).copied().unwrap_or(u32::MAX);
    let ranks = parts.iter().zip(maps).map(|(part, map)| {
        let map: Vec<u32> = map.into_iter().map(|number| of(&rank_of, number)).collect();
        part.ids.iter().map(|&id| of(&map, id)).collect()
    });
    let ranks = ranks.collect();
    (ranked, ranks)
}

/// A key and its number.
type Numbered<'a> = (&'a Arc<str>, u32);

/// A number for each key, and per part those of its keys. One part's keys keep their places, also where two are the
/// same; the keys that parts share have one number.
fn numbered(parts: &[RowKeys]) -> (Vec<Numbered<'_>>, Vec<Vec<u32>>) {
    if let [part] = parts {
        let keys: Vec<_> = part.keys.iter().zip(0_u32..).collect();
        let map = keys.iter().map(|(_, number)| *number).collect();
        return (keys, vec![map]);
    }
    let mut numbers: HashMap<&Arc<str>, u32, RandomState> = HashMap::default();
    let mut maps = Vec::with_capacity(parts.len());
    for part in parts {
        let number = |key| {
            let next = small(numbers.len());
            *numbers.entry(key).or_insert(next)
        };
        maps.push(part.keys.iter().map(number).collect());
    }
    (numbers.into_iter().collect(), maps)
}
