//! Two sources tell of XIDs: the driver's count, and the kernel's log. One that is silently dead is found by the other.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::throttle::whole;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Identity, MetricId, Table};

const XID_COUNT: MetricId = MetricId::of("xid_count");
/// How much later one source may be than the other.
const LATE_NS: i64 = 10 * SECOND_NS;
/// XIDs of the kernel that wait for the driver's count; of more the rest is told as it is.
const WAITING_MAX: usize = 1_024;
/// Most GPUs and partitions of a node.
const GPUS_MAX: usize = 512;

/// An XID of the kernel's log.
#[derive(Debug)]
pub(super) struct KernelXid {
    pub(super) gpu: Arc<Identity>,
    pub(super) key: Arc<str>,
    pub(super) at_ns: i64,
    /// When it was taken, monotonic.
    pub(super) mono_ns: i64,
    pub(super) code: i64,
    pub(super) text: String,
}

/// What both sources have said.
#[derive(Debug, Default)]
pub(super) struct XidSources {
    gpus: HashMap<Arc<str>, GpuXids>,
    waiting: Vec<KernelXid>,
    missed_by_driver: u64,
    missed_by_kernel: u64,
}

/// The XIDs of a GPU; times are monotonic.
#[derive(Debug, Default)]
struct GpuXids {
    /// How many its driver has counted, if it counts any.
    count: Option<i64>,
    /// When the count last rose.
    counted_ns: Option<i64>,
    /// When the kernel last told of one.
    said_ns: Option<i64>,
    /// Since when a count waits for a line of the kernel.
    unanswered_ns: Option<i64>,
}

impl XidSources {
    /// Looks at the counts in rows of the sampler.
    pub(super) fn counted(&mut self, batch: &Batch, now: Moment) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        let Some(column) = batch.metric(XID_COUNT) else { return };
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        for (row, id) in keys.ids.iter().enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            let Some(count) = whole(Some(column), row) else { continue };
            if self.gpus.len() >= GPUS_MAX && !self.gpus.contains_key(key) {
                continue;
            }
            let gpu = self.gpus.entry(Arc::clone(key)).or_default();
            // The agent counts from its own start on.
            if count > gpu.count.replace(count).unwrap_or(0) {
                gpu.counted_ns = Some(now.mono_ns);
                // No kernel tells of a simulated GPU.
                if !is_near(gpu.said_ns, now.mono_ns) && !batch.identity(row).is_simulated() {
                    gpu.unanswered_ns.get_or_insert(now.mono_ns);
                }
            }
        }
    }

    /// Takes an XID of the kernel's log.
    pub(super) fn said(&mut self, xid: KernelXid) {
        if self.gpus.len() < GPUS_MAX || self.gpus.contains_key(&xid.key) {
            let gpu = self.gpus.entry(Arc::clone(&xid.key)).or_default();
            (gpu.said_ns, gpu.unanswered_ns) = (Some(xid.mono_ns), None);
        }
        self.waiting.push(xid);
    }

    /// The XIDs of the kernel of which it is known by now whether the driver has counted them, too; true: it has not. `is_log_read`:
    /// whether the kernel could have told of those that the driver has counted.
    pub(super) fn due(&mut self, now: Moment, is_log_read: bool) -> Vec<(KernelXid, bool)> {
        for (gpu, xids) in &mut self.gpus {
            if xids.unanswered_ns.is_none_or(|since_ns| is_near(Some(since_ns), now.mono_ns)) {
                continue;
            }
            xids.unanswered_ns = None;
            if is_log_read {
                self.missed_by_kernel += 1;
                tracing::warn!(%gpu, "the driver has counted an XID of which the kernel's log has no line");
            }
        }
        let (mut due, mut waiting) = (Vec::new(), Vec::new());
        let is_full = self.waiting.len() > WAITING_MAX;
        for xid in std::mem::take(&mut self.waiting) {
            let gpu = self.gpus.get(&xid.key);
            let counts = gpu.is_some_and(|gpu| gpu.count.is_some());
            let is_counted = gpu.is_some_and(|gpu| {
                gpu.counted_ns.is_some_and(|counted_ns| counted_ns >= xid.mono_ns.saturating_sub(LATE_NS))
            });
            if is_counted || !counts || is_full {
                due.push((xid, !is_counted));
            } else if is_near(Some(xid.mono_ns), now.mono_ns) {
                waiting.push(xid);
            } else {
                self.missed_by_driver += 1;
                let (gpu, code) = (&xid.key, xid.code);
                tracing::warn!(%gpu, code, "the kernel's log tells of an XID that the driver has not counted");
                due.push((xid, true));
            }
        }
        self.waiting = waiting;
        due
    }

    /// How many XIDs each source has missed, by its name.
    pub(super) fn missed(&self) -> [(&'static str, u64); 2] {
        [("driver", self.missed_by_driver), ("kernel", self.missed_by_kernel)]
    }
}

/// Whether a time was so short ago that the other source may still come.
fn is_near(at_ns: Option<i64>, now_ns: i64) -> bool {
    at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < LATE_NS)
}
