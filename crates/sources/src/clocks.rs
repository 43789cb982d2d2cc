//! Locking clocks for measurements, and giving them back.
//!
//! A change is planned before it is made: a [`Plan`] is the steps forward and the steps back, so that it can be shown
//! without being made, and so that the way back is known (and may be written down) before the first step. Clocks are
//! the property of every user of the GPU: [`Held`] gives them back when it is dropped.
//!
//! ```no_run
//! use gpuvitals_sources::clocks::{self, Level, Lock};
//! use gpuvitals_sources::machine::Machine;
//!
//! let found = clocks::find(&Machine::local("node1"), &[]);
//! let mut device = found.controls.into_iter().next().ok_or("no GPU")?;
//! println!("{:?}", clocks::get_current_clocks(device.as_mut())?);
//! let plan = device.plan(&Lock { level: Some(Level::High), ..Lock::default() })?;
//! let held = clocks::Held::take(device.as_mut(), plan)?;
//! // ... measure ...
//! held.give_back()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod amd;
pub mod nvidia;

use std::fmt;
use std::io;
use std::sync::Arc;

use gpuvitals_core::Identity;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::probe::Driver;
use crate::registry::Finding;

/// What clocks are to be held at. What is none (or empty) is left to the driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lock {
    /// How the driver chooses clocks.
    pub level: Option<Level>,
    /// GPU clock, MHz.
    pub gpu_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_mhz: Option<u32>,
    /// Allowed entries of the driver's list of GPU clocks, by number.
    pub gpu_levels: Vec<u32>,
    /// Allowed entries of the driver's list of memory clocks, by number.
    pub memory_levels: Vec<u32>,
}

/// How a driver chooses clocks, in the words of amdgpu. NVIDIA has `auto`, and `low` and `high` as its lowest and highest
/// clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// By load.
    Auto,
    /// Lowest clocks.
    Low,
    /// Highest clocks.
    High,
    /// Among those allowed by hand.
    Manual,
    /// Fixed ones that hold without throttling.
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
    /// Every level.
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

    /// Spelling of the driver and of `--level`.
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

/// Clocks as they are. What the device does not tell is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClockState {
    /// GPU clock now, MHz.
    pub gpu_mhz: Option<u32>,
    /// Memory clock now, MHz.
    pub memory_mhz: Option<u32>,
    /// How the driver chooses clocks, in its words: `auto`, `high`, `manual` …
    pub level: Option<String>,
    /// Whether somebody holds the clocks, where that can be told.
    pub is_locked: Option<bool>,
    /// GPU clocks the driver lists, MHz, by number.
    pub gpu_choices_mhz: Vec<u32>,
    /// Memory clocks the driver lists, MHz, by number.
    pub memory_choices_mhz: Vec<u32>,
    /// Lowest and highest GPU clock that can be set, MHz.
    pub gpu_range_mhz: Option<(u32, u32)>,
    /// The device sleeps and was left asleep: nothing of it was read.
    pub is_asleep: bool,
}

/// One step of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is written: a file of the GPU by its name (AMD), a call (NVIDIA). Never where the GPU is today, since steps are noted
    /// down and a card may have another number when they are made.
    pub target: String,
    /// What is written, or the arguments.
    pub text: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <- {:?}", self.target, self.text)
    }
}

/// A change that has not been made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Steps that make it.
    pub forward: Vec<Step>,
    /// Steps that bring back what was in force when it was planned.
    pub back: Vec<Step>,
    /// What it comes to, for people: `level 3 (1269 MHz) is nearest to 1250 MHz`.
    pub notes: Vec<String>,
}

