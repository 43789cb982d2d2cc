//! The driver paths, each against what it reads: captured machines and outputs, and imitations of a tool and a library.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod amd_sysfs;
mod details;
mod nvidia_smi;
mod nvml;
mod rocm_smi;
