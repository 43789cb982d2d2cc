//! How long readings of the GPUs take. One that is about to fall off the bus shows it in no value, but its readings slow down before.

use std::collections::{HashMap, VecDeque};

use gpuvitals_analysis::robust::Spread;
use gpuvitals_core::time::{self, MINUTE_NS};
use serde::{Deserialize, Serialize};

use crate::trigger::FlightTrigger;

/// Readings of a GPU that are its baseline: some ten minutes at one a second.
const BASELINE_MAX: usize = 600;
/// Fewest readings to compare with.
const BASELINE_MIN: usize = 60;
/// Newest readings of which most must be slow: a single one always may, as that of all values now and then.
const NEWEST: usize = 5;
/// Slow ones among them.
const SLOW_MIN: usize = 3;
/// A slow reading takes so many times as long as the median.
const TIMES: f64 = 5.0;
/// And is so many robust deviations above it.
const DISTANCE: f64 = 8.0;
/// Smallest deviation that counts, milliseconds: what the machine's own work costs a reading.
const DEVIATION_MIN_MS: f64 = 1.0;
/// What has been slow for so long is how the GPU is read.
const SETTLED_NS: i64 = 10 * MINUTE_NS;
/// Fewest GPUs of a node of which most are slow because the node is.
const PEERS_MIN: usize = 3;
/// Most GPUs; a node has fewer.
const GPUS_MAX: usize = 512;

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

/// Notices GPUs whose readings slow down.
#[derive(Debug, Default)]
pub(crate) struct SlowReads {
    gpus: HashMap<String, ReadGpu>,
}

#[derive(Debug, Default)]
struct ReadGpu {
    baseline: VecDeque<f64>,
    /// Whether the newest readings were slow.
    newest: VecDeque<bool>,
    /// Since when they are.
    slow_since_ns: Option<i64>,
}

impl SlowReads {
    /// Takes readings; the GPUs that are slow from now on, and the others of the node are not.
    pub(crate) fn look(&mut self, reads: &[FlightRead]) -> Vec<FlightTrigger> {
        let mut begun = Vec::new();
        for read in reads.iter().filter(|read| read.readings > 0 && read.ms.is_finite()) {
            if self.gpus.len() >= GPUS_MAX && !self.gpus.contains_key(&read.gpu) {
                continue;
            }
            let gpu = self.gpus.entry(read.gpu.clone()).or_default();
            begun.extend(gpu.take(read).map(|median| (read, median)));
        }
        let slow = self.gpus.values().filter(|gpu| gpu.slow_since_ns.is_some()).count();
        let is_the_nodes = self.gpus.len() >= PEERS_MIN && slow * 2 > self.gpus.len();
        if is_the_nodes {
            return Vec::new();
        }
        begun.into_iter().map(|(read, median)| trigger(read, median)).collect()
    }
}

impl ReadGpu {
    /// The median until now, if readings are slow from this one on.
    fn take(&mut self, read: &FlightRead) -> Option<f64> {
        let spread =
            Spread::of(self.baseline.iter().copied()).filter(|_| self.baseline.len() >= BASELINE_MIN);
        let is_slow = spread.is_some_and(|spread| {
            read.ms > TIMES * spread.median && spread.distance(read.ms, DEVIATION_MIN_MS) > DISTANCE
        });
        if !is_slow {
            push(&mut self.baseline, read.ms, BASELINE_MAX);
        }
        push(&mut self.newest, is_slow, NEWEST);
        if self.newest.iter().filter(|slow| **slow).count() < SLOW_MIN {
            self.slow_since_ns = None;
            return None;
        }
        if let Some(since_ns) = self.slow_since_ns {
            if read.at_ns.saturating_sub(since_ns) >= SETTLED_NS {
                *self = Self::default();
            }
            return None;
        }
        self.slow_since_ns = Some(read.at_ns);
        spread.map(|spread| spread.median)
    }
}

