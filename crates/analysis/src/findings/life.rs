//! The life of a finding as rows of `gpu_health_events`: it opens, it closes. So are the silences.

use std::sync::Arc;

use gpuvitals_core::identity::OPERATOR;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, time};

use super::silenced::{Silence, SilenceKind};
use super::{FleetFinding, Silenced};
use crate::health_event::NewEvent;

/// A change in the life of a finding, or in what is silenced.
#[derive(Debug, Clone, PartialEq)]
pub struct LifeChange {
    at_ns: i64,
    /// Key of the GPU whose row it becomes.
    gpu: Option<Arc<str>>,
    /// What happened, in the words that the row carries.
    detail: Arc<str>,
    what: LifeEvent,
}

#[derive(Debug, Clone, PartialEq)]
enum LifeEvent {
    /// A finding has begun; it may have begun earlier.
    Opened { finding: String, is_bound: bool },
    /// A finding is over.
    Closed { finding: String },
    /// Somebody looks after something.
    Silenced { silenced: Silenced, until_ns: Option<i64> },
    /// Nobody does any more.
    Released { silenced: Silenced },
}

/// The `kind` of an opening's row.
pub(super) const OPENED: &str = "finding_opened";
/// The `kind` of an end's row.
pub(super) const CLOSED: &str = "finding_closed";
/// Kinds of the events that tell of the life of a finding.
pub const LIFE_KINDS: [&str; 2] = [OPENED, CLOSED];
/// Code of an opening that may have been earlier.
pub(super) const AT_LEAST: i64 = 1;

impl LifeChange {
    pub(super) fn opened(finding: &FleetFinding) -> Self {
        let opened = LifeEvent::Opened { finding: finding.id(), is_bound: finding.since_is_bound };
        Self::of_finding(finding, finding.since_ns, opened)
    }

    /// A finding that was last seen then.
    pub(super) fn closed(finding: &FleetFinding, last_ns: i64) -> Self {
        Self::of_finding(finding, last_ns, LifeEvent::Closed { finding: finding.id() })
    }

    fn of_finding(finding: &FleetFinding, at_ns: i64, what: LifeEvent) -> Self {
        let gpu = finding.reach.gpus.first().cloned();
        Self { at_ns, gpu, detail: Arc::from(finding.sentence.as_str()), what }
    }

    pub(super) fn silenced(silence: &Silence) -> Self {
        let Silence { silenced, at_ns, until_ns, note, gpu } = silence.clone();
        Self { at_ns, gpu, detail: note, what: LifeEvent::Silenced { silenced, until_ns } }
    }

    pub(super) fn released(silence: &Silence, at_ns: i64) -> Self {
        let Silence { silenced, gpu, .. } = silence.clone();
        Self { at_ns, gpu, detail: Arc::default(), what: LifeEvent::Released { silenced } }
    }

    /// Whether a person made it.
    fn is_said(&self) -> bool {
        matches!(self.what, LifeEvent::Silenced { .. } | LifeEvent::Released { .. })
    }

    fn write(&self, builder: &mut BatchBuilder, identity: &Identity, sequence: u64) {
        let sequence = i64::try_from(sequence).unwrap_or(i64::MAX);
        let event = NewEvent { at_ns: self.at_ns, sequence, detail: &self.detail, ..NewEvent::default() };
        match &self.what {
            LifeEvent::Opened { finding, is_bound } => {
                let code = is_bound.then_some(AT_LEAST);
                NewEvent { kind: OPENED, finding: Some(finding), code, ..event }.write(builder, identity);
            }
            LifeEvent::Closed { finding } => {
                NewEvent { kind: CLOSED, finding: Some(finding), ..event }.write(builder, identity);
            }
            LifeEvent::Silenced { silenced, until_ns } => {
                let (kind, silenced) = (SilenceKind::Silenced.name(), silenced.to_string());
                let until = until_ns.map(time::format);
                let event = NewEvent { kind, silenced: Some(&silenced), until: until.as_deref(), ..event };
                event.write(builder, identity);
            }
            LifeEvent::Released { silenced } => {
                let (kind, silenced) = (SilenceKind::Released.name(), silenced.to_string());
                NewEvent { kind, silenced: Some(&silenced), ..event }.write(builder, identity);
            }
        }
    }
}

