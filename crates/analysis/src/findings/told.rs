//! What agents themselves say of GPUs, and no value shows: readings that have slowed down (see
//! [`SlowReads`](crate::slow_reads::SlowReads)), and XIDs that the kernel's log alone tells of.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::{Matcher, RowsQuery, Selector, TextTest};
use gpuvitals_core::identity::AGENT;
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS};
use gpuvitals_core::{Batch, IdentityColumn, Table};

use crate::coverage::Coverage;
use crate::freshness::Freshness;
use crate::health_event::HealthEvent;
use crate::slow_reads::SETTLED_NS;

/// Most rows that are read, the newest first: there are two of a GPU that slows down, and seldom any.
const ROWS_MAX: usize = 10_000;
/// How far a look goes back behind the one before: rows take a while to arrive, and of slow readings it may take some minutes until it is known
/// that they are not the whole node's.
const LATE_NS: i64 = SETTLED_NS + 2 * MINUTE_NS;
/// How long an agent that was killed may have left slow readings without their end: by then it would have said that they are usual.
const SLOW_NS: i64 = SETTLED_NS + MINUTE_NS;
/// How long an XID stands that no driver holds.
const XID_NS: i64 = HOUR_NS;

/// The newest words of agents about GPUs.
#[derive(Debug, Default)]
pub struct AgentWords {
    asked_ns: i64,
    /// Until when they were read.
    read_ns: Option<i64>,
    slowed: HashMap<Arc<str>, HealthEvent>,
    xids: HashMap<Arc<str>, HealthEvent>,
}

impl AgentWords {
    /// What to ask the history for those that are new.
    pub fn next_query(&mut self, fresh: Freshness) -> Option<RowsQuery> {
        let said = Matcher { column: IdentityColumn::Source, test: TextTest::Is(vec![Arc::from(AGENT)]) };
        let back_ns = fresh.now_ns.saturating_sub(DAY_NS);
        self.asked_ns = fresh.now_ns;
        Some(RowsQuery {
            selector: Selector::new(vec![said]).ok()?,
            start_ns: Some(self.read_ns.map_or(back_ns, |read_ns| back_ns.max(read_ns - LATE_NS))),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, ROWS_MAX)
        })
    }

    /// Takes the answer: rows of events, if there are any. Those that come again change nothing: what is missing now is asked for again.
    pub fn take(&mut self, batch: Option<&Batch>, coverage: Coverage) {
        for event in batch.map(HealthEvent::of_rows).unwrap_or_default() {
            match &*event.kind {
                "reads_slowed" => {
                    self.slowed.insert(Arc::clone(&event.gpu), event);
                }
                "reads_usual" => {
                    self.slowed.remove(&event.gpu);
                }
                "xid" => {
                    self.xids.insert(Arc::clone(&event.gpu), event);
                }
                _ => {}
            }
        }
        let now_ns = self.asked_ns;
        self.slowed.retain(|_, event| is_within(event, now_ns, SLOW_NS));
        self.xids.retain(|_, event| is_within(event, now_ns, DAY_NS));
        if coverage == Coverage::Whole {
            self.read_ns = Some(now_ns);
        }
    }

    /// The event of a GPU whose readings are slow.
    pub(super) fn slowed(&self, gpu: &str, now_ns: i64) -> Option<&HealthEvent> {
        self.slowed.get(gpu).filter(|event| is_within(event, now_ns, SLOW_NS))
    }

    /// When an XID came to a GPU that no driver tells of, and its code.
    pub(super) fn xid(&self, gpu: &str, now_ns: i64) -> Option<(i64, i64)> {
        let event = self.xids.get(gpu).filter(|event| is_within(event, now_ns, XID_NS))?;
        Some((event.at_ns, event.code?))
    }

    /// The code of the last one in a day.
    pub(super) fn xid_of_day(&self, gpu: &str) -> Option<i64> {
        self.xids.get(gpu)?.code
    }
}

/// Whether an event is no older than this.
fn is_within(event: &HealthEvent, now_ns: i64, age_ns: i64) -> bool {
    now_ns.saturating_sub(event.at_ns) < age_ns
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{Identity, Origin};

    use super::*;
    use crate::health_event::event_rows;

    const NOW_NS: i64 = 100 * DAY_NS;

    fn event(minutes_ago: i64, gpu: &str, kind: &str, code: i64) -> HealthEvent {
        HealthEvent {
            at_ns: NOW_NS - minutes_ago * MINUTE_NS,
            gpu: gpu.into(),
            kind: kind.into(),
            code: Some(code),
            ..HealthEvent::default()
        }
    }

    fn take(words: &mut AgentWords, events: &[HealthEvent]) -> Option<RowsQuery> {
        let asked = words.next_query(Freshness { now_ns: NOW_NS, stale_after_ns: MINUTE_NS });
        let of = |event: &HealthEvent| Identity::default().with(IdentityColumn::Uuid, &event.gpu).unwrap();
        let gpus: Vec<Identity> = events.iter().map(of).collect();
        let rows = event_rows(events.iter().zip(&gpus), Origin::default(), &mut 0);
        words.take(rows.as_ref(), Coverage::Whole);
        asked
    }

    #[test]
    fn the_newest_word_about_a_gpu_counts() {
        let mut words = AgentWords::default();
        let asked = take(
            &mut words,
            &[
                event(9, "a", "reads_slowed", 41_000),
                event(8, "b", "reads_slowed", 41_000),
                event(7, "a", "reads_usual", 0),
                event(6, "b", "kernel", 79),
                event(5, "c", "reads_usual", 0),
                event(20, "d", "reads_slowed", 41_000),
            ],
        );
        assert_eq!(asked.unwrap().start_ns, Some(NOW_NS - DAY_NS));
        let slowed = |words: &AgentWords| ["a", "b", "c", "d"].map(|gpu| words.slowed(gpu, NOW_NS).is_some());
        assert_eq!(slowed(&words), [false, true, false, false]);
        assert!(words.slowed("b", NOW_NS + SLOW_NS).is_none(), "its agent was killed");
        // The same once more, and then nothing.
        let asked = take(&mut words, &[event(8, "b", "reads_slowed", 41_000)]);
        assert_eq!(asked.unwrap().start_ns, Some(NOW_NS - LATE_NS));
        take(&mut words, &[]);
        assert_eq!(slowed(&words), [false, true, false, false]);
    }

    #[test]
    fn an_xid_that_no_driver_holds_stands_for_an_hour() {
        let mut words = AgentWords::default();
        take(&mut words, &[event(50, "a", "xid", 13), event(40, "a", "xid", 79), event(70, "b", "xid", 31)]);
        assert_eq!(words.xid("a", NOW_NS), Some((NOW_NS - 40 * MINUTE_NS, 79)));
        assert_eq!((words.xid("b", NOW_NS), words.xid_of_day("b")), (None, Some(31)));
        assert_eq!(words.xid("a", NOW_NS + HOUR_NS), None);
    }
}
