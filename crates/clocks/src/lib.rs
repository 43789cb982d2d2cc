//! Locking the clocks of GPUs for measurements, and restoring them.
//!
//! A change is planned before it is made: a [`Plan`] has the steps forward and the steps back, so that it can
//! be shown without being made, and so that the way back is known (and may be saved) before the first step.
//! Every user of the GPU shares its clocks: [`Held`] restores them when it is dropped.
//!
//! ```no_run
//! use gpuvitals_clocks::{Held, Level, Lock, find, get_current_clocks};
//! use gpuvitals_sources::machine::Machine;
//!
//! let found = find(&Machine::local("node1"), &[]);
//! let mut device = found.controls.into_iter().next().ok_or("no GPU")?;
//! println!("{:?}", get_current_clocks(device.as_mut())?);
//! let plan = device.plan(&Lock { level: Some(Level::High), ..Lock::default() })?;
//! let held = Held::take(device.as_mut(), plan)?;
//! // ... measure ...
//! held.give_back()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amd;
mod control;
mod journal;
pub mod nvidia;

use std::fmt;
use std::sync::Arc;

use gpuvitals_core::Identity;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;

pub use control::{ClockControl, ClockError, ClockState, ClockStep, ClocksFound, Level, Lock, Plan};
pub use journal::{ClockJournal, ClocksBusy, is_held};

type Find = fn(&Machine) -> ClocksFound;

/// The drivers that set clocks.
const WAYS: &[(Driver, Find)] = &[(Driver::AmdSysfs, amd::find), (Driver::Nvml, nvidia::find)];

/// Finds the GPUs with controllable clocks; with `forced` only by those drivers.
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

/// Present clocks, and whether they are locked.
///
/// # Errors
/// If nothing of it can be read.
pub fn get_current_clocks(device: &mut dyn ClockControl) -> Result<ClockState, ClockError> {
    device.state()
}

/// Locks the clocks of a device until they are reset, and returns the steps back to the previous settings. If
/// a step fails or has no effect, the earlier ones are undone.
///
/// ```no_run
/// use gpuvitals_clocks::{Lock, find, lock_gpu_clocks, reset_gpu_clocks, restore_clocks};
/// use gpuvitals_sources::machine::Machine;
///
/// let mut found = find(&Machine::local("node1"), &[]);
/// for device in &mut found.controls {
///     let back = lock_gpu_clocks(device.as_mut(), &Lock { gpu_mhz: Some(1_500), ..Lock::default() })?;
///     // … measure …
///     restore_clocks(device.as_mut(), &back)?; // as they were
///     reset_gpu_clocks(device.as_mut())?; // or as the driver chooses them
/// }
/// # Ok::<(), gpuvitals_clocks::ClockError>(())
/// ```
///
/// # Errors
/// If the device cannot do it, the right is missing, or the driver accepts it without effect.
pub fn lock_gpu_clocks(device: &mut dyn ClockControl, lock: &Lock) -> Result<Vec<ClockStep>, ClockError> {
    let plan = device.plan(lock)?;
    make(device, &plan)?;
    Ok(plan.back)
}

/// Resets the clocks of a device to its driver's control.
///
/// # Errors
/// If the right is missing, or the driver refuses.
pub fn reset_gpu_clocks(device: &mut dyn ClockControl) -> Result<(), ClockError> {
    let plan = device.plan_reset()?;
    make(device, &plan)
}

/// Makes the steps back, each even if an earlier one failed.
///
/// # Errors
/// The first failure.
pub fn restore_clocks(device: &mut dyn ClockControl, back: &[ClockStep]) -> Result<(), ClockError> {
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

/// Restores the settings before a failed plan, and returns the plan's error.
fn taken_back(device: &mut dyn ClockControl, plan: &Plan, failed: ClockError) -> ClockError {
    match restore_clocks(device, &plan.back) {
        Ok(()) => failed,
        Err(back) => ClockError::HalfMade { failed: Box::new(failed), back: Box::new(back) },
    }
}

/// Clocks that are locked as long as this lives, and then restored, also if the thread panics.
pub struct Held<'a> {
    device: &'a mut dyn ClockControl,
    back: Vec<ClockStep>,
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

    /// The GPU whose clocks are held.
    pub fn identity(&self) -> &Arc<Identity> {
        self.device.identity()
    }

    /// Leaves them locked until they are reset.
    pub fn keep(mut self) {
        self.back.clear();
    }

    /// Restores them.
    ///
    /// # Errors
    /// If a step back failed or had no effect.
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
