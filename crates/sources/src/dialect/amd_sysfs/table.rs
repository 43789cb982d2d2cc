//! The fields of `gpu_metrics` as our metrics, by version, with their units.

use std::ops::Range;

use gpuvitals_core::catalogue::{Scope, Tier};
use gpuvitals_core::{AbsenceReason, MetricId};

use super::card::Card;
use super::sensor::{GPU_CLOCK, Scale, in_column_unit, is_dead_rail, put};
use crate::dialect::amd_gpu_metrics::{Field, GpuMetrics, Version, XCP_MAX};
use crate::probe::{Causes, Due, Instance, Row};

pub(super) const POWER: MetricId = MetricId::of("power_w");
pub(super) const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const TEMPERATURE_JUNCTION: MetricId = MetricId::of("temperature_junction_c");
/// A 0 of these is a sensor that the firmware does not read (Radeon VII and MI50 report 0 W at full load: `MangoHud`, pull
/// requests 2048 and 2089). It is refused, and the file of the same quantity is read instead, if there is one.
const NEVER_ZERO: [MetricId; 4] = [POWER, POWER_AVERAGE, TEMPERATURE, TEMPERATURE_JUNCTION];
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const ENERGY: MetricId = MetricId::of("energy_mj");
const THROTTLED: MetricId = MetricId::of("throttled");
const STATUS: MetricId = MetricId::of("throttle_status");
const LOCKED: MetricId = MetricId::of("gpu_clock_locked");
const JPEG: MetricId = MetricId::of("jpeg_utilization_pct");
const MEDIA: MetricId = MetricId::of("media_utilization_pct");
const SECOND_ENGINE: [MetricId; 2] =
    [MetricId::of("video1_clock_mhz"), MetricId::of("video1_decode_clock_mhz")];

/// The element of a field that becomes the metric. Elements that the driver did not fill do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pick {
    /// The largest, of one element that one.
    Largest,
    /// The largest above 0: of a sensor or link whose 0 means that it is missing.
    Positive,
    /// The sum of all elements.
    Sum,
    /// The sum, above 0: of parts that are never all without power.
    PositiveSum,
    /// The mean of all elements.
    Mean,
    /// How many are 1.
    Ones,
}

/// A metric and the field that gives it.
#[derive(Debug, Clone, Copy)]
struct TableEntry {
    metric: MetricId,
    tier: Tier,
    field: Field,
    pick: Pick,
    scale: Scale,
}

const fn entry(column: &str, tier: Tier, field: Field, pick: Pick, scale: Scale) -> TableEntry {
    TableEntry { metric: MetricId::of(column), tier, field, pick, scale }
}

const fn fast(column: &str, field: Field) -> TableEntry {
    entry(column, Tier::Fast, field, Pick::Largest, Scale::ONE)
}

const fn slow(column: &str, field: Field) -> TableEntry {
    entry(column, Tier::Slow, field, Pick::Largest, Scale::ONE)
}

/// A sensor that is missing if it reads 0.
const fn sensor(column: &str, tier: Tier, field: Field, scale: Scale) -> TableEntry {
    entry(column, tier, field, Pick::Positive, scale)
}

/// From hundredths of the column's unit.
const CENTI: Scale = Scale(1, 100);
/// From thousandths of the column's unit.
const MILLI: Scale = Scale(1, 1_000);
/// From tenths of the column's unit.
const TENTH: Scale = Scale(1, 10);
const KIB: Scale = Scale(1024, 1);
const MB: Scale = Scale(1_000_000, 1);
/// Steps of the energy counter, 2⁻¹⁶ J, in millijoules.
const ENERGY_STEP: Scale = Scale(1_000, 1 << 16);

/// All of 1.x.
const DISCRETE: &[TableEntry] = &[
    fast("utilization_pct", Field::AverageGfxActivity),
    fast("memory_utilization_pct", Field::AverageUmcActivity),
    fast("gfx_activity_acc", Field::GfxActivityAcc),
    fast("mem_activity_acc", Field::MemActivityAcc),
    fast("temperature_junction_c", Field::TemperatureHotspot),
    sensor("temperature_memory_c", Tier::Slow, Field::TemperatureMem, Scale::ONE),
    sensor("temperature_hbm_c", Tier::Slow, Field::TemperatureHbm, Scale::ONE),
    sensor("temperature_vr_soc_c", Tier::Slow, Field::TemperatureVrsoc, Scale::ONE),
    fast("gpu_clock_mhz", Field::CurrentGfxclk),
    fast("mem_clock_mhz", Field::CurrentUclk),
    slow("soc_clock_mhz", Field::CurrentSocclk),
    slow("video_clock_mhz", Field::CurrentVclk0),
    slow("video_decode_clock_mhz", Field::CurrentDclk0),
    sensor("pcie_speed_gtps", Tier::Slow, Field::PcieLinkSpeed, TENTH),
    sensor("pcie_width", Tier::Slow, Field::PcieLinkWidth, Scale::ONE),
];

