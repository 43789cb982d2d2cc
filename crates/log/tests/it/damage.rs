//! Changed bytes: whatever happens to a file, the log serves what was appended or reports its loss.

use std::sync::{Arc, mpsc};

use bytes::Bytes;
use gpuvitals_log::fault::{FaultDisk, SECTOR_LEN};
use gpuvitals_log::{Disk, Durability, Log, LogConfig, LogError, Record, Recovery};

use crate::bench::{append, open, open_with, payload, records, reread, sequences, success_of, tiny};

const FIRST: &str = "0000000000000001.wal";
const HEADER_LEN: usize = 1024;

/// No fill, so that a file ends where its records do.
fn bare() -> LogConfig {
    LogConfig { fill_len: 0, ..tiny() }
}

/// One segment with `count` records, each synced before the next.
fn segment_of(count: u64) -> Vec<u8> {
    let disk = FaultDisk::new();
    let (log, _) = open_with(disk.clone(), bare());
    for number in 1..=count {
        append(&log, number);
    }
    log.close().expect("close");
    assert_eq!(disk.names(), [FIRST]);
    disk.contents(FIRST).expect("segment")
}

fn three_records() -> Vec<u8> {
    segment_of(3)
}

/// Opens a log whose only segment is `bytes`, and checks that it serves nothing but appended records.
fn serve(bytes: &[u8]) -> (Vec<u64>, Recovery) {
    let disk = FaultDisk::new();
    disk.put(FIRST, bytes);
    let (log, recovery) = open_with(disk, bare());
    let mut served = Vec::new();
    let mut recovery = recovery;
    for record in recovery.by_ref() {
        let record = record.expect("replay");
        assert_eq!((record.kind, record.payload), (1, payload(record.sequence)));
        served.push(record.sequence);
    }
    assert!(served.is_sorted(), "{served:?}");
    let next = append(&log, 99);
    assert!(served.iter().all(|sequence| *sequence < next), "{next} is given twice");
    (served, recovery)
}

/// First and last sequence of each damaged range.
fn lost(recovery: &Recovery) -> Vec<(u64, u64)> {
    recovery.damage.iter().map(|damage| (damage.sequences.start, damage.sequences.end - 1)).collect()
}

#[test]
fn a_file_cut_at_any_byte_is_a_prefix() {
    let whole = three_records();
    let size = |number| (24 + payload(number).len()).next_multiple_of(8);
    let ends: Vec<usize> = (0..=3).map(|count| HEADER_LEN + (1..=count).map(size).sum::<usize>()).collect();
    assert_eq!(ends[3], whole.len());
    for len in 0..=whole.len() {
        let (served, recovery) = serve(&whole[..len]);
        // Padding may be missing from the last record's end.
        let payload_ends =
            |count: usize| count == 0 || len >= ends[count - 1] + 24 + payload(count as u64).len();
        let count = (0..=3).rev().find(|count| payload_ends(*count)).expect("none");
        assert_eq!(served, (1..=count as u64).collect::<Vec<_>>(), "cut at {len}");
        let header_stands = len >= 44;
        assert_eq!(recovery.damage.is_empty(), header_stands, "cut at {len}: {recovery:?}");
        let at_a_boundary = ends.contains(&len) || (44..HEADER_LEN).contains(&len);
        let says_torn = recovery.torn.is_some();
        assert!(
            !header_stands || at_a_boundary || says_torn || payload_ends(count),
            "cut at {len}: {recovery:?}"
        );
    }
}

#[test]
fn a_bit_that_flips_anywhere_is_noticed_or_harmless() {
    let whole = three_records();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let (served, recovery) = serve(&bytes);
            match &served[..] {
                [1, 2, 3] => assert!(recovery.damage.is_empty(), "{at}.{bit}: {recovery:?}"),
                [1, 2] => assert!(recovery.torn.is_some(), "{at}.{bit}: {recovery:?}"),
                [1, 3] => assert_eq!(lost(&recovery), [(2, 2)], "{at}.{bit}"),
                [2, 3] => assert_eq!(lost(&recovery), [(1, 1)], "{at}.{bit}"),
                other => panic!("{at}.{bit}: {other:?} {recovery:?}"),
            }
        }
    }
}

