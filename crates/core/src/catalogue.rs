//! The catalogue: the only list of metrics.
//!
//! One row a metric. Column names, wire fields, JSON names, Prometheus, DCGM and OpenTelemetry names, units,
//! ranges, prices and help sentences all come from here; no other code spells a metric.
//!
//! A value travels in its *column unit* (the field's own unit: MHz, W, MiB, %) from the dialect that read it to
//! the screen. Only an exposition multiplies by [`Metric::factor`] to get Prometheus base units.

mod gpu;
mod host;
mod list;
mod lookup;
mod metric;
mod names;
mod parts;
mod render;
mod row;
mod table;
mod unit;

pub use list::METRICS;
pub use lookup::{by_alias, by_column, by_dcgm, folded, gpu_metrics, host_metrics, second_by_dcgm, suggest};
pub use metric::{DcgmName, Metric, MetricId, OtelName};
pub use parts::MEMORY_PARTS;
pub use render::{json, markdown, table};
pub use table::{ColumnRole, Table, TableColumn};
pub use unit::{ColumnType, Group, Instrument, Scope, Series, Tier, Unit};
