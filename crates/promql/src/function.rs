//! Functions of numbers, and of the values before an instant.

use gpuvitals_core::history::{Cell, Track};
use gpuvitals_core::integral::seconds;
use gpuvitals_core::number::float;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::needs::Needs;
use crate::point::{Moved, Point, Window};

/// A function of each value by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Elementwise {
    /// Of one number.
    Plain(fn(f64) -> f64),
    /// `round(v, to)`: to the nearest multiple of `to`.
    Round,
    /// `clamp(v, min, max)`.
    Clamp,
    ClampMin,
    ClampMax,
    /// A part of a date; of the instant itself without an argument.
    Date(fn(DateTime) -> f64),
    /// `timestamp` of what is computed: the instant.
    Now,
}

impl Elementwise {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(Self::Plain(match name {
            "abs" => f64::abs,
            "ceil" => f64::ceil,
            "floor" => f64::floor,
            "exp" => f64::exp,
            "ln" => f64::ln,
            "log2" => f64::log2,
            "log10" => f64::log10,
            "sqrt" => f64::sqrt,
            "sgn" => |v| if v == 0.0 || v.is_nan() { v } else { v.signum() },
            "deg" => f64::to_degrees,
            "rad" => f64::to_radians,
            "sin" => f64::sin,
            "cos" => f64::cos,
            "tan" => f64::tan,
            "asin" => f64::asin,
            "acos" => f64::acos,
            "atan" => f64::atan,
            "sinh" => f64::sinh,
            "cosh" => f64::cosh,
            "tanh" => f64::tanh,
            "asinh" => f64::asinh,
            "acosh" => f64::acosh,
            "atanh" => f64::atanh,
            "round" => return Some(Self::Round),
            "clamp" => return Some(Self::Clamp),
            "clamp_min" => return Some(Self::ClampMin),
            "clamp_max" => return Some(Self::ClampMax),
            "minute" => return Some(Self::Date(|date| date.minute().into())),
            "hour" => return Some(Self::Date(|date| date.hour().into())),
            "day_of_week" => return Some(Self::Date(|date| date.weekday().to_sunday_zero_offset().into())),
            "day_of_month" => return Some(Self::Date(|date| date.day().into())),
            "day_of_year" => return Some(Self::Date(|date| date.day_of_year().into())),
            "days_in_month" => return Some(Self::Date(|date| date.days_in_month().into())),
            "month" => return Some(Self::Date(|date| date.month().into())),
            "year" => return Some(Self::Date(|date| date.year().into())),
            _ => return None,
        }))
    }

    /// Of a value and the function's other arguments at that instant.
    pub(crate) fn apply(self, value: f64, others: &[f64], now: f64) -> Option<f64> {
        let other = |at: usize| others.get(at).copied();
        Some(match self {
            Self::Plain(function) => function(value),
            Self::Round => {
                // As Prometheus: the inverse keeps fractions exact.
                let inverse = 1.0 / other(0).unwrap_or(1.0);
                (value * inverse + 0.5).floor() / inverse
            }
            Self::Clamp => {
                let (min, max) = (other(0)?, other(1)?);
                if max < min {
                    return None;
                }
                if min.is_nan() || max.is_nan() { f64::NAN } else { value.clamp(min, max) }
            }
            Self::ClampMin | Self::ClampMax => {
                let bound = other(0)?;
                match self {
                    // Unlike `max` and `min`, it keeps what is no number.
                    _ if value.is_nan() || bound.is_nan() => f64::NAN,
                    Self::ClampMin => value.max(bound),
                    _ => value.min(bound),
                }
            }
            Self::Date(part) => date(value).map_or(f64::NAN, part),
            Self::Now => now,
        })
    }
}

/// Seconds since 1970 as date and time in UTC; none of what is no number or beyond the years of a date.
#[expect(clippy::cast_possible_truncation, reason = "what is beyond a date's years saturates beyond them")]
fn date(time: f64) -> Option<DateTime> {
    let time = Some(time.floor()).filter(|time| !time.is_nan())?;
    Timestamp::from_second(time as i64).ok().map(|time| TimeZone::UTC.to_datetime(time))
}

/// A function of the values before an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverRange {
    Rate,
    Increase,
    Delta,
    Irate,
    Idelta,
    Avg,
    Min,
    Max,
    Sum,
    Count,
    Last,
    First,
    Present,
    Absent,
    Stddev,
    Stdvar,
    Quantile,
    Mad,
    Changes,
    Resets,
    Deriv,
    PredictLinear,
}

