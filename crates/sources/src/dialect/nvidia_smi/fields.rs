//! The fields of `--query-gpu` and the columns they fill.

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, MetricId};

/// A field and the column it fills.
#[derive(Debug)]
pub(super) struct Field {
    /// Its spellings, the present one first; other drivers know only a later one.
    pub(super) names: &'static [&'static str],
    pub(super) metric: MetricId,
    kind: Kind,
}

/// How a field spells its value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A number in the column's unit, unless header or cell name another.
    Number,
    /// Microseconds, unless header or cell name another unit; the column has nanoseconds.
    Microseconds,
    /// Degrees; 0 means that there is no sensor.
    Sensor,
    /// Bits, `0x0000000000000004`.
    Bits,
    /// `P0` to `P15`.
    State,
    /// `Enabled`, `Yes`, `Active` and their contraries, or a count.
    Switch,
    /// One of these words; the value is its position.
    Word(&'static [&'static str]),
}

const fn field(names: &'static [&'static str], column: &str, kind: Kind) -> Field {
    Field { names, metric: MetricId::of(column), kind }
}

const fn number(names: &'static [&'static str], column: &str) -> Field {
    field(names, column, Kind::Number)
}

const COMPUTE_MODES: &[&str] = &["Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"];
const RECOVERY_ACTIONS: &[&str] = &["None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"];

/// The first is the state of a GPU without a fabric, which the tool prints as `N/A`.
const FABRIC_STATES: &[&str] = &["Not Supported", "Not Started", "In Progress", "Completed"];
const FABRIC_HEALTHS: &[&str] = &["Not Supported", "Healthy", "Unhealthy", "Limited Capacity"];

/// Identity of a GPU: queried each time, to match the answer.
pub(super) const IDENTITY: &[&str] =
    &["index", "uuid", "name", "pci.bus_id", "driver_version", "vbios_version", "compute_cap"];

/// Fields that every driver of the last ten years knows.
pub(super) const EVERYWHERE: &[&str] = &[
    "index",
    "uuid",
    "name",
    "temperature.gpu",
    "utilization.gpu",
    "utilization.memory",
    "memory.total",
    "memory.used",
    "memory.free",
    "power.draw",
    "power.limit",
    "pcie.link.gen.current",
    "pcie.link.width.current",
];

