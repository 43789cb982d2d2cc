//! AMD GPUs by the `rocm-smi` command, any version: one run of the tool answers for all GPUs.
//!
//! Expensive (a Python process that takes most of a second) and coarse (whole watts and MHz), so the last
//! choice. It asks for JSON; if none comes, for text. Versions up to 5.x abort at the deep-sleep level of a
//! clock table, before they print any JSON; then it asks for everything but the clocks.
//!
//! Its numbers follow its own rules: clocks are those of the starred line of `pp_dpm_*`, power is the average
//! up to version 5.

mod report;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use gpuvitals_core::{AbsenceReason, Identity};

use crate::discovery::{self, Discovery};
use crate::finding::{Finding, Verdict};
use crate::machine::{LocalTool, Machine, Tool as _, ToolOutput};
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};
use crate::versions;

pub use report::{CARDS_MAX, RocmCard, RocmReport, parse_json, parse_text};

/// The tool's name, and ROCm's path for it outside `PATH`.
const PROGRAMS: [&str; 2] = ["rocm-smi", "/opt/rocm/bin/rocm-smi"];

/// How long a reading may take, on a node with many GPUs that is busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// Arguments for the columns of each tier.
const FAST: &[&str] = &["--showtemp", "--showpower", "--showuse", "--showmemuse"];
const CLOCKS: &str = "--showclocks";
const SLOW: &[&str] = &["--showfan", "--showvoltage", "--showmaxpower", "--showreplaycount"];
const RARE: &[&str] = &[
    "--showperflevel",
    "--showid",
    "--showuniqueid",
    "--showbus",
    "--showproductname",
    "--showdriverversion",
    "--showvbios",
];

/// How to ask, best first.
#[derive(Debug, Clone, Copy)]
struct QueryWay {
    json: bool,
    clocks: bool,
}

const WAYS: [QueryWay; 3] = [
    QueryWay { json: true, clocks: true },
    QueryWay { json: true, clocks: false },
    QueryWay { json: false, clocks: true },
];

/// Finds the tool. Whether it lists GPUs shows when it runs.
pub fn find(machine: &Machine) -> Discovery {
    let package = "install the package rocm-smi (Debian) or rocm-smi-lib (ROCm)";
    let program = match discovery::tool(machine, Driver::RocmSmi, &PROGRAMS, package) {
        Ok(program) => program,
        Err(finding) => return Discovery::none(finding),
    };
    let subject = Driver::RocmSmi.as_str();
    if !machine.sysfs.join("module/amdgpu").is_dir() {
        let text = "the command is installed, and the kernel driver amdgpu is not loaded";
        let finding = Finding::new(Verdict::Note, subject, text);
        return Discovery::none(finding.remedy("modprobe amdgpu, if there is an AMD GPU"));
    }
    let version = rocm_version(&program);
    let named = version.as_ref().map_or(String::new(), |version| format!(" of ROCm {version}"));
    let text = format!("reads by {}{named}", program.display());
    let mut findings = vec![Finding::new(Verdict::Good, subject, text)];
    findings.extend(version.and_then(|version| versions::untested(subject, "ROCm", &version)));
    Discovery {
        probes: vec![Box::new(RocmSmi::new(program, &machine.node))],
        findings,
        ..Discovery::default()
    }
}

/// ROCm's version, from `.info/version` of the installation that the program is in; Debian's package has none.
fn rocm_version(program: &Path) -> Option<String> {
    let root = program.canonicalize().ok()?;
    let root = root.ancestors().skip(1).find(|folder| folder.join(".info/version").is_file())?;
    let text = std::fs::read_to_string(root.join(".info/version")).ok()?;
    Some(text.trim().to_owned()).filter(|version| !version.is_empty())
}

/// The tool, asked again and again.
#[derive(Debug)]
pub struct RocmSmi {
    tool: LocalTool,
    node: Arc<str>,
    /// Index of the way that gave cards last.
    way: usize,
    /// The tool's number of each card, and its identity.
    known: Vec<(u32, Arc<Identity>)>,
    /// Whether the next run asks for the cards' identities.
    is_unsure: bool,
}

