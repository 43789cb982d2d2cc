//! The open files of one GPU and how they become a row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::{AbsenceReason, Identity, MetricId};

use super::card::{Card, hwmon, read_text};
use super::parse;
use super::plan::{candidates, metrics_of_files};
use super::ras::Ras;
use super::sensor::{Gauge, Missing, Scale, narrow, put};
use super::snapshot::{Snapshot, unfilled};
use super::table::{POWER, POWER_AVERAGE, Reader, metrics_of_tables};
use crate::dialect::amd_gpu_metrics::GpuMetrics;
use crate::finding::Finding;
use crate::machine::PinnedFile;
use crate::probe::{Due, Instance, Reading, Row};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const TEMPERATURE_EDGE: MetricId = MetricId::of("temperature_edge_c");
const TEMPERATURE_JUNCTION: MetricId = MetricId::of("temperature_junction_c");
const PCIE_SPEED: MetricId = MetricId::of("pcie_speed_gtps");
const PCIE_GEN: MetricId = MetricId::of("pcie_gen");
const PARTITIONS: MetricId = MetricId::of("partition_count");
const LINKS: MetricId = MetricId::of("interconnect_links");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_USED_PCT: MetricId = MetricId::of("memory_used_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");

/// Metrics beside those of the tables and of files with fixed names: labelled sensors, error counts, derived values.
const OTHERS: [MetricId; 15] = [
    LINKS,
    MEMORY_USED,
    MEMORY_USED_PCT,
    MEMORY_TOTAL,
    MEMORY_FREE,
    TEMPERATURE_EDGE,
    MetricId::of("fan_speed_pct"),
    POWER,
    PCIE_GEN,
    MetricId::of("ras_corrected"),
    MetricId::of("ras_uncorrected"),
    MetricId::of("ras_deferred"),
    MetricId::of("bad_pages_retired"),
    MetricId::of("bad_pages_pending"),
    MetricId::of("bad_pages_unreservable"),
];

