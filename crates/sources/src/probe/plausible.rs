//! What the readings of one GPU say about each other: a value that others contradict is left out and counted.
//!
//! This is done once a row, after a probe has filled it, so it is the same for every part and driver:
//! - a power beyond `POWER_EXCURSION` times the largest limit;
//! - a part of a memory that is larger than the whole;
//! - a sign of throttling that neither temperature nor power bears out. Firmware has been seen to set the bit of the hotspot on
//!   idle cards at 40 °C (RDNA3 and RDNA4: issue 3251 of drm/amd, issue 11781 of ROCm/rocm-systems), and to count every step as
//!   one under each limit (MI300X with the DKMS driver 6.10.5).
//!
//! Heat is contradicted if every known temperature is [`COOL_K`] below its limit, now and in the row before, and either the
//! hottest spot is among them or the GPU draws little: an NVIDIA GPU may be hot where no sensor of the driver is. A power or
//! current limit is contradicted if the GPU draws less than [`LITTLE`] of its limit. Signals from outside (processor hot, power
//! brake, a slowdown of the hardware) are believed: they make a GPU cool and frugal.

use gpuvitals_core::MetricId;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::MEMORY_PARTS;

/// So far below its limit a temperature throttles nothing, kelvin. `LACT` leaves the bit of the hotspot out below 90 °C, which is
/// 20 K below the limit of these cards.
const COOL_K: f64 = 20.0;
/// A GPU that draws less than this share of its limit is not held down by it.
const LITTLE: f64 = 0.5;
/// Without a limit, a GPU whose engine works less than this share of time draws little, %.
const IDLE_PCT: f64 = 5.0;
/// Limit of a temperature whose own is not known, °C.
const LIMIT_C: f64 = 100.0;
/// The same for the skin of a laptop, which people touch.
const SKIN_LIMIT_C: f64 = 65.0;
/// New readings of a counter over which it must grow without a reason before it is disbelieved for good.
const READINGS_MIN: u8 = 3;

pub(super) const POWER: MetricId = MetricId::of("power_w");
pub(super) const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const POWER_LIMIT: MetricId = MetricId::of("power_limit_w");
const POWER_LIMIT_ENFORCED: MetricId = MetricId::of("power_limit_enforced_w");
const POWER_LIMIT_MAX: MetricId = MetricId::of("power_limit_max_w");
const MODULE_POWER: MetricId = MetricId::of("module_power_w");
const MODULE_POWER_LIMIT: MetricId = MetricId::of("module_power_limit_w");
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const JUNCTION: MetricId = MetricId::of("temperature_junction_c");
const MEMORY: MetricId = MetricId::of("temperature_memory_c");
const HBM: MetricId = MetricId::of("temperature_hbm_c");
const VR_GFX: MetricId = MetricId::of("temperature_vr_gfx_c");
const VR_SOC: MetricId = MetricId::of("temperature_vr_soc_c");
const VR_MEM: MetricId = MetricId::of("temperature_vr_mem_c");
const SOC: MetricId = MetricId::of("temperature_soc_c");
const CPU: MetricId = MetricId::of("temperature_cpu_c");
const SKIN: MetricId = MetricId::of("temperature_skin_c");
const MARGIN: MetricId = MetricId::of("temperature_margin_c");
const SLOWDOWN: MetricId = MetricId::of("temperature_slowdown_c");
const OPERATING: MetricId = MetricId::of("temperature_max_operating_c");
const JUNCTION_SLOWDOWN: MetricId = MetricId::of("temperature_junction_slowdown_c");
const MEMORY_SLOWDOWN: MetricId = MetricId::of("temperature_memory_slowdown_c");
const MEMORY_OPERATING: MetricId = MetricId::of("temperature_memory_max_operating_c");

/// What a counter of throttling counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Power,
    Heat,
}

