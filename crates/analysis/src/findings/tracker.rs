//! From candidates to findings that do not flap.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gpuvitals_core::time::SECOND_NS;

use super::life::{self, LifeChange};
use super::silenced::{Silence, Silences};
use super::{Began, Candidate, Evidence, FindingKind, FleetFinding, Silenced, Subject};
use crate::coverage::Coverage;
use crate::health_event::HealthEvent;

/// Findings through time. A finding opens when candidates for it have come for [`FleetFinding::opens_after_ns`], and
/// closes when none has come for [`FindingKind::closes_after_ns`].
///
/// Its life is kept elsewhere as events: after [`Tracker::update`] and [`Tracker::recall`], [`Tracker::changes`] are what is new.
#[derive(Debug, Default)]
pub struct Tracker {
    tracked: HashMap<(&'static str, Subject), Tracked>,
    silences: Silences,
    /// The last instant.
    now_ns: i64,
    /// What is not told yet.
    changes: Vec<LifeChange>,
    /// Whether one instant of the past is looked at: a finding opens with its first candidate, until [`Tracker::settle`] closes what had
    /// not held for long enough.
    is_of_past: bool,
}

#[derive(Debug)]
struct Tracked {
    /// The first of the candidates that opened it, or may, or what shows it earlier; a whole second.
    began: Began,
    /// When its first candidate came: it may have begun long before.
    first_ns: i64,
    /// The newest candidate.
    last_ns: i64,
    is_open: bool,
    /// Whether the history was asked when it began, or the candidate said so.
    is_looked: bool,
    /// Whether [`Tracker::changes`] has reported its opening.
    is_told: bool,
    finding: FleetFinding,
}

impl Tracker {
    /// Of one instant of the past: what had held for how long is asked of the history alone.
    pub fn of_past() -> Self {
        Self { is_of_past: true, ..Self::default() }
    }

    /// Whether one instant of the past is looked at.
    pub fn is_of_past(&self) -> bool {
        self.is_of_past
    }

    /// Closes what had not held for long enough at the one instant that is looked at, as far as the history knows. What opened later,
    /// by its rows, had begun by then.
    ///
    /// `recorded_from` is the first row of those that a finding is about, if a recording ends at the instant: what is true from it on may have
    /// held for any time before, and no later row will tell. It is open.
    pub fn settle(&mut self, at_ns: i64, recorded_from: impl Fn(&FleetFinding) -> Option<i64>) {
        self.tracked.retain(|_, tracked| {
            if recorded_from(&tracked.finding).is_some_and(|from_ns| tracked.began.at_ns <= from_ns) {
                tracked.begin(Some(Began { is_bound: true, ..tracked.began }));
            }
            let held_ns = at_ns.saturating_sub(tracked.began.at_ns);
            let is_sure = tracked.is_told || tracked.began.is_bound || !tracked.is_looked;
            is_sure || held_ns >= tracked.finding.opens_after_ns
        });
    }

    /// Takes the candidates of an instant. Of a part of the fleet they close no finding, since what shows it may be in the missing
    /// part. Instants come in order.
    pub fn update(&mut self, now_ns: i64, candidates: Vec<Candidate>, coverage: Coverage) {
        for candidate in candidates {
            self.take(now_ns, candidate);
        }
        self.now_ns = now_ns;
        let (changes, silences) = (&mut self.changes, &mut self.silences);
        self.tracked.retain(|_, tracked| {
            let FindingKind { closes_after_ns, .. } = *tracked.finding.kind;
            let is_away = tracked.last_ns < now_ns;
            if is_away && tracked.is_open && coverage == Coverage::Partial {
                tracked.last_ns = now_ns;
            }
            // One that is not open yet begins anew.
            let patience_ns = if tracked.is_open { closes_after_ns } else { 0 };
            let stays = !is_away || now_ns.saturating_sub(tracked.last_ns) < patience_ns;
            if !stays && tracked.is_told {
                changes.push(LifeChange::closed(&tracked.finding, tracked.last_ns));
            }
            if !stays && tracked.is_open {
                silences.close(&tracked.finding.id(), now_ns);
            }
            stays
        });
        let tracked = &self.tracked;
        silences.forget(now_ns, |id| tracked.values().any(|tracked| tracked.finding.id() == id));
    }

    fn take(&mut self, now_ns: i64, Candidate { opens, began, finding }: Candidate) {
        let key = (finding.kind.id, finding.subject.clone());
        let tracked = match self.tracked.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if !opens => return,
            Entry::Vacant(entry) => entry.insert(Tracked {
                began: Began { at_ns: now_ns - now_ns.rem_euclid(SECOND_NS), is_bound: true },
                first_ns: now_ns - now_ns.rem_euclid(SECOND_NS),
                last_ns: now_ns,
                is_open: false,
                is_looked: began.is_some(),
                is_told: false,
                finding: finding.clone(),
            }),
        };
        if !tracked.is_open && !opens {
            return;
        }
        tracked.last_ns = now_ns;
        tracked.begin(began);
        let from_ns = if finding.kind.opens_by_looks { tracked.first_ns } else { tracked.began.at_ns };
        let has_held = now_ns.saturating_sub(from_ns) >= finding.opens_after_ns;
        tracked.is_open |= has_held || self.is_of_past;
        let Began { at_ns: since_ns, is_bound: since_is_bound } = tracked.began;
        tracked.finding = FleetFinding { since_ns, since_is_bound, ..finding };
    }

