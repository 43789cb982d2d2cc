use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use gpuvitals_core::batch::{READ_US_COLUMN, Value};
use gpuvitals_core::{AbsenceReason, BatchBuilder, Identity, IdentityColumn, MetricId, Origin};
use gpuvitals_rig::small_disk::SmallDisk;
use gpuvitals_rig::waiting::until;

use super::*;
use crate::doubles::PIECES;
use crate::incident::{FlightSpan, ReadError};
use crate::order::Order;
use crate::writing::{self, DumpTerms, dump};

/// When the tests begin, UTC.
const BEGIN_NS: i64 = 1_796_007_299 * SECOND_NS;
const AFTER_NS: i64 = 10 * SECOND_NS;
/// A second that is past for the clock of whoever runs the tests.
const LONG_AGO: i64 = -100_000_000;

fn terms() -> FlightTerms {
    FlightTerms {
        node: "n1".to_owned(),
        before_ns: 10 * MINUTE_NS,
        after_ns: AFTER_NS,
        keep: 3,
        rules: Vec::new(),
        is_faster: false,
        triggered: None,
        begun: None,
        files: PIECES,
    }
}

/// The moment of a second.
fn at(second: i64) -> Moment {
    Moment { wall_ns: BEGIN_NS + second * SECOND_NS, mono_ns: second * SECOND_NS }
}

fn open(directory: &Path, second: i64) -> Worker {
    open_with(directory, second, terms())
}

fn open_with(directory: &Path, second: i64, terms: FlightTerms) -> Worker {
    let place = FlightPlace::take(directory).unwrap();
    Worker::open(place, terms, Arc::default(), at(second)).unwrap()
}

fn gpu() -> Identity {
    let mut gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
    gpu.set(IdentityColumn::Node, "n7").unwrap();
    gpu.index = Some(3);
    gpu
}

/// The row of a GPU in a second whose reading took so many microseconds.
fn read_in(second: i64, us: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu());
    let Moment { wall_ns, mono_ns } = at(second);
    let row = builder.row_at(wall_ns, mono_ns, id);
    builder.set(row, MetricId::of("power_w"), Value::Float32(300.0)).unwrap();
    builder.set_extra(row, READ_US_COLUMN, us).unwrap();
    builder.finish(Origin::default(), 1).unwrap()
}

/// The row of a GPU in a second, with so many XIDs until then.
fn row(second: i64, xids: i64) -> Input {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu().with(IdentityColumn::Job, "4711").unwrap());
    let Moment { wall_ns, mono_ns } = at(second);
    let row = builder.row_at(wall_ns, mono_ns, id);
    for (metric, value) in [("power_w", Value::Float32(300.0)), ("xid_count", Value::Int(xids))] {
        builder.set(row, MetricId::of(metric), value).unwrap();
    }
    if xids > 0 {
        builder.set(row, MetricId::of("xid_last"), Value::Int(79)).unwrap();
    }
    Input::Sampled(builder.finish(Origin::default(), 1).unwrap())
}

/// The row of a GPU in a second that draws so many watts.
fn drawing(second: i64, watts: f32) -> Input {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu());
    let Moment { wall_ns, mono_ns } = at(second);
    let row = builder.row_at(wall_ns, mono_ns, id);
    builder.set(row, MetricId::of("power_w"), Value::Float32(watts)).unwrap();
    builder.absent(row, MetricId::of("temperature_c"), AbsenceReason::TimedOut);
    builder.absent(row, MetricId::of("gpu_clock_mhz"), AbsenceReason::NotSupported);
    Input::Sampled(builder.finish(Origin::default(), 1).unwrap())
}

/// Samples from one second to another, the end left out.
fn sample(worker: &mut Worker, seconds: std::ops::Range<i64>, xids: i64) {
    for second in seconds {
        worker.take(row(second, xids), at(second));
        worker.look(at(second));
    }
}

