//! What the values of a GPU say has happened to it: XIDs and errors beyond correction. Not every source writes events beside them.

use std::sync::Arc;

use gpuvitals_core::MetricId;
use gpuvitals_core::history::{Aggregate, BucketQuery, Buckets, Cell, GpuState, GroupColumn};
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Table, quantity};

use crate::cells::{GpuCells, REPORTED};
use crate::condition::xid;
use crate::health_event::HealthEvent;

const XID_LAST: MetricId = MetricId::of("xid_last");
const XID_COUNT: MetricId = MetricId::of("xid_count");
/// Counts of errors, the kind of their events and their name.
const ERRORS: [(MetricId, &str, &str); 2] = [
    (MetricId::of("ecc_uncorrected_volatile"), "ecc", "ECC"),
    (MetricId::of("ras_uncorrected"), "ras", "RAS"),
];
/// How far the look for the values before a range goes back.
const BEFORE_NS: i64 = 10 * MINUTE_NS;
/// Most steps of a range: a minute of a day.
const STEPS_MAX: i64 = 1_440;

/// What has happened to a GPU in a range, by its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Happened {
    /// What happened in the range, in order of time. Times are those of the step in which it showed.
    pub events: Vec<HealthEvent>,
    /// The last XID that was reported before the range and still stands.
    pub xid_before: Option<i64>,
}

impl Happened {
    /// What to ask the history for it.
    pub fn query(gpu: &GpuState, start_ns: i64, end_ns: i64) -> BucketQuery {
        let span_ns = end_ns.saturating_sub(start_ns).saturating_add(BEFORE_NS);
        let step_ns = (span_ns / STEPS_MAX / SECOND_NS + 1) * SECOND_NS;
        let metrics = [XID_LAST, XID_COUNT].into_iter().chain(ERRORS.map(|(metric, ..)| metric));
        let metrics = metrics.chain(REPORTED).collect();
        BucketQuery {
            gpus: vec![Arc::clone(&gpu.key)],
            aggregates: vec![Aggregate::Max, Aggregate::Last],
            group_by: vec![GroupColumn::Gpu],
            ..BucketQuery::of(Table::GpuEvents, metrics, start_ns.saturating_sub(BEFORE_NS), end_ns, step_ns)
        }
    }

    /// From the answer to [`Happened::query`] about a range that begins at `start_ns`. A code that stands in the first row of a GPU is
    /// new with it, and so is one after rows without any: not every source has a column for codes before the first. A count may
    /// be older.
    pub fn of(buckets: &Buckets, gpu: &GpuState, start_ns: i64) -> Self {
        let steps = buckets.steps();
        let gpus = GpuCells::by_gpu(buckets);
        let Some(cells) = gpus.get(&gpu.key) else { return Self::default() };
        let is_new = gpu.first_seen_ns >= steps.origin_ns;
        let mut happened = Self::default();
        // An agent counts XIDs from its own start, so the first count has only new ones.
        let (mut last_xid, mut xids) = (is_new.then_some(0), is_new.then_some(0.0));
        let mut counts = ERRORS.map(|_| None);
        let mut reported = false;
        for step in 0..steps.count {
            let xid = cells.whole(XID_LAST, step).map(XidCodes::of);
            let new_code = last_xid.or(reported.then_some(0)).and_then(|before| xid?.other_than(before));
            reported |= buckets.metrics().iter().any(|one| cells.whole(one.metric, step).is_some());
            let new_count = risen(&mut xids, cells.whole(XID_COUNT, step).map(|cell| cell.last));
            let mut found = Vec::new();
            if new_code.is_some() || new_count.is_some() {
                let code = xid.map(|xid| if xid.last > 0 { xid.last } else { xid.most });
                let last = code.map_or_else(|| "XID".to_owned(), xid::named);
                let detail = match new_count {
                    Some(count) if count > 1.0 => format!("{count:.0} XIDs, the last {last}"),
                    _ => last,
                };
                found.push((xid.map(|xid| xid.at_ns), "xid", detail));
            }
            last_xid = xid.map(|xid| xid.last).or(last_xid);
            for ((metric, kind, name), before) in ERRORS.into_iter().zip(&mut counts) {
                let cell = cells.whole(metric, step);
                if let Some(new) = risen(before, cell.map(|cell| cell.last)) {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
                    let errors = quantity::counted(new as u64, &format!("uncorrectable {name} error"));
                    found.push((cell.map(|cell| cell.last_ns), kind, errors));
                }
            }
            for (at_ns, kind, detail) in found {
                let at_ns = at_ns.unwrap_or_else(|| steps.time(step));
                let (gpu, kind, detail) = (Arc::clone(&gpu.key), Arc::from(kind), Arc::from(detail));
                happened.events.push(HealthEvent { gpu, at_ns, kind, detail, ..HealthEvent::default() });
            }
        }
        happened.events.retain(|event| event.at_ns >= start_ns);
        let standing = last_xid.filter(|code| *code > 0);
        happened.xid_before = standing.filter(|_| happened.events.iter().all(|event| *event.kind != *"xid"));
        happened
    }
}

/// The XIDs of a step.
#[derive(Clone, Copy)]
struct XidCodes {
    at_ns: i64,
    last: i64,
    most: i64,
}

impl XidCodes {
    #[expect(clippy::cast_possible_truncation, reason = "codes")]
    fn of(cell: Cell) -> Self {
        Self { at_ns: cell.last_ns, last: cell.last as i64, most: cell.max as i64 }
    }

    /// The code of an XID that is not this one.
    fn other_than(self, before: i64) -> Option<i64> {
        [self.most, self.last].into_iter().find(|code| *code > 0 && *code != before)
    }
}

/// By how much a count rose since the value before.
fn risen(before: &mut Option<f64>, now: Option<f64>) -> Option<f64> {
    let now = now?;
    before.replace(now).map(|before| now - before).filter(|new| *new > 0.0)
}
