use std::io::ErrorKind;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin};
use gpuvitals_log::LogError;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};

use super::*;

/// Small segments, so that a few rows fill some.
fn tiny() -> LogConfig {
    LogConfig { segment_len: 4 << 10, fill_len: 600, ..LogConfig::default() }
}

/// The row of a second.
fn row(second: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
    let row = builder.row_at(second * SECOND_NS, second * SECOND_NS + 7, id);
    builder.set(row, MetricId::of("power_w"), Value::Float32(300.0)).unwrap();
    builder.finish(Origin::default(), 1).unwrap()
}

fn trigger(id: &str) -> RingTrigger {
    RingTrigger { id: id.to_owned(), trigger: FlightTrigger::of_node("signal", "asked", 5) }
}

/// The seconds whose rows a disk has within some time.
fn seconds(disk: &FaultDisk, span: (i64, i64)) -> Vec<i64> {
    let (log, recovery) = Log::open(disk.clone(), tiny()).unwrap();
    let batches = rows(recovery, Table::GpuEvents, span).map(Result::unwrap);
    let found = batches.flat_map(|batch| {
        assert!(batch.monotonic().unwrap().iter().all(|ns| ns % SECOND_NS == 7), "the clock comes back");
        batch.timestamps().iter().map(|at_ns| at_ns / SECOND_NS).collect::<Vec<_>>()
    });
    let found = found.collect();
    log.close().unwrap();
    found
}

const ALL: (i64, i64) = (0, i64::MAX);

#[test]
fn lines_of_the_kernel_lie_beside_the_rows() {
    let disk = FaultDisk::new();
    let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, LogConfig::default()).unwrap();
    let line = |second: i64| FlightLine {
        at_ns: second * SECOND_NS,
        text: "x".repeat(1_024),
        trigger: Some(FlightTrigger::of_node("xid", "is no part of it", 0)),
    };
    let many: Vec<FlightLine> = (0..200).map(line).collect();
    ring.append_lines(&many).unwrap();
    ring.append_lines(&[]).unwrap();
    ring.append(&row(1)).unwrap();
    drop(ring);
    disk.crash(1);
    let (ring, before) = Ring::open(disk.clone(), MINUTE_NS, LogConfig::default()).unwrap();
    assert_eq!(before.cut_ns, Some(SECOND_NS), "of rows alone");
    drop(ring);
    let (_log, recovery) = Log::open(disk.clone(), LogConfig::default()).unwrap();
    let lines =
        |record: Result<Record, LogError>| match item(&record.unwrap(), (10 * SECOND_NS, 20 * SECOND_NS))
            .unwrap()
        {
            Some(RingItem::Lines(lines)) => lines,
            _ => Vec::new(),
        };
    let found: Vec<FlightLine> = recovery.flat_map(lines).collect();
    let wanted: Vec<FlightLine> =
        (10..=20).map(|second| FlightLine { trigger: None, ..line(second) }).collect();
    assert_eq!(found, wanted);
}

