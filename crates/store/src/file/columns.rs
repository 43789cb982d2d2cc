//! Encoding of each column. The choice is measured (`docs/store.md`): noisy values are split into byte
//! streams, counts are delta-coded, rarely changing ones use a dictionary.

use arrow_schema::{DataType, Schema};
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::catalogue::{self, Group, Instrument, Unit};
use gpuvitals_core::{Metric, MetricId, Table};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::grain::Grain;
use crate::rollup::{Figure, is_use};

/// Footer key of the table's version.
const SCHEMA_KEY: &str = "gpuvitals.schema";
/// Version of every table; a rollup's has its step after it.
const SCHEMA_VERSION: u32 = 2;
/// How many times the rows of other pages a page of a dictionary's column has: mostly they are one run, for which each page
/// takes 35 bytes.
const STEADY_PAGES: usize = 4;
/// Levels of zstd: of a flush and of rollups, and of rows that are merged. The second takes 1 % off noise and a fifth off times;
/// 12 would take another 3 % off noise in ten times the time.
const FAST: i32 = 1;
const MERGED: i32 = 5;

enum Coding {
    Dictionary(Option<Encoding>),
    Plain(Encoding),
}

/// Properties of a file with these columns.
pub(crate) fn properties(
    (table, grain, level): (Table, Grain, u8),
    schema: &Schema,
    page_rows: usize,
) -> WriterProperties {
    let step = if grain == Grain::Raw { String::new() } else { format!(" {}", grain.name()) };
    // Of rows each column has a compressor while its row group is open, to which a higher level gives three times the memory. What one
    // would take off rollups was not measured.
    let is_fast = level == 0 || grain != Grain::Raw;
    let zstd = ZstdLevel::try_new(if is_fast { FAST } else { MERGED }).unwrap_or_default();
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(zstd))
        .set_created_by(concat!("gpuvitals ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(
            SCHEMA_KEY.to_owned(),
            format!("{table} {SCHEMA_VERSION}{step}"),
        )]))
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(page_rows.max(1))
        .set_write_batch_size((page_rows / 4).max(1))
        .set_statistics_enabled(if grain == Grain::Raw {
            EnabledStatistics::Chunk
        } else {
            EnabledStatistics::None
        });
    for field in schema.fields() {
        let path = || ColumnPath::new(vec![field.name().clone()]);
        let coding = match Figure::of(field.name()).filter(|_| grain != Grain::Raw) {
            Some((metric, figure)) => coding_of(metric, figure, field.data_type()),
            // As of figures: no dictionaries.
            None if is_use(field.name()) && grain != Grain::Raw => Coding::Plain(match field.data_type() {
                DataType::Int64 => Encoding::DELTA_BINARY_PACKED,
                _ => Encoding::BYTE_STREAM_SPLIT,
            }),
            None => coding(field.name(), field.data_type()),
        };
        let is_dictionary = matches!(coding, Coding::Dictionary(_));
        builder = match coding {
            Coding::Plain(encoding) => {
                builder.set_column_dictionary_enabled(path(), false).set_column_encoding(path(), encoding)
            }
            Coding::Dictionary(None) => builder.set_column_dictionary_enabled(path(), true),
            Coding::Dictionary(Some(beyond)) => {
                builder.set_column_dictionary_enabled(path(), true).set_column_encoding(path(), beyond)
            }
        };
        // Queries skip pages by time and GPU, by nothing else.
        if field.name() == TIMESTAMP_COLUMN || field.name() == table.subject().name() {
            builder = builder.set_column_statistics_enabled(path(), EnabledStatistics::Page);
        } else if grain == Grain::Raw && is_dictionary {
            let rows = page_rows.saturating_mul(STEADY_PAGES).max(1);
            builder = builder.set_column_data_page_row_count_limit(path(), rows);
        }
    }
    builder.build()
}

fn coding(name: &str, data_type: &DataType) -> Coding {
    if name == TIMESTAMP_COLUMN {
        return Coding::Plain(Encoding::DELTA_BINARY_PACKED);
    }
    match (catalogue::by_column(name), data_type) {
        (Some(id), DataType::Float32 | DataType::Float64) if !is_steady(id.metric()) => {
            Coding::Plain(Encoding::BYTE_STREAM_SPLIT)
        }
        (Some(id), DataType::Int32 | DataType::Int64) => integer(id.metric()),
        (_, DataType::Int32 | DataType::Int64) => Coding::Dictionary(Some(Encoding::DELTA_BINARY_PACKED)),
        (_, DataType::Float32 | DataType::Float64) => Coding::Dictionary(Some(Encoding::BYTE_STREAM_SPLIT)),
        _ => Coding::Dictionary(None),
    }
}

/// Encoding of a rollup's column.
fn coding_of(metric: MetricId, figure: Figure, data_type: &DataType) -> Coding {
    match figure {
        Figure::Min | Figure::Max | Figure::Last | Figure::First => coding(metric.metric().column, data_type),
        // Hardly two are the same; a dictionary would have to be read whole for one of them.
        Figure::Sketch => Coding::Plain(Encoding::DELTA_LENGTH_BYTE_ARRAY),
        // Counts are mostly equal, and times are mostly missing or rise: their differences take no dictionary.
        Figure::Count | Figure::LastNs | Figure::FirstNs => Coding::Plain(Encoding::DELTA_BINARY_PACKED),
        Figure::Falls => Coding::Plain(Encoding::BYTE_STREAM_SPLIT),
        Figure::Sum if !is_steady(metric.metric()) => Coding::Plain(Encoding::BYTE_STREAM_SPLIT),
        Figure::Sum => Coding::Dictionary(None),
    }
}

fn is_steady(metric: &Metric) -> bool {
    matches!(metric.instrument, Instrument::Info | Instrument::State)
}

fn integer(metric: &Metric) -> Coding {
    if is_steady(metric) {
        return Coding::Dictionary(Some(Encoding::DELTA_BINARY_PACKED));
    }
    match (metric.instrument, metric.unit) {
        (Instrument::Counter, _) => Coding::Plain(Encoding::DELTA_BINARY_PACKED),
        _ if metric.group == Group::Temperature => Coding::Plain(Encoding::DELTA_BINARY_PACKED),
        (_, Unit::Percent | Unit::Ratio | Unit::BytesPerSecond) => Coding::Plain(Encoding::BYTE_STREAM_SPLIT),
        _ => Coding::Dictionary(Some(Encoding::DELTA_BINARY_PACKED)),
    }
}
