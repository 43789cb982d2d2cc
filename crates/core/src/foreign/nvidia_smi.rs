//! The fields of `nvidia-smi --query-gpu` and the columns they fill: asked of the tool, and read in its logs.

use super::tool::{Spelling, ToolField};

const fn number(names: &'static [&'static str], column: &str) -> ToolField {
    ToolField::new(names, column, Spelling::Number)
}

const fn field(names: &'static [&'static str], column: &str, spelling: Spelling) -> ToolField {
    ToolField::new(names, column, spelling)
}

const COMPUTE_MODES: &[&str] = &["Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"];
const RECOVERY_ACTIONS: &[&str] = &["None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"];

/// The first is the state of a GPU without a fabric, which the tool prints as `N/A`.
const FABRIC_STATES: &[&str] = &["Not Supported", "Not Started", "In Progress", "Completed"];
const FABRIC_HEALTHS: &[&str] = &["Not Supported", "Healthy", "Unhealthy", "Limited Capacity"];

/// All fields that fill columns; of two for one column the first that has a value counts.
pub const FIELDS: &[ToolField] = &[
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
    field(
        &["clocks_event_reasons.active", "clocks_throttle_reasons.active"],
        "throttle_reasons",
        Spelling::Bits,
    ),
    number(&["memory.total"], "memory_total_mb"),
    number(&["memory.free"], "memory_free_mb"),
    number(&["memory.reserved"], "memory_reserved_mb"),
    field(&["temperature.memory"], "temperature_memory_c", Spelling::Sensor),
    number(&["temperature.gpu.tlimit"], "temperature_margin_c"),
    number(&["utilization.encoder"], "encoder_utilization_pct"),
    number(&["utilization.decoder"], "decoder_utilization_pct"),
    number(&["utilization.jpeg"], "jpeg_utilization_pct"),
    number(&["utilization.ofa"], "ofa_utilization_pct"),
    number(&["fan.speed"], "fan_speed_pct"),
    field(&["pstate"], "performance_state", Spelling::State),
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
    field(
        &["clocks_event_reasons_counters.sw_power_cap"],
        "throttled_sw_power_cap_ns",
        Spelling::Microseconds,
    ),
    field(&["clocks_event_reasons_counters.sync_boost"], "throttled_sync_boost_ns", Spelling::Microseconds),
    field(
        &["clocks_event_reasons_counters.sw_thermal_slowdown"],
        "throttled_sw_thermal_ns",
        Spelling::Microseconds,
    ),
    field(
        &["clocks_event_reasons_counters.hw_thermal_slowdown"],
        "throttled_hw_thermal_ns",
        Spelling::Microseconds,
    ),
    field(
        &["clocks_event_reasons_counters.hw_power_brake_slowdown"],
        "throttled_hw_power_brake_ns",
        Spelling::Microseconds,
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
    field(&["retired_pages.pending"], "retired_pages_pending", Spelling::Switch),
    number(&["remapped_rows.correctable", "remapped_rows.sbe"], "remapped_rows_correctable"),
    number(&["remapped_rows.uncorrectable", "remapped_rows.dbe"], "remapped_rows_uncorrectable"),
    field(&["remapped_rows.pending"], "remapped_rows_pending", Spelling::Switch),
    field(&["remapped_rows.failure"], "remapped_rows_failed", Spelling::Switch),
    number(&["remapped_rows.histogram.max"], "remap_banks_max"),
    number(&["remapped_rows.histogram.high"], "remap_banks_high"),
    number(&["remapped_rows.histogram.partial"], "remap_banks_partial"),
    number(&["remapped_rows.histogram.low"], "remap_banks_low"),
    number(&["remapped_rows.histogram.none"], "remap_banks_none"),
    field(
        &["ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"],
        "sram_threshold_exceeded",
        Spelling::Switch,
    ),
    field(&["ecc.mode.current"], "ecc_mode", Spelling::Switch),
    field(&["ecc.mode.pending"], "ecc_mode_pending", Spelling::Switch),
    field(&["mig.mode.current"], "mig_mode", Spelling::Switch),
    field(&["mig.mode.pending"], "mig_mode_pending", Spelling::Switch),
    field(&["c2c.mode"], "c2c_mode", Spelling::Switch),
    field(&["fabric.state"], "fabric_state", Spelling::Word(FABRIC_STATES)),
    field(&["fabric.health.summary"], "fabric_health", Spelling::Word(FABRIC_HEALTHS)),
    number(&["encoder.stats.sessionCount"], "encoder_sessions"),
    number(&["encoder.stats.averageFps"], "encoder_fps"),
    field(&["encoder.stats.averageLatency"], "encoder_latency_ns", Spelling::Microseconds),
    field(&["persistence_mode"], "persistence_mode", Spelling::Switch),
    field(&["compute_mode"], "compute_mode", Spelling::Word(COMPUTE_MODES)),
    field(&["gpu_recovery_action"], "recovery_action", Spelling::Word(RECOVERY_ACTIONS)),
];
