//! A `libnvidia-ml.so` of our own, compiled once, with a copy for each test: each file is loaded as another
//! library with a state of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, Identity, MetricId};
use gpuvitals_sources::dialect::nvml;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, ProbeError, Reading, Row};
use gpuvitals_sources::registry::Discovery;

/// Of which age the driver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Old,
}

static NEW: LazyLock<tempfile::TempDir> = LazyLock::new(|| compiled(&[]));
static OLD: LazyLock<tempfile::TempDir> = LazyLock::new(|| compiled(&["-DOLD"]));

fn compiled(flags: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/stub.c");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let made = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(dir.path().join("libnvidia-ml.so"))
        .args(flags)
        .arg(source)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// The imitation of one test.
pub(crate) struct Stub {
    dir: tempfile::TempDir,
}

impl Stub {
    pub(crate) fn new(age: Age) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let from = if age == Age::New { &NEW } else { &OLD };
        std::fs::copy(from.path().join("libnvidia-ml.so"), dir.path().join("libnvidia-ml.so")).unwrap();
        Self { dir }
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so")
    }

    /// Sets the behaviour of the library from now on.
    pub(crate) fn set(&self, lines: &[&str]) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, lines.join("\n") + "\n").unwrap();
        std::fs::rename(new, self.dir.path().join("libnvidia-ml.so.state")).unwrap();
    }

    /// How often each call came since this was asked before: `function gpu` and the count.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        let path = self.dir.path().join("libnvidia-ml.so.calls");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, "").unwrap();
        let mut calls = BTreeMap::new();
        for line in text.lines() {
            *calls.entry(line.to_owned()).or_default() += 1;
        }
        calls
    }

    /// The kernel module has a GPU at this address.
    pub(crate) fn kernel_has(&self, pci: &str) {
        std::fs::create_dir_all(self.dir.path().join("proc/driver/nvidia/gpus").join(pci)).unwrap();
    }

    /// A machine with the library's GPUs only.
    pub(crate) fn machine(&self) -> Machine {
        let root = self.dir.path();
        Machine {
            sysfs: root.join("sys"),
            procfs: root.join("proc"),
            dev: root.join("dev"),
            node: Arc::from("n1"),
        }
    }

    pub(crate) fn find(&self) -> Discovery {
        self.find_within(Duration::from_mins(1))
    }

    pub(crate) fn find_within(&self, patience: Duration) -> Discovery {
        nvml::find_by(&self.machine(), &self.library(), patience)
    }
}

/// One row, by column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) identity: Arc<Identity>,
    pub(crate) values: BTreeMap<&'static str, f64>,
    pub(crate) absences: BTreeMap<&'static str, AbsenceReason>,
    pub(crate) down: Option<AbsenceReason>,
}

impl Said {
    fn of(row: &Row) -> Self {
        let column = |metric: &MetricId| metric.metric().column;
        Self {
            identity: Arc::clone(row.identity()),
            values: row
                .values()
                .iter()
                .map(|(metric, value)| (column(metric), Value::as_f64(*value)))
                .collect(),
            absences: row.absences().iter().map(|(metric, reason)| (column(metric), *reason)).collect(),
            down: row.is_down().map(|(reason, _)| reason),
        }
    }

    pub(crate) fn value(&self, column: &str) -> Option<f64> {
        self.values.get(column).copied()
    }

    pub(crate) fn absence(&self, column: &str) -> Option<AbsenceReason> {
        self.absences.get(column).copied()
    }
}

/// One reading of a probe.
pub(crate) fn read(probe: &mut Box<dyn Probe>, due: Due) -> Result<Vec<Said>, ProbeError> {
    let mut reading = Reading::default();
    let result = probe.read(due, &mut reading);
    result.map(|()| reading.rows().iter().map(Said::of).collect())
}