#[test]
fn what_an_earlier_version_noted_of_readings_is_passed_over() {
    let disk = FaultDisk::new();
    let (log, _) = Log::open(disk.clone(), LogConfig::default()).unwrap();
    let mut payload = begun(SECOND_NS, SECOND_NS, 0);
    payload.extend_from_slice(br#"[{"at_ns":1000000000,"gpu":"GPU-1","readings":1,"failed":0,"ms":0.3}]"#);
    log.append(20, payload.into(), Durability::Synced).wait().unwrap();
    log.close().unwrap();
    let (mut ring, before) = Ring::open(disk.clone(), MINUTE_NS, LogConfig::default()).unwrap();
    assert_eq!(before, Before::default());
    ring.append(&row(2)).unwrap();
    drop(ring);
    let (_log, recovery) = Log::open(disk, LogConfig::default()).unwrap();
    let items: Vec<RingItem> = recovery.filter_map(|record| item(&record.unwrap(), ALL).unwrap()).collect();
    assert!(matches!(&items[..], [RingItem::Rows(_)]), "{items:?}");
}

#[test]
fn what_was_taken_outlives_a_power_cut_at_any_call() {
    for round in 0..100 {
        let disk = FaultDisk::new();
        // Later rounds cut later; each forgets something else of what was not synced.
        disk.fail_call(None, 10 + round * 3, Fault::PowerOff);
        let mut taken = 0;
        if let Ok((mut ring, _)) = Ring::open(disk.clone(), MINUTE_NS, tiny()) {
            while taken < 200 && ring.append(&row(taken)).is_ok() {
                taken += 1;
            }
        }
        disk.crash(round);
        let found = seconds(&disk, ALL);
        let promised: Vec<i64> = (0..taken).collect();
        assert!(found.starts_with(&promised), "round {round}: {taken} rows were taken, {found:?} are there");
    }
}

#[test]
fn a_trigger_outlives_a_power_cut_until_its_incident_is_written() {
    let disk = FaultDisk::new();
    let (mut ring, before) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    assert_eq!(before, Before::default());
    for id in ["a", "b"] {
        ring.begin(&trigger(id)).unwrap();
    }
    ring.end("a").unwrap();
    drop(ring);
    disk.crash(1);
    let (_ring, before) = Ring::open(disk, MINUTE_NS, tiny()).unwrap();
    assert_eq!(before, Before { pending: vec![trigger("b")], cut_ns: None });
}

#[test]
fn an_agent_that_ended_without_noting_it_was_cut_off_at_its_newest_row() {
    let disk = FaultDisk::new();
    let cut = |rows: std::ops::Range<i64>| {
        let (mut ring, before) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
        rows.for_each(|second| ring.append(&row(second)).unwrap());
        (ring, before.cut_ns)
    };
    assert_eq!(cut(0..3).1, None);
    let (ring, cut_ns) = cut(0..0);
    assert_eq!(cut_ns, Some(2 * SECOND_NS));
    ring.note_end().unwrap();
    drop(ring);
    assert_eq!(cut(3..5).1, None);
    assert_eq!(cut(0..0).1, Some(4 * SECOND_NS));
}

#[test]
fn a_trigger_alone_in_a_segment_stays_as_long_as_rows_of_its_time() {
    let disk = FaultDisk::new();
    for second in 0..3 {
        // Each opening begins another segment.
        let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
        let asked = FlightTrigger::of_node("signal", "asked", second * SECOND_NS);
        ring.begin(&RingTrigger { id: second.to_string(), trigger: asked }).unwrap();
        ring.trim(60 * SECOND_NS).unwrap();
    }
    let (mut ring, before) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    assert_eq!(before.pending.len(), 3);
    ring.append(&row(70)).unwrap();
    ring.trim(70 * SECOND_NS).unwrap();
    drop(ring);
    assert_eq!(Ring::open(disk, MINUTE_NS, tiny()).unwrap().1.pending, []);
}

#[test]
fn old_segments_go_and_young_rows_stay() {
    let disk = FaultDisk::new();
    let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    for second in 0..300 {
        ring.append(&row(second)).unwrap();
        ring.trim(second * SECOND_NS).unwrap();
    }
    drop(ring);
    let found = seconds(&disk, ALL);
    let oldest = *found.first().unwrap();
    assert!((1..=239).contains(&oldest), "the rows of a minute and at most some more: from {oldest} on");
    assert_eq!(found, (oldest..300).collect::<Vec<_>>());
    assert_eq!(seconds(&disk, (290 * SECOND_NS, 292 * SECOND_NS)), [290, 291, 292]);
    // After a restart, too.
    let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    ring.append(&row(1_000)).unwrap();
    ring.append(&row(1_001)).unwrap();
    ring.trim(2_000 * SECOND_NS).unwrap();
    drop(ring);
    assert!(!seconds(&disk, ALL).contains(&oldest));
}

#[test]
fn a_ring_never_has_more_than_its_most_bytes() {
    let disk = FaultDisk::new();
    let (mut ring, _) = Ring::open(disk, i64::MAX, tiny()).unwrap();
    for second in 0..1_200 {
        ring.append(&row(second)).unwrap();
        ring.trim(second * SECOND_NS).unwrap();
        let bytes = ring.log.segments().iter().map(|segment| segment.bytes).sum::<u64>();
        assert!(bytes <= WHOLE_SEGMENTS * u64::from(tiny().segment_len), "{bytes}");
    }
    assert!(ring.log.segments().first().unwrap().base > 1, "some have gone");
}

#[test]
fn an_agent_that_starts_again_and_again_loses_no_row_by_that() {
    let disk = FaultDisk::new();
    for second in 0..60 {
        let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
        ring.append(&row(second)).unwrap();
        ring.trim(second * SECOND_NS).unwrap();
    }
    assert_eq!(seconds(&disk, ALL), (0..60).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_takes_nothing_and_loses_nothing_that_it_had() {
    let disk = FaultDisk::new();
    let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    ring.append(&row(0)).unwrap();
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    assert!(matches!(ring.append(&row(1)), Err(FlightError::Ring(LogError::Write { .. }))));
    disk.fail_all(Op::Write, None);
    ring.append(&row(2)).unwrap();
    drop(ring);
    assert_eq!(seconds(&disk, ALL), [0, 2]);
}

#[test]
fn rows_that_are_too_many_for_a_record_are_halved() {
    let disk = FaultDisk::new();
    let (mut ring, _) = Ring::open(disk.clone(), MINUTE_NS, tiny()).unwrap();
    let batches: Vec<Batch> = (0..2_000).map(row).collect();
    // The monotonic clock alone is longer than a record.
    ring.append(&Batch::concat(&batches).unwrap()).unwrap();
    drop(ring);
    assert_eq!(seconds(&disk, ALL), (0..2_000).collect::<Vec<_>>());
}