/// The incidents of a directory, all of which are whole.
fn incidents(directory: &Path) -> Vec<FlightIncident> {
    let listed = FlightFolder::of(directory).list().unwrap().into_iter();
    let whole = listed.map(|entry| match entry.state {
        IncidentState::Whole(incident) => *incident,
        state => panic!("{} is {state:?}", entry.id),
    });
    whole.collect()
}

/// The seconds whose rows an incident has.
fn seconds(directory: &Path, id: &str) -> Vec<i64> {
    let folder = FlightFolder::of(directory).path(id).unwrap();
    let batches = (PIECES.read)(&folder).unwrap().map(Result::unwrap);
    let of = |batch: Batch| {
        batch.timestamps().iter().map(|at_ns| (at_ns - BEGIN_NS) / SECOND_NS).collect::<Vec<_>>()
    };
    batches.flat_map(of).collect()
}

#[test]
fn an_incident_has_what_was_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    sample(&mut worker, 0..700, 0);
    sample(&mut worker, 700..720, 1);
    worker.finish(at(720));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!(incident.id, "20261130T030639Z-xid");
    assert_eq!((incident.trigger.code, incident.triggers), (Some(79), 1));
    assert_eq!(seconds(folder.path(), &incident.id), (100..=710).collect::<Vec<_>>());
    assert_eq!(incident.rows["gpu_events"], 611);
    let [gpu] = &incident.gpus[..] else { panic!("{incident:?}") };
    assert_eq!((gpu.index, gpu.identity["job"].as_str(), gpu.last["power_w"]), (Some(3), "4711", 300.0));
    assert!(incident.sentence().starts_with("GPU 3 (GPU-1) of n1: XID 79"), "{}", incident.sentence());
}

#[test]
fn what_is_written_before_the_end_has_each_row_once_whatever_columns_come_later() {
    for xids in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = open(folder.path(), 0);
        sample(&mut worker, 0..5, 0);
        worker.take(Input::Signal, at(5));
        worker.look(at(5));
        let is_waiting = || worker.writing.as_ref().is_some_and(EarlyIncident::is_waiting);
        until("what the ring has", is_waiting, |is_waiting| *is_waiting);
        // With an XID comes a column that no row had before.
        sample(&mut worker, 5..30, xids);
        worker.finish(at(30));
        let found = incidents(folder.path());
        let [incident] = &found[..] else { panic!("{found:?}") };
        assert_eq!(seconds(folder.path(), &incident.id), (0..=15).collect::<Vec<_>>());
        assert_eq!((incident.triggers, incident.gpus.len()), (1 + u64::from(xids > 0), 1));
    }
}

#[test]
fn two_hundred_triggers_in_a_minute_are_one_incident_and_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    for trigger in 0..200 {
        let second = 5 + trigger / 4;
        worker.take(Input::Signal, at(second));
        sample(&mut worker, second..second + 1, 0);
    }
    worker.finish(at(200));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{} incidents", found.len()) };
    assert_eq!((incident.triggers, incident.others.len()), (200, OTHERS_MAX));
}

#[test]
fn a_cause_that_lasts_begins_one_incident_and_what_is_asked_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    for xids in 0..6 {
        sample(&mut worker, 100 * xids..100 * (xids + 1), xids);
        worker.take_written();
        worker.look(at(100 * (xids + 1)));
    }
    worker.take(Input::Signal, at(600));
    worker.finish(at(600));
    let kinds: Vec<String> = incidents(folder.path()).into_iter().map(|it| it.trigger.kind).collect();
    assert_eq!(kinds, ["xid", "signal"]);
}

#[test]
fn an_incident_whose_agent_was_killed_is_written_once_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    sample(&mut worker, 0..100, 0);
    sample(&mut worker, 100..108, 1);
    drop(worker);
    // What it may have written until then.
    let torn = crate::place::incidents(folder.path()).join("20261130T025639Z-xid.part");
    std::fs::create_dir_all(&torn).unwrap();
    std::fs::write(torn.join("gpu_events.parquet"), "PAR1").unwrap();
    let mut worker = open(folder.path(), 108);
    sample(&mut worker, 108..115, 1);
    worker.finish(at(115));
    // The first row of an agent has all XIDs since the one before started, so the same one comes again.
    let mut worker = open(folder.path(), 120);
    sample(&mut worker, 120..200, 1);
    worker.finish(at(200));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!(incident.id, "20261130T025639Z-xid");
    let seconds = seconds(folder.path(), &incident.id);
    // The rows that waited for the disk when it was killed are those of three seconds at most.
    assert_eq!(seconds[..105], (0..105).collect::<Vec<_>>());
    assert_eq!(seconds[seconds.len() - 3..], [108, 109, 110]);
}

