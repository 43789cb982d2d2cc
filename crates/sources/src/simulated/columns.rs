//! From the state of a GPU to the columns of a row: what each vendor and model tells, and how often.
//!
//! A column that a part does not have is absent, never 0. As with real hardware the fast columns stand in every row,
//! the slow ones once a second at most, and the rare ones (limits, error counts) every 30 seconds.

use gpuvitals_core::BatchBuilder;
use gpuvitals_core::batch::{RowId, Value};
use gpuvitals_core::catalogue::{self, MetricId};

use super::gpu::{Gpu, reason, whole};
use super::hardware::Vendor;

macro_rules! columns {
    ($($column:ident = $name:literal,)*) => {
        /// The columns a simulated GPU can have.
        #[derive(Debug, Clone, Copy)]
        enum Column { $($column),* }

        /// Their names in the catalogue, in the order of [`Column`].
        pub(super) const NAMES: &[&str] = &[$($name),*];
    };
}

columns! {
    Clock = "gpu_clock_mhz",
    MemoryClock = "mem_clock_mhz",
    SmClock = "sm_clock_mhz",
    VideoClock = "video_clock_mhz",
    ClockMax = "gpu_clock_max_mhz",
    MemoryClockMax = "mem_clock_max_mhz",
    ClockApplication = "gpu_clock_application_mhz",
    PerformanceState = "performance_state",
    PerformanceLevel = "performance_level",
    Temperature = "temperature_c",
    TemperatureEdge = "temperature_edge_c",
    TemperatureJunction = "temperature_junction_c",
    TemperatureMemory = "temperature_memory_c",
    TemperatureMargin = "temperature_margin_c",
    TemperatureSlowdown = "temperature_slowdown_c",
    TemperatureShutdown = "temperature_shutdown_c",
    Power = "power_w",
    PowerAverage = "power_average_w",
    PowerLimit = "power_limit_w",
    PowerLimitEnforced = "power_limit_enforced_w",
    PowerLimitDefault = "power_limit_default_w",
    Energy = "energy_j",
    Utilization = "utilization_pct",
    MemoryUtilization = "memory_utilization_pct",
    EncoderUtilization = "encoder_utilization_pct",
    DecoderUtilization = "decoder_utilization_pct",
    MediaUtilization = "media_utilization_pct",
    Processes = "process_count",
    MemoryTotal = "memory_total_mb",
    MemoryUsed = "memory_used_mb",
    MemoryFree = "memory_free_mb",
    MemoryReserved = "memory_reserved_mb",
    MemoryUsedShare = "memory_used_pct",
    MemoryBandwidthMax = "memory_bandwidth_max_bytes_per_s",
    GraphicsActive = "graphics_engine_active_ratio",
    SmActive = "sm_active_ratio",
    SmOccupancy = "sm_occupancy_ratio",
    TensorActive = "tensor_active_ratio",
    DramActive = "dram_active_ratio",
    Fp64Active = "fp64_active_ratio",
    Fp32Active = "fp32_active_ratio",
    Fp16Active = "fp16_active_ratio",
    Fan = "fan_speed_pct",
    VoltageGfx = "voltage_gfx_mv",
    EccMode = "ecc_mode",
    PersistenceMode = "persistence_mode",
    MigMode = "mig_mode",
    ThrottleReasons = "throttle_reasons",
    ThrottleStatus = "throttle_status",
    Throttled = "throttled",
    ThrottledPower = "throttled_power_ns",
    ThrottledThermal = "throttled_thermal_ns",
    ThrottledSwPowerCap = "throttled_sw_power_cap_ns",
    ThrottledSwThermal = "throttled_sw_thermal_ns",
    ThrottledHwThermal = "throttled_hw_thermal_ns",
    ThrottleSamples = "throttle_sample_count",
    ThrottlePpt = "throttle_ppt_count",
    ThrottleSocketThermal = "throttle_socket_thermal_count",
    ThrottleHbmThermal = "throttle_hbm_thermal_count",
    PcieGen = "pcie_gen",
    PcieWidth = "pcie_width",
    PcieGenMax = "pcie_gen_max",
    PcieWidthMax = "pcie_width_max",
    PcieTx = "pcie_tx_bytes_per_s",
    PcieRx = "pcie_rx_bytes_per_s",
    PcieReplays = "pcie_replays",
    LinkTx = "interconnect_tx_bytes",
    LinkRx = "interconnect_rx_bytes",
    LinkTxRate = "interconnect_tx_bytes_per_s",
    LinkRxRate = "interconnect_rx_bytes_per_s",
    LinksUp = "interconnect_links_up",
    LinkReplays = "interconnect_replay_errors",
    XidLast = "xid_last",
    XidCount = "xid_count",
    EccCorrected = "ecc_corrected_volatile",
    EccUncorrected = "ecc_uncorrected_volatile",
    EccCorrectedLife = "ecc_corrected_aggregate",
    EccUncorrectedLife = "ecc_uncorrected_aggregate",
    RasCorrected = "ras_corrected",
    RasUncorrected = "ras_uncorrected",
    BadPages = "bad_pages_retired",
    RemappedCorrectable = "remapped_rows_correctable",
    RemappedUncorrectable = "remapped_rows_uncorrectable",
    RemappedPending = "remapped_rows_pending",
    RemappedFailed = "remapped_rows_failed",
}

