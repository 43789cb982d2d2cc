//! The host by files of procfs.

use crate::machine::Machine;
use crate::registry::Found;

/// Finds the devices.
pub fn find(_machine: &Machine) -> Found {
    Found::default()
}