impl OverRange {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "rate" => Self::Rate,
            "increase" => Self::Increase,
            "delta" => Self::Delta,
            "irate" => Self::Irate,
            "idelta" => Self::Idelta,
            "avg_over_time" => Self::Avg,
            "min_over_time" => Self::Min,
            "max_over_time" => Self::Max,
            "sum_over_time" => Self::Sum,
            "count_over_time" => Self::Count,
            "last_over_time" => Self::Last,
            "first_over_time" => Self::First,
            "present_over_time" => Self::Present,
            "absent_over_time" => Self::Absent,
            "stddev_over_time" => Self::Stddev,
            "stdvar_over_time" => Self::Stdvar,
            "quantile_over_time" => Self::Quantile,
            "mad_over_time" => Self::Mad,
            "changes" => Self::Changes,
            "resets" => Self::Resets,
            "deriv" => Self::Deriv,
            "predict_linear" => Self::PredictLinear,
            _ => return None,
        })
    }

    /// Whether the result still has the name of the series.
    pub(crate) fn keeps_name(self) -> bool {
        matches!(self, Self::Last | Self::First)
    }

    /// What of the values it needs.
    pub(crate) fn needs(self) -> Needs {
        match self {
            Self::Last | Self::Present | Self::Absent => Needs::Newest,
            Self::Min | Self::Max | Self::Count => Needs::Extremes,
            Self::Avg | Self::Sum => Needs::Sums,
            Self::Rate | Self::Increase | Self::Delta | Self::First => Needs::Moves,
            _ => Needs::Every,
        }
    }

    /// Of the values after `from_ns` up to `to_ns`, which are looked at for the instant `now_ns`.
    pub(crate) fn apply(self, window: Window<'_>, span: Span, parameter: f64) -> Option<f64> {
        match window {
            Window::Points([]) | Window::Cells([]) | Window::Moves([]) => None,
            Window::Points(points) => self.of_points(points, span, parameter),
            Window::Cells(cells) => self.of_cells(cells, span, parameter),
            Window::Moves(moves) => self.of_moves(moves, span),
        }
    }

    #[expect(clippy::float_cmp, reason = "any other value is a change")]
    fn of_points(self, points: &[Point], span: Span, parameter: f64) -> Option<f64> {
        let values = || points.iter().map(|point| point.value);
        let count = float(points.len());
        Some(match self {
            Self::Rate | Self::Increase | Self::Delta => {
                let moved = points
                    .iter()
                    .fold(Track::EMPTY, |moved, point| merged(moved, &Track::of(point.time_ns, point.value)));
                return extrapolated(self, &moved, count, span);
            }
            Self::Irate | Self::Idelta => return self.between_last(points),
            Self::Avg => mean(values()),
            Self::Min => values().fold(f64::NAN, f64::min),
            Self::Max => values().fold(f64::NAN, f64::max),
            Self::Sum => sum(values()),
            Self::Count => count,
            Self::Last => points.last()?.value,
            Self::First => points.first()?.value,
            Self::Present => 1.0,
            Self::Absent => return None,
            Self::Stddev => variance(values()).sqrt(),
            Self::Stdvar => variance(values()),
            Self::Quantile => quantile(parameter, values().collect()),
            Self::Mad => {
                let median = quantile(0.5, values().collect());
                quantile(0.5, values().map(|value| (value - median).abs()).collect())
            }
            Self::Changes => {
                pairs(points, |before, after| before != after && !(before.is_nan() && after.is_nan()))
            }
            Self::Resets => pairs(points, |before, after| after < before),
            Self::Deriv => {
                if points.len() < 2 {
                    return None;
                }
                regression(points, points.first()?.time_ns).0
            }
            Self::PredictLinear => {
                if points.len() < 2 {
                    return None;
                }
                let (slope, at_now) = regression(points, span.now_ns);
                slope * parameter + at_now
            }
        })
    }

    /// Of figures of the values: exact where they are enough, of the newest values of each otherwise.
    fn of_cells(self, cells: &[Cell], span: Span, parameter: f64) -> Option<f64> {
        let count: u64 = cells.iter().map(|cell| cell.count).sum();
        let sum = || sum(cells.iter().map(|cell| cell.sum));
        Some(match self {
            Self::Avg => sum() / float(count),
            Self::Sum => sum(),
            Self::Count => float(count),
            Self::Min => cells.iter().map(|cell| cell.min).fold(f64::NAN, f64::min),
            Self::Max => cells.iter().map(|cell| cell.max).fold(f64::NAN, f64::max),
            _ => {
                let points: Vec<Point> = Window::Cells(cells).newest().collect();
                return self.of_points(&points, span, parameter);
            }
        })
    }

    fn of_moves(self, moves: &[Moved], span: Span) -> Option<f64> {
        let count: u64 = moves.iter().map(|moved| moved.count).sum();
        let whole = moves.iter().fold(Track::EMPTY, |whole, moved| merged(whole, &moved.track));
        if self == Self::First { Some(whole.first) } else { extrapolated(self, &whole, float(count), span) }
    }

    /// Between the last two values.
    fn between_last(self, points: &[Point]) -> Option<f64> {
        let [.., before, last] = points else { return None };
        let is_rate = self == Self::Irate;
        let moved = if is_rate && last.value < before.value { last.value } else { last.value - before.value };
        let span = seconds(last.time_ns - before.time_ns);
        (span > 0.0).then(|| if is_rate { moved / span } else { moved })
    }
}

