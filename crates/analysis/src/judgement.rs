//! One word for how a GPU does: the worst open finding about it, else its state. Lists, counts and pages say it alike.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::GpuState;

use crate::condition::Severity;
use crate::coverage::Coverage;
use crate::findings::FleetFinding;

/// How a GPU does, what needs somebody first.
///
/// `critical`, `warning`, `notice`: the severity of the worst open finding about it; `lost`: a finding says that it, its node or the fleet
/// reports nothing any more; `unconfirmed`: its latest values show a condition, and no finding has opened yet; else its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(rename_all = "lowercase"))]
pub enum GpuJudgement {
    /// A critical finding.
    Critical,
    /// It reports nothing any more.
    Lost,
    /// Its values show a condition; the findings are not all known.
    Unhealthy,
    /// A finding that is a warning.
    Warning,
    /// A finding that is a notice.
    Notice,
    /// Its values show a condition, which no finding confirms.
    Unconfirmed,
    /// Its newest row is old.
    Stale,
    /// Nothing is known of its use.
    Unknown,
    /// It is used.
    Active,
    /// It is not used.
    Idle,
}

impl GpuJudgement {
    /// Every judgement, what needs somebody first.
    pub const ALL: [Self; 10] = [
        Self::Critical,
        Self::Lost,
        Self::Unhealthy,
        Self::Warning,
        Self::Notice,
        Self::Unconfirmed,
        Self::Stale,
        Self::Unknown,
        Self::Active,
        Self::Idle,
    ];

    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Lost => "lost",
            Self::Unhealthy => "unhealthy",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Unconfirmed => "unconfirmed",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Active => "active",
            Self::Idle => "idle",
        }
    }
}

impl From<Severity> for GpuJudgement {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Critical => Self::Critical,
            Severity::Warning => Self::Warning,
            Severity::Notice => Self::Notice,
        }
    }
}

/// What the open findings say of each GPU.
#[derive(Debug, Clone, Default)]
pub struct GpuJudge {
    worst: HashMap<Arc<str>, Opinion>,
    lost: HashMap<Arc<str>, Arc<str>>,
    silent_nodes: HashMap<Arc<str>, Arc<str>>,
    silent_fleet: Option<Arc<str>>,
    /// Whether nothing of the fleet is missing: only then a GPU that no finding names has none.
    is_sure: bool,
}

/// A finding about a GPU.
#[derive(Debug, Clone)]
struct Opinion {
    severity: Severity,
    sentence: Arc<str>,
}

impl GpuJudge {
    /// By all open findings, in the order in which they are shown, which were judged by so much of the fleet.
    pub fn of<'a>(findings: impl Iterator<Item = &'a FleetFinding>, coverage: Coverage) -> Self {
        let mut judge = Self { is_sure: coverage == Coverage::Whole, ..Self::default() };
        for finding in findings {
            let sentence: Arc<str> = Arc::from(finding.sentence.as_str());
            match finding.kind.id {
                "fleet_silent" => judge.silent_fleet = Some(Arc::clone(&sentence)),
                "node_silent" => {
                    let node = finding.reach.node.iter().cloned();
                    judge.silent_nodes.extend(node.map(|node| (node, Arc::clone(&sentence))));
                }
                "gpu_lost" => {
                    let gpus = finding.reach.gpus.iter().cloned();
                    judge.lost.extend(gpus.map(|gpu| (gpu, Arc::clone(&sentence))));
                }
                _ => {}
            }
            // Those that somebody looks after stand last, whatever their severity.
            for gpu in &finding.reach.gpus {
                let opinion = Opinion { severity: finding.severity, sentence: Arc::clone(&sentence) };
                match judge.worst.get_mut(gpu) {
                    Some(before) if before.severity >= finding.severity => {}
                    Some(before) => *before = opinion,
                    None => drop(judge.worst.insert(Arc::clone(gpu), opinion)),
                }
            }
        }
        judge
    }

    /// The judgement of a GPU in this state, and the sentence of the finding that it comes from. A reading alone condemns nothing:
    /// a finding opens only after it held for a while.
    pub fn judge(&self, gpu: &GpuState, state: GpuJudgement) -> (GpuJudgement, Option<&str>) {
        let is_stale = state == GpuJudgement::Stale;
        let of_node = || self.silent_nodes.get(gpu.identity.node().filter(|_| is_stale)?);
        let of_fleet = || self.silent_fleet.as_ref().filter(|_| is_stale);
        if let Some(sentence) = self.lost.get(&gpu.key).or_else(of_node).or_else(of_fleet) {
            return (GpuJudgement::Lost, Some(sentence));
        }
        if let Some(Opinion { severity, sentence }) = self.worst.get(&gpu.key) {
            return ((*severity).into(), Some(sentence));
        }
        if state == GpuJudgement::Unhealthy && self.is_sure {
            return (GpuJudgement::Unconfirmed, None);
        }
        (state, None)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{Identity, IdentityColumn};

    use super::*;
    use crate::findings::{Reach, Subject, finding};

    fn about(kind: &'static str, gpus: &[&str], node: Option<&str>) -> FleetFinding {
        let gpus: Vec<Arc<str>> = gpus.iter().map(|gpu| Arc::from(*gpu)).collect();
        let reach = Reach { gpus, node: node.map(Arc::from), ..Reach::default() };
        finding(kind, Subject::Fleet, kind.to_owned(), Vec::new(), reach)
    }

    #[test]
    fn the_worst_finding_counts_and_silence_and_else_the_state() {
        use GpuJudgement::{Critical, Idle, Lost, Notice, Stale, Unconfirmed, Unhealthy, Warning};
        let findings = [
            about("straggler", &["slow", "sick"], None),
            about("xid", &["sick"], None),
            about("clock_held", &["held", "slow"], None),
            about("gpu_lost", &["gone"], None),
            about("node_silent", &["far"], Some("n2")),
        ];
        // A GPU, its node, its state, and the judgement with its finding.
        let table = [
            ("sick", "n1", Idle, (Critical, Some("xid"))),
            ("slow", "n1", Idle, (Warning, Some("straggler"))),
            ("held", "n1", Idle, (Notice, Some("clock_held"))),
            ("gone", "n1", Stale, (Lost, Some("gpu_lost"))),
            ("far", "n2", Stale, (Lost, Some("node_silent"))),
            ("near", "n2", Stale, (Lost, Some("node_silent"))),
            ("far", "n2", Idle, (Critical, Some("node_silent"))),
            ("other", "n1", Stale, (Stale, None)),
            ("other", "n1", Unhealthy, (Unconfirmed, None)),
            ("other", "n1", Idle, (Idle, None)),
        ];
        let state = |key: &str, node: &str| GpuState {
            key: Arc::from(key),
            identity: Identity::default().with(IdentityColumn::Node, node).unwrap(),
            first_seen_ns: 0,
            last_seen_ns: 0,
            latest: Vec::new(),
            extras: Vec::new(),
        };
        let judge = GpuJudge::of(findings.iter(), Coverage::Whole);
        for (gpu, node, word, wanted) in table {
            assert_eq!(judge.judge(&state(gpu, node), word), wanted, "{gpu} {word:?}");
        }
        let unsure = GpuJudge::of(findings.iter(), Coverage::Partial);
        assert_eq!(unsure.judge(&state("other", "n1"), Unhealthy), (Unhealthy, None));
        let all = GpuJudge::of([about("fleet_silent", &[], None)].iter(), Coverage::Whole);
        assert_eq!(all.judge(&state("other", "n1"), Stale), (Lost, Some("fleet_silent")));
        assert!(GpuJudgement::ALL.is_sorted());
    }
}
