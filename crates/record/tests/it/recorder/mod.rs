//! The recorder through its public surface: files, refusals, the remains of a kill.

mod checksums;
mod others;
mod perfetto;
mod socket;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_schema::DataType;
use gpuvitals_core::batch::Value;
use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::{Batch, Identity, IdentityColumn, MetricId, Table};
use gpuvitals_inputs::replay::{ReplayConfig, ReplaySource};
use gpuvitals_record::{
    Data, RecordError, Recorder, RecorderConfig, RecordingFacts, RunFacts, recorded_marks, repair,
};
use gpuvitals_rig::waiting::{ended, within};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::registry::Discovery;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const POWER: MetricId = MetricId::of("power_w");
const FAN: MetricId = MetricId::of("fan_speed_rpm");
const CPU: MetricId = MetricId::of("cpu_pct");

/// A device that counts its readings in a value, and after some of them has one value more.
struct Counting {
    table: Table,
    identity: Arc<Identity>,
    readings: i64,
    late_from: i64,
}

impl Counting {
    fn found(gpus: usize) -> Discovery {
        let named = |name: &str| {
            let identity = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
            Arc::new(identity.with(IdentityColumn::Uuid, name).unwrap())
        };
        let mut found = Discovery::default();
        for gpu in 0..gpus {
            let identity = named(&format!("GPU-{gpu}"));
            found.probes.push(Box::new(Self {
                table: Table::GpuEvents,
                identity,
                readings: 0,
                late_from: 40,
            }));
        }
        let identity = Arc::new(Identity::default().with(IdentityColumn::Node, "n1").unwrap());
        found.probes.push(Box::new(Self { table: Table::SystemEvents, identity, readings: 0, late_from: 0 }));
        found
    }
}

impl Probe for Counting {
    fn table(&self) -> Table {
        self.table
    }

    fn driver(&self) -> Driver {
        if self.table == Table::GpuEvents { Driver::AmdSysfs } else { Driver::Procfs }
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.identity)]
    }

    fn fill(&mut self, _: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let row = reading.row(&self.identity);
        if self.table == Table::SystemEvents {
            row.int(CPU, self.readings % 100);
        } else {
            row.int(POWER, self.readings % 500);
            if self.readings >= self.late_from {
                row.int(FAN, self.readings);
            }
        }
        self.readings += 1;
        Ok(())
    }
}

fn config(directory: &Path) -> RecorderConfig {
    let mut config = RecorderConfig::new(directory, Machine::local("n1"));
    config.interval = Duration::from_millis(2);
    config.system_interval = Duration::from_millis(20);
    config
}

/// Records until this many GPU rows have been written.
fn started(found: Discovery, config: RecorderConfig, rows: usize) -> Recorder {
    let (tell, told) = sync_channel(1);
    let mut left = rows;
    let watch = move |batch: &Batch| {
        if batch.table() == Table::GpuEvents {
            left = left.saturating_sub(batch.rows());
            if left == 0 {
                let _already_told = tell.try_send(());
            }
        }
    };
    let recorder = Recorder::start_with(found, config, watch).unwrap();
    told.recv_timeout(Duration::from_mins(1)).unwrap();
    recorder
}

#[test]
fn facts_and_marks_are_read_back_while_it_runs_and_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = started(Counting::found(1), config(dir.path()), 10);
    recorder.mark("one").unwrap();
    recorder.mark("two").unwrap();
    let read = || {
        let facts = RecordingFacts::read(dir.path()).unwrap();
        let fact = |key| facts.get(key).map(str::to_owned);
        let (marks, count) = recorded_marks(dir.path(), 1).unwrap();
        let texts: Vec<_> = marks.into_iter().map(|mark| mark.content.text).collect();
        (fact("node"), fact("ended"), texts, count)
    };
    let wanted =
        |ended: Option<&str>| (Some("n1".to_owned()), ended.map(str::to_owned), vec!["one".to_owned()], 2);
    assert_eq!(read(), wanted(None));
    recorder.stop().unwrap();
    assert_eq!(read(), wanted(Some("stopped")));
}

