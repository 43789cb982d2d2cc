//! Whether the value of a GPU in an hour is as usual: beside its own in the same hour of the days before, and beside those of GPUs of its
//! model under like load.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::{BucketQuery, Buckets, Fleet, GpuState, GroupColumn};
use gpuvitals_core::time::{DAY_NS, HOUR_NS};
use gpuvitals_core::{IdentityColumn, MetricId, quantity};

use super::{query, value_of};
use crate::cells::GpuCells;
use crate::robust::Spread;

/// Fewest days before that tell what is usual.
pub const DAYS_MIN: usize = 3;
/// Smallest deviation that counts, as a share of the median: beside equal values nothing is infinitely unusual.
const LEAST_SHARE: f64 = 0.04;
/// The same as a share of the range that the values of the model take, without the lowest and the highest twentieth.
const LEAST_SHARE_OF_RANGE: f64 = 0.05;
/// A distance up to which a value is as good as the median, so that its sign says nothing.
const NEAR: f64 = 1.0;
/// Columns that tell whether a GPU is held.
const HOLDER: [IdentityColumn; 2] = [IdentityColumn::Pod, IdentityColumn::Job];
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");

/// The value of a GPU in an hour, beside what is usual.
#[derive(Debug, Clone, PartialEq)]
pub struct Unusual {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// Its value: a mean, of a counter the newest.
    pub value: f64,
    /// Its own values in the same hour of those days before on which it was under like load, and how many there are.
    pub own: Option<(Spread, usize)>,
    /// The values of the others of its model under like load in the same hour, and how many there are.
    pub peers: Option<(Spread, usize)>,
    /// Smallest deviation that counts among its model.
    pub least: f64,
}

impl Unusual {
    /// Distance from what is usual for it, in deviations.
    pub fn own_distance(&self) -> Option<f64> {
        self.own.map(|(spread, _)| self.distance(spread))
    }

    /// Distance from its peers, in deviations.
    pub fn peer_distance(&self) -> Option<f64> {
        self.peers.map(|(spread, _)| self.distance(spread))
    }

    fn distance(&self, spread: Spread) -> f64 {
        spread.distance(self.value, (LEAST_SHARE * spread.median).abs().max(self.least))
    }

    /// How unusual it is, in deviations: the distance from its own, or the mean of both distances if that is larger. So what only the
    /// peers say counts half: they are other GPUs with other work. 0 if the two contradict each other.
    pub fn score(&self) -> f64 {
        let (own, peers) = (self.own_distance().unwrap_or(0.0), self.peer_distance().unwrap_or(0.0));
        if own * peers < 0.0 && own.abs() >= NEAR && peers.abs() >= NEAR {
            return 0.0;
        }
        own.abs().max((own + peers).abs() / 2.0)
    }

    /// In words, with both distances.
    pub fn sentence(&self, metric: MetricId) -> String {
        let unit = metric.metric().unit.as_str();
        let figure = |value: f64| {
            let digits = usize::from(value.abs() < 10.0);
            format!("{value:.digits$}{}{unit}", if unit.is_empty() { "" } else { " " })
        };
        let beside = |(spread, count): (Spread, usize), of: &str, noun: &str, rest: &str| {
            let side = if self.value < spread.median { "below" } else { "above" };
            let difference = figure((self.value - spread.median).abs());
            let (median, distance) = (figure(spread.median), self.distance(spread));
            let counted = quantity::counted(count as u64, noun);
            format!("{difference} {side} {of} {median} {rest} {counted} ({distance:.1} deviations)")
        };
        let own = self.own.map_or_else(
            || format!("fewer than {DAYS_MIN} days under like load are known of it"),
            |own| beside(own, "its own", "day", "in this hour of"),
        );
        let peers = self.peers.map_or_else(
            || "too few others of its model are under like load".to_owned(),
            |peers| beside(peers, "the", "other GPU", "under like load, the median of"),
        );
        format!("{} is {}: {own}; {peers}", metric.metric().column, figure(self.value))
    }
}

