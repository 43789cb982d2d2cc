//! Clocks of AMD GPUs by files of sysfs: `power_dpm_force_performance_level`, `pp_dpm_sclk`, `pp_dpm_mclk`,
//! `pp_od_clk_voltage`.
//!
//! A frequency is locked in the way that the part supports: by the nearest entry of a fixed list of clocks
//! (GCN, Vega, MI100), by equal bounds in its overdrive table (RDNA with overdrive enabled, APUs), or by a
//! cap with `perf_determinism` (MI200, MI300, which refuse equal bounds). Lists of up to three entries are
//! lowest, present and highest clock: only their ends can be locked.
//!
//! The way back restores the previous bounds of the overdrive table, not the whole table's defaults, since it
//! may also contain an offset or curve of the user's. The mask of a list cannot be read back: on the way back
//! to `manual` all entries are allowed; every other level allows them by itself.

mod tables;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::machine::{Machine, PinnedFile};
use gpuvitals_sources::probe::Driver;

use crate::control::{ClockControl, ClockError, ClockState, ClockStep, ClocksFound, Level, Lock, Plan};
use tables::{ClockList, Overdrive};

const LEVEL: &str = "power_dpm_force_performance_level";
const GPU_LIST: &str = "pp_dpm_sclk";
const MEMORY_LIST: &str = "pp_dpm_mclk";
const OVERDRIVE: &str = "pp_od_clk_voltage";
/// Overdrive in per cent, of drivers before Vega20.
const OVERDRIVE_PCT: &str = "pp_sclk_od";
/// All files that are ever written.
const WRITTEN: [&str; 5] = [LEVEL, GPU_LIST, MEMORY_LIST, OVERDRIVE, OVERDRIVE_PCT];
/// PCI class of processing accelerators: Instinct.
const CLASS_ACCELERATOR: u32 = 0x12;

/// Finds the AMD GPUs.
pub(crate) fn find(machine: &Machine) -> ClocksFound {
    let control = |card: amd_sysfs::Card| {
        let identity = Arc::new(card.identity(machine, Driver::AmdSysfs, None));
        let clocks = AmdClocks { identity, device: card.device, machine: machine.clone() };
        Box::new(clocks) as Box<dyn ClockControl>
    };
    let controls = amd_sysfs::cards(machine).into_iter().map(control).collect();
    ClocksFound { controls, ..ClocksFound::default() }
}

/// The clocks of one AMD GPU.
#[derive(Debug)]
struct AmdClocks {
    identity: Arc<Identity>,
    /// Its folder, `…/card0/device`, as last looked up.
    device: PathBuf,
    machine: Machine,
}

/// How a GPU clock can be held.
enum Hold {
    /// By an entry of the list.
    Entry(u32),
    /// By both bounds of the overdrive table, which are these now.
    Bounds { mhz: u32, before: (u32, u32) },
    /// By the upper bound, with `perf_determinism`.
    Cap { mhz: u32, before: (u32, u32) },
}

