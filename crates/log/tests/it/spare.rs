//! Spare segments: made in the background, used in place of new files, and never taken for anything else.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpuvitals_log::fault::{Fault, FaultDisk, Op, SECTOR_LEN};
use gpuvitals_log::{Disk, Durability, FsDisk, Log, LogConfig, LogError, Recovery};

use crate::bench::{
    append, append_until, files, open, open_with, outcome_of, payload, records, reread, sequences,
    success_of, tiny,
};

const SEGMENT_LEN: usize = 4096;

fn one_spare() -> LogConfig {
    LogConfig { spares: 1, ..tiny() }
}

/// Appends until a new segment begins, and returns the next number.
fn fill(log: &Log, number: u64) -> u64 {
    let segments = log.stats().segments;
    append_until(log, "a new segment", number, || log.stats().segments != segments)
}

/// Appends until a spare is asked for.
fn fill_half(log: &Log, number: u64) {
    let is_half_full = || log.segments().last().expect("segment").bytes >= SEGMENT_LEN as u64 / 2 + 1024;
    append_until(log, "half a segment", number, is_half_full);
}

/// A disk with a log whose last segment, recycled from a full one, has these three records, and the log's
/// spare.
fn recycled() -> (FaultDisk, String, [u64; 3]) {
    let disk = FaultDisk::new();
    disk.set_background_pace(8);
    let (log, recovery) = open_with(disk.clone(), one_spare());
    drop(recovery);
    let mut number = 1;
    for _ in 0..5 {
        number = fill(&log, number);
        log.truncate_before(number).expect("truncate");
    }
    let segment = log.segments()[0];
    append_until(&log, "a third record", number, || log.segments()[0].records >= 3);
    disk.finish_background();
    assert_eq!((files(&disk, "wal").len(), files(&disk, "spare").len()), (1, 1));
    log.close().expect("close");
    let name = format!("{:016x}.wal", segment.base);
    assert_eq!(disk.contents(&name).expect("segment").len(), SEGMENT_LEN);
    (disk, name, [segment.base, segment.base + 1, segment.base + 2])
}

/// Opens a log whose last segment holds `bytes`, and checks that it serves nothing but appended records.
fn serve(disk: &FaultDisk, name: &str, bytes: &[u8]) -> (Vec<u64>, Recovery) {
    let disk = disk.crashed(0);
    disk.put(name, bytes);
    let (log, mut recovery) = open_with(disk, one_spare());
    let mut served = Vec::new();
    for record in recovery.by_ref() {
        let record = record.expect("replay");
        assert_eq!((record.kind, &record.payload), (1, &payload(record.sequence)));
        assert_eq!(log.read(record.place).expect("read"), record);
        served.push(record.sequence);
    }
    let next = append(&log, 99);
    assert!(served.iter().all(|sequence| *sequence < next), "{next} is given twice");
    (served, recovery)
}

#[test]
fn segments_that_go_come_back_and_files_neither_grow_nor_become_more() {
    let disk = FaultDisk::new();
    disk.set_background_pace(8);
    let (log, _) = open_with(disk.clone(), one_spare());
    let mut number = fill(&log, 1);
    let mut creates = None;
    for _ in 0..12 {
        number = fill(&log, number);
        log.truncate_before(number).expect("truncate");
        disk.finish_background();
        assert_eq!((files(&disk, "wal").len(), files(&disk, "spare").len()), (1, 1));
        let sizes =
            disk.list().expect("list").into_iter().map(|name| disk.contents(&name).expect("file").len());
        assert!(sizes.eq([SEGMENT_LEN; 2]), "after {number}");
        let spare = disk.contents(&files(&disk, "spare")[0]).expect("spare");
        assert!(spare.iter().all(|byte| *byte == 0), "old records in a spare");
        let made = disk.calls(Op::Create);
        assert_eq!(*creates.get_or_insert(made), made, "a file was made");
    }
    assert_eq!(reread(&disk.crashed(0)).last().map(|record| record.sequence), Some(number - 1));
}

#[test]
fn a_roll_onto_a_spare_takes_five_calls() {
    let disk = FaultDisk::new();
    let (log, _) = open_with(disk.clone(), one_spare());
    append(&log, 1);
    disk.finish_background();
    disk.set_background_pace(0);
    let before =
        [Op::Create, Op::Open, Op::Size, Op::SetLen, Op::Write, Op::SyncData, Op::Rename, Op::SyncDir]
            .map(|op| (op, disk.calls(op)));
    success_of(log.append(1, Bytes::from(vec![1; 3000]), Durability::Synced));
    assert_eq!(log.stats().segments, 2);
    let calls = before.map(|(op, count)| (op, disk.calls(op) - count));
    let wanted = [
        (Op::Create, 0),
        (Op::Open, 1),
        (Op::Size, 1),
        (Op::SetLen, 0),
        (Op::Write, 2),    // the header, the record
        (Op::SyncData, 2), // both
        (Op::Rename, 1),
        (Op::SyncDir, 1),
    ];
    assert_eq!(calls, wanted);
}

