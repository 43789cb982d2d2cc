//! The incidents of whole jobs, as a gateway keeps them: a node tells of a trigger, every node of its job is asked for the time
//! around it, and what they answer lies in one folder.
//!
//! The files are the truth: a request stands until its answer is on the disk, or until it is ten minutes old. So nothing is lost or
//! doubled when either side is killed. What changes an incident waits for the disk; who only looks does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::iter::once;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_log::open_file;
use serde::{Deserialize, Serialize};

use crate::error::{FlightError, JobError};
use crate::folder::BYTES_MAX;
use crate::incident::FlightSpan;
use crate::job_files::{ById, JobFiles};
use crate::job_incident::{AskedNode, JobIncident, JobTrigger, NODES_MAX, WindowPart};
use crate::job_window::{IncomingWindow, WindowPieces};
use crate::trigger::FlightTrigger;

/// Triggers of one job within this time are of one incident, and a node is asked once in it.
const TOGETHER_NS: i64 = MINUTE_NS;
/// Where a gateway has the requests to nodes, and where nodes tell of their incidents: the path of its API.
pub const JOB_REQUESTS_PATH: &str = "/api/v1/flight/requests";
/// How long a request stands, nanoseconds: the gateway forgets it then, and a node does, too.
pub const JOB_REQUEST_STANDS_NS: i64 = 10 * MINUTE_NS;
/// How old a trigger may be that a node tells of, and how far its clock may be ahead.
const OLD_NS: i64 = 15 * MINUTE_NS;
const AHEAD_NS: i64 = 5 * MINUTE_NS;
/// Longest name of a node: with what stands behind it, a file's.
const NODE_LEN_MAX: usize = 200;
/// Longest text of a trigger, in bytes.
const TEXT_LEN_MAX: usize = 2_048;

/// The incidents of jobs in a directory.
#[derive(Debug)]
pub struct JobIncidents {
    files: JobFiles,
    keep: usize,
    /// Held for as long as a change takes on the disk.
    changing: Mutex<()>,
    kept: Mutex<ById>,
}

/// A job, and the nodes that have GPUs in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMembers {
    /// The job or pod, as `cluster/namespace/name`.
    pub job: String,
    /// Its nodes, each as `cluster/node`, or by its name if it has no cluster.
    pub nodes: BTreeSet<String>,
}

/// What a node is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Id of the incident.
    pub id: String,
    /// Which part of its time.
    pub part: WindowPart,
    /// The time that rows may be of.
    pub asked: FlightSpan,
    /// Its first trigger.
    pub trigger: FlightTrigger,
    /// The node that told of that.
    pub by: String,
    /// When the gateway sent it, by its clock, nanoseconds UTC since 1970; none: it was not sent yet, or by an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ns: Option<i64>,
}

/// What stands for a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StandingRequests {
    /// What it is asked for now, the oldest first.
    pub now: Vec<JobRequest>,
    /// When the next one begins to stand, nanoseconds UTC since 1970.
    pub next_ns: Option<i64>,
}

impl JobIncidents {
    /// Those of a flight recorder's directory, which is made if it is missing; at most so many are kept.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process keeps its incidents of jobs.
    pub fn open(directory: &Path, keep: usize) -> Result<Self, FlightError> {
        let (files, kept) = JobFiles::open(directory)?;
        Ok(Self { files, keep, changing: Mutex::default(), kept: Mutex::new(kept) })
    }

    /// Whether a text can be the name of a node: a plain file name, whoever gives it, alone or behind that of its cluster and a slash.
    pub fn is_node(text: &str) -> bool {
        let (cluster, name) = text.split_once('/').unwrap_or((text, text));
        text.len() <= NODE_LEN_MAX && is_plain(cluster) && is_plain(name)
    }

