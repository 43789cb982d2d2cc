//! Section `attribution`: which sources tell the owners of the GPUs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_sources::attribution::kubelet::SOCKET;
use gpuvitals_sources::attribution::slurm::Slurm;
use gpuvitals_sources::attribution::{Asking, OwnerSources, Ownership};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;

use crate::config::{Switch, settings};
use crate::failure::Failure;

settings! {
    /// Pod, namespace, container and job that hold the GPUs
    pub(crate) struct Attribution = "attribution" {
        /// The kubelet's socket: auto (if its directory exists), off, or a path
        pod_resources: String = "auto";
        /// Look for jobs of Slurm on the GPUs: auto (if it has cgroups), true, false
        slurm: Switch = "auto";
    }
}

impl Attribution {
    /// Asks the sources of this machine until the answer is dropped.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn ask(
        &self,
        ownership: &Arc<Ownership>,
        machine: &Machine,
        processes: Vec<Box<dyn ProcessTable>>,
    ) -> Result<Asking, Failure> {
        let asked = ownership.ask(self.sources(machine), machine, processes);
        asked.map_err(|e| Failure::io("cannot ask for the owners of the GPUs", e))
    }

    /// The sources to ask on this machine.
    fn sources(&self, machine: &Machine) -> OwnerSources {
        let has_jobs = match self.slurm {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => Slurm::runs_on(machine),
        };
        let slurm = has_jobs.then(|| Slurm::new(&machine.procfs));
        OwnerSources { kubelet: self.kubelet_socket(machine), slurm }
    }

    /// The socket as set, or the usual one if its folder is there. A captured tree has none: this machine's kubelet would
    /// answer for another.
    fn kubelet_socket(&self, machine: &Machine) -> Option<PathBuf> {
        match self.pod_resources.as_str() {
            "off" | "false" | "" => None,
            "auto" => {
                let socket = PathBuf::from(SOCKET);
                let has_folder = socket.parent().is_some_and(Path::is_dir);
                (has_folder && !machine.is_captured()).then_some(socket)
            }
            path => Some(PathBuf::from(path)),
        }
    }
}
