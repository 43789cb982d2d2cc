//! From rows in memory to sorted files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use gpuvitals_core::Table;

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file::{self, Place, Sorted, TableWriter};
use crate::grain::Grain;
use crate::manifest::{FileRecord, Span};
use crate::step::FileSteps;
use crate::tail::Tail;
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::merge::{Merge, MergeError, Order, Overwritten};

/// Writes a tail as one file per table and hour; `overwritten` gets the rows whose values differed. On an error none of the
/// files stays.
///
/// # Errors
/// When the disk refuses, or columns do not fit together.
pub(crate) fn write(
    tail: &Tail,
    root: &Path,
    order: u64,
    config: &StoreConfig,
    steps: &FileSteps,
    overwritten: &mut Overwritten,
) -> Result<Vec<FileRecord>, StoreError> {
    let mut written = Vec::new();
    for ((table, span), parts) in by_hour(tail).map_err(MergeError::from)? {
        let first_sequence = tail.first_sequence;
        let place = Place {
            root: root.to_owned(),
            table,
            grain: Grain::Raw,
            level: 0,
            number: order,
            span,
            first_sequence,
        };
        match write_hour(&parts, place, config, steps, overwritten) {
            Ok(record) => written.extend(record),
            Err(error) => {
                file::discard_all(root, &written);
                return Err(error);
            }
        }
    }
    Ok(written)
}

/// The rows of each table and hour, oldest arrival first.
fn by_hour(tail: &Tail) -> Result<BTreeMap<(Table, Span), Vec<RecordBatch>>, arrow_schema::ArrowError> {
    let mut hours: BTreeMap<(Table, Span), Vec<RecordBatch>> = BTreeMap::new();
    for chunk in tail.chunks() {
        let first = Span::hour_of(chunk.min_timestamp_ns);
        if Span::hour_of(chunk.max_timestamp_ns) == first {
            hours.entry((chunk.table, first)).or_default().push(chunk.records.clone());
            continue;
        }
        let mut rows: BTreeMap<Span, Vec<u32>> = BTreeMap::new();
        for (row, time) in (0_u32..).zip(timestamps(&chunk.records)) {
            rows.entry(Span::hour_of(*time)).or_default().push(row);
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
    overwritten: &mut Overwritten,
) -> Result<Option<FileRecord>, StoreError> {
    let plan = Merge::plan(place.table, parts, Order::GpuTime)?;
    overwritten.add(plan.overwritten());
    if plan.rows() == 0 {
        return Ok(None);
    }
    let mut writer = TableWriter::create(place, Arc::clone(plan.schema()), config, steps)?;
    Sorted::merged(&plan, |rows| writer.write(rows))?;
    Ok(Some(writer.finish()?))
}
