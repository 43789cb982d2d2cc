//! The library of the rig as the GPUs of a machine, and what is read of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, Identity, MetricId};
use gpuvitals_rig::library::Library;
use gpuvitals_sources::dialect::nvml;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, ProbeError, Reading, Row};
use gpuvitals_sources::registry::Discovery;

/// The library of one test, on a machine that has nothing else.
pub(crate) struct Stub(Library);

impl Deref for Stub {
    type Target = Library;

    fn deref(&self) -> &Library {
        &self.0
    }
}

impl Stub {
    pub(crate) fn new() -> Self {
        Self(Library::new())
    }

    /// Of a driver of 2016.
    pub(crate) fn old() -> Self {
        Self(Library::old())
    }

    fn root(&self) -> PathBuf {
        self.path().with_file_name("")
    }

    /// The kernel module has a GPU at this address.
    pub(crate) fn kernel_has(&self, pci: &str) {
        std::fs::create_dir_all(self.root().join("proc/driver/nvidia/gpus").join(pci)).unwrap();
    }

    /// A machine with the library's GPUs only.
    pub(crate) fn machine(&self) -> Machine {
        let root = self.root();
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
        nvml::find_by(&self.machine(), &self.path(), patience)
    }
}

/// One row, by column.
#[derive(Debug, Clone, Default)]
pub(crate) struct SaidRow {
    pub(crate) identity: Arc<Identity>,
    pub(crate) values: BTreeMap<&'static str, f64>,
    pub(crate) absences: BTreeMap<&'static str, AbsenceReason>,
    pub(crate) down: Option<AbsenceReason>,
}

impl SaidRow {
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
pub(crate) fn read(probe: &mut Box<dyn Probe>, due: Due) -> Result<Vec<SaidRow>, ProbeError> {
    let mut reading = Reading::default();
    let result = probe.read(due, &mut reading);
    result.map(|()| reading.rows().iter().map(SaidRow::of).collect())
}
