//! The life of a finding as rows of `gpu_health_events`: it opens, somebody acknowledges it, it closes.

use std::sync::Arc;

use gpuvitals_core::{Batch, BatchBuilder, Identity, Origin, Table};

use super::FleetFinding;
use crate::health_event::NewEvent;

/// A change in the life of a finding.
#[derive(Debug, Clone, PartialEq)]
pub struct LifeChange {
    /// What happened.
    pub kind: LifeKind,
    /// When: the beginning of the finding, the acknowledgement, or the last instant at which it was seen; nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// The finding.
    pub finding: FleetFinding,
    /// In words.
    pub detail: Arc<str>,
}

/// What happens to a finding. In the order in which it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeKind {
    /// It has begun.
    Opened,
    /// Somebody looks after it.
    Acknowledged,
    /// Nobody does any more.
    Released,
    /// It is over.
    Closed,
}

impl LifeKind {
    const ALL: [Self; 4] = [Self::Opened, Self::Acknowledged, Self::Released, Self::Closed];

    /// The `kind` of its rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "finding_opened",
            Self::Acknowledged => "finding_acknowledged",
            Self::Released => "finding_released",
            Self::Closed => "finding_closed",
        }
    }

    /// That of a row.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Code of an opening that may have been earlier.
pub(super) const AT_LEAST: i64 = 1;

