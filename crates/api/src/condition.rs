//! The rules by which a GPU's state is judged; [`State`] documents them for clients.

use std::sync::LazyLock;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{IdentityColumn, MetricId, catalogue};
use gpuvitals_store::{Fleet, GpuState};

use crate::dto::{Gpu, LatestMetrics, Moment, State};

/// Utilisation in % from which a GPU is active.
const ACTIVE_FROM_PCT: f64 = 1.0;
/// Bit of `throttle_reasons` that the hardware sets when it slows down of heat.
const HARDWARE_THERMAL: i64 = 0x40;
/// XIDs that applications cause: the GPU is well. The list of NVIDIA's Kubernetes device plugin.
const XID_OF_APPLICATIONS: [i64; 6] = [13, 31, 43, 45, 68, 109];

/// A column whose value shows a fault of the device, when it does, and in what words.
struct Fault {
    metric: Option<MetricId>,
    shows: fn(i64) -> bool,
    words: fn(i64) -> String,
}

static FAULTS: LazyLock<[Fault; 8]> = LazyLock::new(|| {
    let fault = |column, shows, words| Fault { metric: catalogue::by_column(column), shows, words };
    let some: fn(i64) -> bool = |value| value > 0;
    [
        fault("xid_last", |xid| xid > 0 && !XID_OF_APPLICATIONS.contains(&xid), |xid| format!("XID {xid}")),
        fault("ecc_uncorrected_volatile", some, |n| {
            format!("{n} memory errors beyond correction since the driver was loaded")
        }),
        fault("ras_uncorrected", some, |n| {
            format!("{n} RAS errors beyond correction since the driver was loaded")
        }),
        fault("remapped_rows_failed", some, |_| "a memory row could not be replaced".to_owned()),
        fault("bad_pages_unreservable", some, |n| {
            format!("{n} bad memory pages could not be taken out of use")
        }),
        fault("sram_threshold_exceeded", some, |_| "SRAM errors passed their threshold".to_owned()),
        fault("recovery_action", some, |action| format!("the driver asks for recovery action {action}")),
        fault(
            "throttle_reasons",
            |bits| bits & HARDWARE_THERMAL != 0,
            |_| "thermal slowdown by the hardware".to_owned(),
        ),
    ]
});

static UTILIZATION: LazyLock<Option<MetricId>> = LazyLock::new(|| catalogue::by_column("utilization_pct"));
static MEMORY_TOTAL: LazyLock<Option<MetricId>> = LazyLock::new(|| catalogue::by_column("memory_total_mb"));
static MEMORY_USED: LazyLock<Option<MetricId>> = LazyLock::new(|| catalogue::by_column("memory_used_mb"));
static MEMORY_FREE: LazyLock<Option<MetricId>> = LazyLock::new(|| catalogue::by_column("memory_free_mb"));

/// At what moment GPUs are looked at, and what counts as old.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    /// Now, nanoseconds UTC since 1970.
    pub(crate) now_ns: i64,
    /// Age from which a value is old, nanoseconds.
    pub(crate) stale_after_ns: i64,
}

impl Sight {
    fn is_old(self, timestamp_ns: i64) -> bool {
        self.now_ns.saturating_sub(timestamp_ns) > self.stale_after_ns
    }

    /// The latest value of a metric if it is not old.
    fn recent(self, gpu: &GpuState, metric: Option<MetricId>) -> Option<Value> {
        let latest = Fleet::latest(gpu, metric?)?;
        (!self.is_old(latest.timestamp_ns)).then_some(latest.value)
    }

    /// The state of a GPU and, if it is unhealthy, why.
    pub(crate) fn judge(self, gpu: &GpuState) -> (State, Option<String>) {
        if self.is_old(gpu.last_seen_ns) {
            return (State::Stale, None);
        }
        for fault in FAULTS.iter() {
            if let Some(Value::Int(value)) = self.recent(gpu, fault.metric)
                && (fault.shows)(value)
            {
                return (State::Unhealthy, Some((fault.words)(value)));
            }
        }
        match self.recent(gpu, *UTILIZATION) {
            None => (State::Unknown, None),
            Some(value) if value.as_f64() < ACTIVE_FROM_PCT => (State::Idle, None),
            Some(_) => (State::Active, None),
        }
    }