impl AmdClocks {
    /// Looks the folder up again if another GPU, or none, has it now: card numbers change when a driver is
    /// reloaded.
    fn look_up(&mut self) -> Result<(), ClockError> {
        let Some(pci) = self.identity.get(IdentityColumn::Pci) else { return Ok(()) };
        if amd_sysfs::address(&self.device).as_deref() != Some(pci) {
            let cards = amd_sysfs::cards(&self.machine);
            let card = cards.into_iter().find(|card| card.pci.as_deref() == Some(pci));
            self.device = card.ok_or_else(|| ClockError::Gone(pci.to_owned()))?.device;
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<String, ClockError> {
        let path = self.device.join(name);
        read(&path).map_err(|source| ClockError::Unreadable { target: path.display().to_string(), source })
    }

    fn list(&self, name: &str) -> ClockList {
        ClockList::parse(&self.read(name).unwrap_or_default())
    }

    fn overdrive(&self) -> Overdrive {
        Overdrive::parse(&self.read(OVERDRIVE).unwrap_or_default())
    }

    /// The level in force, in the driver's word.
    fn level(&self) -> Result<String, ClockError> {
        self.read(LEVEL).map_err(|error| {
            let ClockError::Unreadable { source, .. } = &error else { return error };
            let why = match source.kind() {
                io::ErrorKind::NotFound => {
                    format!("the driver has no {LEVEL} for this GPU (in an SR-IOV guest the host has it)")
                }
                io::ErrorKind::PermissionDenied if self.is_asleep() => {
                    "the GPU is asleep; use it, or write `on` to its power/control".to_owned()
                }
                _ => return error,
            };
            ClockError::NotSupported { what: "setting clocks".to_owned(), why }
        })
    }

    fn is_asleep(&self) -> bool {
        let status = read(&self.device.join("power/runtime_status"));
        status.is_ok_and(|status| matches!(status.as_str(), "suspended" | "suspending"))
    }

    fn is_accelerator(&self) -> bool {
        let class = self.read("class").ok().and_then(|class| amd_sysfs::parse_hex(&class));
        let of_uevent = || {
            let uevent = self.read("uevent").ok()?;
            let class = uevent.lines().find_map(|line| line.strip_prefix("PCI_CLASS="))?;
            u32::from_str_radix(class.trim(), 16).ok()
        };
        class.or_else(of_uevent).is_some_and(|class| class >> 16 == CLASS_ACCELERATOR)
    }

    /// Clock of a hwmon sensor (`freq1_input`, Hz), MHz.
    fn sensor_mhz(&self, name: &str) -> Option<u32> {
        let folders = std::fs::read_dir(self.device.join("hwmon")).ok()?;
        let hz: u64 =
            folders.flatten().find_map(|folder| read(&folder.path().join(name)).ok()?.parse().ok())?;
        u32::try_from(hz / 1_000_000).ok()
    }

    fn hold(&self, mhz: u32, level: Option<Level>, notes: &mut Vec<String>) -> Result<Hold, ClockError> {
        let list = self.list(GPU_LIST);
        let overdrive = self.overdrive();
        let is_cap = level == Some(Level::PerfDeterminism);
        if !is_cap && list.is_fixed() {
            return entry_of(&list, mhz, "GPU clock", notes).map(Hold::Entry);
        }
        if let Some(before) = overdrive.gpu_bounds_mhz {
            let range = overdrive.gpu_range_mhz.or_else(|| list.range_mhz()).unwrap_or(before);
            within(mhz, range, "GPU clock")?;
            if is_cap || self.is_accelerator() {
                notes.push(format!("the GPU clock is capped at {mhz} MHz by perf_determinism"));
                return Ok(Hold::Cap { mhz, before });
            }
            notes.push(format!("the GPU clock is held at {mhz} MHz by the bounds of its overdrive table"));
            return Ok(Hold::Bounds { mhz, before });
        }
        let ends = list.ends();
        let near = ends.iter().find(|(_, end)| end.abs_diff(mhz) <= end / 50).map(|(index, _)| *index);
        if let Some(index) = near.filter(|_| !is_cap) {
            return Ok(Hold::Entry(index));
        }
        let ends: Vec<String> = ends.iter().map(|(_, end)| format!("{end} MHz")).collect();
        let listed = if ends.is_empty() { "no clock".to_owned() } else { ends.join(" and ") };
        Err(ClockError::NotSupported {
            what: format!("a GPU clock of {mhz} MHz"),
            why: format!(
                "the driver lists {listed}, and shows no bounds to set \
                 (overdrive is enabled by the kernel parameter amdgpu.ppfeaturemask); try the levels high or profile_peak"
            ),
        })
    }

    /// The writes that set bounds of the GPU clock.
    fn bounds(low: Option<u32>, high: u32) -> Vec<ClockStep> {
        let low = low.map(|mhz| step(OVERDRIVE, format!("s 0 {mhz}\n")));
        let high = step(OVERDRIVE, format!("s 1 {high}\n"));
        low.into_iter().chain([high, step(OVERDRIVE, "c")]).collect()
    }

    /// The write that allows only these entries of a list.
    fn mask(name: &str, entries: &[u32]) -> Option<ClockStep> {
        let numbers: Vec<String> = entries.iter().map(u32::to_string).collect();
        (!numbers.is_empty()).then(|| step(name, format!("{} ", numbers.join(" "))))
    }

    /// The steps back from a lock that touches the overdrive table or these lists.
    fn way_back(&self, hold: Option<&Hold>, masked: &[&str]) -> Result<Vec<ClockStep>, ClockError> {
        let level = Level::by_name(&self.level()?).unwrap_or(Level::Auto);
        let mut back = Vec::new();
        if let Some(Hold::Bounds { before: (low, high), .. }) = hold {
            // The driver takes bounds in `manual` only, and another program may have left it meanwhile.
            back.push(step(LEVEL, Level::Manual.as_str()));
            back.extend(Self::bounds(Some(*low), *high));
        }
        if level != Level::Manual || back.is_empty() {
            back.push(step(LEVEL, level.as_str()));
        }
        if let Some(Hold::Cap { before: (low, high), .. }) = hold {
            // Leaving `perf_determinism` lifts its cap; what was there before is set again.
            match level {
                Level::Manual => back.extend(Self::bounds(Some(*low), *high)),
                Level::PerfDeterminism => back.extend(Self::bounds(None, *high)),
                _ => {}
            }
        }
        if level == Level::Manual {
            back.extend(masked.iter().filter_map(|name| Self::mask(name, &self.list(name).indices())));
        }
        Ok(back)
    }

    fn no_effect(&self, step: &ClockStep, seen: String) -> ClockError {
        ClockError::NoEffect { target: self.place(step), asked: step.text.trim_end().to_owned(), seen }
    }
}

impl ClockControl for AmdClocks {
    fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    fn state(&mut self) -> Result<ClockState, ClockError> {
        self.look_up()?;
        if self.is_asleep() {
            return Ok(ClockState { is_asleep: true, ..ClockState::default() });
        }
        let level = self.level()?;
        let (gpu, memory, overdrive) = (self.list(GPU_LIST), self.list(MEMORY_LIST), self.overdrive());
        Ok(ClockState {
            gpu_mhz: self.sensor_mhz("freq1_input").or(gpu.current_mhz),
            memory_mhz: self.sensor_mhz("freq2_input").or(memory.current_mhz),
            is_locked: match Level::by_name(&level) {
                Some(Level::Auto) => Some(false),
                // All entries may be allowed; the driver does not report it.
                Some(Level::Manual) | None => None,
                Some(_) => Some(true),
            },
            level: Some(level),
            gpu_range_mhz: overdrive.gpu_range_mhz.or_else(|| gpu.range_mhz()),
            gpu_choices_mhz: gpu.clocks_mhz(),
            memory_choices_mhz: memory.clocks_mhz(),
            is_asleep: false,
        })
    }

    fn plan(&mut self, lock: &Lock) -> Result<Plan, ClockError> {
        check(lock)?;
        self.look_up()?;
        let mut notes = Vec::new();
        let hold = lock.gpu_mhz.map(|mhz| self.hold(mhz, lock.level, &mut notes)).transpose()?;
        let gpu = if let Some(Hold::Entry(index)) = hold { Some(index) } else { None };
        let memory = lock.memory_mhz.map(|mhz| {
            let list = self.list(MEMORY_LIST);
            entry_of(&list, mhz, "memory clock", &mut notes)
        });
        let lists = [(GPU_LIST, gpu), (MEMORY_LIST, memory.transpose()?)];
        let chosen = || lists.iter().filter_map(|(name, entry)| Some((*name, (*entry)?)));
        let masks: Vec<ClockStep> = chosen().filter_map(|(name, entry)| Self::mask(name, &[entry])).collect();
        let masked: Vec<&str> = chosen().map(|(name, _)| name).collect();

        let level = match (&hold, lock.level) {
            (Some(Hold::Cap { .. }), _) => Level::PerfDeterminism,
            (None, Some(level)) if masks.is_empty() => level,
            _ => Level::Manual,
        };
        if level == Level::PerfDeterminism && !masks.is_empty() {
            return Err(ClockError::Wrong(
                "this GPU holds its clock by perf_determinism, which leaves the memory clock to the driver"
                    .to_owned(),
            ));
        }
        let mut forward = vec![step(LEVEL, level.as_str())];
        match hold {
            Some(Hold::Bounds { mhz, .. }) => forward.extend(Self::bounds(Some(mhz), mhz)),
            Some(Hold::Cap { mhz, .. }) => forward.extend(Self::bounds(None, mhz)),
            Some(Hold::Entry(_)) | None => {}
        }
        forward.extend(masks);
        Ok(Plan { back: self.way_back(hold.as_ref(), &masked)?, forward, notes })
    }

    fn plan_reset(&mut self) -> Result<Plan, ClockError> {
        self.look_up()?;
        self.level()?;
        let has_percent = self.device.join(OVERDRIVE_PCT).exists();
        let percent = has_percent.then(|| step(OVERDRIVE_PCT, "0"));
        let level = step(LEVEL, Level::Auto.as_str());
        Ok(Plan { forward: percent.into_iter().chain([level]).collect(), ..Plan::default() })
    }

    fn place(&self, step: &ClockStep) -> String {
        self.device.join(&step.target).display().to_string()
    }

    fn apply(&mut self, step: &ClockStep) -> Result<(), ClockError> {
        if !WRITTEN.contains(&step.target.as_str()) {
            // Steps may come from a journal, and are checked where they enter.
            return Err(ClockError::Wrong(format!("{} holds no clocks of this GPU", step.target)));
        }
        self.look_up()?;
        // Never made, and written in one call: a sysfs file takes a call as a command.
        let written = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.device.join(&step.target))
            .and_then(|mut file| file.write_all(step.text.as_bytes()));
        match written.map_err(|error| refusal(self.place(step), step, error)) {
            // Drivers that know no overdrive in per cent have the file and refuse it.
            Err(ClockError::Refused { .. }) if step.target == OVERDRIVE_PCT => Ok(()),
            written => written,
        }
    }

    fn verify(&mut self, steps: &[ClockStep]) -> Result<(), ClockError> {
        self.look_up()?;
        let level = steps.iter().rev().find(|step| step.target == LEVEL);
        if let Some(step) = level {
            let seen = self.read(LEVEL)?;
            if seen != step.text {
                return Err(self.no_effect(step, seen));
            }
            if seen != Level::Manual.as_str() && seen != Level::PerfDeterminism.as_str() {
                // Other levels have bounds of their own.
                return Ok(());
            }
        }
        let Some((low, high)) = self.overdrive().gpu_bounds_mhz else { return Ok(()) };
        for (bound, seen) in [("s 0 ", low), ("s 1 ", high)] {
            let asked = steps.iter().rev().find(|step| step.text.starts_with(bound));
            let seen = format!("{bound}{seen}");
            if let Some(step) = asked.filter(|step| step.text.trim_end() != seen) {
                return Err(self.no_effect(step, seen));
            }
        }
        Ok(())
    }
}

/// Refuses a lock whose parts contradict each other.
fn check(lock: &Lock) -> Result<(), ClockError> {
    let names_clock = lock.gpu_mhz.is_some() || lock.memory_mhz.is_some();
    let text = match lock.level {
        None if !names_clock => "nothing to lock: name a level or a frequency".to_owned(),
        None | Some(Level::Manual) => return Ok(()),
        Some(Level::PerfDeterminism) if lock.memory_mhz.is_none() => return Ok(()),
        Some(_) if !names_clock => return Ok(()),
        Some(level) => format!(
            "with level {} the driver chooses these clocks; leave out the level, or the clocks",
            level.as_str()
        ),
    };
    Err(ClockError::Wrong(text))
}

/// The entry nearest to a frequency within the list.
fn entry_of(list: &ClockList, mhz: u32, what: &str, notes: &mut Vec<String>) -> Result<u32, ClockError> {
    if let Some(range) = list.range_mhz() {
        within(mhz, range, what)?;
    }
    let nearest = list.entries.iter().min_by_key(|(_, entry)| entry.abs_diff(mhz));
    let Some(&(index, entry)) = nearest else {
        let why = "the driver lists no clocks".to_owned();
        return Err(ClockError::NotSupported { what: format!("a {what} of {mhz} MHz"), why });
    };
    if entry != mhz {
        notes.push(format!("{what}: level {index} ({entry} MHz) is the nearest to {mhz} MHz"));
    }
    Ok(index)
}

fn within(mhz: u32, (low, high): (u32, u32), what: &str) -> Result<(), ClockError> {
    if (low..=high).contains(&mhz) {
        return Ok(());
    }
    Err(ClockError::Wrong(format!("a {what} of {mhz} MHz is out of range: {low} to {high} MHz")))
}

fn refusal(target: String, step: &ClockStep, source: io::Error) -> ClockError {
    match source.kind() {
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            let remedy = "this needs root, or a udev rule that lets your group write this file".to_owned();
            ClockError::Denied { target, remedy }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            let remedy = format!(
                "root is refused too ({source}): a container needs /sys writable, in an SR-IOV guest only the host sets \
                 clocks, and a GPU that is suspended or in reset takes none"
            );
            ClockError::Denied { target, remedy }
        }
        io::ErrorKind::NotFound => ClockError::NotSupported {
            what: format!("writing {target}"),
            why: "the driver does not have this file for this GPU".to_owned(),
        },
        _ => ClockError::Refused { target, text: step.text.clone(), source },
    }
}

fn read(path: &Path) -> io::Result<String> {
    PinnedFile::open(path)?.read_text().map(str::to_owned)
}

fn step(name: &str, text: impl Into<String>) -> ClockStep {
    ClockStep { target: name.to_owned(), text: text.into() }
}
