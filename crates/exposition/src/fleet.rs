//! The families of a fleet whose rows came from elsewhere: a history knows the latest value of each column, but neither the
//! devices nor what lies between two values.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_analysis::condition;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{Series, Tier};
use gpuvitals_core::figures::{Family, Number};
use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::{Identity, MetricId};

use crate::family::FamilyPlan;
use crate::plan::fleet;
use crate::reading::Reading;
use crate::scrape::{Scrape as _, TypedScrape};

/// A value is shown until this much has passed since it was measured; as long as Prometheus itself takes a sample for
/// present, for those that are read once a minute.
const FRESH: Duration = Duration::from_secs(90);
const FRESH_RARE: Duration = Duration::from_mins(5);

/// GPUs whose families are there at a time: some 5 MB.
const PART_GPUS: usize = 250;

/// Writes the families of fleets.
#[derive(Debug)]
pub struct FleetExposition {
    plan: Vec<FamilyPlan>,
}

impl FleetExposition {
    /// With the metrics of a set.
    pub fn new(set: Series) -> Self {
        Self { plan: fleet(set) }
    }

    /// The families of the GPUs that have a row of the last 90 s: who they are, who holds them, whether the newest row has
    /// values, the conditions that hold, and the latest values, each with its time. Names and labels are those that the
    /// agent of the GPU's node shows; counters are the hardware's. They come in parts of some GPUs each. `now_ns` is UTC since
    /// 1970.
    pub fn parts(self: Arc<Self>, fleet: Arc<Fleet>, now_ns: i64) -> impl Iterator<Item = Vec<Family>> {
        let firsts = (0..fleet.gpus.len()).step_by(PART_GPUS);
        firsts.filter_map(move |first| {
            let gpus = fleet.gpus.iter().skip(first).take(PART_GPUS);
            let present: Vec<_> = gpus.filter_map(|gpu| PresentGpu::of(gpu, now_ns)).collect();
            (!present.is_empty()).then(|| self.families(&present, now_ns))
        })
    }

    fn families(&self, present: &[PresentGpu<'_>], now_ns: i64) -> Vec<Family> {
        let mut typed = TypedScrape::at(now_ns);
        for family in &self.plan {
            typed.family(family);
            for line in family.lines() {
                for gpu in present {
                    let labels = line.labels.of(gpu.identity);
                    if let Some((number, at_ns)) = gpu.number(line.reading).filter(|_| !labels.is_empty()) {
                        typed.sample(line, labels, number, at_ns);
                    }
                }
            }
        }
        typed.families
    }
}

/// A GPU with a new row.
struct PresentGpu<'a> {
    identity: &'a Identity,
    gpu: &'a GpuState,
    /// Whether its newest row has values.
    is_up: bool,
    now_ns: i64,
}

impl<'a> PresentGpu<'a> {
    fn of(gpu: &'a GpuState, now_ns: i64) -> Option<Self> {
        let is_up = gpu.latest.iter().any(|(_, latest)| latest.timestamp_ns == gpu.last_seen_ns);
        is_within(FRESH, gpu.last_seen_ns, now_ns).then_some(Self {
            identity: &gpu.identity,
            gpu,
            is_up,
            now_ns,
        })
    }

    /// The number of a series, and when it was measured.
    fn number(&self, reading: Reading) -> Option<(Number, Option<i64>)> {
        let seen_ns = Some(self.gpu.last_seen_ns);
        match reading {
            Reading::Here | Reading::EnergyFrom(None) => Some((Number::Int(1), None)),
            Reading::Up => Some((Number::Int(self.is_up.into()), seen_ns)),
            Reading::LastSample => Some((Number::Nanoseconds(self.gpu.last_seen_ns), seen_ns)),
            Reading::Condition(id) => {
                let holds = condition::holds(id, |metric| self.fresh(metric).map(|(value, _)| value));
                holds.then_some((Number::Int(1), None))
            }
            Reading::Latest(metric, _, scale) => {
                self.fresh(metric).map(|(value, at_ns)| (scale.apply(value), Some(at_ns)))
            }
            _ => None,
        }
    }

    /// The latest value of a metric, and its time. Nothing is known of a GPU that reports nothing.
    fn fresh(&self, metric: MetricId) -> Option<(Value, i64)> {
        let latest = Fleet::latest(self.gpu, metric).filter(|_| self.is_up)?;
        let limit = if metric.metric().tier == Tier::Rare { FRESH_RARE } else { FRESH };
        let is_fresh = is_within(limit, latest.timestamp_ns, self.now_ns);
        is_fresh.then_some((latest.value, latest.timestamp_ns))
    }
}

