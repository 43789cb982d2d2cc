//! Calls that give one number each.

use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::{MetricId, batch::Value};

use super::code::{Answer, Code};
use super::ledger::Gate;
use super::raw::{Gpu, Raw};
use super::tick::DeviceReading;
use crate::probe::ProbeError;

/// Asks a GPU for one number.
type NumberCall = fn(&Raw, Gpu) -> Answer<Value>;

/// A call and the column it fills, in the column's unit.
struct Single {
    metric: MetricId,
    get: NumberCall,
}

const fn single(column: &str, get: NumberCall) -> Single {
    Single { metric: MetricId::of(column), get }
}

/// NVML's numbers of clocks.
const GRAPHICS: u32 = 0;
const SM: u32 = 1;
const MEMORY: u32 = 2;
const VIDEO: u32 = 3;
/// NVML's numbers of ECC errors.
pub(super) const CORRECTED: u32 = 0;
pub(super) const UNCORRECTED: u32 = 1;
pub(super) const VOLATILE: u32 = 0;
pub(super) const AGGREGATE: u32 = 1;
/// NVML's numbers of temperature limits.
const SHUTDOWN: u32 = 0;
const SLOWDOWN: u32 = 1;
const MEMORY_MAX: u32 = 2;
const GPU_MAX: u32 = 3;
/// Most fans of a board that are asked.
const FANS_MAX: u32 = 8;

/// Read at the tier of the metric, unless a field value has given it already.
const SINGLES: &[Single] = &[
    single("gpu_clock_mhz", |raw, gpu| raw.clock_mhz(gpu, GRAPHICS).map(count)),
    single("sm_clock_mhz", |raw, gpu| raw.clock_mhz(gpu, SM).map(count)),
    single("mem_clock_mhz", |raw, gpu| raw.clock_mhz(gpu, MEMORY).map(count)),
    single("temperature_c", |raw, gpu| raw.temperature_c(gpu).map(Value::Int)),
    single("video_clock_mhz", |raw, gpu| raw.clock_mhz(gpu, VIDEO).map(count)),
    single("encoder_utilization_pct", |raw, gpu| raw.encoder_pct(gpu).map(first)),
    single("decoder_utilization_pct", |raw, gpu| raw.decoder_pct(gpu).map(first)),
    single("jpeg_utilization_pct", |raw, gpu| raw.jpeg_pct(gpu).map(first)),
    single("ofa_utilization_pct", |raw, gpu| raw.ofa_pct(gpu).map(first)),
    single("performance_state", |raw, gpu| raw.performance_state(gpu).map(count)),
    single("fan_speed_pct", |raw, gpu| fan_pct(raw, gpu).map(count)),
    single("fan_speed_rpm", |raw, gpu| raw.fan_rpm(gpu).map(count)),
    single("temperature_margin_c", |raw, gpu| raw.temperature_margin_c(gpu).map(Value::Int)),
    single("pcie_gen", |raw, gpu| raw.pcie_gen(gpu).map(count)),
    single("pcie_width", |raw, gpu| raw.pcie_width(gpu).map(count)),
    single("pcie_speed_gtps", |raw, gpu| raw.pcie_speed_mbps(gpu).map(thousandth)),
    single("pcie_replays", |raw, gpu| raw.pcie_replays(gpu).map(count)),
    single("energy_mj", |raw, gpu| raw.energy_mj(gpu).map(count_wide)),
    single("power_limit_w", |raw, gpu| raw.power_limit_mw(gpu).map(thousandth)),
    single("power_limit_enforced_w", |raw, gpu| raw.power_limit_enforced_mw(gpu).map(thousandth)),
    single("power_limit_default_w", |raw, gpu| raw.power_limit_default_mw(gpu).map(thousandth)),
    single("power_limit_min_w", |raw, gpu| raw.power_limits_mw(gpu).map(|(min, _)| thousandth(min))),
    single("power_limit_max_w", |raw, gpu| raw.power_limits_mw(gpu).map(|(_, max)| thousandth(max))),
    single("gpu_clock_max_mhz", |raw, gpu| raw.clock_max_mhz(gpu, GRAPHICS).map(count)),
    single("sm_clock_max_mhz", |raw, gpu| raw.clock_max_mhz(gpu, SM).map(count)),
    single("mem_clock_max_mhz", |raw, gpu| raw.clock_max_mhz(gpu, MEMORY).map(count)),
    single("video_clock_max_mhz", |raw, gpu| raw.clock_max_mhz(gpu, VIDEO).map(count)),
    single("gpu_clock_application_mhz", |raw, gpu| raw.clock_application_mhz(gpu, GRAPHICS).map(count)),
    single("mem_clock_application_mhz", |raw, gpu| raw.clock_application_mhz(gpu, MEMORY).map(count)),
    single("temperature_shutdown_c", |raw, gpu| raw.temperature_limit_c(gpu, SHUTDOWN).map(count)),
    single("temperature_slowdown_c", |raw, gpu| raw.temperature_limit_c(gpu, SLOWDOWN).map(count)),
    single("temperature_max_operating_c", |raw, gpu| raw.temperature_limit_c(gpu, GPU_MAX).map(count)),
    single("temperature_memory_max_operating_c", |raw, gpu| {
        raw.temperature_limit_c(gpu, MEMORY_MAX).map(count)
    }),
    single("pcie_gen_max", |raw, gpu| raw.pcie_gen_max(gpu).map(count)),
    single("pcie_width_max", |raw, gpu| raw.pcie_width_max(gpu).map(count)),
    single("numa_node", |raw, gpu| raw.numa_node(gpu).map(count)),
    single("persistence_mode", |raw, gpu| raw.persistence_mode(gpu).map(count)),
    single("compute_mode", |raw, gpu| raw.compute_mode(gpu).map(count)),
    single("ecc_mode", |raw, gpu| raw.ecc_modes(gpu).map(first)),
    single("ecc_mode_pending", |raw, gpu| raw.ecc_modes(gpu).map(|(_, pending)| count(pending))),
    single("confidential_mode", |raw, _| raw.confidential_mode().map(count)),
    single("ecc_corrected_volatile", |raw, gpu| raw.ecc_errors(gpu, CORRECTED, VOLATILE).map(count_wide)),
    single("ecc_uncorrected_volatile", |raw, gpu| raw.ecc_errors(gpu, UNCORRECTED, VOLATILE).map(count_wide)),
    single("ecc_corrected_aggregate", |raw, gpu| raw.ecc_errors(gpu, CORRECTED, AGGREGATE).map(count_wide)),
    single("ecc_uncorrected_aggregate", |raw, gpu| {
        raw.ecc_errors(gpu, UNCORRECTED, AGGREGATE).map(count_wide)
    }),
    single("c2c_mode", |raw, gpu| raw.c2c_mode(gpu).map(count)),
];

