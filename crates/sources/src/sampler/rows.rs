//! Rows between worker and taker: one flat list that a worker appends to, turned into columns by the taker.
//!
//! A tick appends some forty values to contiguous memory. Spreading them over as many columns costs a cache
//! miss or two each when the thread has slept before; the taker does it for hundreds of rows at once, and off
//! the sampling thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, MetricId, Origin, Table};

use super::state::WorkerState;
use super::worker::WATCHED;
use crate::probe::{Instance, OwnValue, Row};

/// Rows of one worker, of one table.
#[derive(Debug)]
pub(crate) struct RowList {
    worker: Arc<WorkerState>,
    identities: Vec<Arc<Identity>>,
    heads: Vec<Head>,
    values: Vec<(MetricId, Value)>,
    own: Vec<(&'static str, OwnValue)>,
    absences: Vec<(MetricId, AbsenceReason)>,
}

/// A row without its values.
#[derive(Debug, Clone, Copy)]
struct Head {
    identity: usize,
    instance: Option<Instance>,
    timestamp_ns: i64,
    monotonic_ns: i64,
    /// Ends of its values, own values and absences in the flat lists; they begin where those of the row before end.
    values_end: usize,
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
        spare.own.clear();
        spare.absences.clear();
        Self { worker, ..spare }
    }

    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// When the first was taken, monotonic.
    pub(crate) fn since_ns(&self) -> Option<i64> {
        self.heads.first().map(|head| head.monotonic_ns)
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, whose: &Arc<Identity>, row: &Row, timestamp_ns: i64, monotonic_ns: i64) {
        self.values.extend_from_slice(row.values());
        self.own.extend_from_slice(row.own_values());
        self.absences.extend_from_slice(row.absences());
        self.push(whose, row.instance(), timestamp_ns, monotonic_ns);
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
            self.push(whose, None, timestamp_ns, monotonic_ns);
        }
    }

    fn push(
        &mut self,
        whose: &Arc<Identity>,
        instance: Option<Instance>,
        timestamp_ns: i64,
        monotonic_ns: i64,
    ) {
        let known = self.identities.iter().position(|identity| Arc::ptr_eq(identity, whose));
        let identity = known.unwrap_or_else(|| {
            self.identities.push(Arc::clone(whose));
            self.identities.len() - 1
        });
        self.heads.push(Head {
            identity,
            instance,
            timestamp_ns,
            monotonic_ns,
            values_end: self.values.len(),
            own_end: self.own.len(),
            absences_end: self.absences.len(),
        });
    }

    /// The rows as a batch; an impossible value is left out and counted.
    pub(crate) fn to_batch(&self, monotonic: bool, origin: Origin, sequence: u64) -> Option<Batch> {
        let table: Table = self.worker.table;
        let mut builder = BatchBuilder::new(table);
        let ids: Vec<_> = self.identities.iter().map(|identity| builder.add_identity(identity)).collect();
        let (mut values, mut own, mut absences, mut invalid) = (0, 0, 0, 0);
        for head in &self.heads {
            let Some(&id) = ids.get(head.identity) else { continue };
            let row = if monotonic {
                builder.row_at(head.timestamp_ns, head.monotonic_ns, id)
            } else {
                builder.row(head.timestamp_ns, id)
            };
            if let Some(Instance { scope, number }) = head.instance {
                invalid += u64::from(builder.set_instance(row, scope, &number.to_string()).is_err());
            }
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
            (values, own, absences) = (head.values_end, head.own_end, head.absences_end);
        }
        if invalid > 0 {
            self.worker.invalid.fetch_add(invalid, Ordering::Relaxed);
        }
        builder.finish(origin, sequence)
    }
}
