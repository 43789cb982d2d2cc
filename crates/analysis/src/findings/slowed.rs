//! GPUs whose agent says that their readings have slowed down, and those of the others of their node have not: see
//! [`SlowReads`](crate::slow_reads::SlowReads).

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::{Matcher, RowsQuery, Selector, TextTest};
use gpuvitals_core::identity::AGENT;
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, IdentityColumn, Table};

use crate::freshness::Freshness;
use crate::health_event::HealthEvent;
use crate::slow_reads::SETTLED_NS;

/// Most rows that are read, the newest first: there are two of a GPU that slows down, and seldom any.
const ROWS_MAX: usize = 10_000;
/// How long an agent that was killed may have left the beginning without its end: by then it would have said that this is usual.
const BACK_NS: i64 = SETTLED_NS + MINUTE_NS;

/// GPUs whose readings are slow.
#[derive(Debug, Default)]
pub struct SlowedGpus {
    gpus: HashMap<Arc<str>, HealthEvent>,
}

impl SlowedGpus {
    /// What to ask the history: what agents say of their readings.
    pub fn query(fresh: Freshness) -> Option<RowsQuery> {
        let said = Matcher { column: IdentityColumn::Source, test: TextTest::Is(vec![Arc::from(AGENT)]) };
        Some(RowsQuery {
            selector: Selector::new(vec![said]).ok()?,
            start_ns: Some(fresh.now_ns.saturating_sub(BACK_NS)),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, ROWS_MAX)
        })
    }

    /// Takes the answer: rows of events, if there are any.
    pub fn take(&mut self, batch: Option<&Batch>) {
        self.gpus.clear();
        for event in batch.map(HealthEvent::of_rows).unwrap_or_default() {
            match &*event.kind {
                "reads_slowed" => {
                    self.gpus.insert(Arc::clone(&event.gpu), event);
                }
                "reads_usual" => {
                    self.gpus.remove(&event.gpu);
                }
                _ => {}
            }
        }
    }

    /// The event of a GPU whose readings are slow. The answer may be old: nobody has read a newer one.
    pub(super) fn of(&self, gpu: &str, now_ns: i64) -> Option<&HealthEvent> {
        self.gpus.get(gpu).filter(|slowed| now_ns.saturating_sub(slowed.at_ns) < BACK_NS)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{Identity, Origin};

    use super::*;
    use crate::health_event::event_rows;

    #[test]
    fn the_newest_word_about_a_gpu_counts() {
        let event = |at_ns, gpu: &str, kind: &str| HealthEvent {
            at_ns,
            gpu: gpu.into(),
            kind: kind.into(),
            ..HealthEvent::default()
        };
        let events = [
            event(1, "a", "reads_slowed"),
            event(2, "b", "reads_slowed"),
            event(3, "a", "reads_usual"),
            event(4, "b", "xid"),
            event(5, "c", "reads_usual"),
        ];
        let gpus =
            events.clone().map(|event| Identity::default().with(IdentityColumn::Uuid, &event.gpu).unwrap());
        let rows = event_rows(events.iter().zip(&gpus), Origin::default(), &mut 0);
        let mut slowed = SlowedGpus::default();
        slowed.take(rows.as_ref());
        let of = |slowed: &SlowedGpus, gpu: &str| slowed.of(gpu, 9).map(|event| event.at_ns);
        assert_eq!(["a", "b", "c"].map(|gpu| of(&slowed, gpu)), [None, Some(2), None]);
        assert_eq!(slowed.of("b", 2 + BACK_NS), None, "its agent was killed");
        slowed.take(None);
        assert_eq!(of(&slowed, "b"), None);
    }
}
