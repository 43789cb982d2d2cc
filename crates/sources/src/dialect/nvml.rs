//! NVIDIA GPUs by NVML, the driver's own library, loaded at run time: a machine without it loses nothing.
//!
//! The library is started once and stays for the life of the process. Each GPU is a probe of its own with the MIG
//! instances on it, so that a GPU whose calls hang costs nobody else anything; what is asked at which tier stands in
//! `board`, `fields`, `singles` and `gpm`. What a GPU says it does not have is not asked again until it is opened anew
//! or its MIG instances change.

mod board;
mod code;
mod cost;
mod events;
mod fields;
mod gpm;
mod ledger;
mod library;
mod mig;
mod probe;
mod processes;
mod raw;
mod singles;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{Identity, IdentityColumn, IdentityError};

use crate::machine::Machine;
use crate::probe::Driver;
use crate::registry::{Finding, Found, Verdict};
pub(crate) use code::{Answer, Code};
use events::Events;
use library::{Listed, OpenError, Opened};
use probe::NvmlProbe;
use processes::Processes;
pub(crate) use raw::{Gpu, Raw};

/// Environment variable that names another library than the system's: that of a driver in an unusual place, or a
/// stand-in.
pub const LIBRARY_VARIABLE: &str = "GPUVITALS_NVML_LIBRARY";
/// How long the library may take to start and to name the GPUs; without persistence mode it powers them up meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const SUBJECT: &str = "nvml";

/// Finds the NVIDIA GPUs of this machine. In a captured tree there are none, unless [`LIBRARY_VARIABLE`] says so.
pub fn find(machine: &Machine) -> Found {
    libraries(machine).map_or_else(Found::default, |paths| probes(machine, paths, PATIENCE))
}

/// Finds the GPUs that a certain library names; waits so long at most for it to start and for each GPU to answer.
pub fn find_by(machine: &Machine, library: &Path, patience: Duration) -> Found {
    probes(machine, vec![library.to_owned()], patience)
}

/// Times every call on every GPU, some twenty times each: a finding for each call. Takes a second or so, and waits for a GPU
/// that hangs as long as that does.
pub fn measure(machine: &Machine) -> Vec<Finding> {
    libraries(machine).map_or_else(Vec::new, |libraries| measured(machine, libraries))
}

/// [`measure`] by a certain library.
pub fn measure_by(machine: &Machine, library: &Path) -> Vec<Finding> {
    measured(machine, vec![library.to_owned()])
}

fn measured(machine: &Machine, libraries: Vec<PathBuf>) -> Vec<Finding> {
    let (gpus, _) = gpus(machine, libraries, PATIENCE);
    gpus.iter().flat_map(cost::measure).collect()
}

/// The libraries to try, in order; none where the machine is a captured tree.
pub(crate) fn libraries(machine: &Machine) -> Option<Vec<PathBuf>> {
    match std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Some(vec![PathBuf::from(path)]),
        None if machine.is_captured() => None,
        None => Some(library::PATHS.map(PathBuf::from).to_vec()),
    }
}

/// Key ([`Identity::key`]) of the MIG instance that orchestrators call by this name (`MIG-…`, or `MIG-GPU-…/7/0` of old
/// drivers); none before a probe has read it.
pub(crate) fn instance_key(mig_uuid: &str) -> Option<Arc<str>> {
    mig::key_of(mig_uuid)
}

fn probes(machine: &Machine, libraries: Vec<PathBuf>, patience: Duration) -> Found {
    let (gpus, findings) = gpus(machine, libraries, patience);
    let mut found = Found { findings, ..Found::default() };
    let Some(raw) = gpus.first().map(|known| known.raw) else { return found };
    let events = Events::start(raw);
    let mut processes = Processes::new(raw, machine);
    for known in gpus {
        processes.watch(&known.identity);
        found.probes.push(Box::new(NvmlProbe::new(known, events.clone())));
    }
    found.processes.push(Box::new(processes));
    found
}

/// A GPU that has a name.
pub(crate) struct Known {
    pub(crate) raw: &'static Raw,
    pub(crate) gpu: Gpu,
    pub(crate) identity: Arc<Identity>,
    /// Whether `GetPowerUsage` is the average over a second on this part.
    is_power_averaged: bool,
}

/// The GPUs that the first of these libraries names, and what was seen on the way.
pub(crate) fn gpus(
    machine: &Machine,
    libraries: Vec<PathBuf>,
    patience: Duration,
) -> (Vec<Known>, Vec<Finding>) {
    let opened = match library::open(libraries, patience) {
        Ok(opened) => opened,
        Err(error) => return (Vec::new(), vec![why_none(machine, &error)]),
    };
    let Opened { raw, path, driver, nvml, gpus } = opened;
    let text = format!("driver {driver}, NVML {nvml}, {} GPUs ({})", gpus.len(), path.display());
    let (mut known, mut findings) = (Vec::new(), vec![Finding::new(Verdict::Good, SUBJECT, text)]);
    for (index, listed) in gpus.into_iter().enumerate() {
        let subject = format!("{SUBJECT} GPU {index}");
        let broken = |text: String| Finding::new(Verdict::Broken, &subject, text);
        findings.push(match listed {
            None => broken(format!("it has not answered within {} s", patience.as_secs())).remedy(
                "look for NVRM and Xid lines in the kernel log; a GPU that hangs needs a reset or a reboot",
            ),
            Some(Err(code)) => broken(code.to_string()).remedy(cure(code)),
            Some(Ok(listed)) => match identity(machine, &driver, index, &listed) {
                Ok(identity) => {
                    let pci = identity.get(IdentityColumn::Pci).unwrap_or("no PCI address");
                    let model = identity.get(IdentityColumn::Model).unwrap_or("a GPU without a name");
                    let finding = Finding::new(Verdict::Good, format!("{subject} ({pci})"), model);
                    let is_power_averaged = is_power_averaged(&listed);
                    let identity = Arc::new(identity);
                    known.push(Known { raw, gpu: listed.gpu, identity, is_power_averaged });
                    finding
                }
                Err(error) => broken(format!("what the driver calls it is no name: {error}")),
            },
        });
    }
    (known, findings)
}