/// Counters of steps under a limit, of `SAMPLES`; and of nanoseconds, of time.
pub(super) const COUNTERS: [(MetricId, Cause, bool); 9] = [
    (MetricId::of("throttle_ppt_count"), Cause::Power, true),
    (MetricId::of("throttle_socket_thermal_count"), Cause::Heat, true),
    (MetricId::of("throttle_vr_thermal_count"), Cause::Heat, true),
    (MetricId::of("throttle_hbm_thermal_count"), Cause::Heat, true),
    (MetricId::of("throttled_power_ns"), Cause::Power, false),
    (MetricId::of("throttled_sw_power_cap_ns"), Cause::Power, false),
    (MetricId::of("throttled_thermal_ns"), Cause::Heat, false),
    (MetricId::of("throttled_sw_thermal_ns"), Cause::Heat, false),
    (MetricId::of("throttled_hw_thermal_ns"), Cause::Heat, false),
];

/// What holds the clocks down by the driver's own signs, where they are no bits of a column: any number of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Causes(u8);

impl Causes {
    /// Nothing holds them down.
    pub(crate) const NONE: Self = Self(0);
    /// A limit of power or current.
    pub(crate) const POWER: Self = Self(1);
    /// A limit of temperature.
    pub(crate) const HEAT: Self = Self(2);
    /// A signal from outside.
    pub(crate) const SIGNAL: Self = Self(4);
    /// The driver does not say what.
    pub(crate) const UNSAID: Self = Self(8);

    /// Whether anything does.
    pub(crate) fn any(self) -> bool {
        self != Self::NONE
    }

    /// The causes of both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, denied: Denied) -> Self {
        let cleared = |is_denied, Self(bits): Self| if is_denied { bits } else { 0 };
        let bits = cleared(denied.power, Self::POWER)
            | cleared(denied.heat, Self::HEAT)
            | cleared(denied.power && denied.heat, Self::UNSAID);
        Self(self.0 & !bits)
    }
}

/// Which causes the other readings contradict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Denied {
    pub(super) power: bool,
    pub(super) heat: bool,
}

/// What is known of a GPU, kept from row to row: limits are read rarely.
#[derive(Debug, Clone)]
pub(super) struct KnownReadings {
    pub(super) power_w: Option<f64>,
    pub(super) limit_w: Option<f64>,
    pub(super) enforced_w: Option<f64>,
    pub(super) limit_max_w: Option<f64>,
    pub(super) module_w: Option<f64>,
    pub(super) module_limit_w: Option<f64>,
    pub(super) utilization_pct: Option<f64>,
    pub(super) margin_k: Option<f64>,
    /// Each sensor with its limit: graphics, junction, memory, HBM, three regulators, SoC, CPU, skin.
    pub(super) sensors: [(Option<f64>, f64); 10],
    pub(super) totals: [Option<f64>; MEMORY_PARTS.len()],
    pub(super) before: Option<Denied>,
    pub(super) counters: [Counter; COUNTERS.len()],
}

/// A counter of throttling: value and steps where it began to grow without a reason, and new readings since then.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counter {
    base: Option<(i64, i64)>,
    last: i64,
    readings: u8,
    is_disbelieved: bool,
}

impl Default for KnownReadings {
    fn default() -> Self {
        let mut sensors = [(None, LIMIT_C); 10];
        if let Some((_, limit)) = sensors.last_mut() {
            *limit = SKIN_LIMIT_C;
        }
        Self {
            power_w: None,
            limit_w: None,
            enforced_w: None,
            limit_max_w: None,
            module_w: None,
            module_limit_w: None,
            utilization_pct: None,
            margin_k: None,
            sensors,
            totals: [None; MEMORY_PARTS.len()],
            before: None,
            counters: [Counter::default(); COUNTERS.len()],
        }
    }
}