/// Not a test of its own: the process that the next one kills. Prints on standard output what has been
/// written.
#[test]
fn child_that_records_until_it_is_killed() {
    let Some(directory) = std::env::var_os("RECORDER_TEST_DIRECTORY") else { return };
    let mut config = config(Path::new(&directory));
    config.part_span = Some(Duration::from_millis(150));
    let mut written = 0;
    let watch = move |batch: &Batch| {
        if batch.table() == Table::GpuEvents {
            written += batch.rows();
            println!("written {written}");
        }
    };
    let recorder = Recorder::start_with(Counting::found(2), config, watch).unwrap();
    // The end of standard input is the signal to end in order.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    recorder.stop().unwrap();
}

/// A process that records, how much it had written by one of its lines, and its other lines: it dies when nobody reads them.
fn child(directory: &Path, nth: usize) -> (Child, usize, impl Iterator<Item = usize> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recorder::child_that_records_until_it_is_killed", "--nocapture"])
        .env("RECORDER_TEST_DIRECTORY", directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = |line: std::io::Result<String>| line.unwrap().strip_prefix("written ")?.parse::<usize>().ok();
    let mut told = lines.filter_map(told);
    let (written, rest) = within("rows that it has written", move || (told.nth(nth).unwrap(), told));
    (child, written, rest)
}

#[test]
fn killed_while_it_ends_it_has_every_row_as_well() {
    for sight in
        ["gpu_events.parquet.tmp", "gpu_events.parquet", "system_events.parquet", "marks.parquet", "finished"]
    {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, written, _rest) = child(dir.path(), 2);
        drop(child.stdin.take());
        let path = dir.path().join(sight);
        // It may be too quick to be seen: then it is whole, which is as good.
        let mut child = within(sight, move || {
            while !path.exists() && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
            child
        });
        child.kill().unwrap();
        ended(&mut child);
        repair(dir.path()).unwrap();
        let all = rows(Data::open(dir.path()).unwrap());
        assert!(all.len() >= written, "{} of {written} at {sight}", all.len());
        assert_complete(&all, 2);
        assert_eq!(repair(dir.path()).unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "{sight}: nothing is left");
    }
}

#[test]
fn killed_at_any_moment_it_has_every_row_that_was_written() {
    for nth in [1, 2, 3, 4, 7] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, written, _rest) = child(dir.path(), nth);
        child.kill().unwrap();
        ended(&mut child);
        let under_way = rows(Data::open(dir.path()).unwrap());
        // What the files have that anybody may read is the beginning of it.
        let whole: usize = parts(dir.path()).iter().map(|part| parquet_rows(part)).sum();
        assert!(whole <= under_way.len());
        let repaired = repair(dir.path()).unwrap().unwrap();
        let all = rows(Data::open(dir.path()).unwrap());
        assert!(all.len() >= written, "{} of {written} at {nth}", all.len());
        assert_eq!((all.len() as u64, &all), (repaired.gpu_rows, &under_way));
        assert_complete(&all, 2);
        assert_eq!(repair(dir.path()).unwrap(), None);
    }
}

/// The Parquet files of GPUs in the directory of a recording, in order.
fn parts(directory: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("gpu_events.") && name.ends_with(".parquet")
    };
    let mut parts: Vec<PathBuf> = names.filter(is_part).collect();
    parts.sort();
    parts
}

fn parquet_rows(path: &Path) -> usize {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum()
}

/// (GPU, timestamp, monotonic clock, counted value, late value) of every GPU row.
type Row = (String, i64, i64, f64, Option<f64>);

