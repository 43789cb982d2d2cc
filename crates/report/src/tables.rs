//! The tables of a report, as every form of it has them.

use std::fmt;

use gpuvitals_analysis::summary::{EnergyFigure, HostSummary};
use gpuvitals_record::StepOrigin;

use crate::figures::{PhaseFigures, RunGpu, RunMark, RunRecording, StepFigures};
use crate::words::{energy, memory, number, percent, span};

/// Rows of texts under headings; the first column names the row.
#[derive(Debug)]
pub(crate) struct RunTable {
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Columns from this one on are numbers.
    pub(crate) numbers_from: usize,
}

/// Facts of a recording that people read, and what they are called.
const FACTS: [(&str, &str); 6] = [
    ("node", "machine"),
    ("started", "began"),
    ("rate_hz", "samples of a GPU a second"),
    ("system_rate_hz", "samples of the host a second"),
    ("version", "recorded by gpuvitals"),
    ("ended", "ended"),
];
/// Facts for programs.
const FOR_PROGRAMS: [&str; 4] = ["gpus", "schema", "started_ns", "update_intervals_s"];

fn dash() -> String {
    "–".to_owned()
}

/// The GPUs, each with its figures.
pub(crate) fn of_gpus(gpus: &[RunGpu]) -> RunTable {
    let heads = [
        "GPU",
        "Model",
        "Energy",
        "Power mean, W",
        "Power max, W",
        "Clock mean, MHz",
        "Clock min, MHz",
        "Temperature max, °C",
        "Busy, %",
        "Memory max",
        "Held down",
    ];
    let rows = gpus.iter().map(|gpu| {
        let summary = &gpu.summary;
        let figure = |value: Option<f64>| value.map_or_else(dash, number);
        let model = summary.model.as_ref().or(summary.pci.as_ref()).unwrap_or(&summary.id);
        vec![
            gpu.name.clone(),
            model.clone(),
            summary.energy.as_ref().map_or_else(dash, |of| energy(of.joules)),
            figure(summary.power_w.map(|watts| watts.mean)),
            figure(summary.power_w.map(|watts| watts.max)),
            figure(summary.gpu_clock_mhz.map(|clock| clock.mean)),
            figure(summary.gpu_clock_mhz.map(|clock| clock.min)),
            figure(summary.temperature_c.map(|heat| heat.max)),
            figure(summary.utilization_pct.map(|busy| busy.mean)),
            summary.memory_used_max_mb.map_or_else(dash, memory),
            summary.throttled.map_or_else(dash, |held| percent(held.share)),
        ]
    });
    RunTable { heads: heads.map(str::to_owned).to_vec(), rows: rows.collect(), numbers_from: 2 }
}

/// How the energy of the GPUs is known and how far it may be off, a sentence for those of which the same is true.
pub(crate) fn notes_on_energy(gpus: &[RunGpu]) -> Vec<String> {
    let source = |gpu: &RunGpu| {
        let energy = gpu.summary.energy.as_ref();
        let unknown = || "not known, neither power nor a counter was read".to_owned();
        Some(energy.map_or_else(unknown, EnergyFigure::origin))
    };
    let error = |gpu: &RunGpu| Some(gpu.summary.energy.as_ref()?.error.clone());
    let sources = alike(gpus, source);
    let sources = sources.iter().map(|(names, source)| format!("Energy of GPU {names}: {source}."));
    let errors = alike(gpus, error);
    let errors = errors.iter().map(|(names, error)| format!("Error of the energy of GPU {names}: {error}."));
    sources.chain(errors).collect()
}

/// What is said of some GPUs, each with the names of those.
fn alike(gpus: &[RunGpu], say: impl Fn(&RunGpu) -> Option<String>) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> = Vec::new();
    for gpu in gpus {
        let Some(words) = say(gpu) else { continue };
        match said.iter_mut().find(|(_, known)| *known == words) {
            Some((names, _)) => {
                names.push_str(", ");
                names.push_str(&gpu.name);
            }
            None => said.push((gpu.name.clone(), words)),
        }
    }
    said
}

/// The steps in figures.
pub(crate) fn of_steps(steps: &StepFigures) -> RunTable {
    let known = match steps.origin {
        StepOrigin::Marks => "marks".to_owned(),
        StepOrigin::Signals => format!("signals, {} sure", percent(steps.certainty)),
    };
    let rows = [
        ("Steps", steps.count.to_string()),
        ("Known from", known),
        ("Left out as warm-up", steps.warm_up.to_string()),
        ("Median", span(steps.median_s)),
        ("95 % are shorter than", steps.p95_s.map_or_else(dash, span)),
        ("Longest", format!("{}, after {}", span(steps.longest_s), span(steps.longest_at_s))),
        ("Energy, median", with_error(steps.energy_j, steps.energy_interval.as_ref())),
        ("Tokens a second", steps.tokens_per_s.map_or_else(dash, number)),
    ];
    let heads = ["Figure", "Value"].map(str::to_owned).to_vec();
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
    RunTable { heads, rows, numbers_from: 1 }
}