#[test]
fn a_recycled_segment_cut_at_any_byte_is_a_prefix() {
    let (disk, name, wanted) = recycled();
    let whole = disk.contents(&name).expect("segment");
    for len in 0..=whole.len() {
        let (served, recovery) = serve(&disk, &name, &whole[..len]);
        assert!(wanted.starts_with(&served), "cut at {len}: {served:?}");
        assert_eq!(recovery.damage.is_empty(), len >= 44, "cut at {len}: {recovery:?}");
    }
}

#[test]
fn a_bit_that_flips_in_a_recycled_segment_is_noticed_or_harmless() {
    let (disk, name, wanted) = recycled();
    let whole = disk.contents(&name).expect("segment");
    let end = whole.iter().rposition(|byte| *byte != 0).expect("records") + 9;
    for at in (0..end).chain((end..whole.len()).step_by(61)) {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let (served, recovery) = serve(&disk, &name, &bytes);
            let [first, second, third] = wanted;
            match served {
                _ if served == wanted => assert_eq!(recovery.damage, [], "{at}.{bit}"),
                _ if served == [first, second] => assert!(recovery.torn.is_some(), "{at}.{bit}"),
                _ if served == [first, third] || served == [second, third] => {
                    assert_eq!(recovery.damage.len(), 1, "{at}.{bit}");
                }
                other => panic!("{at}.{bit}: {other:?} {recovery:?}"),
            }
        }
    }
}

/// A crash in the middle of zeroing: the file has another name by then, for good.
#[test]
fn old_records_in_a_half_zeroed_file_are_not_served() {
    for seed in 0..200 {
        let disk = FaultDisk::new();
        disk.set_background_pace(seed % 3);
        let (log, _) = open_with(disk.clone(), one_spare());
        let number = fill(&log, 1);
        let number = fill(&log, number);
        log.truncate_before(number).expect("truncate");
        append(&log, number);
        let crashed = disk.crashed(seed);
        let (log, recovery) = open_with(crashed.clone(), one_spare());
        assert_eq!((&recovery.damage[..], &recovery.torn, &recovery.ignored[..]), (&[][..], &None, &[][..]));
        let served = sequences(&records(recovery));
        assert!(served.is_sorted() && served.last() == Some(&number), "{served:?}");
        fill(&log, number + 1);
        assert_eq!(files(&crashed, "zeroing").len() + files(&crashed, "spare").len(), 1);
    }
}

#[test]
fn a_spare_is_kept_over_an_opening_and_removed_when_none_is_wanted() {
    let (disk, ..) = recycled();
    let spare = files(&disk, "spare");
    let creates = disk.calls(Op::Create);
    let (log, recovery) = open_with(disk.clone(), one_spare());
    assert_eq!(recovery.ignored, Vec::<String>::new());
    assert_eq!((log.stats().spares, files(&disk, "spare")), (1, spare));
    append(&log, 1);
    assert_eq!((disk.calls(Op::Create), files(&disk, "spare").len()), (creates, 0), "the spare was used");
    disk.finish_background();
    log.close().expect("close");
    drop(log);
    let (log, _) = open(&disk);
    assert_eq!((log.stats().spares, files(&disk, "spare")), (0, Vec::new()));
    assert_eq!(files(&disk, "zeroing"), Vec::<String>::new());
}

#[test]
fn a_spare_of_another_length_is_not_used() {
    let (disk, ..) = recycled();
    let (log, _) = open_with(disk.clone(), LogConfig { segment_len: 8192, ..one_spare() });
    append(&log, 1);
    log.close().expect("close");
    let lens: Vec<usize> =
        files(&disk, "spare").iter().map(|name| disk.contents(name).expect("spare").len()).collect();
    assert!(lens.is_empty() || lens == [8192], "{lens:?}");
    assert_eq!(reread(&disk).last().map(|record| record.payload.clone()), Some(payload(1)));
}

