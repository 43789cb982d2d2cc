//! Events in the health of GPUs, found in their rows: XIDs, uncorrectable errors, the onset of throttling, GPUs that
//! report nothing any more and those that are back.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::{MetricColumn, RowKeys};
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, MetricId, Table};

use crate::condition::xid;
use crate::health_event::NewEvent;
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::throttle::{Residency, StepColumns, whole};

const XID_COUNT: MetricId = MetricId::of("xid_count");
const XID_LAST: MetricId = MetricId::of("xid_last");
const ECC: MetricId = MetricId::of("ecc_uncorrected_volatile");
const RAS: MetricId = MetricId::of("ras_uncorrected");
const THROTTLED: MetricId = MetricId::of("throttled");
/// The masks with the reasons of throttling: NVIDIA's and AMD's.
const REASONS: [MetricId; 2] = [MetricId::of("throttle_reasons"), MetricId::of("throttle_status")];
/// The absences of this metric tell why a row has no value.
const WATCHED: MetricId = MetricId::of("power_w");
/// Throttling that begins again within this time goes on: a GPU at its power limit is held down many times a second.
const QUIET_NS: i64 = 10_000_000_000;

/// Finds events. The first row of a GPU says how it is: what happened before is none.
#[derive(Debug, Default)]
pub struct HealthEvents {
    gpus: HashMap<Arc<str>, SeenGpu>,
    /// Number of the last event since the start.
    sequence: i64,
}

/// A GPU by the rows so far.
#[derive(Debug, Default)]
struct SeenGpu {
    xids: Option<i64>,
    ecc: Option<i64>,
    ras: Option<i64>,
    residency: Residency,
    throttled_ns: Option<i64>,
    is_known: bool,
    is_lost: bool,
}

struct EventColumns<'a> {
    xid_count: Option<MetricColumn<'a>>,
    xid_last: Option<MetricColumn<'a>>,
    ecc: Option<MetricColumn<'a>>,
    ras: Option<MetricColumn<'a>>,
    throttled: Option<MetricColumn<'a>>,
    reasons: [Option<MetricColumn<'a>>; REASONS.len()],
    steps: StepColumns<'a>,
}

/// An event of a row.
struct RowEvent {
    kind: &'static str,
    code: Option<i64>,
    detail: String,
}

impl HealthEvents {
    /// The events of a batch of `gpu_events`, as rows of `gpu_health_events`; none if nothing happened. The rows of one
    /// GPU come in the order of time.
    pub fn of(&mut self, batch: &Batch) -> Option<Batch> {
        let keys = RowKeys::of(batch.records(), batch.table()).ok()?;
        let (columns, blanks) = (EventColumns::of(batch), Blanks::of(batch));
        let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
        for (row, (id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            if !self.gpus.contains_key(key) {
                self.gpus.insert(Arc::clone(key), SeenGpu::default());
            }
            let Some(gpu) = self.gpus.get_mut(key) else { continue };
            let found = if blanks.has(row) {
                gpu.blank(batch, key).into_iter().collect()
            } else {
                gpu.row(&columns, row, time_ns)
            };
            for RowEvent { kind, code, detail } in found {
                self.sequence += 1;
                let event = NewEvent {
                    at_ns: time_ns,
                    sequence: self.sequence,
                    kind,
                    detail: &detail,
                    code,
                    ..NewEvent::default()
                };
                event.write(&mut builder, &batch.identity(row));
            }
        }
        builder.finish(batch.origin().clone(), batch.sequence())
    }
}

impl<'a> EventColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Self {
            xid_count: batch.metric(XID_COUNT),
            xid_last: batch.metric(XID_LAST),
            ecc: batch.metric(ECC),
            ras: batch.metric(RAS),
            throttled: batch.metric(THROTTLED),
            reasons: REASONS.map(|id| batch.metric(id)),
            steps: StepColumns::of(batch),
        }
    }

    /// The mask of reasons of a row, and their names.
    fn reasons(&self, row: usize) -> Option<(i64, String)> {
        let masks = REASONS.iter().zip(self.reasons);
        let mut set = masks.filter_map(|(id, column)| Some((id, whole(column, row)?)));
        set.next().map(|(id, mask)| (mask, id.metric().names_of(mask)))
    }
}

