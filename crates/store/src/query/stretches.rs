//! Which times of an answer come from which files: from the coarsest rollup that gives the same answer, or from rows.
//!
//! A step of a rollup counts where all rows of a GPU and that time are in one file, and the rollup was made of it. Elsewhere
//! the rows are read. Where rows have been deleted, whatever rollup is left is read.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_core::history::BucketQuery;

use crate::grain::Grain;
use crate::manifest::{FileEntry, Span};
use crate::reader::joined;
use crate::rollup::{has_sketch, has_track};
use crate::snapshot::Snapshot;

/// Times, ascending and apart, both ends inclusive.
type Times = Vec<(i64, i64)>;

/// A stretch of time, both ends inclusive, and the grain that is read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) grain: Grain,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
}

/// The sources of an answer. No instant is in two.
pub(crate) fn sources(snapshot: &Snapshot, query: &BucketQuery) -> Vec<Source> {
    let raw: Vec<&FileEntry> = of_table(&snapshot.files, query, Grain::Raw);
    let mut rest: Times = vec![(query.start_ns, query.end_ns)];
    let mut sources = Vec::new();
    let mut take = |rest: &mut Times, times: Times, grain: Grain| {
        *rest = without(rest, &times);
        sources.extend(times.into_iter().map(|(start_ns, end_ns)| Source { grain, start_ns, end_ns }));
    };
    let divides = |grain: &Grain| {
        let width_ns = grain.step_ns().max(1);
        query.step_ns % width_ns == 0 && query.phase_ns % width_ns == 0
    };
    for grain in Grain::ROLLUPS.into_iter().rev().filter(|grain| divides(grain) && answers(*grain, query)) {
        let (has, unrolled) = (rolled(snapshot, query, grain), unrolled(snapshot, &raw, query, grain));
        let whole = common(&without(&has, &unrolled), &rest);
        let whole = whole.into_iter().filter_map(|times| whole_steps(times, grain.step_ns()));
        take(&mut rest, whole.collect(), grain);
    }
    // Where there are no rows: a step that begins in the range counts, also if it ends beyond it. The finest that has what is
    // asked; without one, a percentile or a rate of that time is unknown.
    let able = Grain::ROLLUPS.into_iter().filter(|grain| answers(*grain, query));
    for grain in able.chain(Grain::ROLLUPS) {
        let rows = raw.iter().map(|file| (file.min_timestamp_ns, file.max_timestamp_ns));
        let rows = rows.chain(tail(snapshot, query)).map(|times| steps_around(times, grain.step_ns()));
        let only = without(&rolled(snapshot, query, grain), &joined(rows.collect()));
        let only = common(&only, &rest);
        take(&mut rest, only, grain);
    }
    take(&mut Vec::new(), rest, Grain::Raw);
    sources.sort_unstable_by_key(|source| source.start_ns);
    sources
}

/// Whether a rollup has what is asked of each step.
fn answers(grain: Grain, query: &BucketQuery) -> bool {
    let percentile = query.aggregates.iter().any(|aggregate| aggregate.needs_sketch());
    let tracks = query.aggregates.iter().any(|aggregate| aggregate.needs_tracks());
    (!tracks || query.metrics.iter().all(|metric| has_track(*metric)))
        && (!percentile || query.metrics.iter().all(|metric| has_sketch(*metric, grain)))
}

/// The live files of the query's table and time.
fn of_table<'a>(files: &'a [Arc<FileEntry>], query: &BucketQuery, grain: Grain) -> Vec<&'a FileEntry> {
    let (start_ns, end_ns) = steps_around((query.start_ns, query.end_ns), Grain::Day.step_ns());
    let meets = |file: &&FileEntry| {
        (file.table, file.grain) == (query.table, grain)
            && file.damage().is_none()
            && file.min_timestamp_ns <= end_ns
            && file.max_timestamp_ns >= start_ns
    };
    files.iter().map(AsRef::as_ref).filter(meets).collect()
}

/// Times that a grain's files are made of.
fn rolled(snapshot: &Snapshot, query: &BucketQuery, grain: Grain) -> Times {
    let files = of_table(&snapshot.rollups, query, grain).into_iter();
    joined(files.map(|file| (file.span().start_ns(), file.span().end_ns() - 1)).collect())
}