fn is_within(limit: Duration, at_ns: i64, now_ns: i64) -> bool {
    u128::from(now_ns.saturating_sub(at_ns).unsigned_abs()) <= limit.as_nanos()
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::IdentityColumn;
    use gpuvitals_core::history::LatestValue;

    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;
    const NOW_NS: i64 = 1_000 * SECOND_NS;

    /// A GPU that was last seen so long ago, with values and their ages in seconds.
    fn gpu(uuid: &str, seen_s: i64, values: &[(&str, Value, i64)]) -> Arc<GpuState> {
        let identity = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
        let at = |age_s: i64| NOW_NS - age_s * SECOND_NS;
        let mut latest: Vec<_> = values
            .iter()
            .map(|(column, value, age_s)| {
                (MetricId::of(column), LatestValue { value: *value, timestamp_ns: at(*age_s) })
            })
            .collect();
        latest.sort_by_key(|(metric, _)| *metric);
        let extras = Vec::new();
        let key = uuid.into();
        Arc::new(GpuState { key, identity, first_seen_ns: 0, last_seen_ns: at(seen_s), latest, extras })
    }

    /// Name, uuid, value and age of each sample.
    fn lines(gpus: Vec<Arc<GpuState>>) -> Vec<String> {
        let mut fleet = Fleet::default();
        fleet.gpus = gpus;
        let exposition = Arc::new(FleetExposition::new(Series::Standard));
        let mut lines = Vec::new();
        for family in exposition.parts(Arc::new(fleet), NOW_NS).flatten() {
            for sample in family.samples {
                let labels: Vec<_> =
                    sample.labels.iter().map(|(name, text)| format!("{name}={text}")).collect();
                let gpuvitals_core::figures::SampleValue::Number(number) = sample.value else {
                    panic!("{sample:?}")
                };
                let age = sample.at_ns.map(|at_ns| (NOW_NS - at_ns) / SECOND_NS);
                lines.push(format!("{}{{{}}} {} {age:?}", family.name, labels.join(","), number.as_f64()));
            }
        }
        lines
    }

    #[test]
    fn a_gpu_has_the_series_of_its_agent_with_the_times_of_its_values() {
        let values = [
            ("power_w", Value::Float32(250.5), 3),
            ("memory_used_mb", Value::Int(2), 3),
            ("temperature_c", Value::Float32(60.0), 91),
            ("interconnect_replay_errors", Value::Int(21), 91),
            ("energy_mj", Value::Int(7_000), 4),
        ];
        assert_eq!(
            lines(vec![gpu("a", 3, &values)]),
            [
                "gpu_info{uuid=a} 1 None",
                "gpu_up{uuid=a} 1 Some(3)",
                "gpu_last_sample_timestamp_seconds{uuid=a} 997 Some(3)",
                "gpu_power_watts{uuid=a} 250.5 Some(3)",
                "gpu_memory_used_bytes{uuid=a} 2097152 Some(3)",
                "gpu_energy_joules_total{uuid=a} 7 Some(4)",
                "gpu_interconnect_errors_total{error=replay,uuid=a} 21 Some(91)",
            ]
        );
    }

    #[test]
    fn of_a_gpu_that_reports_nothing_only_that_is_known_and_of_one_that_is_gone_nothing() {
        let values = [("power_w", Value::Float32(250.5), 3)];
        let asleep = lines(vec![gpu("a", 2, &values)]);
        assert_eq!(
            asleep,
            [
                "gpu_info{uuid=a} 1 None",
                "gpu_up{uuid=a} 0 Some(2)",
                "gpu_last_sample_timestamp_seconds{uuid=a} 998 Some(2)"
            ]
        );
        let gone = [("power_w", Value::Float32(250.5), 91)];
        assert_eq!(lines(vec![gpu("b", 91, &gone)]), Vec::<String>::new());
    }

    #[test]
    fn a_large_fleet_comes_in_parts() {
        let values = [("power_w", Value::Float32(250.5), 3)];
        let gpus = (0..=PART_GPUS).map(|at| gpu(&at.to_string(), 3, &values)).collect();
        let mut fleet = Fleet::default();
        fleet.gpus = gpus;
        let exposition = Arc::new(FleetExposition::new(Series::Standard));
        let up = |part: Vec<Family>| part.iter().find(|it| it.name == "gpu_up").map(|it| it.samples.len());
        let sizes: Vec<_> = exposition.parts(Arc::new(fleet), NOW_NS).map(up).collect();
        assert_eq!(sizes, [Some(PART_GPUS), Some(1)]);
    }
}