/// The time of a range, and the instant it is for; the time is before the instant by the offset.
#[expect(clippy::struct_field_names, reason = "all are instants in ns")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
    pub(crate) now_ns: i64,
}

/// Prometheus' `extrapolatedRate`: from the values to the ends of the range, but no further than half a distance of values
/// beyond the first and last where the series seems to begin or end, and a counter no further back than to 0.
fn extrapolated(function: OverRange, track: &Track, count: f64, span: Span) -> Option<f64> {
    if count < 2.0 || track.is_empty() {
        return None;
    }
    let is_counter = function != OverRange::Delta;
    let moved = if is_counter { track.increase(None) } else { track.delta(None) };
    let mut to_start = seconds(track.first_ns - span.from_ns);
    let mut to_end = seconds(span.to_ns - track.last_ns);
    let sampled = seconds(track.last_ns - track.first_ns);
    let distance = sampled / (count - 1.0);
    let threshold = distance * 1.1;
    if to_start >= threshold {
        to_start = distance / 2.0;
    }
    if is_counter && moved > 0.0 && track.first >= 0.0 {
        to_start = to_start.min(sampled * (track.first / moved));
    }
    if to_end >= threshold {
        to_end = distance / 2.0;
    }
    let mut factor = (sampled + to_start + to_end) / sampled;
    if function == OverRange::Rate {
        factor /= seconds(span.to_ns - span.from_ns);
    }
    Some(moved * factor)
}

/// A track and a later one as one.
fn merged(mut track: Track, later: &Track) -> Track {
    track.merge(later);
    track
}

fn pairs(points: &[Point], counts: impl Fn(f64, f64) -> bool) -> f64 {
    let pairs = points.iter().zip(points.iter().skip(1));
    float(pairs.filter(|(before, after)| counts(before.value, after.value)).count())
}

/// Slope a second, and the value at an instant, of the line nearest to the values (least squares).
#[expect(clippy::float_cmp, reason = "a line through equal values has no slope")]
fn regression(points: &[Point], at_ns: i64) -> (f64, f64) {
    let count = float(points.len());
    let first = points.first().map_or(0.0, |point| point.value);
    if points.iter().all(|point| point.value == first) {
        return if first.is_finite() { (0.0, first) } else { (f64::NAN, f64::NAN) };
    }
    let times = || points.iter().map(|point| seconds(point.time_ns - at_ns));
    let values = || points.iter().map(|point| point.value);
    let (sum_x, sum_y) = (sum(times()), sum(values()));
    let sum_xy = sum(times().zip(values()).map(|(x, y)| x * y));
    let sum_x2 = sum(times().map(|x| x * x));
    let covariance = sum_xy - sum_x * sum_y / count;
    let slope = covariance / (sum_x2 - sum_x * sum_x / count);
    (slope, sum_y / count - slope * sum_x / count)
}

/// A sum with the error of each step carried along (Neumaier).
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut error) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        error += if next.is_infinite() {
            0.0
        } else if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    if sum.is_infinite() { sum } else { sum + error }
}

pub(crate) fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count();
    sum(values) / float(count)
}

/// Of all values, not of a sample of them (Welford).
pub(crate) fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        let delta = value - mean;
        mean += delta / count;
        squares += delta * (value - mean);
    }
    squares / count
}

/// Between the two values around a rank, as Prometheus.
pub(crate) fn quantile(share: f64, mut values: Vec<f64>) -> f64 {
    if values.is_empty() || share.is_nan() {
        return f64::NAN;
    }
    if share < 0.0 {
        return f64::NEG_INFINITY;
    }
    if share > 1.0 {
        return f64::INFINITY;
    }
    let order = |one: &f64, other: &f64| match (one.is_nan(), other.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => one.total_cmp(other),
    };
    let rank = share * float(values.len() - 1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within the values")]
    let place = (rank as usize).min(values.len() - 1);
    let (_, below, above) = values.select_nth_unstable_by(place, order);
    let below = *below;
    let above = above.iter().copied().min_by(order).unwrap_or(below);
    let weight = rank - rank.floor();
    below * (1.0 - weight) + above * weight
}