/// All fields that fill columns; of two for one column the first that has a value counts.
pub(super) const FIELDS: &[Field] = &[
    number(&["clocks.current.graphics", "clocks.gr"], "gpu_clock_mhz"),
    number(&["clocks.current.memory", "clocks.mem"], "mem_clock_mhz"),
    number(&["clocks.current.sm", "clocks.sm"], "sm_clock_mhz"),
    number(&["clocks.current.video", "clocks.video"], "video_clock_mhz"),
    number(&["temperature.gpu"], "temperature_c"),
    number(&["power.draw.instant", "gpu.power.draw.instant"], "power_w"),
    number(&["power.draw"], "power_w"),
    number(&["power.draw.average", "gpu.power.draw.average"], "power_average_w"),
    number(&["memory.used"], "memory_used_mb"),
    number(&["utilization.gpu"], "utilization_pct"),
    number(&["utilization.memory"], "memory_utilization_pct"),
    field(&["clocks_event_reasons.active", "clocks_throttle_reasons.active"], "throttle_reasons", Kind::Bits),
    number(&["memory.total"], "memory_total_mb"),
    number(&["memory.free"], "memory_free_mb"),
    number(&["memory.reserved"], "memory_reserved_mb"),
    field(&["temperature.memory"], "temperature_memory_c", Kind::Sensor),
    number(&["temperature.gpu.tlimit"], "temperature_margin_c"),
    number(&["utilization.encoder"], "encoder_utilization_pct"),
    number(&["utilization.decoder"], "decoder_utilization_pct"),
    number(&["utilization.jpeg"], "jpeg_utilization_pct"),
    number(&["utilization.ofa"], "ofa_utilization_pct"),
    number(&["fan.speed"], "fan_speed_pct"),
    field(&["pstate"], "performance_state", Kind::State),
    number(&["power.limit", "gpu.power.requested_limit"], "power_limit_w"),
    number(&["enforced.power.limit", "gpu.power.current_limit"], "power_limit_enforced_w"),
    number(&["power.default_limit", "gpu.power.default_limit"], "power_limit_default_w"),
    number(&["power.min_limit", "gpu.power.min_limit"], "power_limit_min_w"),
    number(&["power.max_limit", "gpu.power.max_limit"], "power_limit_max_w"),
    number(&["module.power.draw.instant"], "module_power_w"),
    number(&["module.enforced.power.limit", "module.power.current_limit"], "module_power_limit_w"),
    number(&["pcie.link.gen.current", "pcie.link.gen.gpucurrent"], "pcie_gen"),
    number(&["pcie.link.width.current"], "pcie_width"),
    number(&["pcie.link.gen.max"], "pcie_gen_max"),
    number(&["pcie.link.width.max"], "pcie_width_max"),
    number(&["clocks.max.graphics", "clocks.max.gr"], "gpu_clock_max_mhz"),
    number(&["clocks.max.sm"], "sm_clock_max_mhz"),
    number(&["clocks.max.memory", "clocks.max.mem"], "mem_clock_max_mhz"),
    number(&["clocks.applications.graphics", "clocks.applications.gr"], "gpu_clock_application_mhz"),
    number(&["clocks.applications.memory", "clocks.applications.mem"], "mem_clock_application_mhz"),
    field(&["clocks_event_reasons_counters.sw_power_cap"], "throttled_sw_power_cap_ns", Kind::Microseconds),
    field(&["clocks_event_reasons_counters.sync_boost"], "throttled_sync_boost_ns", Kind::Microseconds),
    field(
        &["clocks_event_reasons_counters.sw_thermal_slowdown"],
        "throttled_sw_thermal_ns",
        Kind::Microseconds,
    ),
    field(
        &["clocks_event_reasons_counters.hw_thermal_slowdown"],
        "throttled_hw_thermal_ns",
        Kind::Microseconds,
    ),
    field(
        &["clocks_event_reasons_counters.hw_power_brake_slowdown"],
        "throttled_hw_power_brake_ns",
        Kind::Microseconds,
    ),
    number(&["ecc.errors.corrected.volatile.total"], "ecc_corrected_volatile"),
    number(&["ecc.errors.uncorrected.volatile.total"], "ecc_uncorrected_volatile"),
    number(&["ecc.errors.corrected.aggregate.total"], "ecc_corrected_aggregate"),
    number(&["ecc.errors.uncorrected.aggregate.total"], "ecc_uncorrected_aggregate"),
    number(
        &["ecc.errors.corrected.volatile.dram", "ecc.errors.corrected.volatile.device_memory"],
        "ecc_dram_corrected_volatile",
    ),
    number(
        &["ecc.errors.corrected.aggregate.dram", "ecc.errors.corrected.aggregate.device_memory"],
        "ecc_dram_corrected_aggregate",
    ),
    number(
        &["ecc.errors.uncorrected.volatile.dram", "ecc.errors.uncorrected.volatile.device_memory"],
        "ecc_dram_uncorrected_volatile",
    ),
    number(
        &["ecc.errors.uncorrected.aggregate.dram", "ecc.errors.uncorrected.aggregate.device_memory"],
        "ecc_dram_uncorrected_aggregate",
    ),
    number(&["ecc.errors.corrected.volatile.sram"], "ecc_sram_corrected_volatile"),
    number(&["ecc.errors.corrected.aggregate.sram"], "ecc_sram_corrected_aggregate"),
    number(&["ecc.errors.uncorrected.volatile.sram"], "ecc_sram_uncorrected_volatile"),
    number(&["ecc.errors.uncorrected.aggregate.sram"], "ecc_sram_uncorrected_aggregate"),
    number(&["ecc.errors.uncorrected.volatile.sram.parity"], "ecc_sram_parity_volatile"),
    number(&["ecc.errors.uncorrected.volatile.sram.secded"], "ecc_sram_secded_volatile"),
    number(&["ecc.errors.uncorrected.aggregate.sram.parity"], "ecc_sram_parity_aggregate"),
    number(&["ecc.errors.uncorrected.aggregate.sram.secded"], "ecc_sram_secded_aggregate"),
    number(&["ecc.errors.uncorrected.aggregate.sram.l2"], "ecc_sram_source_l2"),
    number(&["ecc.errors.uncorrected.aggregate.sram.sm"], "ecc_sram_source_sm"),
    number(&["ecc.errors.uncorrected.aggregate.sram.mcu"], "ecc_sram_source_mcu"),
    number(&["ecc.errors.uncorrected.aggregate.sram.pcie"], "ecc_sram_source_pcie"),
    number(&["ecc.errors.uncorrected.aggregate.sram.other"], "ecc_sram_source_other"),
    number(&["retired_pages.single_bit_ecc.count", "retired_pages.sbe"], "retired_pages_sbe"),
    number(&["retired_pages.double_bit.count", "retired_pages.dbe"], "retired_pages_dbe"),
    field(&["retired_pages.pending"], "retired_pages_pending", Kind::Switch),
    number(&["remapped_rows.correctable", "remapped_rows.sbe"], "remapped_rows_correctable"),
    number(&["remapped_rows.uncorrectable", "remapped_rows.dbe"], "remapped_rows_uncorrectable"),
    field(&["remapped_rows.pending"], "remapped_rows_pending", Kind::Switch),
    field(&["remapped_rows.failure"], "remapped_rows_failed", Kind::Switch),
    number(&["remapped_rows.histogram.max"], "remap_banks_max"),
    number(&["remapped_rows.histogram.high"], "remap_banks_high"),
    number(&["remapped_rows.histogram.partial"], "remap_banks_partial"),
    number(&["remapped_rows.histogram.low"], "remap_banks_low"),
    number(&["remapped_rows.histogram.none"], "remap_banks_none"),
    field(
        &["ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"],
        "sram_threshold_exceeded",
        Kind::Switch,
    ),
    field(&["ecc.mode.current"], "ecc_mode", Kind::Switch),
    field(&["ecc.mode.pending"], "ecc_mode_pending", Kind::Switch),
    field(&["mig.mode.current"], "mig_mode", Kind::Switch),
    field(&["mig.mode.pending"], "mig_mode_pending", Kind::Switch),
    field(&["c2c.mode"], "c2c_mode", Kind::Switch),
    field(&["fabric.state"], "fabric_state", Kind::Word(FABRIC_STATES)),
    field(&["fabric.health.summary"], "fabric_health", Kind::Word(FABRIC_HEALTHS)),
    number(&["encoder.stats.sessionCount"], "encoder_sessions"),
    number(&["encoder.stats.averageFps"], "encoder_fps"),
    field(&["encoder.stats.averageLatency"], "encoder_latency_ns", Kind::Microseconds),
    field(&["persistence_mode"], "persistence_mode", Kind::Switch),
    field(&["compute_mode"], "compute_mode", Kind::Word(COMPUTE_MODES)),
    field(&["gpu_recovery_action"], "recovery_action", Kind::Word(RECOVERY_ACTIONS)),
];