fn rows(data: Data) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in data.map(Result::unwrap).filter(|batch| batch.table() == Table::GpuEvents) {
        let number = |metric, row| batch.metric(metric)?.value(row).map(Value::as_f64);
        for row in 0..batch.rows() {
            rows.push((
                batch.identity(row).uuid().unwrap().to_owned(),
                batch.timestamps()[row],
                batch.monotonic().unwrap()[row],
                number(POWER, row).unwrap(),
                number(FAN, row),
            ));
        }
    }
    rows
}

/// Every reading of every GPU is there once, in order, from the first on.
fn assert_complete(rows: &[Row], gpus: usize) {
    for gpu in 0..gpus {
        let of_gpu: Vec<_> = rows.iter().filter(|row| row.0 == format!("GPU-{gpu}")).collect();
        assert!(!of_gpu.is_empty());
        for (n, row) in of_gpu.iter().enumerate() {
            let n = i32::try_from(n).unwrap();
            assert_eq!((row.3, row.4), (f64::from(n % 500), (n >= 40).then(|| f64::from(n))));
        }
        assert!(of_gpu.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].2 < pair[1].2));
    }
}

#[test]
fn a_recording_of_many_parts_is_one_file_with_the_promised_columns() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.part_span = Some(Duration::from_millis(100));
    let (command, commit) = (Some("train".to_owned()), Some("1234567".to_owned()));
    config.run = RunFacts { command, commit, ..RunFacts::default() };
    let recorder = started(Counting::found(2), config, 3_000);
    recorder.mark("late").unwrap();
    let so_far = rows(recorder.data().unwrap());
    assert!(so_far.len() >= 3_000, "{}", so_far.len());
    let sealed = parts(dir.path());
    assert!(sealed.len() > 1, "{sealed:?}");
    let recorded = recorder.stop().unwrap();
    let all = rows(recorded.data().unwrap());
    assert_eq!(all.len() as u64, recorded.gpu_rows);
    assert_complete(&all, 2);
    assert_eq!(all[..so_far.len()], so_far);
    assert!(!dir.path().join("unfinished").exists() && !dir.path().join("finished").exists());

    let types = |name: &str| {
        let file = std::fs::File::open(dir.path().join(name)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        (reader.schema().clone(), reader.metadata().num_row_groups(), facts)
    };
    let (schema, groups, facts) = types("gpu_events.parquet");
    assert_eq!(groups, 1, "of all parts");
    for (name, wanted) in [
        ("timestamp_ns", DataType::Int64),
        ("monotonic_ns", DataType::Int64),
        ("gpu_clock_mhz", DataType::Int32),
        ("mem_clock_mhz", DataType::Int32),
        ("temperature_c", DataType::Float32),
        ("power_w", DataType::Float32),
        ("memory_used_mb", DataType::Int64),
        ("utilization_pct", DataType::Float32),
    ] {
        assert_eq!(schema.field_with_name(name).unwrap().data_type(), &wanted, "{name}");
    }
    let fact = |key: &str| {
        let key = format!("gpuvitals.{key}");
        facts.iter().find(|fact| fact.key == key).and_then(|fact| fact.value.clone()).unwrap_or_default()
    };
    assert_eq!((fact("rate_hz"), fact("node"), fact("ended")), ("500".into(), "n1".into(), "stopped".into()));
    assert!(fact("update_intervals_s").contains("GPU-0"));
    assert_eq!((fact("command"), fact("commit")), ("train".into(), "1234567".into()));
    let gpus: Vec<serde_json::Value> = serde_json::from_str(&fact("gpus")).unwrap();
    let ids: Vec<_> = gpus.iter().map(|gpu| gpu["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["GPU-0", "GPU-1"], "with what stays the same of each");
    let (schema, _, _) = types("system_events.parquet");
    for (name, wanted) in [
        ("timestamp_ns", DataType::Int64),
        ("cpu_pct", DataType::Float32),
        ("memory_mb", DataType::Int64),
        ("ctx_switches", DataType::Int64),
        ("page_faults", DataType::Int64),
        ("irqs", DataType::Int64),
    ] {
        assert_eq!(schema.field_with_name(name).unwrap().data_type(), &wanted, "{name}");
    }
    let columns = ["timestamp_ns", "monotonic_ns", "text", "phase", "step", "value_name", "value"];
    let (marks, ..) = types("marks.parquet");
    assert!(marks.fields().iter().map(|field| field.name().as_str()).eq(columns), "{marks:?}");
    assert_eq!(recorded.marks, 1);
}

#[test]
fn a_recording_is_replayed_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    started(Counting::found(3), config(dir.path()), 100).stop().unwrap();
    let recorded = rows(Data::open(dir.path()).unwrap()).len();
    let mut source =
        ReplaySource::open(dir.path(), ReplayConfig::default(), gpuvitals_core::clock::now_ns()).unwrap();
    let (mut replayed, mut last_ns) = (0, 0);
    while let Poll::Ready(batch) = source.poll(gpuvitals_core::clock::now_ns()).unwrap() {
        if batch.table() == Table::GpuEvents {
            replayed += batch.rows();
            assert!(batch.timestamps().is_sorted() && batch.timestamps()[0] >= last_ns);
            last_ns = batch.timestamps()[batch.rows() - 1];
        }
    }
    assert_eq!((replayed, source.counts().rows_skipped()), (recorded, 0));
}

#[test]
fn without_a_gpu_both_files_are_there_and_one_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (tell, told) = sync_channel(1);
    let watch = move |_: &Batch| {
        let _already_told = tell.try_send(());
    };
    let recorder = Recorder::start_with(Counting::found(0), config(dir.path()), watch).unwrap();
    told.recv_timeout(Duration::from_mins(1)).unwrap();
    let recorded = recorder.stop().unwrap();
    assert_eq!(recorded.gpu_rows, 0);
    assert!(recorded.system_rows > 0);
    let file = std::fs::File::open(dir.path().join("gpu_events.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert!(reader.schema().field_with_name("power_w").is_ok());
}

#[test]
fn nothing_to_record_and_nothing_to_overwrite_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Recorder::start_with(Discovery::default(), config(dir.path()), |_| {});
    assert!(matches!(refused, Err(RecordError::Nothing(_))));
    assert!(matches!(repair(dir.path()), Err(RecordError::Directory { .. })));

    let recorder = started(Counting::found(1), config(dir.path()), 1);
    let busy = Recorder::start_with(Counting::found(1), config(dir.path()), |_| {});
    assert!(matches!(busy, Err(RecordError::Exists { unfinished: true, .. })));
    assert!(matches!(repair(dir.path()), Err(RecordError::Busy { .. })), "it is running");
    let mut forced = config(dir.path());
    forced.overwrite = true;
    let busy = Recorder::start_with(Counting::found(1), forced.clone(), |_| {});
    assert!(matches!(busy, Err(RecordError::Busy { .. })), "not even when forced");
    let first = recorder.stop().unwrap();

    let refused = Recorder::start_with(Counting::found(1), config(dir.path()), |_| {});
    assert!(matches!(refused, Err(RecordError::Exists { unfinished: false, .. })));
    let mut fast = forced.clone();
    fast.interval = Duration::from_micros(10);
    fast.drivers = vec![Driver::AmdSysfs];
    assert!(matches!(Recorder::start_with(Counting::found(1), fast, |_| {}), Err(RecordError::Sampler(_))));
    assert_eq!(rows(Data::open(dir.path()).unwrap()).len() as u64, first.gpu_rows, "it is still there");
    let second = started(Counting::found(1), forced, 1).stop().unwrap();
    assert_eq!(rows(second.data().unwrap()).len() as u64, second.gpu_rows);
}

/// A device that never answers, and reports when it is read for the second time: by then the first reading
/// has failed.
struct Mute(Arc<Identity>, u32, SyncSender<()>);

impl Probe for Mute {
    fn driver(&self) -> Driver {
        Driver::AmdSysfs
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.0)]
    }

    fn fill(&mut self, _: Due, _: &mut Reading) -> Result<(), ProbeError> {
        self.1 += 1;
        if self.1 == 2 {
            self.2.send(()).unwrap();
        }
        Err(ProbeError::Failed("no answer".to_owned()))
    }
}

