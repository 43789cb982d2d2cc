//! Clocks of NVIDIA GPUs by NVML: locked GPU clocks (from Volta on) and locked memory clocks (from Ampere on).
//!
//! NVML sets locks and resets them, and does not report which is in force: the way back from a lock is the
//! reset, and whether the clocks are locked stays unknown. A lock applies until it is reset, the driver is
//! reloaded or the machine boots, for every user of the GPU; setting one takes root. The hardware may still
//! go below it for power or heat.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::Identity;
use gpuvitals_sources::dialect::nvml::{self, Code, NvmlClocks};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::registry::Finding;

use crate::control::{ClockControl, ClockError, ClockState, ClockStep, ClocksFound, Level, Lock, Plan};

const LOCK_GPU: &str = "nvmlDeviceSetGpuLockedClocks";
const RESET_GPU: &str = "nvmlDeviceResetGpuLockedClocks";
const LOCK_MEMORY: &str = "nvmlDeviceSetMemoryLockedClocks";
const RESET_MEMORY: &str = "nvmlDeviceResetMemoryLockedClocks";
const REMEDY: &str = "run it as root";

/// Clocks between two entries of the list count as the nearer one; they are 15 MHz apart.
const STEP_MHZ: u32 = 15;
/// A GPU takes some tens of milliseconds to follow a lock: looked at so often, so far apart.
const LOOKS: u32 = 25;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Finds the NVIDIA GPUs. A captured tree has none.
pub fn find(machine: &Machine) -> ClocksFound {
    controls(nvml::clocks(machine))
}

/// Finds the GPUs that a certain library names.
pub fn find_by(machine: &Machine, library: &Path) -> ClocksFound {
    controls(nvml::clocks_by(machine, library))
}

fn controls((gpus, findings): (Vec<NvmlClocks>, Vec<Finding>)) -> ClocksFound {
    let control = |gpu| Box::new(NvidiaClocks { gpu }) as Box<dyn ClockControl>;
    ClocksFound { controls: gpus.into_iter().map(control).collect(), findings }
}

/// The clocks of one NVIDIA GPU.
struct NvidiaClocks {
    gpu: NvmlClocks,
}

/// Lowest and highest clock of a lock, MHz.
type Bounds = (u32, u32);

impl NvidiaClocks {
    fn target(&self, call: &str) -> String {
        format!("{call}({})", self.gpu.identity().uuid().unwrap_or_default())
    }

    fn step(&self, call: &str, bounds: Option<Bounds>) -> ClockStep {
        let text = bounds.map_or_else(String::new, |(min, max)| format!("{min},{max}"));
        ClockStep { target: self.target(call), text }
    }

    fn unreadable(&self, call: &str, code: Code) -> ClockError {
        ClockError::Unreadable { target: self.target(call), source: io::Error::other(code.to_string()) }
    }

    /// GPU clocks that can be set beside the highest memory clock, highest first.
    fn gpu_choices(&self, memory_choices: &[u32]) -> Vec<u32> {
        let highest = memory_choices.iter().max();
        highest.map_or_else(Vec::new, |memory| self.gpu.gpu_choices_mhz(*memory))
    }

    /// The requested bounds of the GPU clock, if any.
    fn gpu_bounds(
        &self,
        lock: &Lock,
        choices: &[u32],
        plan: &mut Plan,
    ) -> Result<Option<Bounds>, ClockError> {
        let what = "GPU clock";
        match (lock.level, lock.gpu_mhz) {
            (None | Some(Level::Manual), None) => Ok(None),
            (None | Some(Level::Manual), Some(mhz)) => nearest(choices, mhz, what, plan).map(Some),
            (Some(Level::Auto), None) => {
                plan.forward.push(self.step(RESET_GPU, None));
                Ok(None)
            }
            (Some(Level::High), None) => highest(choices, what).map(Some),
            (Some(Level::Low), None) => lowest(choices, what).map(Some),
            (Some(level), None) => Err(ClockError::NotSupported {
                what: format!("level {}", level.as_str()),
                why: "NVIDIA has the levels auto, low and high, and frequencies".to_owned(),
            }),
            (Some(_), Some(_)) => {
                Err(ClockError::Wrong("a level and a frequency exclude each other on NVIDIA".to_owned()))
            }
        }
    }
}

impl ClockControl for NvidiaClocks {
    fn identity(&self) -> &Arc<Identity> {
        self.gpu.identity()
    }

    fn state(&mut self) -> Result<ClockState, ClockError> {
        let gpu_mhz = self.gpu.gpu_mhz();
        let memory_choices_mhz = self.gpu.memory_choices_mhz();
        let gpu_choices_mhz = self.gpu_choices(&memory_choices_mhz);
        let ends = |choices: &[u32]| Some((*choices.iter().min()?, *choices.iter().max()?));
        Ok(ClockState {
            gpu_mhz: Some(gpu_mhz.map_err(|code| self.unreadable("nvmlDeviceGetClockInfo", code))?),
            memory_mhz: self.gpu.memory_mhz().ok(),
            gpu_range_mhz: ends(&gpu_choices_mhz),
            gpu_choices_mhz,
            memory_choices_mhz,
            ..ClockState::default()
        })
    }

