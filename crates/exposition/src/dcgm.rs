//! dcgm-exporter's names beside our own, for dashboards that expect them, in either dialect or both.
//!
//! Values are those of the catalogue's columns, times the factor of the name; labels as dcgm-exporter writes
//! them. A name in both dialects is written once, in `both` with the labels of both, so that sums stay right.
//! The GPUs of other vendors have the names with the same meaning: DCGM's share of time in which the graphics engine
//! or the memory interface is active is what AMD's drivers call activity. Counters are the hardware's, not counted
//! from the program's start.

use gpuvitals_core::MetricId;
use gpuvitals_core::catalogue::{DcgmName, Instrument, Metric, Series, gpu_metrics};
use gpuvitals_core::figures::Kind;

use crate::compat::Compat;
use crate::family::{FamilyPlan, base_help};
use crate::labels::LabelSet;
use crate::reading::Reading;
use crate::scale::Scale;

/// In dcgm-exporter's default list, though not in our standard set.
const DEFAULT: [MetricId; 4] = [
    MetricId::of("memory_free_mb"),
    MetricId::of("memory_reserved_mb"),
    MetricId::of("interconnect_bytes_per_s"),
    MetricId::of("remapped_rows_correctable"),
];

const SM_CLOCK: MetricId = MetricId::of("sm_clock_mhz");
/// The clock of the compute units of a part without streaming multiprocessors.
const GRAPHICS_CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const ENGINE_ACTIVE: MetricId = MetricId::of("graphics_engine_active_ratio");
const LOAD: MetricId = MetricId::of("utilization_pct");
const DRAM_ACTIVE: MetricId = MetricId::of("dram_active_ratio");
const MEMORY_LOAD: MetricId = MetricId::of("memory_utilization_pct");
pub(crate) const LINK_RATE: MetricId = MetricId::of("interconnect_bytes_per_s");
pub(crate) const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_USED_SHARE: MetricId = MetricId::of("memory_used_pct");
/// DCGM's field 155 is the driver's own power call: a mean of a second on the parts that have one, else the
/// instant.
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const POWER: MetricId = MetricId::of("power_w");

/// The families of the requested dialects, in the catalogue's order.
pub(crate) fn families(compat: Compat, set: Series) -> Vec<FamilyPlan> {
    let kept =
        |id: &MetricId, metric: &Metric| metric.series <= set.max(Series::Standard) || DEFAULT.contains(id);
    let dialects: &[bool] = match compat {
        Compat::Off => &[],
        Compat::Dcgm => &[true],
        Compat::DcgmLegacy => &[false],
        Compat::Both => &[false, true],
    };
    let mut families = Vec::new();
    let mut written: Vec<&str> = Vec::new();
    for (id, metric) in gpu_metrics().filter(|(id, metric)| kept(id, metric)) {
        for modern in dialects {
            let published = |modern: bool| metric.dcgm.iter().find(|name| name.modern == modern);
            let Some(name) = published(*modern) else { continue };
            if written.contains(&name.name) {
                continue;
            }
            written.push(name.name);
            let in_other = published(!modern).is_some_and(|other| other.name == name.name);
            let labels = match (compat == Compat::Both && in_other, modern) {
                (true, _) => LabelSet::Both,
                (false, true) => LabelSet::Modern,
                (false, false) => LabelSet::Legacy,
            };
            families.push(family(id, metric, name, labels));
        }
    }
    families
}

fn family(id: MetricId, metric: &Metric, name: &DcgmName, labels: LabelSet) -> FamilyPlan {
    let scale = Scale::of(name.factor);
    let reading = match id {
        SM_CLOCK => Reading::Latest(id, Some(GRAPHICS_CLOCK), scale),
        POWER_AVERAGE => Reading::Latest(id, Some(POWER), scale),
        ENGINE_ACTIVE => active(id, LOAD, name.factor),
        DRAM_ACTIVE => active(id, MEMORY_LOAD, name.factor),
        LINK_RATE => Reading::LinkRate(scale),
        MEMORY_FREE => Reading::MemoryFree(scale),
        MEMORY_USED_SHARE => Reading::MemoryUsedShare(scale),
        _ => Reading::Latest(id, None, scale),
    };
    let counter = metric.instrument == Instrument::Counter;
    let base = base_help(metric);
    let known = FIELDS.iter().find(|(field, ..)| *field == name.name);
    let (kind, help) = known.map_or_else(
        || {
            let help = if name.modern { base.as_str() } else { metric.help };
            (if counter { Kind::Counter } else { Kind::Gauge }, help)
        },
        |(_, kind, help)| (*kind, *help),
    );
    FamilyPlan::new(name.name, kind, "", help.to_owned()).line(&[], labels, reading)
}

