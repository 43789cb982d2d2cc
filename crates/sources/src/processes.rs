//! Which processes use which GPU: names, never arguments.

pub mod amd;
mod fdinfo;
mod kfd;
mod listing;

use std::sync::Arc;

use crate::probe::ProbeError;

pub use fdinfo::{DrmClient, Engine, parse_fdinfo};

/// What a process does on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessKind {
    /// Computes.
    Compute,
    /// Draws.
    Graphics,
    /// Both.
    ComputeGraphics,
    /// The driver does not say.
    Unknown,
}

impl ProcessKind {
    /// Spelling in JSON: `compute`, `graphics`, `compute+graphics`, `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Graphics => "graphics",
            Self::ComputeGraphics => "compute+graphics",
            Self::Unknown => "unknown",
        }
    }
}

/// A process on a GPU. What is not known is none.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuProcess {
    /// Key of the GPU, as [`gpuvitals_core::Identity::key`] gives it.
    pub gpu: Arc<str>,
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Name of the program (`comm`), never its arguments.
    pub name: Arc<str>,
    /// What it does.
    pub kind: ProcessKind,
    /// Device memory it holds, MiB.
    pub memory_mb: Option<i64>,
    /// Share of the compute units, %.
    pub utilization_pct: Option<f32>,
    /// Share of the memory controller, %.
    pub memory_utilization_pct: Option<f32>,
    /// Share of the encoder, %.
    pub encoder_utilization_pct: Option<f32>,
    /// Share of the decoder, %.
    pub decoder_utilization_pct: Option<f32>,
}

/// Lists the processes on the GPUs of a vendor. Dear: once a second at most, never on a sampling thread.
pub trait ProcessTable: Send {
    /// Whose GPUs these are, as in the `vendor` of their rows. A table that is found later knows all of that vendor's.
    fn vendor(&self) -> &'static str;

    /// The processes now; shares are over the time since the listing before.
    ///
    /// # Errors
    /// When nothing can be listed; a process that ends meanwhile is merely not there.
    fn read(&mut self) -> Result<Vec<GpuProcess>, ProbeError>;
}
