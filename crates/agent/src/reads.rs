//! How long readings of the GPUs take, from what their workers count.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::number::float;
use gpuvitals_flight::FlightRead;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::sampler::WorkerStats;

/// Looks at the counts of the workers: at one sample a second the difference of two looks is one reading.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes {
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
    pub(crate) fn look(&mut self, workers: &[WorkerStats], now: Moment) -> Vec<FlightRead> {
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
    use gpuvitals_sources::sampler::Lateness;

    use super::*;

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
}
