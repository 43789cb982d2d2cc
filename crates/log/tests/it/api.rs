//! The log as its callers see it.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, mpsc};

use crate::bench::{
    append, append_all, commit_here, open, open_with, outcome_of, payload, records, reread, sequences,
    success_of, tiny,
};
use bytes::Bytes;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_log::{Appended, CommitOn, Disk, Durability, FsDisk, Log, LogConfig, LogError, Shorter};
use gpuvitals_rig::waiting::received;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_appended_comes_back(
        wanted in vec((any::<u8>(), vec(any::<u8>(), 0..700), any::<bool>()), 0..40),
        reopen_after in 0_usize..40,
    ) {
        let disk = FaultDisk::new();
        let mut log = open(&disk).0;
        for (at, (kind, payload, synced)) in wanted.iter().enumerate() {
            if at == reopen_after {
                drop(log);
                log = open(&disk).0;
            }
            let durability = if *synced { Durability::Synced } else { Durability::Written };
            success_of(log.append(*kind, payload.clone().into(), durability));
        }
        log.close().expect("close");
        let (_log, recovery) = open(&disk);
        prop_assert_eq!(recovery.records, wanted.len() as u64);
        prop_assert_eq!(&recovery.damage, &[]);
        prop_assert_eq!(&recovery.torn, &None);
        let found = records(recovery);
        prop_assert_eq!(sequences(&found), (1..=wanted.len() as u64).collect::<Vec<_>>());
        for (record, (kind, payload, _)) in found.iter().zip(&wanted) {
            prop_assert_eq!((record.kind, &record.payload[..]), (*kind, &payload[..]));
        }
    }
}

#[test]
fn a_real_directory_serves_as_well() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("made/by/the/log");
    let disk = FsDisk::open(&path).expect("disk");
    let (log, _) = open_with(disk.clone(), tiny());
    for number in 1..=40 {
        assert_eq!(append(&log, number), number);
    }
    assert!(log.stats().segments > 1);
    assert!(log.truncate_before(20).expect("truncate") > 0);
    drop(log);
    std::fs::write(path.join("notes.txt"), "not ours").expect("write");
    std::fs::write(path.join("00000000000000ff.new"), "unfinished").expect("write");
    let (log, recovery) = open_with(disk.clone(), LogConfig::default());
    assert_eq!(recovery.ignored, ["notes.txt"]);
    let found = records(recovery);
    assert_eq!(found.last().map(|record| (record.sequence, record.payload.clone())), Some((40, payload(40))));
    assert!(found.first().expect("records").sequence <= 20);
    assert_eq!(append(&log, 41), 41);
    assert!(!disk.list().expect("list").contains(&"00000000000000ff.new".to_owned()));
}

/// Appends that arrive while a sync is under way share the next one.
#[test]
fn concurrent_appends_share_a_sync() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1); // makes the segment
    let before = log.stats();
    disk.hold_syncs();
    let first = log.append(1, payload(2), Durability::Synced);
    disk.wait_for_held_sync();
    let log = Arc::new(log);
    let (submitted, all_submitted) = mpsc::sync_channel(8);
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (log, submitted) = (Arc::clone(&log), submitted.clone());
            std::thread::spawn(move || {
                let ticket = log.append(1, Bytes::from(vec![number; 20]), Durability::Synced);
                submitted.send(()).expect("send");
                success_of(ticket)
            })
        })
        .collect();
    for _ in 0..8 {
        received("a thread that has appended", &all_submitted);
    }
    assert_eq!(log.stats().queued, 8);
    disk.release_syncs();
    assert_eq!(success_of(first).sequence, 2);
    let mut found: Vec<u64> =
        threads.into_iter().map(|thread| thread.join().expect("join").sequence).collect();
    found.sort_unstable();
    assert_eq!(found, (3..=10).collect::<Vec<_>>());
    let after = log.stats();
    assert_eq!((after.groups - before.groups, after.syncs - before.syncs), (2, 2));
}

