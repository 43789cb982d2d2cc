//! The devices of a machine, and the driver that reads each.
//!
//! Discovery is cheap: it lists names and addresses. Whether a device can really be read shows at its first reading,
//! on its own worker.

use gpuvitals_core::Table;

use crate::dialect::{amd_ioctl, amd_sysfs, nvidia_smi, nvml, procfs, rocm_smi};
use crate::machine::Machine;
use crate::processes;

pub use crate::discovery::Discovery;
pub use crate::driver::Driver;
pub use crate::finding::{Finding, Verdict};

/// A search for the devices that a driver reads.
pub type Find = fn(&Machine) -> Discovery;

/// Finds the devices of a machine. Of each vendor the first way that finds any is taken, cheapest first; with `forced`
/// only those ways are tried, and if they find a GPU the host's: they name the way to the GPUs.
///
/// The GPUs of [`Driver::Simulated`] are no part of a machine: who has some hands in the search for them, others
/// [`no_simulation`].
pub fn discover(machine: &Machine, forced: &[Driver], simulated: Find) -> Discovery {
    let mut found = Discovery::default();
    let find_of = |driver| find_of(driver, simulated);
    for ways in Driver::ALL.chunk_by(|one, other| one.vendor() == other.vendor()) {
        found.add(first_of(ways, find_of, machine, forced));
    }
    let has_gpus = found.probes.iter().any(|probe| probe.table() == Table::GpuEvents);
    // Whoever names the way to the GPUs does not want the host alone.
    if !forced.is_empty() && !forced.contains(&Driver::Procfs) && !has_gpus {
        found.probes.clear();
    }
    found.add(processes::amd::find(machine, &found.probes));
    found
}

/// What the first way finds that can read something; if none can, the devices that the first way sees.
fn first_of(
    ways: &[Driver],
    find_of: impl Fn(Driver) -> Find,
    machine: &Machine,
    forced: &[Driver],
) -> Discovery {
    let mut found = Discovery::default();
    let mut mute = Vec::new();
    let is_tried = |way: &Driver| {
        let unasked = forced.is_empty() && *way != Driver::Simulated;
        unasked || forced.contains(way) || way.vendor() == Driver::Procfs.vendor()
    };
    for way in ways.iter().copied().filter(is_tried) {
        let mut way = find_of(way)(machine);
        if way.is_mute && mute.is_empty() {
            mute = std::mem::take(&mut way.probes);
        }
        let is_enough = !way.probes.is_empty();
        found.add(way);
        if is_enough {
            return found;
        }
    }
    found.probes = mute;
    found
}

/// The search of a program that simulates no GPU.
pub fn no_simulation(_machine: &Machine) -> Discovery {
    let name = Driver::Simulated.as_str();
    Discovery::none(Finding::new(Verdict::Broken, name, "this program simulates no GPU"))
}

/// What finds the devices that a driver reads.
fn find_of(driver: Driver, simulated: Find) -> Find {
    match driver {
        Driver::AmdSysfs => amd_sysfs::find,
        Driver::AmdIoctl => amd_ioctl::find,
        Driver::RocmSmi => rocm_smi::find,
        Driver::Nvml => nvml::find,
        Driver::NvidiaSmi => nvidia_smi::find,
        Driver::Procfs => procfs::find,
        Driver::Simulated => simulated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_machine: &Machine) -> Discovery {
        Discovery::none(Finding::new(Verdict::Note, "none", "not here"))
    }

    fn host(machine: &Machine) -> Discovery {
        procfs::find(machine)
    }

    fn mute(machine: &Machine) -> Discovery {
        let findings = vec![Finding::new(Verdict::Partial, "mute", "cannot be read")];
        Discovery { is_mute: true, findings, ..host(machine) }
    }

    #[test]
    fn a_way_that_can_read_nothing_gives_way_to_the_next_and_says_so() {
        let machine = Machine::local("n1");
        let find = |finds: [Find; 3], forced: &[Driver]| {
            let drivers = [Driver::AmdSysfs, Driver::AmdIoctl, Driver::RocmSmi];
            let find_of = |driver| finds[drivers.iter().position(|one| *one == driver).unwrap()];
            let found = first_of(&drivers, find_of, &machine, forced);
            let subjects: Vec<String> =
                found.findings.iter().map(|finding| finding.subject.clone()).collect();
            (found.probes.len(), subjects)
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all: [Find; 3] = [mute, nothing, host];
        assert_eq!(find(all, &[]), (1, owned(&["mute", "none", "procfs"])));
        assert_eq!(
            find(all, &[Driver::AmdSysfs, Driver::AmdIoctl]),
            (1, owned(&["mute", "none"])),
            "seen is better than not"
        );
        let usual: [Find; 3] = [host, mute, host];
        assert_eq!(find(usual, &[]), (1, owned(&["procfs"])));
    }
}
