//! The batch: rows of one table as Arrow columns, in memory as on disk.
//!
//! A batch holds `timestamp_ns`, the identity columns and those of the catalogue's columns that have a value in
//! it; a missing column is a column of nulls. A table may have columns of its own that are no metrics
//! ([`Table::columns`](crate::catalogue::Table::columns)). Columns that neither knows are kept under their own name, as 64-bit floats or text. Both are
//! "extras". Null means not read.

mod builder;
mod columns;
mod concat;
mod keys;
mod numbers;
pub(crate) mod value;
mod whole;

pub use builder::{BatchBuilder, IdentityId, RowId};
pub use columns::{
    BatchError, MONOTONIC_COLUMN, MetricColumn, Origin, READ_ERROR_COLUMN, READ_US_COLUMN, TIMESTAMP_COLUMN,
    data_type, is_local, is_unknown, numbers, text_at, text_type, type_of, widened, with_text_type,
};
pub use keys::{KeylessRow, RowKeys, as_dictionary};
pub use numbers::{as_numbers, floats, narrowed};
pub use value::{EXTRA_COLUMNS_MAX, Value, ValueError};
pub use whole::{Batch, metric_of, timestamps};