#[test]
fn written_records_ride_with_the_next_sync() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    for number in 1..=3 {
        success_of(log.append(1, payload(number), Durability::Written));
    }
    assert_eq!(log.stats().syncs, 0);
    assert!(sequences(&reread(&disk.crashed(0))).is_empty());
    append(&log, 4);
    assert_eq!(log.stats().syncs, 1);
    assert_eq!(sequences(&reread(&disk.crashed(0))), [1, 2, 3, 4]);
    success_of(log.append(1, payload(5), Durability::Written));
    assert_eq!(log.sync().expect("sync"), 6);
    assert_eq!(log.sync().expect("sync"), 6);
    assert_eq!(log.stats().syncs, 2);
    success_of(log.append(1, payload(6), Durability::Written));
    log.close().expect("close");
    assert_eq!(sequences(&reread(&disk.crashed(0))), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    disk.set_capacity(Some(disk.contents("0000000000000001.wal").expect("segment").len() as u64));
    let mut acknowledged = vec![1];
    let mut number = 2;
    let error = loop {
        match outcome_of(log.append(1, payload(number), Durability::Synced)) {
            Ok(appended) => acknowledged.push(appended.sequence),
            Err(error) => break error,
        }
        number += 1;
    };
    assert!(
        matches!(&error, LogError::Write { source, .. } if source.kind() == ErrorKind::StorageFull),
        "{error}"
    );
    let refused = outcome_of(log.append(1, Bytes::from(vec![9; 2000]), Durability::Synced));
    assert!(matches!(refused, Err(LogError::Write { .. })));
    assert_eq!(log.stats().write_failures, 2);
    assert_eq!(sequences(&reread(&disk.crashed(1))), acknowledged);

    disk.set_capacity(None);
    acknowledged.push(append(&log, number));
    assert_eq!(acknowledged, (1..=number).collect::<Vec<_>>());
    drop(log);
    let (_log, recovery) = open(&disk);
    assert_eq!((&recovery.damage[..], &recovery.torn), (&[][..], &None));
    assert_eq!(sequences(&records(recovery)), acknowledged);
}

#[test]
fn a_segment_that_cannot_be_made_is_tried_again() {
    for (op, calls_before) in [(Op::Create, 0), (Op::Write, 0)] {
        let disk = FaultDisk::new();
        let (log, _) = open(&disk);
        disk.fail_call(Some(op), calls_before, Fault::Error(ErrorKind::StorageFull));
        let refused = outcome_of(log.append(1, payload(1), Durability::Synced));
        assert!(matches!(refused, Err(LogError::Write { .. })), "{op:?}");
        assert_eq!(append(&log, 1), 1);
        log.close().expect("close");
        assert_eq!(sequences(&reread(&disk.crashed(0))), [1], "{op:?}");
    }
}

#[test]
fn a_short_write_is_continued() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    for _ in 0..20 {
        disk.fail_call(Some(Op::Write), 0, Fault::Short);
        success_of(log.append(1, payload(7), Durability::Synced));
    }
    assert_eq!(reread(&disk.crashed(0)).len(), 20);
}

#[test]
fn a_failed_sync_poisons_until_reopened() {
    for op in [Op::SyncData, Op::SyncDir, Op::Rename] {
        let disk = FaultDisk::new();
        let (log, _) = open(&disk);
        append(&log, 1);
        disk.fail_all(op, Some(ErrorKind::Other));
        // Big enough for a new segment, so that all three calls are made.
        let failed = outcome_of(log.append(1, Bytes::from(vec![1; 3000]), Durability::Synced));
        assert!(matches!(failed, Err(LogError::Poisoned { .. })), "{op:?}: {failed:?}");
        disk.fail_all(op, None);
        let refused = outcome_of(log.append(1, payload(2), Durability::Written));
        assert!(matches!(refused, Err(LogError::Poisoned { .. })), "{op:?}");
        assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
        assert!(matches!(log.truncate_before(1), Err(LogError::Poisoned { .. })));
        assert!(matches!(log.close(), Err(LogError::Poisoned { .. })));
        assert!(log.stats().poisoned);
        drop(log);
        let (log, _) = open(&disk);
        append(&log, 3);
        let found = reread(&disk.crashed(0));
        assert_eq!(found.first().map(|record| record.payload.clone()), Some(payload(1)), "{op:?}");
        assert_eq!(found.last().map(|record| record.payload.clone()), Some(payload(3)), "{op:?}");
    }
}

