//! A table lists the processes on GPUs.

use std::fmt;
use std::sync::Arc;

use gpuvitals_core::Identity;

use crate::probe::{Driver, ProbeError};

/// Replaces a name that cannot be read: the process has just ended, or is in another namespace of pids.
pub const NAMELESS: &str = "-";

/// The kind of work of a process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessKind {
    /// It computes, as by CUDA or ROCm.
    Compute,
    /// It draws, as by Vulkan or OpenGL.
    Graphics,
    /// It computes and draws.
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

/// A process on a GPU. Unknown fields are none.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuProcess {
    /// The GPU or partition.
    pub gpu: Arc<Identity>,
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Name of the program (`comm`), never its arguments; [`NAMELESS`] if it cannot be read.
    pub name: Arc<str>,
    /// The kind of its work.
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
    /// Compute units that its waves fill at the moment, where no share of them is known (ROCm).
    pub compute_units: Option<i64>,
}

/// The processes that could be listed, and the gaps of the list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessList {
    /// Each process on a GPU, once a GPU.
    pub processes: Vec<GpuProcess>,
    /// Parts of the list that could not be read.
    pub gaps: Vec<ProcessGap>,
}

/// A part of a process list that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGap {
    /// Key of the GPU; none: all GPUs of the table.
    pub gpu: Option<Arc<str>>,
    /// The missing part: `processes`, `shares of processes`.
    pub part: &'static str,
    /// Why it could not be read.
    pub error: ProbeError,
}

impl fmt::Display for ProcessGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}", self.part)?;
        if let Some(gpu) = &self.gpu {
            write!(f, " of {gpu}")?;
        }
        write!(f, ": {}", self.error)
    }
}

/// Lists the processes on the GPUs of a vendor. Expensive: once a second at most, never on a sampling thread.
pub trait ProcessTable: Send {
    /// The driver that lists them. A table that is found later covers all GPUs of its vendor.
    fn driver(&self) -> Driver;

    /// Another reader of the same processes, with a listing before of its own.
    fn another(&self) -> Box<dyn ProcessTable>;

    /// The processes now; shares cover the time since the listing before. A process that ends meanwhile is left out.
    ///
    /// # Errors
    /// When nothing can be listed.
    fn read(&mut self) -> Result<ProcessList, ProbeError>;
}
