//! The dialects: one folder or file for each driver path, which knows the meaning of its bytes.

pub mod amd_gpu_metrics;
pub mod amd_ioctl;
pub mod amd_sysfs;
pub mod nvidia_smi;
pub mod nvml;
pub mod procfs;
pub mod rocm_smi;

use gpuvitals_core::MetricId;

/// Clock event reasons of NVIDIA that hold clocks down: software power cap, hardware slowdown, software and hardware thermal
/// slowdown, power brake. Idling, chosen clocks and sync boost do not count.
pub(crate) const NVIDIA_HELD_DOWN: u64 = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

/// Clock event reasons of NVIDIA that have columns of their own.
pub(crate) const NVIDIA_REASONS: [(u64, MetricId); 6] = [
    (0x4, MetricId::of("throttled_sw_power_cap")),
    (0x8, MetricId::of("throttled_hw_slowdown")),
    (0x10, MetricId::of("throttled_sync_boost")),
    (0x20, MetricId::of("throttled_sw_thermal")),
    (0x40, MetricId::of("throttled_hw_thermal")),
    (0x80, MetricId::of("throttled_hw_power_brake")),
];
