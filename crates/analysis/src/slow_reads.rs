//! Readings of GPUs that slow down. One that is about to fall off the bus shows it in no value, but its readings take longer before.
//!
//! One rule for the trigger of a flight recorder and for the finding `reads_slowed`. A node applies it, since it alone knows each reading.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use gpuvitals_core::time::MINUTE_NS;

use crate::robust::Spread;

/// Readings of a GPU that are its baseline: some ten minutes at one a second.
const BASELINE_MAX: usize = 600;
/// Fewest readings to compare with.
const BASELINE_MIN: usize = 60;
/// Newest readings that are looked at.
const NEWEST: usize = 5;
/// Slow ones among them from which on the readings are slow: a single one always may, as that of all values now and then.
const SLOW_MIN: usize = 4;
/// Slow ones among them by which they stay so.
const SLOW_STAY: usize = 3;
/// Slow ones among them by which a GPU may become so, too.
const NEAR_MIN: usize = 2;
/// Where a GPU had so many, and they became no more, within the readings of a baseline, its readings waver: then all of these must be slow.
const WAVERING_MIN: usize = 8;
/// A slow reading takes so many times as long as the median.
const TIMES: f64 = 5.0;
/// And is so many robust deviations above it.
const DISTANCE: f64 = 8.0;
/// Smallest deviation that counts, milliseconds: what the machine's own work costs a reading.
const DEVIATION_MIN_MS: f64 = 1.0;
/// What has been slow for so long is how the GPU is read.
pub(crate) const SETTLED_NS: i64 = 10 * MINUTE_NS;
/// Fewest GPUs of a node of which most are slow because the node is.
const PEERS_MIN: usize = 2;
/// Most GPUs; a node has fewer.
pub(crate) const GPUS_MAX: usize = 512;

/// How long a reading of a GPU took.
#[derive(Debug, Clone, Copy)]
pub struct TimedReading<'a> {
    /// Key of the GPU.
    pub gpu: &'a str,
    /// When it was known, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// How long it took, milliseconds.
    pub ms: f64,
}

/// A GPU whose readings are slow from now on, or are no more.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceChange {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// When it became so, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// What it became; none: its readings take as long as before.
    pub slowed: Option<SlowedReads>,
}

/// From what to what the readings of a GPU slowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowedReads {
    /// Median of those before, milliseconds.
    pub usual_ms: f64,
    /// The one by which it was seen.
    pub slow_ms: f64,
}

impl fmt::Display for SlowedReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usual, slow) = (Milliseconds(self.usual_ms), Milliseconds(self.slow_ms));
        write!(f, "its readings slowed from {usual} to {slow} ms")
    }
}

/// Notices GPUs whose readings slow down, and the rest of their node's do not.
#[derive(Debug, Default)]
pub struct SlowReads {
    gpus: HashMap<Arc<str>, ReadGpu>,
}

#[derive(Debug)]
struct ReadGpu {
    baseline: VecDeque<f64>,
    /// Whether the newest readings were slow, [`WAVERING_MIN`] at most.
    newest: VecDeque<bool>,
    /// Whether some of them are, which may become a spell.
    is_near: bool,
    /// Readings since some were and became none.
    calm: usize,
    spell: Option<SlowSpell>,
    last_ns: i64,
}

impl Default for ReadGpu {
    fn default() -> Self {
        let (baseline, newest) = (VecDeque::new(), VecDeque::new());
        Self { baseline, newest, is_near: false, calm: BASELINE_MAX, spell: None, last_ns: 0 }
    }
}

/// A time in which most readings are slow.
#[derive(Debug, Clone, Copy)]
struct SlowSpell {
    since_ns: i64,
    slowed: SlowedReads,
    /// Whether it is known outside that it has begun.
    is_told: bool,
}