fn identity(
    machine: &Machine,
    driver: &str,
    index: usize,
    listed: &Listed,
) -> Result<Identity, IdentityError> {
    let mut identity = Identity::default()
        .with(IdentityColumn::Node, &machine.node)?
        .with(IdentityColumn::Vendor, "nvidia")?
        .with(IdentityColumn::Source, Driver::Nvml.as_str())?
        .with(IdentityColumn::Uuid, &listed.uuid)?
        .with(IdentityColumn::Driver, driver)?;
    identity.index = i32::try_from(index).ok();
    if let Some(name) = &listed.name {
        identity.set(IdentityColumn::Model, name)?;
    }
    if let Some((pci, _)) = &listed.pci {
        identity.set(IdentityColumn::Pci, pci)?;
    }
    identity.resolve()?;
    Ok(identity)
}

/// Whether `GetPowerUsage` is the average over a second: from Ampere on, but not on GA100 (A100, A30 and their kin).
fn is_power_averaged(listed: &Listed) -> bool {
    const AMPERE: u32 = 7;
    const UNKNOWN: u32 = u32::MAX;
    let is_ga100 = listed.pci.as_ref().is_some_and(|(_, device)| device >> 8 == 0x20);
    listed.architecture.is_some_and(|it| (AMPERE..UNKNOWN).contains(&it)) && !is_ga100
}

/// What helps against a GPU that cannot be named.
fn cure(code: Code) -> &'static str {
    match code {
        Code::GPU_IS_LOST | Code::UNKNOWN => {
            "look for NVRM and Xid 79 in the kernel log; the GPU needs a reset or the machine a reboot"
        }
        Code::RESET_REQUIRED => "reset it: nvidia-smi --gpu-reset -i INDEX",
        Code::NO_PERMISSION => "give read and write access to /dev/nvidiactl and /dev/nvidiaN",
        Code::OPERATING_SYSTEM => "restart the container; systemctl daemon-reload takes device files away",
        _ => "look for NVRM lines in the kernel log",
    }
}

fn why_none(machine: &Machine, error: &OpenError) -> Finding {
    let is_denied = matches!(error, OpenError::Init { code: Code::NO_PERMISSION, .. });
    let finding = |verdict| {
        let finding = Finding::new(verdict, SUBJECT, error.to_string());
        if is_denied { finding.denied() } else { finding }
    };
    match error {
        OpenError::Missing if has_hardware(machine) => finding(Verdict::Broken).remedy(
            "this machine has an NVIDIA GPU: install NVIDIA's driver; in a container, run it with the NVIDIA runtime \
             (NVIDIA_DRIVER_CAPABILITIES=utility)",
        ),
        OpenError::Missing => finding(Verdict::Note),
        OpenError::Open { .. } => finding(Verdict::Broken)
            .remedy(format!("install libnvidia-ml.so.1 of the driver that runs, or name it in {LIBRARY_VARIABLE}")),
        OpenError::Init { code, .. } => finding(Verdict::Broken).remedy(match *code {
            Code::DRIVER_NOT_LOADED => "load the kernel module: modprobe nvidia",
            Code::LIB_RM_VERSION_MISMATCH => {
                "the driver was changed: reload the kernel module or reboot; in a container, use the host's library"
            }
            Code::NO_PERMISSION => "give read and write access to /dev/nvidiactl and /dev/nvidiaN",
            Code::OPERATING_SYSTEM | Code::UNKNOWN => {
                "in a container: restart it, device files were taken away; else look for NVRM lines in the kernel log"
            }
            _ => "look for NVRM lines in the kernel log",
        }),
        OpenError::Silent(_) | OpenError::Starting => finding(Verdict::Broken)
            .remedy("look for NVRM and Xid lines in the kernel log; a GPU that hangs needs a reset or a reboot"),
        OpenError::Thread(_) => finding(Verdict::Broken).remedy("raise the limit of threads (ulimit -u, pids.max)"),
    }
}

/// Whether the kernel lists an NVIDIA display or 3D controller.
fn has_hardware(machine: &Machine) -> bool {
    let Ok(devices) = std::fs::read_dir(machine.sysfs.join("bus/pci/devices")) else { return false };
    devices.flatten().any(|device| {
        let says = |file: &str, text: &str| {
            std::fs::read_to_string(device.path().join(file)).is_ok_and(|is| is.starts_with(text))
        };
        says("vendor", "0x10de") && says("class", "0x03")
    })
}
