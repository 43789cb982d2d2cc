//! How long readings took, from the rows that they gave: what [`SlowReads`] judges.
//!
//! Workers hand their rows on at different times. They are judged when those of all GPUs of the node have come, so that a node that is
//! slow as a whole is not taken for the GPU whose rows come first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Table};

use crate::slow_reads::{GPUS_MAX, PaceChange, SETTLED_NS, SlowReads, TimedReading};

/// Readings of a GPU within this time count as one, as a mean.
const SPAN_NS: i64 = SECOND_NS / 2;
/// A GPU without a row for so long is waited for no more. Rows wait with their workers for a second at most.
const PATIENCE_NS: i64 = 2 * SECOND_NS;

/// Gathers readings from the rows of a node, and notices GPUs whose readings slow down.
#[derive(Debug, Default)]
pub struct RowReads {
    slow: SlowReads,
    gpus: HashMap<Arc<str>, ReadRows>,
}

/// The rows of a GPU.
#[derive(Debug, Default)]
struct ReadRows {
    /// Readings that are not judged yet, by the number of their span.
    spans: BTreeMap<i64, SpanReads>,
    /// Time of the row that came last, nanoseconds UTC.
    newest_ns: i64,
    /// Whether the reading of that row failed: no row follows it until one succeeds.
    has_failed: bool,
}

/// Readings within a span.
#[derive(Debug, Clone, Copy, Default)]
struct SpanReads {
    sum_us: f64,
    count: u32,
    last_ns: i64,
}

impl RowReads {
    /// Takes rows that say how long their reading took. One that failed is not compared with others.
    pub fn take(&mut self, batch: &Batch) {
        let Some(took) = batch.read_us().filter(|_| batch.table() == Table::GpuEvents) else { return };
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let (Some(key), Some(us)) = (keys.keys.get(*id as usize), took.value(row)) else { continue };
            if !self.gpus.contains_key(key) && self.gpus.len() >= GPUS_MAX {
                continue;
            }
            let gpu = self.gpus.entry(Arc::clone(key)).or_default();
            let has_failed = batch.read_error(row).is_some();
            // A row that is earlier than the one before it is of a clock that was set back.
            (gpu.newest_ns, gpu.has_failed) = (at_ns, has_failed);
            if !has_failed {
                let span = gpu.spans.entry(at_ns.div_euclid(SPAN_NS)).or_default();
                span.sum_us += us.as_f64();
                span.count += 1;
                span.last_ns = span.last_ns.max(at_ns);
            }
        }
    }

    /// Judges what has come of all GPUs until this time, nanoseconds UTC. Answers what has changed since the look before.
    pub fn look(&mut self, now_ns: i64) -> Vec<PaceChange> {
        let awaited = self.gpus.values().filter(|gpu| gpu.is_awaited(now_ns));
        let until = awaited.map(|gpu| gpu.newest_ns.div_euclid(SPAN_NS)).min().unwrap_or(i64::MAX);
        let mut changes = Vec::new();
        while let Some(span) = self.first_span().filter(|span| *span <= until) {
            let of_span = self.gpus.iter_mut().filter_map(|(key, gpu)| Some((key, gpu.spans.remove(&span)?)));
            let readings = of_span.map(|(gpu, SpanReads { sum_us, count, last_ns })| {
                let ms = sum_us / f64::from(count) / 1e3;
                TimedReading { gpu, at_ns: last_ns, ms }
            });
            changes.extend(self.slow.look(readings));
        }
        self.gpus.retain(|_, gpu| now_ns.saturating_sub(gpu.newest_ns) < SETTLED_NS);
        changes
    }

    /// The number of the oldest span with readings.
    fn first_span(&self) -> Option<i64> {
        self.gpus.values().filter_map(|gpu| gpu.spans.keys().next().copied()).min()
    }
}

impl ReadRows {
    /// Whether more rows of it are on their way.
    fn is_awaited(&self, now_ns: i64) -> bool {
        !self.has_failed && now_ns.saturating_sub(self.newest_ns) < PATIENCE_NS
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::{READ_ERROR_COLUMN, READ_US_COLUMN};
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin};

    use super::*;

