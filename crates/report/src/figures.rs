//! The figures of a run, for programs.

use std::collections::BTreeMap;

use gpuvitals_analysis::summary::GpuSummary;
use gpuvitals_core::energy::EnergyInterval;
use gpuvitals_record::StepOrigin;
use serde::Serialize;

/// Shares of the time in which a GPU was observed, 0 to 1, in which limits held its clocks down. Several may have been at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeldShares {
    /// A limit of power or current.
    pub power: f64,
    /// A limit of temperature.
    pub heat: f64,
    /// The hardware's own slowdown or the power brake of the chassis.
    pub hardware: f64,
    /// A limit that the driver does not name.
    pub other: f64,
}

impl HeldShares {
    /// The shares with the names of their limits.
    pub fn groups(self) -> [(&'static str, f64); 4] {
        [
            ("heat", self.heat),
            ("a power limit", self.power),
            ("the hardware's own slowdown", self.hardware),
            ("a limit that the driver does not name", self.other),
        ]
    }
}

/// A GPU of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunGpu {
    /// What people call it: its index, with its node or its key where that is not enough.
    pub name: String,
    /// Its rows, summed up.
    #[serde(flatten)]
    pub summary: GpuSummary,
    /// What held its clocks down; none: the driver does not say.
    pub held_by: Option<HeldShares>,
}

/// How far the energies that are known of these GPUs may be off together; none: that of one is not known.
pub(crate) fn energy_error(gpus: &[RunGpu]) -> Option<String> {
    let energies = gpus.iter().filter_map(|gpu| gpu.summary.energy.as_ref());
    EnergyInterval::together(energies.map(|energy| (energy.joules, energy.interval.as_ref())))
}

/// A mark of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunMark {
    /// Seconds after the first row.
    pub at_s: f64,
    /// The recorded machine.
    pub node: Option<String>,
    /// What the program said.
    pub text: String,
}

/// The steps of a run, after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepFigures {
    /// The machine whose recording tells them.
    pub node: Option<String>,
    /// How many there are.
    pub count: usize,
    /// Steps of the warm-up, which no figure has.
    pub warm_up: usize,
    /// Where they are known from.
    pub origin: StepOrigin,
    /// How sure it is that these are the steps, 0 to 1.
    pub certainty: f64,
    /// Their middle duration, seconds.
    pub median_s: f64,
    /// The duration that one step of twenty exceeds; none of fewer than twenty steps.
    pub p95_s: Option<f64>,
    /// The longest one.
    pub longest_s: f64,
    /// When that began, seconds after the first row.
    pub longest_at_s: f64,
    /// Middle energy of a step by the power of that machine's GPUs, joules; none: it was not read.
    pub energy_j: Option<f64>,
    /// How far that may be off: `± 12.5 %`, or why it is not known; none without an energy.
    pub energy_error: Option<String>,
    /// Where the energy lies, and why not nearer.
    pub energy_interval: Option<EnergyInterval>,
    /// Tokens a second, by values of marks.
    pub tokens_per_s: Option<f64>,
}

/// The machine of a run for which the others wait, by the marks of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunLast {
    /// The machine, or the directory of its recording.
    pub node: String,
    /// Steps that the recordings of all machines have.
    pub steps: usize,
    /// Share of these in which it worked longest.
    pub share: f64,
    /// Its middle work in a step, seconds.
    pub worked_s: f64,
    /// That of the others.
    pub others_s: f64,
}

/// A phase of a run: all of its times together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// What it is called.
    pub name: String,
    /// When it first began, seconds after the first row.
    pub at_s: f64,
    /// How often it came.
    pub times: usize,
    /// How long it lasted.
    pub duration_s: f64,
    /// The same as a share of the run.
    pub share: f64,
    /// Its energy by the power of that machine's GPUs, joules; none: it was not read.
    pub energy_j: Option<f64>,
    /// How far that may be off: `± 12.5 %`, or why it is not known; none without an energy.
    pub energy_error: Option<String>,
    /// Where the energy lies, and why not nearer.
    pub energy_interval: Option<EnergyInterval>,
}

/// A recording of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecording {
    /// Directory of the recording.
    pub directory: String,
    /// What it says of itself.
    pub facts: BTreeMap<String, String>,
    /// How many marks it has.
    pub marks: u64,
    /// Whether it was ended; if not, it still runs or was killed.
    pub is_whole: bool,
}
