//! Files that version 1 wrote are read for ever. They were written once, by `write_the_files`, and never again: a
//! change that breaks this test breaks the users' files.

use std::path::Path;

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Disk, Durability, LogConfig};

use crate::bench::{append, open, open_with, outcome_of, records, success_of};

const NAMES: [&str; 3] = ["0000000000000001.wal", "0000000000000006.wal", "000000000000000b.wal"];

/// Sequence, kind and payload.
fn wanted() -> Vec<(u64, u8, Bytes)> {
    let payload = |sequence: u64| match sequence {
        3 => Bytes::new(),
        8 => (0..=255).collect::<Vec<u8>>().into(),
        _ => Bytes::from(format!("record {sequence} of version 1")),
    };
    (1..=12)
        .map(|sequence| (sequence, u8::try_from(sequence * 20).expect("small"), payload(sequence)))
        .collect()
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

#[test]
fn files_of_version_1_are_read() {
    let disk = FaultDisk::new();
    for name in NAMES {
        disk.put(name, &std::fs::read(fixtures().join(name)).expect("fixture"));
    }
    let (log, recovery) = open(&disk);
    assert_eq!((&recovery.damage[..], &recovery.ignored[..]), (&[][..], &[][..]));
    // The last file ends in the middle of record 13.
    let torn = recovery.torn.clone().expect("torn");
    assert_eq!((torn.segment.as_str(), torn.intact), (NAMES[2], 0));
    let found: Vec<_> = records(recovery).into_iter().map(|r| (r.sequence, r.kind, r.payload)).collect();
    assert_eq!(found, wanted());
    assert!(append(&log, 14) >= 14);
}

/// How the files were made: three openings, then a crash. Run once; its output is committed.
#[test]
#[ignore = "writes the fixtures of the current version"]
fn write_the_files() {
    let disk = FaultDisk::new();
    for part in wanted().chunks(5) {
        let (log, _) = open_with(disk.clone(), LogConfig { fill_len: 0, ..LogConfig::default() });
        for (sequence, kind, payload) in part {
            let appended = outcome_of(log.append(*kind, payload.clone(), Durability::Synced));
            assert_eq!(appended.expect("append").sequence, *sequence);
        }
        if part.len() < 5 {
            success_of(log.append(1, vec![13; 600].into(), Durability::Written));
        }
        log.close().expect("close");
    }
    assert_eq!(disk.list().expect("list"), NAMES);
    std::fs::create_dir_all(fixtures()).expect("directory");
    for name in NAMES {
        let mut bytes = disk.contents(name).expect("file");
        if name == NAMES[2] {
            bytes.truncate(bytes.len() - 300);
        }
        std::fs::write(fixtures().join(name), bytes).expect("write");
    }
}
