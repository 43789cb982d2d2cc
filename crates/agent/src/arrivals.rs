//! Devices that come while the agent runs: a card that is plugged in, a driver that is loaded, a partition that is made.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;
use gpuvitals_sources::registry::{Discovery, Finding, Verdict};

use crate::node::Node;

/// Between two looks.
const PAUSE: Duration = Duration::from_mins(1);
/// Names of a folder that are compared at most.
const NAMES_MAX: usize = 4096;

/// The channel for process tables.
pub(crate) type Tables = SyncSender<Box<dyn ProcessTable>>;

/// A full discovery.
type Search = Box<dyn Fn() -> Discovery + Send>;

/// Looks for added devices. Full discovery may wake a driver, so it runs when a device node was added or
/// removed, while there is no GPU at all, or while an existing one has no name yet.
pub(crate) struct Arrivals {
    machine: Machine,
    search: Search,
    tables: Option<Tables>,
    /// Device nodes at the last check, and the findings of the last search.
    before: BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Arrivals {
    /// After a first search with these findings.
    pub(crate) fn new(
        machine: Machine,
        search: impl Fn() -> Discovery + Send + 'static,
        findings: Vec<Finding>,
        tables: Option<Tables>,
    ) -> Self {
        Self { before: device_nodes(&machine), machine, search: Box::new(search), tables, findings }
    }

    /// Checks until the other end of `stop` is dropped.
    pub(crate) fn watch(mut self, node: &Node, stop: &Receiver<()>) {
        while stop.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            self.look(node);
        }
    }

    fn look(&mut self, node: &Node) {
        let now = device_nodes(&self.machine);
        let is_broken = self.findings.iter().any(|finding| finding.verdict == Verdict::Broken);
        if now == self.before && node.gpus() > 0 && !is_broken {
            return;
        }
        self.before = now;
        let found = (self.search)();
        let processes = found.process_probes();
        self.findings = found.findings;
        let added = node.add(found.probes).and_then(|devices| {
            if devices > 0 {
                node.add(processes)?;
            }
            Ok(devices)
        });
        match added {
            Ok(0) => {}
            Ok(devices) => {
                tracing::info!(devices, "new devices are sampled");
                // A table knows the GPUs that were there when it was made.
                for table in found.processes {
                    // A follower that has no place for one more has enough.
                    let _taken = self.tables.as_ref().map(|tables| tables.try_send(table));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvitals_core::catalogue::Series;
    use gpuvitals_exposition::{Compat, ExpositionConfig};
    use gpuvitals_sources::attribution::Owners;
    use gpuvitals_sources::probe::Driver;
    use gpuvitals_sources::registry::{discover, no_simulation};
    use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
    use serde_json::json;

    use super::*;
    use gpuvitals_rig::faulty_sysfs::FaultySysfs;

    /// Cards, each with an address of its own.
    fn cards(numbers: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for number in numbers {
            let device = root.path().join(format!("class/drm/card{number}/device"));
            std::fs::create_dir_all(&device).unwrap();
            let uevent = format!("DRIVER=amdgpu\nPCI_ID=1002:73BF\nPCI_SLOT_NAME=0000:0{number}:00.0\n");
            std::fs::write(device.join("uevent"), uevent).unwrap();
        }
        root
    }

    #[test]
    fn a_place_belongs_to_one_gpu_for_good() {
        let root = cards(&[0, 1, 2, 3]);
        let Some(mut sysfs) = FaultySysfs::over(root.path()) else { return };
        let card = |number: u8| format!("/class/drm/card{number}");
        sysfs.tell(json!({"unplug": [card(1), card(3)]}));
        let machine = Machine { sysfs: sysfs.path().to_owned(), ..Machine::local("n1") };
        let search = {
            let machine = machine.clone();
            move || discover(&machine, &[Driver::AmdSysfs], no_simulation)
        };
        let found = search();
        let sampler = Sampler::start(found.probes, SamplerConfig::default(), Owners::new()).unwrap();
        let window = Duration::from_secs(30);
        let config =
            ExpositionConfig { set: Series::Basic, compat: Compat::Off, window, interval: Duration::ZERO };
        let node = Node::new(sampler, config);
        let mut arrivals = Arrivals::new(machine, search, found.findings, None);
        let places = || -> Vec<(String, Option<i32>)> {
            let states = node.sampler().states();
            // The host has no key.
            let place = |id: &gpuvitals_core::Identity| Some((id.key()?.to_string(), id.index));
            states.iter().filter_map(|state| place(&state.identity)).collect()
        };
        let at = |number: u8, place| (format!("0000:0{number}:00.0@n1"), Some(place));
        assert_eq!(places(), [at(0, 0), at(2, 1)]);
        sysfs.tell(json!({"plug": [card(1)]}));
        arrivals.look(&node);
        assert_eq!(places(), [at(0, 0), at(2, 1), at(1, 2)]);
        // One is removed, one is added: the index stays free for the first one's return.
        sysfs.tell(json!({"unplug": [card(0)]}));
        sysfs.tell(json!({"plug": [card(3)]}));
        arrivals.look(&node);
        sysfs.tell(json!({"plug": [card(0)]}));
        arrivals.look(&node);
        assert_eq!(places(), [at(0, 0), at(2, 1), at(1, 2), at(3, 3)]);
    }
}