impl KnownReadings {
    /// Takes the values of a row. What every row has is of this one.
    pub(super) fn note(&mut self, values: &[(MetricId, Value)]) {
        (self.power_w, self.utilization_pct, self.module_w) = (None, None, None);
        let [graphics, junction, memory, hbm, vr_gfx, vr_soc, vr_mem, soc, cpu, skin] = &mut self.sensors;
        (graphics.0, junction.0) = (None, None);
        for &(metric, value) in values {
            let number = value.as_f64();
            let is_limit = number > 0.0;
            match metric {
                POWER | POWER_AVERAGE => self.power_w = Some(self.power_w.map_or(number, |w| w.max(number))),
                POWER_LIMIT => self.limit_w = is_limit.then_some(number),
                POWER_LIMIT_ENFORCED => self.enforced_w = is_limit.then_some(number),
                // 0 means no limit.
                POWER_LIMIT_MAX => self.limit_max_w = is_limit.then_some(number),
                MODULE_POWER => self.module_w = Some(number),
                MODULE_POWER_LIMIT => self.module_limit_w = is_limit.then_some(number),
                UTILIZATION => self.utilization_pct = Some(number),
                MARGIN => self.margin_k = Some(number),
                TEMPERATURE => graphics.0 = Some(number),
                JUNCTION => junction.0 = Some(number),
                MEMORY => memory.0 = Some(number),
                HBM => hbm.0 = Some(number),
                VR_GFX => vr_gfx.0 = Some(number),
                VR_SOC => vr_soc.0 = Some(number),
                VR_MEM => vr_mem.0 = Some(number),
                SOC => soc.0 = Some(number),
                CPU => cpu.0 = Some(number),
                SKIN => skin.0 = Some(number),
                SLOWDOWN | OPERATING if is_limit => graphics.1 = graphics.1.min(number),
                JUNCTION_SLOWDOWN if is_limit => junction.1 = number,
                MEMORY_SLOWDOWN | MEMORY_OPERATING if is_limit => {
                    (memory.1, hbm.1) = (memory.1.min(number), hbm.1.min(number));
                }
                _ => {
                    let at = MEMORY_PARTS.iter().position(|(.., total)| *total == metric);
                    if let Some(total) = at.and_then(|at| self.totals.get_mut(at)) {
                        *total = Some(number);
                    }
                }
            }
        }
    }

    /// Which causes the present readings contradict.
    pub(super) fn denied(&self) -> Denied {
        let draws_little = match (self.power_w, self.enforced_w.or(self.limit_w)) {
            (Some(power), Some(limit)) => {
                let is_module_loaded = self
                    .module_w
                    .zip(self.module_limit_w)
                    .is_some_and(|(power, limit)| power >= limit * LITTLE);
                power < limit * LITTLE && !is_module_loaded
            }
            _ => self.utilization_pct.is_some_and(|percent| percent < IDLE_PCT),
        };
        let mut known = self.sensors.iter().filter_map(|(degrees, limit)| Some(((*degrees)?, *limit)));
        let has_any = self.sensors.iter().any(|(degrees, _)| degrees.is_some());
        let is_cool = has_any
            && known.all(|(degrees, limit)| degrees < limit - COOL_K)
            && self.margin_k.is_none_or(|margin| margin > COOL_K);
        let [_, (junction, _), ..] = self.sensors;
        Denied { power: draws_little, heat: is_cool && (junction.is_some() || draws_little) }
    }
}

impl Counter {
    /// Whether a reading is to be left out. It is disbelieved for good once it has grown for half of the time or more without a
    /// reason, or has counted every single step so far: a value that comes back would bring the false steps with it.
    pub(super) fn judge(&mut self, value: i64, steps: i64, counts_steps: bool, is_denied: bool) -> bool {
        if self.is_disbelieved {
            return true;
        }
        let Some((first, begun)) = self.base.filter(|_| is_denied) else {
            self.is_disbelieved = is_denied && counts_steps && value > 0 && value == steps;
            (self.base, self.last, self.readings) = (is_denied.then_some((value, steps)), steps, 0);
            return self.is_disbelieved;
        };
        if value < first || steps < begun {
            // It has wrapped or begun anew.
            (self.base, self.last, self.readings) = (Some((value, steps)), steps, 0);
            return false;
        }
        if steps > self.last {
            (self.last, self.readings) = (steps, self.readings.saturating_add(1));
        }
        self.is_disbelieved =
            self.readings >= READINGS_MIN && (value - first).saturating_mul(2) >= steps - begun;
        self.is_disbelieved
    }
}
