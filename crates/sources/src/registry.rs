//! The devices of a machine, and the driver that reads each.
//!
//! Discovery is cheap: it lists names and addresses. Whether a device can really be read shows at its first reading,
//! on its own worker.

use std::fmt;
use std::path::PathBuf;

use gpuvitals_core::Table;
use serde::Deserialize;

use crate::dialect::{amd_ioctl, amd_sysfs, nvidia_smi, nvml, procfs, rocm_smi};
use crate::machine::{Machine, find_tool};
use crate::probe::Probe;
use crate::processes::{self, ProcessProbe, ProcessTable};
use crate::simulated;

/// Result of a search: devices, and the findings that `doctor` reports.
#[derive(Default)]
pub struct Discovery {
    /// Ready to be sampled.
    pub probes: Vec<Box<dyn Probe>>,
    /// Tables of the processes on them.
    pub processes: Vec<Box<dyn ProcessTable>>,
    /// Findings of the search.
    pub findings: Vec<Finding>,
    /// Whether there are devices, and not one file of them can be read: another way is better.
    pub is_mute: bool,
}

impl Discovery {
    /// No device, and why.
    pub(crate) fn none(finding: Finding) -> Self {
        Self { findings: vec![finding], ..Self::default() }
    }

    /// Probes of the rows about processes; the tables stay for other readers.
    pub fn process_probes(&self) -> Vec<Box<dyn Probe>> {
        let probe = |table: &dyn ProcessTable| Box::new(ProcessProbe::new(table.another()));
        self.processes.iter().map(|table| -> Box<dyn Probe> { probe(&**table) }).collect()
    }

    fn add(&mut self, other: Self) {
        self.probes.extend(other.probes);
        self.processes.extend(other.processes);
        self.findings.extend(other.findings);
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery")
            .field("probes", &self.probes.len())
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works; worth knowing.
    Note,
    /// Part of the values will be missing.
    Partial,
    /// Keeps this from being sampled.
    Broken,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How good.
    pub verdict: Verdict,
    /// Subject: `amd-sysfs card0 (0000:0c:00.0)`, `nvml`.
    pub subject: String,
    /// The finding: driver version, what is missing, on which file or call.
    pub text: String,
    /// The remedy: the right, version or package.
    pub remedy: Option<String>,
    /// Whether it is a right that is missing.
    pub is_denied: bool,
}

impl Finding {
    /// A finding that asks for nothing.
    pub fn new(verdict: Verdict, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, subject: subject.into(), text: text.into(), remedy: None, is_denied: false }
    }

    /// A finding about a right that is missing.
    pub fn denied(mut self) -> Self {
        self.is_denied = true;
        self
    }

