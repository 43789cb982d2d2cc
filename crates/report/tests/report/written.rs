//! A recording that is written row by row: the same at each run of the tests.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use gpuvitals_core::batch::{Value, floats};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, RowId, Table};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

/// When each run begins: 2026-11-30T12:00:00Z.
const STARTED_NS: i64 = 1_796_040_000_000_000_000;
const MS: i64 = 1_000_000;
/// Bit of NVIDIA's clock event reasons: hardware thermal slowdown.
const HOT: i64 = 0x40;

/// What a GPU says at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) watts: i64,
    pub(crate) clock_mhz: i64,
    pub(crate) is_hot: bool,
}

/// Writes the files of a recording anew, as DuckDB, Polars and pandas do: texts are plain, and the footer says nothing of ours. pandas makes
/// floats of whole numbers where one is missing.
pub(crate) fn write_anew(directory: &Path, has_floats: bool) {
    for table in ["gpu_events", "system_events", "marks"] {
        let path = directory.join(table).with_extension("parquet");
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let file = File::open(&path).unwrap();
        let reader =
            ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap().build().unwrap();
        let batches: Vec<_> = reader.map(|batch| anew(&batch.unwrap(), has_floats)).collect();
        let schema = batches.first().unwrap().schema();
        let is_any = |data_type| schema.fields().iter().any(|field| *field.data_type() == data_type);
        assert!(is_any(DataType::Utf8) && has_floats == is_any(DataType::Float64), "{table}: {schema}");
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, None).unwrap();
        for batch in &batches {
            writer.write(batch).unwrap();
        }
        writer.close().unwrap();
    }
}

fn anew(batch: &RecordBatch, has_floats: bool) -> RecordBatch {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let is_time = field.name().ends_with("_ns");
        let numbers = floats(column).filter(|_| has_floats && !is_time);
        (field.name(), numbers.map_or_else(|| Arc::clone(column), |numbers| Arc::new(numbers) as ArrayRef))
    });
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A run to be written.
pub(crate) struct Run {
    pub(crate) node: &'static str,
    pub(crate) model: &'static str,
    /// How the rows were obtained; none: they do not say it.
    pub(crate) source: Option<&'static str>,
    pub(crate) command: &'static str,
    pub(crate) gpus: i32,
    pub(crate) rows: i64,
    /// Time between two rows of a GPU, ms.
    pub(crate) apart_ms: i64,
    /// The monotonic clock at the begin.
    pub(crate) monotonic_ns: i64,
    /// Milliseconds after the begin, and what is said.
    pub(crate) marks: Vec<(i64, String)>,
    /// By GPU and row; none: no row.
    pub(crate) said: fn(i32, i64) -> Option<Said>,
}

impl Run {
    /// Four GPUs for 20 s, the last of which is too hot for 8 s of them.
    pub(crate) fn hot() -> Self {
        Self {
            node: "n1",
            model: "NVIDIA H100 80GB HBM3",
            source: None,
            command: "python train.py",
            gpus: 4,
            rows: 201,
            apart_ms: 100,
            monotonic_ns: 5_000_000_000,
            marks: vec![(5_000, "epoch 1".to_owned()), (12_000, "epoch 2".to_owned())],
            said: |gpu, row| {
                let is_hot = gpu == 3 && (60..140).contains(&row);
                let (watts, clock_mhz) =
                    if is_hot { (450, 1_200) } else { (600 + ((row * 2_654_435_761) >> 7) % 20, 1_980) };
                Some(Said { watts, clock_mhz, is_hot })
            },
        }
    }

    pub(crate) fn write(&self, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        self.write_table(&directory.join("gpu_events.parquet"), Table::GpuEvents, self.gpu_rows());
        self.write_table(&directory.join("system_events.parquet"), Table::SystemEvents, self.host_rows());
        let times = |begin_ns: i64| -> ArrayRef {
            Arc::new(self.marks.iter().map(|(at_ms, _)| begin_ns + at_ms * MS).collect::<Int64Array>())
        };
        let texts: ArrayRef =
            Arc::new(self.marks.iter().map(|(_, text)| Some(text.as_str())).collect::<StringArray>());
        // `step 12` and `phase wait` are a step and a phase, too.
        let said = |what: &'static str| self.marks.iter().map(move |(_, text)| text.strip_prefix(what));
        let phases: ArrayRef = Arc::new(said("phase ").collect::<StringArray>());
        let steps = said("step ").map(|number| number.and_then(|number| number.parse::<i64>().ok()));
        let steps: ArrayRef = Arc::new(steps.collect::<Int64Array>());
        let columns = [
            ("timestamp_ns", times(STARTED_NS)),
            ("monotonic_ns", times(self.monotonic_ns)),
            ("text", texts),
            ("phase", phases),
            ("step", steps),
        ];
        let records = RecordBatch::try_from_iter(columns).unwrap();
        self.write_records(&directory.join("marks.parquet"), &records);
    }