/// After a failed sync the page cache shows data that the disk does not have: served records must be made
/// durable first.
#[test]
fn what_recovery_serves_survives_the_next_crash() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    disk.fail_call(Some(Op::SyncData), 0, Fault::Error(ErrorKind::Other));
    assert!(outcome_of(log.append(1, payload(2), Durability::Synced)).is_err());
    drop(log);
    assert_eq!(sequences(&reread(&disk.crashed(0))), [1], "the sync had lost it");
    let served = sequences(&reread(&disk));
    assert_eq!(served, [1, 2]);
    assert_eq!(sequences(&reread(&disk.crashed(0))), served);
}

#[test]
fn a_failed_rollback_poisons() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    disk.fail_all(Op::Write, Some(ErrorKind::Other));
    disk.fail_all(Op::SetLen, Some(ErrorKind::Other));
    let failed = outcome_of(log.append(1, payload(2), Durability::Synced));
    assert!(matches!(failed, Err(LogError::Poisoned { .. })), "{failed:?}");
}

/// The outcome of a record, and the thread that completed it.
fn append_reporting_thread(log: &Log, number: u64) -> mpsc::Receiver<(std::thread::ThreadId, Appended)> {
    let (done, outcome) = mpsc::sync_channel(1);
    let told = move |result: Result<Appended, LogError>| {
        done.send((std::thread::current().id(), result.expect("append"))).expect("send");
    };
    log.enqueue_with(1, [payload(number), Bytes::new()], None, Durability::Synced, Box::new(told));
    log.commit(CommitOn::Caller);
    outcome
}

#[test]
fn a_lone_record_is_committed_by_its_caller_and_others_by_the_writer() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let here = std::thread::current().id();
    // No segment yet: making one is the writer's.
    let (thread, first) = received("an answer", &append_reporting_thread(&log, 1));
    assert!(thread != here && first.sequence == 1);
    // The writer has answered before it goes to sleep: until then it also takes the next one.
    let outcomes = (2..1_000).map(|number| received("an answer", &append_reporting_thread(&log, number)));
    let lone = outcomes.map(|(thread, told)| (thread == here, told.sequence)).find(|(is_here, _)| *is_here);
    let (_, last) = lone.expect("an answer within the call");
    let counts = |log: &Log| (log.stats().groups, log.stats().syncs);
    assert_eq!(counts(&log), (last, last));
    // While the writer is at work nobody waits for it.
    disk.hold_syncs();
    let held = log.append(1, payload(last + 1), Durability::Synced);
    disk.wait_for_held_sync();
    let behind = append_reporting_thread(&log, last + 2);
    assert!(behind.try_recv().is_err());
    disk.release_syncs();
    assert_eq!(success_of(held).sequence, last + 1);
    let (thread, behind) = received("an answer", &behind);
    assert!(thread != here && behind.sequence == last + 2);
    // Several enqueued records go to the writer too, as one group. The writer is held at the record before them:
    // it may still be awake and would take the first alone.
    let groups = log.stats().groups;
    disk.hold_syncs();
    let held = log.append(1, payload(last + 3), Durability::Synced);
    disk.wait_for_held_sync();
    let (done, outcomes) = mpsc::sync_channel(2);
    for number in last + 4..=last + 5 {
        let done = done.clone();
        let told = Box::new(move |result| done.send((std::thread::current().id(), result)).expect("send"));
        log.enqueue_with(1, [payload(number), Bytes::new()], None, Durability::Synced, told);
    }
    log.commit(CommitOn::Caller);
    disk.release_syncs();
    assert_eq!(success_of(held).sequence, last + 3);
    for _ in 0..2 {
        let (thread, outcome) = received("an answer", &outcomes);
        assert!(thread != here && outcome.is_ok());
    }
    assert_eq!(log.stats().groups, groups + 2);
    log.close().expect("close");
    let (_log, recovery) = open(&disk);
    assert_eq!(sequences(&records(recovery)), (1..=last + 5).collect::<Vec<_>>());
}

