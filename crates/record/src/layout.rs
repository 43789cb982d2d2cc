//! Columns of a table in a recording: which always exist, their order and encoding.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use gpuvitals_core::batch::{MONOTONIC_COLUMN, TIMESTAMP_COLUMN, data_type, text_type};
use gpuvitals_core::catalogue::{self, Instrument};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{IdentityColumn, MetricId, Table};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

/// Rows of a page: the encoder holds this many of each column in memory.
const PAGE_ROWS: usize = 4_096;

/// The columns of every recording of a table, even if all are null.
fn promised(table: Table) -> (&'static [IdentityColumn], &'static [&'static str]) {
    match table {
        Table::GpuEvents => (
            &[IdentityColumn::Node, IdentityColumn::Uuid, IdentityColumn::Vendor, IdentityColumn::Model],
            &[
                "gpu_clock_mhz",
                "mem_clock_mhz",
                "temperature_c",
                "power_w",
                "memory_used_mb",
                "utilization_pct",
                "fan_speed_pct",
            ],
        ),
        _ => (
            &[IdentityColumn::Node],
            &["cpu_pct", "memory_mb", "ctx_switches", "page_faults", "irqs", "load1", "load5", "load15"],
        ),
    }
}

/// Collects the columns seen so far and orders them.
#[derive(Debug)]
pub(crate) struct Columns {
    by_rank: BTreeMap<(usize, String), FieldRef>,
}

impl Columns {
    /// The columns that always exist.
    pub(crate) fn of(table: Table) -> Self {
        let mut columns = Self { by_rank: BTreeMap::new() };
        for name in [TIMESTAMP_COLUMN, MONOTONIC_COLUMN] {
            columns.add(&Arc::new(Field::new(name, DataType::Int64, false)));
        }
        if table == Table::GpuEvents {
            columns.add(&Arc::new(Field::new(INDEX_COLUMN, DataType::Int32, true)));
        }
        let (identity, metrics) = promised(table);
        for column in identity {
            columns.add(&Arc::new(Field::new(column.name(), text_type(), true)));
        }
        for id in metrics.iter().filter_map(|name| catalogue::by_column(name)) {
            let metric = id.metric();
            columns.add(&Arc::new(Field::new(metric.column, data_type(metric.column_type), true)));
        }
        columns
    }

    /// Adds the columns of a schema.
    pub(crate) fn extend(&mut self, schema: &Schema) {
        schema.fields().iter().for_each(|field| self.add(field));
    }

    fn add(&mut self, field: &FieldRef) {
        let name = field.name();
        let rank = match name.as_str() {
            TIMESTAMP_COLUMN => 0,
            MONOTONIC_COLUMN => 1,
            INDEX_COLUMN => 2,
            _ => match (IdentityColumn::by_name(name), catalogue::by_column(name)) {
                (Some(column), _) => 3 + column as usize,
                (None, Some(MetricId(id))) => 100 + usize::from(id),
                (None, None) => usize::MAX,
            },
        };
        // Catalogue columns rank by number, unknown ones by name.
        let key = (rank, if rank == usize::MAX { name.clone() } else { String::new() });
        self.by_rank.entry(key).or_insert_with(|| {
            let required = name == TIMESTAMP_COLUMN || name == MONOTONIC_COLUMN;
            Arc::new(Field::new(name, field.data_type().clone(), !required))
        });
    }

    /// All of them.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.by_rank.values().cloned().collect::<Vec<_>>()))
    }
}

/// Encoding of a file with these columns: counts are delta-coded, noisy values are split into byte streams,
/// rarely changing ones use a dictionary; zstd over all.
pub(crate) fn properties(schema: &Schema, facts: Vec<KeyValue>) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("gpuvitals ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(facts))
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS / 4)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for field in schema.fields() {
        let path = || ColumnPath::new(vec![field.name().clone()]);
        let plain = match (field.data_type(), is_steady(field.name())) {
            (DataType::Float32 | DataType::Float64, false) => Some(Encoding::BYTE_STREAM_SPLIT),
            (DataType::Int32 | DataType::Int64, false) => Some(Encoding::DELTA_BINARY_PACKED),
            _ => None,
        };
        builder = builder.set_column_dictionary_enabled(path(), plain.is_none());
        if let Some(encoding) = plain {
            builder = builder.set_column_encoding(path(), encoding);
        }
    }
    builder.build()
}

/// Whether a column holds few different values: states, facts of the part, limits.
fn is_steady(name: &str) -> bool {
    name == INDEX_COLUMN
        || catalogue::by_column(name).is_some_and(|id| {
            let metric = id.metric();
            matches!(metric.instrument, Instrument::Info | Instrument::State)
                || metric.tier == catalogue::Tier::Rare
        })
}