    /// The open findings that began when nobody looked, for [`Tracker::looked_back`]: the worst first, so many at most.
    pub fn unlooked(&self, most: usize) -> Vec<FleetFinding> {
        let is_unlooked = |tracked: &&Tracked| tracked.is_open && !tracked.is_told && !tracked.is_looked;
        let unlooked = self.tracked.values().filter(is_unlooked);
        let mut findings: Vec<FleetFinding> = unlooked.map(|tracked| tracked.finding.clone()).collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.subject.cmp(&b.subject)));
        findings.truncate(most);
        findings
    }

    /// Takes when a finding began by history; none: history does not show it.
    pub fn looked_back(&mut self, kind: &FindingKind, subject: &Subject, began: Option<Began>) {
        if let Some(tracked) = self.tracked.get_mut(&(kind.id, subject.clone())) {
            tracked.is_looked = true;
            tracked.begin(began);
        }
    }

    /// The open findings whose opening is not told yet.
    pub fn untold(&self) -> impl Iterator<Item = &FleetFinding> {
        self.tracked
            .values()
            .filter(|tracked| tracked.is_open && !tracked.is_told)
            .map(|tracked| &tracked.finding)
    }

    /// Takes what people silenced and released, from rows that may come in any order, and again.
    pub fn recall_silences(&mut self, events: &[HealthEvent]) {
        self.silences.recall(events);
    }

    /// Takes events about the GPUs of open findings, in order of time. A finding whose opening is not told yet goes on with the
    /// beginning that they show, unless they show its end, too. What was silenced before its end is taken first
    /// ([`Tracker::recall_silences`]).
    pub fn recall(&mut self, events: &[HealthEvent]) {
        let mut lives: HashMap<&str, Vec<&HealthEvent>> = HashMap::new();
        for event in events {
            if let Some(id) = &event.finding {
                lives.entry(id).or_default().push(event);
            }
        }
        for tracked in self.tracked.values_mut().filter(|tracked| tracked.is_open && !tracked.is_told) {
            if let Some(life) = lives.get(tracked.finding.id().as_str()) {
                tracked.recall(life, &mut self.silences);
            }
        }
    }

    /// An open finding, by id.
    pub fn open_one(&self, id: &str) -> Option<&FleetFinding> {
        let open = self.tracked.values().filter(|tracked| tracked.is_open);
        open.map(|tracked| &tracked.finding).find(|finding| finding.id() == id)
    }

    /// Takes a silence that somebody asks for.
    pub fn silence(&mut self, silence: Silence) {
        self.changes.push(LifeChange::silenced(&silence));
        self.silences.begin(silence);
    }

    /// Ends the silence that people call so, and returns it; none: nothing of this name is silenced.
    pub fn release(&mut self, asked: &Silenced, now_ns: i64) -> Option<Silence> {
        let silences = self.silences();
        let exact = silences.iter().find(|silence| silence.silenced == *asked);
        let called = || silences.iter().find(|silence| silence.silenced.is_called(asked));
        let silence = Silence::clone(exact.or_else(called)?);
        self.changes.push(LifeChange::released(&silence, now_ns));
        self.silences.end(silence.silenced.clone(), now_ns);
        Some(silence)
    }

    /// The silences that hold, in the order of what they silence. One of a finding is there as long as the finding is open.
    pub fn silences(&self) -> Vec<&Silence> {
        let mut silences = self.silences.holding(self.now_ns);
        silences.retain(|silence| match &silence.silenced {
            Silenced::Finding(id) => {
                self.open_one(id).is_some_and(|finding| silence.at_ns >= finding.since_ns)
            }
            Silenced::Host(_) | Silenced::Job(_) => true,
        });
        silences
    }

    /// The silence that covers an open finding: its own, or that of its job or host.
    fn silence_over(&self, finding: &FleetFinding) -> Option<&Silence> {
        let of = |silenced: Silenced| self.silences.of(&silenced, self.now_ns);
        // One from before it began was that of another finding about the same subject.
        let own =
            of(Silenced::Finding(finding.id().into())).filter(|silence| silence.at_ns >= finding.since_ns);
        let of_job = || of(Silenced::Job(finding.holder()?));
        let of_host = || of(Silenced::Host(finding.host()?));
        own.or_else(of_job).or_else(of_host)
    }

    /// Changes that can be told at once. Openings wait: the history is asked first whether they are new.
    pub fn changes_but_openings(&mut self) -> Vec<LifeChange> {
        std::mem::take(&mut self.changes)
    }

    /// What has happened and is not told yet.
    pub fn changes(&mut self) -> Vec<LifeChange> {
        let untold = self.tracked.values_mut().filter(|tracked| tracked.is_open && !tracked.is_told);
        let opened = untold.map(|tracked| {
            tracked.is_told = true;
            LifeChange::opened(&tracked.finding)
        });
        let mut changes: Vec<LifeChange> = opened.collect();
        changes.append(&mut self.changes_but_openings());
        changes
    }

    /// The open findings: those that nobody looks after, and then the others. Of each the worst first: by severity, then by the number
    /// of GPUs concerned, the order of the kinds, and age. One that another finding about the same GPU covers is left out; the other
    /// one has its values.
    pub fn open(&self) -> Vec<FleetFinding> {
        let open = self.tracked.values().filter(|tracked| tracked.is_open).map(|tracked| &tracked.finding);
        let mut by_subject: HashMap<&Subject, Vec<&FleetFinding>> = HashMap::new();
        for finding in open {
            by_subject.entry(&finding.subject).or_default().push(finding);
        }
        let place = |finding: &FleetFinding| super::KINDS.iter().position(|kind| kind.id == finding.kind.id);
        for findings in by_subject.values_mut() {
            findings.sort_by_key(|finding| place(finding));
        }
        let of = |subject: &Subject| by_subject.get(subject).map_or(&[][..], Vec::as_slice);
        let is_covered = |finding: &FleetFinding| {
            let mut others = of(&finding.subject).iter().chain(of(&Subject::Fleet));
            others.any(|other| other.covers(finding))
        };
        let shown = |finding: &FleetFinding| {
            let covered = covered_by(finding, of(&finding.subject));
            let silenced = self.silence_over(finding).cloned();
            let finding = FleetFinding { silenced, ..finding.clone() };
            with_evidence(finding, covered.into_iter().flat_map(|other| &other.evidence))
        };
        let all = by_subject.values().flatten();
        let mut open: Vec<FleetFinding> =
            all.filter(|finding| !is_covered(finding)).map(|finding| shown(finding)).collect();
        open.sort_by(|a, b| {
            let by_neglect = a.silenced.is_some().cmp(&b.silenced.is_some());
            let by_severity = || b.severity.cmp(&a.severity);
            let by_reach = || b.reach.concerned_gpus.cmp(&a.reach.concerned_gpus);
            let by_kind = || place(a).cmp(&place(b));
            let by_age = || a.since_ns.cmp(&b.since_ns);
            by_neglect
                .then_with(by_severity)
                .then_with(by_reach)
                .then_with(by_kind)
                .then_with(by_age)
                .then_with(|| a.subject.cmp(&b.subject))
        });
        open
    }
}

