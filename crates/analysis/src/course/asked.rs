//! A course is one query, and its values are read out of cells.

use gpuvitals_core::catalogue::Instrument;
use gpuvitals_core::history::{BucketQuery, Cell, GroupColumn};
use gpuvitals_core::number::float;
use gpuvitals_core::{MetricId, Table};

pub(super) fn query(metric: MetricId, start_ns: i64, end_ns: i64, step_ns: i64) -> BucketQuery {
    BucketQuery {
        group_by: vec![GroupColumn::Gpu],
        ..BucketQuery::of(Table::GpuEvents, vec![metric], start_ns, end_ns, step_ns)
    }
}

pub(super) fn value_of(metric: MetricId, cell: Cell) -> f64 {
    let is_counter = metric.metric().instrument == Instrument::Counter;
    if is_counter { cell.last } else { cell.sum / float(cell.count) }
}