/// Which columns are due beside the fast ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) slow: bool,
    pub(super) rare: bool,
}

/// The catalogue's ids of the columns.
#[derive(Debug)]
pub(super) struct Columns {
    ids: Vec<Option<MetricId>>,
}

impl Columns {
    /// Looks all of them up. A column the catalogue lacks is left out of the rows; a test keeps that from happening.
    pub(super) fn new() -> Self {
        Self { ids: NAMES.iter().map(|name| catalogue::by_column(name)).collect() }
    }

    /// Writes a GPU into a row. Returns how many values the builder refused.
    pub(super) fn write(
        &self,
        gpu: &Gpu,
        first_die: bool,
        due: Due,
        builder: &mut BatchBuilder,
        row: RowId,
    ) -> u64 {
        let mut cells = Cells { columns: self, builder, row, refused: 0 };
        cells.fast(gpu);
        if gpu.model.profiling {
            cells.profiling(gpu);
        }
        if first_die {
            cells.power(gpu, due);
        }
        if due.slow {
            cells.slow(gpu);
            match gpu.model.vendor {
                Vendor::Nvidia => cells.slow_nvidia(gpu),
                Vendor::Amd => cells.slow_amd(gpu),
            }
        }
        if due.rare {
            match gpu.model.vendor {
                Vendor::Nvidia => cells.rare_nvidia(gpu),
                Vendor::Amd => cells.rare_amd(gpu),
            }
        }
        cells.refused
    }
}

struct Cells<'a> {
    columns: &'a Columns,
    builder: &'a mut BatchBuilder,
    row: RowId,
    refused: u64,
}