#[test]
fn any_two_bytes_that_change_are_noticed_or_harmless() {
    let whole = three_records();
    for first in (0..whole.len()).step_by(7) {
        for second in (first + 1..whole.len()).step_by(41) {
            let mut bytes = whole.clone();
            bytes[first] = !bytes[first];
            bytes[second] = 0;
            let (served, recovery) = serve(&bytes);
            let silent = recovery.damage.is_empty() && recovery.torn.is_none();
            assert!(!silent || served == [1, 2, 3] || bytes == whole, "{first} {second}: {served:?}");
        }
    }
}

/// A log of several segments, all records synced one by one.
fn long_log() -> (FaultDisk, Vec<String>) {
    let disk = FaultDisk::new();
    let (log, _) = open(&disk);
    for number in 1..=60 {
        append(&log, number);
    }
    log.close().expect("close");
    let names = disk.list().expect("list");
    assert!(names.len() >= 3);
    (disk, names)
}

#[test]
fn a_zeroed_sector_is_damage_and_all_else_is_served() {
    let (disk, names) = long_log();
    for name in &names {
        for sector in 2..6 {
            let disk = disk.crashed(1);
            disk.zero_sector(name, sector);
            let (log, recovery) = open(&disk);
            let gone: Vec<u64> = lost(&recovery).into_iter().flat_map(|(first, last)| first..=last).collect();
            let torn = recovery.torn.is_some();
            let served = sequences(&records(recovery));
            let missing: Vec<u64> = (1..=60).filter(|sequence| !served.contains(sequence)).collect();
            if torn || name == names.last().expect("names") {
                // Damage with nothing after it looks like a torn group, and zeros like an end: a prefix is
                // served.
                let end = missing.first().map_or(61, |first| *first);
                assert!(!missing.is_empty() || gone.is_empty());
                assert!(served.iter().all(|sequence| *sequence < end || !gone.is_empty()), "{name} {sector}");
            } else {
                assert_eq!(missing, gone, "{name} {sector}");
                assert!(!missing.is_empty(), "{name} {sector}");
            }
            let next = append(&log, 61);
            assert!(next > 60 || !torn, "{name} {sector}: {next} is given twice");
        }
    }
}

#[test]
fn a_range_that_cannot_be_read_is_damage_and_all_else_is_served() {
    let (disk, names) = long_log();
    for (name, sector) in names[..2].iter().flat_map(|name| (0..6).map(move |sector| (name, sector))) {
        let disk = disk.crashed(1);
        disk.spoil(name, sector * 512..sector * 512 + 100);
        let (log, recovery) = open(&disk);
        let gone: Vec<u64> = lost(&recovery).into_iter().flat_map(|(first, last)| first..=last).collect();
        let served = sequences(&records(recovery));
        let missing: Vec<u64> = (1..=60).filter(|sequence| !served.contains(sequence)).collect();
        assert_eq!(missing, gone, "{name} {sector}");
        assert_eq!(missing.is_empty(), sector < 2, "one copy of the header suffices: {name} {sector}");
        log.close().expect("close");
    }
}

/// A crash leaves no unreadable sector: so it is not the torn tail that it looks like.
#[test]
fn what_cannot_be_read_at_the_end_is_damage_and_served_once_it_can_be() {
    let (bytes, count) = (segment_of(12), 12);
    let size = |number| (24 + payload(number).len()).next_multiple_of(8);
    let end = |count| HEADER_LEN + (1..=count).map(size).sum::<usize>();
    for sector in HEADER_LEN / SECTOR_LEN..bytes.len().div_ceil(SECTOR_LEN) {
        let spoilt = sector * SECTOR_LEN..bytes.len().min((sector + 1) * SECTOR_LEN);
        let hit = |number| end(number - 1) < spoilt.end && spoilt.start < end(number);
        let disk = FaultDisk::new();
        disk.put(FIRST, &bytes);
        disk.spoil(FIRST, spoilt.clone());
        let (log, recovery) = open(&disk);
        assert_eq!((recovery.damage.len(), recovery.torn.as_ref()), (1, None));
        let lost = lost(&recovery)[0];
        assert!((1..=count).all(|number| !hit(number) || (lost.0..=lost.1).contains(&number)), "{lost:?}");
        assert_eq!(
            sequences(&records(recovery)),
            (1..=count).filter(|number| !hit(*number)).collect::<Vec<_>>()
        );
        let next = append(&log, count + 1);
        log.close().expect("close");

        let healed = FaultDisk::new();
        disk.names().iter().for_each(|name| healed.put(name, &disk.contents(name).expect("file")));
        let all: Vec<u64> = (1..=count).chain([next]).collect();
        assert_eq!(sequences(&reread(&healed)), all, "{sector}");
    }
}