#[test]
fn a_shorter_part_is_written_in_its_segment_alone() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let first = success_of(log.append(1, Bytes::from_static(b"the first record"), Durability::Synced));
    let write = |segment: u64, part: &'static [u8]| {
        let (done, outcome) = mpsc::sync_channel(1);
        let told = Box::new(move |result: Result<Appended, LogError>| {
            done.send(result.expect("append")).expect("send");
        });
        let payload = [Bytes::from_static(b"in full: "), Bytes::from_static(b"body")];
        let shorter = Shorter { segment, part: Bytes::from_static(part) };
        log.enqueue_with(1, payload, Some(shorter), Durability::Synced, told);
        log.commit(CommitOn::Writer);
        let place = received("an answer", &outcome).place;
        let read = log.read(place).expect("a record").payload;
        assert_eq!(read.len(), place.payload_len());
        (place, read)
    };
    let (place, read) = write(first.place.segment(), b"short: ");
    assert_eq!(read, &b"short: body"[..]);
    let offset = u32::try_from(first.place.offset()).expect("a small segment");
    let first_len = u32::try_from(first.place.payload_len()).expect("a small record");
    assert_eq!(place.beside(offset, first_len), first.place);
    assert_eq!(write(first.place.segment() + 1, b"short: ").1, &b"in full: body"[..], "it stands elsewhere");
    assert_eq!(write(first.place.segment(), b"not shorter: ").1, &b"in full: body"[..]);
    assert_eq!(write(first.place.segment(), b"as long: ").1, &b"in full: body"[..]);
    log.close().expect("close");
    let (_log, recovery) = open(&disk);
    let read: Vec<Bytes> = recovery.map(|record| record.expect("a record").payload).collect();
    assert_eq!(
        read,
        [&b"the first record"[..], b"short: body", b"in full: body", b"in full: body", b"in full: body"]
    );
}

#[test]
fn callers_and_the_writer_take_turns() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    std::thread::scope(|scope| {
        for caller in 0..4_u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..200 {
                    let body = payload(caller * 1000 + number);
                    commit_here(log, 1, body, Durability::Synced).expect("append");
                }
            });
        }
    });
    log.close().expect("close");
    let (_log, recovery) = open(&disk);
    let found = records(recovery);
    assert_eq!(sequences(&found), (1..=800).collect::<Vec<_>>());
}

#[test]
fn what_was_written_before_is_durable_before_a_segment_goes() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    for number in 1..=60 {
        append(&log, number);
    }
    success_of(log.append(1, payload(61), Durability::Written));
    assert!(log.truncate_before(40).expect("truncate") > 0);
    let (_log, recovery) = open(&disk.crashed(1));
    assert_eq!(sequences(&records(recovery)).last(), Some(&61));
}

#[test]
fn the_queue_is_bounded() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    disk.hold_syncs();
    let held = log.append(1, payload(2), Durability::Synced);
    disk.wait_for_held_sync();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let submit = |len: usize| {
        let outcomes = Arc::clone(&outcomes);
        let done =
            Box::new(move |outcome: Result<Appended, LogError>| outcomes.lock().expect("lock").push(outcome));
        log.append_with(1, vec![0; len].into(), Durability::Synced, done);
    };
    for _ in 0..4 {
        submit(2000);
    }
    submit(2000);
    let refused = outcomes.lock().expect("lock").pop();
    assert!(matches!(refused, Some(Err(LogError::Full { records: 4, bytes: 8096 }))), "{refused:?}");
    assert_eq!(log.stats().refused, 1);
    let (exceeds, told) = std::sync::mpsc::sync_channel(1);
    let done = Box::new(move |outcome: Result<Appended, LogError>| drop(exceeds.send(outcome)));
    log.append_exceeding_with(1, vec![0; 2000].into(), Durability::Synced, done);
    assert_eq!((log.stats().queued, log.stats().refused), (5, 1));
    disk.release_syncs();
    assert_eq!(success_of(held).sequence, 2);
    assert_eq!(received("an answer", &told).expect("append").sequence, 7);
    log.close().expect("close");
    let outcomes: Vec<u64> =
        outcomes.lock().expect("lock").drain(..).map(|outcome| outcome.expect("append").sequence).collect();
    assert_eq!(outcomes, [3, 4, 5, 6]);
}

