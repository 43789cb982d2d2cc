//! The bench the log is tested on: small logs on a disk that can fail.

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{
    Appended, CommitOn, Disk, Durability, Log, LogConfig, LogError, Record, Recovery, Ticket,
};
use gpuvitals_rig::waiting::{received, within};

/// Small enough that a few records roll a segment.
pub(crate) fn tiny() -> LogConfig {
    LogConfig {
        segment_len: 4096,
        fill_len: 600,
        spares: 0,
        group_len_max: 2048,
        queue_len_max: 8192,
        queue_records_max: 64,
    }
}

pub(crate) fn open(disk: &FaultDisk) -> (Log, Recovery) {
    open_with(disk.clone(), tiny())
}

pub(crate) fn open_with(disk: impl Disk, config: LogConfig) -> (Log, Recovery) {
    Log::open(disk, config).expect("open")
}

/// A payload that is recognisable and of a length that depends on its number.
pub(crate) fn payload(number: u64) -> Bytes {
    let len = 1 + usize::try_from(number * 37 % 300).expect("small");
    number.to_le_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>().into()
}

/// What comes of an append.
pub(crate) fn outcome_of(ticket: Ticket) -> Result<Appended, LogError> {
    within("the outcome of an append", move || ticket.wait())
}

/// The same for one that does not fail.
pub(crate) fn success_of(ticket: Ticket) -> Appended {
    outcome_of(ticket).expect("append")
}

/// Appends until it is so; the next number.
pub(crate) fn append_until(log: &Log, what: &str, first: u64, is_so: impl Fn() -> bool) -> u64 {
    let mut number = first;
    while !is_so() {
        assert!(number - first < 10_000, "{what} never came");
        append(log, number);
        number += 1;
    }
    number
}

pub(crate) fn append(log: &Log, number: u64) -> u64 {
    success_of(log.append(1, payload(number), Durability::Synced)).sequence
}

/// Appends numbers, and returns their places.
pub(crate) fn append_all(log: &Log, numbers: std::ops::RangeInclusive<u64>) -> Vec<Appended> {
    let tickets: Vec<_> = numbers.map(|number| log.append(9, payload(number), Durability::Synced)).collect();
    tickets.into_iter().map(success_of).collect()
}

pub(crate) fn records(recovery: Recovery) -> Vec<Record> {
    recovery.collect::<Result<_, _>>().expect("replay")
}

/// The surviving records, after opening and closing.
pub(crate) fn reread(disk: &FaultDisk) -> Vec<Record> {
    let (log, recovery) = open(disk);
    let records = records(recovery);
    log.close().expect("close");
    records
}

/// The records' sequences.
pub(crate) fn sequences(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.sequence).collect()
}

/// Files with this extension.
pub(crate) fn files(disk: &FaultDisk, extension: &str) -> Vec<String> {
    let mut names = disk.names();
    names.retain(|name| name.rsplit_once('.').is_some_and(|(_, found)| found == extension));
    names
}

/// Appends on this thread if nothing speaks against it, and waits for the outcome.
pub(crate) fn commit_here(
    log: &Log,
    kind: u8,
    payload: Bytes,
    durability: Durability,
) -> Result<Appended, LogError> {
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    log.enqueue_with(
        kind,
        [payload, Bytes::new()],
        None,
        durability,
        Box::new(move |result| drop(done.send(result))),
    );
    log.commit(CommitOn::Caller);
    received("an answer", &outcome)
}