/// Load of a GPU in an hour. What is not measured is like anything else that is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HourLoad {
    /// Whether a pod or job held it for most of the hour.
    is_held: bool,
    /// Third of the utilisation, 0 to 2.
    utilization: Option<u8>,
    /// Third of its memory that is in use.
    memory: Option<u8>,
}

/// A GPU in an hour.
#[derive(Debug, Clone, Copy)]
struct GpuHour {
    value: f64,
    load: HourLoad,
}

/// Whether a GPU has reported for less than an hour: what is usual is not known of it.
pub fn is_young(gpu: &GpuState, end_ns: i64) -> bool {
    gpu.first_seen_ns > end_ns.saturating_sub(HOUR_NS)
}

/// What to ask the history for the hour that ends at an instant so many days before.
pub fn hour_query(metric: MetricId, end_ns: i64, days_before: i64) -> BucketQuery {
    let end_ns = end_ns.saturating_sub(days_before.saturating_mul(DAY_NS));
    let start_ns = end_ns.saturating_sub(HOUR_NS);
    let mut metrics = vec![metric];
    metrics.extend([UTILIZATION, MEMORY_USED].into_iter().filter(|of_load| *of_load != metric));
    BucketQuery {
        metrics,
        phase_ns: start_ns.rem_euclid(HOUR_NS),
        group_by: [GroupColumn::Gpu].into_iter().chain(HOLDER.map(GroupColumn::Identity)).collect(),
        ..query(metric, start_ns, end_ns.saturating_sub(1), HOUR_NS)
    }
}

/// Every GPU with a value in the hour, from the answers to [`hour_query`]: of the hour, and then of the days before.
pub fn unusual(days: &[Buckets], fleet: &Fleet) -> Vec<Unusual> {
    let Some((hour, before)) = days.split_first() else { return Vec::new() };
    let now = hours(hour, fleet);
    let days: Vec<HashMap<Arc<str>, GpuHour>> = before.iter().map(|day| hours(day, fleet)).collect();
    let model = |gpu: &str| fleet.get(gpu)?.identity.shared(IdentityColumn::Model).cloned();
    let mut models: HashMap<Option<Arc<str>>, Vec<f64>> = HashMap::new();
    let mut alike: HashMap<(Arc<str>, HourLoad), Vec<f64>> = HashMap::new();
    for (gpu, GpuHour { value, load }) in &now {
        let model = model(gpu);
        if let Some(model) = model.clone() {
            alike.entry((model, *load)).or_default().push(*value);
        }
        models.entry(model).or_default().push(*value);
    }
    let least: HashMap<Option<Arc<str>>, f64> =
        models.into_iter().map(|(model, values)| (model, LEAST_SHARE_OF_RANGE * range(values))).collect();
    let peers: HashMap<(Arc<str>, HourLoad), (Spread, usize)> = alike
        .into_iter()
        .filter_map(|(like, values)| {
            Some((like, (Spread::of_group(values.iter().copied())?, values.len() - 1)))
        })
        .collect();
    let of_gpu = |(gpu, GpuHour { value, load }): (&Arc<str>, &GpuHour)| {
        let alike = days.iter().filter_map(|day| day.get(gpu).filter(|day| day.load == *load));
        let own: Vec<f64> = alike.map(|day| day.value).collect();
        let own = (own.len() >= DAYS_MIN).then(|| Some((Spread::of(own.iter().copied())?, own.len())));
        let model = model(gpu);
        let least = least.get(&model).copied().unwrap_or(0.0);
        let peers = model.and_then(|model| peers.get(&(model, *load)).copied());
        Unusual { gpu: Arc::clone(gpu), value: *value, own: own.flatten(), peers, least }
    };
    now.iter().map(of_gpu).collect()
}

