//! The course of a metric over days: where it goes, and whether it is as usual ([`Unusual`]).

mod asked;
mod unusual;

use std::sync::Arc;

use gpuvitals_core::MetricId;
use gpuvitals_core::history::{BucketQuery, Buckets, Fleet, GpuState};
use gpuvitals_core::number::float;
use gpuvitals_core::time::MINUTE_NS;

use crate::robust::median;

use asked::{query, value_of};

pub use unusual::{DAYS_MIN, Unusual, hour_query, is_young, unusual};

const DAY_SECONDS: f64 = 86_400.0;
/// Points of a GPU that a trend is made from at most: every pair of them counts.
pub const TREND_POINTS: i64 = 64;
/// Fewest points that make a trend.
const TREND_POINTS_MIN: usize = 8;
/// Metrics, and the metric that says how far they may go. Power is none: a busy GPU is meant to run at its limit.
const LIMITS: [(MetricId, MetricId); 4] = [
    (MetricId::of("temperature_c"), MetricId::of("temperature_slowdown_c")),
    (MetricId::of("temperature_junction_c"), MetricId::of("temperature_junction_slowdown_c")),
    (MetricId::of("temperature_memory_c"), MetricId::of("temperature_memory_slowdown_c")),
    (MetricId::of("memory_used_mb"), MetricId::of("memory_total_mb")),
];
/// Metrics of which an unusual value is more likely the GPU's than its work's.
pub const WATCHED: [MetricId; 2] = [MetricId::of("temperature_c"), MetricId::of("power_w")];

/// Where a metric of a GPU goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Change a day, in the metric's unit: the median slope between two points (Theil and Sen).
    pub per_day: f64,
    /// Value at the end of the range, on the line.
    pub level: f64,
    /// How steadily it goes there, -1 to 1: the share of pairs of points that rise, less that of those that fall (Kendall's tau).
    pub steadiness: f64,
    /// Points it is made from.
    pub points: usize,
}

impl Trend {
    /// From values by time, seconds before the end of the range counted negative; none of fewer than eight points.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        if points.len() < TREND_POINTS_MIN {
            return None;
        }
        let later = |at: usize| points.get(at + 1..).unwrap_or_default();
        let pairs =
            points.iter().enumerate().flat_map(|(at, one)| later(at).iter().map(move |two| (one, two)));
        let mut rising = 0.0;
        let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len() / 2);
        for ((from_s, from), (to_s, to)) in pairs {
            rising += if to > from {
                1.0
            } else if to < from {
                -1.0
            } else {
                0.0
            };
            slopes.push((to - from) / (to_s - from_s));
        }
        let steadiness = rising / float(slopes.len());
        let slope = median(&mut slopes)?;
        let mut levels: Vec<f64> = points.iter().map(|(at_s, value)| value - slope * at_s).collect();
        let level = median(&mut levels)?;
        Some(Self { per_day: slope * DAY_SECONDS, level, steadiness, points: points.len() })
    }

    /// Days until the line reaches a value; none if it does not go there. 0: it is there.
    pub fn days_to(&self, limit: f64) -> Option<f64> {
        let missing = limit - self.level;
        if missing <= 0.0 && self.per_day > 0.0 {
            return Some(0.0);
        }
        Some(missing / self.per_day).filter(|days| days.is_finite() && *days >= 0.0)
    }
}

/// What to ask the history for the trend of a metric.
pub fn trend_query(metric: MetricId, start_ns: i64, end_ns: i64) -> BucketQuery {
    let step_ns = (end_ns.saturating_sub(start_ns) / TREND_POINTS / MINUTE_NS + 1) * MINUTE_NS;
    query(metric, start_ns, end_ns, step_ns)
}

/// The trend of each GPU, from the answer to [`trend_query`].
pub fn trends(buckets: &Buckets, end_ns: i64) -> Vec<(Arc<str>, Trend)> {
    let steps = buckets.steps();
    let of_gpu = |(group, gpu): (usize, &Arc<str>)| {
        let point = |step| Some((seconds_between(end_ns, steps.time(step)), value(buckets, group, step)?));
        let points: Vec<(f64, f64)> = (0..steps.count).filter_map(point).collect();
        Some((Arc::clone(gpu), Trend::of(&points)?))
    };
    gpus(buckets).filter_map(of_gpu).collect()
}

/// The metrics whose limit another metric says.
pub fn limited() -> impl Iterator<Item = MetricId> {
    LIMITS.iter().map(|(metric, _)| *metric)
}

/// How far a metric of a GPU may go, if another metric says so.
pub fn limit_of(metric: MetricId, gpu: &GpuState) -> Option<f64> {
    let (_, limit) = LIMITS.iter().find(|(of, _)| *of == metric)?;
    Fleet::latest(gpu, *limit).map(|latest| latest.value.as_f64())
}

/// The groups, which are GPUs.
fn gpus(buckets: &Buckets) -> impl Iterator<Item = (usize, &Arc<str>)> {
    let groups = buckets.groups().iter().enumerate();
    groups.filter_map(|(group, name)| Some((group, name.first()?.as_ref()?)))
}

/// The value of a step: a mean, of a counter the newest.
fn value(buckets: &Buckets, group: usize, step: usize) -> Option<f64> {
    let measured = buckets.metrics().first()?;
    let cell = measured.cells.get(buckets.place(group, step)).filter(|cell| cell.count > 0)?;
    Some(value_of(measured.metric, *cell))
}

fn seconds_between(end_ns: i64, at_ns: i64) -> f64 {
    -gpuvitals_core::integral::seconds(end_ns.saturating_sub(at_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(per_day: f64, level: f64, points: i32) -> Vec<(f64, f64)> {
        let at = |point: i32| -3_600.0 * f64::from(points - point);
        (0..points).map(|point| (at(point), level + per_day * at(point) / DAY_SECONDS)).collect()
    }

    #[test]
    fn a_line_is_its_own_trend_and_wild_values_change_little() {
        let trend = Trend::of(&line(1.5, 80.0, 48)).unwrap();
        assert!((trend.per_day - 1.5).abs() < 1e-9 && (trend.level - 80.0).abs() < 1e-9);
        assert!((trend.steadiness - 1.0).abs() < 1e-9);
        assert!((trend.days_to(86.0).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!((trend.days_to(79.0), trend.points), (Some(0.0), 48));
        let mut wild = line(1.5, 80.0, 48);
        wild[20].1 = 10_000.0;
        wild[40].1 = -10_000.0;
        assert!((Trend::of(&wild).unwrap().per_day - 1.5).abs() < 0.2);
        assert_eq!(Trend::of(&line(1.0, 0.0, 7)), None);
    }

    #[test]
    fn what_falls_or_stands_does_not_reach_a_limit_above() {
        assert_eq!(Trend::of(&line(-1.0, 80.0, 20)).unwrap().days_to(90.0), None);
        let flat = Trend::of(&line(0.0, 80.0, 20)).unwrap();
        assert_eq!((flat.days_to(90.0), flat.steadiness), (None, 0.0));
        assert!((Trend::of(&line(-2.0, 80.0, 20)).unwrap().days_to(70.0).unwrap() - 5.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_values_have_a_finite_trend(values in prop::collection::vec(-1e6_f64..1e6, 8..40)) {
            let points: Vec<(f64, f64)> = (0_i32..).map(|at| 60.0 * f64::from(at)).zip(values).collect();
            let trend = Trend::of(&points).unwrap();
            prop_assert!(trend.per_day.is_finite() && trend.level.is_finite());
            prop_assert!((-1.0..=1.0).contains(&trend.steadiness));
        }
    }
}
