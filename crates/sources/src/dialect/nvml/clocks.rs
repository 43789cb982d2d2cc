//! NVML's calls about the clocks of a GPU. What a lock is and how it is taken back, the caller knows.

use std::sync::Arc;

use gpuvitals_core::Identity;

use super::code::Code;
use super::known::KnownGpu;
use super::raw::{Gpu, Raw};

/// NVML's numbers of clocks.
const GRAPHICS: u32 = 0;
const MEMORY: u32 = 2;

/// A GPU whose clocks are read and locked by calls of NVML. Setting them takes root.
pub struct NvmlClocks {
    raw: &'static Raw,
    gpu: Gpu,
    identity: Arc<Identity>,
}

impl From<KnownGpu> for NvmlClocks {
    fn from(known: KnownGpu) -> Self {
        let KnownGpu { raw, gpu, identity, .. } = known;
        Self { raw, gpu, identity }
    }
}

impl NvmlClocks {
    /// The GPU whose clocks are set.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// GPU clock now, MHz.
    ///
    /// # Errors
    /// The library's code.
    pub fn gpu_mhz(&self) -> Result<u32, Code> {
        self.raw.clock_mhz(self.gpu, GRAPHICS)
    }

    /// Memory clock now, MHz.
    ///
    /// # Errors
    /// The library's code.
    pub fn memory_mhz(&self) -> Result<u32, Code> {
        self.raw.clock_mhz(self.gpu, MEMORY)
    }

    /// Whether the driver tells a reason why the clocks are not higher: idle, power, heat.
    pub fn has_reason(&self) -> bool {
        self.raw.clock_reasons(self.gpu).is_ok_and(|reasons| reasons != 0)
    }

    /// Memory clocks that can be set, MHz, highest first; none if the part or driver lists none.
    pub fn memory_choices_mhz(&self) -> Vec<u32> {
        self.raw.memory_clocks_mhz(self.gpu).unwrap_or_default()
    }

    /// GPU clocks that can be set beside a memory clock, MHz, highest first; none if the part or driver lists none.
    pub fn gpu_choices_mhz(&self, memory_mhz: u32) -> Vec<u32> {
        self.raw.graphics_clocks_mhz(self.gpu, memory_mhz).unwrap_or_default()
    }

    /// Holds the GPU clock within these bounds, MHz.
    ///
    /// # Errors
    /// The library's code.
    pub fn lock_gpu(&self, min: u32, max: u32) -> Result<(), Code> {
        self.raw.lock_gpu_clocks(self.gpu, min, max)
    }

    /// Gives the GPU clock back to the driver.
    ///
    /// # Errors
    /// The library's code.
    pub fn reset_gpu(&self) -> Result<(), Code> {
        self.raw.reset_gpu_clocks(self.gpu)
    }

    /// Holds the memory clock within these bounds, MHz.
    ///
    /// # Errors
    /// The library's code.
    pub fn lock_memory(&self, min: u32, max: u32) -> Result<(), Code> {
        self.raw.lock_memory_clocks(self.gpu, min, max)
    }

    /// Gives the memory clock back to the driver.
    ///
    /// # Errors
    /// The library's code.
    pub fn reset_memory(&self) -> Result<(), Code> {
        self.raw.reset_memory_clocks(self.gpu)
    }
}

impl std::fmt::Debug for NvmlClocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvmlClocks").field("gpu", &self.identity).finish_non_exhaustive()
    }
}