/// 1.0 to 1.3: Vega12 to RDNA4, MI100, MI200.
const BOARD: &[TableEntry] = &[
    fast("temperature_c", Field::TemperatureEdge),
    sensor("temperature_vr_gfx_c", Tier::Slow, Field::TemperatureVrgfx, Scale::ONE),
    sensor("temperature_vr_mem_c", Tier::Slow, Field::TemperatureVrmem, Scale::ONE),
    slow("media_utilization_pct", Field::AverageMmActivity),
    fast("power_average_w", Field::AverageSocketPower),
    slow("video1_clock_mhz", Field::CurrentVclk1),
    slow("video1_decode_clock_mhz", Field::CurrentDclk1),
    fast("gpu_clock_average_mhz", Field::AverageGfxclk),
    fast("mem_clock_average_mhz", Field::AverageUclk),
    fast("voltage_gfx_mv", Field::VoltageGfx),
    sensor("voltage_soc_mv", Tier::Fast, Field::VoltageSoc, Scale::ONE),
    sensor("voltage_mem_mv", Tier::Fast, Field::VoltageMem, Scale::ONE),
];

/// 1.4 and later: MI300 and newer.
const PACKAGE: &[TableEntry] = &[
    fast("power_w", Field::CurrentSocketPower),
    fast("throttle_sample_count", Field::AccumulationCounter),
    fast("throttle_prochot_count", Field::ProchotResidencyAcc),
    fast("throttle_ppt_count", Field::PptResidencyAcc),
    fast("throttle_socket_thermal_count", Field::SocketThmResidencyAcc),
    fast("throttle_vr_thermal_count", Field::VrThmResidencyAcc),
    fast("throttle_hbm_thermal_count", Field::HbmThmResidencyAcc),
    entry("media_utilization_pct", Tier::Slow, Field::VcnActivity, Pick::Mean, Scale::ONE),
    entry("jpeg_utilization_pct", Tier::Slow, Field::JpegActivity, Pick::Mean, Scale::ONE),
    slow("pcie_bandwidth_acc", Field::PcieBandwidthAcc),
    slow("pcie_bandwidth_raw", Field::PcieBandwidthInst),
    slow("pcie_replays", Field::PcieReplayCountAcc),
    slow("pcie_replay_rollovers", Field::PcieReplayRoverCountAcc),
    slow("pcie_naks_sent", Field::PcieNakSentCountAcc),
    slow("pcie_naks_received", Field::PcieNakRcvdCountAcc),
    slow("pcie_recoveries", Field::PcieL0ToRecovCountAcc),
    slow("pcie_other_end_recoveries", Field::PcieLcPerfOtherEndRecovery),
    entry("interconnect_rx_bytes", Tier::Slow, Field::XgmiReadDataAcc, Pick::Sum, KIB),
    entry("interconnect_tx_bytes", Tier::Slow, Field::XgmiWriteDataAcc, Pick::Sum, KIB),
    entry("interconnect_links_up", Tier::Slow, Field::XgmiLinkStatus, Pick::Ones, Scale::ONE),
    sensor("interconnect_width", Tier::Slow, Field::XgmiLinkWidth, Scale::ONE),
    sensor("interconnect_speed_gtps", Tier::Slow, Field::XgmiLinkSpeed, Scale::ONE),
    sensor("memory_bandwidth_max_bytes_per_s", Tier::Rare, Field::MemMaxBandwidth, Scale(1_000_000_000, 1)),
    entry("partition_count", Tier::Rare, Field::NumPartition, Pick::Positive, Scale::ONE),
];

