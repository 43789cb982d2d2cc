//! NVIDIA GPUs by NVML, the driver's own library, loaded at run time: a machine without it loses nothing.
//!
//! The library is initialised once and stays for the life of the process. Each GPU is a probe of its own with
//! the MIG instances on it, so that a GPU whose calls hang affects no other; `board`, `fields`, `singles`,
//! `several`, `ecc` and `gpm` have the calls of each tier; `clocks` has those that set clocks. A call that a GPU does not
//! support is not repeated until the GPU is reopened or its MIG instances change.

mod board;
mod clocks;
mod code;
mod cost;
mod ecc;
mod events;
mod fields;
mod gpm;
mod known;
mod ledger;
mod library;
mod mig;
mod naming;
mod probe;
mod processes;
mod raw;
mod several;
mod singles;
mod tick;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::IdentityColumn;

use crate::discovery::Discovery;
use crate::finding::{Finding, Verdict};
use crate::machine::Machine;
use crate::probe::Probe;
use crate::versions;

use events::Events;
use known::KnownGpu;
use library::{OpenError, OpenedLibrary};
use naming::{LateIdentity, Nameless, NamingProbe, NodeDriver};
use probe::NvmlProbe;
use processes::Processes;
use raw::Raw;

pub use clocks::NvmlClocks;
pub use code::Code;

/// Environment variable that names another library than the system's: that of a driver in an unusual place,
/// or an imitation.
pub const LIBRARY_VARIABLE: &str = "GPUVITALS_NVML_LIBRARY";
/// How long the library may take to start and to name the GPUs; without persistence mode it powers them up meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
const SUBJECT: &str = "nvml";

/// Finds the NVIDIA GPUs of this machine. In a captured tree there are none, unless [`LIBRARY_VARIABLE`] is
/// set.
pub fn find(machine: &Machine) -> Discovery {
    libraries(machine).map_or_else(Discovery::default, |paths| probes(machine, paths, PATIENCE))
}

/// Finds the GPUs of a certain library; waits at most this long for it to start and for each GPU to answer.
pub fn find_by(machine: &Machine, library: &Path, patience: Duration) -> Discovery {
    probes(machine, vec![library.to_owned()], patience)
}

/// The GPUs of this machine whose clocks can be set, and the findings. In a captured tree there are none, unless
/// [`LIBRARY_VARIABLE`] is set.
pub fn clocks(machine: &Machine) -> (Vec<NvmlClocks>, Vec<Finding>) {
    libraries(machine).map_or_else(Default::default, |paths| clocks_of(machine, paths))
}

/// The GPUs of a certain library whose clocks can be set, and the findings.
pub fn clocks_by(machine: &Machine, library: &Path) -> (Vec<NvmlClocks>, Vec<Finding>) {
    clocks_of(machine, vec![library.to_owned()])
}

fn clocks_of(machine: &Machine, libraries: Vec<PathBuf>) -> (Vec<NvmlClocks>, Vec<Finding>) {
    let (gpus, findings) = gpus(machine, libraries, PATIENCE);
    (gpus.into_iter().flatten().map(NvmlClocks::from).collect(), findings)
}

/// Times every call on every GPU some twenty times and returns a finding for each call. Takes about a second, and waits
/// for a hung GPU as long as its calls do.
pub fn measure(machine: &Machine) -> Vec<Finding> {
    let Some(libraries) = libraries(machine) else { return Vec::new() };
    let (gpus, _) = gpus(machine, libraries, PATIENCE);
    gpus.iter().flatten().flat_map(cost::measure).collect()
}

