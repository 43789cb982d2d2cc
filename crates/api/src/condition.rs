//! The rules by which a GPU's state is judged; [`State`] documents them for clients.

use std::time::Duration;

use gpuvitals_analysis::condition;
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_core::{IdentityColumn, MetricId};

use crate::dto::{Gpu, LatestMetrics, Moment, State};

/// Utilisation in % from which a GPU is active.
const ACTIVE_FROM_PCT: f64 = 1.0;
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");

/// The time at which GPUs are judged, and the age from which they are stale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateRules {
    pub(crate) fresh: Freshness,
}

impl StateRules {
    /// The rules at `now_ns`.
    pub(crate) fn new(now_ns: i64, stale_after: Duration) -> Self {
        let stale_after_ns = i64::try_from(stale_after.as_nanos()).unwrap_or(i64::MAX);
        Self { fresh: Freshness { now_ns, stale_after_ns } }
    }

    /// When the next value becomes old, and with it perhaps a state, nanoseconds UTC since 1970.
    pub(crate) fn changes_at(self, fleet: &Fleet) -> i64 {
        let times = fleet.gpus.iter().flat_map(|gpu| {
            let values = gpu.latest.iter().map(|(_, latest)| latest.timestamp_ns);
            values.chain([gpu.last_seen_ns])
        });
        let old_from = times.map(|ns| ns.saturating_add(self.fresh.stale_after_ns).saturating_add(1));
        old_from.filter(|at| *at > self.fresh.now_ns).min().unwrap_or(i64::MAX)
    }

    /// The state of a GPU.
    pub(crate) fn state(self, gpu: &GpuState) -> State {
        if self.fresh.is_old(gpu.last_seen_ns) {
            return State::Stale;
        }
        if self.conditions(gpu).next().is_some() {
            return State::Unhealthy;
        }
        match self.fresh.recent(gpu, UTILIZATION) {
            None => State::Unknown,
            Some(value) if value.as_f64() < ACTIVE_FROM_PCT => State::Idle,
            Some(_) => State::Active,
        }
    }

    /// The reason for this state, if the state does not explain itself.
    fn reason(self, gpu: &GpuState, state: State) -> Option<String> {
        match state {
            State::Unhealthy => {
                Some(self.conditions(gpu).map(|found| found.sentence()).collect::<Vec<_>>().join("; "))
            }
            State::Stale => {
                let since_ns = gpu.last_seen_ns.saturating_add(self.fresh.stale_after_ns);
                let since = time::format(since_ns.div_euclid(SECOND_NS) * SECOND_NS);
                let then = Self { fresh: Freshness { now_ns: gpu.last_seen_ns, ..self.fresh } };
                let before = then.state(gpu);
                let why = then.reason(gpu, before).map_or(String::new(), |why| format!(": {why}"));
                Some(format!("stale since {since}, last seen {}{why}", before.name()))
            }
            State::Active | State::Idle | State::Unknown => None,
        }
    }

    fn conditions(self, gpu: &GpuState) -> impl Iterator<Item = condition::MatchedCondition> {
        condition::found(move |metric| self.fresh.recent(gpu, metric))
    }

    /// A GPU in this state as the API shows it, without its judgement.
    pub(crate) fn show<'a>(
        self,
        gpu: &'a GpuState,
        state: State,
        metrics: Option<LatestMetrics<'a>>,
    ) -> Gpu<'a> {
        let text = |column| gpu.identity.get(column);
        Gpu {
            id: &gpu.key,
            name: gpu.name(),
            model: text(IdentityColumn::Model),
            vendor: text(IdentityColumn::Vendor),
            hostname: text(IdentityColumn::Node),
            index: gpu.identity.index,
            memory_mb: memory_mb(gpu),
            driver_version: text(IdentityColumn::Driver),
            state,
            state_reason: self.reason(gpu, state),
            last_seen: Some(Moment(gpu.last_seen_ns)),
            simulated: gpu.identity.is_simulated(),
            metrics,
            labels: None,
            judgement: state.name(),
            judgement_reason: None,
        }
    }
}

/// The GPU's name on its host, `node:gpu6`, by which it can be asked for.
pub(crate) fn address(gpu: &GpuState) -> Option<String> {
    Some(format!("{}:gpu{}", gpu.identity.node()?, gpu.identity.index?))
}

/// The name of a GPU of a fleet for people; its key if it is none.
pub(crate) fn name_of(fleet: &Fleet, key: &str) -> String {
    fleet.get(key).map_or_else(|| key.to_owned(), |gpu| gpu.name())
}

