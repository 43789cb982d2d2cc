//! The directory of a log: whose it is, who may read it, and what becomes of a log whose directory is gone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use crate::bench::{append, append_until, open_with, outcome_of, payload, records, sequences, tiny};
use gpuvitals_log::{
    DISPLACED, DirectoryLock, Durability, FsDisk, Log, LogError, read_beside, read_beside_from,
};
use gpuvitals_rig::waiting::received;

#[test]
fn a_log_whose_directory_is_not_in_its_place_answers_nothing_as_synced() {
    let cases: [fn(&Path); 4] = [
        |path| std::fs::rename(path, path.with_extension("moved")).expect("rename"),
        |path| std::fs::remove_dir_all(path).expect("remove"),
        |path| std::fs::remove_file(path.join("LOCK")).expect("remove"),
        |path| {
            std::fs::rename(path, path.with_extension("moved")).expect("rename");
            std::fs::create_dir(path).expect("another one");
        },
    ];
    for displace in cases {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("log");
        let lock = Arc::new(DirectoryLock::take(&path).expect("lock"));
        let (log, _) = open_with(FsDisk::under(&lock, &path).expect("disk"), tiny());
        assert_eq!(append(&log, 1), 1);
        displace(&path);
        let synced = outcome_of(log.append(1, payload(2), Durability::Synced));
        let Err(LogError::Poisoned { source, .. }) = synced else { panic!("{synced:?}") };
        assert!(source.to_string().ends_with(DISPLACED), "{source}");
    }
}

#[test]
fn what_is_made_is_nobody_elses_to_read() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a/b");
    let lock = Arc::new(DirectoryLock::take(&path).expect("lock"));
    let (log, _) = open_with(FsDisk::under(&lock, &path).expect("disk"), tiny());
    append(&log, 1);
    let mode = |path: &Path| std::fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!([mode(&directory.path().join("a")), mode(&path)], [0o700; 2]);
    let files = std::fs::read_dir(&path).expect("files").map(|file| mode(&file.expect("file").path()));
    assert!(files.collect::<Vec<_>>().iter().all(|mode| *mode == 0o600));
}

#[test]
fn a_log_whose_segment_was_removed_or_cut_answers_nothing_as_synced() {
    let cases: [fn(&Path); 4] = [
        |segment| std::fs::remove_file(segment).expect("remove"),
        |segment| std::fs::write(segment, b"").expect("empty"),
        |segment| {
            let file = std::fs::OpenOptions::new().write(true).open(segment).expect("open");
            file.set_len(40).expect("cut");
        },
        |segment| {
            std::fs::write(segment.with_extension("copy"), b"x").expect("write");
            std::fs::rename(segment.with_extension("copy"), segment).expect("replace");
        },
    ];
    for displace in cases {
        let (directory, log) = opened();
        append(&log, 1);
        displace(segments(directory.path()).last().expect("a segment"));
        let synced = outcome_of(log.append(1, payload(2), Durability::Synced));
        let Err(LogError::Poisoned { source, .. }) = synced else { panic!("{synced:?}") };
        assert!(source.to_string().ends_with(DISPLACED), "{source}");
    }
}

#[test]
fn a_look_finds_any_segment_that_is_not_in_its_place() {
    for oldest in [true, false] {
        let (directory, log) = opened();
        append_until(&log, "a third segment", 1, || log.stats().segments >= 3);
        assert!(look(&log).is_ok());
        let segments = segments(directory.path());
        let segment = if oldest { segments.first() } else { segments.last() }.expect("a segment");
        std::fs::rename(segment, segment.with_extension("away")).expect("rename");
        let Err(LogError::Poisoned { source, .. }) = look(&log) else { panic!("it is not missed") };
        assert!(source.to_string().ends_with(DISPLACED), "{source}");
    }
}

#[test]
fn a_look_finds_a_segment_that_was_copied_back_or_is_not_whole() {
    fn copied_back(segment: &Path) {
        std::fs::rename(segment, segment.with_extension("away")).expect("rename");
        std::fs::copy(segment.with_extension("away"), segment).expect("copy");
    }
    fn cut(segment: &Path) {
        std::fs::OpenOptions::new().write(true).open(segment).and_then(|file| file.set_len(40)).expect("cut");
    }
    let displacements: [fn(&Path); 3] = [cut, cut, copied_back];
    for (place, displace) in displacements.into_iter().enumerate() {
        let (directory, log) = opened();
        append_until(&log, "a third segment", 1, || log.stats().segments >= 3);
        displace(&segments(directory.path())[place]);
        let found = (0..2).find_map(|_| look(&log).err()).expect("it is missed");
        let LogError::Poisoned { source, .. } = &found else { panic!("{found:?}") };
        assert!(source.to_string().ends_with(DISPLACED), "{source}");
    }
}

#[test]
fn the_end_of_a_segment_is_noted_with_its_first_sync() {
    let directory = tempfile::tempdir().expect("directory");
    let lock = Arc::new(DirectoryLock::take(directory.path()).expect("lock"));
    let (log, _) = open_with(FsDisk::under(&lock, directory.path()).expect("disk"), tiny());
    for segments in 1..4 {
        append_until(&log, "another segment", 1, || log.stats().segments >= segments);
        assert_eq!(lock.noted_end(), log.stats().next_sequence, "in segment {segments}");
    }
    append(&log, 1);
    look(&log).expect("a look");
    assert_eq!(lock.noted_end(), log.stats().next_sequence, "at each look");
    append(&log, 1);
    log.close().expect("an end");
    assert_eq!(lock.noted_end(), log.stats().next_sequence, "at the end");
}

#[test]
fn a_reader_beside_a_writer_has_what_was_there_when_it_began() {
    let (directory, log) = opened();
    let next = append_until(&log, "a third segment", 1, || log.stats().segments >= 3);
    let found = read_beside(directory.path()).expect("a look");
    // In the segment that it has not read again yet, and in those after it.
    append_until(&log, "a fifth segment", next, || log.stats().segments >= 5);
    assert_eq!(sequences(&records(found)), (1..next).collect::<Vec<_>>());
}

#[test]
fn who_has_read_a_segment_reads_from_the_last_one_on() {
    let (directory, log) = opened();
    let next = append_until(&log, "a third segment", 1, || log.stats().segments >= 3);
    let last = log.segments().pop().expect("a segment");
    let next = append_until(&log, "a fourth segment", next, || log.stats().segments >= 4);
    let found = read_beside_from(directory.path(), last.base).expect("a look");
    assert_eq!(sequences(&records(found)), (last.base..next).collect::<Vec<_>>());
}

fn opened() -> (tempfile::TempDir, Log) {
    let directory = tempfile::tempdir().expect("directory");
    let lock = Arc::new(DirectoryLock::take(directory.path()).expect("lock"));
    let (log, _) = open_with(FsDisk::under(&lock, directory.path()).expect("disk"), tiny());
    (directory, log)
}

fn look(log: &Log) -> Result<u64, LogError> {
    let (answer, outcome) = mpsc::sync_channel(1);
    log.check_with(Box::new(move |looked| drop(answer.send(looked))));
    received("what it sees", &outcome)
}

/// The files of the segments in order.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).expect("files").map(|file| file.expect("file").path());
    let mut segments: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "wal")).collect();
    segments.sort();
    segments
}