impl SeenGpu {
    /// A row without a value: it is lost, unless it sleeps or was never there.
    fn blank(&mut self, batch: &Batch, key: &str) -> Option<RowEvent> {
        let mut reasons = batch
            .absences()
            .iter()
            .filter(|absence| absence.metric == WATCHED && *absence.gpu == *key)
            .map(|absence| absence.reason);
        let reason = reasons.find(|reason| *reason != AbsenceReason::Suspended)?;
        // One that is gone from the start is lost too: its driver names it and cannot reach it.
        let was_there = self.is_known || reason == AbsenceReason::Gone;
        if !was_there || self.is_lost {
            return None;
        }
        self.is_lost = true;
        let so_far = if self.is_known { "it reports nothing any more" } else { "it cannot be read" };
        let detail = format!("{so_far}: {}", reason.as_str());
        Some(RowEvent { kind: "lost", code: None, detail })
    }

    fn row(&mut self, columns: &EventColumns<'_>, row: usize, time_ns: i64) -> Vec<RowEvent> {
        let mut found = Vec::new();
        if std::mem::take(&mut self.is_lost) {
            found.push(RowEvent { kind: "back", code: None, detail: "it reports again".to_owned() });
        }
        self.is_known = true;
        // The agent counts XIDs from its own start, so the first count has only new ones.
        self.xids.get_or_insert(0);
        if let Some(new) = risen(&mut self.xids, whole(columns.xid_count, row)) {
            let code = whole(columns.xid_last, row);
            let last = code.map_or_else(|| "XID".to_owned(), xid::named);
            let detail = if new > 1 { format!("{new} XIDs, the last {last}") } else { last };
            found.push(RowEvent { kind: "xid", code, detail });
        }
        let errors = [("ecc", columns.ecc, &mut self.ecc), ("ras", columns.ras, &mut self.ras)];
        for (kind, column, before) in errors {
            if let Some(new) = risen(before, whole(column, row)) {
                let (name, plural) = (kind.to_uppercase(), if new == 1 { "" } else { "s" });
                let detail = format!("{new} uncorrectable {name} error{plural}");
                found.push(RowEvent { kind, code: Some(new), detail });
            }
        }
        if let Some(limit) = self.limit(columns, row) {
            let is_new = self.throttled_ns.is_none_or(|last_ns| time_ns.saturating_sub(last_ns) >= QUIET_NS);
            self.throttled_ns = Some(time_ns);
            if is_new {
                let masked = columns.reasons(row).map(|(mask, names)| (Some(mask), names));
                let (code, detail) = masked.unwrap_or_else(|| (None, limit.to_owned()));
                found.push(RowEvent { kind: "throttle", code, detail });
            }
        }
        found
    }

    /// What holds the clocks down now, if anything does. Where the driver has a mask of reasons, that says more.
    fn limit(&mut self, columns: &EventColumns<'_>, row: usize) -> Option<&'static str> {
        if let Some(steps) = columns.steps.at(row) {
            let shares = self.residency.read(steps).filter(|shares| shares.any() > 0.0)?;
            return Some(if shares.heat > shares.power { "thermal limit" } else { "power limit" });
        }
        (whole(columns.throttled, row)? > 0).then_some("a limit")
    }
}

/// By how much a count rose since the value before; none if it did not, or began anew.
fn risen(before: &mut Option<i64>, now: Option<i64>) -> Option<i64> {
    let now = now?;
    let new = before.replace(now).map(|before| now.saturating_sub(before));
    new.filter(|new| *new > 0)
}