fn push<T>(values: &mut VecDeque<T>, value: T, len_max: usize) {
    if values.len() >= len_max {
        values.pop_front();
    }
    values.push_back(value);
}

fn trigger(read: &FlightRead, median: f64) -> FlightTrigger {
    let detail = format!("its readings slowed from {} to {} ms", Milliseconds(median), Milliseconds(read.ms));
    let trigger = FlightTrigger::of_node("reads_slowed", &detail, read.at_ns);
    FlightTrigger { gpu: Some(read.gpu.clone()), ..trigger }
}

/// Milliseconds with a digit that says something.
struct Milliseconds(f64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.0 < 0.1 { 3 } else { usize::from(self.0 < 10.0) };
        write!(f, "{:.digits$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::SECOND_NS;

    use super::*;

    fn read(gpu: &str, second: usize, ms: f64) -> FlightRead {
        let at_ns = i64::try_from(second).unwrap() * SECOND_NS;
        FlightRead { at_ns, gpu: gpu.to_owned(), readings: 1, failed: 0, ms }
    }

    /// The seconds in which readings that took so long, a second apart, were a trigger.
    fn seconds(took: impl Iterator<Item = f64>) -> Vec<i64> {
        let mut slow = SlowReads::default();
        let found = took.enumerate().flat_map(|(second, ms)| slow.look(&[read("a", second, ms)]));
        found.map(|trigger| trigger.at_ns / SECOND_NS).collect()
    }

    /// Usual readings: each thirtieth reads all values.
    fn usual(second: usize) -> f64 {
        if second.is_multiple_of(30) {
            25.0
        } else {
            0.3 + 0.01 * f64::from(u32::try_from(second % 7).unwrap())
        }
    }

    #[test]
    fn readings_that_slow_down_are_one_trigger() {
        let took = (0..700).map(|second| if second < 500 { usual(second) } else { 41.0 });
        assert_eq!(seconds(took), [502]);
        let mut slow = SlowReads::default();
        let reads: Vec<_> = (0..100).map(|second| read("a", second, 0.3)).collect();
        assert!(slow.look(&reads).is_empty());
        let found: Vec<_> = (100..103).flat_map(|second| slow.look(&[read("a", second, 41.0)])).collect();
        assert_eq!(found[0].detail, "its readings slowed from 0.3 to 41 ms");
        assert_eq!((found[0].kind.as_str(), found[0].gpu.as_deref()), ("reads_slowed", Some("a")));
    }

    #[test]
    fn what_is_usual_is_none() {
        assert!(seconds((0..3_000).map(usual)).is_empty());
        let hiccups = |second: usize| if second % 10 == 1 { 200.0 } else { usual(second) };
        assert!(seconds((0..3_000).map(hiccups)).is_empty(), "single ones");
        assert!(seconds((0..50).map(|second| if second < 40 { 0.3 } else { 41.0 })).is_empty(), "too few");
        assert!(
            seconds((0..200).map(|second| if second < 100 { 0.1 } else { 0.9 })).is_empty(),
            "microseconds"
        );
    }

    #[test]
    fn what_stays_slow_becomes_usual_and_can_slow_down_again() {
        let took = (0..3_000).map(|second| match second {
            0..500 => 0.3,
            500..2_000 => 41.0,
            _ => 900.0,
        });
        assert_eq!(seconds(took), [502, 2_002]);
    }

    #[test]
    fn a_node_that_is_slow_as_a_whole_is_no_fault_of_a_gpu() {
        let look = |slow_gpus: usize| {
            let mut slow = SlowReads::default();
            let all = |second: usize| {
                let ms = move |gpu: usize| if second >= 100 && gpu < slow_gpus { 41.0 } else { 0.3 };
                (0..8).map(|gpu| read(&gpu.to_string(), second, ms(gpu))).collect::<Vec<_>>()
            };
            (0..110).map(|second| slow.look(&all(second)).len()).sum::<usize>()
        };
        assert_eq!((look(1), look(2), look(8)), (1, 2, 0));
    }
}