#[test]
fn a_recording_that_failed_before_its_first_row_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-0").unwrap();
    let (ask, asked) = sync_channel(0);
    let mute = Discovery { probes: vec![Box::new(Mute(Arc::new(identity), 0, ask))], ..Discovery::default() };
    let recorder = Recorder::start_with(mute, config(dir.path()), |_| {}).unwrap();
    asked.recv_timeout(Duration::from_mins(1)).unwrap();
    let Err(RecordError::Empty(targets)) = recorder.stop() else { panic!("it has no row") };
    assert_eq!(targets.len(), 1);

    // As a kill or a full disk leaves one that had only begun.
    let unfinished = dir.path().join("unfinished");
    std::fs::create_dir_all(&unfinished).unwrap();
    for file in ["lock", "about.json", "marks.rows", "gpu_events.000001.rows"] {
        std::fs::write(unfinished.join(file), [1, 2, 3]).unwrap();
    }
    let whole = started(Counting::found(1), config(dir.path()), 1).stop().unwrap();
    assert!(whole.gpu_rows > 0);
}

#[test]
fn a_recorder_that_is_no_more_is_repaired_once_and_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.part_span = Some(Duration::from_millis(100));
    let recorder = started(Counting::found(2), config, 500);
    let so_far = rows(recorder.data().unwrap());
    drop(recorder);
    // A torn record, as a kill leaves it.
    let unfinished = dir.path().join("unfinished");
    let mut torn = std::fs::OpenOptions::new().append(true).open(unfinished.join("marks.rows")).unwrap();
    std::io::Write::write_all(&mut torn, &[9, 0, 0, 0, 1]).unwrap();
    let repaired = repair(dir.path()).unwrap().unwrap();
    assert_eq!(repaired.torn_bytes, 5);
    let all = rows(Data::open(dir.path()).unwrap());
    assert!(all.len() >= so_far.len());
    assert_complete(&all, 2);
    assert_eq!(repair(dir.path()).unwrap(), None, "nothing is left to do");
}

