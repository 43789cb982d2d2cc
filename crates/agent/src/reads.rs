//! Events of GPUs whose readings slow down, by how long the readings of their rows took.

use gpuvitals_analysis::health_event::{HealthEvent, event_rows};
use gpuvitals_analysis::row_reads::RowReads;
use gpuvitals_analysis::slow_reads::PaceChange;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::identity::AGENT;
use gpuvitals_core::{Batch, Identity, IdentityColumn, Origin};
use gpuvitals_sources::sampler::TargetState;

/// The end of slow readings, in words for people: by the rule it is one of these, and which is not told.
const NOT_SLOWER: &str =
    "its readings are as usual again, slow on the whole node, or slow for so long that this is usual";

/// How long readings took, and whose have slowed down. A flight recorder judges the same rows by the same rule.
#[derive(Debug)]
pub(crate) struct ReadWatch {
    reads: RowReads,
    origin: Origin,
    /// Number of the last event.
    number: i64,
}

impl ReadWatch {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { reads: RowReads::default(), origin, number: 0 }
    }

    /// Takes rows of the sampler.
    pub(crate) fn take(&mut self, batch: &Batch) {
        self.reads.take(batch);
    }

    /// Rows of `gpu_health_events`: what has changed since the look before.
    pub(crate) fn look(&mut self, states: &[TargetState], now: Moment) -> Option<Batch> {
        let changes = self.reads.look(now.wall_ns);
        let events: Vec<(HealthEvent, Identity)> =
            changes.into_iter().filter_map(|change| event(change, states)).collect();
        let events = events.iter().map(|told| (&told.0, &told.1));
        event_rows(events, self.origin.clone(), &mut self.number)
    }
}

/// The event of a GPU whose readings slow down, or take as long as before again. That its agent says so, and no driver, is its source: by
/// that gateways find these events among all others.
fn event(
    PaceChange { gpu, at_ns, slowed }: PaceChange,
    states: &[TargetState],
) -> Option<(HealthEvent, Identity)> {
    let state = states.iter().find(|state| state.identity.key().as_ref() == Some(&gpu))?;
    let identity = Identity::clone(&state.identity).with(IdentityColumn::Source, AGENT).ok()?;
    let (kind, detail, code) = match slowed {
        #[expect(clippy::cast_possible_truncation, reason = "microseconds")]
        Some(slowed) => ("reads_slowed", slowed.to_string(), Some((slowed.slow_ms * 1e3).round() as i64)),
        None => ("reads_usual", NOT_SLOWER.to_owned(), None),
    };
    let (kind, detail) = (kind.into(), detail.into());
    Some((HealthEvent { gpu, at_ns, kind, detail, code, ..HealthEvent::default() }, identity))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuvitals_core::batch::READ_US_COLUMN;
    use gpuvitals_core::time::SECOND_NS;
    use gpuvitals_core::{BatchBuilder, Table};

    use super::*;
    use crate::doubles::gpu_up;

    #[test]
    fn a_gpu_whose_readings_slow_down_is_an_event_of_the_agent_and_so_is_their_end() {
        let states = ["a", "b"].map(|uuid| {
            let gpu = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
            gpu_up(Arc::new(gpu.with(IdentityColumn::Source, "nvml").unwrap()))
        });
        let mut watch = ReadWatch::new(Origin::default());
        let mut found = Vec::new();
        for second in 0..120 {
            let at_ns = second * SECOND_NS;
            for (state, slow_us) in states.iter().zip([41_000_i64, 310]) {
                let mut builder = BatchBuilder::new(Table::GpuEvents);
                let id = builder.intern(&state.identity);
                let row = builder.row(at_ns, id);
                let us = if (100..110).contains(&second) { slow_us } else { 310 };
                builder.set_extra(row, READ_US_COLUMN, us).unwrap();
                watch.take(&builder.finish(Origin::default(), 1).unwrap());
            }
            found.extend(watch.look(&states, Moment { wall_ns: at_ns, mono_ns: at_ns }));
        }
        let events: Vec<HealthEvent> = found.iter().flat_map(HealthEvent::of_rows).collect();
        let [slowed, usual] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&*slowed.kind, &*slowed.gpu, slowed.at_ns), ("reads_slowed", "a", 103 * SECOND_NS));
        assert_eq!((&*slowed.detail, slowed.code), ("its readings slowed from 0.3 to 41 ms", Some(41_000)));
        assert_eq!((&*usual.kind, &*usual.gpu, usual.at_ns), ("reads_usual", "a", 112 * SECOND_NS));
        assert_eq!(found[0].identity(0).get(IdentityColumn::Source), Some(AGENT));
    }
}