/// The GPUs with a value in an hour.
fn hours(buckets: &Buckets, fleet: &Fleet) -> HashMap<Arc<str>, GpuHour> {
    let Some(metric) = buckets.metrics().first().map(|measured| measured.metric) else {
        return HashMap::new();
    };
    let of_gpu = |(key, cells): (&Arc<str>, GpuCells<'_>)| {
        let cell = cells.whole(metric, 0)?;
        let share = |of_load: MetricId| {
            // What is asked about does not tell who is alike.
            let cell = cells.whole(of_load, 0).filter(|_| of_load != metric)?;
            Some(value_of(of_load, cell))
        };
        let count = |group: &usize| cells.cell(metric, *group, 0).map_or(0, |cell| cell.count);
        let is_held = |group: &&usize| {
            let name = buckets.groups().get(**group).and_then(|name| name.get(1..));
            name.is_some_and(|holder| holder.iter().any(Option::is_some))
        };
        let held: u64 = cells.groups.iter().filter(is_held).map(count).sum();
        let load = HourLoad {
            is_held: 2 * held >= cell.count,
            utilization: share(UTILIZATION).map(third),
            memory: share(MEMORY_USED).and_then(|used| Some(third(100.0 * used / memory(fleet.get(key)?)?))),
        };
        Some((Arc::clone(key), GpuHour { value: value_of(metric, cell), load }))
    };
    GpuCells::by_gpu(buckets).into_iter().filter_map(of_gpu).collect()
}

/// All memory of a GPU, MiB.
fn memory(gpu: &GpuState) -> Option<f64> {
    let latest = |metric| Fleet::latest(gpu, metric).map(|latest| latest.value.as_f64());
    let total = latest(MEMORY_TOTAL).or_else(|| Some(latest(MEMORY_USED)? + latest(MEMORY_FREE)?));
    total.filter(|total| *total > 0.0)
}

/// The third of a percentage: 0, 1 or 2.
fn third(percent: f64) -> u8 {
    u8::from(percent >= 100.0 / 3.0) + u8::from(percent >= 200.0 / 3.0)
}

/// The range of some values without the lowest and the highest twentieth.
fn range(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let out = values.len() / 20;
    let inner = values.get(out..values.len() - out).unwrap_or_default();
    inner.last().zip(inner.first()).map_or(0.0, |(highest, lowest)| highest - lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_unusual_if_one_distance_is_large_and_the_other_does_not_contradict() {
        let spread = |median| Some((Spread { median, deviation: 2.0 }, 5));
        let check = |own: Option<f64>, peers: Option<f64>, expected: f64| {
            let [own, peers] = [own, peers].map(|median| median.and_then(spread));
            let score = Unusual { gpu: Arc::from("a"), value: 40.0, own, peers, least: 0.0 }.score();
            assert!((score - expected).abs() < 1e-9, "{own:?} {peers:?}: {score}");
        };
        check(Some(10.0), Some(30.0), 15.0);
        check(Some(36.0), Some(20.0), 6.0);
        check(Some(10.0), None, 15.0);
        check(Some(10.0), Some(41.0), 15.0);
        check(Some(10.0), Some(50.0), 0.0);
        check(Some(40.0), Some(20.0), 5.0);
        check(None, Some(20.0), 5.0);
        check(None, None, 0.0);
    }

    #[test]
    fn a_sentence_has_both_distances() {
        let spread = |median, count| Some((Spread { median, deviation: 3.0 }, count));
        let one = Unusual { gpu: Arc::from("a"), value: 75.0, own: spread(45.0, 3), peers: None, least: 0.0 };
        let metric = MetricId::of("temperature_c");
        assert_eq!(
            Unusual { peers: spread(51.0, 12), ..one.clone() }.sentence(metric),
            "temperature_c is 75 °C: 30 °C above its own 45 °C in this hour of 3 days (10.0 deviations); 24 °C above the 51 °C under \
             like load, the median of 12 other GPUs (8.0 deviations)"
        );
        assert_eq!(
            Unusual { own: None, ..one }.sentence(metric),
            "temperature_c is 75 °C: fewer than 3 days under like load are known of it; too few others of its model are under like \
             load"
        );
    }

    #[test]
    fn thirds_and_the_range_without_its_ends() {
        assert_eq!([0.0, 33.3, 33.4, 66.6, 66.7, 100.0].map(third), [0, 0, 1, 1, 2, 2]);
        let check = |values: Vec<f64>, expected: f64| assert!((range(values) - expected).abs() < 1e-9);
        check((0..=40).map(f64::from).collect(), 36.0);
        check(vec![3.0, 1.0], 2.0);
        check(Vec::new(), 0.0);
    }
}
