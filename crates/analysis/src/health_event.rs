//! Events in the health of GPUs, as rows of `gpu_health_events` tell them.

use std::sync::Arc;

use gpuvitals_core::Batch;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::ExtraValue;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// When, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// `xid`, `ecc`, `ras`, `throttle`, `lost` or `back`; or that of a finding's life.
    pub kind: Arc<str>,
    /// In words.
    pub detail: Arc<str>,
    /// The finding whose life it is of.
    pub finding: Option<Arc<str>>,
}

impl HealthEvent {
    /// The events of some rows, in order of time.
    pub fn of_rows(batch: &Batch) -> Vec<Self> {
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return Vec::new() };
        let text = |name: &str, row| match ExtraValue::of(batch.records().column_by_name(name)?, row)? {
            ExtraValue::Text(text) => Some(text),
            ExtraValue::Number(_) => None,
        };
        let event = |(row, (id, at_ns)): (usize, (&u32, &i64))| {
            Some(Self {
                gpu: Arc::clone(keys.keys.get(*id as usize)?),
                at_ns: *at_ns,
                kind: text("kind", row)?,
                detail: text("detail", row).unwrap_or_default(),
                finding: text("finding", row),
            })
        };
        let rows = keys.ids.iter().zip(batch.timestamps()).enumerate();
        let mut events: Vec<Self> = rows.filter_map(event).collect();
        events.sort_by_key(|event| event.at_ns);
        events
    }
}