    /// With a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The first installed one of these programs, for a driver path that runs a tool, or the reason why none can
/// be used.
pub(crate) fn tool(
    machine: &Machine,
    driver: Driver,
    programs: &[&str],
    package: &str,
) -> Result<PathBuf, Finding> {
    let note = |text: &str| Finding::new(Verdict::Note, driver.as_str(), text);
    if machine.is_captured() {
        return Err(note(
            "asks the kernel of this machine, whatever files are given; not used for a captured tree",
        ));
    }
    let found = programs.iter().find_map(find_tool);
    found.ok_or_else(|| note("the command is not installed").remedy(package))
}

/// Finds the devices of a machine. Of each vendor the first way that finds any is taken, cheapest first; with `forced`
/// only those ways are tried, and if they find a GPU the host's: they name the way to the GPUs.
pub fn discover(machine: &Machine, forced: &[Driver]) -> Discovery {
    let mut found = Discovery::default();
    for ways in WAYS.chunk_by(|one, other| one.vendor == other.vendor) {
        found.add(first_of(ways, machine, forced));
    }
    let has_gpus = found.probes.iter().any(|probe| probe.table() == Table::GpuEvents);
    // Whoever names the way to the GPUs does not want the host alone.
    if !forced.is_empty() && !forced.contains(&Driver::Procfs) && !has_gpus {
        found.probes.clear();
    }
    found.add(processes::amd::find(machine, &found.probes));
    found
}

/// What the first way finds that can read something; if none can, the devices that the first way sees.
fn first_of(ways: &[Way], machine: &Machine, forced: &[Driver]) -> Discovery {
    let mut found = Discovery::default();
    let mut mute = Vec::new();
    let is_tried = |way: &&Way| {
        let unasked = forced.is_empty() && way.driver != Driver::Simulated;
        unasked || forced.contains(&way.driver) || way.vendor == Driver::Procfs.vendor()
    };
    for way in ways.iter().filter(is_tried) {
        let mut way = (way.find)(machine);
        if way.is_mute && mute.is_empty() {
            mute = std::mem::take(&mut way.probes);
        }
        let is_enough = !way.probes.is_empty();
        found.add(way);
        if is_enough {
            return found;
        }
    }
    found.probes = mute;
    found
}

type Find = fn(&Machine) -> Discovery;

/// A way to read devices.
struct Way {
    driver: Driver,
    /// Ways of one vendor stand in for each other.
    vendor: &'static str,
    find: Find,
}

macro_rules! drivers {
    ($(#[doc = $about:literal] $driver:ident, $name:literal, $vendor:literal, $find:path;)+) => {
        /// How a device is reached. Its spelling is the `source` column of every row and the value of `--driver`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        pub enum Driver { $(#[doc = $about] #[serde(rename = $name)] $driver,)+ }

        impl Driver {
            /// Every way, cheapest of a vendor first.
            pub const ALL: [Self; WAYS.len()] = [$(Self::$driver,)+];

            /// In words, for a list of choices.
            pub fn about(self) -> &'static str {
                match self { $(Self::$driver => $about.trim(),)+ }
            }

            /// Spelling.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$driver => $name,)+ }
            }

            /// The vendor whose devices it reads; `host` for the host.
            pub fn vendor(self) -> &'static str {
                match self { $(Self::$driver => $vendor,)+ }
            }
        }

        const WAYS: &[Way] = &[$(Way { driver: Driver::$driver, vendor: $vendor, find: $find },)+];
    };
}

// The registry: one line a driver path, vendor by vendor, the cheapest first.
drivers! {
    /// AMD by files of sysfs
    AmdSysfs, "amd-sysfs", "amd", amd_sysfs::find;
    /// AMD by ioctls on the render node
    AmdIoctl, "amd-ioctl", "amd", amd_ioctl::find;
    /// AMD by the rocm-smi command
    RocmSmi, "rocm-smi", "amd", rocm_smi::find;
    /// NVIDIA by NVML, loaded at run time
    Nvml, "nvml", "nvidia", nvml::find;
    /// NVIDIA by the nvidia-smi command
    NvidiaSmi, "nvidia-smi", "nvidia", nvidia_smi::find;
    /// The host by files of procfs
    Procfs, "procfs", "host", procfs::find;
    /// Simulated GPUs, only if this is asked for
    Simulated, "simulated", "simulated", simulated::probe::find;
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_machine: &Machine) -> Discovery {
        Discovery::none(Finding::new(Verdict::Note, "none", "not here"))
    }

    fn host(machine: &Machine) -> Discovery {
        procfs::find(machine)
    }

    fn mute(machine: &Machine) -> Discovery {
        let findings = vec![Finding::new(Verdict::Partial, "mute", "cannot be read")];
        Discovery { is_mute: true, findings, ..host(machine) }
    }

    #[test]
    fn a_way_that_can_read_nothing_gives_way_to_the_next_and_says_so() {
        let machine = Machine::local("n1");
        let find = |finds: [Find; 3], forced: &[Driver]| {
            let drivers = [Driver::AmdSysfs, Driver::AmdIoctl, Driver::RocmSmi];
            let ways = [0, 1, 2].map(|at| Way { driver: drivers[at], vendor: "amd", find: finds[at] });
            let found = first_of(&ways, &machine, forced);
            let subjects: Vec<String> =
                found.findings.iter().map(|finding| finding.subject.clone()).collect();
            (found.probes.len(), subjects)
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all: [Find; 3] = [mute, nothing, host];
        assert_eq!(find(all, &[]), (1, owned(&["mute", "none", "procfs"])));
        assert_eq!(
            find(all, &[Driver::AmdSysfs, Driver::AmdIoctl]),
            (1, owned(&["mute", "none"])),
            "seen is better than not"
        );
        let usual: [Find; 3] = [host, mute, host];
        assert_eq!(find(usual, &[]), (1, owned(&["procfs"])));
    }
}
