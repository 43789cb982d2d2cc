//! The time after which a signal repeats.
//!
//! The signal is compared with itself, shifted. That is done in blocks of a few periods, each by itself, and in those alone in
//! which there is work: a load phase or a checkpoint is larger than anything in a step. Long shifts are tried on a signal that
//! is folded until they are some places long, so that steps of slightly different lengths still lie on each other.

use gpuvitals_core::number::float;

use super::bounds::STEPS_MIN;
use super::wave::{folded, likeness, mean, top_of, whole, without_line};

/// Shifts that are tried at each level, in places; on the signal as it is also the octave below.
const OCTAVES: [(usize, usize); 2] = [(4, 8), (8, 16)];
/// Length of a block in periods.
const BLOCK_PERIODS: f64 = 6.0;
/// Height between the quietest and the busiest blocks from which there is work in a block.
const WORK_FROM: f64 = 0.3;
/// Least strength of a shift that may be the period.
const STRENGTH_MIN: f64 = 0.3;
/// A shorter shift is the period if the signal is that much as alike after it as after the best one.
const SHORTER_SHARE: f64 = 0.8;
/// Longest shift that is shorter than the best one and not the same.
const SHORTER_MAX: f64 = 0.8;
/// A shift of few places or readings cannot lie on the period: that much less is asked of it, divided by their number.
const COARSE: f64 = 1.0;
/// So many places and readings are few.
const PLACES_FEW: f64 = 8.0;
const READINGS_FEW: f64 = 4.0;
/// A shift that ends between two readings lies on neither of them: that much less is asked of it at most, divided by the number of
/// readings.
const BETWEEN: f64 = 1.7;
/// So many readings are enough for that not to matter.
const READINGS_MANY: f64 = 12.0;
/// How far from a reading, of the way to the middle between two, such a shift ends at least.
const BETWEEN_FROM: f64 = 0.4;
/// Half a shift of few readings may be the period itself from this share of the shift's likeness on: a step has another one in its
/// middle only if it is two.
const HALF_SHARE: f64 = 0.2;

/// A shift after which a signal is like itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shift {
    /// In places of the signal.
    pub(super) places: f64,
    /// How alike the signal and the shifted one are, up to 1.
    likeness: f64,
    /// How much more than at some shorter shift.
    prominence: f64,
}

impl Shift {
    /// How much speaks for it.
    pub(super) fn strength(self) -> f64 {
        self.likeness.min(self.prominence)
    }
}

/// The strongest shift of a signal; none if it does not repeat.
pub(super) fn strongest(values: &[f64]) -> Option<Shift> {
    shifts(values).into_iter().max_by(|a, b| a.strength().total_cmp(&b.strength()))
}

/// The period of a signal whose readings are this far apart: the shortest shift after which it is as it was. Three steps later it is
/// as well, and parts of a step may be like each other. It is as strong as the best shift: what it lacks beside that is due to the
/// readings. None if these do not tell it from half of it.
pub(super) fn period(values: &[f64], reading: f64) -> Option<Shift> {
    let mut shifts = shifts(values);
    shifts.sort_by(|a, b| a.places.total_cmp(&b.places));
    let best = shifts.iter().copied().max_by(|a, b| a.strength().total_cmp(&b.strength()))?;
    let mut shorter = shifts.into_iter().take_while(|shift| shift.places < SHORTER_MAX * best.places);
    let period = shorter.find(|shift| is_enough(values, (*shift, best), reading));
    let period = period.map_or(best, |shift| Shift { places: shift.places, ..best });
    (!may_be_two(values, period, reading)).then_some(period)
}

/// Whether the signal is about as alike after a short shift as after a long one. Both are looked at as finely as the short one
/// needs it: a folded signal has lost the parts of a step.
fn is_enough(values: &[f64], (short, long): (Shift, Shift), reading: f64) -> bool {
    let (mut level, mut scale) = (values.to_vec(), 1.0);
    let longest = OCTAVES.map(|(_, to)| float(to)).into_iter().fold(0.0, f64::max);
    while short.places / scale > longest {
        level = folded(&level);
        scale *= 2.0;
    }
    let blocks = Blocks::of(&level, whole(BLOCK_PERIODS * long.places / scale));
    let near = |shift: Shift| blocks.near(shift.places / scale);
    let less = |count: f64, few: f64| if count < few { COARSE / count } else { 0.0 };
    let readings = short.places / reading;
    let coarse = less(short.places, PLACES_FEW)
        .max(less(readings, READINGS_FEW))
        .max(BETWEEN * between_readings(readings) / readings);
    near(short) >= (SHORTER_SHARE - coarse) * near(long)
}

