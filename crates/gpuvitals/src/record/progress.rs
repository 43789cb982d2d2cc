//! The progress line of a recording.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use gpuvitals_core::Table;
use gpuvitals_record::{MARK_SOCKET_VARIABLE, Progress, kept_share};
use gpuvitals_sources::registry::{Finding, Verdict};
use gpuvitals_sources::sampler::{Liveness, WorkerStats};

use super::words::{bytes, count, tell};
use crate::terminal;

/// Checks (every half second) between two lines if the line cannot be redrawn.
const LOOKS_PER_LINE: u32 = 10;

/// Draws progress on standard error: in place on a terminal, else a line every five seconds.
#[derive(Debug)]
pub(super) struct RecordProgress {
    form: Form,
    rate_hz: f64,
    looks: u32,
    told: bool,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Quiet,
    InPlace,
    Lines,
}

impl RecordProgress {
    /// A command writes to the terminal itself: no line is redrawn under its hands.
    pub(super) fn new(quiet: bool, with_command: bool, rate_hz: f64) -> Self {
        let form = match (quiet, !with_command && io::stderr().is_terminal()) {
            (true, _) => Form::Quiet,
            (false, true) => Form::InPlace,
            (false, false) => Form::Lines,
        };
        Self { form, rate_hz, looks: 0, told: false }
    }

    /// Prints the directory, and which drivers give less than was asked for.
    pub(super) fn begin(&self, directory: &Path, socket: Option<&Path>, workers: &[WorkerStats]) {
        if self.form == Form::Quiet {
            return;
        }
        let marks = socket
            .map_or(String::new(), |path| format!("; marks by {MARK_SOCKET_VARIABLE}={}", path.display()));
        tell(&format!("recording to {}{marks}", directory.display()));
        let mut told = Vec::new();
        for worker in workers.iter().filter(|worker| worker.table == Table::GpuEvents) {
            let rate_hz = rate_hz(worker);
            // An interval is a whole number of nanoseconds.
            if rate_hz < 0.999 * self.rate_hz && !told.contains(&worker.driver) {
                told.push(worker.driver);
                tell(&format!("asked {} Hz, {} gives {rate_hz}", self.rate_hz, worker.driver));
            }
        }
    }

    /// Draws it when it is time to.
    pub(super) fn draw(&mut self, progress: &Progress) {
        self.looks += 1;
        if progress.is_over && !self.told {
            // The command continues, perhaps for hours: its user wants to know now.
            self.told = true;
            tell("recording has stopped; the reason follows at the end");
        }
        // The first look comes before the first row.
        match self.form {
            Form::InPlace if self.looks > 1 => {
                terminal::draw(&line(progress, self.rate_hz));
            }
            Form::Lines if self.looks > 1 && self.looks % LOOKS_PER_LINE == 1 => {
                tell(&line(progress, self.rate_hz));
            }
            Form::Quiet | Form::InPlace | Form::Lines => {}
        }
    }
}

/// Prints which values will be missing, and why.
pub(super) fn warn(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.verdict >= Verdict::Partial) {
        tell(&format!("{}: {}", finding.subject, finding.text));
    }
}

/// `8 GPUs at 100.0 of 100 Hz, 12,800 + 160 rows, late p99 0.06 ms, 0 missed, 1.2 MB`
fn line(progress: &Progress, asked_hz: f64) -> String {
    let gpus: Vec<&WorkerStats> =
        progress.workers.iter().filter(|worker| worker.table == Table::GpuEvents).collect();
    let workers = if gpus.is_empty() { progress.workers.iter().collect() } else { gpus };
    let missed: u64 = workers.iter().map(|worker| worker.ticks_missed).sum();
    let late = workers.iter().filter_map(|worker| worker.lateness.quantile(0.99)).max();
    let targets = progress.targets.iter().filter(|t| t.table == Table::GpuEvents);
    let (mut up, mut all) = (0, 0);
    for target in targets {
        all += 1;
        up += u32::from(target.liveness == Liveness::Up);
    }
    let gpus = match (up, all) {
        (_, 0) => None,
        (1, 1) => Some("1 GPU".to_owned()),
        (up, all) if up == all => Some(format!("{all} GPUs")),
        (up, all) => Some(format!("{up} of {all} GPUs")),
    };
    let devices = gpus.map_or_else(
        || "host".to_owned(),
        |gpus| format!("{gpus} at {} of {asked_hz} Hz", kept_hz(&workers)),
    );
    format!(
        "{devices}, {} + {} rows, late p99 {}, {missed} missed, {}",
        count(progress.gpu_rows),
        count(progress.system_rows),
        late.map_or("-".to_owned(), milliseconds),
        bytes(progress.bytes)
    )
}

/// The rate of a worker that keeps up.
fn rate_hz(worker: &WorkerStats) -> f64 {
    1.0 / worker.interval.as_secs_f64()
}

/// The rates that these workers keep up, the lowest and the highest if their drivers differ.
fn kept_hz(workers: &[&WorkerStats]) -> String {
    let kept = kept_share(workers);
    let rates = || workers.iter().map(|worker| kept * rate_hz(worker));
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if high - low < 0.05 { format!("{high:.1}") } else { format!("{low:.1} to {high:.1}") }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}