#[test]
fn damage_stays_reported_and_is_never_deleted() {
    let (disk, names) = long_log();
    disk.zero_sector(&names[0], 3);
    let before = disk.contents(&names[0]);
    let mut reports = Vec::new();
    for number in 100..103 {
        let (log, recovery) = open(&disk);
        reports.push(recovery.damage.clone());
        append(&log, number);
        log.close().expect("close");
    }
    assert_eq!(reports[0].len(), 1);
    assert_eq!(reports[0][0].segment, names[0]);
    assert!(reports.iter().all(|report| *report == reports[0]));
    assert_eq!(disk.contents(&names[0]), before);

    let (log, _) = open(&disk);
    log.truncate_before(u64::MAX).expect("truncate");
    log.close().expect("close");
    let aside = names[0].replace(".wal", ".damaged");
    assert_eq!(disk.crashed(0).contents(&aside), before);
    let (_log, recovery) = open(&disk);
    assert_eq!(recovery.ignored, [aside]);
    assert_eq!(recovery.damage, []);
}

#[test]
fn a_missing_segment_is_damage() {
    let (disk, names) = long_log();
    disk.remove(&names[1]).expect("remove");
    let (_log, recovery) = open(&disk);
    let gone = lost(&recovery);
    let start = |name: &str| u64::from_str_radix(&name[..16], 16).expect("name");
    assert_eq!(gone, [(start(&names[1]), start(&names[2]) - 1)]);
    let served = sequences(&records(recovery));
    assert_eq!(served.len() as u64, 60 - (gone[0].1 + 1 - gone[0].0));
}

/// Damage with nothing after it may have held any number of records.
#[test]
fn damage_says_how_many_records_are_gone_only_if_something_follows_it() {
    let (disk, names) = long_log();
    let count = |name: &str| {
        let sequences = sequences(&reread(&disk.crashed(1)));
        let base = |name: &String| u64::from_str_radix(&name[..16], 16).expect("name");
        let end = names.iter().map(base).find(|next| *next > base(&name.to_owned())).unwrap_or(61);
        sequences.iter().filter(|at| (base(&name.to_owned())..end).contains(at)).count()
    };
    for name in &names {
        let disk = disk.crashed(1);
        disk.put(name, &[]);
        let (_log, recovery) = open(&disk);
        let told = recovery.damage[0].to_string();
        let end = if Some(name) == names.last() {
            "records are gone, and nothing tells how many".to_owned()
        } else {
            format!("{} records are gone", count(name))
        };
        assert!(told.starts_with(name) && told.ends_with(&end), "{told}, not {end}");
    }
}

#[test]
fn the_last_byte_of_what_was_synced_may_be_damage_and_that_is_said() {
    let mut whole = three_records();
    let last = whole.iter().rposition(|byte| *byte != 0).expect("data");
    whole[last] ^= 1;
    let (served, recovery) = serve(&whole);
    assert_eq!((served, recovery.damage.len()), (vec![1, 2], 0));
    let told = recovery.torn.expect("torn").to_string();
    assert!(told.contains("or damage to acknowledged records; nothing tells which"), "{told}");
}