/// The findings about the same GPU that one hides: those that it covers, and those that these would.
fn covered_by<'a>(finding: &FleetFinding, others: &[&'a FleetFinding]) -> Vec<&'a FleetFinding> {
    let mut covered: Vec<&FleetFinding> = Vec::new();
    let is_new = |covered: &[&FleetFinding], one: &FleetFinding| {
        one.kind != finding.kind && covered.iter().all(|other| other.kind != one.kind)
    };
    loop {
        let more = others.iter().copied().find(|one| {
            let is_hidden = finding.covers(one) || covered.iter().any(|other| other.covers(one));
            is_hidden && is_new(&covered, one)
        });
        match more {
            Some(one) => covered.push(one),
            None => return covered,
        }
    }
}

/// A finding with more values that show it, of quantities that it does not have yet.
fn with_evidence<'a>(mut finding: FleetFinding, more: impl Iterator<Item = &'a Evidence>) -> FleetFinding {
    for evidence in more {
        if finding.evidence.iter().all(|own| own.quantity != evidence.quantity) {
            finding.evidence.push(evidence.clone());
        }
    }
    finding
}

impl Tracked {
    /// It began then, unless it is known to have begun earlier.
    fn begin(&mut self, began: Option<Began>) {
        let Some(Began { at_ns, is_bound }) = began else { return };
        let at_ns = at_ns - at_ns.rem_euclid(SECOND_NS);
        if at_ns <= self.began.at_ns {
            self.began = Began { at_ns, is_bound };
            (self.finding.since_ns, self.finding.since_is_bound) = (at_ns, is_bound);
        }
    }

    fn recall(&mut self, life: &[&HealthEvent], silences: &mut Silences) {
        let (mut since_ns, mut is_bound) = (None, false);
        for HealthEvent { at_ns, kind, code, .. } in life {
            match (kind.as_ref(), since_ns) {
                (life::OPENED, None) => (since_ns, is_bound) = (Some(*at_ns), *code == Some(life::AT_LEAST)),
                (life::CLOSED, Some(_)) => {
                    since_ns = None;
                    silences.close(&self.finding.id(), *at_ns);
                }
                _ => {}
            }
        }
        if let Some(at_ns) = since_ns {
            self.is_told = true;
            self.begin(Some(Began { at_ns, is_bound }));
        }
    }
}
