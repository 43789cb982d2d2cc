//! When a recorded row is published, and with which time.

use gpuvitals_core::number::float;
use gpuvitals_core::time::SECOND_NS;

/// Treatment of the recorded times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// They stay unchanged. Another pass over the file gives the same rows again, and equal rows merge.
    Recorded,
    /// The first row's time becomes the time at which the replay starts, the others keep their distance to it
    /// (divided by the speed); another pass continues after the one before.
    Shifted,
}

/// The pace at which rows are handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayPace {
    /// As fast as they are polled.
    Unthrottled,
    /// This many rows of the file a second.
    Rate(f64),
    /// By the recorded times, at the replay's speed.
    Recorded,
}

/// Largest backlog that [`ReplayPace::Rate`] makes up for after a late poll, in nanoseconds of its rate.
const BURST_NS: i64 = SECOND_NS;

#[derive(Debug)]
pub(crate) struct Timeline {
    replay: Replay,
    speed: f64,
    pace: ReplayPace,
    /// Recorded time of the pass's first row.
    first: Option<i64>,
    /// Published time at which the pass begins.
    anchor: i64,
    /// Last published time of all passes, for [`Replay::Shifted`].
    last: i64,
    /// Recorded time of the row before, and the last step forward between two rows.
    before: i64,
    step: i64,
    /// Rows since `rate_anchor`.
    rows: u64,
    rate_anchor: i64,
}

impl Timeline {
    pub(crate) fn new(replay: Replay, speed: f64, pace: ReplayPace, now_ns: i64) -> Self {
        Self {
            replay,
            speed,
            pace,
            first: None,
            // On a whole millisecond, so that recorded ticks on whole milliseconds stay there.
            anchor: now_ns - now_ns.rem_euclid(1_000_000),
            last: now_ns,
            before: 0,
            step: SECOND_NS,
            rows: 0,
            rate_anchor: now_ns,
        }
    }

    /// The pass begins with this recorded time.
    pub(crate) fn begin_with(&mut self, first_ns: i64) {
        self.first = Some(first_ns);
    }

    /// When the next row is due, whatever its own time is.
    pub(crate) fn next_due(&self) -> i64 {
        match self.pace {
            ReplayPace::Rate(rate) => self.rate_anchor.saturating_add(rows_ns(self.rows, rate)),
            _ => i64::MIN,
        }
    }

    /// When a row with that recorded time is due.
    pub(crate) fn due(&mut self, recorded_ns: i64) -> i64 {
        let on_axis = self.on_axis(recorded_ns);
        if self.pace == ReplayPace::Recorded { on_axis } else { i64::MIN }
    }

    /// The published time of a row.
    pub(crate) fn publish(&mut self, recorded_ns: i64) -> i64 {
        let on_axis = self.on_axis(recorded_ns);
        self.last = self.last.max(on_axis);
        if recorded_ns > self.before && self.before > 0 {
            self.step = recorded_ns - self.before;
        }
        self.before = recorded_ns;
        match self.replay {
            Replay::Recorded => recorded_ns,
            Replay::Shifted => on_axis,
        }
    }

    /// A row was taken.
    pub(crate) fn taken(&mut self, now_ns: i64) {
        self.rows += 1;
        if let ReplayPace::Rate(rate) = self.pace {
            let behind = now_ns.saturating_sub(self.next_due());
            if behind > BURST_NS {
                self.rate_anchor = now_ns.saturating_sub(BURST_NS);
                self.rows = 0;
            } else if self.rows > 1 << 20 {
                // A regular restart keeps the product exact.
                self.rate_anchor = self.rate_anchor.saturating_add(rows_ns(self.rows, rate));
                self.rows = 0;
            }
        }
    }

    /// The file restarts.
    pub(crate) fn next_pass(&mut self, now_ns: i64) {
        self.first = None;
        self.before = 0;
        self.anchor = self.last.saturating_add(self.scaled(self.step).max(1)).max(now_ns);
    }

    fn on_axis(&mut self, recorded_ns: i64) -> i64 {
        let first = *self.first.get_or_insert(recorded_ns);
        self.anchor.saturating_add(self.scaled(recorded_ns.saturating_sub(first))).max(0)
    }

    #[expect(clippy::float_cmp, reason = "exactly one keeps every nanosecond")]
    #[expect(clippy::cast_possible_truncation, reason = "saturates; a ratio is meant")]
    fn scaled(&self, distance_ns: i64) -> i64 {
        if self.speed == 1.0 { distance_ns } else { (float(distance_ns) / self.speed).round() as i64 }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturates; counts below 2^53")]
fn rows_ns(rows: u64, rate: f64) -> i64 {
    (float(rows) / rate * float(SECOND_NS)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000 * SECOND_NS;

    #[test]
    fn shifted_times_begin_now_and_go_on_over_passes() {
        let mut line = Timeline::new(Replay::Shifted, 2.0, ReplayPace::Unthrottled, NOW);
        let pass = |line: &mut Timeline| [10, 14, 12].map(|s| line.publish(s * SECOND_NS) - NOW);
        assert_eq!(pass(&mut line), [0, 2 * SECOND_NS, SECOND_NS]);
        line.next_pass(NOW);
        assert_eq!(pass(&mut line)[0], 4 * SECOND_NS);
    }

    #[test]
    fn shifted_times_stay_on_whole_milliseconds() {
        let mut line = Timeline::new(Replay::Shifted, 1.0, ReplayPace::Unthrottled, NOW + 700_068);
        assert_eq!([10, 11].map(|s| line.publish(s * SECOND_NS)), [NOW, NOW + SECOND_NS]);
    }

    #[test]
    fn a_rate_spaces_rows_and_forgives_a_late_call() {
        let mut line = Timeline::new(Replay::Recorded, 1.0, ReplayPace::Rate(10.0), NOW);
        assert_eq!(line.next_due(), NOW);
        line.taken(NOW);
        assert_eq!(line.next_due(), NOW + SECOND_NS / 10);
        line.taken(NOW + 60 * SECOND_NS);
        assert_eq!(line.next_due(), NOW + 59 * SECOND_NS);
    }
}