#[test]
fn a_kill_between_the_incident_and_its_note_writes_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    let begun = RingTrigger {
        id: "20261130T025459Z-signal".to_owned(),
        trigger: FlightTrigger::of_node("signal", "asked", BEGIN_NS),
    };
    worker.ring.begin(&begun).unwrap();
    let order = Order {
        directory: folder.path().to_owned(),
        id: begun.id,
        node: "n1".to_owned(),
        boot_id: String::new(),
        trigger: begun.trigger,
        others: Vec::new(),
        triggers: 7,
        asked: FlightSpan { from_ns: 0, to_ns: BEGIN_NS },
        rows_lost: None,
        keep: Some(3),
        kernel_log: "kmsg".to_owned(),
        files: PIECES,
    };
    writing::write(&order).unwrap();
    drop(worker);
    let worker = open(folder.path(), 100);
    assert!(worker.open.is_empty());
    worker.finish(at(100));
    assert_eq!(incidents(folder.path())[0].triggers, 7);
}

/// A line of the kernel in a second, with a trigger of this kind.
fn line(second: i64, kind: Option<&str>) -> Input {
    let at_ns = at(second).wall_ns;
    let trigger = kind.map(|kind| FlightTrigger {
        gpu: Some("GPU-1".to_owned()),
        code: Some(79),
        ..FlightTrigger::of_node(kind, "XID 79", at_ns)
    });
    Input::Kernel(FlightLine { at_ns, text: format!("NVRM: in second {second}"), trigger })
}

#[test]
fn the_kernels_lines_are_a_file_and_its_xid_is_that_of_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    worker.take(Input::KernelLog("kmsg".to_owned()), at(0));
    sample(&mut worker, 0..5, 0);
    worker.take(line(4, None), at(4));
    worker.take(line(5, Some("xid")), at(5));
    sample(&mut worker, 5..30, 1);
    worker.take(line(29, None), at(29));
    worker.finish(at(30));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!((incident.triggers, incident.trigger.code), (2, Some(79)), "both tell of one");
    assert_eq!((incident.kernel_lines, incident.kernel_log.as_str()), (2, "kmsg"));
    let path = FlightFolder::of(folder.path()).path(&incident.id).unwrap().join("kernel.log");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, "2026-11-30T02:55:03Z NVRM: in second 4\n2026-11-30T02:55:04Z NVRM: in second 5\n");
}

#[test]
fn what_was_before_a_crash_is_an_incident_however_late_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    sample(&mut worker, 0..100, 0);
    drop(worker);
    // That was another boot.
    std::fs::write(folder.path().join("boot"), "0123-abcd").unwrap();
    let mut worker = open(folder.path(), 7_200);
    worker.take(Input::Signal, at(7_200));
    sample(&mut worker, 7_200..7_260, 0);
    worker.finish(at(7_260));
    let found = incidents(folder.path());
    let [incident, later] = &found[..] else { panic!("{found:?}") };
    assert_eq!((incident.id.as_str(), incident.triggers), ("20261130T025638Z-ended", 1));
    assert_eq!((incident.boot_id.as_str(), &later.boot_id), ("0123-abcd", &boot_id()));
    assert_eq!(seconds(folder.path(), &incident.id), (0..100).collect::<Vec<_>>());
    // That one ended as it should.
    assert!(open(folder.path(), 14_400).open.is_empty());
}

