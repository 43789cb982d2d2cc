//! Replay of table files through the public surface.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal32Array, DictionaryArray, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt16Array, UInt64Array,
};
use gpuvitals_core::batch::{Value, text_at};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, MetricId, Table, catalogue, causes, wire};
use gpuvitals_inputs::replay::{
    Cause, Replay, ReplayConfig, ReplayError, ReplayPace, ReplaySource, WINDOW_ROWS,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

/// When the replays start: 2026-01-01.
const NOW: i64 = 1_767_225_600 * SECOND_NS;
const POWER: MetricId = MetricId::of("power_w");
const MEMORY: MetricId = MetricId::of("memory_used_mb");

fn texts<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(texts.into_iter().collect::<DictionaryArray<Int32Type>>())
}

fn times(times: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(times))
}

/// Writes a file; `schema` is the footer's.
fn write(path: &Path, schema: Option<&str>, columns: Vec<(&str, ArrayRef)>) -> PathBuf {
    let records = RecordBatch::try_from_iter(columns).unwrap();
    let footer = schema.map(|it| vec![KeyValue::new("gpuvitals.schema".to_owned(), it.to_owned())]);
    let properties = WriterProperties::builder()
        .set_key_value_metadata(footer)
        .set_max_row_group_row_count(Some(50_000))
        .set_data_page_row_count_limit(2_000)
        .set_write_batch_size(1_000);
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties.build())).unwrap();
    writer.write(&records).unwrap();
    writer.close().unwrap();
    path.to_owned()
}

fn open(path: &Path) -> Result<ReplaySource, ReplayError> {
    ReplaySource::open(path, ReplayConfig::default(), NOW)
}

/// All batches of a replay that never waits.
fn all(source: &mut ReplaySource) -> Vec<Batch> {
    let mut batches = Vec::new();
    loop {
        match source.poll(NOW).unwrap() {
            // The collector takes each of them.
            Poll::Ready(batch) => batches.push(wire::decode(&wire::encode(&batch).unwrap()).unwrap()),
            Poll::NotBefore(at) => panic!("waits until {at}"),
            Poll::End => return batches,
        }
    }
}

/// `time uuid power`, times in seconds since the start of the tests' year less a day.
fn rows(batches: &[Batch]) -> Vec<String> {
    let of = |batch: &Batch| {
        let row = |row: usize| {
            let power =
                batch.metric(POWER).and_then(|c| c.value(row)).map_or("-".into(), |v| v.as_f64().to_string());
            format!(
                "{} {} {power}",
                batch.timestamps()[row] / SECOND_NS,
                batch.identity(row).key().unwrap_or_default()
            )
        };
        (0..batch.rows()).map(row).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

#[test]
fn a_file_by_gpu_comes_out_by_time_and_its_rows_need_not_fit_into_a_window() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = WINDOW_ROWS as i64;
    let gpus = ["a", "b", "c"];
    let row = || gpus.iter().flat_map(|gpu| (0..seconds).map(move |second| (*gpu, second)));
    let path = write(
        &dir.path().join("any.parquet"),
        Some("gpu_events 1"),
        vec![
            ("timestamp_ns", times(row().map(|(_, second)| second * SECOND_NS))),
            ("uuid", texts(row().map(|(gpu, _)| Some(gpu)))),
            (
                "power_w",
                Arc::new(Float32Array::from_iter_values(
                    row().map(|(gpu, s)| (s % 500) as f32 + f32::from(gpu.as_bytes()[0])),
                )),
            ),
        ],
    );
    let mut source = open(&path).unwrap();
    let batches = all(&mut source);
    let found = rows(&batches);
    let expected: Vec<String> = (0..seconds)
        .flat_map(|second| {
            gpus.map(|gpu| format!("{second} {gpu} {}", second % 500 + i64::from(gpu.as_bytes()[0])))
        })
        .collect();
    assert!(found == expected, "{:?} …, {} rows", &found[..6], found.len());
    assert_eq!(
        batches.iter().map(Batch::sequence).collect::<Vec<_>>(),
        (1..=batches.len() as u64).collect::<Vec<_>>()
    );
    let counts = source.counts();
    assert_eq!((counts.rows_read, counts.rows_taken, counts.passes), (3 * WINDOW_ROWS, 3 * WINDOW_ROWS, 1));
    assert_eq!(Some(counts.bytes_read), counts.bytes_total);
    assert_eq!(counts.bytes_total, Some(std::fs::metadata(&path).unwrap().len()));
}

#[test]
fn more_rows_of_one_time_than_a_window_has_room_for_come_together() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 2 * WINDOW_ROWS as usize;
    let at = (0..rows).map(|row| if row % 4 == 0 { 1 } else { 7_000_000 * SECOND_NS });
    let path = write(
        &dir.path().join("any.parquet"),
        None,
        vec![("timestamp_ns", times(at)), ("uuid", texts((0..rows).map(|_| Some("a"))))],
    );
    let batches = all(&mut open(&path).unwrap());
    let times: Vec<i64> = batches.iter().flat_map(|batch| batch.timestamps().to_vec()).collect();
    assert!(times.len() == rows && times.is_sorted());
}

