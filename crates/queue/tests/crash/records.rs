//! The records of a queue's log, as they lie on a disk that nobody uses.

use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Log, LogConfig, Record};

/// A record that is a part of a checkpoint.
pub(crate) const CHECKPOINT: u8 = 4;

pub(crate) fn records(disk: &FaultDisk) -> Vec<Record> {
    let copy = disk.crashed(0);
    let (_log, recovery) = Log::open(copy, LogConfig { spares: 0, ..LogConfig::default() }).unwrap();
    recovery.map(Result::unwrap).collect()
}

/// From now on a bit of a record's payload reads wrongly.
pub(crate) fn turn_a_bit(disk: &FaultDisk, record: &Record, chance: u64) {
    let name = format!("{:016x}.wal", record.place.segment());
    let bytes = disk.contents(&name).unwrap();
    let found = bytes.windows(record.payload.len()).position(|window| window == record.payload);
    let at = usize::try_from(chance / 8).unwrap() % record.payload.len();
    disk.flip_on_read(&name, found.expect("the record") + at, 1 << (chance % 8));
}
