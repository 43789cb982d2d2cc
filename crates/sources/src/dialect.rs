//! What the bytes of a driver mean: one folder or file a driver path.

pub mod amd_gpu_metrics;
pub mod amd_ioctl;
pub mod amd_sysfs;
pub mod nvidia_smi;
pub mod nvml;
pub mod procfs;
pub mod rocm_smi;
