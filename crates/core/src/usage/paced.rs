//! Which distances between the rows of a GPU are gaps.

use std::collections::VecDeque;

use super::Stay;
use crate::integral::Pace;

/// Stays that are looked at behind a distance before it is judged.
const AHEAD: usize = 2;

/// The stays of a GPU in the order of time, each with the longest distance before it that is no gap: five times the usual
/// one before it, or five times each of the two behind it. So a first distance is judged, and a slower rate is none.
#[derive(Debug, Clone, Default)]
pub(super) struct Paced {
    waiting: VecDeque<(u32, Stay)>,
    /// Distances of rows and of values of power, which may be read less often.
    pace: Option<[Pace; 2]>,
    last_ns: Option<i64>,
    power_ns: Option<i64>,
}

/// A stay, what it belongs to, and the longest distance before it that is no gap, nanoseconds.
pub(super) type PacedStay = (u32, Stay, i64);

impl Paced {
    /// Takes a stay, and returns an earlier one that can be judged by it.
    pub(super) fn push(&mut self, of: u32, stay: Stay) -> Option<PacedStay> {
        self.waiting.push_back((of, stay));
        if self.waiting.len() > AHEAD { self.next() } else { None }
    }

    /// The next stay, judged by what has come so far; none is left in the end.
    pub(super) fn next(&mut self) -> Option<PacedStay> {
        let (of, mut stay) = self.waiting.pop_front()?;
        let mut ends = [stay.last_ns].into_iter().chain(self.waiting.iter().map(|(_, next)| next.last_ns));
        let apart =
            self.waiting.iter().filter_map(|(_, next)| Some(next.first_ns.saturating_sub(ends.next()?)));
        let behind = if stay.pace_ns > 0 { Some(stay.pace_ns) } else { apart.min() };
        let behind_ns = behind.map_or(0, |ns| Pace::known(ns).limit_ns());
        let before_ns = self.limit_ns();
        // Two rows are all there is to judge by.
        let gap_max_ns =
            if behind.is_none() && self.pace.is_none() { i64::MAX } else { before_ns.max(behind_ns) };
        self.step(&mut stay, gap_max_ns);
        Some((of, stay, gap_max_ns))
    }

    fn limit_ns(&self) -> i64 {
        self.pace.iter().flatten().map(|pace| pace.limit_ns()).max().unwrap_or(0)
    }

    /// Learns from the distance before a stay unless it is a gap, and notes the usual one in it.
    fn step(&mut self, stay: &mut Stay, gap_max_ns: i64) {
        let since = |before_ns: Option<i64>, time_ns: i64| {
            Some(time_ns.saturating_sub(before_ns?)).filter(|apart| *apart <= gap_max_ns)
        };
        let apart = since(self.last_ns.replace(stay.last_ns), stay.first_ns);
        let power_apart = stay.power.and_then(|span| since(self.power_ns.replace(span.last.0), span.first.0));
        if stay.pace_ns > 0 {
            self.pace = Some([Pace::known(stay.pace_ns); 2]);
            return;
        }
        if let Some(apart) = apart {
            let [_, power] = self.pace.unwrap_or([Pace::known(apart); 2]);
            self.pace = Some([Pace::known(apart), power_apart.map_or(power, Pace::known)]);
        }
        stay.pace_ns = self.pace.iter().flatten().map(|pace| pace.usual_ns()).max().unwrap_or(0);
    }
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

    fn take(&mut self, (run, row, gap_max_ns): PacedStay, done: &mut impl FnMut(u32, Stay)) {
        match &mut self.open {
            Some((same, open)) if *same == run => open.join(&row, gap_max_ns),
            open => {
                if let Some((run, stay)) = open.replace((run, row)) {
                    done(run, stay);
                }
            }
        }
    }
}
