//! Batches in, text out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array as _, DictionaryArray};
use gpuvitals_core::catalogue::Table;
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_core::{Batch, IdentityColumn};

use crate::config::ExpositionConfig;
use crate::cores::Cores;
use crate::gpu::Gpu;
use crate::labels::LabelSet;
use crate::plan::Plan;
use crate::reading::{Reading, host_measured_ns, host_number};
use crate::scrape::{Scrape, TextScrape, TypedScrape};
use crate::status::DeviceStatus;
use crate::values::Values;

/// Most GPUs remembered; more than any machine has, partitions counted.
const GPUS_MAX: usize = 1024;
/// How long after the end of a window its last rows may arrive, if no later row closes it.
const LATE_NS: i64 = 5_000_000_000;

/// The contents of `/metrics`: owns latest values, windows and totals. Fed with batches by one thread and
/// rendered by another, behind a lock of the caller.
#[derive(Debug)]
pub struct Exposition {
    plan: Plan,
    gpus: HashMap<Arc<str>, Gpu, foldhash::fast::RandomState>,
    host: Values,
    cores: Cores,
}

impl Exposition {
    /// Without any values yet.
    pub fn new(config: ExpositionConfig) -> Self {
        Self {
            plan: Plan::new(&config),
            gpus: HashMap::default(),
            host: Values::new(),
            cores: Cores::default(),
        }
    }

    /// Takes a batch of GPU or host rows; those of other tables are no series.
    pub fn observe(&mut self, batch: &Batch) {
        match batch.table() {
            Table::GpuEvents => {}
            Table::SystemEvents => {
                let rows = self.cores.take(batch);
                self.host.take(batch, &rows);
                return;
            }
            _ => return,
        }
        let rows_of = rows_by_gpu(batch);
        for (key, rows) in &rows_of {
            if let Some(gpu) = gpu_of(&mut self.gpus, &self.plan, key) {
                gpu.take(batch, rows, &self.plan.channels);
            }
        }
        for absence in batch.absences() {
            let rows = rows_of.iter().find(|(key, _)| *key == absence.gpu).map_or(&[][..], |(_, rows)| rows);
            if let Some(gpu) = gpu_of(&mut self.gpus, &self.plan, &absence.gpu) {
                gpu.miss(absence, batch, rows);
            }
        }
    }

    /// Samples that came after their window was closed and are not in it.
    pub fn late_samples(&self) -> u64 {
        self.gpus.values().map(|gpu| gpu.windows.late()).sum()
    }

    /// Writes the whole text into `out`, which is cleared first: the given devices, in their order (one given
    /// twice counts once), the host, then the program's own families. `now_ns` is UTC since 1970.
    pub fn render(
        &mut self,
        format: Format,
        now_ns: i64,
        devices: &[DeviceStatus],
        own: &[Family],
        out: &mut Vec<u8>,
    ) {
        out.clear();
        let mut text = TextScrape::new(format, out);
        self.scrape(now_ns, devices, &mut text);
        text.finish();
        for family in own {
            family.write(format, out);
        }
        if format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
    }

    /// The families of the given devices and the host, with the values that [`Exposition::render`] writes at
    /// `now_ns`. A family of several OpenTelemetry names comes once for each.
    pub fn families(&mut self, now_ns: i64, devices: &[DeviceStatus]) -> Vec<Family> {
        let mut typed = TypedScrape::at(now_ns);
        self.scrape(now_ns, devices, &mut typed);
        typed.families
    }

    fn scrape(&mut self, now_ns: i64, devices: &[DeviceStatus], to: &mut impl Scrape) {
        let mut known = HashSet::with_capacity(devices.len());
        let mut shown: Vec<(&DeviceStatus, Arc<str>)> = Vec::with_capacity(devices.len());
        for status in devices {
            let Some(key) = status.identity.key().filter(|key| known.insert(Arc::clone(key))) else {
                continue;
            };
            if let Some(gpu) = gpu_of(&mut self.gpus, &self.plan, &key) {
                gpu.know(&status.identity);
                gpu.windows.close_by(now_ns.saturating_sub(LATE_NS));
                shown.push((status, key));
            }
        }
        if self.gpus.len() >= GPUS_MAX {
            self.gpus.retain(|key, _| known.contains(key));
        }
        let pairs: Vec<(&DeviceStatus, &Gpu)> =
            shown.iter().filter_map(|(status, key)| Some((*status, self.gpus.get(key)?))).collect();
        for family in &self.plan.gpu {
            to.family(family);
            for line in family.lines() {
                for (status, gpu) in &pairs {
                    let Some(number) = line.reading.number(gpu, status, self.plan.window_ns, now_ns) else {
                        continue;
                    };
                    if line.labels == LabelSet::Attribution && !status.sharers.is_empty() {
                        for sharer in &status.sharers {
                            to.sharer(line, sharer, number);
                        }
                    } else {
                        to.gpu(line, gpu, number);
                    }
                }
            }
        }
        let host_is_down = devices.iter().any(|status| status.identity.uuid().is_none() && !status.up);
        for family in self.plan.host.iter().filter(|_| !host_is_down) {
            to.family(family);
            for line in family.lines() {
                if let Reading::Cores(scale) = line.reading {
                    for (core, share) in self.cores.fresh(now_ns) {
                        to.host(line, Some(core), scale.apply(share), None);
                    }
                } else if let Some(number) = host_number(line.reading, &self.host, now_ns) {
                    to.host(line, None, number, host_measured_ns(line.reading, &self.host, now_ns));
                }
            }
        }
    }
}

fn gpu_of<'a>(
    gpus: &'a mut HashMap<Arc<str>, Gpu, foldhash::fast::RandomState>,
    plan: &Plan,
    key: &Arc<str>,
) -> Option<&'a mut Gpu> {
    if !gpus.contains_key(key) {
        if gpus.len() >= GPUS_MAX {
            return None;
        }
        gpus.insert(Arc::clone(key), Gpu::new(plan.window_ns, plan.interval_ns, plan.channels.len()));
    }
    gpus.get_mut(key)
}

/// The rows of each GPU. The dictionary keys identify the row's GPU, so an identity is read once per GPU.
fn rows_by_gpu(batch: &Batch) -> Vec<(Arc<str>, Vec<usize>)> {
    /// Dictionary keys of uuid and partition.
    type Who = (Option<usize>, Option<usize>);
    let uuid = batch.identity_column(IdentityColumn::Uuid);
    let partition = batch.identity_column(IdentityColumn::Partition);
    let key_at = |column: Option<&DictionaryArray<Int32Type>>, row: usize| {
        column.filter(|column| column.is_valid(row)).and_then(|column| column.key(row))
    };
    let mut found: Vec<(Who, Vec<usize>)> = Vec::new();
    for row in 0..batch.rows() {
        let who = (key_at(uuid, row), key_at(partition, row));
        match found.iter_mut().find(|(other, _)| *other == who) {
            Some((_, rows)) => rows.push(row),
            None => found.push((who, vec![row])),
        }
    }
    let named = |rows: Vec<usize>| Some((batch.identity(*rows.first()?).key()?, rows));
    found.into_iter().filter_map(|(_, rows)| named(rows)).collect()
}
