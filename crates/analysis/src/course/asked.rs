//! A course is one query, and its values are read out of cells.

use gpuvitals_core::catalogue::Instrument;
use gpuvitals_core::history::{Aggregate, BucketQuery, Cell, GroupColumn};
use gpuvitals_core::number::float;
use gpuvitals_core::{MetricId, Table};

pub(super) fn query(metric: MetricId, start_ns: i64, end_ns: i64, step_ns: i64) -> BucketQuery {
    BucketQuery {
        aggregates: [Aggregate::Mean]
            .into_iter()
            .chain(is_counter(metric).then_some(Aggregate::Last))
            .collect(),
        group_by: vec![GroupColumn::Gpu],
        ..BucketQuery::of(Table::GpuEvents, vec![metric], start_ns, end_ns, step_ns)
    }
}

pub(super) fn value_of(metric: MetricId, cell: Cell) -> f64 {
    if is_counter(metric) { cell.last } else { cell.sum / float(cell.count) }
}

fn is_counter(metric: MetricId) -> bool {
    metric.metric().instrument == Instrument::Counter
}
