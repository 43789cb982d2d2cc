//! What is asked of the tool: identities, and what every driver knows.

use gpuvitals_core::foreign::{NVIDIA_SMI, ToolField};

/// Identity of a GPU: queried each time, to match the answer.
pub(super) const IDENTITY: &[&str] =
    &["index", "uuid", "name", "pci.bus_id", "driver_version", "vbios_version", "compute_cap"];

/// Fields that every driver of the last ten years knows.
pub(super) const EVERYWHERE: &[&str] = &[
    "index",
    "uuid",
    "name",
    "temperature.gpu",
    "utilization.gpu",
    "utilization.memory",
    "memory.total",
    "memory.used",
    "memory.free",
    "power.draw",
    "power.limit",
    "pcie.link.gen.current",
    "pcie.link.width.current",
];

/// The field of a name.
pub(super) fn field(name: &str) -> Option<&'static ToolField> {
    NVIDIA_SMI.iter().find(|field| field.names.contains(&name))
}