#[test]
fn what_is_replaced_stays_until_the_new_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.overwrite = true;
    let first = started(Counting::found(1), config.clone(), 1).stop().unwrap();
    started(Counting::found(1), config.clone(), 1).discard().unwrap();
    assert_eq!(rows(Data::open(dir.path()).unwrap()).len() as u64, first.gpu_rows, "a whole one");
    drop(started(Counting::found(1), config.clone(), 300));
    let killed = rows(Data::open(dir.path()).unwrap()).len();
    assert!(killed >= 300);

    let mut fast = config.clone();
    fast.interval = Duration::from_micros(10);
    fast.drivers = vec![Driver::AmdSysfs];
    assert!(Recorder::start_with(Counting::found(1), fast, |_| {}).is_err());
    assert_eq!(rows(Data::open(dir.path()).unwrap()).len(), killed, "an unfinished one, when refused");
    started(Counting::found(1), config.clone(), 1).discard().unwrap();
    assert_eq!(rows(Data::open(dir.path()).unwrap()).len(), killed, "and when given up");
    let kept = dir.path().join("replaced/gpu_events.parquet");
    assert_eq!(
        parquet_rows(&kept) as u64,
        first.gpu_rows,
        "what it was to replace is not gone before it is whole"
    );

    // Killed before the new one had begun.
    let (place, aside) = (dir.path().join("unfinished"), dir.path().join("replaced"));
    std::fs::rename(&aside, place.join("replaced")).unwrap();
    std::fs::rename(&place, &aside).unwrap();
    std::fs::create_dir(&place).unwrap();
    assert_eq!(repair(dir.path()).unwrap().unwrap().gpu_rows, killed as u64);
    drop(started(Counting::found(1), config.clone(), 1));
    let second = started(Counting::found(1), config, 1).stop().unwrap();
    assert_eq!(rows(second.data().unwrap()).len() as u64, second.gpu_rows);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left");
}