#[test]
fn a_file_is_read_however_it_is_compressed() {
    let dir = tempfile::tempdir().unwrap();
    // The first is what pandas, Arrow, DuckDB and Spark write unless they are told otherwise.
    for compression in [
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::UNCOMPRESSED,
    ] {
        let path = dir.path().join("any.parquet");
        let columns = [("timestamp_ns", times([SECOND_NS])), ("uuid", texts([Some("a")]))];
        let records = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_compression(compression).build();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties)).unwrap();
        writer.write(&records).unwrap();
        writer.close().unwrap();
        assert_eq!(rows(&all(&mut open(&path).unwrap())), ["1 a -"], "{compression}");
    }
}

#[test]
fn foreign_types_become_ours_and_unknown_columns_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        &dir.path().join("any.parquet"),
        None,
        vec![
            ("rack", Arc::new(StringArray::from(vec!["r1", "r2"]))),
            (
                "timestamp_ns",
                Arc::new(TimestampNanosecondArray::from(vec![2 * SECOND_NS, SECOND_NS]).with_timezone("UTC")),
            ),
            ("uuid", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("pod", Arc::new(StringArray::from(vec![Some(""), None]))),
            // What stays on the machine that sampled.
            ("monotonic_ns", times([5, 6])),
            ("read_us", Arc::new(Float64Array::from(vec![310.0, 41_000.0]))),
            ("read_error", texts([None, Some("gone")])),
            ("memory_used_mb", Arc::new(Int32Array::from(vec![7, 8]))),
            ("slot", Arc::new(Int64Array::from(vec![Some(3), None]))),
        ],
    );
    let batches = all(&mut open(&path).unwrap());
    let [batch] = batches.as_slice() else { panic!("{batches:?}") };
    assert_eq!(batch.table(), Table::GpuEvents);
    assert_eq!(rows(&batches), ["1 b -", "2 a -"]);
    let memory = batch.metric(MEMORY).unwrap();
    assert_eq!([0, 1].map(|row| memory.value(row)), [8, 7].map(|mb| Some(Value::Int(mb))));
    let extras: Vec<_> = batch.extras().collect();
    assert_eq!(extras.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["rack", "slot"]);
    let rack: &DictionaryArray<Int32Type> = extras[0].1.as_any().downcast_ref().unwrap();
    assert_eq!([0, 1].map(|row| text_at(rack, row)), [Some("r2"), Some("r1")]);
    let slot: &Float64Array = extras[1].1.as_any().downcast_ref().unwrap();
    assert_eq!(slot.iter().collect::<Vec<_>>(), [None, Some(3.0)]);
    assert!(
        batch.monotonic().is_none() && batch.identity(1).get(gpuvitals_core::IdentityColumn::Pod).is_none()
    );
}

#[test]
fn a_bad_row_is_skipped_and_a_bad_value_left_out_and_both_are_counted_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        &dir.path().join("any.parquet"),
        None,
        vec![
            (
                "timestamp_ns",
                Arc::new(Int64Array::from(vec![
                    Some(1),
                    None,
                    Some(-1),
                    Some(i64::MAX),
                    Some(5),
                    Some(6),
                    Some(7),
                ])),
            ),
            ("uuid", texts([Some("a"), Some("a"), Some("a"), Some("a"), None, Some("../x"), Some("a")])),
            ("power_w", Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, f32::NAN]))),
        ],
    );
    let mut source = open(&path).unwrap();
    let batches = all(&mut source);
    assert_eq!(rows(&batches), ["0 a 1", "0 a -"]);
    let counts = source.counts();
    let skipped = [Cause::Time, Cause::Future, Cause::Identity].map(|cause| counts.skipped(cause));
    assert_eq!((counts.rows_read, counts.rows_taken, skipped, counts.values_invalid), (7, 2, [2, 1, 2], 1));
    let reports: Vec<String> = source.drain_reports().iter().map(ToString::to_string).collect();
    let file = path.display();
    assert_eq!(
        reports,
        [
            format!("{file}: row 2: column timestamp_ns: it has no value"),
            format!("{file}: row 3: column timestamp_ns: -1 is before 1970"),
            format!(
                "{file}: row 4: column timestamp_ns: 2262-04-11T23:47:16.854775807Z is more than an hour ahead of now"
            ),
            format!("{file}: row 6: column uuid: uuid has the character '/', which no uuid has"),
            format!("{file}: row 5: column uuid: it has no value"),
            format!("{file}: row 7: column power_w: NaN is outside 0 to 4000"),
        ]
    );
}