impl Cells<'_> {
    fn set(&mut self, column: Column, value: Value) {
        if let Some(&Some(id)) = self.columns.ids.get(column as usize)
            && self.builder.set(self.row, id, value).is_err()
        {
            self.refused += 1;
        }
    }

    fn int(&mut self, column: Column, value: i64) {
        self.set(column, Value::Int(value));
    }

    fn float(&mut self, column: Column, value: f64) {
        self.set(column, Value::Float(value));
    }

    /// Per cent of a share, whole as drivers give it.
    fn percent(&mut self, column: Column, share: f64) {
        self.float(column, (100.0 * share + 0.5).floor().clamp(0.0, 100.0));
    }

    /// A share with the three digits of a profiling counter.
    fn ratio(&mut self, column: Column, share: f64) {
        self.float(column, ((1000.0 * share + 0.5).floor() / 1000.0).clamp(0.0, 1.0));
    }

    fn degrees(&mut self, column: Column, value: f64) {
        self.float(column, (value + 0.5).floor());
    }

    fn fast(&mut self, gpu: &Gpu) {
        let m = gpu.model;
        self.int(Column::Clock, whole(gpu.clock));
        let working = gpu.activity.busy > 0.01;
        let memory_clock = if working { m.memory_clock } else { m.memory_clock_idle };
        self.int(Column::MemoryClock, whole(memory_clock));
        let busy = gpu.activity.busy;
        let wobble = if busy > 0.0 && busy < 1.0 { 0.01 * gpu.jitter } else { 0.0 };
        self.percent(Column::Utilization, busy + wobble);
        let memory = gpu.activity.memory;
        self.percent(Column::MemoryUtilization, memory * (1.0 + 0.05 * gpu.jitter));
        self.int(Column::MemoryUsed, gpu.memory_used);
        let total = m.memory_total;
        self.float(Column::MemoryUsedShare, (1e4 * share_of(gpu.memory_used, total) + 0.5).floor() / 100.0);
        let throttled = gpu.reasons & reason::THROTTLED != 0;
        self.int(Column::Throttled, i64::from(throttled));
        match m.vendor {
            Vendor::Nvidia => {
                self.int(Column::SmClock, whole(gpu.clock));
                self.degrees(Column::Temperature, gpu.temperature);
                self.int(Column::ThrottleReasons, gpu.reasons);
            }
            Vendor::Amd => {
                self.degrees(Column::Temperature, if m.edge_sensor { gpu.temperature } else { gpu.junction });
                self.degrees(Column::TemperatureJunction, gpu.junction);
                self.amd_throttling(gpu);
            }
        }
        if let Some((low, high)) = m.millivolts {
            self.int(Column::VoltageGfx, whole(low + (high - low) * gpu.clock / m.clock_boost));
        }
    }

    /// Up to MI200 (those with an edge sensor) a mask, from MI300 on steps of a millisecond under each limit.
    fn amd_throttling(&mut self, gpu: &Gpu) {
        const PPT: i64 = 1;
        const HOTSPOT: i64 = 1 << 36;
        if gpu.model.edge_sensor {
            let power = if gpu.reasons & reason::POWER_CAP != 0 { PPT } else { 0 };
            let heat = if gpu.reasons & reason::THERMAL != 0 { HOTSPOT } else { 0 };
            self.int(Column::ThrottleStatus, power | heat);
        } else {
            let steps = |ns: i64| ns / 1_000_000 % (1 << 32);
            self.int(Column::ThrottleSamples, steps(gpu.counters.lifetime_ns));
            self.int(Column::ThrottlePpt, steps(gpu.counters.power_capped_ns));
            self.int(Column::ThrottleSocketThermal, steps(gpu.counters.thermal_ns));
            self.int(Column::ThrottleHbmThermal, 0);
        }
    }

    fn profiling(&mut self, gpu: &Gpu) {
        let a = gpu.activity;
        let noise = 1.0 + 0.02 * gpu.jitter;
        self.ratio(Column::GraphicsActive, a.busy);
        self.ratio(Column::SmActive, a.busy * (0.25 + 0.7 * a.work) * noise);
        self.ratio(Column::SmOccupancy, a.busy * (0.08 + 0.3 * a.work) * noise);
        self.ratio(Column::TensorActive, a.tensor * noise);
        self.ratio(Column::DramActive, a.memory * 0.9 * noise);
        self.ratio(Column::Fp64Active, 0.0);
        self.ratio(Column::Fp32Active, 0.12 * a.work * noise);
        self.ratio(Column::Fp16Active, 0.05 * a.work * noise);
    }

    /// Power and energy; for a card with several dies that of all, taken to work alike.
    fn power(&mut self, gpu: &Gpu, due: Due) {
        let m = gpu.model;
        let dies = if m.dies > 1 { 2.0 } else { 1.0 };
        self.float(Column::Power, gpu.watts() * dies);
        if m.power_average {
            self.float(Column::PowerAverage, (1000.0 * gpu.power_average + 0.5).floor() / 1000.0);
        }
        if due.slow {
            self.float(Column::Energy, joules(gpu.counters.energy_pj) * dies);
            self.float(Column::PowerLimit, m.power_limit * dies);
            if m.vendor == Vendor::Nvidia {
                self.float(Column::PowerLimitEnforced, m.power_limit);
            }
        }
        if due.rare {
            self.float(Column::PowerLimitDefault, m.power_limit * dies);
        }
    }

    fn slow(&mut self, gpu: &Gpu) {
        let m = gpu.model;
        self.int(Column::MemoryTotal, whole(m.memory_total));
        let reserved = m.memory_reserved.map(whole);
        self.int(Column::MemoryFree, whole(m.memory_total) - gpu.memory_used - reserved.unwrap_or(0));
        if let Some(reserved) = reserved {
            self.int(Column::MemoryReserved, reserved);
        }
        if m.memory_sensor {
            self.degrees(Column::TemperatureMemory, gpu.memory_temperature);
        }
        if m.fan {
            self.percent(Column::Fan, gpu.fan / 100.0);
        }
        self.int(Column::Processes, gpu.processes());
        let asleep = m.vendor == Vendor::Nvidia && gpu.job.is_none();
        self.int(Column::PcieGen, if asleep { 1 } else { m.pcie_generation });
        self.int(Column::PcieWidth, 16);
        self.int(Column::PcieReplays, gpu.counters.pcie_replays);
        if m.links > 0 {
            self.int(Column::LinkTx, gpu.counters.link_tx);
            self.int(Column::LinkRx, gpu.counters.link_rx);
            self.int(Column::LinksUp, m.links);
        }
    }

    fn slow_nvidia(&mut self, gpu: &Gpu) {
        let m = gpu.model;
        let working = gpu.job.is_some();
        self.int(Column::VideoClock, whole(if working { m.video_clock } else { m.video_clock_idle }));
        self.float(Column::EncoderUtilization, 0.0);
        self.float(Column::DecoderUtilization, 0.0);
        self.int(Column::PerformanceState, if working || !m.fan { 0 } else { 8 });
        self.degrees(Column::TemperatureMargin, m.slowdown_hardware - gpu.temperature);
        let c = &gpu.counters;
        self.int(Column::ThrottledPower, c.power_capped_ns);
        self.int(Column::ThrottledThermal, c.thermal_ns);
        self.int(Column::ThrottledSwPowerCap, c.power_capped_ns);
        self.int(Column::ThrottledSwThermal, c.thermal_ns);
        self.int(Column::ThrottledHwThermal, c.thermal_hardware_ns);
        if m.profiling {
            self.float(Column::PcieTx, gpu.pcie_tx.floor());
            self.float(Column::PcieRx, gpu.pcie_rx.floor());
        }
        if m.profiling && m.links > 0 {
            let (tx, rx) = gpu.link_rates();
            self.float(Column::LinkTxRate, tx.floor());
            self.float(Column::LinkRxRate, rx.floor());
        }
        self.int(Column::XidLast, 0);
        self.int(Column::XidCount, 0);
    }

    fn slow_amd(&mut self, gpu: &Gpu) {
        self.float(Column::MediaUtilization, 0.0);
        if gpu.model.edge_sensor {
            self.degrees(Column::TemperatureEdge, gpu.temperature);
        }
        self.int(Column::PerformanceLevel, 0);
    }

    fn rare_nvidia(&mut self, gpu: &Gpu) {
        let m = gpu.model;
        self.rare_common(gpu);
        self.float(Column::TemperatureSlowdown, m.slowdown_hardware);
        self.float(Column::TemperatureShutdown, m.slowdown_hardware + 3.0);
        self.int(Column::ClockApplication, whole(application_clock(gpu)));
        self.int(Column::EccMode, 1);
        self.int(Column::PersistenceMode, 1);
        self.int(Column::MigMode, 0);
        let corrected = gpu.counters.corrected;
        self.int(Column::EccCorrected, corrected);
        self.int(Column::EccUncorrected, 0);
        self.int(Column::EccCorrectedLife, gpu.corrected_before + corrected);
        self.int(Column::EccUncorrectedLife, 0);
        let rows = (gpu.corrected_before + corrected) / 64;
        self.int(Column::RemappedCorrectable, rows.min(500));
        self.int(Column::RemappedUncorrectable, 0);
        self.int(Column::RemappedPending, i64::from(corrected >= 64));
        self.int(Column::RemappedFailed, 0);
        if m.links > 0 {
            self.int(Column::LinkReplays, 0);
        }
    }

    fn rare_amd(&mut self, gpu: &Gpu) {
        let m = gpu.model;
        self.rare_common(gpu);
        self.float(Column::TemperatureSlowdown, m.slowdown);
        self.float(Column::TemperatureShutdown, m.slowdown_hardware);
        self.int(Column::RasCorrected, gpu.counters.corrected);
        self.int(Column::RasUncorrected, 0);
        self.int(Column::BadPages, 0);
        if let Some(bandwidth) = m.memory_bandwidth {
            self.float(Column::MemoryBandwidthMax, bandwidth);
        }
    }

    fn rare_common(&mut self, gpu: &Gpu) {
        self.int(Column::ClockMax, whole(gpu.model.clock_boost));
        self.int(Column::MemoryClockMax, whole(gpu.model.memory_clock));
        self.int(Column::PcieGenMax, gpu.model.pcie_generation);
        self.int(Column::PcieWidthMax, 16);
    }
}

fn application_clock(gpu: &Gpu) -> f64 {
    let m = gpu.model;
    let share =
        if gpu.special == Some(super::Special::Straggler) { super::gpu::STRAGGLER_CLOCK } else { 1.0 };
    (share * m.clock_boost / m.clock_step).floor() * m.clock_step
}

#[expect(clippy::cast_precision_loss, reason = "MiB of one part")]
fn share_of(part: i64, whole: f64) -> f64 {
    part as f64 / whole
}

/// Picojoules as joules, to the millijoule as the counters of the parts go.
#[expect(clippy::cast_precision_loss, reason = "millijoules of years fit 53 bits")]
fn joules(picojoules: u128) -> f64 {
    (picojoules / 1_000_000_000) as f64 / 1000.0
}