    /// A GPU as the API shows it.
    pub(crate) fn show(self, gpu: &GpuState, with_metrics: bool) -> Gpu<'_> {
        let text = |column| gpu.identity.get(column);
        let (state, state_reason) = self.judge(gpu);
        Gpu {
            id: &gpu.key,
            name: name(gpu),
            model: text(IdentityColumn::Model),
            vendor: text(IdentityColumn::Vendor),
            hostname: text(IdentityColumn::Node),
            index: gpu.identity.index,
            memory_mb: memory_mb(gpu),
            driver_version: text(IdentityColumn::Driver),
            state,
            state_reason,
            last_seen: Some(Moment(gpu.last_seen_ns)),
            simulated: gpu.identity.is_simulated(),
            metrics: with_metrics.then_some(LatestMetrics(gpu)),
        }
    }
}

/// What people call a GPU.
pub(crate) fn name(gpu: &GpuState) -> String {
    let partition =
        gpu.identity.get(IdentityColumn::Partition).map_or(String::new(), |part| format!(" / {part}"));
    match (gpu.identity.node(), gpu.identity.index) {
        (Some(node), Some(index)) => format!("{node} / GPU {index}{partition}"),
        (Some(node), None) => format!("{node} / {}", gpu.key),
        (None, _) => gpu.key.to_string(),
    }
}

/// Device memory in MiB: as it was read, else what is used and free together.
pub(crate) fn memory_mb(gpu: &GpuState) -> Option<i64> {
    let whole = |metric: Option<MetricId>| match Fleet::latest(gpu, metric?)?.value {
        Value::Int(value) => Some(value),
        _ => None,
    };
    whole(*MEMORY_TOTAL).or_else(|| whole(*MEMORY_USED)?.checked_add(whole(*MEMORY_FREE)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuvitals_core::Identity;
    use gpuvitals_core::time::SECOND_NS;
    use gpuvitals_store::LatestValue;

    use super::*;

    const SIGHT: Sight = Sight { now_ns: 100 * SECOND_NS, stale_after_ns: 30 * SECOND_NS };

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
            assert_eq!(SIGHT.judge(&gpu(seen_s, values)).0, state, "{seen_s} {values:?}");
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
        check(100, &[("ecc_uncorrected_volatile", 1.0, 100)], State::Unhealthy);
        check(100, &[("ecc_uncorrected_aggregate", 1.0, 100)], State::Unknown);
        check(100, &[("ras_uncorrected", 1.0, 100)], State::Unhealthy);
        check(100, &[("remapped_rows_failed", 1.0, 100)], State::Unhealthy);
        check(100, &[("throttle_reasons", 68.0, 100)], State::Unhealthy);
        check(100, &[("throttle_reasons", 4.0, 100), ("utilization_pct", 99.0, 100)], State::Active);
    }

    #[test]
    fn every_fault_is_of_a_column_the_catalogue_has() {
        assert!(FAULTS.iter().all(|fault| fault.metric.is_some()));
        assert!([*UTILIZATION, *MEMORY_TOTAL, *MEMORY_USED, *MEMORY_FREE].iter().all(Option::is_some));
    }

    #[test]
    fn memory_is_read_or_summed_or_unknown() {
        assert_eq!(memory_mb(&gpu(0, &[("memory_total_mb", 80.0, 0), ("memory_used_mb", 1.0, 0)])), Some(80));
        assert_eq!(memory_mb(&gpu(0, &[("memory_free_mb", 79.0, 0), ("memory_used_mb", 1.0, 0)])), Some(80));
        assert_eq!(memory_mb(&gpu(0, &[("memory_used_mb", 1.0, 0)])), None);
    }
}