impl RocmSmi {
    /// The tool at a path (or a name on `PATH`), on a node. Nothing is run yet.
    pub fn new(program: impl Into<PathBuf>, node: &str) -> Self {
        let tool = LocalTool(program.into());
        Self { tool, node: Arc::from(node), way: 0, known: Vec::new(), is_unsure: true }
    }

    /// Runs the variant that worked last, and then worse ones, until one lists cards. Returns the report and
    /// the tool's start time.
    fn ask(&mut self, due: Due) -> Result<(RocmReport, Moment), ProbeError> {
        let begun = Moment::now();
        let mut said = String::new();
        for (at, way) in WAYS.iter().enumerate().skip(self.way) {
            let started = Moment::now();
            let output = self.tool.run(&arguments(*way, due), self.tool.left(begun))?;
            let report = if way.json {
                parse_json(&output.stdout).unwrap_or_default()
            } else {
                parse_text(&String::from_utf8_lossy(&output.stdout))
            };
            if !report.cards.is_empty() {
                self.way = at;
                return Ok((report, started));
            }
            said = complaint(&output);
        }
        self.way = 0;
        Err(ProbeError::Gone(format!("{} lists no GPU: {said}", self.tool.0.display())))
    }

    /// Takes the present cards. One that has disappeared is reported once; one that stayed keeps its
    /// identity.
    fn rename(&mut self, mut now: Vec<(u32, Arc<Identity>)>, reading: &mut Reading) {
        for (_, before) in &self.known {
            match now.iter_mut().find(|(_, identity)| identity.key() == before.key()) {
                Some((_, identity)) if *identity == *before => *identity = Arc::clone(before),
                Some(_) => {}
                None => {
                    let row = reading.row(before);
                    row.down(AbsenceReason::Gone, "rocm-smi does not list it any more");
                }
            }
        }
        self.known = now;
    }

    /// Whether the tool lists the cards that are known, by its numbers.
    fn is_listed(&self, report: &RocmReport) -> bool {
        report.cards.len() == self.known.len()
            && report.cards.iter().all(|card| self.known.iter().any(|(known, _)| *known == card.number))
    }
}

impl Probe for RocmSmi {
    fn driver(&self) -> Driver {
        Driver::RocmSmi
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        self.known.iter().map(|(_, identity)| Arc::clone(identity)).collect()
    }

    fn interval_min(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let due = Due { rare: due.rare || self.is_unsure, ..due };
        if due.rare {
            // A way that failed once may be there again.
            self.way = 0;
        }
        let (report, started) = self.ask(due)?;
        if due.rare {
            self.rename(values::identify(&report, &self.node), reading);
        } else if !self.is_listed(&report) {
            // An added or removed card has renumbered the others: the owners of these values are unknown.
            self.is_unsure = true;
            return Ok(());
        }
        self.is_unsure = false;
        for (number, identity) in &self.known {
            let Some(card) = report.cards.iter().find(|card| card.number == *number) else { continue };
            let row = reading.row(identity);
            row.taken(started.wall_ns);
            values::fill(card, due, row);
        }
        Ok(())
    }
}

fn arguments(way: QueryWay, due: Due) -> Vec<&'static str> {
    let mut arguments = FAST.to_vec();
    arguments.extend(way.clocks.then_some(CLOCKS));
    arguments.extend(if due.slow { SLOW } else { &[] });
    arguments.extend(if due.rare { RARE } else { &[] });
    arguments.extend(["--showmeminfo", "vram"]);
    arguments.extend(if due.slow { &["vis_vram", "gtt"][..] } else { &[] });
    arguments.extend(way.json.then_some("--json"));
    arguments
}

/// Its exit code and last line.
fn complaint(output: &ToolOutput) -> String {
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let text = String::from_utf8_lossy(said);
    let last = text.lines().rev().find(|line| line.chars().any(char::is_alphanumeric)).unwrap_or("nothing");
    let short: String = last.trim().chars().take(200).collect();
    match output.code {
        Some(code) => format!("exit code {code}, {short:?}"),
        None => format!("ended by a signal, {short:?}"),
    }
}