impl SlowReads {
    /// Takes the readings of a node. Answers what has changed since the look before. While most GPUs have slow readings none is named; one
    /// that is still slow when the others are fast again is named then.
    pub fn look<'a>(&mut self, readings: impl IntoIterator<Item = TimedReading<'a>>) -> Vec<PaceChange> {
        let (mut changes, mut now_ns) = (Vec::new(), i64::MIN);
        for reading in readings.into_iter().filter(|reading| reading.ms.is_finite()) {
            now_ns = now_ns.max(reading.at_ns);
            if !self.gpus.contains_key(reading.gpu) && self.gpus.len() >= GPUS_MAX {
                continue;
            }
            let read = self.gpus.entry(Arc::from(reading.gpu)).or_default();
            if read.take(reading).is_some_and(|over| over.is_told) {
                let gpu = Arc::from(reading.gpu);
                changes.push(PaceChange { gpu, at_ns: reading.at_ns, slowed: None });
            }
        }
        // Nobody compares with a GPU that is gone.
        self.gpus.retain(|_, read| now_ns.saturating_sub(read.last_ns) < SETTLED_NS);
        changes.extend(self.spells(now_ns));
        changes
    }

    /// The slow spells to name now. Where most GPUs of the node have one, they are the node's: none is named, and those that were are
    /// taken back.
    fn spells(&mut self, now_ns: i64) -> Vec<PaceChange> {
        let gpus = self.gpus.len();
        let are_most = |count: usize| gpus >= PEERS_MIN && count * 2 > gpus;
        let near = self.gpus.values().filter(|read| read.slow_ones() >= NEAR_MIN).count();
        let with_spell = self.gpus.values().filter(|read| read.spell.is_some()).count();
        let (is_doubtful, is_the_nodes) = (are_most(near), are_most(with_spell));
        let spells = self.gpus.iter_mut().filter_map(|(gpu, read)| Some((gpu, read.spell.as_mut()?)));
        let change = |(gpu, spell): (&Arc<str>, &mut SlowSpell)| {
            let gpu = Arc::clone(gpu);
            if spell.is_told && is_the_nodes {
                // What is told again is newer than this.
                (spell.is_told, spell.since_ns) = (false, now_ns.saturating_add(1));
                return Some(PaceChange { gpu, at_ns: now_ns, slowed: None });
            }
            if spell.is_told || is_doubtful {
                return None;
            }
            spell.is_told = true;
            Some(PaceChange { gpu, at_ns: spell.since_ns, slowed: Some(spell.slowed) })
        };
        spells.filter_map(change).collect()
    }
}

impl ReadGpu {
    /// The spell that is over with this reading, if one is.
    fn take(&mut self, reading: TimedReading<'_>) -> Option<SlowSpell> {
        self.last_ns = reading.at_ns;
        // Most readings are too short to be slow, whatever was before.
        let may_be_slow = reading.ms > DISTANCE * DEVIATION_MIN_MS && self.baseline.len() >= BASELINE_MIN;
        let spread = may_be_slow.then(|| Spread::of(self.baseline.iter().copied())).flatten();
        let is_slow = spread.is_some_and(|spread| {
            let is_far = spread.distance(reading.ms, DEVIATION_MIN_MS) > DISTANCE;
            reading.ms > TIMES * spread.median && is_far
        });
        if !is_slow {
            push(&mut self.baseline, reading.ms, BASELINE_MAX);
        }
        push(&mut self.newest, is_slow, WAVERING_MIN);
        let begins = self.begins(is_slow);
        if self.spell.is_some() && self.slow_ones() < SLOW_STAY {
            return self.spell.take();
        }
        match self.spell {
            Some(spell) if reading.at_ns.saturating_sub(spell.since_ns) >= SETTLED_NS => {
                *self = Self { last_ns: reading.at_ns, ..Self::default() };
                Some(spell)
            }
            None if begins => {
                let slowed = SlowedReads { usual_ms: spread?.median, slow_ms: reading.ms };
                self.is_near = false;
                self.spell = Some(SlowSpell { since_ns: reading.at_ns, slowed, is_told: false });
                None
            }
            _ => None,
        }
    }

    /// How many of the newest readings were slow.
    fn slow_ones(&self) -> usize {
        self.newest.iter().rev().take(NEWEST).filter(|slow| **slow).count()
    }

    /// Whether the newest readings are slow, by how calm those before were.
    fn begins(&mut self, is_slow: bool) -> bool {
        let slow_ones = self.slow_ones();
        self.calm = self.calm.saturating_add(1);
        if self.is_near && slow_ones < NEAR_MIN {
            (self.is_near, self.calm) = (false, 0);
        }
        self.is_near |= is_slow && slow_ones >= NEAR_MIN && self.spell.is_none();
        if self.calm < BASELINE_MAX {
            return self.newest.len() >= WAVERING_MIN && self.newest.iter().all(|slow| *slow);
        }
        slow_ones >= SLOW_MIN
    }
}

fn push<T>(values: &mut VecDeque<T>, value: T, len_max: usize) {
    if values.len() >= len_max {
        values.pop_front();
    }
    values.push_back(value);
}

