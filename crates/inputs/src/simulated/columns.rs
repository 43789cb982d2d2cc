//! From the state of a GPU to the columns of a row: models that report a column, and its rate.
//!
//! A column that a model does not report is absent, never 0. As with real hardware the fast columns are in every row,
//! the slow ones once a second at most, and the rare ones (limits, error counts) every 30 seconds.

use gpuvitals_core::BatchBuilder;
use gpuvitals_core::batch::{RowId, Value};
use gpuvitals_core::catalogue::MetricId;

use super::gpu::Gpu;
use super::models::Model;

/// Models that report a column.
#[derive(Debug, Clone, Copy)]
enum Parts {
    All,
    /// Those with NVLink or xGMI.
    Linked,
    Nvidia,
    /// NVIDIA's for data centres.
    Sxm,
    /// NVIDIA's workstation card.
    Card,
    Amd,
}
use Parts::{All, Amd, Card, Linked, Nvidia, Sxm};

impl Parts {
    fn include(self, model: &Model) -> bool {
        let (nvidia, linked) = (model.is_nvidia(), model.links > 0.0);
        match self {
            All => true,
            Linked => linked,
            Nvidia => nvidia,
            Sxm => nvidia && linked,
            Card => nvidia && !linked,
            Amd => !nvidia,
        }
    }
}

/// How often a column is read, from the most frequent to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    Fast,
    Slow,
    Rare,
}
use Tier::{Fast, Rare, Slow};

struct SimulatedColumn {
    metric: MetricId,
    parts: Parts,
    tier: Tier,
    /// In the column's unit.
    value: fn(&Gpu) -> f64,
}

const fn column(tier: Tier, parts: Parts, name: &str, value: fn(&Gpu) -> f64) -> SimulatedColumn {
    SimulatedColumn { metric: MetricId::of(name), parts, tier, value }
}