#[test]
fn a_segment_without_a_header_is_damage_as_a_whole() {
    let (disk, names) = long_log();
    for (at, name) in names.iter().enumerate() {
        let disk = disk.crashed(1);
        disk.zero_sector(name, 0);
        assert_eq!(sequences(&reread(&disk)).len(), 60, "the copy suffices");
        disk.zero_sector(name, 1);
        for _ in 0..2 {
            let (log, recovery) = open(&disk);
            let gone = lost(&recovery);
            let served = sequences(&records(recovery));
            assert!(
                !served.is_empty()
                    && served.iter().all(|sequence| *sequence < gone[0].0 || *sequence > gone[0].1)
            );
            let next = append(&log, 61);
            assert!(next > 60 && (next < gone[0].0 || next > gone[0].1), "{at}: {next} {gone:?}");
            assert_eq!(gone.len(), 1);
        }
    }
}

#[test]
fn a_later_version_is_refused_not_damaged() {
    let disk = FaultDisk::new();
    let mut bytes = three_records();
    for copy in [0, SECTOR_LEN] {
        bytes[copy + 8] = 2;
        let crc = crc32c::crc32c(&bytes[copy..copy + 40]);
        bytes[copy + 40..copy + 44].copy_from_slice(&crc.to_le_bytes());
    }
    disk.put(FIRST, &bytes);
    let refused = Log::open(disk.clone(), tiny()).map(drop);
    assert!(matches!(refused, Err(LogError::UnknownVersion { version: 2, .. })), "{refused:?}");
    assert_eq!(disk.contents(FIRST), Some(bytes));
}

/// A torn group is not served, even if later records of it are whole: the survivors are a prefix. It is not
/// overwritten, and never reappears.
#[test]
fn a_torn_group_is_hidden_and_kept() {
    let disk = FaultDisk::new();
    let (log, _) = open_with(disk.clone(), bare());
    append(&log, 1);
    disk.hold_syncs();
    let held = log.append(1, payload(2), Durability::Synced);
    disk.wait_for_held_sync();
    let group: Vec<_> = (3..=5).map(|number| log.append(1, payload(number), Durability::Synced)).collect();
    disk.release_syncs();
    success_of(held);
    for ticket in group {
        success_of(ticket);
    }
    log.close().expect("close");
    let mut bytes = disk.contents(FIRST).expect("segment");
    let third = HEADER_LEN + (1..=2).map(|n| (24 + payload(n).len()).next_multiple_of(8)).sum::<usize>();
    bytes[third + 30] ^= 1;
    disk.put(FIRST, &bytes);

    let (log, recovery) = open(&disk);
    let torn = recovery.torn.clone().expect("torn");
    assert_eq!((torn.offset, torn.intact), (third as u64, 2));
    assert_eq!(recovery.damage, []);
    let next = recovery.next_sequence;
    assert!(next >= 6);
    assert_eq!(sequences(&records(recovery)), [1, 2]);
    assert_eq!(append(&log, 6), next);
    log.close().expect("close");
    assert_eq!(disk.contents(FIRST), Some(bytes.clone()));
    assert_eq!(sequences(&reread(&disk)), [1, 2, next]);

    let (log, recovery) = open(&disk);
    assert_eq!((recovery.torn, recovery.damage), (None, vec![]));
    log.truncate_before(u64::MAX).expect("truncate");
    assert_eq!(disk.contents("0000000000000001.damaged"), Some(bytes));
}

