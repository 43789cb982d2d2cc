//! The open files of one GPU and how they become a row.

use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::{AbsenceReason, Identity, MetricId};
use tracing::warn;

use super::card::{Card, hwmon, read_text};
use super::parse;
use super::plan::candidates;
use super::ras::Ras;
use super::sensor::{Gauge, Missing, Scale, narrow, put};
use super::table::{POWER, POWER_AVERAGE, Reader};
use crate::dialect::amd_gpu_metrics::GpuMetrics;
use crate::machine::PinnedFile;
use crate::probe::{Due, Reading, Row};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const TEMPERATURE_EDGE: MetricId = MetricId::of("temperature_edge_c");
const TEMPERATURE_JUNCTION: MetricId = MetricId::of("temperature_junction_c");
const PCIE_SPEED: MetricId = MetricId::of("pcie_speed_gtps");
const PCIE_GEN: MetricId = MetricId::of("pcie_gen");
const PARTITIONS: MetricId = MetricId::of("partition_count");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_USED_PCT: MetricId = MetricId::of("memory_used_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");

/// What an AMD GPU may give at most; what of it this one does not is told with the reason.
const KNOWN: &[MetricId] = &[
    MetricId::of("gpu_clock_mhz"),
    MetricId::of("mem_clock_mhz"),
    TEMPERATURE,
    POWER,
    MEMORY_USED,
    MetricId::of("utilization_pct"),
    MetricId::of("memory_utilization_pct"),
    MetricId::of("media_utilization_pct"),
    MetricId::of("jpeg_utilization_pct"),
    MetricId::of("gfx_activity_acc"),
    MetricId::of("mem_activity_acc"),
    POWER_AVERAGE,
    MetricId::of("power_limit_w"),
    MetricId::of("power_limit_default_w"),
    MetricId::of("power_limit_min_w"),
    MetricId::of("power_limit_max_w"),
    MetricId::of("energy_j"),
    TEMPERATURE_EDGE,
    TEMPERATURE_JUNCTION,
    MetricId::of("temperature_memory_c"),
    MetricId::of("temperature_hbm_c"),
    MetricId::of("temperature_vr_gfx_c"),
    MetricId::of("temperature_vr_soc_c"),
    MetricId::of("temperature_vr_mem_c"),
    MetricId::of("temperature_soc_c"),
    MetricId::of("temperature_slowdown_c"),
    MetricId::of("temperature_shutdown_c"),
    MetricId::of("temperature_memory_slowdown_c"),
    MetricId::of("temperature_memory_shutdown_c"),
    MetricId::of("video_clock_mhz"),
    MetricId::of("video_decode_clock_mhz"),
    MetricId::of("soc_clock_mhz"),
    MetricId::of("fabric_clock_mhz"),
    MetricId::of("gpu_clock_average_mhz"),
    MetricId::of("mem_clock_average_mhz"),
    MetricId::of("gpu_clock_max_mhz"),
    MetricId::of("mem_clock_max_mhz"),
    MetricId::of("video_clock_max_mhz"),
    MetricId::of("gpu_clock_locked"),
    MetricId::of("performance_level"),
    MEMORY_TOTAL,
    MEMORY_FREE,
    MEMORY_USED_PCT,
    MetricId::of("visible_memory_total_mb"),
    MetricId::of("visible_memory_used_mb"),
    MetricId::of("gtt_total_mb"),
    MetricId::of("gtt_used_mb"),
    MetricId::of("memory_bandwidth_max_bytes_per_s"),
    MetricId::of("fan_speed_pct"),
    MetricId::of("fan_speed_rpm"),
    MetricId::of("voltage_gfx_mv"),
    MetricId::of("voltage_soc_mv"),
    MetricId::of("voltage_mem_mv"),
    PARTITIONS,
    MetricId::of("driver_snapshot_ns"),
    MetricId::of("firmware_timestamp_ns"),
    MetricId::of("throttle_status"),
    MetricId::of("throttle_sample_count"),
    MetricId::of("throttle_prochot_count"),
    MetricId::of("throttle_ppt_count"),
    MetricId::of("throttle_socket_thermal_count"),
    MetricId::of("throttle_vr_thermal_count"),
    MetricId::of("throttle_hbm_thermal_count"),
    MetricId::of("below_limit_ppt_count"),
    MetricId::of("below_limit_thermal_count"),
    MetricId::of("below_limit_low_utilization_count"),
    MetricId::of("below_limit_total_count"),
    MetricId::of("throttled"),
    PCIE_GEN,
    MetricId::of("pcie_width"),
    PCIE_SPEED,
    MetricId::of("pcie_gen_max"),
    MetricId::of("pcie_width_max"),
    MetricId::of("pcie_replays"),
    MetricId::of("pcie_replay_rollovers"),
    MetricId::of("pcie_naks_sent"),
    MetricId::of("pcie_naks_received"),
    MetricId::of("pcie_recoveries"),
    MetricId::of("pcie_other_end_recoveries"),
    MetricId::of("pcie_bandwidth_acc"),
    MetricId::of("pcie_bandwidth_raw"),
    MetricId::of("interconnect_tx_bytes"),
    MetricId::of("interconnect_rx_bytes"),
    MetricId::of("interconnect_links_up"),
    MetricId::of("interconnect_width"),
    MetricId::of("interconnect_speed_gtps"),
    MetricId::of("ras_corrected"),
    MetricId::of("ras_uncorrected"),
    MetricId::of("ras_deferred"),
    MetricId::of("bad_pages_retired"),
    MetricId::of("bad_pages_pending"),
    MetricId::of("bad_pages_unreservable"),
];