#[test]
fn rows_are_repaired_though_what_describes_them_was_lost_with_the_power() {
    let dir = tempfile::tempdir().unwrap();
    drop(started(Counting::found(1), config(dir.path()), 100));
    std::fs::write(dir.path().join("unfinished/about.json"), b"").unwrap();
    assert!(repair(dir.path()).unwrap().unwrap().gpu_rows >= 100);
}

/// Copies the state that a process left which was killed just now.
fn photographed(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            photographed(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}

#[test]
fn a_repair_that_was_killed_between_any_two_steps_is_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("whole");
    let mut config = config(&at);
    config.part_span = Some(Duration::from_millis(60));
    let recorder = started(Counting::found(1), config, 200);
    drop(recorder);
    repaired_copy(&at, dir.path());
}

fn repaired_copy(at: &Path, place: &Path) {
    let whole = place.join("done");
    photographed(at, &whole);
    let wanted = repair(&whole).unwrap().unwrap();
    // Possible remains of a killed repair: temporary files, a sealed part beside its journal, a part that is gathered already,
    // some of the files in place.
    let leave: [&dyn Fn(&Path); 5] = [
        &|dir| {
            for name in
                ["gpu_events.000001.parquet.tmp", "gpu_events.000007.parquet.tmp", "gpu_events.parquet.tmp"]
            {
                std::fs::write(dir.join(name), b"half").unwrap();
            }
        },
        &|dir| {
            std::fs::copy(whole.join("gpu_events.parquet"), dir.join("gpu_events.parquet")).unwrap();
        },
        &|dir| {
            assert!(dir.join("gpu_events.000001.parquet").exists());
            std::fs::write(dir.join("unfinished/gpu_events.000001.rows"), b"left over").unwrap();
        },
        &|dir| {
            let name = "gpu_events.000001.parquet";
            std::fs::rename(dir.join(name), dir.join("unfinished").join(name)).unwrap();
        },
        &|dir| {
            std::fs::create_dir(dir.join("finished")).unwrap();
            std::fs::write(dir.join("finished/lock"), b"").unwrap();
        },
    ];
    for (n, leave) in leave.iter().enumerate() {
        let copy = place.join(format!("copy{n}"));
        photographed(at, &copy);
        leave(&copy);
        let again = repair(&copy).unwrap().unwrap();
        assert_eq!((again.gpu_rows, again.system_rows), (wanted.gpu_rows, wanted.system_rows), "{n}");
        assert_complete(&rows(Data::open(&copy).unwrap()), 1);
        assert_eq!(std::fs::read_dir(&copy).unwrap().count(), 3, "{n}: nothing is left");
    }
}

#[test]
fn what_was_watched_is_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new((0, 0)));
    let watched = Arc::clone(&seen);
    let (tell, told) = sync_channel(1);
    let recorder = Recorder::start_with(Counting::found(2), config(dir.path()), move |batch| {
        let mut seen = watched.lock().unwrap();
        match batch.table() {
            Table::GpuEvents => seen.0 += batch.rows() as u64,
            _ => seen.1 += batch.rows() as u64,
        }
        let _already_told = tell.try_send(());
    })
    .unwrap();
    told.recv_timeout(Duration::from_mins(1)).unwrap();
    let recorded = recorder.stop().unwrap();
    assert_eq!((recorded.gpu_rows, recorded.system_rows), *seen.lock().unwrap());
    assert_eq!((recorded.progress.gpu_rows, recorded.progress.system_rows), *seen.lock().unwrap());
    assert!(recorded.stuck.is_empty() && recorded.progress.bytes > 0);
}
