//! The figures of a run, for programs.

use std::collections::BTreeMap;

use gpuvitals_analysis::summary::GpuSummary;
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

/// A recording of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecording {
    /// Its directory.
    pub directory: String,
    /// What it says of itself.
    pub facts: BTreeMap<String, String>,
    /// How many marks it has.
    pub marks: u64,
    /// Whether it was ended; if not, it still runs or was killed.
    pub is_whole: bool,
}