    /// Rows of a GPU: when, in milliseconds, and how long their readings took, in microseconds.
    fn rows(gpu: &str, reads: impl IntoIterator<Item = (i64, i64)>) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
        for (at_ms, us) in reads {
            let row = builder.row(at_ms * 1_000_000, id);
            builder.set_extra(row, READ_US_COLUMN, us).unwrap();
        }
        builder.finish(Origin::default(), 1).unwrap()
    }

    /// The seconds in which readings of a GPU slowed, of four GPUs that are read ten times a second for two minutes and whose workers hand
    /// on so many rows at once, one after the other.
    fn slowed(count: i64, us: impl Fn(usize, i64) -> i64) -> Vec<(String, i64)> {
        let mut reads = RowReads::default();
        let mut found = Vec::new();
        for first in (0..1_200).step_by(usize::try_from(count).unwrap()) {
            for gpu in 0..4 {
                let times = (first..first + count).map(|tenth| tenth * 100);
                reads.take(&rows(&gpu.to_string(), times.map(|at_ms| (at_ms, us(gpu, at_ms)))));
                found.extend(reads.look((first + count) * SECOND_NS / 10 - SECOND_NS / 20));
            }
        }
        let slowed = found.into_iter().filter(|change| change.slowed.is_some());
        slowed.map(|change| (change.gpu.to_string(), change.at_ns / SECOND_NS)).collect()
    }

    #[test]
    fn rows_of_a_gpu_whose_readings_slow_down_tell_it() {
        let us = |gpu: usize, at_ms: i64| if gpu == 1 && at_ms >= 100_000 { 41_000 } else { 310 };
        // The fourth slow half of a second.
        assert_eq!(slowed(10, us), [("1".to_owned(), 101)]);
    }

    #[test]
    fn a_node_that_is_slow_is_none_however_its_rows_come() {
        // The first rows of a GPU that are slow are enough for the rule, while those of the others are on their way.
        assert!(slowed(19, |_, at_ms| if at_ms >= 100_700 { 41_000 } else { 310 }).is_empty());
    }

    #[test]
    fn rows_of_all_are_waited_for_after_a_clock_was_set_back_too() {
        let (mut reads, mut found) = (RowReads::default(), Vec::new());
        for second in 10_000..10_100 {
            for gpu in ["a", "b"] {
                reads.take(&rows(gpu, [(second * 1_000, 310)]));
            }
            found.extend(reads.look(second * SECOND_NS));
        }
        // By an hour.
        let back = |at_ms: i64| at_ms - 3_600_000;
        for gpu in ["a", "b"] {
            reads.take(&rows(gpu, [(back(10_100_000), 310)]));
        }
        for gpu in ["a", "b"] {
            let slow = [10_100_400, 10_100_900, 10_101_400, 10_101_900].map(|at_ms| (back(at_ms), 41_000));
            reads.take(&rows(gpu, slow));
            found.extend(reads.look(back(10_101_900) * 1_000_000));
        }
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_gpu_that_gives_no_row_is_waited_for_no_more() {
        let mut reads = RowReads::default();
        let second = |reads: &mut RowReads, second: i64, us: i64| {
            reads.take(&rows("a", [(second * 1_000, us)]));
            reads.look(second * SECOND_NS)
        };
        reads.take(&rows("b", [(0, 310)]));
        let changes: Vec<_> =
            (0..110).flat_map(|at| second(&mut reads, at, if at < 100 { 310 } else { 41_000 })).collect();
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((&*change.gpu, change.at_ns), ("a", 103 * SECOND_NS));
        assert_eq!(change.slowed.unwrap().to_string(), "its readings slowed from 0.3 to 41 ms");
    }

    #[test]
    fn a_reading_that_failed_is_compared_with_none_and_nobody_waits_for_the_next() {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "a").unwrap());
        let row = builder.row(SECOND_NS, id);
        builder.set_extra(row, READ_US_COLUMN, 900_000_i64).unwrap();
        builder.set_extra_text(row, READ_ERROR_COLUMN, "gone").unwrap();
        let mut reads = RowReads::default();
        reads.take(&builder.finish(Origin::default(), 1).unwrap());
        assert!(reads.gpus["a"].spans.is_empty() && !reads.gpus["a"].is_awaited(SECOND_NS));
    }
}
