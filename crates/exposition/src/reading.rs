//! The value of a series.

use gpuvitals_analysis::condition;
use gpuvitals_analysis::window::WindowSummary;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::energy::EnergySource;
use gpuvitals_core::figures::Number;
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, MetricId};

use crate::gpu::Gpu;
use crate::meters::Total;
use crate::scale::Scale;
use crate::status::DeviceStatus;
use crate::values::Values;

/// A figure of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stat {
    Min,
    Max,
    Mean,
    P99,
}

/// The value of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    /// Always 1: the labels say it all.
    Here,
    /// 1 while the energy comes from this source.
    EnergyFrom(Option<EnergySource>),
    Up,
    /// 1 while it is down for this reason; none: it was not read yet.
    DownFor(Option<AbsenceReason>),
    /// 1 while a reading of it is past its deadline.
    Stuck,
    Since,
    LastSample,
    UpdateInterval,
    Samples,
    Absences(AbsenceReason),
    /// The latest value of the first of these metrics that has one.
    Latest(MetricId, Option<MetricId>, Scale),
    /// The latest share of each CPU of the host.
    Cores(Scale),
    /// The latest value of a profiling counter of NVIDIA's. Of another vendor's GPU: the load, in %, that means the same.
    Active {
        counter: MetricId,
        scale: Scale,
        load: MetricId,
        load_scale: Scale,
    },
    /// Bytes per second over all links, both directions.
    LinkRate(Scale),
    /// Free memory, which not every driver reports.
    MemoryFree(Scale),
    /// Share of the memory in use, in % of the unreserved memory, as DCGM has it.
    MemoryUsedShare(Scale),
    Window(usize, Stat, Scale, ColumnType),
    WindowEnd,
    Total(Total),
    /// 1 while the condition of this id holds.
    Condition(&'static str),
}

/// How much later than its end a window may still be the last complete one: two windows, and some seconds for
/// rows in transit.
const WINDOW_GRACE_NS: i64 = 5_000_000_000;

impl Reading {
    /// The current number, if any.
    pub(crate) fn number(
        self,
        gpu: &Gpu,
        status: &DeviceStatus,
        window_ns: i64,
        now_ns: i64,
    ) -> Option<Number> {
        let count = |count: u64| Some(Number::Int(i64::try_from(count).unwrap_or(i64::MAX)));
        let one_if = |it: bool| it.then_some(Number::Int(1));
        match self {
            Self::Here => Some(Number::Int(1)),
            Self::EnergyFrom(source) => one_if(gpu.meters.energy_source() == source),
            Self::Up => Some(Number::Int(status.up.into())),
            Self::DownFor(reason) => one_if(!status.up && !status.stuck && status.reason == reason),
            Self::Stuck => one_if(!status.up && status.stuck),
            Self::Since => Some(Number::Nanoseconds(status.since_ns)),
            Self::LastSample => gpu.last_ns.map(Number::Nanoseconds),
            Self::UpdateInterval => {
                let interval = status.update_interval.filter(|_| status.up)?;
                Some(Number::Nanoseconds(i64::try_from(interval.as_nanos()).ok()?))
            }
            Self::Samples => count(gpu.samples),
            Self::Absences(reason) => count(gpu.absences.get(reason as usize).copied().unwrap_or(0)),
            // Not of a GPU; the values below are missing for a GPU that is down.
            Self::Cores(_) => None,
            _ if !status.up => None,
            Self::Latest(metric, other, scale) => {
                first_fresh(&gpu.values, metric, other, now_ns).map(|value| scale.apply(value))
            }
            Self::Active { counter, scale, load, load_scale } => {
                let counted = gpu.values.fresh(counter, now_ns).map(|value| scale.apply(value));
                counted.or_else(|| {
                    let load = gpu.values.fresh(load, now_ns).filter(|_| !gpu.is_nvidia())?;
                    Some(load_scale.apply(load))
                })
            }
            Self::LinkRate(scale) => gpu.values.link_rate(now_ns).map(|rate| scale.apply(rate)),
            Self::MemoryFree(scale) => memory_free(&gpu.values, now_ns).map(|free| scale.apply(free)),
            Self::MemoryUsedShare(scale) => {
                memory_used_share(&gpu.values, now_ns).map(|share| scale.apply(share))
            }
            Self::Window(channel, stat, scale, column_type) => {
                window_end(gpu, window_ns, now_ns)?;
                Some(stat.number(&gpu.windows.summary(channel)?, scale, column_type))
            }
            Self::WindowEnd => window_end(gpu, window_ns, now_ns).map(Number::Nanoseconds),
            Self::Total(total) => gpu.meters.total(total).map(Number::F64),
            Self::Condition(id) => one_if(condition::holds(id, |metric| gpu.values.fresh(metric, now_ns))),
        }
    }

