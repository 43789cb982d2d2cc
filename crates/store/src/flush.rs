//! From rows in memory to sorted files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use gpuvitals_core::Table;

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file::{self, Place, TableWriter};
use crate::manifest::{FileRecord, HOUR_NS};
use crate::merge::{Merge, MergeError, Order};
use crate::step::FileSteps;
use crate::tail::{Tail, timestamps};

/// Rows that are gathered before they are encoded: a megabyte or two.
const PIECE_ROWS: usize = 1 << 14;

/// Writes a tail as one file per table and hour. On an error none of them stays.
///
/// # Errors
/// When the disk refuses, or columns do not fit together.
pub(crate) fn write(
    tail: &Tail,
    root: &Path,
    order: u64,
    config: &StoreConfig,
    steps: &FileSteps,
) -> Result<Vec<FileRecord>, StoreError> {
    let mut written = Vec::new();
    for ((table, hour), parts) in by_hour(tail).map_err(MergeError::from)? {
        let first_sequence = tail.first_sequence;
        let place = Place { root: root.to_owned(), table, level: 0, number: order, hour, first_sequence };
        match write_hour(&parts, place, config, steps) {
            Ok(record) => written.extend(record),
            Err(error) => {
                for record in &written {
                    file::discard(root, record);
                }
                return Err(error);
            }
        }
    }
    Ok(written)
}

/// The rows of each table and hour, oldest arrival first.
fn by_hour(tail: &Tail) -> Result<BTreeMap<(Table, i64), Vec<RecordBatch>>, arrow_schema::ArrowError> {
    let mut hours: BTreeMap<(Table, i64), Vec<RecordBatch>> = BTreeMap::new();
    for chunk in tail.chunks() {
        let first = chunk.min_timestamp_ns.div_euclid(HOUR_NS);
        if chunk.max_timestamp_ns.div_euclid(HOUR_NS) == first {
            hours.entry((chunk.table, first)).or_default().push(chunk.records.clone());
            continue;
        }
        let mut rows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, time) in (0_u32..).zip(timestamps(&chunk.records)) {
            rows.entry(time.div_euclid(HOUR_NS)).or_default().push(row);
        }
        for (hour, rows) in rows {
            let part = take_record_batch(&chunk.records, &UInt32Array::from(rows))?;
            hours.entry((chunk.table, hour)).or_default().push(part);
        }
    }
    Ok(hours)
}

fn write_hour(
    parts: &[RecordBatch],
    place: Place,
    config: &StoreConfig,
    steps: &FileSteps,
) -> Result<Option<FileRecord>, StoreError> {
    let plan = Merge::plan(place.table, parts, Order::GpuTime)?;
    if plan.rows() == 0 {
        return Ok(None);
    }
    let properties = file::properties(place.table, plan.schema(), place.level, config.page_rows);
    let mut writer = TableWriter::create(place, plan.schema().clone(), properties, steps)?;
    for rows in row_groups(&plan, config) {
        writer.row_group(pieces(&plan, rows))?;
    }
    Ok(Some(writer.finish()?))
}

/// Merged rows piece by piece: an encoded piece need not be held.
pub(crate) fn pieces(
    plan: &Merge,
    rows: Range<usize>,
) -> impl Iterator<Item = Result<RecordBatch, MergeError>> + '_ {
    let end = rows.end;
    rows.step_by(PIECE_ROWS).map(move |start| plan.batch(start..end.min(start + PIECE_ROWS)))
}

/// Ranges of merged rows that make row groups: whole GPUs, unless one GPU alone is too long.
pub(crate) fn row_groups(plan: &Merge, config: &StoreConfig) -> Vec<Range<usize>> {
    let step = config.row_group_rows.max(1);
    plan.gpu_ranges(config.row_group_gpus)
        .into_iter()
        .flat_map(|range| {
            let end = range.end;
            range.step_by(step).map(move |start| start..end.min(start.saturating_add(step)))
        })
        .collect()
}