    fn plan(&mut self, lock: &Lock) -> Result<Plan, ClockError> {
        let mut plan = Plan::default();
        let memory_choices = self.gpu.memory_choices_mhz();
        let gpu_choices = self.gpu_choices(&memory_choices);
        if let Some(bounds) = self.gpu_bounds(lock, &gpu_choices, &mut plan)? {
            plan.forward.push(self.step(LOCK_GPU, Some(bounds)));
            plan.back.push(self.step(RESET_GPU, None));
        }
        let memory = lock.memory_mhz.map(|mhz| nearest(&memory_choices, mhz, "memory clock", &mut plan));
        let memory = memory.transpose()?;
        if let Some(bounds) = memory {
            plan.forward.push(self.step(LOCK_MEMORY, Some(bounds)));
            plan.back.push(self.step(RESET_MEMORY, None));
        }
        if plan.forward.is_empty() {
            let text = "nothing to lock: name a level (auto, low or high) or a frequency";
            return Err(ClockError::Wrong(text.to_owned()));
        }
        if !plan.back.is_empty() {
            plan.notes
                .push("NVML does not tell which lock is in force: the way back is its reset".to_owned());
        }
        Ok(plan)
    }

    fn plan_reset(&mut self) -> Result<Plan, ClockError> {
        let mut forward = vec![self.step(RESET_GPU, None)];
        // Those that list one memory clock or none have nothing to lock.
        if self.gpu.memory_choices_mhz().len() > 1 {
            forward.push(self.step(RESET_MEMORY, None));
        }
        Ok(Plan { forward, ..Plan::default() })
    }

    fn apply(&mut self, step: &ClockStep) -> Result<(), ClockError> {
        let is = |call: &str| step.target == self.target(call);
        let answer = match bounds_of(&step.text) {
            Some((min, max)) if is(LOCK_GPU) => self.gpu.lock_gpu(min, max),
            Some((min, max)) if is(LOCK_MEMORY) => self.gpu.lock_memory(min, max),
            None if is(RESET_GPU) => self.gpu.reset_gpu(),
            None if is(RESET_MEMORY) => self.gpu.reset_memory(),
            _ => return Err(ClockError::Wrong(format!("{step} is no step of this GPU"))),
        };
        let code = match answer {
            Ok(()) => return Ok(()),
            // Turing lists several memory clocks and can lock none of them: there is nothing to restore.
            Err(Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND) if is(RESET_MEMORY) => return Ok(()),
            Err(code) => code,
        };
        let target = step.target.clone();
        Err(match code {
            Code::NO_PERMISSION => ClockError::Denied { target, remedy: REMEDY.to_owned() },
            Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND => {
                let why = "GPU clocks are locked from Volta on, memory clocks from Ampere on".to_owned();
                ClockError::NotSupported { what: target, why }
            }
            _ => ClockError::Refused {
                target,
                text: step.text.clone(),
                source: io::Error::other(code.to_string()),
            },
        })
    }

    fn verify(&mut self, steps: &[ClockStep]) -> Result<(), ClockError> {
        let lock = steps.iter().rfind(|step| step.target == self.target(LOCK_GPU));
        let Some((step, (min, max))) = lock.and_then(|step| Some((step, bounds_of(&step.text)?))) else {
            return Ok(());
        };
        let mut seen = None;
        for _ in 0..LOOKS {
            let Ok(mhz) = self.gpu.gpu_mhz() else { return Ok(()) };
            // An idle GPU may rest below the lock, and power or heat may hold it there.
            let has_reason = self.gpu.has_reason();
            if mhz <= max.saturating_add(STEP_MHZ) && (mhz.saturating_add(STEP_MHZ) >= min || has_reason) {
                return Ok(());
            }
            seen = Some(mhz);
            std::thread::park_timeout(BETWEEN_LOOKS);
        }
        Err(ClockError::NoEffect {
            target: step.target.clone(),
            asked: step.text.clone(),
            seen: seen.map_or_else(String::new, |mhz| format!("{mhz} MHz")),
        })
    }
}

/// `1200,1980` as bounds.
fn bounds_of(text: &str) -> Option<Bounds> {
    let (min, max) = text.split_once(',')?;
    Some((min.parse().ok()?, max.parse().ok()?))
}

fn none_listed(what: &str) -> ClockError {
    ClockError::NotSupported {
        what: format!("choosing a {what}"),
        why: "the driver lists no clocks for this GPU".to_owned(),
    }
}

fn highest(choices: &[u32], what: &str) -> Result<Bounds, ClockError> {
    choices.iter().max().map(|mhz| (*mhz, *mhz)).ok_or_else(|| none_listed(what))
}

fn lowest(choices: &[u32], what: &str) -> Result<Bounds, ClockError> {
    choices.iter().min().map(|mhz| (*mhz, *mhz)).ok_or_else(|| none_listed(what))
}

/// The listed clock nearest to the requested one; only listed clocks can be locked exactly.
fn nearest(choices: &[u32], mhz: u32, what: &str, plan: &mut Plan) -> Result<Bounds, ClockError> {
    let ((low, _), (high, _)) = (lowest(choices, what)?, highest(choices, what)?);
    if !(low..=high).contains(&mhz) {
        return Err(ClockError::Wrong(format!("a {what} of {mhz} MHz: it can be {low} to {high} MHz")));
    }
    let near = choices.iter().copied().min_by_key(|choice| choice.abs_diff(mhz)).unwrap_or(mhz);
    if near != mhz {
        plan.notes.push(format!("{near} MHz is the {what} nearest to {mhz} MHz"));
    }
    Ok((near, near))
}
