//! How far a value moved: the mergeable part of rates, increases and deltas.

use crate::integral::seconds;

/// How the values of one GPU and group moved in a step.
///
/// Tracks of times apart merge exactly. Of tracks whose times overlap the larger sum of falls is taken: what fell between
/// a value of one and a value of the other is not known any more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Track {
    /// When the first value was taken, nanoseconds UTC since 1970.
    pub first_ns: i64,
    /// The first value.
    pub first: f64,
    /// When the newest value was taken; before the first: no value.
    pub last_ns: i64,
    /// The newest value.
    pub last: f64,
    /// The sum of the values that were followed by a smaller one: what a counter lost when it began anew at 0.
    pub falls: f64,
}

impl Track {
    /// Without a value.
    pub const EMPTY: Self =
        Self { first_ns: i64::MAX, first: f64::NAN, last_ns: i64::MIN, last: f64::NAN, falls: 0.0 };

    /// Of one value.
    pub fn of(time_ns: i64, value: f64) -> Self {
        Self { first_ns: time_ns, first: value, last_ns: time_ns, last: value, falls: 0.0 }
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.last_ns < self.first_ns
    }

    /// Adds the values of another track of the same GPU and group.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = *other;
        } else if self.last_ns < other.first_ns {
            *self = self.then(other);
        } else if other.last_ns < self.first_ns {
            *self = other.then(self);
        } else {
            let earlier = (other.first_ns, other.first) < (self.first_ns, self.first);
            let newer = (other.last_ns, other.last) > (self.last_ns, self.last);
            if earlier {
                (self.first_ns, self.first) = (other.first_ns, other.first);
            }
            if newer {
                (self.last_ns, self.last) = (other.last_ns, other.last);
            }
            self.falls = self.falls.max(other.falls);
        }
    }

    /// With the values of a later one.
    fn then(&self, later: &Self) -> Self {
        let falls = self.falls + later.falls + fall(self.last, later.first);
        Self { last_ns: later.last_ns, last: later.last, falls, ..*self }
    }

    /// By how much a gauge changed since the newest value of an earlier track, or since the first if there is none.
    pub fn delta(&self, before: Option<&Self>) -> f64 {
        self.last - before.map_or(self.first, |before| before.last)
    }

    /// By how much a counter grew since the newest value of an earlier track. A counter that falls has begun anew at 0.
    pub fn increase(&self, before: Option<&Self>) -> f64 {
        self.delta(before) + self.falls + before.map_or(0.0, |before| fall(before.last, self.first))
    }

    /// How fast a counter grew, a second: its increase over the time from the value that it is counted from to the newest. None of a
    /// single value with none before.
    pub fn rate(&self, before: Option<&Self>) -> Option<f64> {
        let since_ns = before.map_or(self.first_ns, |before| before.last_ns);
        let span_ns = self.last_ns.saturating_sub(since_ns);
        (span_ns > 0).then(|| self.increase(before) / seconds(span_ns))
    }
}

/// What is lost between two values.
fn fall(before: f64, after: f64) -> f64 {
    if after < before { before } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND_NS;

    fn track(values: &[(i64, f64)]) -> Track {
        let mut track = Track::EMPTY;
        for &(time_ns, value) in values {
            track.merge(&Track::of(time_ns, value));
        }
        track
    }

    #[test]
    fn a_counter_that_falls_began_anew_at_0() {
        let whole = track(&[(1, 10.0), (2, 14.0), (3, 2.0), (4, 5.0)]);
        assert!((whole.increase(None) - 9.0).abs() < 1e-9);
        assert!((whole.increase(Some(&Track::of(0, 7.0))) - 12.0).abs() < 1e-9);
        assert!(
            (whole.increase(Some(&Track::of(0, 30.0))) - 19.0).abs() < 1e-9,
            "10 since the reset before, then 9"
        );
        assert!((whole.delta(None) + 5.0).abs() < 1e-9);
        assert!(track(&[(1, 3.0)]).increase(None).abs() < 1e-9);
    }

    #[test]
    fn a_rate_is_over_the_time_between_its_values() {
        let at = |second: i64, joules: f64| (second * SECOND_NS, joules);
        let check = |before: Option<(i64, f64)>, values: &[(i64, f64)], expected: Option<f64>| {
            let before = before.map(|(time_ns, value)| Track::of(time_ns, value));
            let rate = track(values).rate(before.as_ref());
            let is_close = rate.zip(expected).map_or(rate == expected, |(a, b)| (a - b).abs() < 1e-9);
            assert!(is_close, "{values:?} after {before:?}: {rate:?}, not {expected:?}");
        };
        check(None, &[at(7, 100.0)], None);
        check(None, &[at(7, 100.0), at(37, 3_100.0)], Some(100.0));
        check(Some(at(0, 0.0)), &[at(30, 3_000.0)], Some(100.0));
        check(Some(at(0, 0.0)), &[at(600, 50_000.0), at(610, 61_000.0)], Some(100.0));
        check(Some(at(0, 5_000.0)), &[at(30, 1_000.0)], Some(1_000.0 / 30.0));
        check(Some(at(30, 1.0)), &[at(30, 1.0)], None);
    }

    #[test]
    fn tracks_of_times_apart_merge_in_any_order() {
        let values = [(1, 10.0), (2, 14.0), (3, 2.0), (4, 5.0), (5, 1.0)];
        let (before, after) = values.split_at(2);
        let mut merged = track(after);
        merged.merge(&track(before));
        assert_eq!(merged, track(&values));
        merged.merge(&Track::EMPTY);
        assert_eq!(merged, track(&values));
    }
}