/// An unreadable record is not written again as it was read: it may become readable. The proof that it had
/// been synced is behind a torn tail here.
#[test]
fn what_cannot_be_read_before_a_torn_end_is_left_as_it_is() {
    let disk = FaultDisk::new();
    let log = Arc::new(open_with(disk.clone(), bare()).0);
    let (told, outcomes) = mpsc::sync_channel(6);
    let enqueue = move |log: &Log, number: u64, then: Box<dyn FnOnce() + Send>| {
        let told = told.clone();
        let done = Box::new(move |outcome| {
            then();
            told.send(outcome).expect("send");
        });
        log.enqueue_with(1, [payload(number), Bytes::new()], None, Durability::Synced, done);
    };
    disk.hold_syncs();
    let first = log.append(1, payload(1), Durability::Synced);
    disk.wait_for_held_sync();
    enqueue(&log, 2, Box::new(|| {}));
    let (behind, enqueue_behind) = (Arc::clone(&log), enqueue.clone());
    let then = move || (5..=7).for_each(|number| enqueue_behind(&behind, number, Box::new(|| {})));
    enqueue(&log, 3, Box::new(|| {}));
    enqueue(&log, 4, Box::new(then));
    drop(enqueue);
    disk.release_syncs();
    success_of(first);
    assert!(outcomes.iter().map(|outcome| outcome.expect("append").sequence).eq(2..=7));
    assert_eq!((log.stats().groups, log.stats().syncs), (3, 3));
    log.close().expect("close");
    let mut bytes = disk.contents(FIRST).expect("segment");
    let start =
        |number| HEADER_LEN + (1..number).map(|n| (24 + payload(n).len()).next_multiple_of(8)).sum::<usize>();
    bytes[start(5) + 30] ^= 1;
    disk.put(FIRST, &bytes);
    disk.flip_on_read(FIRST, start(3) + 30, 1);

    let (_log, recovery) = open(&disk);
    assert_eq!(lost(&recovery), [(3, 3)]);
    assert_eq!(recovery.torn.clone().map(|torn| torn.intact), Some(2));
    assert_eq!(sequences(&records(recovery)), [1, 2, 4]);
    assert_eq!(disk.contents(FIRST), Some(bytes));
}

/// A recycled file: the new header is followed by the old contents.
#[test]
fn what_a_recycled_file_held_is_not_served() {
    let old = three_records();
    let fresh = FaultDisk::new();
    let (log, _) = open_with(fresh.clone(), bare());
    append(&log, 1);
    log.close().expect("close");
    let mut bytes = fresh.contents(FIRST).expect("segment");
    assert!(serve(&[&bytes[..HEADER_LEN], &old[HEADER_LEN..]].concat()).0.is_empty());
    bytes.extend_from_slice(&old[bytes.len()..]);
    let (served, recovery) = serve(&bytes);
    assert_eq!((served, lost(&recovery)), (vec![1], vec![]));
}

#[test]
fn zeros_behind_the_last_record_are_a_clean_end() {
    let whole = three_records();
    for zeros in [1, 7, 8, 24, 511, 4096, 100_000, 700_000] {
        let (served, recovery) = serve(&[&whole[..], &vec![0; zeros]].concat());
        assert_eq!((served, recovery.torn, recovery.damage), (vec![1, 2, 3], None, vec![]));
    }
}

#[test]
fn a_bit_that_flips_during_replay_is_an_error() {
    let (disk, names) = long_log();
    let (_log, mut recovery) = open(&disk);
    disk.flip_on_read(&names[1], HEADER_LEN + 40, 4);
    let outcomes: Vec<Result<Record, LogError>> = recovery.by_ref().collect();
    let (last, before) = outcomes.split_last().expect("records");
    assert!(matches!(last, Err(LogError::Changed { file, .. }) if *file == names[1]), "{last:?}");
    for record in before {
        let record = record.as_ref().expect("record");
        assert_eq!(record.payload, payload(record.sequence));
    }
    assert!(recovery.next().is_none());
}

/// A payload that imitates records of the log it is in cannot pass as one, for it cannot know the generation.
#[test]
fn a_payload_that_looks_like_a_record_is_not_one() {
    let disk = FaultDisk::new();
    let (log, _) = open_with(disk.clone(), bare());
    append(&log, 1);
    let forged: Bytes = three_records()[HEADER_LEN..].to_vec().into();
    success_of(log.append(1, forged, Durability::Synced));
    append(&log, 3);
    log.close().expect("close");
    let second = HEADER_LEN + (24 + payload(1).len()).next_multiple_of(8);
    let mut bytes = disk.contents(FIRST).expect("segment");
    bytes[second] ^= 1;
    disk.put(FIRST, &bytes);
    let (_log, recovery) = open(&disk);
    assert_eq!(lost(&recovery), [(2, 2)]);
    assert_eq!(sequences(&records(recovery)), [1, 3]);
}
