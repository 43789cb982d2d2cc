//! Values of a series over time.

use gpuvitals_core::history::Cell;

/// A value and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Nanoseconds UTC since 1970.
    pub(crate) time_ns: i64,
    pub(crate) value: f64,
}

/// Values of a series, in the order of their times.
#[derive(Debug, Clone)]
pub(crate) enum Points {
    /// Each.
    Each(Vec<Point>),
    /// Figures of those of short times; each counts at the time of its newest value.
    Cells(Vec<Cell>),
}

/// Those of a time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Window<'a> {
    Points(&'a [Point]),
    Cells(&'a [Cell]),
}

impl Points {
    /// The newest value after `from_ns` up to `to_ns`.
    pub(crate) fn newest(&self, from_ns: i64, to_ns: i64) -> Option<Point> {
        let point = match self {
            Self::Each(points) => {
                let end = points.partition_point(|point| point.time_ns <= to_ns);
                *points.get(end.checked_sub(1)?)?
            }
            Self::Cells(cells) => {
                let end = cells.partition_point(|cell| cell.last_ns <= to_ns);
                let cell = cells.get(end.checked_sub(1)?)?;
                Point { time_ns: cell.last_ns, value: cell.last }
            }
        };
        (point.time_ns > from_ns).then_some(point)
    }

    /// The values after `from_ns` up to `to_ns`.
    pub(crate) fn window(&self, from_ns: i64, to_ns: i64) -> Window<'_> {
        match self {
            Self::Each(points) => Window::Points(within(points, from_ns, to_ns, |point| point.time_ns)),
            Self::Cells(cells) => Window::Cells(within(cells, from_ns, to_ns, |cell| cell.last_ns)),
        }
    }
}

fn within<T>(all: &[T], from_ns: i64, to_ns: i64, time: impl Fn(&T) -> i64) -> &[T] {
    let first = all.partition_point(|one| time(one) <= from_ns);
    let end = all.partition_point(|one| time(one) <= to_ns);
    all.get(first..end).unwrap_or_default()
}