    /// When the current number was measured, nanoseconds UTC since 1970; none: it is a state of this moment.
    pub(crate) fn measured_ns(self, gpu: &Gpu, now_ns: i64) -> Option<i64> {
        match self {
            Self::Latest(metric, other, _) => latest_ns(&gpu.values, metric, other, now_ns),
            Self::Active { counter, load, .. } => latest_ns(&gpu.values, counter, Some(load), now_ns),
            Self::LinkRate(_) => gpu.values.link_rate_ns(now_ns),
            Self::MemoryFree(_) | Self::MemoryUsedShare(_) => gpu.values.measured_ns(USED, now_ns),
            Self::Window(..) | Self::WindowEnd => gpu.windows.end_ns(),
            Self::Total(_) | Self::LastSample => gpu.last_ns,
            _ => None,
        }
    }
}

/// When the number of a series of the host was measured.
pub(crate) fn host_measured_ns(reading: Reading, values: &Values, now_ns: i64) -> Option<i64> {
    match reading {
        Reading::Latest(metric, other, _) => latest_ns(values, metric, other, now_ns),
        _ => None,
    }
}

fn latest_ns(values: &Values, metric: MetricId, other: Option<MetricId>, now_ns: i64) -> Option<i64> {
    values.measured_ns(metric, now_ns).or_else(|| values.measured_ns(other?, now_ns))
}

/// The number of a series of the host.
pub(crate) fn host_number(reading: Reading, values: &Values, now_ns: i64) -> Option<Number> {
    match reading {
        Reading::Latest(metric, other, scale) => {
            first_fresh(values, metric, other, now_ns).map(|value| scale.apply(value))
        }
        _ => None,
    }
}

/// The value of the first of two metrics that has one.
fn first_fresh(values: &Values, metric: MetricId, other: Option<MetricId>, now_ns: i64) -> Option<Value> {
    values.fresh(metric, now_ns).or_else(|| values.fresh(other?, now_ns))
}

fn memory_free(values: &Values, now_ns: i64) -> Option<Value> {
    const FREE: MetricId = MetricId::of("memory_free_mb");
    let free = values.fresh(FREE, now_ns).or_else(|| {
        let (used, usable) = memory(values, now_ns)?;
        Some(Value::Int(usable - used))
    });
    free.filter(|free| matches!(free, Value::Int(mib) if *mib >= 0))
}

const RESERVED: MetricId = MetricId::of("memory_reserved_mb");
const USED: MetricId = MetricId::of("memory_used_mb");

fn memory_used_share(values: &Values, now_ns: i64) -> Option<Value> {
    const SHARE: MetricId = MetricId::of("memory_used_pct");
    let Some((used, usable)) = memory(values, now_ns) else {
        // The column is a share of the whole; next to values without the reserved memory it would be a jump.
        return values.fresh(SHARE, now_ns).filter(|_| !values.has_had(RESERVED));
    };
    (usable > 0).then(|| Value::Float(100.0 * float(used) / float(usable)))
}

/// Memory in use, and the unreserved memory, MiB. A GPU that never gave its reserved memory has no separate one; if it
/// is missing only now, neither number is known.
fn memory(values: &Values, now_ns: i64) -> Option<(i64, i64)> {
    const TOTAL: MetricId = MetricId::of("memory_total_mb");
    let fresh = |metric| match values.fresh(metric, now_ns) {
        Some(Value::Int(mib)) => Some(mib),
        _ => None,
    };
    let reserved = match fresh(RESERVED) {
        None if values.has_had(RESERVED) => return None,
        reserved => reserved.unwrap_or(0),
    };
    Some((fresh(USED)?, fresh(TOTAL)? - reserved))
}

fn window_end(gpu: &Gpu, window_ns: i64, now_ns: i64) -> Option<i64> {
    let age_max_ns = window_ns.saturating_mul(2).saturating_add(WINDOW_GRACE_NS);
    gpu.windows.end_ns().filter(|end_ns| now_ns.saturating_sub(*end_ns) <= age_max_ns)
}

impl Stat {
    fn number(self, summary: &WindowSummary, scale: Scale, column_type: ColumnType) -> Number {
        let value = match self {
            Self::Min => summary.min,
            Self::Max => summary.max,
            Self::Mean => summary.mean,
            Self::P99 => summary.p99,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the samples were 32-bit floats")]
        let value = match column_type {
            ColumnType::F32 => Value::Float32(value as f32),
            ColumnType::I32 | ColumnType::I64 | ColumnType::F64 => Value::Float(value),
        };
        scale.apply(value)
    }
}
