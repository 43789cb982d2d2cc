//! The dialects: one folder or file for each driver path, which knows the meaning of its bytes.

pub mod amd_gpu_metrics;
pub mod amd_ioctl;
pub mod amd_sysfs;
pub mod nvidia_smi;
pub mod nvml;
pub mod procfs;
pub mod rocm_smi;

/// Clock event reasons of NVIDIA that hold clocks down: software power cap, hardware slowdown, software and hardware thermal
/// slowdown, power brake. Idling, chosen clocks and sync boost do not count.
const NVIDIA_HELD_DOWN: u64 = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