/// 2.x and 3.0: APUs. The power of the socket and the activity come in several units; hwmon and `gpu_busy_percent` say
/// them in one. The power of the parts is in milliwatts in every table.
const APU: &[TableEntry] = &[
    sensor("temperature_c", Tier::Fast, Field::TemperatureGfx, CENTI),
    sensor("temperature_soc_c", Tier::Slow, Field::TemperatureSoc, CENTI),
    sensor("temperature_cpu_c", Tier::Slow, Field::TemperatureCore, CENTI),
    sensor("temperature_skin_c", Tier::Slow, Field::TemperatureSkin, CENTI),
    sensor("apu_power_w", Tier::Slow, Field::AverageApuPower, MILLI),
    sensor("apu_cpu_power_w", Tier::Slow, Field::AverageCpuPower, MILLI),
    sensor("apu_cores_power_w", Tier::Slow, Field::AverageAllCorePower, MILLI),
    entry("apu_graphics_power_w", Tier::Slow, Field::AverageGfxPower, Pick::Largest, MILLI),
    sensor("apu_soc_power_w", Tier::Slow, Field::AverageSocPower, MILLI),
    entry("dram_read_bytes_per_s", Tier::Slow, Field::AverageDramReads, Pick::Largest, MB),
    entry("dram_write_bytes_per_s", Tier::Slow, Field::AverageDramWrites, Pick::Largest, MB),
    fast("gpu_clock_mhz", Field::CurrentGfxclk),
    fast("mem_clock_mhz", Field::CurrentUclk),
    slow("soc_clock_mhz", Field::CurrentSocclk),
    slow("fabric_clock_mhz", Field::CurrentFclk),
    slow("video_clock_mhz", Field::CurrentVclk),
    slow("video_decode_clock_mhz", Field::CurrentDclk),
    sensor("gpu_clock_average_mhz", Tier::Fast, Field::AverageGfxclk, Scale::ONE),
    sensor("mem_clock_average_mhz", Tier::Fast, Field::AverageUclk, Scale::ONE),
    fast("throttle_prochot_count", Field::ThrottleResidencyProchot),
];

/// 2.x, which has no sum of the cores.
const CORES: &[TableEntry] =
    &[entry("apu_cores_power_w", Tier::Slow, Field::AverageCorePower, Pick::PositiveSum, MILLI)];

/// Of discrete GPUs and APUs alike.
const CLOCKS: &[TableEntry] = &[
    fast("driver_snapshot_ns", Field::SystemClockCounter),
    entry("firmware_timestamp_ns", Tier::Fast, Field::FirmwareTimestamp, Pick::Positive, Scale(10, 1)),
];

/// Averages used on APUs without a present value.
const STAND_INS: &[TableEntry] = &[
    sensor("gpu_clock_mhz", Tier::Fast, Field::AverageGfxclk, Scale::ONE),
    sensor("mem_clock_mhz", Tier::Fast, Field::AverageUclk, Scale::ONE),
    sensor("soc_clock_mhz", Tier::Slow, Field::AverageSocclk, Scale::ONE),
    sensor("fabric_clock_mhz", Tier::Slow, Field::AverageFclk, Scale::ONE),
    sensor("video_clock_mhz", Tier::Slow, Field::AverageVclk, Scale::ONE),
    sensor("video_decode_clock_mhz", Tier::Slow, Field::AverageDclk, Scale::ONE),
];

/// The same for 3.0, whose units are known.
const STAND_INS_V3: &[TableEntry] = &[
    fast("utilization_pct", Field::AverageGfxActivity),
    slow("media_utilization_pct", Field::AverageVcnActivity),
    entry("power_average_w", Tier::Fast, Field::AverageSocketPower, Pick::Largest, Scale(1, 1000)),
];

/// Each XCC's steps below the clock limit, summed over the package or a partition.
const BELOW_LIMIT: &[TableEntry] = &[
    entry("below_limit_ppt_count", Tier::Slow, Field::XcpGfxBelowHostLimitPptAcc, Pick::Sum, Scale::ONE),
    entry("below_limit_thermal_count", Tier::Slow, Field::XcpGfxBelowHostLimitThmAcc, Pick::Sum, Scale::ONE),
    entry(
        "below_limit_low_utilization_count",
        Tier::Slow,
        Field::XcpGfxLowUtilizationAcc,
        Pick::Sum,
        Scale::ONE,
    ),
    // v1.7 has one count for all reasons, 1.8 one of that name.
    entry("below_limit_total_count", Tier::Slow, Field::XcpGfxBelowHostLimitAcc, Pick::Sum, Scale::ONE),
    entry("below_limit_total_count", Tier::Slow, Field::XcpGfxBelowHostLimitTotalAcc, Pick::Sum, Scale::ONE),
];

