//! Sections `sampling` and `attribution` of the configuration: how this machine is read, and who tells the owners of
//! its GPUs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::identity::host_id;
use gpuvitals_core::{Identity, IdentityColumn, Origin, clock};
use gpuvitals_settings::{Notation, PossibleValue, Refusal, Switch, Typed, Value, settings, text};

use crate::attribution::kubelet::SOCKET;
use crate::attribution::slurm::Slurm;
use crate::attribution::{Asking, OwnerSources, Ownership};
use crate::discovery::Discovery;
use crate::driver::Driver;
use crate::machine::Machine;
use crate::processes::ProcessTable;
use crate::registry::{self, Find};
use crate::sampler::SamplerConfig;

settings! {
    /// How GPUs and host are read
    pub struct Sampling = "sampling", check Self::check {
        /// Read GPUs this way only; may be given several times. Without it: the cheapest that works
        pub drivers: Vec<Driver> = [], flag "--driver DRIVER";
        /// Samples of a GPU a second, up to 1000
        pub rate: f64 = 1.0, from 0.0003 to 1000, flag "--rate HZ";
        /// Samples of the host a second
        pub system_rate: f64 = 1.0, from 0.0003 to 1000, flag "--system-rate HZ";
        /// Read each CPU of the host by itself, too (up to 4,096)
        pub per_core: bool = false;
        /// Time between two readings of expensive values: fans, links, encoders
        slow_interval: Duration = "1s", from "100ms";
        /// Time between two readings of the most expensive values: ECC, pages, limits
        rare_interval: Duration = "30s", from "100ms";
        /// Directory in place of /sys: a captured tree
        sysfs: PathBuf = "/sys", flag "--sysfs DIR";
        /// Directory in place of /proc
        procfs: PathBuf = "/proc", flag "--procfs DIR";
        /// Directory in place of /dev
        dev: PathBuf = "/dev", flag "--dev DIR";
        /// Name of this host in every row; empty: NODE_NAME, or the host name
        node: String = "", flag "--node NAME";
        /// Name of the cluster in every row that is sampled; empty: none
        cluster: Option<Arc<str>> = "", flag "--cluster NAME";
    }
}

impl Sampling {
    /// The machine to read.
    ///
    /// # Errors
    /// When a directory that was asked for is not there.
    pub fn machine(&self) -> Result<Machine, NoDirectory> {
        for (setting, path) in [("sampling.sysfs", &self.sysfs), ("sampling.procfs", &self.procfs)] {
            if !path.is_dir() {
                return Err(NoDirectory { setting, path: path.clone() });
            }
        }
        Ok(Machine {
            sysfs: self.sysfs.clone(),
            procfs: self.procfs.clone(),
            dev: self.dev.clone(),
            node: self.node().into(),
        })
    }

    /// Name of the host: as set, from Kubernetes, or from the kernel.
    pub fn node(&self) -> String {
        let given = Some(self.node.clone()).filter(|name| !name.is_empty());
        let node_name = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
        let host = || {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            Some(name.trim().to_owned()).filter(|name| !name.is_empty())
        };
        given.or_else(node_name).or_else(host).unwrap_or_else(|| "localhost".to_owned())
    }

    /// The host as rows know it: `cluster/node`, or its name alone.
    pub fn host(&self) -> Arc<str> {
        host_id(self.cluster.as_deref(), &self.node())
    }

    /// Refuses a cluster that cannot be in a row.
    fn check(&self) -> Result<(), Refusal> {
        let named =
            Identity::default().with(IdentityColumn::Cluster, self.cluster.as_deref().unwrap_or_default());
        named.map(drop).map_err(|error| Refusal::new("sampling.cluster", error.to_string()))
    }

    /// The owners of this node's GPUs, as long as nobody was asked for them.
    pub fn ownership(&self) -> Arc<Ownership> {
        Arc::new(Ownership::in_cluster(self.cluster.clone()))
    }

    /// The devices of the machine, ready to be read as set; simulated ones, if these are set, by that search.
    ///
    /// # Errors
    /// As [`Sampling::machine`].
    pub fn discover(&self, simulated: Find) -> Result<Discovery, NoDirectory> {
        let mut found = registry::discover(&self.machine()?, &self.drivers, simulated);
        for probe in found.probes.iter_mut().filter(|_| self.per_core) {
            probe.read_instances();
        }
        Ok(found)
    }

    /// The sampler's settings.
    pub fn sampler(&self) -> SamplerConfig {
        SamplerConfig {
            interval: Duration::from_secs_f64(1.0 / self.rate),
            system_interval: Duration::from_secs_f64(1.0 / self.system_rate),
            slow: self.slow_interval,
            rare: self.rare_interval,
            exact: !self.drivers.is_empty(),
            origin: Origin { node: self.node().into(), started_ns: clock::now_ns() },
            ..SamplerConfig::default()
        }
    }
}

/// A captured tree that is not there.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {} is no directory", path.display())]
pub struct NoDirectory {
    /// The setting that names it.
    pub setting: &'static str,
    /// The missing directory.
    pub path: PathBuf,
}

impl Typed for Driver {
    const NOTATION: Notation = Notation::Words(|| {
        Self::ALL.map(|driver| PossibleValue::new(driver.as_str()).help(driver.about())).to_vec()
    });

    fn read(value: &Value) -> Result<Self, String> {
        let text = text(value)?;
        Self::ALL
            .into_iter()
            .find(|driver| driver.as_str() == text)
            .ok_or_else(|| format!("{text:?} is none of {}", Self::NOTATION.words().join(", ")))
    }
}

settings! {
    /// Pod, namespace, container and job that hold the GPUs
    pub struct Attribution = "attribution" {
        /// The kubelet's socket: auto (if its directory exists), off, or a path
        pod_resources: String = "auto";
        /// Look for jobs of Slurm on the GPUs: auto (if it has cgroups), true, false
        slurm: Switch = "auto";
        /// Where neither gives GPUs out, name the user who computes on one as its holder; his name stands in the rows of gpu_usage
        users: bool = true;
    }
}

impl Attribution {
    /// Asks the sources of this machine until the answer is dropped.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn ask(
        &self,
        ownership: &Arc<Ownership>,
        machine: &Machine,
        processes: Vec<Box<dyn ProcessTable>>,
    ) -> io::Result<Asking> {
        ownership.ask(self.sources(machine), machine, processes)
    }

    /// The sources to ask on this machine.
    fn sources(&self, machine: &Machine) -> OwnerSources {
        let has_jobs = match self.slurm {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => Slurm::runs_on(machine),
        };
        let slurm = has_jobs.then(|| Slurm::new(machine));
        OwnerSources { kubelet: self.kubelet_socket(machine), slurm, users: self.users }
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