/// Failures in a row after which `gpu_metrics` is asked once a second only: a driver that gets no answer from the
/// firmware may wait for it each time.
const FAILURES_MAX: u32 = 3;

/// The open files of a GPU.
#[derive(Debug)]
pub(super) struct Board {
    table: Option<Table>,
    /// What the first reading gave, and how many values a reading of the fast tier has.
    given: Vec<(MetricId, Tier)>,
    usual_fast: usize,
    gauges: Vec<Gauge>,
    memory: Option<Memory>,
    ras: Ras,
    denied: Vec<MetricId>,
    /// Partitions by the compute driver, where the table does not say.
    partitions: Option<i64>,
    is_open: bool,
}

#[derive(Debug)]
struct Table {
    file: PinnedFile,
    is_instinct: bool,
    /// By the version that the first reading showed.
    reader: Option<Reader>,
    failures: u32,
    reason: AbsenceReason,
}

/// Device memory in use, of a size that does not change.
#[derive(Debug)]
struct Memory {
    used: PinnedFile,
    total: Option<i64>,
}

/// Whose rows a board gives.
#[derive(Debug)]
pub(super) struct Whom {
    /// The whole GPU.
    pub(super) whole: Arc<Identity>,
    /// Its partitions, where it is divided.
    pub(super) partitions: Vec<Arc<Identity>>,
}

impl Board {
    /// Opens `gpu_metrics`. The other files are opened at the first reading, which shows what they are needed for.
    ///
    /// # Errors
    /// When it cannot be opened now.
    pub(super) fn open(card: &Card) -> Result<Self, Missing> {
        match PinnedFile::open(&card.device.join("gpu_metrics")).map_err(|error| Missing::of(&error)) {
            Ok(file) => Ok(Self::with(Some(Table {
                file,
                is_instinct: card.is_instinct(),
                reader: None,
                failures: 0,
                reason: AbsenceReason::Invalid,
            }))),
            Err(Missing::Always(_)) => Ok(Self::with(None)),
            Err(missing) => Err(missing),
        }
    }

    /// Without `gpu_metrics`, which has failed again and again.
    pub(super) fn without_table() -> Self {
        Self::with(None)
    }

    fn with(table: Option<Table>) -> Self {
        Self {
            table,
            given: Vec::new(),
            usual_fast: 0,
            gauges: Vec::new(),
            memory: None,
            ras: Ras::default(),
            denied: Vec::new(),
            partitions: None,
            is_open: false,
        }
    }