    /// Whether a node may tell of this now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(told: &JobTrigger, now_ns: i64) -> Result<(), JobError> {
        let unfit = |why: &str| Err(JobError::Unfit(why.to_owned()));
        let JobTrigger { node, incident, trigger } = told;
        if !Self::is_node(node) || !is_plain(incident) {
            return unfit(
                "node and incident: give 1 to 200 of letters, digits, -, _ and ., no . first; a cluster stands before its node with a /",
            );
        }
        let FlightTrigger { kind, gpu, detail, rule, .. } = trigger;
        let is_strange = |text: &String| text.len() > TEXT_LEN_MAX || text.contains(char::is_control);
        if [Some(kind), gpu.as_ref(), Some(detail), rule.as_ref()].into_iter().flatten().any(is_strange) {
            return unfit("trigger: a text has control characters, or more than 2048 bytes");
        }
        let times = now_ns.saturating_sub(OLD_NS)..=now_ns.saturating_add(AHEAD_NS);
        if !times.contains(&trigger.at_ns) {
            return unfit("trigger.at_ns: it is more than 15 minutes ago, or 5 minutes ahead");
        }
        Ok(())
    }

    /// Takes what a node tells of. It is a part of the incident that it told of it before, or of one of the same job and minute, or
    /// begins one. Answers its id; none: it is not known which job this is.
    ///
    /// # Errors
    /// If it is not as it must be, or the disk fails.
    pub fn tell(
        &self,
        told: &JobTrigger,
        members: Option<&JobMembers>,
        now_ns: i64,
    ) -> Result<Option<String>, JobError> {
        Self::check(told, now_ns)?;
        self.take(told, members, now_ns)
    }

    /// Takes what the gateway itself has found of a job, as [`JobTrigger::of_gateway`]: in the same way, with no node that told of it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn find(
        &self,
        found: &JobTrigger,
        members: &JobMembers,
        now_ns: i64,
    ) -> Result<Option<String>, JobError> {
        self.take(found, Some(members), now_ns)
    }

    fn take(
        &self,
        told: &JobTrigger,
        members: Option<&JobMembers>,
        now_ns: i64,
    ) -> Result<Option<String>, JobError> {
        let _changing = self.change();
        if let Some(known) = self.told_before(told, members) {
            return Ok(Some(known));
        }
        let joined = self.joined(told, members);
        let (mut incident, is_new) = match (joined, members) {
            (Some(incident), _) => (Arc::unwrap_or_clone(incident), false),
            (None, Some(members)) => {
                let id = self.files.free_id(&told.trigger.kind, told.trigger.at_ns);
                (JobIncident::begun(id, &members.job, told.clone()), true)
            }
            (None, None) => return Ok(None),
        };
        let nodes = members.iter().flat_map(|members| &members.nodes);
        let nodes = once(&told.node).chain(nodes).filter(|node| Self::is_node(node)).take(NODES_MAX);
        let new: Vec<&String> = nodes.filter(|node| incident.node(node).is_none()).collect();
        for node in &new {
            incident.ask(node, self.due_ns(node, WindowPart::Window, now_ns));
        }
        incident.note(told);
        let id = incident.id.clone();
        if is_new && members.is_some_and(|members| members.nodes.len() > NODES_MAX) {
            tracing::warn!(
                id,
                most = NODES_MAX,
                "the job has more nodes than are asked; the first by name are"
            );
        }
        self.put(incident)?;
        self.put_off(&new, now_ns)?;
        if is_new {
            self.prune(&id);
        }
        Ok(Some(id))
    }

    /// Asks all nodes of an incident for the rest of what they have, unless it is asked for or there already.
    ///
    /// # Errors
    /// If there is no such incident, or the disk fails.
    pub fn ask_rest(&self, id: &str, now_ns: i64) -> Result<(), JobError> {
        let _changing = self.change();
        let mut incident = self.known(id)?;
        let is_wanted = |node: &AskedNode| {
            let stands =
                node.rest_due_ns.is_some_and(|due_ns| now_ns <= due_ns.saturating_add(JOB_REQUEST_STANDS_NS));
            node.rest.is_none() && !stands
        };
        let names = incident.nodes.iter().filter(|node| is_wanted(node)).map(|node| node.node.clone());
        let dues: Vec<(String, i64)> = names
            .map(|name| {
                let due_ns = self.due_ns(&name, WindowPart::Rest, now_ns);
                (name, due_ns)
            })
            .collect();
        for (name, due_ns) in dues {
            if let Some(node) = incident.node_mut(&name) {
                node.rest_due_ns = Some(due_ns);
            }
        }
        self.put(incident)
    }

    /// What a node is asked for now.
    pub fn requests(&self, node: &str, now_ns: i64) -> StandingRequests {
        let mut standing = StandingRequests::default();
        for incident in self.kept().values() {
            let Some(asked) = incident.node(node) else { continue };
            for part in WindowPart::ALL {
                let Some(due_ns) = asked.due_ns(part).filter(|_| asked.answer(part).is_none()) else {
                    continue;
                };
                if now_ns > due_ns.saturating_add(JOB_REQUEST_STANDS_NS) {
                    continue;
                }
                if now_ns < due_ns {
                    standing.next_ns = Some(standing.next_ns.map_or(due_ns, |next_ns| next_ns.min(due_ns)));
                } else if let Some(first) = incident.triggers.first() {
                    standing.now.push(JobRequest {
                        id: incident.id.clone(),
                        part,
                        asked: incident.span(part),
                        trigger: first.trigger.clone(),
                        by: first.node.clone(),
                        sent_ns: None,
                    });
                }
            }
        }
        standing
    }

    /// All incidents, the newest first.
    pub fn list(&self) -> Vec<Arc<JobIncident>> {
        self.kept().values().rev().cloned().collect()
    }

    /// An incident.
    ///
    /// # Errors
    /// If there is none of this id.
    pub fn one(&self, id: &str) -> Result<Arc<JobIncident>, JobError> {
        self.kept().get(id).cloned().ok_or_else(|| unknown(id, "is kept here"))
    }

    /// Begins to take what a node answers; none: it has answered already.
    ///
    /// # Errors
    /// If it is not asked for it, or the disk fails.
    pub fn receive(
        &self,
        id: &str,
        node: &str,
        part: WindowPart,
    ) -> Result<Option<IncomingWindow>, JobError> {
        let incident = self.one(id)?;
        let asked = incident.node(node).filter(|asked| asked.due_ns(part).is_some());
        let asked = asked.ok_or_else(|| unknown(id, "asks this node for that"))?;
        if asked.answer(part).is_some() {
            return Ok(None);
        }
        let target = self.files.answer(id, node, part);
        let span = incident.span(part);
        IncomingWindow::create((id, node, part), span, target, self.files.beside(id)).map(Some)
    }

    /// Keeps what has come, if its rows are what was asked for; `is_cut`: the node has left some out. False: the node has answered
    /// meanwhile, and this is left.
    ///
    /// # Errors
    /// If it is not as it must be or too much, the incident is gone, or the disk fails.
    pub fn keep(&self, incoming: IncomingWindow, is_cut: bool, now_ns: i64) -> Result<bool, JobError> {
        let answer = incoming.look(is_cut, now_ns)?;
        let _changing = self.change();
        let (id, part) = (incoming.id.clone(), incoming.part);
        let mut incident = self.known(&id)?;
        if incident.bytes().saturating_add(answer.bytes) > BYTES_MAX {
            return Err(JobError::TooLong { what: "an incident", max: BYTES_MAX });
        }
        let Some(asked) = incident.node_mut(&incoming.node) else {
            return Err(unknown(&id, "asks this node"));
        };
        if asked.answer(part).is_some() {
            return Ok(false);
        }
        asked.keep(part, answer);
        if let Some(clock) = incoming.clock {
            asked.note_clock(clock);
        }
        incident.first = incident.victim();
        // The rows first: an answer that is not noted is asked for again, and takes their place.
        incoming.put()?;
        self.put(incident)?;
        self.prune(&id);
        Ok(true)
    }

    /// What a node has sent, to be read, and its length in bytes.
    ///
    /// # Errors
    /// If it has sent nothing of that, or it cannot be read.
    pub fn answer(&self, id: &str, node: &str, part: WindowPart) -> Result<(File, u64), JobError> {
        let incident = self.one(id)?;
        let answer = incident.node(node).and_then(|asked| asked.answer(part));
        let answer = answer.ok_or_else(|| unknown(id, "has that of this node"))?;
        let path = self.files.answer(id, node, part);
        let file = open_file(&path).map_err(FlightError::io("open", &path))?;
        Ok((file, answer.bytes))
    }

    /// The node that has sent rows of a GPU of this key, and all that it has sent of that part.
    ///
    /// # Errors
    /// If there are none of it, or they cannot be read.
    pub fn rows(&self, id: &str, gpu: &str, part: WindowPart) -> Result<(String, WindowPieces), JobError> {
        let incident = self.one(id)?;
        let sender = incident.sender(gpu, part).ok_or_else(|| unknown(id, "has such rows of this GPU"))?;
        let pieces = WindowPieces::open(&self.files.answer(id, &sender.node, part))?;
        Ok((sender.node.clone(), pieces))
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, ById> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, id: &str) -> Result<JobIncident, JobError> {
        self.one(id).map(Arc::unwrap_or_clone)
    }

    /// The incident that a node told of this before. What a gateway finds may be of several jobs, each with an incident of its own.
    fn told_before(&self, told: &JobTrigger, members: Option<&JobMembers>) -> Option<String> {
        let is_its = |incident: &&Arc<JobIncident>| {
            let of_node = incident.node(&told.node);
            let is_of_job = || members.is_none_or(|members| is_of(incident, members));
            of_node.is_some_and(|node| node.incidents.contains(&told.incident))
                || (incident.triggers.contains(told) && is_of_job())
        };
        self.kept().values().find(is_its).map(|incident| incident.id.clone())
    }

    /// The incident of the same minute that this is a part of: of that job and a node of it, or if no job is known, one that asks the
    /// node.
    fn joined(&self, told: &JobTrigger, members: Option<&JobMembers>) -> Option<Arc<JobIncident>> {
        let is_its = |incident: &&Arc<JobIncident>| {
            let apart_ns = incident.at_ns().saturating_sub(told.trigger.at_ns).saturating_abs();
            let is_of_job = match members {
                Some(members) => is_of(incident, members),
                None => incident.node(&told.node).is_some(),
            };
            apart_ns <= TOGETHER_NS && is_of_job
        };
        self.kept().values().rev().find(is_its).cloned()
    }

    /// From when on a node can be asked for one more of this part.
    fn due_ns(&self, node: &str, part: WindowPart, now_ns: i64) -> i64 {
        let kept = self.kept();
        let last_ns =
            kept.values().filter_map(|incident| Some(incident.node(node)?.asked_last_ns(part, now_ns))).max();
        last_ns.map_or(now_ns, |last_ns| now_ns.max(last_ns.saturating_add(TOGETHER_NS)))
    }

    /// Puts off the rests that these nodes are still to be asked for: a window goes first, as their rings forget.
    fn put_off(&self, nodes: &[&String], now_ns: i64) -> Result<(), JobError> {
        for known in self.list() {
            let is_to_come = |due_ns: &i64| *due_ns > now_ns;
            let due_ns = |node: &str| known.node(node)?.rest_due_ns.filter(is_to_come);
            let waiting: Vec<(&str, i64)> =
                nodes.iter().filter_map(|node| Some((node.as_str(), due_ns(node.as_str())?))).collect();
            if waiting.is_empty() {
                continue;
            }
            let mut incident = JobIncident::clone(&known);
            for (name, due_ns) in waiting {
                if let Some(node) = incident.node_mut(name) {
                    node.rest_due_ns = Some(due_ns.saturating_add(TOGETHER_NS));
                }
            }
            self.put(incident)?;
        }
        Ok(())
    }

    /// Writes an incident as it is now, and shows it.
    fn put(&self, mut incident: JobIncident) -> Result<(), JobError> {
        incident.say_offset();
        incident.about_len = self.files.write(&incident)?;
        self.kept().insert(incident.id.clone(), Arc::new(incident));
        Ok(())
    }

    /// Removes incidents beyond those that are kept, or beyond the bytes that all may take, never this one.
    fn prune(&self, spared: &str) {
        let mut left = self.list();
        let (mut count, mut bytes) = (left.len(), left.iter().map(|incident| incident.bytes()).sum::<u64>());
        while count > self.keep || bytes > BYTES_MAX {
            let Some(place) = first_to_go(&left, spared) else { break };
            let incident = left.remove(place);
            if self.files.remove(&incident.id) {
                self.kept().remove(&incident.id);
                count -= 1;
                bytes = bytes.saturating_sub(incident.bytes());
                tracing::info!(id = incident.id, "an old incident of a job was removed");
            }
        }
    }
}

/// Of incidents, the newest first, the one to remove: the oldest of the node that told of the most, so that a node that tells again and
/// again pushes out its own.
fn first_to_go(kept: &[Arc<JobIncident>], spared: &str) -> Option<usize> {
    let mut told = BTreeMap::<&str, usize>::new();
    for incident in kept {
        *told.entry(incident.teller()).or_default() += 1;
    }
    let others = kept.iter().enumerate().filter(|(_, incident)| incident.id != spared);
    // Of those that are equal it is the last.
    others.max_by_key(|(_, incident)| told.get(incident.teller())).map(|(place, _)| place)
}

/// Whether an incident is of a job, and asks one of the nodes that it has now.
fn is_of(incident: &JobIncident, members: &JobMembers) -> bool {
    incident.job == members.job && members.nodes.iter().any(|node| incident.node(node).is_some())
}

/// Whether a text is a plain file name.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NODE_LEN_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_plain)
}

fn unknown(id: &str, what: &'static str) -> JobError {
    // Whoever asks gets it back in the answer.
    JobError::Unknown { id: id.chars().take(80).collect(), what }
}
