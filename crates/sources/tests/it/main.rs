//! What reads a machine through its public face: each driver path against captured machines and outputs, and imitations of
//! a tool, a library, a `/sys` that fails and a kubelet. The sampler, which keeps a pace, has a process of its own.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod amd_processes;
mod amd_sysfs;
mod details;
mod faulty;
mod gpu_metrics;
mod kubelet;
mod nvidia_smi;
mod nvml;
mod procfs;
mod rocm_smi;