static COLUMNS: &[SimulatedColumn] = &[
    column(Fast, All, "gpu_clock_mhz", |g| g.clock),
    column(Fast, All, "mem_clock_mhz", memory_clock),
    column(Fast, All, "utilization_pct", utilization),
    column(Fast, All, "memory_utilization_pct", |g| percent(g.load.bandwidth * (1.0 + 0.05 * g.noise))),
    column(Fast, All, "memory_used_mb", Gpu::memory_used),
    column(Fast, All, "memory_used_pct", |g| hundredths(100.0 * g.memory_used() / g.model.memory_total)),
    column(Fast, All, "temperature_c", |g| g.temperature.round()),
    column(Fast, All, "power_w", |g| g.power),
    column(Fast, All, "throttled", |g| f64::from(u8::from(g.is_throttled()))),
    column(Fast, Nvidia, "sm_clock_mhz", |g| g.clock),
    column(Fast, Nvidia, "throttle_reasons", |g| f64::from(g.reasons)),
    column(Fast, Sxm, "graphics_engine_active_ratio", |g| ratio(g.load.busy)),
    column(Fast, Sxm, "sm_active_ratio", |g| noisy(g, g.load.busy * (0.25 + 0.7 * g.load.work))),
    column(Fast, Sxm, "sm_occupancy_ratio", |g| noisy(g, g.load.busy * (0.08 + 0.3 * g.load.work))),
    column(Fast, Sxm, "tensor_active_ratio", |g| noisy(g, g.tensor())),
    column(Fast, Sxm, "dram_active_ratio", |g| noisy(g, 0.9 * g.load.bandwidth)),
    column(Fast, Sxm, "fp64_active_ratio", |_| 0.0),
    column(Fast, Sxm, "fp32_active_ratio", |g| noisy(g, 0.12 * g.load.work)),
    column(Fast, Sxm, "fp16_active_ratio", |g| noisy(g, 0.05 * g.load.work)),
    column(Fast, Amd, "temperature_junction_c", |g| g.temperature.round()),
    column(Fast, Amd, "throttle_sample_count", |g| milliseconds(g.counters.lifetime_ns)),
    column(Fast, Amd, "throttle_ppt_count", |g| milliseconds(g.counters.power_capped_ns)),
    column(Fast, Amd, "throttle_socket_thermal_count", |g| milliseconds(g.counters.thermal_ns)),
    column(Fast, Amd, "throttle_hbm_thermal_count", |_| 0.0),
    column(Slow, All, "energy_mj", |g| (1000.0 * g.counters.energy_j).floor()),
    column(Slow, All, "power_limit_w", |g| g.model.power_limit),
    column(Slow, All, "memory_total_mb", |g| g.model.memory_total),
    column(Slow, All, "memory_free_mb", |g| g.model.memory_total - g.model.memory_reserved - g.memory_used()),
    column(Slow, All, "process_count", |g| g.job.map_or(0.0, |job| job.processes())),
    column(Slow, All, "pcie_gen", |g| if is_asleep(g) { 1.0 } else { g.model.pcie_generation }),
    column(Slow, All, "pcie_width", |_| 16.0),
    column(Slow, All, "pcie_replays", |g| g.counters.pcie_replays),
    column(Slow, Linked, "temperature_memory_c", |g| g.memory_temperature.round()),
    column(Slow, Linked, "interconnect_tx_bytes", |g| g.counters.link_bytes),
    column(Slow, Linked, "interconnect_rx_bytes", |g| g.counters.link_bytes),
    column(Slow, Linked, "interconnect_links_up", |g| g.model.links),
    column(Slow, Card, "fan_speed_pct", |g| (1.5 * g.temperature - 37.5).clamp(30.0, 100.0).round()),
    column(Slow, Nvidia, "memory_reserved_mb", |g| g.model.memory_reserved),
    column(Slow, Nvidia, "power_limit_enforced_w", |g| g.model.power_limit),
    column(Slow, Nvidia, "encoder_utilization_pct", |_| 0.0),
    column(Slow, Nvidia, "decoder_utilization_pct", |_| 0.0),
    column(
        Slow,
        Nvidia,
        "performance_state",
        |g| if is_asleep(g) && g.model.links < 1.0 { 8.0 } else { 0.0 },
    ),
    column(Slow, Nvidia, "temperature_margin_c", |g| g.model.slowdown + 3.0 - g.temperature.round()),
    column(Slow, Nvidia, "throttled_power_ns", |g| g.counters.power_capped_ns),
    column(Slow, Nvidia, "throttled_thermal_ns", |g| g.counters.thermal_ns),
    column(Slow, Nvidia, "throttled_sw_power_cap_ns", |g| g.counters.power_capped_ns),
    column(Slow, Nvidia, "throttled_sw_thermal_ns", |g| g.counters.thermal_ns),
    column(Slow, Nvidia, "throttled_hw_thermal_ns", |g| g.counters.thermal_hardware_ns),
    column(Slow, Nvidia, "xid_last", |g| if g.worn_rows() > 0.0 { XID_ROW_REMAPPED } else { 0.0 }),
    column(Slow, Nvidia, "xid_count", Gpu::worn_rows),
    column(Slow, Sxm, "pcie_tx_bytes_per_s", |g| (0.6 * pcie_rate(g)).floor()),
    column(Slow, Sxm, "pcie_rx_bytes_per_s", |g| pcie_rate(g).floor()),
    column(Slow, Sxm, "interconnect_tx_bytes_per_s", |g| link_rate(g).floor()),
    column(Slow, Sxm, "interconnect_rx_bytes_per_s", |g| link_rate(g).floor()),
    column(Slow, Amd, "media_utilization_pct", |_| 0.0),
    column(Slow, Amd, "performance_level", |_| 0.0),
    column(Rare, All, "power_limit_default_w", |g| g.model.power_limit),
    column(Rare, All, "gpu_clock_max_mhz", |g| g.model.clock_max),
    column(Rare, All, "mem_clock_max_mhz", |g| g.model.memory_clock),
    column(Rare, All, "pcie_gen_max", |g| g.model.pcie_generation),
    column(Rare, All, "pcie_width_max", |_| 16.0),
    column(Rare, All, "numa_node", Gpu::numa_node),
    column(Rare, All, "temperature_slowdown_c", |g| g.model.slowdown + 3.0),
    column(Rare, All, "temperature_shutdown_c", |g| g.model.slowdown + 6.0),
    column(Rare, Nvidia, "gpu_clock_application_mhz", Gpu::application_clock),
    column(Rare, Nvidia, "ecc_mode", |_| 1.0),
    column(Rare, Nvidia, "persistence_mode", |_| 1.0),
    column(Rare, Nvidia, "mig_mode", |_| 0.0),
    column(Rare, Nvidia, "ecc_corrected_volatile", |g| g.counters.corrected),
    column(Rare, Nvidia, "ecc_uncorrected_volatile", |_| 0.0),
    column(Rare, Nvidia, "ecc_corrected_aggregate", |g| g.counters.corrected),
    column(Rare, Nvidia, "ecc_uncorrected_aggregate", |_| 0.0),
    column(Rare, Nvidia, "remapped_rows_correctable", Gpu::worn_rows),
    column(Rare, Nvidia, "remapped_rows_uncorrectable", |_| 0.0),
    column(Rare, Nvidia, "remapped_rows_pending", |g| g.worn_rows().min(1.0)),
    column(Rare, Nvidia, "remapped_rows_failed", |_| 0.0),
    column(Rare, Sxm, "interconnect_replay_errors", |_| 0.0),
    column(Rare, Amd, "ras_corrected", |g| g.counters.corrected),
    column(Rare, Amd, "ras_uncorrected", |_| 0.0),
    column(Rare, Amd, "bad_pages_retired", |_| 0.0),
];