#[test]
fn a_record_that_fits_no_segment_is_refused() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let max = 4096 - 1024 - 24;
    let refused = outcome_of(log.append(1, vec![0; max + 1].into(), Durability::Synced));
    assert!(matches!(refused, Err(LogError::TooLarge { max: 3048, .. })), "{refused:?}");
    assert_eq!(success_of(log.append(1, vec![1; max].into(), Durability::Synced)).sequence, 1);
    assert_eq!(success_of(log.append(1, vec![2; max].into(), Durability::Synced)).sequence, 2);
    assert_eq!(log.stats().segments, 2);
}

#[test]
fn truncation_drops_whole_segments_and_keeps_the_count() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    for number in 1..=60 {
        append(&log, number);
    }
    let before = log.stats();
    assert_eq!(log.truncate_before(1).expect("truncate"), 0);
    let removed = log.truncate_before(30).expect("truncate");
    let found = reread(&disk.crashed(0));
    assert!(removed > 0 && found[0].sequence <= 30 && found[0].sequence > 1);
    assert_eq!(log.truncate_before(u64::MAX).expect("truncate"), before.segments - removed - 1);
    log.close().expect("close");
    // Everything below is removed, yet no number is given twice, however often the log is opened.
    for _ in 0..3 {
        let (log, recovery) = open(&disk);
        drop(recovery);
        assert_eq!(log.truncate_before(u64::MAX).expect("truncate"), 0);
        assert_eq!(log.stats().next_sequence, 61);
    }
    let (log, _) = open(&disk);
    assert_eq!(append(&log, 61), 61);
    assert_eq!(log.truncate_before(61).expect("truncate"), 1);
    assert_eq!(sequences(&reread(&disk.crashed(0))), [61]);
}

#[test]
fn opening_often_leaves_nothing_behind() {
    let disk = FaultDisk::new();
    for number in 1..=5 {
        let (log, recovery) = open(&disk);
        assert_eq!(recovery.records, number - 1);
        append(&log, number);
        for _ in 0..3 {
            drop(open(&disk.crashed(1)));
        }
        log.close().expect("close");
        drop(log);
        drop(open(&disk)); // trims the zeros
    }
    let stats = open(&disk).0.stats();
    let held: usize =
        disk.list().expect("list").iter().map(|name| disk.contents(name).expect("file").len()).sum();
    assert_eq!((stats.segments, stats.records, stats.bytes), (5, 5, held as u64));
}

#[test]
fn a_closed_log_refuses() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    log.close().expect("close");
    log.close().expect("close again");
    assert!(matches!(outcome_of(log.append(1, payload(1), Durability::Synced)), Err(LogError::Closed)));
    assert!(matches!(log.sync(), Err(LogError::Closed)));
    assert!(matches!(log.truncate_before(9), Err(LogError::Closed)));
}

#[test]
fn a_callback_may_hold_the_last_handle() {
    let (log, _) = open(&FaultDisk::new());
    let log = Arc::new(log);
    let (done, outcome) = mpsc::sync_channel(1);
    let held = Arc::clone(&log);
    log.append_with(
        1,
        payload(1),
        Durability::Synced,
        Box::new(move |result| {
            drop(held);
            done.send(result).expect("send");
        }),
    );
    drop(log);
    assert_eq!(received("an answer", &outcome).expect("append").sequence, 1);
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = Log::open(FaultDisk::new(), LogConfig { segment_len: 100, ..LogConfig::default() });
    assert!(matches!(refused, Err(LogError::Config { field: "segment_len", value: 100, least: 4096, .. })));
}

