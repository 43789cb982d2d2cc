//! A judgement holds what one look found.

use std::sync::Arc;

use gpuvitals_analysis::findings::{FleetFinding, HolderLoad, Silence};
use gpuvitals_analysis::hints::NodeHint;
use gpuvitals_analysis::judgement::GpuJudge;
use gpuvitals_core::usage::{BatchJob, BatchJobs};

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
    /// What is told of the batch jobs that findings concern.
    pub(crate) told: Arc<BatchJobs>,
    /// What could not be read.
    pub(crate) missing: Vec<String>,
}

impl Judgement {
    /// What is told of the batch job that a finding concerns; none: nothing, or it concerns none.
    pub(crate) fn told_of(&self, finding: &FleetFinding) -> Option<BatchJob> {
        let reach = &finding.reach;
        self.told.get(reach.cluster.as_deref(), reach.job.as_deref()?, self.at_ns)
    }
}
