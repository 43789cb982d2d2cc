//! From rows in memory to sorted files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use gpuvitals_core::Table;

use crate::config::StoreConfig;
use crate::directory::Directory;
use crate::error::StoreError;
use crate::file::{self, Place, Sorted, TableWriter};
use crate::grain::Grain;
use crate::manifest::{FileRecord, Span};
use crate::tail::Tail;
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::merge::{Merge, MergeError, Order, Overwritten};

/// A flush of a tail.
pub(crate) struct FlushTask<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) config: &'a StoreConfig,
    /// Used once, by this try.
    pub(crate) number: u64,
}

impl FlushTask<'_> {
    /// Writes a tail as one file per table and hour; beside them the rows whose values differed. On an error none of the
    /// files stays.
    ///
    /// # Errors
    /// When the disk refuses, or columns do not fit together.
    pub(crate) fn write(&self, tail: &Tail) -> Result<(Vec<FileRecord>, Overwritten), StoreError> {
        let (mut written, mut overwritten) = (Vec::new(), Overwritten::default());
        let root = self.directory.root();
        for ((table, span), parts) in by_hour(tail).map_err(MergeError::from)? {
            let place = Place {
                root: root.to_owned(),
                table,
                grain: Grain::Raw,
                level: 0,
                number: self.number,
                span,
                first_sequence: tail.first_sequence,
            };
            match self.write_hour(&parts, place, &mut overwritten) {
                Ok(record) => written.extend(record),
                Err(error) => {
                    file::discard_all(root, &written);
                    return Err(error);
                }
            }
        }
        Ok((written, overwritten))
    }

    fn write_hour(
        &self,
        parts: &[RecordBatch],
        place: Place,
        overwritten: &mut Overwritten,
    ) -> Result<Option<FileRecord>, StoreError> {
        let plan = Merge::plan(place.table, parts, Order::GpuTime)?;
        overwritten.add(plan.overwritten());
        if plan.rows() == 0 {
            return Ok(None);
        }
        let steps = self.directory.steps();
        let mut writer = TableWriter::create(place, Arc::clone(plan.schema()), self.config, steps)?;
        Sorted::merged(&plan, |rows| writer.write(rows))?;
        Ok(Some(writer.finish()?))
    }
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