#[test]
fn a_record_is_read_back_from_the_place_that_was_told() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let appended = append_all(&log, 1..=60);
    assert!(appended.is_sorted_by_key(|appended| appended.place), "places grow");
    assert!(log.segments().len() > 3);
    let check = |log: &Log, found: &[Appended]| {
        for appended in found.iter().rev() {
            let record = log.read(appended.place).expect("read");
            assert_eq!((record.sequence, record.kind, record.place), (appended.sequence, 9, appended.place));
            assert_eq!(record.payload, payload(record.sequence));
            assert_eq!(record.payload.len(), appended.place.payload_len());
        }
    };
    check(&log, &appended);
    log.close().expect("close");
    check(&log, &appended);
    drop(log);
    let (log, recovery) = open(&disk);
    let places: Vec<Appended> =
        records(recovery).iter().map(|r| Appended { sequence: r.sequence, place: r.place }).collect();
    assert_eq!(places, appended, "a recovery tells the same places");
    check(&log, &places);
}

#[test]
fn what_was_truncated_away_is_gone_and_all_else_is_read() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let appended = append_all(&log, 1..=60);
    for place in appended.iter().map(|appended| appended.place) {
        log.read(place).expect("read");
    }
    let segments = log.segments();
    assert_eq!(segments.iter().map(|segment| segment.records).sum::<u64>(), 60);
    assert!(segments.windows(2).all(|pair| pair[0].end == pair[1].base));
    assert_eq!(log.truncate_before(segments[1].end).expect("truncate"), 2);
    assert_eq!(log.segments(), segments[2..]);
    for appended in &appended {
        let outcome = log.read(appended.place);
        if appended.place.segment() <= segments[1].base {
            assert!(matches!(outcome, Err(LogError::Gone { .. })), "{outcome:?}");
        } else {
            assert_eq!(outcome.expect("read").payload, payload(appended.sequence));
        }
    }
}

#[test]
fn a_record_whose_bytes_changed_is_an_error_not_other_bytes() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    let place = append_all(&log, 1..=1)[0].place;
    let name = "0000000000000001.wal";
    for at in 1024..1024 + 24 + place.payload_len() {
        disk.flip_on_read(name, at, 4);
        let outcome = log.read(place);
        assert!(matches!(outcome, Err(LogError::Damaged { offset: 1024, .. })), "byte {at}: {outcome:?}");
        disk.flip_on_read(name, at, 0);
    }
    disk.fail_all(Op::Read, Some(ErrorKind::Other));
    assert!(matches!(log.read(place), Err(LogError::Read { .. })));
    disk.fail_all(Op::Read, None);
    assert_eq!(log.read(place).expect("read").payload, payload(1));
}

#[test]
fn a_callback_may_ask_for_more_of_the_log() {
    let (log, _) = open(&FaultDisk::new());
    let log = Arc::new(log);
    append_all(&log, 1..=60);
    let before = log.stats().syncs;
    let (sender, answers) = mpsc::sync_channel(4);
    let inner = Arc::clone(&log);
    log.append_with(
        1,
        payload(61),
        Durability::Written,
        Box::new(move |first| {
            let place = first.expect("append").place;
            assert_eq!(inner.read(place).expect("read").payload, payload(61));
            let answer = |sender: &mpsc::SyncSender<u64>| {
                let sender = sender.clone();
                move |outcome: Result<u64, LogError>| sender.send(outcome.expect("done")).expect("send")
            };
            let appended = answer(&sender);
            let done = Box::new(move |outcome: Result<Appended, _>| appended(outcome.map(|a| a.sequence)));
            inner.append_with(1, payload(62), Durability::Written, done);
            inner.sync_with(Box::new(answer(&sender)));
            inner.truncate_before_with(61, Box::new(answer(&sender)));
        }),
    );
    let answers: Vec<u64> = answers.iter().take(3).collect();
    assert_eq!(answers[..2], [62, 63], "the append, then the sync that covers it");
    assert!(answers[2] > 1, "segments were removed");
    assert_eq!(log.stats().syncs, before + 1);
}
