//! GPUs whose readings slow down: by the rule of the finding `reads_slowed`, from the rows of the agent's sampler.

use gpuvitals_analysis::row_reads::RowReads;
use gpuvitals_analysis::slow_reads::PaceChange;

use crate::trigger::FlightTrigger;

/// The GPUs whose readings have slowed down by this time, nanoseconds UTC, while those of the others of the node have not.
pub(crate) fn triggers(reads: &mut RowReads, now_ns: i64) -> Vec<FlightTrigger> {
    reads.look(now_ns).into_iter().filter_map(trigger).collect()
}

fn trigger(PaceChange { gpu, at_ns, slowed }: PaceChange) -> Option<FlightTrigger> {
    let trigger = FlightTrigger::of_node("reads_slowed", &slowed?.to_string(), at_ns);
    Some(FlightTrigger { gpu: Some(gpu.to_string()), ..trigger })
}
