//! NVIDIA GPUs by the `nvidia-smi` command: one run of the tool answers for all GPUs.
//!
//! Expensive (a process that loads NVML anew, 20 ms to seconds), so the last choice; its numbers are NVML's.
//! It is run once for each reading, since its own loops fail on some GPUs. A field that a driver does not
//! know fails the whole query: it is left out from then on, or queried by its older name. MIG instances do
//! not appear, and the utilisation of a GPU in MIG mode is not supported.

mod fields;
mod pmon;
mod processes;
mod query;
mod said;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use gpuvitals_core::foreign::{NVIDIA_SMI, ToolField};
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, MetricId};

use crate::discovery::{self, Discovery};
use crate::finding::{Finding, Verdict};
use crate::machine::{LocalTool, Machine, Tool, ToolOutput};
use crate::probe::{Driver, Due, Probe, ProbeError, Reading, Row};
use crate::versions;

use fields::{EVERYWHERE, IDENTITY};
use said::{identity_of, said};

pub use pmon::{PmonRow, parse_pmon};
pub use processes::{ComputeApp, SmiProcesses, parse_compute_apps};
pub use query::{GpuRow, LINES_MAX, Query, parse_query_csv};

/// The tool's name, and its paths outside `PATH`: in WSL, and on hosts of the GPU operator.
const PROGRAMS: [&str; 3] =
    ["nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi"];
/// How long a reading may take: without persistence mode the tool starts each GPU anew, and a node has many.
const DEADLINE: Duration = Duration::from_secs(30);
/// Exit status of the tool: NVML's code for a missing right.
const NO_PERMISSION: i32 = 4;

/// Finds the tool. Whether it lists GPUs shows when it runs.
pub fn find(machine: &Machine) -> Discovery {
    let package = "it comes with NVIDIA's driver (package nvidia-utils or nvidia-smi)";
    let program = match discovery::tool(machine, Driver::NvidiaSmi, &PROGRAMS, package) {
        Ok(program) => program,
        Err(finding) => return Discovery::none(finding),
    };
    let text = format!("reads by {}", program.display());
    Discovery {
        probes: vec![Box::new(NvidiaSmi::new(&program, &machine.node))],
        processes: vec![Box::new(SmiProcesses::new(&program, &machine.node))],
        findings: vec![Finding::new(Verdict::Good, Driver::NvidiaSmi.as_str(), text)],
        ..Discovery::default()
    }
}

/// The tool, asked again and again.
#[derive(Debug)]
pub struct NvidiaSmi {
    tool: Arc<dyn Tool>,
    node: Arc<str>,
    /// Names of fields that the driver refused.
    refused: Vec<String>,
    /// Whether the driver refused without naming the field.
    is_plain: bool,
    known: Vec<Arc<Identity>>,
    /// The GPUs that the last answer lacks, and why.
    unreached: Vec<(Arc<Identity>, &'static str)>,
    findings: Vec<Finding>,
}

impl NvidiaSmi {
    /// The tool at a path (or a name on `PATH`), on a node. Nothing is run yet.
    pub fn new(program: impl Into<PathBuf>, node: &str) -> Self {
        Self::through(Arc::new(LocalTool(program.into())), node)
    }

