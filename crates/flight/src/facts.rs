//! What the rows of an incident say of it.

use std::collections::BTreeMap;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::{AbsenceReason, Batch, IdentityColumn, MetricId, Table};

use crate::incident::{FlightGpu, FlightSpan, ReadError};

/// Values that a reader of an incident asks for first.
const VITAL: [MetricId; 6] = [
    MetricId::of("power_w"),
    MetricId::of("temperature_c"),
    MetricId::of("gpu_clock_mhz"),
    MetricId::of("mem_clock_mhz"),
    MetricId::of("utilization_pct"),
    MetricId::of("memory_used_mb"),
];
/// Most GPUs and partitions, and most errors: a node has no more.
const GPUS_MAX: usize = 512;
const ERRORS_MAX: usize = 4_096;

/// Gathers facts from the rows as they are written.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The time of the trigger.
    at_ns: i64,
    span: Option<FlightSpan>,
    gpus: BTreeMap<String, FlightGpu>,
    errors: BTreeMap<(String, String, &'static str), u64>,
}

impl Facts {
    /// Of the rows around this time.
    pub(crate) fn around(at_ns: i64) -> Self {
        Self { at_ns, ..Self::default() }
    }

    /// Adds what the rows of a batch tell.
    pub(crate) fn add(&mut self, batch: &Batch) {
        for &at_ns in batch.timestamps() {
            let span = self.span.get_or_insert(FlightSpan { from_ns: at_ns, to_ns: at_ns });
            (span.from_ns, span.to_ns) = (span.from_ns.min(at_ns), span.to_ns.max(at_ns));
        }
        self.add_errors(batch);
        if batch.table() == Table::GpuEvents {
            self.add_gpus(batch);
        }
    }

    fn add_errors(&mut self, batch: &Batch) {
        // What a part does not provide is no error.
        let errors = batch.absences().iter().filter(|it| it.reason != AbsenceReason::NotSupported);
        for absence in errors {
            let metric = absence.metric.metric().column.to_owned();
            let key = (absence.gpu.to_string(), metric, absence.reason.as_str());
            if self.errors.len() < ERRORS_MAX || self.errors.contains_key(&key) {
                *self.errors.entry(key).or_default() += u64::from(absence.count);
            }
        }
    }

    fn add_gpus(&mut self, batch: &Batch) {
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        let columns = VITAL.map(|metric| (metric.metric().column, batch.metric(metric)));
        let mut last_row = BTreeMap::new();
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            if !self.gpus.contains_key(&**key) {
                if self.gpus.len() >= GPUS_MAX {
                    continue;
                }
                self.gpus.insert(key.to_string(), FlightGpu { gpu: key.to_string(), ..FlightGpu::default() });
            }
            last_row.insert(key, row);
            let Some(gpu) = self.gpus.get_mut(&**key).filter(|_| at_ns <= self.at_ns) else { continue };
            for (column, values) in &columns {
                if let Some(value) = values.and_then(|values| values.value(row)) {
                    let value = value.as_decimal();
                    match gpu.last.get_mut(*column) {
                        Some(last) => *last = value,
                        None => {
                            gpu.last.insert((*column).to_owned(), value);
                        }
                    }
                    gpu.last_ns = gpu.last_ns.max(Some(at_ns));
                }
            }
        }
        for (key, row) in last_row {
            let identity = batch.identity(row);
            if let Some(gpu) = self.gpus.get_mut(&**key) {
                let texts = IdentityColumn::ALL.into_iter();
                let text = |column: IdentityColumn| {
                    identity.get(column).map(|text| (column.name().to_owned(), text.to_owned()))
                };
                (gpu.index, gpu.identity) = (identity.index, texts.filter_map(text).collect());
            }
        }
    }

    /// Time from the first row to the last.
    pub(crate) fn span(&self) -> Option<FlightSpan> {
        self.span
    }

    /// The GPUs, and what could not be read.
    pub(crate) fn into_parts(self) -> (Vec<FlightGpu>, Vec<ReadError>) {
        let error = |((gpu, metric, reason), count): ((String, String, &'static str), u64)| ReadError {
            gpu,
            metric,
            reason: reason.to_owned(),
            count,
        };
        (self.gpus.into_values().collect(), self.errors.into_iter().map(error).collect())
    }
}