#[test]
fn an_agent_that_is_killed_again_and_again_has_one_incident() {
    let folder = tempfile::tempdir().unwrap();
    for begin in (0..15).map(|start| 120 * start) {
        let mut worker = open(folder.path(), begin);
        sample(&mut worker, begin..begin + 100, 0);
        worker.take_written();
    }
    open(folder.path(), 1_800).finish(at(1_800));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!((incident.trigger.kind.as_str(), incident.triggers), ("ended", 15));
}

#[test]
fn an_incident_that_was_begun_before_a_crash_has_its_rows_however_late_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    sample(&mut worker, 0..90, 0);
    sample(&mut worker, 90..100, 1);
    drop(worker);
    let mut worker = open(folder.path(), 7_200);
    // It has nothing of what happens now.
    worker.take(Input::Signal, at(7_200));
    sample(&mut worker, 7_200..7_260, 1);
    worker.finish(at(7_260));
    let found = incidents(folder.path());
    let kinds: Vec<_> = found.iter().map(|it| (it.trigger.kind.as_str(), it.triggers)).collect();
    assert_eq!(kinds[0].0, "xid", "{kinds:?}");
    assert_eq!(kinds[1].0, "signal", "{kinds:?}");
    let had = seconds(folder.path(), &found[0].id);
    // The kill cost the rows that waited for the ring.
    assert!(had.len() > 97, "{had:?}");
    assert_eq!(had, (0..100).take(had.len()).collect::<Vec<_>>());
}

#[test]
fn a_new_cause_after_an_incident_is_written_begins_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    worker.take(Input::Signal, at(5));
    sample(&mut worker, 5..30, 0);
    sample(&mut worker, 30..50, 1);
    worker.finish(at(50));
    let found = incidents(folder.path());
    let kinds: Vec<_> = found.iter().map(|it| (it.trigger.kind.as_str(), it.triggers)).collect();
    assert_eq!(kinds, [("signal", 1), ("xid", 1)]);
    assert_eq!(seconds(folder.path(), &found[1].id), (5..=40).collect::<Vec<_>>());
}

#[test]
fn a_cause_that_holds_for_long_and_pauses_begins_one_incident() {
    let folder = tempfile::tempdir().unwrap();
    let rules = vec!["power_w > 200".parse().unwrap()];
    let mut worker = open_with(folder.path(), 0, FlightTerms { rules, ..terms() });
    for second in 0..700 {
        let is_pause = (660..675).contains(&second);
        worker.take(drawing(second, if is_pause { 100.0 } else { 300.0 }), at(second));
        worker.look(at(second));
    }
    let triggers = worker.counts.triggers.load(Ordering::Relaxed);
    worker.finish(at(700));
    assert_eq!((triggers, incidents(folder.path()).len()), (2, 1));
}

#[test]
fn what_could_not_be_read_is_counted_and_what_there_is_not_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    worker.take(Input::Signal, at(5));
    for second in 0..12 {
        worker.take(drawing(second, 300.0), at(second));
        worker.look(at(second));
    }
    worker.finish(at(12));
    let (gpu, metric, reason) = ("GPU-1".to_owned(), "temperature_c".to_owned(), "timed_out".to_owned());
    assert_eq!(incidents(folder.path())[0].read_errors, [ReadError { gpu, metric, reason, count: 12 }]);
}

#[test]
fn a_ring_whose_files_were_removed_is_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    sample(&mut worker, 0..10, 0);
    for file in std::fs::read_dir(crate::place::ring(folder.path())).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "wal") {
            std::fs::remove_file(path).unwrap();
        }
    }
    sample(&mut worker, 10..100, 0);
    let counts = Arc::clone(&worker.counts);
    worker.finish(at(100));
    assert!(counts.is_up.load(Ordering::Relaxed));
    let lost = counts.rows_lost.load(Ordering::Relaxed);
    assert!((1..10).contains(&lost), "{lost} rows were lost");
    assert_eq!(lost + counts.rows.load(Ordering::Relaxed), 100);
}

