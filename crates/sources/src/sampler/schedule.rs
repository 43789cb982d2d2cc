//! Tick times: absolute deadlines on the monotonic clock, at whole multiples of the interval of the wall
//! clock.
//!
//! So all devices, and all nodes whose clocks agree, sample at the same instants. A tick that ends after the
//! next one's time skips the missed ones: missed ticks are counted, never caught up in a burst. When the wall
//! clock steps, the grid moves with it.

use gpuvitals_core::clock::Moment;

/// The grid of ticks.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the unit belongs into the name")]
pub(crate) struct Schedule {
    interval_ns: i64,
    /// Monotonic time of the next tick.
    next_ns: i64,
    /// Wall clock minus monotonic clock when the grid was set.
    offset_ns: i64,
}

impl Schedule {
    /// The grid whose first tick is the first multiple of the interval from now on.
    pub(crate) fn new(interval_ns: i64, now: Moment) -> Self {
        let interval_ns = interval_ns.max(1);
        let offset_ns = now.wall_ns - now.mono_ns;
        let mut schedule = Self { interval_ns, next_ns: 0, offset_ns };
        schedule.next_ns = schedule.after(now.mono_ns);
        schedule
    }

    /// Monotonic time of the next tick.
    pub(crate) fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// The tick at `next_ns` was done by `now`: advances, and returns how many ticks were missed.
    pub(crate) fn advance(&mut self, now: Moment) -> u64 {
        let offset_ns = now.wall_ns - now.mono_ns;
        if (offset_ns - self.offset_ns).abs() > self.interval_ns / 4 {
            self.offset_ns = offset_ns;
            self.next_ns = self.after(now.mono_ns);
            return 0;
        }
        self.next_ns += self.interval_ns;
        if self.next_ns > now.mono_ns {
            return 0;
        }
        let missed = (now.mono_ns - self.next_ns) / self.interval_ns + 1;
        self.next_ns += missed * self.interval_ns;
        missed.unsigned_abs()
    }

    /// First instant of the grid after a monotonic time.
    fn after(&self, mono_ns: i64) -> i64 {
        let wall_ns = mono_ns + self.offset_ns;
        mono_ns + self.interval_ns - wall_ns.rem_euclid(self.interval_ns)
    }
}

/// The timestamp of a row: whole milliseconds for intervals from 10 ms on (the grid has that resolution, and
/// such a column takes a twentieth of the bytes), whole microseconds below. A tick that came so late that it
/// would carry the time of the next one leaves that one the unit after: rows of equal times are one row.
pub(crate) fn stamp(wall_ns: i64, interval_ns: i64, before_ns: i64) -> i64 {
    let unit = if interval_ns >= 10_000_000 { 1_000_000 } else { 1_000 };
    let stamp = (wall_ns + unit / 2).div_euclid(unit) * unit;
    if stamp == before_ns { stamp + unit } else { stamp }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(wall_ns: i64, mono_ns: i64) -> Moment {
        Moment { wall_ns, mono_ns }
    }

    #[test]
    fn ticks_lie_on_the_grid_of_the_wall_clock() {
        let mut schedule = Schedule::new(10 * MS, at(1_003 * MS, 53 * MS));
        assert_eq!(schedule.next_ns(), 60 * MS);
        assert_eq!(schedule.advance(at(1_010 * MS + 40, 60 * MS + 40)), 0);
        assert_eq!(schedule.next_ns(), 70 * MS);
    }

    #[test]
    fn a_late_tick_skips_and_counts_what_it_missed() {
        let mut schedule = Schedule::new(10 * MS, at(0, 0));
        assert_eq!(schedule.next_ns(), 10 * MS);
        // The tick of 10 ends at 47: those of 20, 30 and 40 are missed.
        assert_eq!(schedule.advance(at(47 * MS, 47 * MS)), 3);
        assert_eq!(schedule.next_ns(), 50 * MS);
        // Done exactly when the next was due: that one is missed.
        assert_eq!(schedule.advance(at(60 * MS, 60 * MS)), 1);
        assert_eq!(schedule.next_ns(), 70 * MS);
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_the_grid() {
        let mut schedule = Schedule::new(1_000 * MS, at(5_000 * MS, 0));
        assert_eq!(schedule.next_ns(), 1_000 * MS);
        assert_eq!(schedule.advance(at(2_700 * MS, 1_000 * MS)), 0);
        assert_eq!(schedule.next_ns(), 1_300 * MS, "the next whole second of the new wall clock");
    }

    #[test]
    fn stamps_are_whole_milliseconds_up_to_100_hz() {
        assert_eq!(stamp(1_000_049_999, 10 * MS, 0), 1_000_000_000);
        assert_eq!(stamp(1_000_049_999, MS, 0), 1_000_050_000);
        assert_eq!(stamp(-1, MS, -1), 0);
        let late = stamp(19_600_000, 10 * MS, 0);
        assert_eq!(late, 20 * MS);
        assert_eq!(stamp(20_000_001, 10 * MS, late), 21 * MS, "two rows of one time would be one");
    }
}
