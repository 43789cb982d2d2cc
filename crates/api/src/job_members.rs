//! Which job has a GPU, and which nodes have others of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_analysis::findings::{holder_of, host_of};
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::usage::RUN_HOLDER;
use gpuvitals_flight::JobMembers;

/// A GPU that reported nothing for so long before a trigger has no part in it.
const FRESH_NS: i64 = 10 * MINUTE_NS;

/// The GPUs that may have a part in what was at some time.
#[derive(Debug)]
pub(crate) struct FreshGpus<'a>(Vec<&'a Arc<GpuState>>);

impl<'a> FreshGpus<'a> {
    /// Those of a fleet.
    pub(crate) fn of(fleet: &'a Fleet, at_ns: i64) -> Self {
        let from_ns = at_ns.saturating_sub(FRESH_NS);
        Self(fleet.gpus.iter().filter(|gpu| gpu.last_seen_ns >= from_ns).collect())
    }

    /// Those of a node, `cluster/node`.
    pub(crate) fn of_node(&self, node: &str) -> Vec<&'a Arc<GpuState>> {
        self.0.iter().copied().filter(|gpu| host_of(gpu).as_deref() == Some(node)).collect()
    }

    /// The job that has a GPU; none: nobody has it.
    pub(crate) fn job_of(&self, gpu: &GpuState) -> Option<JobMembers> {
        let job = job_id(gpu)?;
        let is_in = |other: &&Arc<GpuState>| job_id(other).as_ref() == Some(&job);
        let nodes =
            self.0.iter().copied().filter(is_in).filter_map(|other| Some(host_of(other)?.to_string()));
        Some(JobMembers { job: job.0.to_string(), nodes: nodes.collect() })
    }

    /// The jobs that have some GPUs, each once: one may have thousands of them.
    pub(crate) fn jobs_of<'g>(&self, gpus: impl Iterator<Item = &'g Arc<GpuState>>) -> Vec<JobMembers> {
        let mut seen = BTreeSet::new();
        gpus.filter(|gpu| seen.insert(job_id(gpu))).filter_map(|gpu| self.job_of(gpu)).collect()
    }
}

/// The job that has a GPU, and of a recording its host: its name says nothing of other hosts, as that of most is the one that nobody gave
/// them.
fn job_id(gpu: &GpuState) -> Option<(Arc<str>, Option<Arc<str>>)> {
    let job = holder_of(gpu)?;
    let is_run = gpu.identity.get(IdentityColumn::Job).is_some_and(|name| name.starts_with(RUN_HOLDER));
    Some((job, if is_run { host_of(gpu) } else { None }))
}