/// An energy, and how far it may be off.
pub(crate) fn with_error(joules: Option<f64>, error: Option<&impl fmt::Display>) -> String {
    let error = || error.map_or_else(|| ", error not known".to_owned(), |error| format!(" {error}"));
    joules.map_or_else(dash, |joules| format!("{}{}", energy(joules), error()))
}

/// The phases, each with all of its times.
pub(crate) fn of_phases(phases: &[PhaseFigures]) -> RunTable {
    let rows = phases.iter().map(|phase| {
        vec![
            phase.name.clone(),
            span(phase.at_s),
            phase.times.to_string(),
            span(phase.duration_s),
            percent(phase.share),
            with_error(phase.energy_j, phase.energy_interval.as_ref()),
        ]
    });
    let heads = ["Phase", "First after", "Times", "Lasted", "Of the run", "Energy"];
    RunTable { heads: heads.map(str::to_owned).to_vec(), rows: rows.collect(), numbers_from: 1 }
}

/// What held the clocks of the GPUs down; none if nothing did, or nobody says.
pub(crate) fn of_limits(gpus: &[RunGpu]) -> Option<RunTable> {
    let share = |share: f64| if share > 0.0 { percent(share) } else { dash() };
    let rows: Vec<Vec<String>> = gpus
        .iter()
        .filter_map(|gpu| Some((gpu, gpu.summary.throttled?, gpu.held_by?)))
        .filter(|(_, held, _)| held.seconds > 0.0)
        .map(|(gpu, held, by)| {
            let groups = by.groups().map(|(_, of)| share(of));
            [gpu.name.clone(), span(held.seconds)].into_iter().chain(groups).collect()
        })
        .collect();
    let heads = ["GPU", "Held down", "Heat", "Power limit", "Hardware", "Not named"];
    (!rows.is_empty()).then(|| RunTable { heads: heads.map(str::to_owned).to_vec(), rows, numbers_from: 1 })
}

/// The table of the machines.
pub(crate) fn of_hosts(hosts: &[HostSummary]) -> RunTable {
    let heads = [
        "Machine",
        "CPUs mean, %",
        "CPUs max, %",
        "Memory max",
        "Context switches/s",
        "Page faults/s",
        "Interrupts/s",
    ];
    let rows = hosts.iter().map(|host| {
        let figure = |value: Option<f64>| value.map_or_else(dash, number);
        vec![
            host.node.clone().unwrap_or_else(dash),
            figure(host.cpu_pct.map(|cpu| cpu.mean)),
            figure(host.cpu_pct.map(|cpu| cpu.max)),
            host.memory_max_mb.map_or_else(dash, memory),
            figure(host.ctx_switches_per_s),
            figure(host.page_faults_per_s),
            figure(host.irqs_per_s),
        ]
    });
    RunTable { heads: heads.map(str::to_owned).to_vec(), rows: rows.collect(), numbers_from: 1 }
}

/// A fact, as people read it: the arguments of a command are JSON in the files.
fn read(key: &str, value: &str) -> String {
    let words: Option<Vec<String>> = (key == "arguments").then(|| serde_json::from_str(value).ok()).flatten();
    words.map_or_else(|| value.to_owned(), |words| words.join(" "))
}

/// What a recording says of itself: names and texts.
pub(crate) fn facts(recording: &RunRecording) -> Vec<(String, String)> {
    let known =
        FACTS.iter().filter_map(|(key, name)| Some(((*name).to_owned(), recording.facts.get(*key)?.clone())));
    let is_other = |key: &str| !FOR_PROGRAMS.contains(&key) && !FACTS.iter().any(|(known, _)| *known == key);
    let others = recording.facts.iter().filter(|(key, _)| is_other(key));
    let others = others.map(|(key, value)| (key.replace('_', " "), read(key, value)));
    let end = (!recording.is_whole)
        .then(|| ("ended".to_owned(), "not yet: it still runs, or was killed".to_owned()));
    let place = ("directory".to_owned(), recording.directory.clone());
    let marks = ("marks".to_owned(), recording.marks.to_string());
    std::iter::once(place).chain(known).chain(end).chain(others).chain([marks]).collect()
}

/// Marks by time, with the numbers that they have in the charts.
pub(crate) fn of_marks(marks: &[RunMark]) -> RunTable {
    let rows = marks.iter().enumerate().map(|(place, mark)| {
        let node = mark.node.clone().unwrap_or_else(dash);
        vec![(place + 1).to_string(), mark.text.clone(), node, span(mark.at_s)]
    });
    let heads = ["Number", "Mark", "Machine", "After"];
    RunTable { heads: heads.map(str::to_owned).to_vec(), rows: rows.collect(), numbers_from: 3 }
}