    fn write_table(&self, path: &Path, table: Table, mut rows: BatchBuilder) {
        // A table without rows has its columns as well.
        let empty = || {
            let mut one = BatchBuilder::new(table);
            let id = one.intern(&self.identity(0));
            one.row_at(0, 0, id);
            one.finish(Origin::default(), 1).unwrap().records().slice(0, 0)
        };
        let batch = rows.finish(Origin::default(), 1);
        self.write_records(path, &batch.map_or_else(empty, |batch| batch.records().clone()));
    }

    fn write_records(&self, path: &Path, records: &RecordBatch) {
        let (hertz, started_ns) = ((1_000 / self.apart_ms).to_string(), STARTED_NS.to_string());
        let facts = [
            ("version", "0.1.0"),
            ("node", self.node),
            ("started_ns", started_ns.as_str()),
            ("started", "2026-11-30T12:00:00Z"),
            ("rate_hz", hertz.as_str()),
            ("system_rate_hz", "10"),
            ("ended", "stopped"),
            ("command", self.command),
            ("arguments", r#"["--epochs","3"]"#),
            ("gpus", r#"[{"id":"GPU-n1-0","gpu":0}]"#),
        ]
        .map(|(key, value)| KeyValue::new(format!("gpuvitals.{key}"), value.to_owned()));
        let properties = WriterProperties::builder().set_key_value_metadata(Some(facts.to_vec())).build();
        let file = File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties)).unwrap();
        writer.write(records).unwrap();
        writer.close().unwrap();
    }

    fn identity(&self, gpu: i32) -> Identity {
        let mut named = Identity::default();
        named.index = Some(gpu);
        [
            (IdentityColumn::Node, self.node.to_owned()),
            (IdentityColumn::Uuid, format!("GPU-{}-{gpu}", self.node)),
            (IdentityColumn::Vendor, "nvidia".to_owned()),
            (IdentityColumn::Model, self.model.to_owned()),
        ]
        .into_iter()
        .chain(self.source.map(|source| (IdentityColumn::Source, source.to_owned())))
        .fold(named, |identity, (column, text)| identity.with(column, &text).unwrap())
    }

    fn gpu_rows(&self) -> BatchBuilder {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in 0..self.gpus {
            let id = builder.intern(&self.identity(gpu));
            for row in 0..self.rows {
                let Some(said) = (self.said)(gpu, row) else { continue };
                let after_ns = row * self.apart_ms * MS;
                let at = builder.row_at(STARTED_NS + after_ns, self.monotonic_ns + after_ns, id);
                let reasons = if said.is_hot { HOT } else { 0 };
                set(
                    &mut builder,
                    at,
                    &[
                        ("power_w", said.watts),
                        ("gpu_clock_mhz", said.clock_mhz),
                        ("mem_clock_mhz", 2_619),
                        ("temperature_c", if said.is_hot { 88 } else { 60 + row % 3 }),
                        ("utilization_pct", 98),
                        ("memory_used_mb", 40_960 + row),
                        ("throttled", i64::from(said.is_hot)),
                        ("throttle_reasons", reasons),
                    ],
                );
            }
        }
        builder
    }

    fn host_rows(&self) -> BatchBuilder {
        let mut builder = BatchBuilder::new(Table::SystemEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Node, self.node).unwrap());
        for row in 0..self.rows {
            let after_ns = row * self.apart_ms * MS;
            let at = builder.row_at(STARTED_NS + after_ns, self.monotonic_ns + after_ns, id);
            set(
                &mut builder,
                at,
                &[("cpu_pct", 20 + row % 7), ("memory_mb", 8_192), ("ctx_switches", 100 * row)],
            );
        }
        builder
    }
}

fn set(builder: &mut BatchBuilder, at: RowId, values: &[(&'static str, i64)]) {
    for (column, value) in values {
        builder.set(at, MetricId::of(column), Value::Int(*value)).unwrap();
    }
}
