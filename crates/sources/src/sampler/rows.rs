//! Rows between worker and taker: one flat list that a worker appends to, turned into columns by the taker. Values of
//! instances become rows of their own: those of GPUs in `gpu_details`, those of a host's CPUs beside the host's row.
//!
//! A tick appends some forty values to contiguous memory. Spreading them over as many columns costs a cache
//! miss or two each when the thread has slept before; the taker does it for hundreds of rows at once, and off
//! the sampling thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuvitals_core::batch::{Value, ValueError};
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, MetricId, Origin, Table};

use super::state::WorkerState;
use crate::probe::{Detail, OwnValue, Row};

/// The metric whose changes stand in for snapshots, for drivers without them; also the absent one in a row
/// without values.
pub(super) const WATCHED: MetricId = MetricId::of("power_w");

/// Rows of one worker, of one table.
#[derive(Debug)]
pub(crate) struct RowList {
    worker: Arc<WorkerState>,
    identities: Vec<Arc<Identity>>,
    heads: Vec<RowHead>,
    values: Vec<(MetricId, Value)>,
    details: Vec<Detail>,
    own: Vec<(&'static str, OwnValue)>,
    absences: Vec<(MetricId, AbsenceReason)>,
}

/// A row without its values.
#[derive(Debug, Clone, Copy)]
struct RowHead {
    identity: usize,
    timestamp_ns: i64,
    monotonic_ns: i64,
    /// Ends of its values, details, own values and absences in the flat lists; they begin where those of the row before end.
    values_end: usize,
    details_end: usize,
    own_end: usize,
    absences_end: usize,
}

impl RowList {
    pub(crate) fn new(worker: Arc<WorkerState>) -> Self {
        Self {
            worker,
            identities: Vec::new(),
            heads: Vec::new(),
            values: Vec::new(),
            details: Vec::new(),
            own: Vec::new(),
            absences: Vec::new(),
        }
    }

    /// A list for the next rows of the same worker, in the memory of another list if there is one.
    pub(crate) fn emptied(&self, spare: Option<Self>) -> Self {
        let worker = Arc::clone(&self.worker);
        let Some(mut spare) = spare else { return Self::new(worker) };
        spare.identities.clear();
        spare.heads.clear();
        spare.values.clear();
        spare.details.clear();
        spare.own.clear();
        spare.absences.clear();
        Self { worker, ..spare }
    }

    /// Number of rows it makes.
    pub(crate) fn len(&self) -> usize {
        self.heads.len() + self.details.len()
    }

    /// When the first was taken, monotonic.
    pub(crate) fn since_ns(&self) -> Option<i64> {
        self.heads.first().map(|head| head.monotonic_ns)
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, whose: &Arc<Identity>, row: &Row, timestamp_ns: i64, monotonic_ns: i64) {
        self.values.extend_from_slice(row.values());
        self.details.extend_from_slice(row.details());
        self.own.extend_from_slice(row.own_values());
        self.absences.extend_from_slice(row.absences());
        self.push(whose, timestamp_ns, monotonic_ns);
    }

    /// Adds a row without a value: from this time on the GPU reports nothing, for this reason.
    pub(crate) fn add_blank(
        &mut self,
        whose: &Arc<Identity>,
        reason: AbsenceReason,
        timestamp_ns: i64,
        monotonic_ns: i64,
    ) {
        if self.worker.table == Table::GpuEvents {
            self.absences.push((WATCHED, reason));
            self.push(whose, timestamp_ns, monotonic_ns);
        }
    }

    fn push(&mut self, whose: &Arc<Identity>, timestamp_ns: i64, monotonic_ns: i64) {
        let known = self.identities.iter().position(|identity| Arc::ptr_eq(identity, whose));
        let identity = known.unwrap_or_else(|| {
            self.identities.push(Arc::clone(whose));
            self.identities.len() - 1
        });
        self.heads.push(RowHead {
            identity,
            timestamp_ns,
            monotonic_ns,
            values_end: self.values.len(),
            details_end: self.details.len(),
            own_end: self.own.len(),
            absences_end: self.absences.len(),
        });
    }

