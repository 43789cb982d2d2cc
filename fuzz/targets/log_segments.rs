//! Any bytes as the segments of a log: opening, replay, reading by place, and going on.
//!
//! The first byte says into how many files the rest is cut, and whether their checksums are made right first: as they
//! come, hardly any bytes get past a checksum.
#![no_main]

use crc32c::{crc32c, crc32c_append};
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Record};
use libfuzzer_sys::fuzz_target;

const HEADER_LEN: usize = 1024;
const RECORD_HEADER_LEN: usize = 24;

fuzz_target!(|input: &[u8]| {
    let Some((mode, bytes)) = input.split_first() else { return };
    let disk = FaultDisk::new();
    let count = usize::from(mode % 4) + 1;
    for file in bytes.chunks(bytes.len().div_ceil(count).max(1)) {
        let mut file = file.to_vec();
        if mode & 4 != 0 {
            put_right(&mut file);
        }
        let base = u64_at(&file, 24).unwrap_or(1);
        if base >> 48 != 0 {
            return; // no log gets that far
        }
        disk.put(&format!("{base:016x}.wal"), &file);
    }
    let Some((log, served)) = open(&disk) else { return };
    for (record, next) in served.iter().zip(served.iter().skip(1)) {
        assert!(record.sequence < next.sequence && record.place < next.place);
    }
    for record in &served {
        assert_eq!(&log.read(record.place).expect("what was served is read"), record);
    }
    let appended = log.append(7, (&b"a record"[..]).into(), Durability::Synced).wait().expect("append");
    assert!(served.iter().all(|record| record.sequence < appended.sequence), "a number is given twice");
    drop(log);
    let (_log, mut again) = open(&disk.crashed(0)).expect("opens again");
    let last = again.pop().expect("the record");
    assert_eq!((last.sequence, last.place), (appended.sequence, appended.place));
    assert_eq!(again, served);
});

/// Opens and replays; `None` if there is a segment of another version.
fn open(disk: &FaultDisk) -> Option<(Log, Vec<Record>)> {
    let config = LogConfig { segment_len: 4096, fill_len: 0, spares: 0, ..LogConfig::default() };
    let (log, recovery) = Log::open(disk.clone(), config).ok()?;
    assert_eq!(log.stats().next_sequence, recovery.next_sequence);
    let count = recovery.records;
    let records: Vec<Record> = recovery.collect::<Result<_, _>>().expect("replay");
    assert_eq!(records.len() as u64, count);
    Some((log, records))
}

/// Makes the header a header, and of what follows records.
fn put_right(file: &mut [u8]) {
    if file.len() < HEADER_LEN {
        return;
    }
    file[..12].copy_from_slice(b"gpuvlog\n\x01\0\0\0");
    file[30..32].fill(0);
    let crc = crc32c(&file[..40]);
    file[40..44].copy_from_slice(&crc.to_le_bytes());
    let seed = crc32c(&file[16..24]);
    let mut at = HEADER_LEN;
    while let Some(record) = file.get_mut(at..).filter(|record| record.len() >= RECORD_HEADER_LEN) {
        let room = record.len() - RECORD_HEADER_LEN;
        let len = u32::from_le_bytes([record[0], record[1], 0, 0]) % (u32::try_from(room).expect("small") + 1);
        record[..4].copy_from_slice(&len.to_le_bytes());
        let end = RECORD_HEADER_LEN + len as usize;
        let crc = crc32c_append(crc32c_append(seed, &record[..4]), &record[8..end]);
        record[4..8].copy_from_slice(&crc.to_le_bytes());
        at += end.next_multiple_of(8);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