/// The changes as rows, each with the identity of the first GPU that it is about; what a person said has the source
/// [`OPERATOR`]. `number` counts the rows and is part of their key. A change about an unknown GPU yields no row. None if no change
/// yields one.
pub fn life_rows(
    changes: &[LifeChange],
    identity: impl Fn(&str) -> Option<Identity>,
    origin: Origin,
    number: &mut u64,
) -> Option<Batch> {
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    for change in changes {
        let Some(mut identity) = change.gpu.as_deref().and_then(&identity) else { continue };
        if change.is_said() {
            identity.set(IdentityColumn::Source, OPERATOR).ok()?;
        }
        *number += 1;
        change.write(&mut builder, &identity, *number);
    }
    builder.finish(origin, *number)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::IdentityColumn;
    use gpuvitals_core::time::SECOND_NS;

    use super::*;
    use crate::coverage::Coverage;
    use crate::findings::{Began, Candidate, Reach, Subject, Tracker, finding};
    use crate::health_event::HealthEvent;

    /// A gateway whose rows all others see.
    #[derive(Default)]
    struct Gateway {
        tracker: Tracker,
        rows: u64,
    }

    fn silence(silenced: Silenced, at_s: i64, until_s: Option<i64>, note: &str) -> Silence {
        let until_ns = until_s.map(|second| second * SECOND_NS);
        let gpu = Some(Arc::from("GPU-a"));
        Silence { silenced, at_ns: at_s * SECOND_NS, until_ns, note: note.into(), gpu }
    }

    /// About a GPU of host `c/n` and job `c/ns/train`.
    fn candidate(kind: &'static str) -> Candidate {
        let gpu: Arc<str> = Arc::from("GPU-a");
        let text = |text: &str| Some(Arc::from(text));
        let [cluster, node, namespace, job] = ["c", "n", "ns", "train"].map(text);
        let gpus = vec![Arc::clone(&gpu)];
        let reach = Reach { gpus, cluster, node, namespace, job, ..Reach::default() };
        let finding = finding(kind, Subject::Gpu(gpu), "it is bad".to_owned(), Vec::new(), reach);
        Candidate { opens: true, began: None, finding }
    }

    impl Gateway {
        /// Judges at a second, with the rows so far and its own added to them.
        fn judge(&mut self, second: i64, is_bad: bool, events: &mut Vec<HealthEvent>) {
            let candidates = if is_bad { vec![candidate("xid")] } else { Vec::new() };
            self.tracker.update(second * SECOND_NS, candidates, Coverage::Whole);
            self.tracker.recall_silences(events);
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
            let note = |finding: &FleetFinding| Some(finding.silenced.as_ref()?.note.as_ref().to_owned());
            open.first().map(|finding| (finding.since_ns / SECOND_NS, note(finding)))
        }
    }

    #[test]
    fn a_finding_goes_on_in_another_gateway_with_its_acknowledgement_until_it_closes() {
        let (mut first, mut events) = (Gateway::default(), Vec::new());
        first.judge(100, true, &mut events);
        first.judge(115, true, &mut events);
        first.tracker.silence(silence(Silenced::Finding("xid:GPU-a".into()), 120, None, "Kim: drained"));
        assert_eq!(first.tracker.release(&Silenced::Finding("xid:GPU-b".into()), 0), None);
        first.tell(&mut events);

        let mut second = Gateway::default();
        second.judge(200, true, &mut events);
        assert_eq!(second.since_and_note(), Some((100, Some("Kim: drained".to_owned()))));
        let is_bound =
            |gateway: &Gateway| gateway.tracker.open().iter().all(|finding| finding.since_is_bound);
        assert!(is_bound(&first) && is_bound(&second), "nobody has looked when it began");
        second.tracker.release(&Silenced::Finding("xid:GPU-a".into()), 210 * SECOND_NS).unwrap();
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
        let about = |event: &HealthEvent| event.finding.clone().or_else(|| event.silenced.clone());
        assert!(events.iter().all(|event| about(event).as_deref() == Some("xid:GPU-a")));
        let told = events.iter().map(|event| (event.kind.as_ref(), event.at_ns / SECOND_NS));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("finding_opened", 100),
                ("silenced", 120),
                ("released", 210),
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
        tracker.update(100 * SECOND_NS, vec![candidate("xid")], Coverage::Whole);
        tracker.silence(silence(Silenced::Finding("xid:GPU-a".into()), 101, None, "Kim"));
        let is_said = |changes: Vec<LifeChange>| changes.iter().map(LifeChange::is_said).collect::<Vec<_>>();
        assert_eq!(is_said(tracker.changes_but_openings()), [true]);
        assert_eq!(is_said(tracker.changes()), [false]);
    }

    #[test]
    fn of_the_past_a_young_finding_is_open_only_if_it_opened_later() {
        let mut events = Vec::new();
        let mut gateway = Gateway::default();
        gateway.tracker.update(100 * SECOND_NS, vec![candidate("straggler")], Coverage::Whole);
        gateway.tracker.update(300 * SECOND_NS, vec![candidate("straggler")], Coverage::Whole);
        gateway.tell(&mut events);
        let open = |at_s: i64, events: &[HealthEvent]| {
            let mut tracker = Tracker::of_past();
            tracker.update(at_s * SECOND_NS, vec![candidate("straggler")], Coverage::Whole);
            tracker.recall(events);
            for new in tracker.unlooked(usize::MAX) {
                tracker.looked_back(new.kind, &new.subject, Some(Began::exactly(100 * SECOND_NS)));
            }
            tracker.settle(at_s * SECOND_NS, |_| None);
            tracker.open().iter().map(|finding| finding.since_ns / SECOND_NS).collect::<Vec<_>>()
        };
        assert!(open(101, &[]).is_empty());
        assert_eq!(open(220, &[]), [100]);
        assert_eq!(open(101, &events), [100]);
    }

    #[test]
    fn at_the_end_of_a_recording_what_is_true_from_its_first_row_on_is_open_and_began_then_or_earlier() {
        let found = |began_s: i64, recorded_from_s: Option<i64>| {
            let mut tracker = Tracker::of_past();
            let began = Some(Began::exactly(began_s * SECOND_NS));
            tracker.update(
                103 * SECOND_NS,
                vec![Candidate { began, ..candidate("gpu_missing") }],
                Coverage::Whole,
            );
            tracker.settle(103 * SECOND_NS, |_| Some(recorded_from_s? * SECOND_NS + 1));
            let found = tracker.open();
            found.first().map(|finding| (finding.since_ns / SECOND_NS, finding.since_is_bound))
        };
        assert_eq!(found(100, Some(100)), Some((100, true)));
        assert_eq!(found(101, Some(100)), None, "it began within the recording, and too late");
        assert_eq!(found(100, None), None, "more rows may come");
    }

    #[test]
    fn what_somebody_looks_after_stands_behind_what_nobody_does() {
        let mut tracker = Tracker::default();
        tracker.update(0, vec![candidate("xid"), candidate("row_remap_pending")], Coverage::Whole);
        let order =
            |tracker: &Tracker| tracker.open().iter().map(|finding| finding.kind.id).collect::<Vec<_>>();
        assert_eq!(order(&tracker), ["xid", "row_remap_pending"]);
        tracker.silence(silence(Silenced::Finding("xid:GPU-a".into()), 1, None, ""));
        assert_eq!(order(&tracker), ["row_remap_pending", "xid"]);
        // It stays so at the next judgement.
        tracker.update(SECOND_NS, vec![candidate("xid"), candidate("row_remap_pending")], Coverage::Whole);
        assert_eq!(order(&tracker), ["row_remap_pending", "xid"]);
    }

    #[test]
    fn a_silence_ends_by_itself_in_every_gateway_after_a_restart_and_in_a_look_back() {
        let job = || Silenced::Job("c/ns/train".into());
        for silenced in [Silenced::Finding("xid:GPU-a".into()), Silenced::Host("c/n".into()), job()] {
            let (mut first, mut events) = (Gateway::default(), Vec::new());
            first.judge(100, true, &mut events);
            first.tracker.silence(silence(silenced.clone(), 110, Some(200), "Kim: board exchange"));
            first.tell(&mut events);
            let mut second = Gateway::default();
            for (second_of, note) in
                [(120, Some("Kim: board exchange")), (199, Some("Kim: board exchange")), (200, None)]
            {
                first.judge(second_of, true, &mut events);
                second.judge(second_of, true, &mut events);
                let mut restarted = Gateway::default();
                restarted.judge(second_of, true, &mut events);
                let mut past = Tracker::of_past();
                past.update(second_of * SECOND_NS, vec![candidate("xid")], Coverage::Whole);
                past.recall_silences(&events);
                past.recall(&events);
                let past = Gateway { tracker: past, rows: 0 };
                for gateway in [&first, &second, &restarted, &past] {
                    let shown = gateway.since_and_note().and_then(|(_, note)| note);
                    assert_eq!(shown.as_deref(), note, "{silenced} at {second_of}");
                    assert_eq!(gateway.tracker.silences().len(), usize::from(note.is_some()));
                }
            }
            // As of an instant before it nobody had silenced anything.
            let mut past = Tracker::of_past();
            past.update(105 * SECOND_NS, vec![candidate("xid")], Coverage::Whole);
            let then: Vec<HealthEvent> =
                events.iter().filter(|event| event.at_ns <= 105 * SECOND_NS).cloned().collect();
            past.recall_silences(&then);
            assert!(past.silences().is_empty());
        }
    }

    #[test]
    fn a_silence_of_a_host_covers_what_opens_later_and_nothing_of_another_host() {
        let (mut gateway, mut events) = (Gateway::default(), Vec::new());
        gateway.judge(100, false, &mut events);
        for silenced in
            [Silenced::Host("c/other".into()), Silenced::Host("n".into()), Silenced::Job("c/ns/x".into())]
        {
            gateway.tracker.silence(silence(silenced, 101, Some(900), "not here"));
        }
        gateway.judge(110, true, &mut events);
        assert_eq!(gateway.since_and_note(), Some((110, None)));
        gateway.tracker.silence(silence(Silenced::Host("c/n".into()), 120, Some(900), "Kim"));
        gateway.judge(520, false, &mut events);
        assert_eq!(gateway.since_and_note(), None, "it has closed");
        gateway.judge(530, true, &mut events);
        assert_eq!(gateway.since_and_note(), Some((530, Some("Kim".to_owned()))));
        let short = Silenced::Host("n".into());
        gateway.tracker.release(&short, 540 * SECOND_NS).unwrap();
        assert_eq!(
            gateway.since_and_note(),
            Some((530, Some("Kim".to_owned()))),
            "that of the host without cluster"
        );
        gateway.tracker.release(&short, 541 * SECOND_NS).unwrap();
        assert_eq!(gateway.since_and_note(), Some((530, None)));
    }
}
