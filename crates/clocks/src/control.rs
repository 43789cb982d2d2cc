//! A control reads and sets the clocks of a GPU.

use std::sync::Arc;
use std::{fmt, io};

use gpuvitals_core::Identity;
use gpuvitals_sources::registry::Finding;
use serde::{Deserialize, Serialize};

/// What clocks are to be held at. What is none is left to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    /// How the driver itself chooses clocks.
    pub level: Option<Level>,
    /// GPU clock, MHz.
    pub gpu_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_mhz: Option<u32>,
}

/// The driver's clock policy, in the words of amdgpu. NVIDIA has `auto`, and `low` and `high` as its lowest
/// and highest clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The driver follows the load.
    Auto,
    /// Every clock at its lowest.
    Low,
    /// Every clock at its highest.
    High,
    /// Among manually allowed ones.
    Manual,
    /// Fixed ones that can be sustained without throttling.
    ProfileStandard,
    /// Highest fixed ones.
    ProfilePeak,
    /// Lowest fixed GPU clock.
    ProfileMinSclk,
    /// Lowest fixed memory clock.
    ProfileMinMclk,
    /// A cap on the GPU clock that makes timing repeatable (Instinct).
    PerfDeterminism,
}

impl Level {
    /// Every level, in the order of the variants.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Low,
        Self::High,
        Self::Manual,
        Self::ProfileStandard,
        Self::ProfilePeak,
        Self::ProfileMinSclk,
        Self::ProfileMinMclk,
        Self::PerfDeterminism,
    ];

    /// The driver's spelling, and that of `--level`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Low => "low",
            Self::High => "high",
            Self::Manual => "manual",
            Self::ProfileStandard => "profile_standard",
            Self::ProfilePeak => "profile_peak",
            Self::ProfileMinSclk => "profile_min_sclk",
            Self::ProfileMinMclk => "profile_min_mclk",
            Self::PerfDeterminism => "perf_determinism",
        }
    }

    /// The level of that spelling.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// Present clocks. Values that the device does not report are none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClockState {
    /// GPU clock now, MHz.
    pub gpu_mhz: Option<u32>,
    /// Memory clock now, MHz.
    pub memory_mhz: Option<u32>,
    /// The driver's policy, in its words: `auto`, `high`, `manual` …
    pub level: Option<String>,
    /// Whether the clocks are locked, if the device reports it.
    pub is_locked: Option<bool>,
    /// GPU clocks the driver lists, MHz, by number.
    pub gpu_choices_mhz: Vec<u32>,
    /// Memory clocks the driver lists, MHz, by number.
    pub memory_choices_mhz: Vec<u32>,
    /// Lowest and highest GPU clock that can be set, MHz.
    pub gpu_range_mhz: Option<(u32, u32)>,
    /// The device sleeps and was left asleep: nothing was read.
    pub is_asleep: bool,
}

/// One step of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// The destination: a file of the GPU by its name (AMD), a call (NVIDIA). Never a full path, since steps
    /// are saved and the card may have another number when they are made.
    pub target: String,
    /// The text written, or the arguments.
    pub text: String,
}

impl fmt::Display for ClockStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <- {:?}", self.target, self.text)
    }
}

/// A change of clocks that is planned and not made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Steps of the change.
    pub forward: Vec<ClockStep>,
    /// Steps that restore the settings in force when it was planned.
    pub back: Vec<ClockStep>,
    /// Its effect, for people: `level 3 (1269 MHz) is nearest to 1250 MHz`.
    pub notes: Vec<String>,
}

/// An error of reading or setting clocks.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The right is missing.
    #[error("{target}: permission denied; {remedy}")]
    Denied {
        /// File or call.
        target: String,
        /// How to get the right.
        remedy: String,
    },
    /// The part or its driver cannot do this.
    #[error("{what} is not possible here: {why}")]
    NotSupported {
        /// What was asked for, in words.
        what: String,
        /// The reason, and the alternatives.
        why: String,
    },
    /// A request that makes no sense for this device.
    #[error("{0}")]
    Wrong(String),
    /// The driver accepted it and nothing changed.
    #[error("{target}: the driver took {asked:?} without effect; it reads {seen:?}")]
    NoEffect {
        /// File or call.
        target: String,
        /// The text that was written.
        asked: String,
        /// The text read back.
        seen: String,
    },
    /// No GPU has this PCI address any more.
    #[error("there is no GPU at {0} any more; nothing was written")]
    Gone(String),
    /// The driver refused, or the device is gone.
    #[error("cannot set {target} to {text:?}")]
    Refused {
        /// File or call.
        target: String,
        /// The text that was written.
        text: String,
        /// What the driver answered.
        #[source]
        source: io::Error,
    },
    /// A lock failed, and the previous settings could not be restored: the clocks are neither.
    #[error("{failed}; and the earlier settings were not restored: {back}")]
    HalfMade {
        /// The error of the lock.
        #[source]
        failed: Box<ClockError>,
        /// The error of the restore.
        back: Box<ClockError>,
    },
    /// The device does not report its state.
    #[error("{target} cannot be read")]
    Unreadable {
        /// File or call.
        target: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The clocks of one GPU.
pub trait ClockControl: Send {
    /// The GPU; resolved ([`Identity::resolve`]).
    fn identity(&self) -> &Arc<Identity>;

    /// Clocks now.
    ///
    /// # Errors
    /// If nothing of it can be read.
    fn state(&mut self) -> Result<ClockState, ClockError>;

    /// Plans a lock, with the way back to the present settings. Changes nothing, and needs no right to
    /// change.
    ///
    /// # Errors
    /// If the device cannot do it, or the present state cannot be read.
    fn plan(&mut self, lock: &Lock) -> Result<Plan, ClockError>;

    /// Plans a reset to the driver's control. It has no way back.
    ///
    /// # Errors
    /// If the device cannot do it.
    fn plan_reset(&mut self) -> Result<Plan, ClockError>;

    /// The present full path or call of a step.
    fn place(&self, step: &ClockStep) -> String {
        step.target.clone()
    }

    /// Makes one step, on this very GPU, whatever its present card number.
    ///
    /// # Errors
    /// If the driver refuses, or the GPU is gone.
    fn apply(&mut self, step: &ClockStep) -> Result<(), ClockError>;

    /// Reads back whether the steps, made in sequence, had their effect, as far as the device reports it.
    ///
    /// # Errors
    /// [`ClockError::NoEffect`] when they had none.
    fn verify(&mut self, steps: &[ClockStep]) -> Result<(), ClockError>;
}

/// The GPUs with controllable clocks, and the findings of the search.
#[derive(Default)]
pub struct ClocksFound {
    /// One for each GPU.
    pub controls: Vec<Box<dyn ClockControl>>,
    /// What the search has to say, of GPUs without control too.
    pub findings: Vec<Finding>,
}

impl fmt::Debug for ClocksFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClocksFound")
            .field("controls", &self.controls.len())
            .field("findings", &self.findings)
            .finish()
    }
}
