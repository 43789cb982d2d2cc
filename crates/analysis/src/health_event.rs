//! Events in the health of GPUs, as rows of `gpu_health_events` tell them.

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::ExtraValue;
use gpuvitals_core::{Batch, BatchBuilder, Identity, Origin, Table};
use std::sync::Arc;

/// A row of `gpu_health_events`, which may be a step in the life of a finding or a silence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthEvent {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// When, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// `xid`, `ecc`, `ras`, `throttle`, `lost`, `back`, `reads_slowed`, `reads_usual` or `kernel`; or that of a finding's life or of a silence.
    pub kind: Arc<str>,
    /// What happened, in words for people.
    pub detail: Arc<str>,
    /// Id of the finding that this event belongs to.
    pub finding: Option<Arc<str>>,
    /// What is silenced or released; see the column `silenced`.
    pub silenced: Option<Arc<str>>,
    /// When the silence ends, as it is written.
    pub until: Option<Arc<str>>,
    /// A number; see the column `code`.
    pub code: Option<i64>,
}

impl HealthEvent {
    /// The events of some rows, in order of time.
    pub fn of_rows(batch: &Batch) -> Vec<Self> {
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return Vec::new() };
        let text = |name: &str, row| match ExtraValue::of(batch.records().column_by_name(name)?, row)? {
            ExtraValue::Text(text) => Some(text),
            ExtraValue::Number(_) => None,
        };
        #[expect(clippy::cast_possible_truncation, reason = "it was a whole number")]
        let code = |row| match ExtraValue::of(batch.records().column_by_name("code")?, row)? {
            ExtraValue::Number(code) => Some(code as i64),
            ExtraValue::Text(_) => None,
        };
        let event = |(row, (id, at_ns)): (usize, (&u32, &i64))| {
            Some(Self {
                gpu: Arc::clone(keys.keys.get(*id as usize)?),
                at_ns: *at_ns,
                kind: text("kind", row)?,
                detail: text("detail", row).unwrap_or_default(),
                finding: text("finding", row),
                silenced: text("silenced", row),
                until: text("until", row),
                code: code(row),
            })
        };
        let rows = keys.ids.iter().zip(batch.timestamps()).enumerate();
        let mut events: Vec<Self> = rows.filter_map(event).collect();
        events.sort_by_key(|event| event.at_ns);
        events
    }
}

/// Events that no row of a GPU shows, as rows: each with the identity of its GPU, numbered on from `number`. What the table does not take is
/// left out.
pub fn event_rows<'a>(
    events: impl IntoIterator<Item = (&'a HealthEvent, &'a Identity)>,
    origin: Origin,
    number: &mut i64,
) -> Option<Batch> {
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    for (HealthEvent { at_ns, kind, detail, code, .. }, identity) in events {
        *number += 1;
        let (at_ns, sequence, code) = (*at_ns, *number, *code);
        NewEvent { at_ns, sequence, kind, detail, code, ..NewEvent::default() }.write(&mut builder, identity);
    }
    builder.finish(origin, number.unsigned_abs())
}

/// An event that becomes a row.
#[derive(Default)]
pub(crate) struct NewEvent<'a> {
    pub(crate) at_ns: i64,
    /// Part of the row's key.
    pub(crate) sequence: i64,
    pub(crate) kind: &'a str,
    pub(crate) detail: &'a str,
    pub(crate) code: Option<i64>,
    pub(crate) finding: Option<&'a str>,
    pub(crate) silenced: Option<&'a str>,
    pub(crate) until: Option<&'a str>,
}

impl NewEvent<'_> {
    pub(crate) fn write(&self, builder: &mut BatchBuilder, identity: &Identity) {
        let identity = builder.intern(identity);
        let row = builder.row(self.at_ns, identity);
        let mut outcome = builder.set_extra(row, "sequence", self.sequence);
        if let Some(code) = self.code {
            outcome = outcome.and(builder.set_extra(row, "code", code));
        }
        let texts = [
            ("kind", Some(self.kind)),
            ("detail", Some(self.detail)),
            ("finding", self.finding),
            ("silenced", self.silenced),
            ("until", self.until),
        ];
        for (column, text) in texts {
            outcome = outcome.and(text.map_or(Ok(()), |text| builder.set_extra_text(row, column, text)));
        }
        debug_assert_eq!(outcome, Ok(()), "columns of the table");
    }
}
