//! The incidents of jobs that this gateway keeps, who listens for requests, and how much comes in at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvitals_analysis::findings::FleetFinding;
use gpuvitals_core::causes;
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_flight::{JobError, JobIncidents, JobMembers};
use gpuvitals_listener::body::{Budget, Share};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use crate::error::ApiError;
use crate::watch::Judgement;

/// Most nodes that listen at the same time. They have nothing to do with the live streams of pages.
const FOLLOWERS_MAX: usize = 2_048;
/// Answers of nodes that come in at the same time; more wait. On slow lines each takes minutes, and all are to be here in ten.
const ARRIVALS_MAX: usize = 64;
/// Bytes of all that come in, on the disk: they count for no incident yet.
const ARRIVING_BYTES_MAX: usize = 512 << 20;
/// Answers that are looked at and put to their place at the same time: that takes the processor.
const LOOKED_AT_MAX: usize = 8;
/// How long ago a finding may have begun whose beginning is asked for: rings of nodes go back ten minutes. Of one that is found later it is
/// asked what was when it was found.
const LATELY_NS: i64 = 5 * MINUTE_NS;

/// What is kept, and what goes on around it.
#[derive(Debug)]
pub(crate) struct KeptJobs {
    /// Incidents of jobs, by which nodes are asked.
    pub(crate) incidents: Arc<JobIncidents>,
    changed: watch::Sender<()>,
    followers: Arc<Semaphore>,
    arrivals: Semaphore,
    room: Budget,
    turns: Semaphore,
    /// The nodes that listen, and by how many streams.
    following: Mutex<BTreeMap<String, usize>>,
    /// Kinds of findings that nodes are asked for.
    kinds: Vec<String>,
    /// Those that were open at the last look; none: nobody has looked.
    open: Mutex<Option<BTreeSet<String>>>,
}

/// A node that listens, until this is dropped.
#[derive(Debug)]
pub(crate) struct FollowingNode {
    jobs: Arc<KeptJobs>,
    node: String,
    _permit: OwnedSemaphorePermit,
}

impl KeptJobs {
    /// Of these incidents, and of findings of these kinds.
    pub(crate) fn of(incidents: Arc<JobIncidents>, kinds: Vec<String>) -> Self {
        let (followers, arrivals) = (Arc::new(Semaphore::new(FOLLOWERS_MAX)), Semaphore::new(ARRIVALS_MAX));
        let (room, turns) = (Budget::new(ARRIVING_BYTES_MAX), Semaphore::new(LOOKED_AT_MAX));
        let (following, open, changed) = (Mutex::default(), Mutex::default(), watch::Sender::new(()));
        Self { incidents, changed, followers, arrivals, room, turns, following, kinds, open }
    }

    /// A place for a node among those who listen.
    ///
    /// # Errors
    /// When all are taken.
    pub(crate) fn follower(self: &Arc<Self>, node: &str) -> Result<FollowingNode, ApiError> {
        let permit = Arc::clone(&self.followers).try_acquire_owned();
        let permit = permit.map_err(|_| ApiError::Streams(FOLLOWERS_MAX))?;
        *self.following().entry(node.to_owned()).or_default() += 1;
        Ok(FollowingNode { jobs: Arc::clone(self), node: node.to_owned(), _permit: permit })
    }

    fn following(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a node of a job listens: else nobody would answer.
    pub(crate) fn is_heard(&self, members: &JobMembers) -> bool {
        let following = self.following();
        members.nodes.iter().any(|node| following.contains_key(node))
    }

    /// The findings that nodes are asked for and that were not open before, each with the time that is asked for. At the first look
    /// these are the ones that have begun lately: for older ones an earlier gateway has asked.
    pub(crate) fn begun<'a>(&self, judgement: &'a Judgement) -> Vec<(&'a FleetFinding, i64)> {
        let is_wanted = |finding: &&FleetFinding| self.kinds.iter().any(|kind| kind == finding.kind.id);
        let open: Vec<&FleetFinding> =
            judgement.findings.iter().map(|(finding, _)| finding).filter(is_wanted).collect();
        let ids: BTreeSet<String> = open.iter().map(|finding| finding.id()).collect();
        let mut known = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(ids);
        let asked = |finding: &'a FleetFinding| {
            let is_late = finding.since_ns < judgement.at_ns.saturating_sub(LATELY_NS);
            let is_new = before.as_ref().map_or(!is_late, |before| !before.contains(&finding.id()));
            is_new.then_some((finding, if is_late { judgement.at_ns } else { finding.since_ns }))
        };
        open.into_iter().filter_map(asked).collect()
    }

    /// Has the next look take a finding for one that has just begun, as not all its nodes could be asked: they come back some time after
    /// the gateway. What was found late is left: by then its rows are gone.
    pub(crate) fn look_again(&self, (finding, at_ns): (&FleetFinding, i64)) {
        let mut known = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = known.as_mut().filter(|_| at_ns == finding.since_ns) {
            open.remove(&finding.id());
        }
    }

    /// A place among the answers that come in, when there is one.
    ///
    /// # Errors
    /// Never: places are given for as long as the gateway runs.
    pub(crate) async fn arrival(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.arrivals.acquire().await.map_err(|_| ApiError::Overloaded)
    }

    /// Room for the bytes of an answer, which grows with them.
    pub(crate) fn room(&self) -> Share {
        self.room.share()
    }

    /// A turn to look at an answer that is here.
    ///
    /// # Errors
    /// Never: turns are given for as long as the gateway runs.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.turns.acquire().await.map_err(|_| ApiError::Overloaded)
    }

    /// Wakes whoever waits for what changes.
    pub(crate) fn changed(&self) {
        self.changed.send_replace(());
    }

    /// What changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl Drop for FollowingNode {
    fn drop(&mut self) {
        let mut following = self.jobs.following();
        if let Some(streams) = following.get_mut(&self.node) {
            *streams -= 1;
            if *streams == 0 {
                following.remove(&self.node);
            }
        }
    }
}

