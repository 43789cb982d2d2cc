//! From candidates to findings that do not flap.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gpuvitals_core::time::SECOND_NS;

use super::{Candidate, FindingKind, FleetFinding, Subject};

/// Findings through time. A finding opens when candidates for it have come for [`FindingKind::opens_after_ns`], and
/// closes when none has come for [`FindingKind::closes_after_ns`].
#[derive(Debug, Default)]
pub struct Tracker {
    tracked: HashMap<(&'static str, Subject), Tracked>,
}

#[derive(Debug)]
struct Tracked {
    /// The first of the candidates that opened it, or may; a whole second.
    first_ns: i64,
    /// The newest candidate.
    last_ns: i64,
    is_open: bool,
    finding: FleetFinding,
}

impl Tracker {
    /// Takes the candidates of an instant. `is_whole`: nothing of the fleet is missing; otherwise no finding closes, since what
    /// shows it may be in the missing part. Instants come in order.
    pub fn update(&mut self, now_ns: i64, candidates: Vec<Candidate>, is_whole: bool) {
        for candidate in candidates {
            self.take(now_ns, candidate);
        }
        self.tracked.retain(|_, tracked| {
            let FindingKind { closes_after_ns, .. } = *tracked.finding.kind;
            let is_away = tracked.last_ns < now_ns;
            if is_whole || !is_away {
                // One that is not open yet begins anew.
                let patience_ns = if tracked.is_open { closes_after_ns } else { 0 };
                return !is_away || now_ns.saturating_sub(tracked.last_ns) < patience_ns;
            }
            if tracked.is_open {
                tracked.last_ns = now_ns;
            }
            true
        });
    }

    fn take(&mut self, now_ns: i64, Candidate { opens, began_ns, finding }: Candidate) {
        let key = (finding.kind.id, finding.subject.clone());
        let tracked = match self.tracked.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if !opens => return,
            Entry::Vacant(entry) => {
                let first_ns = began_ns.unwrap_or(now_ns).min(now_ns);
                let first_ns = first_ns - first_ns.rem_euclid(SECOND_NS);
                entry.insert(Tracked { first_ns, last_ns: now_ns, is_open: false, finding: finding.clone() })
            }
        };
        if !tracked.is_open && !opens {
            return;
        }
        tracked.last_ns = now_ns;
        tracked.is_open |= now_ns.saturating_sub(tracked.first_ns) >= finding.kind.opens_after_ns;
        tracked.finding = FleetFinding { since_ns: tracked.first_ns, ..finding };
    }

    /// The open findings, the worst first: by severity, then by the number of GPUs concerned, the order of the kinds, and age. One
    /// that another finding about the same GPU covers is left out.
    pub fn open(&self) -> Vec<FleetFinding> {
        let is_open = |kind: &'static str, subject: &Subject| {
            self.tracked.get(&(kind, subject.clone())).is_some_and(|tracked| tracked.is_open)
        };
        let is_covered = |finding: &FleetFinding| {
            let mut covering = super::KINDS.iter().filter(|kind| kind.covers.contains(&finding.kind.id));
            covering.any(|kind| is_open(kind.id, &finding.subject) || is_open(kind.id, &Subject::Fleet))
        };
        let open = self.tracked.values().filter(|tracked| tracked.is_open).map(|tracked| &tracked.finding);
        let mut open: Vec<FleetFinding> = open.filter(|finding| !is_covered(finding)).cloned().collect();
        let place = |finding: &FleetFinding| super::KINDS.iter().position(|kind| kind.id == finding.kind.id);
        open.sort_by(|a, b| {
            let by_severity = b.severity.cmp(&a.severity);
            let by_reach = || b.reach.concerned_gpus.cmp(&a.reach.concerned_gpus);
            let by_kind = || place(a).cmp(&place(b));
            let by_age = || a.since_ns.cmp(&b.since_ns);
            by_severity
                .then_with(by_reach)
                .then_with(by_kind)
                .then_with(by_age)
                .then_with(|| a.subject.cmp(&b.subject))
        });
        open
    }
}