fn dumped(directory: &Path, seconds: i64) -> FlightIncident {
    let (directory, node) = (directory.to_owned(), "n1".to_owned());
    dump(DumpTerms { directory, node, back_ns: seconds * SECOND_NS, keep: 6, files: PIECES }).unwrap()
}

#[test]
fn a_dump_of_an_agent_that_died_long_ago_has_its_last_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), LONG_AGO);
    sample(&mut worker, LONG_AGO..LONG_AGO + 100, 0);
    drop(worker);
    let incident = dumped(folder.path(), 30);
    assert_eq!(seconds(folder.path(), &incident.id), (LONG_AGO + 69..LONG_AGO + 100).collect::<Vec<_>>());
    assert_eq!(incident.node, "n7", "as its rows say, wherever the disk is now");
}

#[test]
fn dumps_without_end_push_out_dumps_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), LONG_AGO);
    sample(&mut worker, LONG_AGO..LONG_AGO + 4, 0);
    sample(&mut worker, LONG_AGO + 4..LONG_AGO + 8, 1);
    worker.finish(at(LONG_AGO + 20));
    for _ in 0..9 {
        dumped(folder.path(), 30);
    }
    let mut kinds: Vec<String> = incidents(folder.path()).into_iter().map(|it| it.trigger.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["dump", "dump", "dump", "dump", "dump", "xid"]);
}

#[test]
fn dumps_beside_an_agent_that_writes_disturb_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), LONG_AGO);
    sample(&mut worker, LONG_AGO..LONG_AGO + 8, 0);
    std::thread::scope(|scope| {
        let dumps = scope.spawn(|| (0..5).map(|_| dumped(folder.path(), 600)).collect::<Vec<_>>());
        sample(&mut worker, LONG_AGO + 8..LONG_AGO + 400, 0);
        for incident in dumps.join().unwrap() {
            let found = seconds(folder.path(), &incident.id);
            assert!(found.len() >= 8, "{found:?}");
            assert!((LONG_AGO..).zip(&found).all(|(second, found)| second == *found), "{found:?}");
        }
    });
    assert_eq!(worker.counts.rows_lost.load(Ordering::Relaxed), 0);
    let kept = terms().keep;
    worker.finish(at(LONG_AGO + 400));
    assert_eq!(
        incidents(folder.path()).len(),
        5,
        "more than the {kept} of the agent, which none of them removes"
    );
}

const NOBODY: u32 = 65_534;

/// A folder with a ring, both another user's; none if this test may not give it away.
fn anothers_folder() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), LONG_AGO);
    sample(&mut worker, LONG_AGO..LONG_AGO + 8, 0);
    worker.finish(at(LONG_AGO + 8));
    let mut paths = vec![folder.path().to_owned()];
    while let Some(path) = paths.pop() {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    Some(folder)
}

#[test]
fn what_root_dumps_is_the_owners_of_the_directory() {
    let Some(folder) = anothers_folder() else { return };
    let incident = dumped(folder.path(), 30);
    let path = FlightFolder::of(folder.path()).path(&incident.id).unwrap();
    let files = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let owners: Vec<u32> = files.chain([path.clone()]).map(|path| path.metadata().unwrap().uid()).collect();
    assert_eq!(owners, [NOBODY; 5]);
    assert!(rustix::process::geteuid().is_root(), "who asked for the dump is still root");
}

#[test]
fn a_link_of_the_owner_leads_what_root_dumps_nowhere() {
    let Some(folder) = anothers_folder() else { return };
    let roots = tempfile::tempdir().unwrap();
    let incidents = folder.path().join("incidents");
    std::fs::remove_dir_all(&incidents).unwrap();
    std::os::unix::fs::symlink(roots.path(), &incidents).unwrap();
    let (directory, node) = (folder.path().to_owned(), "n1".to_owned());
    let terms = DumpTerms { directory, node, back_ns: 30 * SECOND_NS, keep: 6, files: PIECES };
    assert!(dump(terms).is_err());
    assert_eq!(std::fs::read_dir(roots.path()).unwrap().count(), 0);
}