#[test]
fn numbers_of_other_types_become_those_of_the_columns() {
    let dir = tempfile::tempdir().unwrap();
    let decimal = Decimal32Array::from(vec![Some(61_125), None]).with_precision_and_scale(9, 3).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("timestamp_ns", times([1, 2])),
        ("uuid", texts([Some("a"), Some("b")])),
        ("power_w", Arc::new(decimal)),
        ("temperature_c", Arc::new(Float64Array::from(vec![61.5, 1e9]))),
        ("utilization_pct", Arc::new(Int64Array::from(vec![7, 100]))),
        ("memory_used_mb", Arc::new(Float64Array::from(vec![1_234.5, f64::NAN]))),
        ("gpu_clock_mhz", Arc::new(UInt16Array::from(vec![1_980, 345]))),
        ("pcie_rx_bytes_per_s", Arc::new(Float64Array::from(vec![Some(97_863_600.7), None]))),
        ("energy_mj", Arc::new(UInt64Array::from(vec![6_662_613_499_215, 9_100_000_000_000_000]))),
        ("hot", Arc::new(Int16Array::from(vec![-3, 3]))),
    ];
    let path = write(&dir.path().join("others.parquet"), None, columns);
    let mut source = open(&path).unwrap();
    let batches = all(&mut source);
    let value = |batch: &Batch, row: usize, name: &str| {
        let column = batch.metric(catalogue::by_column(name).unwrap())?;
        column.value(row).map(|value| value.to_json().to_string())
    };
    let found: Vec<Vec<Option<String>>> = [
        "power_w",
        "temperature_c",
        "utilization_pct",
        "memory_used_mb",
        "gpu_clock_mhz",
        "pcie_rx_bytes_per_s",
        "energy_mj",
    ]
    .map(|name| batches.iter().flat_map(|b| (0..b.rows()).map(move |row| value(b, row, name))).collect())
    .into();
    let two = |a: &str, b: Option<&str>| vec![Some(a.to_owned()), b.map(str::to_owned)];
    assert_eq!(
        found,
        [
            two("61.125", None),
            two("61.5", None),
            two("7.0", Some("100.0")),
            two("1235", None),
            two("1980", Some("345")),
            two("97863601", None),
            two("6662613499215", None),
        ]
    );
    let reports: Vec<String> = source.drain_reports().iter().map(ToString::to_string).collect();
    let file = path.display();
    assert_eq!(
        reports,
        [
            format!("{file}: row 2: column temperature_c: 1000000000 is outside -50 to 150"),
            format!("{file}: row 2: column memory_used_mb: NaN is outside 0 to 67108864"),
            format!("{file}: row 2: column energy_mj: 9100000000000000 is outside 0 to 9000000000000000"),
        ]
    );
}