/// A share of time that NVIDIA counts and others call a load, in %.
fn active(counter: MetricId, load: MetricId, factor: f64) -> Reading {
    Reading::Active { counter, scale: Scale::of(factor), load, load_scale: Scale::of(factor / 100.0) }
}

/// Kind and help as dcgm-exporter writes them (its `etc/default-counters.csv` and `etc/dcp-metrics-included.csv`,
/// Apache-2.0).
const FIELDS: &[(&str, Kind, &str)] = &[
    ("DCGM_FI_DEV_SM_CLOCK", Kind::Gauge, "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_MEM_CLOCK", Kind::Gauge, "Memory clock frequency (in MHz)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", Kind::Gauge, "Memory temperature (in C)."),
    ("DCGM_FI_DEV_GPU_TEMP", Kind::Gauge, "GPU temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", Kind::Gauge, "Power draw (in W)."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Kind::Counter, "Total energy consumption since boot (in mJ)."),
    (
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        Kind::Gauge,
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in bytes per second.",
    ),
    (
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        Kind::Gauge,
        "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes per second.",
    ),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", Kind::Counter, "Total number of PCIe retries."),
    ("DCGM_FI_DEV_GPU_UTIL", Kind::Gauge, "GPU utilization (in %)."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", Kind::Gauge, "Memory utilization (in %)."),
    ("DCGM_FI_DEV_ENC_UTIL", Kind::Gauge, "Encoder utilization (in %)."),
    ("DCGM_FI_DEV_DEC_UTIL", Kind::Gauge, "Decoder utilization (in %)."),
    ("DCGM_FI_DEV_XID_ERRORS", Kind::Gauge, "Value of the last XID error encountered."),
    ("DCGM_FI_DEV_POWER_VIOLATION", Kind::Counter, "Throttling duration due to power constraints (in ns)."),
    (
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        Kind::Counter,
        "Throttling duration due to thermal constraints (in ns).",
    ),
    (
        "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
        Kind::Counter,
        "Throttling duration due to sync-boost constraints (in ns).",
    ),
    (
        "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
        Kind::Counter,
        "Throttling duration due to board limit constraints (in ns).",
    ),
    ("DCGM_FI_DEV_LOW_UTIL_VIOLATION", Kind::Counter, "Throttling duration due to low utilization (in ns)."),
    (
        "DCGM_FI_DEV_RELIABILITY_VIOLATION",
        Kind::Counter,
        "Throttling duration due to reliability constraints (in ns).",
    ),
    ("DCGM_FI_DEV_FB_FREE", Kind::Gauge, "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", Kind::Gauge, "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_RESERVED", Kind::Gauge, "Framebuffer memory reserved (in MiB)."),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", Kind::Counter, "Total number of single-bit volatile ECC errors."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Kind::Counter, "Total number of double-bit volatile ECC errors."),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", Kind::Counter, "Total number of single-bit persistent ECC errors."),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", Kind::Counter, "Total number of double-bit persistent ECC errors."),
    ("DCGM_FI_DEV_RETIRED_SBE", Kind::Counter, "Total number of retired pages due to single-bit errors."),
    ("DCGM_FI_DEV_RETIRED_DBE", Kind::Counter, "Total number of retired pages due to double-bit errors."),
    ("DCGM_FI_DEV_RETIRED_PENDING", Kind::Counter, "Total number of pages pending retirement."),
    (
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        Kind::Counter,
        "Total number of NVLink flow-control CRC errors.",
    ),
    (
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        Kind::Counter,
        "Total number of NVLink data CRC errors.",
    ),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", Kind::Counter, "Total number of NVLink retries."),
    (
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        Kind::Counter,
        "Total number of NVLink recovery errors.",
    ),
    (
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        Kind::Counter,
        "Total number of NVLink bandwidth counters for all lanes.",
    ),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        Kind::Counter,
        "Number of remapped rows for uncorrectable errors",
    ),
    (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        Kind::Counter,
        "Number of remapped rows for correctable errors",
    ),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", Kind::Gauge, "Whether remapping of rows has failed"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Kind::Gauge, "Ratio of time the graphics engine is active."),
    ("DCGM_FI_PROF_SM_ACTIVE", Kind::Gauge, "The ratio of cycles an SM has at least 1 warp assigned."),
    ("DCGM_FI_PROF_SM_OCCUPANCY", Kind::Gauge, "The ratio of number of warps resident on an SM."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Kind::Gauge, "Ratio of cycles the tensor (HMMA) pipe is active."),
    (
        "DCGM_FI_PROF_DRAM_ACTIVE",
        Kind::Gauge,
        "Ratio of cycles the device memory interface is active sending or receiving data.",
    ),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", Kind::Gauge, "Ratio of cycles the fp64 pipes are active."),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", Kind::Gauge, "Ratio of cycles the fp32 pipes are active."),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", Kind::Gauge, "Ratio of cycles the fp16 pipes are active."),
];
