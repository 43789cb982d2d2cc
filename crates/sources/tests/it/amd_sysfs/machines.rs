//! Machines to read: captured ones, and ones put together in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, MetricId, catalogue};
use gpuvitals_rig::tree;
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

pub(crate) fn absence(row: &Row, column: &str) -> Option<AbsenceReason> {
    row.absences().iter().find(|(metric, _)| *metric == id(column)).map(|(_, reason)| *reason)
}

/// Writes a file of a device, with the folders it needs.
pub(crate) fn write(device: &Path, file: &str, content: impl AsRef<[u8]>) {
    let path = device.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A copy of a captured machine that may be changed.
pub(crate) fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tree::copy(&fixture(name), dir.path());
    dir
}

/// A machine whose GPUs are linked by xGMI as those of the captured one are; the third has no links in the capture.
pub(crate) fn linked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tree::copy(&fixture("../kfd-topology/mi210"), &dir.path().join("class/kfd/kfd/topology"));
    for (card, (bus, numa)) in [("63", "0"), ("43", "1"), ("03", "-1")].into_iter().enumerate() {
        let device = dir.path().join(format!("class/drm/card{card}/device"));
        write(&device, "vendor", "0x1002\n");
        write(&device, "uevent", format!("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{bus}:00.0\n"));
        write(&device, "gpu_busy_percent", "7\n");
        write(&device, "numa_node", format!("{numa}\n"));
    }
    dir
}

/// A `gpu_metrics` table by the kernel's layout: all ones, but for the header and the fields given as offset, width in
/// bytes, value.
pub(crate) fn table(size: u16, format: u8, content: u8, fields: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0xff; size.into()];
    bytes[..2].copy_from_slice(&size.to_le_bytes());
    (bytes[2], bytes[3]) = (format, content);
    for &(offset, width, value) in fields {
        bytes[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    bytes
}