    /// Reads what is due into a row of the GPU and one of each partition.
    ///
    /// # Errors
    /// When the device is gone; and at the first reading when `gpu_metrics` does not answer now, since it is too early then
    /// to say which files are needed.
    pub(super) fn read(
        &mut self,
        card: &Card,
        due: Due,
        reading: &mut Reading,
        whom: &mut Whom,
        rename: impl Fn(usize) -> Vec<Arc<Identity>>,
    ) -> Result<(), Missing> {
        let is_first = !self.is_open;
        let due = if is_first { Due::ALL } else { due };
        let row = reading.row(&whom.whole);
        // Taken out, so that its bytes stay while the files are read.
        let mut table = self.table.take();
        let mut read = table.as_mut().map(|table| table.read(due)).transpose();
        match &mut read {
            Ok(Some((metrics, reader))) => reader.fill(metrics, due, row),
            Err(Missing::Gone) => return Err(Missing::Gone),
            Err(missing @ Missing::Now(_)) if is_first => return Err(*missing),
            _ => {}
        }
        if is_first {
            self.open_files(card, row)?;
        } else {
            self.read_files(due, row)?;
        }
        if let (true, Ok(Some((metrics, reader)))) = (is_first, &mut read) {
            reader.stand_in(metrics, row);
        }
        derive(due, row);
        let awaited = read.as_ref().ok().and_then(|read| read.as_ref()?.1.awaited());
        if is_first {
            let given = row.values().iter().map(|(id, _)| *id).chain(awaited);
            self.given = given.map(|id| (id, id.metric().tier)).collect();
            self.usual_fast = self.given.iter().filter(|(_, tier)| *tier == Tier::Fast).count();
        }
        let reason = read.as_ref().err().map_or(AbsenceReason::Invalid, |missing| missing.reason());
        self.tell_missing(due, reason, awaited, row);
        match &mut read {
            Ok(Some((metrics, reader))) => {
                let divided = Reader::partitions(metrics);
                if divided != whom.partitions.len() {
                    let before = std::mem::replace(&mut whom.partitions, rename(divided));
                    for identity in before.iter().filter(|identity| !whom.partitions.contains(identity)) {
                        reading.row(identity).down(AbsenceReason::Gone, "the GPU is divided otherwise now");
                    }
                }
                for (partition, identity) in whom.partitions.iter().enumerate() {
                    reader.fill_partition(metrics, partition, due, reading.row(identity));
                }
            }
            _ => {
                for identity in &whom.partitions {
                    reading.row(identity).down(reason, "gpu_metrics did not answer");
                }
            }
        }
        let is_refused = is_first && read.is_err();
        self.table = table.filter(|_| !is_refused);
        self.is_open = true;
        Ok(())
    }

    /// Opens and reads the files of what the row lacks.
    fn open_files(&mut self, card: &Card, row: &mut Row) -> Result<(), Missing> {
        let hwmon = hwmon(&card.device);
        for (path, what) in candidates(card, hwmon.as_deref()) {
            let (metric, ..) = what;
            let is_given =
                |row: &Row| row.get(metric).is_some() || row.absences().iter().any(|(id, _)| *id == metric);
            if is_given(row) {
                continue;
            }
            match Gauge::open(&path, what, row) {
                Ok(gauge) => self.gauges.push(gauge),
                Err(Missing::Always(AbsenceReason::Denied)) => self.denied.push(metric),
                Err(Missing::Gone) => return Err(Missing::Gone),
                Err(_) => {}
            }
        }
        self.memory = Memory::open(&card.device, &mut self.denied);
        self.ras = Ras::open(&card.device);
        self.denied.append(&mut self.ras.denied);
        let is_divisible = card.device.join("current_compute_partition").exists();
        self.partitions = i64::try_from(card.kfd.len()).ok().filter(|&nodes| is_divisible && nodes > 0);
        self.read_memory_and_ras(Due::ALL, row)
    }

    fn read_files(&mut self, due: Due, row: &mut Row) -> Result<(), Missing> {
        for gauge in self.gauges.iter_mut().filter(|gauge| due.has(gauge.tier)) {
            match gauge.read(row) {
                Ok(()) => {}
                Err(Missing::Gone) => return Err(Missing::Gone),
                Err(missing) => row.absent(gauge.metric, missing.reason()),
            }
        }
        self.read_memory_and_ras(due, row)
    }

    fn read_memory_and_ras(&mut self, due: Due, row: &mut Row) -> Result<(), Missing> {
        if let Some(memory) = &mut self.memory {
            match memory.read(due, row) {
                Err(Missing::Gone) => return Err(Missing::Gone),
                Err(missing) => row.absent(MEMORY_USED, missing.reason()),
                Ok(()) => {}
            }
        }
        if due.rare { self.ras.read(row) } else { Ok(()) }
    }

    /// Says what is missing: this time, of what was given before; at the rare tier also what this GPU does not have. What
    /// is awaited is not missing.
    fn tell_missing(&mut self, due: Due, reason: AbsenceReason, awaited: Option<MetricId>, row: &mut Row) {
        let values = row.values().len();
        if values == 0 {
            let missing = row.absences().first().map(|(_, reason)| *reason);
            let denied = (!self.denied.is_empty()).then_some(AbsenceReason::Denied);
            row.down(missing.or(denied).unwrap_or(reason), "no file of it gives a value");
        }
        let is_fast = !due.slow && !due.rare;
        if is_fast && values >= self.usual_fast {
            self.usual_fast = values;
            return;
        }
        let is_told = |row: &Row, metric| {
            awaited == Some(metric)
                || row.get(metric).is_some()
                || row.absences().iter().any(|(id, _)| *id == metric)
        };
        for &(metric, _) in self.given.iter().filter(|(_, tier)| due.has(*tier)) {
            if !is_told(row, metric) {
                row.absent(metric, reason);
            }
        }
        if !due.rare {
            return;
        }
        if let Some(partitions) = self.partitions.filter(|_| !is_told(row, PARTITIONS)) {
            row.int(PARTITIONS, partitions);
        }
        for &metric in KNOWN {
            if !is_told(row, metric) {
                let is_denied = self.denied.contains(&metric);
                row.absent(
                    metric,
                    if is_denied { AbsenceReason::Denied } else { AbsenceReason::NotSupported },
                );
            }
        }
    }
}

