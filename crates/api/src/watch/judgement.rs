//! A judgement holds what one look found.

use gpuvitals_analysis::findings::{FleetFinding, HolderLoad, Silence};
use gpuvitals_analysis::hints::NodeHint;
use gpuvitals_analysis::judgement::GpuJudge;

/// What is wrong with the fleet at one instant.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    /// When it was judged, nanoseconds UTC since 1970.
    pub(crate) at_ns: i64,
    /// The findings with the names of their subjects for people, the worst first.
    pub(crate) findings: Vec<(FleetFinding, String)>,
    /// The silences that hold.
    pub(crate) silences: Vec<Silence>,
    /// What the findings say of each GPU.
    pub(crate) judge: GpuJudge,
    /// The jobs with several GPUs.
    pub(crate) jobs: Vec<HolderLoad>,
    /// Where work can go.
    pub(crate) hints: Vec<NodeHint>,
    /// What could not be read.
    pub(crate) missing: Vec<String>,
}