/// Times with a GPU whose rows are not all in one file that a rollup was made of.
fn unrolled(snapshot: &Snapshot, raw: &[&FileEntry], query: &BucketQuery, grain: Grain) -> Times {
    let rollups = of_table(&snapshot.rollups, query, grain);
    let orders: HashSet<u64> = rollups.iter().map(|rollup| rollup.order).collect();
    let (mut rolled, mut others): (Vec<_>, Vec<_>) =
        raw.iter().copied().partition(|file| orders.contains(&file.order));
    let days: HashSet<Span> = rolled.iter().map(|file| file.span()).filter(|it| *it == it.day()).collect();
    rolled.sort_unstable_by(|one, other| (one.span(), &one.min_key).cmp(&(other.span(), &other.min_key)));
    let mut furthest: Option<&FileEntry> = None;
    for file in rolled {
        let span = file.span();
        // The files of a merge are apart by GPU.
        let shared = furthest.filter(|it| it.span() == span && it.max_key >= file.min_key);
        let came_late = span != span.day() && days.contains(&span.day());
        if shared.is_some() || came_late {
            others.push(file);
        }
        furthest = shared.filter(|it| it.max_key >= file.max_key).or(Some(file));
    }
    let times = others.into_iter().map(|file| (file.min_timestamp_ns, file.max_timestamp_ns));
    let times = times.chain(tail(snapshot, query));
    joined(times.map(|times| steps_around(times, grain.step_ns())).collect())
}

/// Times of the rows in memory.
fn tail(snapshot: &Snapshot, query: &BucketQuery) -> impl Iterator<Item = (i64, i64)> {
    let chunks = snapshot.tail.iter().filter(|chunk| chunk.table == query.table);
    chunks.map(|chunk| (chunk.min_timestamp_ns, chunk.max_timestamp_ns))
}

/// The steps that times touch.
fn steps_around((start_ns, end_ns): (i64, i64), step_ns: i64) -> (i64, i64) {
    let start = |ns: i64| ns.div_euclid(step_ns).saturating_mul(step_ns);
    (start(start_ns), start(end_ns).saturating_add(step_ns - 1))
}

/// The steps that lie within times, if any do.
pub(crate) fn whole_steps((start_ns, end_ns): (i64, i64), step_ns: i64) -> Option<(i64, i64)> {
    let first = start_ns.saturating_add(step_ns - 1).div_euclid(step_ns).saturating_mul(step_ns);
    let end = end_ns.saturating_add(1).div_euclid(step_ns).saturating_mul(step_ns);
    (first < end).then_some((first, end - 1))
}

/// What is in both.
fn common(one: &[(i64, i64)], other: &[(i64, i64)]) -> Times {
    let mut found = Vec::new();
    for &(start, end) in one {
        let from = other.partition_point(|&(_, to)| to < start);
        let meets = other.iter().skip(from).take_while(|&&(from, _)| from <= end);
        found.extend(meets.map(|&(from, to)| (from.max(start), to.min(end))));
    }
    found
}

/// What is in the first alone.
fn without(one: &[(i64, i64)], other: &[(i64, i64)]) -> Times {
    let mut found = Vec::new();
    for &(start, end) in one {
        let mut next = Some(start);
        for (from, to) in common(&[(start, end)], other) {
            if let Some(start) = next.filter(|start| *start < from) {
                found.push((start, from - 1));
            }
            next = to.checked_add(1);
        }
        found.extend(next.filter(|start| *start <= end).map(|start| (start, end)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_from_times() {
        assert_eq!(without(&[(0, 9)], &[(2, 3), (5, 5)]), [(0, 1), (4, 4), (6, 9)]);
        assert_eq!(without(&[(0, 9), (20, 29)], &[(5, 24)]), [(0, 4), (25, 29)]);
        assert_eq!(without(&[(i64::MIN, i64::MAX)], &[(i64::MIN, i64::MAX)]), []);
        assert_eq!(without(&[(0, 9)], &[]), [(0, 9)]);
        assert_eq!(common(&[(0, 9), (20, 29)], &[(5, 24), (28, 40)]), [(5, 9), (20, 24), (28, 29)]);
    }

    #[test]
    fn steps_lie_within_or_around() {
        assert_eq!(whole_steps((1, 39), 10), Some((10, 39)));
        assert_eq!(whole_steps((1, 18), 10), None);
        assert_eq!(whole_steps((-15, 5), 10), Some((-10, -1)));
        assert_eq!(steps_around((1, 10), 10), (0, 19));
        assert_eq!(steps_around((-1, 9), 10), (-10, 9));
    }
}
