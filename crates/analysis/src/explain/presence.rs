//! In which minutes of a range a GPU reported.

use gpuvitals_core::history::{Buckets, Cell, GpuState};
use gpuvitals_core::number::float;
use gpuvitals_core::time::MINUTE_NS;

use crate::cells::GpuCells;
use crate::findings::SETTLE_NS;
use crate::robust::median;
use gpuvitals_core::integral::seconds;

/// A distance between two values this many times the usual one is silence; a shorter one is a reading that came late.
const LATE: f64 = 1.5;

/// The minutes of a range, and those in which a GPU should have reported and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Minutes with a value, and minutes that are over and have none.
    pub minutes: usize,
    /// Minutes without a value, in a pause that is longer than usual for the GPU.
    pub silent: usize,
}

/// Values of a minute: the time of the newest, and how many.
#[derive(Clone, Copy)]
struct FilledStep {
    step: usize,
    newest_ns: i64,
    count: u64,
}

impl Presence {
    /// From the answer to [`crate::findings::Recent::presence_query`] about a range that ends at `end_ns`. Minutes before the first row
    /// of the GPU do not count, and neither do those that are not over.
    pub fn of(buckets: &Buckets, gpu: &GpuState, end_ns: i64, now_ns: i64) -> Self {
        let steps = buckets.steps();
        let filled: Vec<FilledStep> = GpuCells::by_gpu(buckets)
            .get(&gpu.key)
            .map_or_else(Vec::new, |cells| (0..steps.count).filter_map(|step| cells.filled(step)).collect());
        let usual_s = usual_distance(&filled);
        let over_ns = end_ns.min(now_ns.saturating_sub(SETTLE_NS));
        // The minute before the range was for the counters.
        let expected = |step: &usize| {
            let end_ns = steps.time(*step).saturating_add(MINUTE_NS);
            *step > 0 && end_ns <= over_ns && end_ns > gpu.first_seen_ns
        };
        let first_ns = steps.time(1).max(gpu.first_seen_ns);
        let last_ns = over_ns.max(first_ns);
        // Pauses: before the first value, between two, and after the last.
        let begins = filled.iter().map(|minute| (minute.step + 1, minute.newest_ns));
        let ends = filled.iter().map(|minute| (minute.step, minute.newest_ns, minute.count));
        let pauses =
            std::iter::once((0, first_ns)).chain(begins).zip(ends.chain([(steps.count, last_ns, 1)]));
        let is_long = |from_ns: i64, to_ns: i64, count: u64| {
            let after_first_s = usual_s * float(count - 1);
            seconds(to_ns - from_ns) - after_first_s > LATE * usual_s
        };
        let silent = pauses
            .filter(|((_, from_ns), (_, to_ns, count))| is_long(*from_ns, *to_ns, *count))
            .map(|((from, _), (to, ..))| (from..to).filter(expected).count())
            .sum();
        let reported = |step: &usize| filled.iter().any(|minute| minute.step == *step);
        let minutes = (1..steps.count).filter(|step| expected(step) || reported(step)).count();
        Self { minutes, silent }
    }
}

impl GpuCells<'_> {
    fn filled(&self, step: usize) -> Option<FilledStep> {
        let cells = self.buckets.metrics().iter().filter_map(|measured| self.whole(measured.metric, step));
        let all = |a: FilledStep, b: FilledStep| FilledStep {
            step,
            newest_ns: a.newest_ns.max(b.newest_ns),
            count: a.count.max(b.count),
        };
        cells.map(|Cell { last_ns, count, .. }| FilledStep { step, newest_ns: last_ns, count }).reduce(all)
    }
}

/// Usual distance between two values, seconds; of a single minute its own.
fn usual_distance(filled: &[FilledStep]) -> f64 {
    let pairs = filled.iter().zip(filled.iter().skip(1));
    let distance = |(a, b): (&FilledStep, &FilledStep)| seconds(b.newest_ns - a.newest_ns) / float(b.count);
    let mut distances: Vec<f64> = pairs.map(distance).collect();
    let count = filled.first().map_or(1.0, |minute| float(minute.count));
    median(&mut distances).unwrap_or(seconds(MINUTE_NS) / count)
}