/// Metrics that a partition may have.
const OF_PARTITION: [MetricId; 8] = [
    UTILIZATION,
    GPU_CLOCK,
    MEDIA,
    JPEG,
    MetricId::of("below_limit_ppt_count"),
    MetricId::of("below_limit_thermal_count"),
    MetricId::of("below_limit_low_utilization_count"),
    MetricId::of("below_limit_total_count"),
];

/// Residencies that say that something holds the clocks down, and what.
const RESIDENCIES: [(Field, Causes); 12] = [
    (Field::ProchotResidencyAcc, Causes::SIGNAL),
    (Field::PptResidencyAcc, Causes::POWER),
    (Field::SocketThmResidencyAcc, Causes::HEAT),
    (Field::VrThmResidencyAcc, Causes::HEAT),
    (Field::HbmThmResidencyAcc, Causes::HEAT),
    (Field::ThrottleResidencyProchot, Causes::SIGNAL),
    (Field::ThrottleResidencySpl, Causes::POWER),
    (Field::ThrottleResidencyFppt, Causes::POWER),
    (Field::ThrottleResidencySppt, Causes::POWER),
    (Field::ThrottleResidencyThmCore, Causes::HEAT),
    (Field::ThrottleResidencyThmGfx, Causes::HEAT),
    (Field::ThrottleResidencyThmSoc, Causes::HEAT),
];

/// Bits of the throttle status that are power, current and temperature.
const LIMITS: i64 = (1 << 48) - 1;

/// Reads tables of one version into rows.
#[derive(Debug)]
pub(super) struct Reader {
    version: Version,
    entries: Vec<TableEntry>,
    /// Whether the energy counter has a unit that is known: 2^-16 J on Instinct GPUs since MI100. On others nobody says, and it
    /// has been seen to count millijoules (RX 6900 XT), to stand at 0 (RDNA3 and later), and to be absent (APUs).
    counts_energy: bool,
    /// Time and residencies of the snapshot before.
    before: Option<(i64, [Option<i64>; RESIDENCIES.len()])>,
    /// What held the clocks down between the last two.
    held: Option<Causes>,
    /// Which of [`OF_PARTITION`] each partition has given.
    given: [[bool; OF_PARTITION.len()]; XCP_MAX],
}

impl Reader {
    /// For tables of a version, of a card.
    pub(super) fn new(version: Version, card: &Card) -> Self {
        let is_instinct = card.is_instinct();
        let is_package = version.format == 1 && version.content >= 4;
        let parts: &[&[TableEntry]] = match version.format {
            1 if is_package => &[CLOCKS, DISCRETE, PACKAGE],
            1 => &[CLOCKS, DISCRETE, BOARD],
            2 => &[CLOCKS, APU, CORES],
            _ => &[CLOCKS, APU],
        };
        let mut entries = parts.concat();
        if is_instinct {
            // The second die of an MI250 reports 0 W; the first reports for both.
            for entry in entries.iter_mut().filter(|entry| entry.metric == POWER_AVERAGE) {
                entry.pick = Pick::Positive;
            }
        }
        Self {
            version,
            entries,
            counts_energy: is_instinct || is_package,
            before: None,
            held: None,
            given: Default::default(),
        }
    }

