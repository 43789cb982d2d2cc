//! Which job has a GPU, and which nodes have others of it.

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
        let (job, host) = (holder_of(gpu)?, host_of(gpu));
        // The name of a recording says nothing of other hosts: that of most is the one that nobody gave them.
        let is_run = gpu.identity.get(IdentityColumn::Job).is_some_and(|name| name.starts_with(RUN_HOLDER));
        let is_in = |other: &&Arc<GpuState>| {
            holder_of(other).as_ref() == Some(&job) && (!is_run || host_of(other) == host)
        };
        let nodes =
            self.0.iter().copied().filter(is_in).filter_map(|other| Some(host_of(other)?.to_string()));
        Some(JobMembers { job: job.to_string(), nodes: nodes.collect() })
    }
}
