//! Machines to read: captured ones, and ones put together in a folder.

use std::path::{Path, PathBuf};

use gpuvitals_core::batch::Value;
use gpuvitals_core::{MetricId, catalogue};
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Probe, Reading, Row};

/// Every captured machine.
pub(crate) const CAPTURED: [&str; 15] = [
    "hd7870",
    "phoenix",
    "r7-240",
    "rx5500xt",
    "rx580",
    "rx6600xt",
    "rx6900xt",
    "rx7600s",
    "rx7800xt",
    "rx7900xtx",
    "rx9070xt",
    "strixpoint",
    "vangogh",
    "vega10",
    "vega56",
];

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs").join(name)
}

pub(crate) fn machine(sysfs: &Path) -> Machine {
    Machine {
        sysfs: sysfs.to_owned(),
        procfs: sysfs.join("no-proc"),
        dev: sysfs.join("no-dev"),
        node: "node1".into(),
    }
}

pub(crate) fn captured(name: &str) -> Machine {
    machine(&fixture(name))
}

/// The one GPU of a machine.
pub(crate) fn only_probe(machine: &Machine) -> Box<dyn Probe> {
    let mut probes = amd_sysfs::find(machine).probes;
    assert_eq!(probes.len(), 1, "{}", machine.sysfs.display());
    probes.remove(0)
}

/// First reading of the one GPU of a captured machine.
pub(crate) fn first_reading(name: &str) -> Reading {
    let mut reading = Reading::default();
    only_probe(&captured(name)).read(Due::ALL, &mut reading).unwrap();
    reading
}

pub(crate) fn id(column: &str) -> MetricId {
    catalogue::by_column(column).unwrap_or_else(|| panic!("no metric {column}"))
}

pub(crate) fn value(row: &Row, column: &str) -> Option<f64> {
    row.get(id(column)).map(Value::as_f64)
}
