//! The binary table `gpu_metrics` of amdgpu: raw fields by name, every version.