    /// Which tables it reads.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// The due values of the whole GPU.
    pub(super) fn fill(&mut self, table: &GpuMetrics<'_>, due: Due, row: &mut Row) {
        let is_off = self.version.format == 1
            && table.get(Field::AverageGfxclk) == Some(0)
            && table.get(Field::VoltageGfx) == Some(0);
        // Chips with one video engine have 0 for the second. Of two, idle ones have 0 for both.
        let is_alone = table.get(Field::CurrentVclk1) == Some(0)
            && table.get(Field::CurrentVclk0).is_some_and(|mhz| mhz > 0);
        for entry in self.entries.iter().filter(|entry| due.has(entry.tier)) {
            let mut picked = pick(table.all(entry.field), entry.pick);
            if is_off && entry.metric == GPU_CLOCK {
                // GFXOFF: without voltage and average clock the present clock is the last one before the engine went off.
                picked = Some((0, 1));
            }
            if is_alone && SECOND_ENGINE.contains(&entry.metric) {
                continue;
            }
            let is_no_sensor = NEVER_ZERO.contains(&entry.metric) && picked.is_some_and(|(raw, _)| raw == 0);
            if is_no_sensor {
                row.refuse(entry.metric);
            } else if let Some(picked) = picked.filter(|(raw, _)| !is_dead_rail(row, entry.metric, *raw)) {
                put_picked(row, entry, picked);
            }
            if due.rare {
                fill_details(table, entry, row);
            }
        }
        let energy = table.get(Field::EnergyAccumulator).filter(|&steps| steps > 0);
        if let Some(steps) = energy.filter(|_| self.counts_energy && due.slow) {
            put(row, ENERGY, steps, ENERGY_STEP);
        }
        self.fill_throttle(table, row);
        if due.slow {
            let is_locked = table.get(Field::GfxclkLockStatus).map(|bits| bits != 0);
            let _told = is_locked.map(|is_locked| row.int(LOCKED, is_locked));
            fill_engines(table, 0..XCP_MAX, row);
        }
        name_snapshot(table, row);
    }

    /// Values that no file has, and the table has as averages; called once, after the files have been tried.
    pub(super) fn stand_in(&mut self, table: &GpuMetrics<'_>, row: &mut Row) {
        let parts: &[&[TableEntry]] = match self.version.format {
            2 => &[STAND_INS],
            3 => &[STAND_INS, STAND_INS_V3],
            _ => &[],
        };
        for entry in parts.concat() {
            if row.get(entry.metric).is_none()
                && let Some(picked) = pick(table.all(entry.field), entry.pick)
            {
                put_picked(row, &entry, picked);
                self.entries.push(entry);
            }
        }
    }

    /// Whether power, current or heat hold the clocks down: by the status that means the same on every chip, else by its
    /// own status; from MI300 on and on v3.0 by whether a residency grew since the snapshot before.
    fn fill_throttle(&mut self, table: &GpuMetrics<'_>, row: &mut Row) {
        if let Some(status) = table.get(Field::IndepThrottleStatus) {
            row.int(STATUS, status);
            row.int(THROTTLED, status & LIMITS != 0);
            return;
        }
        if self.version.format == 2 || (self.version.format == 1 && self.version.content < 3) {
            if let Some(status) = table.get(Field::ThrottleStatus) {
                row.held_down(if status == 0 { Causes::NONE } else { Causes::UNSAID });
            }
            return;
        }
        let time = table.get(Field::AccumulationCounter).or_else(|| table.get(Field::SystemClockCounter));
        let now = RESIDENCIES.map(|(field, _)| table.get(field));
        let Some(time) = time.filter(|_| now.iter().any(Option::is_some)) else { return };
        if let Some((before, residencies)) = self.before
            && before != time
        {
            let grown = RESIDENCIES.iter().zip(residencies.iter().zip(&now));
            let grown = grown.filter(|(_, (before, now))| before != now);
            self.held = Some(grown.fold(Causes::NONE, |held, ((_, cause), _)| held.and(*cause)));
        }
        self.before = Some((time, now));
        if let Some(held) = self.held {
            row.held_down(held);
        }
    }

    /// A metric that needs a second snapshot, while there is only one.
    pub(super) fn awaited(&self) -> Option<MetricId> {
        (self.before.is_some() && self.held.is_none()).then_some(THROTTLED)
    }

    /// Partitions of the package; none if it is whole, does not say, or has no separate values for each: 1.9
    /// as described so far has joint ones.
    pub(super) fn partitions(table: &GpuMetrics<'_>) -> usize {
        let count = table.get(Field::NumPartition).and_then(|count| usize::try_from(count).ok());
        let is_apart = table.xcp(1, Field::XcpGfxBusyInst).next().is_some();
        count.filter(|count| is_apart && (2..=XCP_MAX).contains(count)).unwrap_or(0)
    }