/// Device memory in MiB as read. The sum of used and free is less: a part is reserved.
pub(crate) fn memory_mb(gpu: &GpuState) -> Option<i64> {
    match Fleet::latest(gpu, MEMORY_TOTAL)?.value {
        Value::Int(value) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuvitals_core::history::LatestValue;
    use gpuvitals_core::{Identity, catalogue};

    use super::*;

    const RULES: StateRules =
        StateRules { fresh: Freshness { now_ns: 100 * SECOND_NS, stale_after_ns: 30 * SECOND_NS } };

    fn gpu(seen_s: i64, values: &[(&str, f64, i64)]) -> GpuState {
        let mut latest: Vec<(MetricId, LatestValue)> = values
            .iter()
            .map(|(column, value, at_s)| {
                let id = catalogue::by_column(column).unwrap();
                let value = match id.metric().column_type {
                    catalogue::ColumnType::I32 | catalogue::ColumnType::I64 => {
                        Value::Int(format!("{value}").parse().unwrap())
                    }
                    _ => Value::Float(*value),
                };
                (id, LatestValue { value, timestamp_ns: at_s * SECOND_NS })
            })
            .collect();
        latest.sort_by_key(|(id, _)| *id);
        GpuState {
            key: Arc::from("GPU-1"),
            identity: Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap(),
            first_seen_ns: 0,
            last_seen_ns: seen_s * SECOND_NS,
            latest,
            extras: Vec::new(),
        }
    }

    #[test]
    fn the_first_rule_that_applies_counts() {
        let check = |seen_s, values: &[(&str, f64, i64)], state| {
            assert_eq!(RULES.state(&gpu(seen_s, values)), state, "{seen_s} {values:?}");
        };
        check(100, &[("utilization_pct", 50.0, 100)], State::Active);
        check(100, &[("utilization_pct", 1.0, 100)], State::Active);
        check(100, &[("utilization_pct", 0.0, 100)], State::Idle);
        check(100, &[("utilization_pct", 0.5, 100)], State::Idle);
        check(100, &[], State::Unknown);
        check(100, &[("power_w", 70.0, 100)], State::Unknown);
        check(100, &[("utilization_pct", 50.0, 60)], State::Unknown);
        check(70, &[("utilization_pct", 50.0, 70)], State::Active);
        check(69, &[("utilization_pct", 50.0, 69), ("xid_last", 79.0, 69)], State::Stale);
        check(4_000, &[("utilization_pct", 50.0, 4_000)], State::Active);
        check(100, &[("utilization_pct", 50.0, 100), ("xid_last", 79.0, 100)], State::Unhealthy);
        check(100, &[("utilization_pct", 50.0, 100), ("xid_last", 79.0, 60)], State::Active);
        check(100, &[("utilization_pct", 50.0, 100), ("xid_last", 31.0, 100)], State::Active);
        check(100, &[("utilization_pct", 50.0, 100), ("xid_last", 0.0, 100)], State::Active);
        check(100, &[("remapped_rows_pending", 1.0, 100)], State::Unhealthy);
    }

    #[test]
    fn a_state_keeps_its_last_reason() {
        let check = |seen_s, values: &[(&str, f64, i64)], reason: Option<&str>| {
            let gpu = gpu(seen_s, values);
            assert_eq!(RULES.reason(&gpu, RULES.state(&gpu)).as_deref(), reason, "{seen_s} {values:?}");
        };
        let margin = ("temperature_margin_c", 2.0, 60);
        check(100, &[("utilization_pct", 50.0, 100)], None);
        check(100, &[], None);
        check(100, &[("xid_last", 79.0, 100)], Some("XID 79: the GPU has fallen off the bus"));
        check(
            70,
            &[("xid_last", 79.0, 70), ("temperature_margin_c", 2.0, 70)],
            Some("XID 79: the GPU has fallen off the bus; 2 °C left to the slowdown limit"),
        );
        check(
            60,
            &[("xid_last", 79.0, 60), ("utilization_pct", 50.0, 60)],
            Some(
                "stale since 1970-01-01T00:01:30Z, last seen unhealthy: XID 79: the GPU has fallen off the bus",
            ),
        );
        check(
            60,
            &[margin],
            Some("stale since 1970-01-01T00:01:30Z, last seen unhealthy: 2 °C left to the slowdown limit"),
        );
        check(
            60,
            &[("xid_last", 79.0, 20), ("utilization_pct", 50.0, 60)],
            Some("stale since 1970-01-01T00:01:30Z, last seen active"),
        );
        check(60, &[], Some("stale since 1970-01-01T00:01:30Z, last seen unknown"));
    }

    #[test]
    fn memory_is_read_or_unknown() {
        assert_eq!(memory_mb(&gpu(0, &[("memory_total_mb", 80.0, 0), ("memory_used_mb", 1.0, 0)])), Some(80));
        assert_eq!(memory_mb(&gpu(0, &[("memory_free_mb", 79.0, 0), ("memory_used_mb", 1.0, 0)])), None);
    }
}
