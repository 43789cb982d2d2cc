//! How far a value moved: the mergeable part of rates, increases and deltas.

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

    /// By how much a gauge changed since its newest value before, or since the first if there is none before.
    pub fn delta(&self, before: Option<f64>) -> f64 {
        self.last - before.unwrap_or(self.first)
    }

    /// By how much a counter grew since its newest value before. A counter that falls has begun anew at 0.
    pub fn increase(&self, before: Option<f64>) -> f64 {
        self.delta(before) + self.falls + before.map_or(0.0, |before| fall(before, self.first))
    }
}

/// What is lost between two values.
fn fall(before: f64, after: f64) -> f64 {
    if after < before { before } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!((whole.increase(Some(7.0)) - 12.0).abs() < 1e-9);
        assert!((whole.increase(Some(30.0)) - 19.0).abs() < 1e-9, "10 since the reset before, then 9");
        assert!((whole.delta(None) + 5.0).abs() < 1e-9);
        assert!(track(&[(1, 3.0)]).increase(None).abs() < 1e-9);
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
