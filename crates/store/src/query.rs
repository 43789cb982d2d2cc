//! Answers to questions: rows in a range, and values by steps of time.

mod buckets;
mod limits;
mod pieces;
mod range;
mod rolled;
mod stretches;
mod sweep;
mod usage;

use gpuvitals_core::Table;
use gpuvitals_core::history::{BucketQuery, Buckets, Part, QueryError};
use gpuvitals_core::usage::{GpuUse, UseQuery};

use crate::reader::{Reading, Scope};

pub use limits::ROWS_MAX;

pub(crate) use range::range;
pub(crate) use sweep::sweep;

/// Answers by steps. If a rollup is found damaged meanwhile, the rows that it was made of are read instead; it is missing only
/// where they are gone.
///
/// # Errors
/// As [`buckets::buckets`].
pub(crate) fn buckets(reading: Reading<'_>, query: &BucketQuery) -> Result<Part<Buckets>, QueryError> {
    let scope = Scope::new(query.table, &query.gpus, query.start_ns, query.end_ns);
    of_sound_rollups(reading, &scope, || buckets::buckets(reading, query))
}

/// The use of GPUs, in the same way.
///
/// # Errors
/// As [`usage::usage`].
pub(crate) fn usage(reading: Reading<'_>, query: &UseQuery) -> Result<Part<Vec<GpuUse>>, QueryError> {
    let scope = Scope::new(Table::GpuEvents, &query.gpus, query.start_ns, query.end_ns);
    of_sound_rollups(reading, &scope, || usage::usage(reading, query))
}

fn of_sound_rollups<T>(
    reading: Reading<'_>,
    scope: &Scope,
    ask: impl Fn() -> Result<Part<T>, QueryError>,
) -> Result<Part<T>, QueryError> {
    let snapshot = reading.snapshot;
    let damaged = || snapshot.rollups.iter().filter_map(|rollup| Some((rollup, rollup.damage()?)));
    loop {
        let before = damaged().count();
        let mut part = ask()?;
        if damaged().count() > before {
            continue;
        }
        let gone = damaged().filter(|(rollup, _)| scope.meets_rows(rollup) && !snapshot.has_rows_of(rollup));
        part.missing.extend(gone.map(|(rollup, reason)| format!("{}: {reason}", rollup.path.display())));
        return Ok(part);
    }
}