impl Field {
    /// The field of a name.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.names.contains(&name))
    }

    /// The value of a cell, in the column's unit. `unit` is the one in the header.
    pub(super) fn value(&self, cell: &str, unit: Option<&str>) -> Result<Value, AbsenceReason> {
        if let Some(reason) = reason_of(cell) {
            return Err(reason);
        }
        let value = match self.kind {
            Kind::Number => number_of(cell, unit),
            Kind::Microseconds => number_of(cell, unit.or(Some("us"))),
            Kind::Sensor => match number_of(cell, unit) {
                Some(Value::Int(0)) => return Err(AbsenceReason::NotSupported),
                value => value,
            },
            Kind::Bits => {
                let digits = cell.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                digits.and_then(|bits| i64::try_from(bits).ok()).map(Value::Int)
            }
            Kind::State => cell.strip_prefix('P').and_then(|state| state.parse().ok()).map(Value::Int),
            Kind::Switch => switch_of(cell).map(Value::Int),
            Kind::Word(words) => {
                let place = words.iter().position(|word| word.eq_ignore_ascii_case(cell));
                place.and_then(|place| i64::try_from(place).ok()).map(Value::Int)
            }
        };
        value.ok_or(AbsenceReason::Invalid)
    }
}

/// The reason for a missing value, if the cell has one. Nothing in brackets is a value.
pub(super) fn reason_of(cell: &str) -> Option<AbsenceReason> {
    let bare = cell.strip_prefix('[').map(|rest| rest.strip_suffix(']').unwrap_or(rest));
    let text = bare.unwrap_or(cell).to_ascii_lowercase();
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.contains(word));
    Some(match text.as_str() {
        "" | "-" | "n/a" => AbsenceReason::NotSupported,
        "err!" => AbsenceReason::Invalid,
        _ if is_one_of(&["not supported", "deprecated", "not found", "not available"]) => {
            AbsenceReason::NotSupported
        }
        _ if is_one_of(&["permission"]) => AbsenceReason::Denied,
        _ if is_one_of(&["is lost", "requires reset", "reset required"]) => AbsenceReason::Gone,
        _ if is_one_of(&["timeout", "timed out"]) => AbsenceReason::TimedOut,
        _ if bare.is_some() || is_one_of(&["unknown error"]) => AbsenceReason::Invalid,
        _ => return None,
    })
}

/// `111.50`, `111.50 W`: a number whose unit is its own, the header's, or that of the column.
fn number_of(cell: &str, header: Option<&str>) -> Option<Value> {
    let (number, own) = match cell.split_once(' ') {
        Some((number, unit)) => (number, Some(unit.trim())),
        None => (cell.strip_suffix('%').unwrap_or(cell), None),
    };
    let (times, over) = factor_of(own.or(header).unwrap_or_default())?;
    if let (Ok(whole), 1) = (number.parse::<i64>(), over) {
        return whole.checked_mul(times).map(Value::Int);
    }
    let parts: f64 = number.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "powers of ten and of two")]
    let value = parts * times as f64 / over as f64;
    value.is_finite().then_some(Value::Float(value))
}

/// A unit as a fraction of its column's unit: times, over.
fn factor_of(unit: &str) -> Option<(i64, i64)> {
    Some(match unit {
        "" | "%" | "W" | "MiB" | "MB" | "MHz" | "C" | "ns" => (1, 1),
        "mW" => (1, 1000),
        "GiB" | "GB" => (1024, 1),
        "KiB" | "kB" => (1, 1024),
        "GHz" | "us" => (1000, 1),
        "ms" => (1_000_000, 1),
        "s" | "seconds" => (1_000_000_000, 1),
        _ => return None,
    })
}

fn switch_of(cell: &str) -> Option<i64> {
    match cell.to_ascii_lowercase().as_str() {
        "enabled" | "yes" | "active" | "on" | "true" => Some(1),
        "disabled" | "no" | "not active" | "off" | "false" => Some(0),
        count => count.parse().ok(),
    }
}