#[test]
fn a_file_that_does_not_fit_is_refused_by_name_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let check = |schema: Option<&str>, columns: Vec<(&str, ArrayRef)>, expected: &str| {
        let path = write(&dir.path().join("x.parquet"), schema, columns);
        let error = causes(&open(&path).unwrap_err());
        assert_eq!(error, format!("{}: {expected}", path.display()));
    };
    let (time, gpu) = (|| ("timestamp_ns", times([1])), || ("uuid", texts([Some("a")])));
    check(None, vec![gpu()], "column timestamp_ns is missing, which every row of gpu_events needs");
    check(None, vec![time()], "column uuid is missing, which every row of gpu_events needs");
    check(
        Some("gpu_processes 1"),
        vec![time(), gpu()],
        "column pid is missing, which every row of gpu_processes needs",
    );
    check(Some("marks 1"), vec![time()], "it holds \"marks\", which is no table that can be replayed");
    let seconds = ("timestamp_ns", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef);
    let wanted =
        "column \"timestamp_ns\" has type Float64, which does not become nanoseconds as a 64-bit integer";
    check(None, vec![seconds, gpu()], wanted);
    let power = ("power_w", Arc::new(BooleanArray::from(vec![true])) as ArrayRef);
    let wanted = "column \"power_w\" has type Boolean, which does not become a number";
    check(None, vec![time(), gpu(), power], wanted);
    let flag = ("hot", Arc::new(BooleanArray::from(vec![true])) as ArrayRef);
    check(
        None,
        vec![time(), gpu(), flag],
        "column \"hot\" has type Boolean, which does not become a number or text",
    );
    let path = dir.path().join("cut.parquet");
    std::fs::write(&path, b"PAR1 and no more").unwrap();
    let error = open(&path).unwrap_err();
    assert!(
        causes(&error).starts_with(&format!("{}: cannot be read as Parquet: ", path.display())),
        "{error:?}"
    );
    let error = open(&dir.path().join("nowhere")).unwrap_err();
    assert!(error.io().is_some(), "{error:?}");
}

#[test]
fn a_directory_is_replayed_as_one_and_the_files_name_their_tables() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refused = |words: &str| {
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("the directory has no gpu_events.parquet");
    let seconds = |seconds: [i64; 2]| ("timestamp_ns", times(seconds.map(|s| s * SECOND_NS)));
    write(&at("gpu_events.parquet"), None, vec![seconds([3, 1]), ("uuid", texts([Some("a"), Some("b")]))]);
    write(&at("system_events.parquet"), None, vec![seconds([2, 4]), ("node", texts([Some("n"), Some("n")]))]);
    write(&at("marks.parquet"), Some("marks 1"), vec![seconds([1, 2])]);
    let config = ReplayConfig { batch_rows: 1, ..ReplayConfig::default() };
    let mut source = ReplaySource::open(dir.path(), config, NOW).unwrap();
    let batches = all(&mut source);
    let found: Vec<_> =
        batches.iter().map(|batch| (batch.timestamps()[0] / SECOND_NS, batch.table())).collect();
    let (gpus, hosts) = (Table::GpuEvents, Table::SystemEvents);
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(sorted, [(1, gpus), (2, hosts), (3, gpus), (4, hosts)]);
    std::fs::create_dir(at("unfinished")).unwrap();
    refused("`gpuvitals repair ");
}

#[test]
fn times_rate_and_loop_are_those_of_any_replay() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = times([0, 2, 4].map(|s| s * SECOND_NS));
    let path = write(
        &dir.path().join("x.parquet"),
        None,
        vec![("timestamp_ns", seconds), ("uuid", texts([Some("a"), Some("a"), Some("a")]))],
    );
    let offsets = |config: ReplayConfig, polls: &[i64]| -> Vec<String> {
        let mut source = ReplaySource::open(&path, config, NOW).unwrap();
        let offset = |at: i64| format!("{:?}", (at - NOW) as f64 / SECOND_NS as f64);
        let say = |second: &i64| match source.poll(NOW + second * SECOND_NS).unwrap() {
            Poll::Ready(batch) => {
                batch.timestamps().iter().map(|at| offset(*at)).collect::<Vec<_>>().join(" ")
            }
            Poll::NotBefore(at) => format!("not before {}", offset(at)),
            Poll::End => "end".to_owned(),
        };
        polls.iter().map(say).collect()
    };
    let live = ReplayConfig {
        replay: Replay::Shifted,
        pace: ReplayPace::Recorded,
        speed: 2.0,
        loop_file: true,
        ..ReplayConfig::default()
    };
    assert_eq!(
        offsets(live, &[0, 1, 2, 2, 3, 4]),
        ["not before 0.1", "0.0 1.0", "2.0", "not before 3.0", "not before 3.1", "3.0 4.0"]
    );
    let shifted =
        ReplayConfig { replay: Replay::Shifted, loop_file: true, batch_rows: 2, ..ReplayConfig::default() };
    assert_eq!(offsets(shifted, &[0, 0, 0, 0]), ["0.0 2.0", "4.0", "6.0 8.0", "10.0"]);
    let rate = ReplayConfig {
        pace: ReplayPace::Rate(1.0),
        batch_age_ns: 0,
        replay: Replay::Shifted,
        ..ReplayConfig::default()
    };
    assert_eq!(offsets(rate, &[0, 0, 1, 2, 2]), ["0.0", "not before 1.0", "2.0", "4.0", "end"]);
}
