//! How long readings of the GPUs take, and those that slow down: by the rule of the finding `reads_slowed`.

use gpuvitals_analysis::slow_reads::{PaceChange, SlowReads, TimedReading};
use gpuvitals_core::time;
use serde::{Deserialize, Serialize};

use crate::trigger::FlightTrigger;

/// Readings of a GPU since the look before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightRead {
    /// When it was looked, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// Key of the GPU.
    pub gpu: String,
    /// How many ended.
    pub readings: u64,
    /// Those that gave nothing.
    pub failed: u64,
    /// How long one took, milliseconds, as a mean.
    pub ms: f64,
}

impl FlightRead {
    /// The first line of `reads.csv`.
    pub(crate) const HEAD: &'static str = "at,gpu,readings,failed,ms\n";

    /// As it stands in `reads.csv`. A key has no comma.
    pub(crate) fn written(&self) -> String {
        let Self { at_ns, gpu, readings, failed, ms } = self;
        format!("{},{gpu},{readings},{failed},{ms:.3}\n", time::format(*at_ns))
    }
}

/// GPUs whose readings are slow from now on, and those of the others of the node are not.
pub(crate) fn triggers(slow: &mut SlowReads, reads: &[FlightRead]) -> Vec<FlightTrigger> {
    let ended = reads.iter().filter(|read| read.readings > 0);
    let timed = ended.map(|read| TimedReading { gpu: &read.gpu, at_ns: read.at_ns, ms: read.ms });
    slow.look(timed).into_iter().filter_map(trigger).collect()
}

fn trigger(PaceChange { gpu, at_ns, slowed }: PaceChange) -> Option<FlightTrigger> {
    let trigger = FlightTrigger::of_node("reads_slowed", &slowed?.to_string(), at_ns);
    Some(FlightTrigger { gpu: Some(gpu.to_string()), ..trigger })
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::SECOND_NS;

    use super::*;

    #[test]
    fn readings_that_slow_down_are_one_trigger_and_their_end_is_none() {
        let mut slow = SlowReads::default();
        let mut look = |second: i64, ms: f64| {
            let (at_ns, gpu) = (second * SECOND_NS, "a".to_owned());
            triggers(&mut slow, &[FlightRead { at_ns, gpu, readings: 1, failed: 0, ms }])
        };
        let found: Vec<_> = (0..120)
            .flat_map(|second| look(second, if (100..110).contains(&second) { 41.0 } else { 0.3 }))
            .collect();
        let [trigger] = &found[..] else { panic!("{found:?}") };
        assert_eq!(trigger.detail, "its readings slowed from 0.3 to 41 ms");
        assert_eq!((trigger.kind.as_str(), trigger.gpu.as_deref()), ("reads_slowed", Some("a")));
        assert_eq!(trigger.at_ns, 103 * SECOND_NS);
    }
}