    /// The rows as batches: those of the worker's table, and those of the details of its GPUs. An impossible value is left out and
    /// counted.
    pub(crate) fn to_batches(
        &self,
        monotonic: bool,
        origin: &Origin,
        sequence: u64,
    ) -> impl Iterator<Item = Batch> + use<> {
        let (rows, invalid_rows) = self.to_rows(monotonic);
        let (details, invalid_details) = self.to_details();
        let invalid = invalid_rows + invalid_details;
        if invalid > 0 {
            self.worker.invalid.fetch_add(invalid, Ordering::Relaxed);
        }
        let finish = |mut builder: BatchBuilder| builder.finish(origin.clone(), sequence);
        [finish(rows), finish(details)].into_iter().flatten()
    }

    /// The rows of the worker's table; those of the CPUs of a host follow its own. Also returns the number of impossible values.
    fn to_rows(&self, monotonic: bool) -> (BatchBuilder, u64) {
        let mut builder = BatchBuilder::new(self.worker.table);
        let ids: Vec<_> = self.identities.iter().map(|identity| builder.add_identity(identity)).collect();
        let (mut values, mut details, mut own, mut absences, mut invalid) = (0, 0, 0, 0, 0);
        for head in &self.heads {
            let Some(&id) = ids.get(head.identity) else { continue };
            let at = |builder: &mut BatchBuilder| {
                if monotonic {
                    builder.row_at(head.timestamp_ns, head.monotonic_ns, id)
                } else {
                    builder.row(head.timestamp_ns, id)
                }
            };
            let row = at(&mut builder);
            for (metric, value) in self.values.get(values..head.values_end).unwrap_or_default() {
                invalid += u64::from(builder.set(row, *metric, *value).is_err());
            }
            for (column, value) in self.own.get(own..head.own_end).unwrap_or_default() {
                let set = match value {
                    OwnValue::Number(value) => builder.set_extra(row, column, *value),
                    OwnValue::Text(text) => builder.set_extra_text(row, column, text),
                };
                invalid += u64::from(set.is_err());
            }
            for (metric, reason) in self.absences.get(absences..head.absences_end).unwrap_or_default() {
                builder.absent(row, *metric, *reason);
            }
            let is_host = self.worker.table == Table::SystemEvents;
            let details_of_host = self.details.get(details..head.details_end).filter(|_| is_host);
            for Detail { metric, instance, value } in details_of_host.unwrap_or_default() {
                let row = at(&mut builder);
                let set = builder
                    .set_instance(row, metric.metric().scope, &instance.to_string())
                    .and_then(|()| builder.set(row, *metric, *value));
                invalid += u64::from(set.is_err());
            }
            (values, details) = (head.values_end, head.details_end);
            (own, absences) = (head.own_end, head.absences_end);
        }
        (builder, invalid)
    }

    /// The rows of `gpu_details`, and the number of impossible values.
    fn to_details(&self) -> (BatchBuilder, u64) {
        let mut builder = BatchBuilder::new(Table::GpuDetails);
        let (mut from, mut invalid) = (0, 0);
        let heads = self.heads.iter().filter(|_| self.worker.table == Table::GpuEvents);
        for head in heads {
            let details = self.details.get(from..head.details_end).unwrap_or_default();
            from = head.details_end;
            let Some(identity) = self.identities.get(head.identity).filter(|_| !details.is_empty()) else {
                continue;
            };
            let id = builder.intern(identity);
            for Detail { metric, instance, value } in details {
                let row = builder.row(head.timestamp_ns, id);
                let mut set = || -> Result<(), ValueError> {
                    builder.set_extra_text(row, "metric", metric.metric().column)?;
                    builder.set_extra_text(row, "instance", &instance.to_string())?;
                    builder.set_extra(row, "value", Value::Float(value.as_f64()))
                };
                invalid += u64::from(set().is_err());
            }
        }
        (builder, invalid)
    }
}