    /// The due values of one partition: its own, none of the package.
    pub(super) fn fill_partition(
        &mut self,
        table: &GpuMetrics<'_>,
        partition: usize,
        due: Due,
        row: &mut Row,
    ) {
        let busy = || table.xcp(partition, Field::XcpGfxBusyInst);
        put_mean(row, UTILIZATION, busy());
        // The package lists its clocks XCC by XCC; each partition has as many of them as it has activities.
        let xccs = busy().flatten().count();
        let clocks = table.all(Field::CurrentGfxclk).skip(partition * xccs).take(xccs);
        if let Some(mhz) = clocks.flatten().max() {
            row.int(GPU_CLOCK, mhz);
        }
        if due.slow {
            fill_engines(table, partition..partition + 1, row);
        }
        name_snapshot(table, row);
        if row.values().is_empty() {
            row.down(AbsenceReason::Invalid, "gpu_metrics has nothing of this partition");
        }
        let Some(given) = self.given.get_mut(partition) else { return };
        for (metric, is_given) in OF_PARTITION.into_iter().zip(given) {
            if row.get(metric).is_some() {
                *is_given = true;
            } else if *is_given && due.has(metric.metric().tier) {
                row.absent(metric, AbsenceReason::Invalid);
            } else if !*is_given && due.rare {
                row.absent(metric, AbsenceReason::NotSupported);
            }
        }
    }
}

/// When the firmware took the values, else when the driver fetched them: the same again is one snapshot read twice.
fn name_snapshot(table: &GpuMetrics<'_>, row: &mut Row) {
    let stamp = table.get(Field::FirmwareTimestamp).filter(|&stamp| stamp > 0);
    if let Some(stamp) = stamp.or_else(|| table.get(Field::SystemClockCounter)) {
        row.snapshot(stamp.cast_unsigned());
    }
}

/// Engines and limits that partitions report separately, over some of them.
fn fill_engines(table: &GpuMetrics<'_>, partitions: Range<usize>, row: &mut Row) {
    let over = |field| partitions.clone().flat_map(move |partition| table.xcp(partition, field));
    put_mean(row, MEDIA, over(Field::XcpVcnBusy));
    put_mean(row, JPEG, over(Field::XcpJpegBusy));
    for entry in BELOW_LIMIT {
        if let Some(raw) = pick(over(entry.field), entry.pick) {
            put_picked(row, entry, raw);
        }
    }
}

fn put_mean(row: &mut Row, metric: MetricId, elements: impl Iterator<Item = Option<i64>>) {
    if let Some((sum, count)) = pick(elements, Pick::Mean) {
        put(row, metric, sum, Scale(1, count));
    }
}

fn put_picked(row: &mut Row, entry: &TableEntry, (raw, count): (i64, i64)) {
    let Scale(times, by) = entry.scale;
    put(row, entry.metric, raw, Scale(times, by.saturating_mul(count)));
}

/// Each link or HBM stack, if the field has one element for each.
fn fill_details(table: &GpuMetrics<'_>, entry: &TableEntry, row: &mut Row) {
    let elements = table.all(entry.field);
    if !matches!(entry.metric.metric().scope, Scope::Link | Scope::HbmStack) || elements.len() < 2 {
        return;
    }
    for (number, raw) in (0..).zip(elements) {
        let Some((raw, _)) = pick(std::iter::once(raw), entry.pick) else { continue };
        row.detail(entry.metric, Instance::Number(number), in_column_unit(entry.metric, raw, entry.scale));
    }
}

/// The number for the elements, and its divisor.
fn pick(elements: impl Iterator<Item = Option<i64>>, pick: Pick) -> Option<(i64, i64)> {
    let (mut count, mut sum, mut ones, mut largest) = (0_i64, 0_i64, 0_i64, i64::MIN);
    for value in elements.flatten() {
        count += 1;
        sum = sum.saturating_add(value);
        ones += i64::from(value == 1);
        largest = largest.max(value);
    }
    if count == 0 {
        return None;
    }
    match pick {
        Pick::Largest => Some((largest, 1)),
        Pick::Positive => (largest > 0).then_some((largest, 1)),
        Pick::Sum => Some((sum, 1)),
        Pick::PositiveSum => (sum > 0).then_some((sum, 1)),
        Pick::Mean => Some((sum, count)),
        Pick::Ones => Some((ones, 1)),
    }
}

/// Every metric that some table gives.
pub(super) fn metrics_of_tables() -> impl Iterator<Item = MetricId> {
    let parts = [DISCRETE, BOARD, PACKAGE, APU, CLOCKS, STAND_INS, STAND_INS_V3, BELOW_LIMIT].concat();
    parts.into_iter().map(|entry| entry.metric).chain([ENERGY, STATUS, THROTTLED, LOCKED, JPEG, MEDIA])
}