/// How far from a reading a shift of so many ends, 1 in the middle between two; 0 of many, and of few, of which less is asked anyway.
fn between_readings(readings: f64) -> f64 {
    let matters = (READINGS_FEW..READINGS_MANY).contains(&readings);
    if matters { 2.0 * (readings - readings.round()).abs() } else { 0.0 }
}

/// Whether a shift may be two periods, each with too few readings to look like the next, or ending between two of them.
fn may_be_two(values: &[f64], shift: Shift, reading: f64) -> bool {
    let half = shift.places / 2.0;
    if half >= READINGS_FEW * reading && between_readings(half / reading) < BETWEEN_FROM {
        return false;
    }
    let blocks = Blocks::of(values, whole(BLOCK_PERIODS * shift.places));
    blocks.near(half) >= HALF_SHARE * blocks.near(shift.places)
}

/// All shifts that stand out.
fn shifts(values: &[f64]) -> Vec<Shift> {
    let (mut level, mut scale) = (values.to_vec(), 1.0);
    let mut octaves = OCTAVES.as_slice();
    let mut found = Vec::new();
    while let Some(&(shortest, _)) = octaves.first()
        && level.len() >= STEPS_MIN * shortest
    {
        for &(from, to) in octaves {
            let most = (to + 1).min(level.len() / STEPS_MIN);
            let first = (from / 2).max(2);
            let blocks = Blocks::of(&level, whole(BLOCK_PERIODS * float(to)));
            let likeness: Vec<f64> = (first..=most).map(|places| blocks.likeness(places)).collect();
            let tops = tops(&likeness, first).filter(|shift| shift.places >= float(from) - 0.5);
            found.extend(tops.map(|shift| Shift { places: shift.places * scale, ..shift }));
        }
        level = folded(&level);
        scale *= 2.0;
        octaves = OCTAVES.get(1..).unwrap_or_default();
    }
    found.retain(|shift: &Shift| shift.strength() >= STRENGTH_MIN);
    found
}

/// Where the likeness is highest, of shifts from this one on.
fn tops(likeness: &[f64], first: usize) -> impl Iterator<Item = Shift> {
    let mut valley = f64::INFINITY;
    likeness.windows(3).enumerate().filter_map(move |(place, three)| {
        let &[before, top, after] = three else { return None };
        valley = valley.min(before);
        if top < before || top <= after {
            return None;
        }
        let beside = top_of(before, top, after);
        let height = (top - 0.25 * (before - after) * beside).min(1.0);
        let places = float(first + place + 1) + beside;
        Some(Shift { places, likeness: height, prominence: height - valley })
    })
}

/// Stretches of a signal in which there is work, without their trend.
struct Blocks(Vec<Vec<f64>>);

impl Blocks {
    /// Of a signal, in blocks that overlap by half.
    fn of(values: &[f64], length: usize) -> Self {
        let length = length.clamp(1, values.len().max(1));
        let blocks: Vec<&[f64]> = values.windows(length).step_by((length / 2).max(1)).collect();
        let mut levels: Vec<f64> = blocks.iter().map(|block| mean(block)).collect();
        levels.sort_by(f64::total_cmp);
        let level = |share: f64| {
            let place = whole((share * (float(levels.len()) - 1.0)).round());
            levels.get(place).copied().unwrap_or(0.0)
        };
        let (low, high) = (level(0.05), level(0.95));
        let is_work = |block: &&[f64]| mean(block) >= low + WORK_FROM * (high - low);
        Self(blocks.into_iter().filter(is_work).map(without_line).collect())
    }

    /// How alike the signal and the shifted one are, on average.
    fn likeness(&self, places: usize) -> f64 {
        let of = |block: &Vec<f64>| likeness(block, block.get(places..).unwrap_or_default());
        mean(&self.0.iter().map(of).collect::<Vec<f64>>())
    }

    /// How alike they are after about so many places, at best.
    fn near(&self, places: f64) -> f64 {
        let places = whole(places.round());
        let likeness = (places.saturating_sub(1)..=places + 1).map(|places| self.likeness(places));
        likeness.fold(0.0, f64::max)
    }
}
