//! Values of a series over time.

use std::ops::Range;

use gpuvitals_core::history::{Cell, Track};

/// A value and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Nanoseconds UTC since 1970.
    pub(crate) time_ns: i64,
    pub(crate) value: f64,
}

/// Which part of a point a selector gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointField {
    Value,
    /// Its time, which `timestamp` asks for.
    Time,
}

/// How the values of a short time moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moved {
    /// How many values, at least one.
    pub(crate) count: u64,
    pub(crate) track: Track,
}

/// Values of a series, in the order of their times.
#[derive(Debug, Clone)]
pub(crate) enum Points {
    /// Each value with its time.
    Each(Vec<Point>),
    /// Figures of those of short times; each counts at the time of its newest value.
    Cells(Vec<Cell>),
    /// How they moved in short times; each counts at the time of its newest value.
    Moves(Vec<Moved>),
}

/// The points of one window.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Window<'a> {
    Points(&'a [Point]),
    Cells(&'a [Cell]),
    Moves(&'a [Moved]),
}

/// Windows of a series from one instant to the next: neither end goes back.
#[derive(Debug)]
pub(crate) struct Windows<'a> {
    points: &'a Points,
    place: Range<usize>,
}

impl Points {
    pub(crate) fn windows(&self) -> Windows<'_> {
        Windows { points: self, place: 0..0 }
    }
}

impl<'a> Windows<'a> {
    /// The values after `from_ns` up to `to_ns`, of which neither may be before that of the call before.
    pub(crate) fn next(&mut self, from_ns: i64, to_ns: i64) -> Window<'a> {
        let ends = (from_ns, to_ns);
        match self.points {
            Points::Each(points) => Window::Points(within(points, &mut self.place, ends, |it| it.time_ns)),
            Points::Cells(cells) => Window::Cells(within(cells, &mut self.place, ends, |it| it.last_ns)),
            Points::Moves(moves) => {
                Window::Moves(within(moves, &mut self.place, ends, |it| it.track.last_ns))
            }
        }
    }
}

impl<'a> Window<'a> {
    /// Its values; of figures the newest value of each.
    pub(crate) fn newest(self) -> impl DoubleEndedIterator<Item = Point> + 'a {
        let (points, cells, moves): (&[Point], &[Cell], &[Moved]) = match self {
            Self::Points(points) => (points, &[], &[]),
            Self::Cells(cells) => (&[], cells, &[]),
            Self::Moves(moves) => (&[], &[], moves),
        };
        let of_cell = |cell: &Cell| Point { time_ns: cell.last_ns, value: cell.last };
        let of_moved = |moved: &Moved| Point { time_ns: moved.track.last_ns, value: moved.track.last };
        points.iter().copied().chain(cells.iter().map(of_cell)).chain(moves.iter().map(of_moved))
    }
}

fn within<'a, T>(
    all: &'a [T],
    place: &mut Range<usize>,
    (from_ns, to_ns): (i64, i64),
    time: impl Fn(&T) -> i64,
) -> &'a [T] {
    let ahead = |place: usize, limit_ns: i64| {
        let rest = all.get(place..).unwrap_or_default();
        place + rest.iter().take_while(|one| time(one) <= limit_ns).count()
    };
    *place = ahead(place.start, from_ns)..ahead(place.end, to_ns);
    all.get(place.clone()).unwrap_or_default()
}