/// What follows from other values.
fn derive(due: Due, row: &mut Row) {
    if row.get(POWER).is_none()
        && let Some(average) = row.get(POWER_AVERAGE)
    {
        row.float(POWER, narrow(average.as_f64()));
    }
    match (row.get(TEMPERATURE), row.get(TEMPERATURE_JUNCTION)) {
        (Some(edge), _) if due.slow => row.float(TEMPERATURE_EDGE, narrow(edge.as_f64())),
        (None, Some(junction)) => row.float(TEMPERATURE, narrow(junction.as_f64())),
        _ => {}
    }
    let generation = |speed: Value| parse::pcie_generation(narrow(speed.as_f64()));
    if let Some(generation) = row.get(PCIE_SPEED).and_then(generation) {
        row.int(PCIE_GEN, generation);
    }
}

impl Table {
    /// The present table, and who reads it. Refused for good when the first one is not understood.
    fn read(&mut self, due: Due) -> Result<(GpuMetrics<'_>, &mut Reader), Missing> {
        if self.failures >= FAILURES_MAX && !due.slow {
            return Err(Missing::Now(self.reason));
        }
        let bytes = self.file.read().map_err(|error| Missing::of(&error));
        let metrics = match (bytes.map(GpuMetrics::decode), &self.reader) {
            (Ok(Ok(metrics)), Some(reader)) if metrics.version() != reader.version() => {
                Err(Missing::Now(AbsenceReason::Invalid))
            }
            (Ok(Ok(metrics)), _) => Ok(metrics),
            (Ok(Err(refused)), None) => {
                warn!(%refused, "gpu_metrics is not understood: its values come from other files, or not at all");
                Err(Missing::Always(AbsenceReason::NotSupported))
            }
            (Ok(Err(_)), Some(_)) => Err(Missing::Now(AbsenceReason::Invalid)),
            (Err(missing), _) => Err(missing),
        };
        match metrics {
            Ok(metrics) => {
                self.failures = 0;
                let (version, is_instinct) = (metrics.version(), self.is_instinct);
                let reader = self.reader.get_or_insert_with(|| Reader::new(version, is_instinct));
                Ok((metrics, reader))
            }
            Err(missing) => {
                self.failures = self.failures.saturating_add(1);
                self.reason = missing.reason();
                Err(missing)
            }
        }
    }
}

impl Memory {
    fn open(device: &Path, denied: &mut Vec<MetricId>) -> Option<Self> {
        let total = read_text(&device.join("mem_info_vram_total"));
        let total = total.as_deref().and_then(parse::parse_number).filter(|&total| total > 0);
        match PinnedFile::open(&device.join("mem_info_vram_used")) {
            Ok(used) => Some(Self { used, total }),
            Err(error) => {
                if Missing::of(&error).reason() == AbsenceReason::Denied {
                    denied.extend([MEMORY_USED, MEMORY_USED_PCT, MEMORY_FREE]);
                }
                None
            }
        }
    }

    fn read(&mut self, due: Due, row: &mut Row) -> Result<(), Missing> {
        const MIB: Scale = Scale(1, 1 << 20);
        let text = self.used.read_text().map_err(|error| Missing::of(&error))?;
        let used = parse::parse_number(text).ok_or(Missing::Now(AbsenceReason::Invalid))?;
        put(row, MEMORY_USED, used, MIB);
        let Some(total) = self.total else { return Ok(()) };
        put(row, MEMORY_USED_PCT, used, Scale(100, total));
        if due.slow {
            put(row, MEMORY_TOTAL, total, MIB);
            if let (Some(Value::Int(total)), Some(Value::Int(used))) =
                (row.get(MEMORY_TOTAL), row.get(MEMORY_USED))
            {
                row.int(MEMORY_FREE, (total - used).max(0));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::metrics_given;
    use super::*;

    #[test]
    fn whatever_is_read_is_told_when_it_is_not_there() {
        let files = candidates(&Card::default(), Some(Path::new("/")));
        let given = files.into_iter().map(|(_, (metric, ..))| metric).chain(metrics_given());
        let untold: Vec<_> = given.filter(|id| !KNOWN.contains(id)).map(|id| id.metric().column).collect();
        assert!(untold.is_empty(), "{untold:?}");
    }
}