/// Every metric that an AMD GPU may give; a GPU without one reports the reason.
fn known() -> Vec<MetricId> {
    let mut known: Vec<MetricId> = metrics_of_tables().chain(metrics_of_files()).chain(OTHERS).collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// The open files of a GPU.
#[derive(Debug)]
pub(super) struct Board {
    snapshot: Option<Snapshot>,
    /// Every metric that may be given.
    known: Vec<MetricId>,
    /// What the first whole reading gave, and how many values a reading of the fast tier has.
    given: Vec<(MetricId, Tier)>,
    usual_fast: usize,
    /// Files for metrics that `gpu_metrics` lacks. None until its first answer, or its absence, shows which.
    gauges: Option<Vec<Gauge>>,
    /// Substitutes for `gpu_metrics` since it failed to answer.
    stand_ins: Option<Vec<Gauge>>,
    memory: Option<DeviceMemory>,
    ras: Ras,
    denied: Vec<MetricId>,
    /// Partitions by the compute driver, if the table does not have their number.
    partitions: Option<i64>,
    is_open: bool,
    /// Whether the last reading of the slow tier gave a value.
    gives: bool,
    /// Findings to report.
    findings: Vec<Finding>,
}

/// Device memory in use, of a size that does not change.
#[derive(Debug)]
struct DeviceMemory {
    used: PinnedFile,
    size: PathBuf,
    total: Option<i64>,
}

/// The identities of a board's rows.
#[derive(Debug)]
pub(super) struct Whom {
    /// The whole GPU.
    pub(super) whole: Arc<Identity>,
    /// Its partitions, if it is divided.
    pub(super) partitions: Vec<Arc<Identity>>,
}

impl Board {
    /// For a card. The first reading opens its files, and shows which are needed.
    pub(super) fn new(card: &Card) -> Self {
        Self {
            snapshot: Some(Snapshot::new(card)),
            known: known(),
            given: Vec::new(),
            usual_fast: 0,
            gauges: None,
            stand_ins: None,
            memory: None,
            ras: Ras::default(),
            denied: Vec::new(),
            partitions: None,
            is_open: false,
            gives: false,
            findings: Vec::new(),
        }
    }

    /// New findings of readings since the last call.
    pub(super) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Reads what is due into a row of the GPU and one of each partition. While `gpu_metrics` does not
    /// answer, hwmon and the other files provide what they have.
    ///
    /// # Errors
    /// If the device is gone.
    pub(super) fn read(
        &mut self,
        card: &Card,
        due: Due,
        reading: &mut Reading,
        whom: &mut Whom,
        rename: impl Fn(usize) -> Vec<Arc<Identity>>,
    ) -> Result<(), Missing> {
        let due = if self.is_open { due } else { Due::ALL };
        let row = reading.row(&whom.whole);
        // Taken out, so that its bytes stay while the files are read.
        let mut snapshot = self.snapshot.take();
        let read = snapshot.as_mut().map(|snapshot| snapshot.read(card, due, &mut self.findings));
        let mut read = read.transpose();
        let is_settled = self.gauges.is_some();
        let is_refused = !is_settled && matches!(read, Err(Missing::Always(_)));
        let settles = !is_settled && (read.is_ok() || is_refused);
        let due = if settles { Due::ALL } else { due };
        match &mut read {
            Ok(Some((metrics, reader))) => {
                reader.fill(metrics, due, row);
                let unfilled =
                    (settles && row.values().is_empty()).then(|| unfilled(card, metrics.version()));
                self.findings.extend(unfilled);
            }
            Err(Missing::Gone) => return Err(Missing::Gone),
            _ => {}
        }
        if !self.is_open {
            self.open(card);
        }
        read_gauges(self.gauges.as_mut(), due, row)?;
        if settles {
            self.gauges = Some(self.open_gauges(card, row)?);
            self.stand_ins = None;
        } else if read.is_err() {
            self.stand_in(card, due, row)?;
        }
        self.read_memory_and_ras(due, row)?;
        if due.rare {
            tell_links(card, row);
        }
        if let (true, Ok(Some((metrics, reader)))) = (settles, &mut read) {
            reader.stand_in(metrics, row);
        }
        derive(due, row);
        let awaited = read.as_ref().ok().and_then(|read| read.as_ref()?.1.awaited());
        if settles {
            let given = row.values().iter().map(|(id, _)| *id).chain(awaited);
            self.given = given.map(|id| (id, id.metric().tier)).collect();
            self.usual_fast = self.given.iter().filter(|(_, tier)| *tier == Tier::Fast).count();
        }
        let missing = read.as_ref().err().filter(|_| !is_refused).copied();
        self.tell_missing(due, missing.map(Missing::reason), awaited, row);
        if let Ok(Some((metrics, reader))) = &mut read {
            read_partitions(metrics, reader, due, reading, whom, rename);
        } else {
            let reason = missing.map_or(AbsenceReason::Invalid, Missing::reason);
            for identity in &whom.partitions {
                reading.row(identity).down(reason, "gpu_metrics did not answer");
            }
        }
        self.snapshot = snapshot.filter(|_| !is_refused);
        Ok(())
    }

    /// Opens the files for values that no table has.
    fn open(&mut self, card: &Card) {
        self.memory = DeviceMemory::open(&card.device, &mut self.denied);
        self.ras = Ras::open(&card.device);
        self.denied.append(&mut self.ras.denied);
        let is_divisible = card.device.join("current_compute_partition").exists();
        self.partitions = i64::try_from(card.kfd.len()).ok().filter(|&nodes| is_divisible && nodes > 0);
        self.is_open = true;
    }

    /// Opens and reads the files for values that the row lacks and no open file provides. A file also takes the place of a value
    /// of `gpu_metrics` that cannot be true.
    fn open_gauges(&mut self, card: &Card, row: &mut Row) -> Result<Vec<Gauge>, Missing> {
        let mut gauges: Vec<Gauge> = Vec::new();
        for (path, what) in candidates(card, hwmon(&card.device).as_deref()) {
            let (metric, ..) = what;
            let is_open = self.gauges.iter().flatten().chain(&gauges).any(|gauge| gauge.metric == metric);
            if is_open || row.get(metric).is_some() {
                continue;
            }
            match Gauge::open(&path, what, row) {
                Ok(gauge) => gauges.push(gauge),
                Err(Missing::Always(AbsenceReason::Denied)) => self.denied.push(metric),
                Err(Missing::Gone) => return Err(Missing::Gone),
                Err(_) => {}
            }
        }
        Ok(gauges)
    }

    /// Values from other files that `gpu_metrics` does not provide now.
    fn stand_in(&mut self, card: &Card, due: Due, row: &mut Row) -> Result<(), Missing> {
        if self.stand_ins.is_none() {
            self.stand_ins = Some(self.open_gauges(card, row)?);
            return Ok(());
        }
        read_gauges(self.stand_ins.as_mut(), due, row)
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

    /// Reports missing values: each time, those provided before; at the rare tier also those this GPU does
    /// not have. Awaited values are not missing. With a reason if `gpu_metrics` does not answer now.
    fn tell_missing(
        &mut self,
        due: Due,
        unanswered: Option<AbsenceReason>,
        awaited: Option<MetricId>,
        row: &mut Row,
    ) {
        let values = row.values().len();
        let reason = unanswered.unwrap_or(AbsenceReason::Invalid);
        // A GPU without any fast values still has slow ones.
        if due.slow {
            self.gives = values > 0;
        }
        if values == 0 && !self.gives {
            let missing = row.absences().first().map(|(_, reason)| *reason);
            let denied = (!self.denied.is_empty()).then_some(AbsenceReason::Denied);
            row.down(missing.or(denied).unwrap_or(reason), "none of its files gives a value");
        }
        let is_fast = !due.slow && !due.rare;
        if is_fast && unanswered.is_none() && values >= self.usual_fast {
            self.usual_fast = values;
            return;
        }
        let is_told = |row: &Row, metric| awaited == Some(metric) || is_told(row, metric);
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
        // A table that has not answered yet may have more.
        let unknown = unanswered.filter(|_| self.gauges.is_none());
        for &metric in &self.known {
            if !is_told(row, metric) {
                let is_denied = self.denied.contains(&metric);
                let reason = unknown.unwrap_or(AbsenceReason::NotSupported);
                row.absent(metric, if is_denied { AbsenceReason::Denied } else { reason });
            }
        }
    }
}

/// The GPUs that links lead to. The driver does not tell how many links go to each.
fn tell_links(card: &Card, row: &mut Row) {
    for address in &card.linked {
        row.detail(LINKS, Instance::Name(Arc::clone(address)), Value::Int(1));
    }
    if let Some(count) = i64::try_from(card.linked.len()).ok().filter(|&count| count > 0) {
        row.int(LINKS, count);
    }
}

/// Reads each partition into a row of its own.
fn read_partitions(
    metrics: &GpuMetrics<'_>,
    reader: &mut Reader,
    due: Due,
    reading: &mut Reading,
    whom: &mut Whom,
    rename: impl Fn(usize) -> Vec<Arc<Identity>>,
) {
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

/// Whether a row has a metric, or its absence.
fn is_told(row: &Row, metric: MetricId) -> bool {
    row.get(metric).is_some() || row.absences().iter().any(|(id, _)| *id == metric)
}

/// Reads what is due.
fn read_gauges(gauges: Option<&mut Vec<Gauge>>, due: Due, row: &mut Row) -> Result<(), Missing> {
    for gauge in gauges.into_iter().flatten().filter(|gauge| due.has(gauge.tier)) {
        match gauge.read(row) {
            Ok(()) => {}
            Err(Missing::Gone) => return Err(Missing::Gone),
            Err(missing) => row.absent(gauge.metric, missing.reason()),
        }
    }
    Ok(())
}

/// Values derived from others.
fn derive(due: Due, row: &mut Row) {
    // The mean does not replace a refused power.
    let is_refused = row.absences().contains(&(POWER, AbsenceReason::Invalid));
    if row.get(POWER).is_none() && !is_refused {
        match row.get(POWER_AVERAGE) {
            Some(average) => row.float(POWER, narrow(average.as_f64())),
            None if !is_told(row, POWER) => {
                let why =
                    row.absences().iter().find(|(id, _)| *id == POWER_AVERAGE).map(|(_, reason)| *reason);
                let _told = why.map(|reason| row.absent(POWER, reason));
            }
            None => {}
        }
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

impl DeviceMemory {
    fn open(device: &Path, denied: &mut Vec<MetricId>) -> Option<Self> {
        match PinnedFile::open(&device.join("mem_info_vram_used")) {
            Ok(used) => Some(Self { used, size: device.join("mem_info_vram_total"), total: None }),
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
        if self.total.is_none() && due.rare {
            let total = read_text(&self.size);
            self.total = total.as_deref().and_then(parse::parse_number).filter(|&total| total > 0);
        }
        match self.total {
            Some(total) if used > total => row.refuse(MEMORY_USED),
            _ => put(row, MEMORY_USED, used, MIB),
        }
        let Some(total) = self.total else { return Ok(()) };
        if due.slow {
            put(row, MEMORY_TOTAL, total, MIB);
        }
        let Some(Value::Int(used_mb)) = row.get(MEMORY_USED) else {
            row.absent(MEMORY_USED_PCT, AbsenceReason::Invalid);
            if due.slow {
                row.absent(MEMORY_FREE, AbsenceReason::Invalid);
            }
            return Ok(());
        };
        put(row, MEMORY_USED_PCT, used, Scale(100, total));
        if let Some(Value::Int(total_mb)) = row.get(MEMORY_TOTAL) {
            row.int(MEMORY_FREE, total_mb - used_mb);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_read_is_told_when_it_is_not_there() {
        let files = candidates(&Card::default(), Some(Path::new("/")));
        let given = files.into_iter().map(|(_, (metric, ..))| metric);
        let untold: Vec<_> = given.filter(|id| !known().contains(id)).map(|id| id.metric().column).collect();
        assert!(untold.is_empty(), "{untold:?}");
    }
}