/// Milliseconds with a digit that says something.
struct Milliseconds(f64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.0 < 0.1 { 3 } else { usize::from(self.0 < 10.0) };
        write!(f, "{:.digits$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::SECOND_NS;

    use super::*;

    /// The changes that readings of so many GPUs make, one reading a second: second, GPU, and whether it slowed down.
    fn told(gpus: usize, seconds: usize, ms: impl Fn(usize, usize) -> f64) -> Vec<(i64, String, bool)> {
        let mut slow = SlowReads::default();
        let names: Vec<String> = (0..gpus).map(|gpu| gpu.to_string()).collect();
        let mut found = Vec::new();
        for second in 0..seconds {
            let at_ns = i64::try_from(second).unwrap() * SECOND_NS;
            let readings = names.iter().enumerate();
            let readings = readings.map(|(gpu, name)| TimedReading { gpu: name, at_ns, ms: ms(gpu, second) });
            found.extend(slow.look(readings));
        }
        let words =
            |change: PaceChange| (change.at_ns / SECOND_NS, change.gpu.to_string(), change.slowed.is_some());
        found.into_iter().map(words).collect()
    }

    /// The seconds in which readings of one GPU slowed.
    fn seconds(seconds: usize, ms: impl Fn(usize) -> f64) -> Vec<i64> {
        let slowed = told(1, seconds, |_, second| ms(second)).into_iter().filter(|(.., slowed)| *slowed);
        slowed.map(|(second, ..)| second).collect()
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
    fn readings_that_slow_down_are_told_once_and_so_is_their_end() {
        let slow = |second: usize| if (200..250).contains(&second) { 41.0 } else { usual(second) };
        let found = told(1, 300, |_, second| slow(second));
        assert_eq!(found, [(203, "0".to_owned(), true), (252, "0".to_owned(), false)]);
        let words = SlowedReads { usual_ms: 0.3, slow_ms: 41.0 }.to_string();
        assert_eq!(words, "its readings slowed from 0.3 to 41 ms");
    }

    #[test]
    fn what_is_usual_is_none() {
        assert!(seconds(1_000, usual).is_empty());
        let hiccups = |second: usize| if second % 10 == 1 { 200.0 } else { usual(second) };
        assert!(seconds(1_000, hiccups).is_empty(), "single ones");
        assert!(seconds(50, |second| if second < 40 { 0.3 } else { 41.0 }).is_empty(), "too few");
        assert!(seconds(200, |second| if second < 100 { 0.1 } else { 0.9 }).is_empty(), "microseconds");
    }

    #[test]
    fn of_a_gpu_whose_readings_waver_more_must_be_slow() {
        let slow_from = |second: usize| {
            let is_slow = [100, 102].contains(&second) || (200..250).contains(&second);
            if is_slow { 41.0 } else { 0.3 }
        };
        assert_eq!(seconds(300, slow_from), [207]);
        let mut chance = 7_u64;
        let mut is_slow = || {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chance >> 32 < u64::from(u32::MAX) / 20
        };
        let slow: Vec<bool> = (0..3_000).map(|_| is_slow()).collect();
        let busy = |second: usize| if slow[second] { 20.0 } else { usual(second) };
        assert!(seconds(3_000, busy).is_empty(), "a twentieth, as it comes");
    }

    #[test]
    fn what_stays_slow_becomes_usual_and_can_slow_down_again() {
        let took = |second| match second {
            0..100 => 0.3,
            100..900 => 41.0,
            _ => 900.0,
        };
        assert_eq!(seconds(1_000, took), [103, 903]);
    }

    #[test]
    fn a_node_that_is_slow_as_a_whole_is_no_fault_of_a_gpu() {
        let count = |gpus: usize, slow: usize| {
            told(gpus, 110, |gpu, second| if second >= 100 && gpu < slow { 41.0 } else { 0.3 }).len()
        };
        assert_eq!((count(8, 1), count(8, 2), count(8, 8)), (1, 2, 0));
        assert_eq!((count(2, 1), count(2, 2), count(1, 1)), (1, 0, 1));
    }

    #[test]
    fn gpus_of_a_busy_node_that_slow_down_one_after_another_are_none() {
        // Nobody's readings come at the same instant, and load comes and goes within some seconds.
        let ms = |gpu: usize, second: usize| {
            let begins = 100 + gpu % 3;
            if (begins..begins + 30).contains(&second) { 41.0 } else { 0.3 }
        };
        assert!(told(8, 150, ms).is_empty());
    }

    #[test]
    fn one_that_stays_slow_when_its_node_is_idle_again_is_told_then() {
        let ms = |gpu: usize, second: usize| {
            let is_slow = (100..130).contains(&second) || (gpu == 3 && second >= 100);
            if is_slow { 41.0 } else { 0.3 }
        };
        assert_eq!(told(8, 150, ms), [(103, "3".to_owned(), true)]);
    }

    #[test]
    fn one_that_was_told_is_the_nodes_while_most_others_are_slow_too() {
        let ms = |gpu: usize, second: usize| {
            let is_slow = if gpu == 3 { second >= 100 } else { (110..120).contains(&second) };
            if is_slow { 41.0 } else { 0.3 }
        };
        let found = [(103, true), (113, false), (113, true)];
        assert_eq!(told(8, 150, ms), found.map(|(second, slowed)| (second, "3".to_owned(), slowed)));
    }

    #[test]
    fn a_gpu_that_is_read_no_more_is_forgotten() {
        let mut slow = SlowReads::default();
        let reading = |gpu, at_ns| TimedReading { gpu, at_ns, ms: 0.3 };
        slow.look([reading("a", 0), reading("b", 0)]);
        slow.look([reading("b", SETTLED_NS)]);
        assert_eq!(slow.gpus.len(), 1);
        assert!(slow.look([]).is_empty());
        assert_eq!(slow.gpus.len(), 1, "a look without readings is no time");
    }
}
