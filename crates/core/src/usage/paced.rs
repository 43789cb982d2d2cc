//! Which distances between the rows of a GPU are gaps.

use std::collections::VecDeque;

use super::Stay;
use crate::integral::Pace;
use crate::time::HOUR_NS;

pub(super) use super::stay::UseGap;

/// Stays that are looked at behind a distance before it is judged.
const AHEAD: usize = 4;

/// Longest distance that is no gap where two rows, or two values of power, are all there is to judge by.
const TWO_NS: i64 = HOUR_NS;

/// The stays of a GPU in the order of time, each with the longest distance before it that is no gap: five times the usual
/// one before it, or five times the second longest of the four behind it. So a first distance is judged, a slower rate is none,
/// and neither is the pause between pairs of rows, as two sources of one GPU make them.
#[derive(Debug, Clone, Default)]
pub(super) struct Paced {
    waiting: VecDeque<(u32, Stay)>,
    rows: Option<Pace>,
    power: Option<Pace>,
    last_ns: Option<i64>,
    power_ns: Option<i64>,
    /// Whether there was no gap since the last value of power.
    is_going_on: bool,
}

/// A stay, what it belongs to, and the gaps before it.
pub(super) type PacedStay = (u32, Stay, UseGap);

impl Paced {
    /// Takes a stay, and returns an earlier one that can be judged by it.
    pub(super) fn push(&mut self, of: u32, stay: Stay) -> Option<PacedStay> {
        self.waiting.push_back((of, stay));
        if self.waiting.len() > AHEAD { self.next() } else { None }
    }

    /// Whether a stay of this waits.
    pub(super) fn waits(&self, of: u32) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == of)
    }

    /// The next stay, judged by what has come so far; none is left in the end.
    pub(super) fn next(&mut self) -> Option<PacedStay> {
        let (of, mut stay) = self.waiting.pop_front()?;
        let mut ends = [stay.last_ns].into_iter().chain(self.waiting.iter().map(|(_, next)| next.last_ns));
        let apart =
            self.waiting.iter().filter_map(|(_, next)| Some(next.first_ns.saturating_sub(ends.next()?)));
        let behind = if stay.pace_ns > 0 { Some(stay.pace_ns) } else { second_longest(apart) };
        let behind_ns = behind.map_or(0, |ns| Pace::known(ns).limit_ns());
        let limit_ns = |pace: Option<Pace>| pace.map_or(0, Pace::limit_ns);
        let rows_ns =
            if behind.is_none() && self.rows.is_none() { TWO_NS } else { limit_ns(self.rows).max(behind_ns) };
        let gap = self.step(&mut stay, rows_ns);
        Some((of, stay, gap))
    }

    /// Learns from the distances before a stay unless they are gaps, and notes the usual one in it.
    fn step(&mut self, stay: &mut Stay, rows_ns: i64) -> UseGap {
        let since = |before_ns: Option<i64>, time_ns: i64| Some(time_ns.saturating_sub(before_ns?));
        let apart = since(self.last_ns.replace(stay.last_ns), stay.first_ns);
        let is_gap = apart.is_some_and(|apart| apart > rows_ns);
        self.is_going_on &= !is_gap;
        let mut power_ns = self.power.map_or(rows_ns, |pace| pace.limit_ns().max(rows_ns));
        if let Some(span) = stay.power {
            let apart = since(self.power_ns.replace(span.last.0), span.first.0);
            // While rows come, the first distance of two values is the usual one.
            if self.power.is_none() && self.is_going_on {
                power_ns = power_ns.max(TWO_NS);
            }
            if let Some(apart) = apart.filter(|apart| *apart <= power_ns) {
                Pace::learn(&mut self.power, apart);
            }
            self.is_going_on = true;
        }
        if stay.pace_ns > 0 {
            self.rows = Some(Pace::known(stay.pace_ns));
            self.power = self.rows;
        } else {
            if let Some(apart) = apart.filter(|_| !is_gap) {
                Pace::learn(&mut self.rows, apart);
            }
            let usual = [self.rows, self.power].into_iter().flatten().map(Pace::usual_ns);
            stay.pace_ns = usual.max().unwrap_or(0);
        }
        UseGap { rows_ns, power_ns }
    }
}

/// The second longest of some distances; the only one.
fn second_longest(apart: impl Iterator<Item = i64>) -> Option<i64> {
    let (longest, second) = apart.fold((None, None), |(longest, second), apart| {
        if Some(apart) > longest { (Some(apart), longest) } else { (longest, second.max(Some(apart))) }
    });
    second.or(longest)
}

/// Puts the rows of one GPU together, run by run, in the order of time.
#[derive(Debug, Default)]
pub struct StayFold {
    paced: Paced,
    open: Option<(u32, Stay)>,
}

impl StayFold {
    /// Adds a row of a run. Calls `done` with each run that ends by that.
    pub fn push(&mut self, run: u32, row: Stay, done: &mut impl FnMut(u32, Stay)) {
        if let Some(stay) = self.paced.push(run, row) {
            self.take(stay, done);
        }
    }

    /// The last run ends. The next row is another GPU's.
    pub fn finish(&mut self, done: &mut impl FnMut(u32, Stay)) {
        while let Some(stay) = self.paced.next() {
            self.take(stay, done);
        }
        if let Some((run, stay)) = self.open.take() {
            done(run, stay);
        }
        *self = Self::default();
    }

    fn take(&mut self, (run, row, gap): PacedStay, done: &mut impl FnMut(u32, Stay)) {
        match &mut self.open {
            Some((same, open)) if *same == run => open.join(&row, gap),
            open => {
                if let Some((run, stay)) = open.replace((run, row)) {
                    done(run, stay);
                }
            }
        }
    }
}
