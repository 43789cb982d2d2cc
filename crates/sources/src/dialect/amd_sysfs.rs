//! AMD GPUs by files of sysfs.
//!
//! Every value comes from a file that is opened once and read repeatedly: `gpu_metrics` (one consistent
//! snapshot a reading) for its fields, hwmon and the small text files of the device for the rest. The first
//! reading decides, by reading, which file provides a metric: a file may exist and still answer with an
//! error. If power management may put a GPU to sleep, its `power/runtime_status` is read first, and nothing
//! else while it sleeps.

mod board;
mod card;
mod findings;
mod parse;
mod plan;
mod probe;
mod ras;
mod sensor;
mod sleep;
mod snapshot;
mod table;
mod topology;

pub use card::{Card, address, cards};
pub use parse::{
    BadPages, DpmIndex, DpmLevel, ErrCount, PcieLink, Uevent, dpm_levels, is_pci_address, parse_bad_pages,
    parse_err_count, parse_hex, parse_link_speed, parse_marketing_name, parse_number, parse_overdrive,
    parse_performance_level, parse_pp_dpm, parse_pp_dpm_current, parse_pp_dpm_level, parse_pp_dpm_max,
    parse_pp_dpm_pcie, parse_uevent, pcie_generation, properties,
};
pub(super) use sensor::Missing;
pub(super) use sleep::Sleep;
pub use topology::{KfdNode, read_topology};

use crate::discovery::Discovery;
use crate::machine::Machine;
use crate::probe::Probe;

/// Finds the AMD GPUs. Lists names and addresses; a sensor is first touched by the probe's own thread.
pub fn find(machine: &Machine) -> Discovery {
    let cards = cards(machine);
    let findings = findings::of_machine(machine, &cards);
    let is_mute = !cards.iter().any(findings::is_readable);
    let probe = |card| Box::new(probe::SysfsProbe::new(machine.clone(), card)) as Box<dyn Probe>;
    Discovery { probes: cards.into_iter().map(probe).collect(), findings, is_mute, ..Discovery::default() }
}
