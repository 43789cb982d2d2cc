//! The dialects: one folder or file for each driver path, which knows the meaning of its bytes.

pub mod amd_gpu_metrics;
pub mod amd_ioctl;
pub mod amd_sysfs;
pub mod nvidia_smi;
pub mod nvml;
pub mod procfs;
pub mod rocm_smi;