/// XID "row remapping event".
const XID_ROW_REMAPPED: f64 = 63.0;

/// Columns that simulated GPUs may have.
pub(super) fn metrics() -> impl Iterator<Item = MetricId> {
    COLUMNS.iter().map(|column| column.metric)
}

/// Writes a GPU into a row: the columns up to the tier that is due.
pub(super) fn write(gpu: &Gpu, due: Tier, builder: &mut BatchBuilder, row: RowId) {
    for column in COLUMNS.iter().filter(|column| column.tier <= due && column.parts.include(gpu.model)) {
        let value = Value::Float((column.value)(gpu));
        let set = builder.set(row, column.metric, value);
        debug_assert!(set.is_ok(), "{set:?}");
    }
}

fn is_asleep(gpu: &Gpu) -> bool {
    gpu.model.is_nvidia() && gpu.job.is_none()
}

fn memory_clock(gpu: &Gpu) -> f64 {
    if gpu.load.busy > 0.01 { gpu.model.memory_clock } else { gpu.model.memory_clock_idle }
}

fn utilization(gpu: &Gpu) -> f64 {
    let busy = gpu.load.busy;
    percent(if busy > 0.0 && busy < 1.0 { busy + 0.01 * gpu.noise } else { busy })
}

fn pcie_rate(gpu: &Gpu) -> f64 {
    (gpu.load.pcie * gpu.model.pcie_rate + 1e5) * (1.0 + 0.06 * gpu.noise)
}

fn link_rate(gpu: &Gpu) -> f64 {
    gpu.load.link * gpu.model.link_rate * 0.9
}

/// Per cent of a share, whole as in drivers.
fn percent(share: f64) -> f64 {
    (100.0 * share).round().clamp(0.0, 100.0)
}

fn hundredths(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// A share with the three digits of a profiling counter.
fn ratio(share: f64) -> f64 {
    ((1000.0 * share).round() / 1000.0).clamp(0.0, 1.0)
}

fn noisy(gpu: &Gpu, share: f64) -> f64 {
    ratio(share * (1.0 + 0.02 * gpu.noise))
}

/// A throttle counter of AMD: steps of a millisecond in 32 bits.
fn milliseconds(ns: f64) -> f64 {
    (ns / 1e6).floor() % 4_294_967_296.0
}