/// The changes as rows, each with the identity of the first GPU that the finding is about. `number` counts the rows and is part of
/// their key. A change about an unknown GPU yields no row. None if no change yields one.
pub fn life_rows(
    changes: &[LifeChange],
    identity: impl Fn(&str) -> Option<Identity>,
    origin: Origin,
    number: &mut u64,
) -> Option<Batch> {
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    for LifeChange { kind, at_ns, finding, detail } in changes {
        let Some(identity) = finding.reach.gpus.first().and_then(|gpu| identity(gpu)) else { continue };
        *number += 1;
        let event = NewEvent {
            at_ns: *at_ns,
            sequence: i64::try_from(*number).unwrap_or(i64::MAX),
            kind: kind.name(),
            detail,
            code: (*kind == LifeKind::Opened && finding.since_is_bound).then_some(AT_LEAST),
            finding: Some(&finding.id()),
        };
        event.write(&mut builder, &identity);
    }
    builder.finish(origin, *number)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::IdentityColumn;
    use gpuvitals_core::time::SECOND_NS;

    use super::*;
    use crate::findings::{Began, Candidate, Reach, Subject, Tracker, finding};
    use crate::health_event::HealthEvent;

    /// A gateway whose rows all others see.
    #[derive(Default)]
    struct Gateway {
        tracker: Tracker,
        rows: u64,
    }

    fn candidate(kind: &'static str) -> Candidate {
        let gpu: Arc<str> = Arc::from("GPU-a");
        let reach = Reach { gpus: vec![Arc::clone(&gpu)], ..Reach::default() };
        let finding = finding(kind, Subject::Gpu(gpu), "it is bad".to_owned(), Vec::new(), reach);
        Candidate { opens: true, began: None, finding }
    }

    impl Gateway {
        /// Judges at a second, with the rows so far and its own added to them.
        fn judge(&mut self, second: i64, is_bad: bool, events: &mut Vec<HealthEvent>) {
            let candidates = if is_bad { vec![candidate("xid")] } else { Vec::new() };
            self.tracker.update(second * SECOND_NS, candidates, true);
            self.tracker.recall(events);
            self.tell(events);
        }

        fn tell(&mut self, events: &mut Vec<HealthEvent>) {
            let identity = |gpu: &str| Identity::default().with(IdentityColumn::Uuid, gpu).ok();
            let origin = Origin { node: Arc::from("gateway"), started_ns: 1 };
            let rows = life_rows(&self.tracker.changes(), identity, origin, &mut self.rows);
            events.extend(rows.iter().flat_map(HealthEvent::of_rows));
            events.sort_by_key(|event| event.at_ns);
        }

        fn since_and_note(&self) -> Option<(i64, Option<String>)> {
            let open = self.tracker.open();
            let note = |finding: &FleetFinding| Some(finding.acknowledged.as_ref()?.note.as_ref().to_owned());
            open.first().map(|finding| (finding.since_ns / SECOND_NS, note(finding)))
        }
    }

    #[test]
    fn a_finding_goes_on_in_another_gateway_with_its_acknowledgement_until_it_closes() {
        let (mut first, mut events) = (Gateway::default(), Vec::new());
        first.judge(100, true, &mut events);
        first.judge(115, true, &mut events);
        let acknowledged =
            first.tracker.acknowledge("xid:GPU-a", 120 * SECOND_NS, Some(Arc::from("Kim: drained")));
        assert!(acknowledged.is_some() && first.tracker.acknowledge("xid:GPU-b", 0, None).is_none());
        first.tell(&mut events);

        let mut second = Gateway::default();
        second.judge(200, true, &mut events);
        assert_eq!(second.since_and_note(), Some((100, Some("Kim: drained".to_owned()))));
        let is_bound =
            |gateway: &Gateway| gateway.tracker.open().iter().all(|finding| finding.since_is_bound);
        assert!(is_bound(&first) && is_bound(&second), "nobody has looked when it began");
        second.tracker.acknowledge("xid:GPU-a", 210 * SECOND_NS, None);
        second.judge(215, true, &mut events);
        assert_eq!(second.since_and_note(), Some((100, None)));
        // The first hears of it; its own acknowledgement is older.
        first.judge(220, true, &mut events);
        assert_eq!(first.since_and_note(), Some((100, None)));
        assert!(is_bound(&first) && is_bound(&second), "an acknowledgement is no look");
        first.judge(520, false, &mut events);
        assert_eq!(first.since_and_note(), None);

        // What comes after the end is another one.
        let mut third = Gateway::default();
        third.judge(600, true, &mut events);
        assert_eq!(third.since_and_note(), Some((600, None)));
        let told = events.iter().map(|event| (event.kind.as_ref(), event.at_ns / SECOND_NS));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("finding_opened", 100),
                ("finding_acknowledged", 120),
                ("finding_released", 210),
                ("finding_closed", 220),
                ("finding_opened", 600),
            ]
        );
        let details: Vec<&str> = events.iter().map(|event| event.detail.as_ref()).collect();
        assert_eq!(details, ["it is bad", "Kim: drained", "", "it is bad", "it is bad"]);
    }

    #[test]
    fn an_acknowledgement_does_not_tell_openings_that_the_history_was_not_asked_about() {
        let mut tracker = Tracker::default();
        tracker.update(100 * SECOND_NS, vec![candidate("xid")], true);
        tracker.acknowledge("xid:GPU-a", 101 * SECOND_NS, Some(Arc::from("Kim")));
        let kinds = |changes: Vec<LifeChange>| changes.iter().map(|change| change.kind).collect::<Vec<_>>();
        assert_eq!(kinds(tracker.changes_but_openings()), [LifeKind::Acknowledged]);
        assert_eq!(kinds(tracker.changes()), [LifeKind::Opened]);
    }

    #[test]
    fn of_the_past_a_young_finding_is_open_only_if_it_opened_later() {
        let mut events = Vec::new();
        let mut gateway = Gateway::default();
        gateway.tracker.update(100 * SECOND_NS, vec![candidate("straggler")], true);
        gateway.tracker.update(300 * SECOND_NS, vec![candidate("straggler")], true);
        gateway.tell(&mut events);
        let open = |at_s: i64, events: &[HealthEvent]| {
            let mut tracker = Tracker::of_past();
            tracker.update(at_s * SECOND_NS, vec![candidate("straggler")], true);
            tracker.recall(events);
            for new in tracker.unlooked(usize::MAX) {
                tracker.looked_back(new.kind, &new.subject, Some(Began::exactly(100 * SECOND_NS)));
            }
            tracker.settle(at_s * SECOND_NS);
            tracker.open().iter().map(|finding| finding.since_ns / SECOND_NS).collect::<Vec<_>>()
        };
        assert!(open(101, &[]).is_empty());
        assert_eq!(open(220, &[]), [100]);
        assert_eq!(open(101, &events), [100]);
    }

    #[test]
    fn what_somebody_looks_after_stands_behind_what_nobody_does() {
        let mut tracker = Tracker::default();
        tracker.update(0, vec![candidate("xid"), candidate("row_remap_pending")], true);
        let order =
            |tracker: &Tracker| tracker.open().iter().map(|finding| finding.kind.id).collect::<Vec<_>>();
        assert_eq!(order(&tracker), ["xid", "row_remap_pending"]);
        tracker.acknowledge("xid:GPU-a", 1, Some(Arc::default()));
        assert_eq!(order(&tracker), ["row_remap_pending", "xid"]);
        // It stays so at the next judgement.
        tracker.update(SECOND_NS, vec![candidate("xid"), candidate("row_remap_pending")], true);
        assert_eq!(order(&tracker), ["row_remap_pending", "xid"]);
    }
}
