//! A discovery holds the devices that a search found, and its findings.

use std::fmt;
use std::path::PathBuf;

use crate::driver::Driver;
use crate::finding::{Finding, Verdict};
use crate::machine::{Machine, find_tool};
use crate::probe::Probe;
use crate::processes::{ProcessProbe, ProcessTable};

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
    pub fn none(finding: Finding) -> Self {
        Self { findings: vec![finding], ..Self::default() }
    }

    /// Probes of the rows about processes; the tables stay for other readers.
    pub fn process_probes(&self) -> Vec<Box<dyn Probe>> {
        let probe = |table: &dyn ProcessTable| Box::new(ProcessProbe::new(table.another()));
        self.processes.iter().map(|table| -> Box<dyn Probe> { probe(&**table) }).collect()
    }

    /// Takes what another search found, too.
    pub(crate) fn add(&mut self, other: Self) {
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