/// Speed of the fastest fan, % of its maximum.
fn fan_pct(raw: &Raw, gpu: Gpu) -> Answer<u32> {
    match raw.fans(gpu) {
        Ok(0) => Err(Code::NOT_SUPPORTED),
        Ok(fans) => {
            let others = (1..fans.min(FANS_MAX)).filter_map(|fan| raw.fan_pct_of(gpu, fan).ok());
            raw.fan_pct_of(gpu, 0).map(|first| others.fold(first, u32::max))
        }
        Err(code) if code.asks_for_older_call() => raw.fan_pct_old(gpu),
        Err(code) => Err(code),
    }
}

fn count(value: u32) -> Value {
    Value::Int(i64::from(value))
}

pub(super) fn count_wide(value: u64) -> Value {
    // All ones and similar are outside every range.
    Value::Int(i64::try_from(value).unwrap_or(-1))
}

fn first((value, _): (u32, u32)) -> Value {
    count(value)
}

fn thousandth(value: u32) -> Value {
    Value::Float(f64::from(value) / 1000.0)
}

/// All of the calls, by the column they fill.
pub(super) fn all() -> impl Iterator<Item = (&'static str, NumberCall)> {
    SINGLES.iter().map(|single| (single.metric.metric().column, single.get))
}

/// The calls with their state.
pub(super) struct Singles(Vec<(&'static Single, Tier, Gate)>);

impl Singles {
    pub(super) fn new() -> Self {
        Self(SINGLES.iter().map(|single| (single, single.metric.metric().tier, Gate::Open)).collect())
    }

    /// Reads those that are due and not in the row yet.
    pub(super) fn read(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        for (single, tier, gate) in &mut self.0 {
            if !device.tick.due.has(*tier) || device.row.get(single.metric).is_some() {
                continue;
            }
            if let Some(value) = device.ask(gate, &[single.metric], single.get)? {
                device.ledger.has(single.metric);
                device.row.set(single.metric, value);
            }
        }
        Ok(())
    }
}
