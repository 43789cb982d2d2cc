//! Findings of `doctor` about AMD GPUs: what was found, what is missing, and the remedy. Checks names and
//! rights, and opens no sensor.

use std::path::PathBuf;

use rustix::fs::Access;

use super::card::{Card, hwmon, read_text, unbound};
use crate::finding::{Finding, Verdict};
use crate::machine::Machine;
use crate::probe::Driver;
use crate::versions;

/// The findings of a machine with these cards.
pub(super) fn of_machine(machine: &Machine, cards: &[Card]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = cards.iter().flat_map(of_card).collect();
    findings.extend(unbound(machine).into_iter().map(|(address, driver)| of_unbound(&address, driver)));
    if findings.is_empty() {
        let text = format!("no AMD GPU in {}", machine.sysfs.join("class/drm").display());
        findings.push(Finding::new(Verdict::Note, Driver::AmdSysfs.as_str(), text));
    }
    findings
}

fn of_card(card: &Card) -> Vec<Finding> {
    let subject = format!("{} {}", Driver::AmdSysfs, card.subject());
    let driver = card.driver.as_deref().unwrap_or("unknown driver");
    let version = card.driver_version.as_deref().unwrap_or("of unknown version");
    let mut text = format!("{}, {driver} {version}", card.model);
    if let Some(vbios) = &card.vbios {
        text.push_str(", VBIOS ");
        text.push_str(vbios);
    }
    let mut findings = vec![Finding::new(Verdict::Good, &subject, text)];
    let is_amdgpu = card.driver.as_deref() != Some("radeon");
    findings.extend(
        card.driver_version
            .as_deref()
            .filter(|_| is_amdgpu)
            .and_then(|version| versions::untested(&subject, "amdgpu", version)),
    );
    let mut tell = |verdict, text: String, remedy: &str| {
        findings.push(Finding::new(verdict, &subject, text).remedy(remedy));
    };
    if card.driver.as_deref() == Some("radeon") {
        tell(
            Verdict::Partial,
            "bound to radeon, which tells temperature, fan and clock only".to_owned(),
            "boot with amdgpu.si_support=1 radeon.si_support=0 (or cik_support, by generation)",
        );
    }
    if let Some(status) = asleep(card) {
        tell(
            Verdict::Note,
            format!("{status}: left alone until something else wakes it"),
            "to keep it awake: echo on > power/control in its device folder",
        );
    }
    if hwmon(&card.device).is_none() {
        tell(
            Verdict::Partial,
            "no hwmon: power, fan, temperatures and limits only as far as gpu_metrics has them".to_owned(),
            "a virtual function in a guest has none; the host's driver has",
        );
    }
    if is_amdgpu && !card.device.join("gpu_metrics").exists() {
        tell(
            Verdict::Note,
            "no gpu_metrics: values come one by one from hwmon and pp_dpm files".to_owned(),
            "Linux 5.10 or newer has it for Vega12 and newer GPUs",
        );
    }
    if let Some(file) = denied(card) {
        tell(
            Verdict::Partial,
            format!("no right to read {}", file.display()),
            "run as root, or make the file readable (0444 by default; a container needs /sys mounted readable); \
             --driver amd-ioctl needs the render node only",
        );
    }
    if !is_readable(card) {
        tell(
            Verdict::Partial,
            "none of its files can be read".to_owned(),
            "other ways are tried; a container needs /sys mounted readable",
        );
    }
    findings
}

/// Whether one of the files that matter most may be read. Looks at names and rights only.
pub(super) fn is_readable(card: &Card) -> bool {
    main_files(card).iter().any(|path| rustix::fs::access(path, Access::READ_OK).is_ok())
}

fn of_unbound(address: &str, driver: Option<String>) -> Finding {
    let subject = format!("{} {address}", Driver::AmdSysfs);
    match driver {
        Some(driver) => Finding::new(Verdict::Note, subject, format!("held by {driver}, not by amdgpu"))
            .remedy("nothing if it is passed to a virtual machine; else bind it to amdgpu"),
        None => Finding::new(Verdict::Broken, subject, "an AMD GPU that no driver has")
            .remedy("modprobe amdgpu; dmesg tells why it does not start"),
    }
}

/// The state of a GPU that power management has put to sleep.
fn asleep(card: &Card) -> Option<String> {
    let power = card.device.join("power");
    read_text(&power.join("control")).filter(|control| control == "auto")?;
    read_text(&power.join("runtime_status")).filter(|status| status.starts_with("suspend"))
}

/// The first of the main files that exists and that we may not read.
fn denied(card: &Card) -> Option<PathBuf> {
    main_files(card).into_iter().find(|path| {
        path.exists() && rustix::fs::access(path, Access::READ_OK) == Err(rustix::io::Errno::ACCESS)
    })
}

/// The files that matter most.
fn main_files(card: &Card) -> Vec<PathBuf> {
    let of_device = ["gpu_metrics", "gpu_busy_percent", "mem_info_vram_used", "pp_dpm_sclk"];
    let of_hwmon = ["power1_average", "power1_input", "temp1_input", "freq1_input", "fan1_input"];
    let hwmon = hwmon(&card.device);
    let of_hwmon = hwmon.iter().flat_map(|hwmon| of_hwmon.map(|name| hwmon.join(name)));
    of_device.map(|name| card.device.join(name)).into_iter().chain(of_hwmon).collect()
}