/// The libraries to try, in order; none if the machine is a captured tree.
fn libraries(machine: &Machine) -> Option<Vec<PathBuf>> {
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

fn probes(machine: &Machine, libraries: Vec<PathBuf>, patience: Duration) -> Discovery {
    let (gpus, findings) = gpus(machine, libraries, patience);
    let mut found = Discovery { findings, ..Discovery::default() };
    let raw = |gpu: &Result<KnownGpu, Nameless>| gpu.as_ref().map_or_else(|it| it.raw, |it| it.raw);
    let Some(raw) = gpus.first().map(raw) else { return found };
    let events = Events::start(raw);
    let mut processes = Processes::new(raw, machine);
    for gpu in gpus {
        let name = LateIdentity::default();
        processes.watch(Arc::clone(&name));
        let probe: Box<dyn Probe> = match gpu {
            Ok(known) => {
                let _first = name.set(Arc::clone(&known.identity));
                Box::new(NvmlProbe::new(known, events.clone()))
            }
            Err(nameless) => Box::new(NamingProbe::new(nameless, events.clone(), name)),
        };
        found.probes.push(probe);
    }
    found.processes.push(Box::new(processes));
    found
}

/// The GPUs of the first library that loads, and the findings. A GPU that this process may not open is left
/// out.
fn gpus(
    machine: &Machine,
    libraries: Vec<PathBuf>,
    patience: Duration,
) -> (Vec<Result<KnownGpu, Nameless>>, Vec<Finding>) {
    let opened = match library::open(libraries, patience) {
        Ok(opened) => opened,
        Err(error) => return (Vec::new(), vec![why_none(machine, &error)]),
    };
    let OpenedLibrary { raw, path, driver, nvml, gpus } = opened;
    let text = format!("driver {driver}, NVML {nvml}, {} GPUs ({})", gpus.len(), path.display());
    let mut findings = vec![Finding::new(Verdict::Good, SUBJECT, text)];
    findings.extend(versions::untested(SUBJECT, "NVIDIA driver", &driver));
    findings.extend(versions::untested(SUBJECT, "NVML", &nvml));
    let place = NodeDriver::new(machine, &driver);
    let mut asked: Vec<(u32, Option<KnownGpu>)> = Vec::new();
    for (index, listed) in (0..).zip(gpus) {
        let subject = format!("{SUBJECT} GPU {index}");
        let broken = |text: String| Finding::new(Verdict::Broken, &subject, text);
        let named = match listed {
            None => Err(broken(format!("it has not answered within {} s", patience.as_secs())).remedy(
                "look for NVRM and Xid lines in the kernel log; a GPU that hangs needs a reset or a reboot",
            )),
            Some(Err(Code::NO_PERMISSION)) => {
                let code = Code::NO_PERMISSION;
                findings.push(broken(code.to_string()).remedy(cure(code)));
                continue;
            }
            Some(Err(code)) => Err(broken(code.to_string()).remedy(cure(code))),
            Some(Ok(listed)) => place
                .known(raw, index, &listed)
                .map_err(|error| broken(format!("what the driver calls it is no name: {error}"))),
        };
        findings.push(match &named {
            Ok(known) => {
                let pci = known.identity.get(IdentityColumn::Pci).unwrap_or("no PCI address");
                let model = known.identity.get(IdentityColumn::Model).unwrap_or("a GPU without a name");
                Finding::new(Verdict::Good, format!("{subject} ({pci})"), model)
            }
            Err(finding) => finding.clone(),
        });
        asked.push((index, named.ok()));
    }
    (sorted_out(machine, raw, &place, asked), findings)
}

/// The GPUs with names, and places for the rest.
fn sorted_out(
    machine: &Machine,
    raw: &'static Raw,
    place: &NodeDriver,
    asked: Vec<(u32, Option<KnownGpu>)>,
) -> Vec<Result<KnownGpu, Nameless>> {
    let named: Vec<&KnownGpu> = asked.iter().filter_map(|(_, known)| known.as_ref()).collect();
    let left = (named.len() + 1 == asked.len()).then(|| naming::address_left(machine, &named)).flatten();
    let gpu = |(index, known): (u32, Option<KnownGpu>)| match known {
        Some(known) => Some(Ok(known)),
        // A node whose name is not allowed in an identity has no GPU with a name either.
        None => place.nameless(raw, index, left.as_deref()).ok().map(Err),
    };
    asked.into_iter().filter_map(gpu).collect()
}

/// The remedy for a GPU whose name cannot be read.
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