#[test]
fn a_full_disk_makes_no_spares_until_there_is_room() {
    let disk = FaultDisk::new();
    disk.set_capacity(Some(SEGMENT_LEN as u64 + 3000));
    let (log, _) = open_with(disk.clone(), one_spare());
    let mut numbers = 1..;
    let mut acknowledged = Vec::new();
    let refused = loop {
        let number = numbers.next().expect("number");
        match outcome_of(log.append(1, payload(number), Durability::Synced)) {
            Ok(appended) => acknowledged.push(appended.sequence),
            Err(error) => break error,
        }
    };
    let is_full = |error: &LogError| matches!(error, LogError::Write { source, .. } if source.kind() == ErrorKind::StorageFull);
    assert!(is_full(&refused), "{refused}");
    assert!(acknowledged.len() > 20, "what room there was is used: {acknowledged:?}");
    for _ in 0..10 {
        let refused = outcome_of(log.append(1, payload(7), Durability::Synced)).expect_err("full");
        assert!(is_full(&refused), "{refused}");
    }
    assert_eq!(sequences(&reread(&disk.crashed(3))), acknowledged);

    disk.set_capacity(None);
    let number = fill(&log, 1000);
    fill_half(&log, number);
    disk.finish_background();
    assert_eq!(log.stats().spares, 1);
}

#[test]
fn a_spare_takes_the_records_that_a_full_disk_would_refuse() {
    let disk = FaultDisk::new();
    disk.set_background_pace(0);
    let (log, _) = open_with(disk.clone(), one_spare());
    append(&log, 1); // in a new file
    disk.finish_background();
    disk.set_capacity(Some(0));
    let mut number = 2;
    while outcome_of(log.append(1, payload(number), Durability::Synced)).is_ok() {
        number += 1;
    }
    assert_eq!((log.stats().segments, log.stats().spares), (2, 0));
    assert!(log.segments()[1].bytes > 3500, "the spare was filled");
    assert_eq!(sequences(&reread(&disk.crashed(0))), (1..number).collect::<Vec<_>>());
}

#[test]
fn what_fails_in_the_background_disturbs_nobody() {
    for op in [Op::Create, Op::Write, Op::SyncData, Op::Rename, Op::SetLen] {
        let disk = FaultDisk::new();
        disk.set_background_pace(0);
        let (log, _) = open_with(disk.clone(), one_spare());
        append(&log, 1);
        disk.fail_call(Some(op), 0, Fault::Error(ErrorKind::Other));
        disk.finish_background();
        if op != Op::SetLen {
            assert_eq!((log.stats().spares, files(&disk, "zeroing").len()), (0, 0), "{op:?}");
        }
        disk.set_background_pace(8);
        let number = fill(&log, 2);
        fill_half(&log, number);
        disk.finish_background();
        assert_eq!(log.stats().spares, 1, "{op:?}: tried again");
        assert!(!log.stats().poisoned);
        log.close().expect("close");
    }
}

#[test]
fn names_of_spares_are_not_segments_and_no_others_are_touched() {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    append(&log, 1);
    log.close().expect("close");
    drop(log);
    for name in ["x.spare", "00000000000000A1.zeroing", "1.zeroing"] {
        disk.put(name, b"not ours");
    }
    disk.put("00000000000000a1.zeroing", &[7; SECTOR_LEN]);
    disk.put("00000000000000a2.spare", &[7; SECTOR_LEN]); // short, and not zeros
    let (log, recovery) = open_with(disk.clone(), one_spare());
    assert_eq!(recovery.ignored, ["00000000000000A1.zeroing", "1.zeroing", "x.spare"]);
    assert_eq!(sequences(&records(recovery)), [1]);
    assert_eq!(append(&log, 2), 2);
    assert_eq!(disk.contents("00000000000000a1.zeroing"), None);
    assert_eq!(disk.contents("00000000000000a2.spare"), None);
    assert_eq!(disk.contents("x.spare").as_deref(), Some(&b"not ours"[..]));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread of the log is waited for")]
fn a_real_directory_keeps_a_spare() {
    let directory = tempfile::tempdir().expect("directory");
    let disk = FsDisk::open(directory.path()).expect("disk");
    let config = LogConfig { segment_len: 64 << 10, ..LogConfig::default() };
    let (log, recovery) = open_with(disk.clone(), config.clone());
    drop(recovery);
    let record = Bytes::from(vec![5; 5000]);
    for number in 1..=200 {
        let appended = success_of(log.append(1, record.clone(), Durability::Written));
        assert_eq!(log.read(appended.place).expect("read").payload, record);
        if number % 40 == 0 {
            assert!(log.truncate_before(number - 20).expect("truncate") > 0);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while log.stats().spares == 0 {
        assert!(Instant::now() < deadline, "no spare is made");
        success_of(log.append(1, record.clone(), Durability::Synced));
    }
    let last = log.stats().next_sequence - 1;
    log.close().expect("close");
    drop(log);
    let files = disk.list().expect("list").len() as u64;
    let (log, recovery) = open_with(disk, config);
    assert_eq!(records(recovery).last().map(|record| record.sequence), Some(last));
    assert!(files <= log.stats().segments + 1);
}