#[test]
fn readings_that_slow_down_are_a_trigger_and_stand_in_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    for second in 0..110 {
        worker.take(Input::Sampled(read_in(second, if second < 100 { 310 } else { 41_000 })), at(second));
        worker.look(at(second));
    }
    worker.finish(at(110));
    let found = incidents(folder.path());
    let [incident] = &found[..] else { panic!("{found:?}") };
    assert_eq!((incident.trigger.kind.as_str(), incident.triggers), ("reads_slowed", 1));
    assert_eq!(incident.trigger.detail, "its readings slowed from 0.3 to 41 ms");
    assert_eq!(incident.trigger.at_ns, at(103).wall_ns);
    let path = FlightFolder::of(folder.path()).path(&incident.id).unwrap();
    let took: Vec<f64> = (PIECES.read)(&path)
        .unwrap()
        .map(Result::unwrap)
        .flat_map(|batch| {
            let took = batch.read_us().unwrap();
            (0..batch.rows()).map(|row| took.value(row).unwrap().as_f64()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!((took[99], took[100]), (310.0, 41_000.0));
}

#[test]
fn who_samples_faster_is_told_of_gpus_that_can_be_read_once_for_each_cause() {
    let folder = tempfile::tempdir().unwrap();
    let (triggered, told) = std::sync::mpsc::sync_channel(1);
    let place = FlightPlace::take(folder.path()).unwrap();
    let terms = FlightTerms { triggered: Some(triggered), ..terms() };
    let mut worker = Worker::open(place, terms, Arc::default(), at(0)).unwrap();
    worker.take(line(1, Some("lost")), at(1));
    worker.take(Input::Stuck("GPU-1".to_owned()), at(1));
    worker.take(Input::Signal, at(1));
    assert!(told.try_recv().is_err());
    worker.take(line(2, Some("xid")), at(2));
    assert_eq!(told.try_recv().as_deref(), Ok("GPU-1"));
    worker.take(line(3, Some("xid")), at(3));
    assert!(told.try_recv().is_err(), "the same again");
    worker.finish(at(4));
}

#[test]
fn names_of_processes_are_texts_in_a_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = open(folder.path(), 0);
    let name = "../../\"};rm -rf /\u{202e}";
    for (second, name) in [(1, "before"), (2, name)] {
        let mut builder = BatchBuilder::new(Table::GpuProcesses);
        let id = builder.intern(&gpu());
        let row = builder.row_at(at(second).wall_ns, at(second).mono_ns, id);
        builder.set_extra(row, "pid", 4_242_i64).unwrap();
        builder.set_extra_text(row, "command", name).unwrap();
        worker.take(Input::Sampled(builder.finish(Origin::default(), 1).unwrap()), at(second));
    }
    worker.take(Input::Signal, at(3));
    worker.finish(at(4));
    let id = incidents(folder.path()).remove(0).id;
    let path = FlightFolder::of(folder.path()).path(&id).unwrap().join("processes.json");
    let listed: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["processes"].as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["gpu"], "GPU-1");
    assert_eq!(listed[0]["processes"][0]["name"], name);
}

#[test]
fn a_full_disk_costs_the_incident_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("disk");
    let Some(_disk) = SmallDisk::mount(&directory, "8m") else { return };
    let mut worker = open(&directory, 0);
    sample(&mut worker, 0..10, 0);
    let filler = directory.join("filler");
    let mut written = 0;
    while std::fs::write(&filler, vec![1; written + (64 << 10)]).is_ok() {
        written += 64 << 10;
    }
    worker.take(Input::Signal, at(10));
    let counts = Arc::clone(&worker.counts);
    worker.order(at(11));
    worker.take_written();
    assert_eq!(counts.incidents_failed.load(Ordering::Relaxed), 1);
    assert!(FlightFolder::of(&directory).list().unwrap().is_empty());
    std::fs::remove_file(&filler).unwrap();
    sample(&mut worker, 11..100, 0);
    worker.take(Input::Signal, at(100));
    worker.finish(at(100));
    assert_eq!(incidents(&directory).len(), 1);
}
