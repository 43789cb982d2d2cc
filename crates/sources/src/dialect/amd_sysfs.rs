//! AMD GPUs by files of sysfs.

mod card;
mod findings;
mod parse;
mod topology;

pub use card::{Card, cards};
pub use parse::{
    BadPages, DpmIndex, DpmLevel, ErrCount, PcieLink, Uevent, dpm_levels, is_pci_address, parse_bad_pages,
    parse_err_count, parse_hex, parse_link_speed, parse_marketing_name, parse_number,
    parse_performance_level, parse_pp_dpm, parse_pp_dpm_current, parse_pp_dpm_max, parse_pp_dpm_pcie,
    parse_uevent, pcie_generation, properties,
};
pub use topology::{KfdNode, read_topology};

use crate::machine::Machine;
use crate::registry::Found;

/// Finds the AMD GPUs.
pub fn find(machine: &Machine) -> Found {
    let cards = cards(machine);
    Found { findings: findings::of_machine(machine, &cards), ..Found::default() }
}
