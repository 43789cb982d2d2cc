//! A disk that fails a sync of the store's log: the process ends with 74 and says what to do; its next start has every row
//! that was acknowledged.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use serde_json::Value;

use crate::losses::Pipeline;
use crate::process::{start_with, stored, until};

/// Makes syncs fail while a file is there.
struct FailingDisk {
    library: PathBuf,
    flag: PathBuf,
}

impl FailingDisk {
    fn new(folder: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/streaming/failing_disk.c");
        let library = folder.join("failing_disk.so");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let made = Command::new(compiler)
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source)
            .finished()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        Self { library, flag: folder.join("fails") }
    }

    fn environment(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", self.library.to_str().unwrap()), ("FAIL_SYNC_WHILE", self.flag.to_str().unwrap())]
    }

    fn fails(&self) {
        std::fs::write(&self.flag, b"").unwrap();
    }

    fn works(&self) {
        std::fs::remove_file(&self.flag).unwrap();
    }
}

/// The process ended by itself as it should.
fn assert_failed(process: Process, data: &Path) {
    let (code, said) = process.ended();
    assert_eq!(code, Some(74), "{said}");
    let last = said.lines().rfind(|line| !line.starts_with('{')).unwrap();
    for words in [
        "gpuvitals: the collector can store nothing more in ",
        data.to_str().unwrap(),
        "Input/output error",
        "check the disk ",
        "(mounted at /",
        "then start again: acknowledged data is safe",
    ] {
        assert!(last.contains(words), "{words:?} is not in {last}");
    }
}

/// Counts samples that can be seen; these are synced. Counts of all rows have events, details and sums of use as well.
const SAMPLES: &str = "/api/v1/telemetry?limit=1&metrics=power_w";

#[test]
fn up_ends_when_a_sync_of_its_log_fails_and_recovers_at_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, data) = (FailingDisk::new(folder.path()), folder.path().join("data"));
    let port = Port::new();
    let arguments =
        ["up", "--port", &port, "--source", "simulated", "--gpus", "8", "--data-dir", data.to_str().unwrap()];
    let start = || {
        let ports = [("GPUVITALS_BROKER_PORT", "0")];
        start_with(&arguments, &[&ports[..], &disk.environment()[..]].concat())
    };
    let samples = |page: &Value| page["total"].as_u64().unwrap_or(0);
    let up = start();
    let seen = samples(&until(&port, SAMPLES, "samples", |page| samples(page) > 0));
    disk.fails();
    assert_failed(up, &data);
    disk.works();
    assert!(stored(&data).len() as u64 >= seen, "what was seen is there");
    let up = start();
    until(&port, SAMPLES, "more samples", |page| samples(page) > seen);
    let (code, said) = up.terminated();
    assert_eq!(code, Some(0), "{said}");
    assert!(stored(&data).len() as u64 > seen);
}

#[test]
fn a_collector_ends_when_a_sync_of_its_log_fails_and_the_next_one_has_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, data) = (FailingDisk::new(folder.path()), folder.path().join("data"));
    let mut pipeline = Pipeline::new("2", &data);
    let collector = pipeline.collector_with(&disk.environment());
    pipeline.publish();
    pipeline.until_empty();
    disk.fails();
    pipeline.publish();
    assert_failed(collector, &data);
    disk.works();
    let collector = pipeline.collector_with(&disk.environment());
    pipeline.check(collector);
}

#[test]
fn a_collector_whose_directory_is_moved_or_removed_ends_with_74_though_no_rows_come() {
    let cases: [fn(&Path); 2] = [
        |path| std::fs::rename(path, path.with_extension("moved")).unwrap(),
        |path| std::fs::remove_dir_all(path).unwrap(),
    ];
    for displace in cases {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut pipeline = Pipeline::new("2", &data);
        let collector = pipeline.collector_with(&[]);
        pipeline.publish();
        pipeline.until_empty();
        displace(&data);
        let (code, said) = collector.ended();
        assert_eq!(code, Some(74), "{said}");
        let last = said.lines().rfind(|line| !line.starts_with('{')).unwrap();
        assert!(last.contains("was removed, moved or replaced while it was open"), "{last}");
        assert!(!data.exists(), "it makes nothing anew");
    }
}

#[test]
fn what_a_collector_keeps_is_nobody_elses_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut pipeline = Pipeline::new("2", &data);
    let collector = pipeline.collector_with(&[]);
    pipeline.publish();
    pipeline.until_empty();
    assert_eq!(collector.terminated().0, Some(0));
    let mut folders = vec![data];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{folder:?}");
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let facts = entry.metadata().unwrap();
            if facts.is_dir() {
                folders.push(entry.path());
            } else {
                assert_eq!(facts.permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
                files += 1;
            }
        }
    }
    assert!(files > 3, "lock, log, list, fleet and rows");
}