/// Why clocks cannot be read or set.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The right is missing.
    #[error("{target}: permission denied; {remedy}")]
    Denied {
        /// File or call.
        target: String,
        /// Which right gives it.
        remedy: String,
    },
    /// The part or its driver cannot do this.
    #[error("{what} is not possible here: {why}")]
    NotSupported {
        /// What was asked for.
        what: String,
        /// Why not, and what is possible.
        why: String,
    },
    /// What was asked for makes no sense for this device.
    #[error("{0}")]
    Wrong(String),
    /// The driver took it and nothing changed.
    #[error("{target}: the driver took {asked:?} without effect; it reads {seen:?}")]
    NoEffect {
        /// File or call.
        target: String,
        /// What was written.
        asked: String,
        /// What is read back.
        seen: String,
    },
    /// No GPU has this PCI address any more.
    #[error("there is no GPU at {0} any more; nothing was written")]
    Gone(String),
    /// The driver refused, or the device is gone.
    #[error("{target} <- {text:?}")]
    Refused {
        /// File or call.
        target: String,
        /// What was written.
        text: String,
        /// What the driver says.
        #[source]
        source: io::Error,
    },
    /// A lock failed, and what was before it could not be brought back: the clocks are neither.
    #[error("{failed}; and what was before was not brought back: {back}")]
    HalfMade {
        /// Why the lock failed.
        #[source]
        failed: Box<ClockError>,
        /// Why the way back failed.
        back: Box<ClockError>,
    },
    /// The device does not tell its state.
    #[error("{target} cannot be read")]
    Unreadable {
        /// File or call.
        target: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The clocks of one GPU.
pub trait ClockControl: Send {
    /// Which GPU; resolved ([`Identity::resolve`]).
    fn identity(&self) -> &Arc<Identity>;

    /// Clocks now.
    ///
    /// # Errors
    /// When nothing of it can be read.
    fn state(&mut self) -> Result<ClockState, ClockError>;

    /// Plans a lock, with the way back to what is in force now. Changes nothing, and needs no right to change.
    ///
    /// # Errors
    /// When the device cannot do it, or the present state cannot be read.
    fn plan(&mut self, lock: &Lock) -> Result<Plan, ClockError>;

    /// Plans giving the clocks back to the driver. There is no way back from it.
    ///
    /// # Errors
    /// When the device cannot do it.
    fn plan_reset(&mut self) -> Result<Plan, ClockError>;

    /// Where a step would be written now, in full.
    fn place(&self, step: &Step) -> String {
        step.target.clone()
    }

    /// Makes one step, on this very GPU, whatever number its card has by now.
    ///
    /// # Errors
    /// When the driver refuses, or the GPU is gone.
    fn apply(&mut self, step: &Step) -> Result<(), ClockError>;

    /// Reads back whether the steps, made one after the other, had their effect, as far as the device tells.
    ///
    /// # Errors
    /// [`ClockError::NoEffect`] when they had none.
    fn verify(&mut self, steps: &[Step]) -> Result<(), ClockError>;
}

/// The GPUs whose clocks can be asked for, and what was seen on the way.
#[derive(Default)]
pub struct ClocksFound {
    /// One for each GPU.
    pub controls: Vec<Box<dyn ClockControl>>,
    /// What was seen.
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

type Find = fn(&Machine) -> ClocksFound;

/// The ways to set clocks.
const WAYS: &[(Driver, Find)] = &[(Driver::AmdSysfs, amd::find), (Driver::Nvml, nvidia::find)];

/// Finds the GPUs whose clocks can be asked for; with `forced` only by those ways.
pub fn find(machine: &Machine, forced: &[Driver]) -> ClocksFound {
    let mut found = ClocksFound::default();
    for (driver, find) in WAYS {
        if forced.is_empty() || forced.contains(driver) {
            let way = find(machine);
            found.controls.extend(way.controls);
            found.findings.extend(way.findings);
        }
    }
    found
}

/// Clocks now, and whether somebody holds them.
///
/// # Errors
/// When nothing of it can be read.
pub fn get_current_clocks(device: &mut dyn ClockControl) -> Result<ClockState, ClockError> {
    device.state()
}

/// Locks the clocks of a device until they are reset, and gives the steps back to what was before. When a step fails or has
/// no effect, those before it are taken back.
///
/// # Errors
/// When the device cannot do it, the right is missing, or the driver takes it without effect.
pub fn lock_gpu_clocks(device: &mut dyn ClockControl, lock: &Lock) -> Result<Vec<Step>, ClockError> {
    let plan = device.plan(lock)?;
    make(device, &plan)?;
    Ok(plan.back)
}

/// Gives the clocks of a device back to its driver.
///
/// # Errors
/// When the right is missing, or the driver refuses.
pub fn reset_gpu_clocks(device: &mut dyn ClockControl) -> Result<(), ClockError> {
    let plan = device.plan_reset()?;
    make(device, &plan)
}

/// Makes the steps back, each whatever becomes of those before it.
///
/// # Errors
/// The first failure.
pub fn restore_clocks(device: &mut dyn ClockControl, back: &[Step]) -> Result<(), ClockError> {
    let mut first = None;
    for step in back {
        if let Err(error) = device.apply(step) {
            first.get_or_insert(error);
        }
    }
    match first {
        Some(error) => Err(error),
        None => device.verify(back),
    }
}

fn make(device: &mut dyn ClockControl, plan: &Plan) -> Result<(), ClockError> {
    for (made, step) in plan.forward.iter().enumerate() {
        if let Err(error) = device.apply(step) {
            return Err(if made > 0 { taken_back(device, plan, error) } else { error });
        }
    }
    device.verify(&plan.forward).map_err(|error| taken_back(device, plan, error))
}

/// Brings back what was before a plan that failed, and says why it failed.
fn taken_back(device: &mut dyn ClockControl, plan: &Plan, failed: ClockError) -> ClockError {
    match restore_clocks(device, &plan.back) {
        Ok(()) => failed,
        Err(back) => ClockError::HalfMade { failed: Box::new(failed), back: Box::new(back) },
    }
}

/// Clocks that are held for as long as this lives, and then given back, also when the thread panics.
pub struct Held<'a> {
    device: &'a mut dyn ClockControl,
    back: Vec<Step>,
}

impl<'a> Held<'a> {
    /// Makes a planned change.
    ///
    /// # Errors
    /// As [`lock_gpu_clocks`].
    pub fn take(device: &'a mut dyn ClockControl, plan: Plan) -> Result<Self, ClockError> {
        make(device, &plan)?;
        Ok(Self { device, back: plan.back })
    }

    /// Whose clocks.
    pub fn identity(&self) -> &Arc<Identity> {
        self.device.identity()
    }

    /// Leaves them as they are, until somebody resets them.
    pub fn keep(mut self) {
        self.back.clear();
    }

    /// Gives them back, and says whether that worked.
    ///
    /// # Errors
    /// When a step back failed or had no effect.
    pub fn give_back(mut self) -> Result<(), ClockError> {
        let back = std::mem::take(&mut self.back);
        restore_clocks(self.device, &back)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let back = std::mem::take(&mut self.back);
        if let Err(error) = restore_clocks(self.device, &back) {
            let gpu = self.device.identity().key();
            tracing::error!(?gpu, %error, "the clocks could not be given back");
        }
    }
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("gpu", self.device.identity()).field("back", &self.back).finish()
    }
}
