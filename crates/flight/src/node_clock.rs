//! How far the clock of a node is ahead of the gateway's, from the times of one request and its answer.

use serde::{Deserialize, Serialize};

/// How fast a clock that NTP keeps may drift, in millionths: what NTP itself counts with (PHI of RFC 5905).
const DRIFT_MILLIONTHS: i64 = 15;

/// How far one clock is ahead of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClock {
    /// So far, nanoseconds; negative: it is behind.
    pub offset_ns: i64,
    /// The true offset is no farther from that than this, nanoseconds, unless a clock was set between the two times of the node, or drifted
    /// faster than NTP takes for possible.
    pub error_ns: i64,
}

/// The four times of a request and its answer, nanoseconds UTC since 1970. The gateway notes the first and the last by its clock, the node
/// the two between by its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the gateway sent the request.
    pub asked_ns: i64,
    /// When the node had it.
    pub heard_ns: i64,
    /// When the node sent its answer.
    pub answered_ns: i64,
    /// When the gateway had that.
    pub came_ns: i64,
}

impl RoundTrip {
    /// What the times say of the node's clock; none: they are not those of a round trip, as a clock was set meanwhile.
    pub fn clock(self) -> Option<NodeClock> {
        let Self { asked_ns, heard_ns, answered_ns, came_ns } = self;
        let there_ns = heard_ns.checked_sub(asked_ns)?;
        let back_ns = came_ns.checked_sub(answered_ns)?;
        let held_ns = answered_ns.checked_sub(heard_ns)?;
        let on_the_way_ns = there_ns.checked_add(back_ns)?;
        let offset_ns = there_ns.checked_sub(back_ns)? / 2;
        // What was on the way for no time at all would still be half a nanosecond wrong.
        let error_ns = on_the_way_ns / 2 + 1 + held_ns / 1_000_000 * DRIFT_MILLIONTHS;
        (held_ns >= 0 && on_the_way_ns >= 0).then_some(NodeClock { offset_ns, error_ns })
    }
}

impl NodeClock {
    /// How far this clock is ahead of another one, both compared with the same.
    pub fn ahead_of(self, other: Self) -> Self {
        Self {
            offset_ns: self.offset_ns.saturating_sub(other.offset_ns),
            error_ns: self.error_ns.saturating_add(other.error_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_bounds_how_far_a_clock_is_ahead() {
        // The node is 500 ahead; the request takes 20, the answer 30, and the node holds it for 1,000.
        let trip = RoundTrip { asked_ns: 0, heard_ns: 520, answered_ns: 1_520, came_ns: 1_050 };
        let clock = trip.clock().unwrap();
        assert_eq!(clock, NodeClock { offset_ns: 495, error_ns: 26 });
        assert!((clock.offset_ns - 500).abs() <= clock.error_ns);
        let later = RoundTrip { answered_ns: 35_000_000_520, came_ns: 35_000_000_050, ..trip };
        assert_eq!(later.clock().unwrap().error_ns, 26 + 525_000, "and drifts meanwhile");
        let behind = NodeClock { offset_ns: -100, error_ns: 4 };
        assert_eq!(clock.ahead_of(behind), NodeClock { offset_ns: 595, error_ns: 30 });
    }

    #[test]
    fn times_of_a_clock_that_was_set_say_nothing() {
        let trip = RoundTrip { asked_ns: 0, heard_ns: 520, answered_ns: 1_520, came_ns: 1_050 };
        let set = [
            RoundTrip { answered_ns: 400, ..trip },
            RoundTrip { answered_ns: 90_000, ..trip },
            RoundTrip { asked_ns: i64::MIN, ..trip },
            RoundTrip { heard_ns: i64::MIN, answered_ns: i64::MAX, ..trip },
        ];
        assert_eq!(set.map(RoundTrip::clock), [None; 4]);
    }
}