    /// The tool as it can be run on this node. Nothing is run yet.
    pub fn through(tool: Arc<dyn Tool>, node: &str) -> Self {
        Self {
            tool,
            node: Arc::from(node),
            refused: Vec::new(),
            is_plain: false,
            known: Vec::new(),
            unreached: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The GPUs that the last answer lacks, each with the reason, for people.
    pub fn unreached(&self) -> Vec<String> {
        let text = |(identity, why): &(Arc<Identity>, &'static str)| {
            let index = identity.index.map_or(String::new(), |index| format!(" {index}"));
            let place = identity.get(IdentityColumn::Pci).or(identity.uuid()).unwrap_or_default();
            format!("GPU{index} ({place}) was not read: {why}")
        };
        self.unreached.iter().map(text).collect()
    }

    /// The fields to ask for.
    fn fields(&self, due: Due) -> Vec<&'static str> {
        if self.is_plain {
            return EVERYWHERE.to_vec();
        }
        let accepted = |name: &&&'static str| !self.refused.iter().any(|refused| refused == **name);
        let identity = IDENTITY.iter().filter(accepted).copied();
        let due =
            NVIDIA_SMI.iter().filter(|field| due.has(field.metric.metric().tier) || is_derived_from(field));
        identity.chain(due.filter_map(|field| field.names.iter().find(accepted).copied())).collect()
    }

    /// Asks, without the fields that turn out to be unknown. With when the answer came.
    fn ask(&mut self, due: Due) -> Result<(Query, Moment), ProbeError> {
        let begun = Moment::now();
        loop {
            let fields = self.fields(due);
            let left = self.tool.left(begun);
            let query = format!("--query-gpu={}", fields.join(","));
            let output = self.tool.run(&[&query, "--format=csv,nounits"], left)?;
            let text = String::from_utf8_lossy(&output.stdout);
            match refused_field(&text) {
                Some(name) if fields.contains(&name) => self.refused.push(name.to_owned()),
                Some(_) if !self.is_plain => self.is_plain = true,
                _ => {
                    let answer = parse_query_csv(&text, &fields);
                    if answer.gpus.is_empty() {
                        return Err(failure(&output, &text));
                    }
                    return Ok((answer, Moment::now()));
                }
            }
        }
    }

    /// The identity of a row, shared with the rows before if nothing changed.
    fn know(&mut self, row: &GpuRow, is_twin: bool) -> Option<Arc<Identity>> {
        let identity = identity_of(row, &self.node, is_twin)?;
        if self.known.is_empty()
            && let Some(version) = &row.driver
        {
            let subject = Driver::NvidiaSmi.as_str();
            self.findings.extend(versions::untested(subject, "NVIDIA driver", version));
        }
        // A GPU that was known by its address only has got its name.
        self.known.retain(|known| !known.stands_for(&identity));
        let key = identity.key();
        match self.known.iter_mut().find(|known| known.key() == key) {
            Some(known) if **known == *identity => return Some(Arc::clone(known)),
            Some(known) => *known = Arc::clone(&identity),
            None => self.known.push(Arc::clone(&identity)),
        }
        Some(identity)
    }

    /// Metrics that were asked for and cannot be had from this driver.
    fn without_field(&self) -> impl Iterator<Item = MetricId> {
        NVIDIA_SMI
            .iter()
            .filter(|field| {
                let is_refused = |name: &&str| self.refused.iter().any(|refused| refused == name);
                let is_plain = self.is_plain && !field.names.iter().any(|name| EVERYWHERE.contains(name));
                is_plain || field.names.iter().all(is_refused)
            })
            .map(|field| field.metric)
    }
}

impl Probe for NvidiaSmi {
    fn driver(&self) -> Driver {
        Driver::NvidiaSmi
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        self.known.clone()
    }

    fn interval_min(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let (answer, taken) = self.ask(due)?;
        let mut told: Vec<Arc<Identity>> = Vec::new();
        for (at, gpu) in answer.gpus.iter().enumerate() {
            let is_twin =
                answer.gpus.iter().enumerate().any(|(other, row)| other != at && row.uuid == gpu.uuid);
            let Some(identity) = self.know(gpu, is_twin).filter(|identity| !told.contains(identity)) else {
                continue;
            };
            let row = reading.row(&identity);
            row.taken(taken.wall_ns);
            fill(gpu, due, row);
            if due.rare {
                for metric in self.without_field().filter(|metric| gpu.get(*metric).is_none()) {
                    row.absent(metric, AbsenceReason::NotSupported);
                }
            }
            told.push(identity);
        }
        // One that it never listed is known by the address in its sentence.
        for pci in answer.unreached() {
            let is_known = |known: &Arc<Identity>| known.get(IdentityColumn::Pci) == Some(pci.as_str());
            if !self.known.iter().any(is_known) && self.known.len() < LINES_MAX {
                let row = GpuRow { pci: Some(pci), ..GpuRow::default() };
                self.known.extend(identity_of(&row, &self.node, false));
            }
        }
        self.unreached.clear();
        for identity in self.known.iter().filter(|known| !told.contains(known)) {
            let is_lost = identity.get(IdentityColumn::Pci).is_some_and(|pci| answer.complains_about(pci));
            let detail = if is_lost {
                "nvidia-smi cannot reach it: lost, or in need of a reset"
            } else {
                "nvidia-smi does not list it any more"
            };
            reading.row(identity).down(AbsenceReason::Gone, detail);
            self.unreached.push((Arc::clone(identity), detail));
        }
        Ok(())
    }

    fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }
}

/// Whether a fast column follows from it.
fn is_derived_from(field: &ToolField) -> bool {
    field.names.contains(&"memory.total")
}

fn fill(gpu: &GpuRow, due: Due, row: &mut Row) {
    gpu.doubted.iter().filter(|metric| due.has(metric.metric().tier)).for_each(|metric| row.refuse(*metric));
    for &(metric, value) in &gpu.values {
        match value {
            Ok(value) if due.has(metric.metric().tier) => row.set(metric, value),
            Ok(_) => {}
            Err(reason) => row.missing(metric, reason, due),
        }
    }
}

/// The field that the tool refuses; empty when it does not say which.
fn refused_field(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.contains("not a valid field"))?;
    Some(line.split('"').nth(1).map_or("", str::trim))
}

/// Why the tool lists no GPU.
fn failure(output: &ToolOutput, text: &str) -> ProbeError {
    let text = if text.trim().is_empty() { String::from_utf8_lossy(&output.stderr) } else { text.into() };
    match (output.code, said(&text)) {
        (Some(NO_PERMISSION), ProbeError::Gone(text) | ProbeError::Failed(text)) => ProbeError::Denied(text),
        (_, error) => error,
    }
}
