//! The directory of a log: whose it is, who may read it, and what becomes of a log whose directory is gone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::bench::{append, open_with, payload, tiny};
use gpuvitals_log::{DISPLACED, DirectoryLock, Durability, FsDisk, LogError};

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
        let synced = log.append(1, payload(2), Durability::Synced).wait();
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
