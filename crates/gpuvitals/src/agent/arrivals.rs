//! Devices that come while the agent runs: a card that is plugged in, a driver that is loaded, a partition that is made.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::processes::ProcessTable;
use gpuvitals_sources::registry::{self, Finding, Verdict};

use super::node::Node;

/// Between two looks.
const PAUSE: Duration = Duration::from_mins(1);
/// Names of a folder that are compared at most.
const NAMES_MAX: usize = 4096;

/// What can list processes goes this way.
pub(crate) type Tables = SyncSender<Box<dyn ProcessTable>>;

/// Looks for devices until the other end of `stop` is gone. Discovery proper may wake a driver, so it is done when a device node
/// came or went, while there is no GPU at all, or while one that is there could not be named (`findings`: the last search's).
pub(crate) fn watch(
    node: &Node,
    machine: &Machine,
    forced: &[Driver],
    mut findings: Vec<Finding>,
    tables: Option<&Tables>,
    stop: &Receiver<()>,
) {
    let mut before = device_nodes(machine);
    while stop.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let now = device_nodes(machine);
        let is_broken = findings.iter().any(|finding| finding.verdict == Verdict::Broken);
        if now == before && node.gpus() > 0 && !is_broken {
            continue;
        }
        before = now;
        let found = registry::discover(machine, forced);
        findings = found.findings;
        match node.add(found.probes) {
            Ok(0) => {}
            Ok(devices) => {
                tracing::info!(devices, "new devices are sampled");
                // A table knows the GPUs that were there when it was made.
                for table in found.processes {
                    // A follower that has no place for one more has enough.
                    let _taken = tables.map(|tables| tables.try_send(table));
                }
            }
            Err(error) => tracing::error!(error = causes(&error), "a new device is not sampled"),
        }
    }
}

fn device_nodes(machine: &Machine) -> BTreeSet<String> {
    let folders = [
        machine.sysfs.join("class/drm"),
        machine.sysfs.join("bus/pci/drivers/amdgpu"),
        machine.sysfs.join("bus/pci/drivers/nvidia"),
        machine.procfs.join("driver/nvidia/gpus"),
        machine.procfs.join("driver/nvidia/capabilities/mig"),
    ];
    folders.iter().flat_map(|folder| names_in(folder)).collect()
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(NAMES_MAX);
    entries.map(|entry| entry.path().to_string_lossy().into_owned())
}
