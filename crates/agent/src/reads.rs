//! How long readings of the GPUs take, from what their workers count, and events of GPUs whose readings slow down.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_analysis::health_event::{HealthEvent, event_rows};
use gpuvitals_analysis::slow_reads::{PaceChange, SlowReads, TimedReading};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::identity::AGENT;
use gpuvitals_core::number::float;
use gpuvitals_core::{Batch, Identity, IdentityColumn, Origin, Table};
use gpuvitals_flight::FlightRead;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::sampler::{TargetState, WorkerStats};

/// The end of slow readings, in words for people: by the rule it is one of these, and which is not told.
const NOT_SLOWER: &str =
    "its readings are as usual again, slow on the whole node, or slow for so long that this is usual";

/// How long readings took, and whose have slowed down.
#[derive(Debug)]
pub(crate) struct ReadWatch {
    times: ReadTimes,
    slow: SlowReads,
    origin: Origin,
    /// Number of the last event.
    number: i64,
}

/// What a look at the workers has given.
#[derive(Debug, Default)]
pub(crate) struct ReadNews {
    /// For the flight recorder, which judges them by the same rule.
    pub(crate) reads: Vec<FlightRead>,
    /// Rows of `gpu_health_events`.
    pub(crate) rows: Option<Batch>,
}

impl ReadWatch {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { times: ReadTimes::default(), slow: SlowReads::default(), origin, number: 0 }
    }

    /// The readings that ended since the look before, and what they say of these GPUs.
    pub(crate) fn look(&mut self, workers: &[WorkerStats], states: &[TargetState], now: Moment) -> ReadNews {
        let reads = self.times.look(workers, now);
        let timed = reads.iter().map(|read| TimedReading { gpu: &read.gpu, at_ns: read.at_ns, ms: read.ms });
        let changes = self.slow.look(timed);
        let events: Vec<(HealthEvent, Identity)> =
            changes.into_iter().filter_map(|change| event(change, states)).collect();
        let events = events.iter().map(|told| (&told.0, &told.1));
        let rows = event_rows(events, self.origin.clone(), &mut self.number);
        ReadNews { reads, rows }
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

/// Looks at the counts of the workers: at one sample a second the difference of two looks is one reading.
#[derive(Debug, Default)]
struct ReadTimes {
    before: HashMap<(Driver, Arc<str>), CountedReads>,
}

#[derive(Debug, Clone, Copy, Default)]
struct CountedReads {
    ticks: u64,
    read_ns: u64,
    failed: u64,
}

impl ReadTimes {
    /// The readings of GPUs that ended since the look before. A tool that reads all GPUs at once takes as long for each.
    fn look(&mut self, workers: &[WorkerStats], now: Moment) -> Vec<FlightRead> {
        let (mut found, mut seen) = (Vec::new(), HashMap::with_capacity(self.before.len()));
        for worker in workers.iter().filter(|worker| worker.table == Table::GpuEvents) {
            let failed = worker.failures.iter().map(|(_, count)| count).sum();
            let counted = CountedReads { ticks: worker.ticks, read_ns: worker.read_ns, failed };
            let Some(first) = worker.targets.first() else { continue };
            let name = (worker.driver, Arc::clone(first));
            let before = self.before.get(&name).copied();
            seen.insert(name, counted);
            let Some(before) = before else { continue };
            let readings = counted.ticks.saturating_sub(before.ticks);
            if readings == 0 {
                continue;
            }
            let took_ns = counted.read_ns.saturating_sub(before.read_ns) / readings;
            let ms = float(took_ns) / 1e6;
            let failed = counted.failed.saturating_sub(before.failed);
            let read = |gpu: &Arc<str>| FlightRead {
                at_ns: now.wall_ns,
                gpu: gpu.to_string(),
                readings,
                failed,
                ms,
            };
            found.extend(worker.targets.iter().map(read));
        }
        self.before = seen;
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvitals_core::AbsenceReason;
    use gpuvitals_core::time::SECOND_NS;
    use gpuvitals_sources::sampler::Lateness;

    use super::*;
    use crate::doubles::gpu_up;

    const AT: Moment = Moment { wall_ns: 7, mono_ns: 7 };

    fn worker(table: Table, ticks: u64, read_ns: u64, failed: u64) -> WorkerStats {
        WorkerStats {
            table,
            targets: vec![Arc::from("a"), Arc::from("b")],
            driver: Driver::Nvml,
            interval: Duration::from_secs(1),
            ticks,
            ticks_missed: 0,
            rows: 0,
            repeats: 0,
            failures: vec![(AbsenceReason::Gone, failed)],
            invalid: 0,
            read_ns,
            read_max_ns: 0,
            lateness: Lateness::default(),
        }
    }

    #[test]
    fn what_ended_between_two_looks_is_a_mean_for_each_gpu() {
        let mut reads = ReadTimes::default();
        let of = |ticks, read_ns, failed| {
            [worker(Table::SystemEvents, ticks, 1, 0), worker(Table::GpuEvents, ticks, read_ns, failed)]
        };
        assert!(reads.look(&of(5, 5_000_000, 1), AT).is_empty(), "nobody knows what was before");
        assert!(reads.look(&of(5, 5_000_000, 1), AT).is_empty(), "none has ended");
        let found = reads.look(&of(7, 9_000_000, 2), AT);
        let read = |gpu: &str| FlightRead { at_ns: 7, gpu: gpu.to_owned(), readings: 2, failed: 1, ms: 2.0 };
        assert_eq!(found, [read("a"), read("b")]);
    }

    #[test]
    fn a_gpu_whose_readings_slow_down_is_an_event_of_the_agent_and_so_is_their_end() {
        let states = ["a", "b"].map(|uuid| {
            let gpu = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
            gpu_up(Arc::new(gpu.with(IdentityColumn::Source, "nvml").unwrap()))
        });
        let mut watch = ReadWatch::new(Origin::default());
        let (mut found, mut slow_ns) = (Vec::new(), 0);
        for second in 0..120 {
            slow_ns += if (100..110).contains(&second) { 40_700_000 } else { 0 };
            let workers = [("a", slow_ns), ("b", 0)].map(|(gpu, more_ns)| WorkerStats {
                targets: vec![Arc::from(gpu)],
                ..worker(Table::GpuEvents, second, second * 300_000 + more_ns, 0)
            });
            let at_ns = i64::try_from(second).unwrap() * SECOND_NS;
            let news = watch.look(&workers, &states, Moment { wall_ns: at_ns, mono_ns: at_ns });
            assert_eq!(news.reads.len(), if second == 0 { 0 } else { 2 });
            found.extend(news.rows);
        }
        let events: Vec<HealthEvent> = found.iter().flat_map(HealthEvent::of_rows).collect();
        let [slowed, usual] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&*slowed.kind, &*slowed.gpu, slowed.at_ns), ("reads_slowed", "a", 103 * SECOND_NS));
        assert_eq!((&*slowed.detail, slowed.code), ("its readings slowed from 0.3 to 41 ms", Some(41_000)));
        assert_eq!((&*usual.kind, &*usual.gpu, usual.at_ns), ("reads_usual", "a", 112 * SECOND_NS));
        assert_eq!(found[0].identity(0).get(IdentityColumn::Source), Some(AGENT));
    }
}