/// What comes of work that waits for the disk.
///
/// # Errors
/// Those of the work, and when it panics.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::Crashed)?;
    if let Err(JobError::Disk(error)) = &done {
        tracing::warn!(error = causes(error), "incidents of jobs cannot be kept or read");
    }
    Ok(done?)
}

#[cfg(test)]
mod tests {
    use gpuvitals_analysis::coverage::Coverage;
    use gpuvitals_analysis::findings::{KINDS, Reach, Subject};
    use gpuvitals_analysis::judgement::GpuJudge;

    use super::*;

    const NONE: [i64; 0] = [];

    fn finding(kind: &str, since_ns: i64) -> (FleetFinding, String) {
        let kind = KINDS.iter().find(|known| known.id == kind).unwrap();
        let finding = FleetFinding {
            kind,
            severity: kind.severity,
            opens_after_ns: kind.opens_after_ns,
            subject: Subject::Job("a/research/train-7".into()),
            since_ns,
            since_is_bound: false,
            sentence: String::new(),
            evidence: Vec::new(),
            reach: Reach::default(),
            remedy: "".into(),
            silenced: None,
            covers: &[],
            yields_to: &[],
        };
        (finding, String::new())
    }

    fn judgement(at_ns: i64, findings: Vec<(FleetFinding, String)>) -> Judgement {
        Judgement {
            at_ns,
            findings,
            silences: Vec::new(),
            judge: GpuJudge::of(std::iter::empty(), Coverage::of(&[])),
            jobs: Vec::new(),
            hints: Vec::new(),
            told: Arc::default(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn a_finding_is_asked_for_once_when_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let kept = || {
            let incidents = JobIncidents::open(&folder.path().join("flight"), 3).unwrap();
            KeptJobs::of(Arc::new(incidents), vec!["job_hung".to_owned()])
        };
        let now_ns = 100 * MINUTE_NS;
        let look = |jobs: &KeptJobs, at_ns: i64, findings: &[(&str, i64)]| {
            let findings = findings.iter().map(|(kind, since_ns)| finding(kind, *since_ns)).collect();
            let judgement = judgement(at_ns, findings);
            jobs.begun(&judgement).into_iter().map(|(_, at_ns)| at_ns).collect::<Vec<_>>()
        };
        let jobs = kept();
        assert_eq!(look(&jobs, now_ns, &[]), NONE);
        let hung = ("job_hung", now_ns - MINUTE_NS);
        assert_eq!(look(&jobs, now_ns, &[hung, ("straggler", now_ns)]), [now_ns - MINUTE_NS]);
        assert_eq!(look(&jobs, now_ns + MINUTE_NS, &[hung]), NONE);
        assert_eq!(look(&jobs, now_ns + 2 * MINUTE_NS, &[]), NONE);
        let late = ("job_hung", now_ns - 50 * MINUTE_NS);
        assert_eq!(look(&jobs, now_ns + 3 * MINUTE_NS, &[late]), [now_ns + 3 * MINUTE_NS], "found late");
        drop(jobs);
        assert_eq!(look(&kept(), now_ns, &[late]), NONE, "another gateway has asked");
        assert_eq!(look(&kept(), now_ns, &[hung]), [now_ns - MINUTE_NS], "perhaps none has");
    }

    #[test]
    fn a_finding_that_nobody_heard_of_is_asked_for_again_as_long_as_it_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = JobIncidents::open(&folder.path().join("flight"), 3).unwrap();
        let jobs = KeptJobs::of(Arc::new(incidents), vec!["job_hung".to_owned()]);
        let began_ns = 100 * MINUTE_NS;
        let mut looked = Vec::new();
        for minute in 1..9 {
            let judgement = judgement(began_ns + minute * MINUTE_NS, vec![finding("job_hung", began_ns)]);
            for begun in jobs.begun(&judgement) {
                looked.push((minute, begun.1 - began_ns));
                jobs.look_again(begun);
            }
        }
        let late: (i64, i64) = (6, 6 * MINUTE_NS);
        assert_eq!(looked, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), late]);
    }

    #[test]
    fn a_node_listens_as_long_as_one_of_its_streams() {
        let folder = tempfile::tempdir().unwrap();
        let incidents = JobIncidents::open(&folder.path().join("flight"), 3).unwrap();
        let jobs = Arc::new(KeptJobs::of(Arc::new(incidents), Vec::new()));
        let members = JobMembers { job: "//j".to_owned(), nodes: ["a/n1".to_owned()].into() };
        let (one, other) = (jobs.follower("a/n1").unwrap(), jobs.follower("a/n1").unwrap());
        drop(one);
        assert!(jobs.is_heard(&members));
        drop(other);
        assert!(!jobs.is_heard(&members));
    }
}
