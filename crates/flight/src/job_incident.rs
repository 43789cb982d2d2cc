//! `incident.json` of a job: what its nodes are asked for, and what they have answered. `docs/flight.md` specifies it.

use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use serde::{Deserialize, Serialize};

use crate::incident::FlightSpan;
use crate::node_clock::NodeClock;
use crate::trigger::FlightTrigger;

/// The schema of a job's `incident.json` that this version writes.
pub(crate) const JOB_SCHEMA: u64 = 1;
/// Time before the first trigger, and after it, that every node is asked for.
const BEFORE_NS: i64 = 60 * SECOND_NS;
const AFTER_NS: i64 = 30 * SECOND_NS;
/// The time around it that the rest may be of: an incident of a node goes back an hour and on for ten minutes at most.
const REST_BEFORE_NS: i64 = 60 * MINUTE_NS;
const REST_AFTER_NS: i64 = 10 * MINUTE_NS;
/// A GPU that gave no value for so long before the end of its window had stopped, and for so many times its own longest pause.
const STOPPED_NS: i64 = 5 * SECOND_NS;
const STOPPED_PAUSES: i64 = 2;
/// Triggers that are kept: the one that began it, and the earliest. The others are counted.
const TRIGGERS_MAX: usize = 32;
/// Incidents of one node that are remembered, so that one that is told of again is known.
const OWN_MAX: usize = 64;
/// Most nodes of a job.
pub(crate) const NODES_MAX: usize = 1_024;

/// An incident of a whole job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobIncident {
    /// The schema of the version that wrote it.
    pub schema: u64,
    /// Its id: the name of its folder.
    pub id: String,
    /// The job or pod that held the GPU, as `cluster/namespace/name`.
    pub job: String,
    /// What its nodes told of, the one that came first, and then the earliest of the others.
    pub triggers: Vec<JobTrigger>,
    /// How many they told of.
    pub told: u64,
    /// The time that every node is asked for.
    pub asked: FlightSpan,
    /// Of how many nodes it is known how far their clocks are ahead of the gateway's, in words.
    pub offset: String,
    /// The GPU that failed first, as far as is known now; it is rarely the one that somebody told of.
    pub first: Option<FirstVictim>,
    /// The nodes, by name.
    pub nodes: Vec<AskedNode>,
    /// Bytes of its file where it is kept.
    #[serde(skip)]
    pub(crate) about_len: u64,
}

/// A trigger that a node told of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobTrigger {
    /// The node, as `cluster/node`, or by its name if it has no cluster; or [`JobTrigger::GATEWAY`].
    pub node: String,
    /// The id of its own incident; of a gateway what names the finding.
    pub incident: String,
    /// What happened there.
    pub trigger: FlightTrigger,
}

/// The GPU that failed first, by the clock of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstVictim {
    /// Its node, as `cluster/node`, or by its name if it has no cluster.
    pub node: String,
    /// Key of the GPU.
    pub gpu: String,
    /// When it failed, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// How it failed, in words.
    pub why: String,
    /// Why another one may have been the first, by clocks and the time between two readings, in words; none: nothing speaks for that.
    #[serde(default)]
    pub doubt: Option<String>,
}

/// A node that is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedNode {
    /// It, as `cluster/node`, or by its name if it has no cluster.
    pub node: String,
    /// Its own incidents that it told of.
    pub incidents: Vec<String>,
    /// From when on it is asked for the window, nanoseconds UTC since 1970.
    pub window_due_ns: i64,
    /// What it answered; none: nothing yet.
    pub window: Option<NodeWindow>,
    /// From when on it is asked for the rest, if somebody wants it.
    pub rest_due_ns: Option<i64>,
    /// What it answered.
    pub rest: Option<NodeWindow>,
    /// How far its clock is ahead of the gateway's; none: not known.
    #[serde(default)]
    pub clock: Option<NodeClock>,
}

/// Rows that a node has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWindow {
    /// How many rows came.
    pub rows: u64,
    /// Time from the first row to the last; none: the node has none.
    pub had: Option<FlightSpan>,
    /// The GPUs that they are of.
    pub gpus: Vec<WindowGpu>,
    /// Bytes as they came.
    pub bytes: u64,
    /// Whether rows were left out for want of room.
    pub is_cut: bool,
    /// When they came, nanoseconds UTC since 1970.
    pub came_ns: i64,
}

/// A GPU with rows in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowGpu {
    /// Key of the GPU.
    pub gpu: String,
    /// When it last gave a value, nanoseconds UTC since 1970; none: it gave none.
    pub last_ns: Option<i64>,
    /// The longest time between two of its values, nanoseconds; none: it gave one at most.
    pub pause_ns: Option<i64>,
}

/// What of an incident a node is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowPart {
    /// The time around the trigger.
    Window,
    /// All that the node has kept around it.
    Rest,
}

impl JobTrigger {
    /// Who tells of what a gateway itself has found: a node cannot have this name.
    pub const GATEWAY: &'static str = "the gateway";

    /// What a gateway itself has found.
    pub fn of_gateway(finding: String, trigger: FlightTrigger) -> Self {
        Self { node: Self::GATEWAY.to_owned(), incident: finding, trigger }
    }
}

impl WindowPart {
    /// Both parts, in the order in which a node is asked for them.
    pub const ALL: [Self; 2] = [Self::Window, Self::Rest];

    /// Its name in paths and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Rest => "rest",
        }
    }
}

impl JobIncident {
    /// One that begins with this trigger, and has no nodes yet.
    pub(crate) fn begun(id: String, job: &str, trigger: JobTrigger) -> Self {
        let at_ns = trigger.trigger.at_ns;
        let asked =
            FlightSpan { from_ns: at_ns.saturating_sub(BEFORE_NS), to_ns: at_ns.saturating_add(AFTER_NS) };
        let (offset, job) = ("not known".to_owned(), job.to_owned());
        let (triggers, nodes) = (vec![trigger], Vec::new());
        let (schema, first) = (JOB_SCHEMA, None);
        Self { schema, id, job, triggers, told: 0, asked, offset, first, nodes, about_len: 0 }
    }

    /// The node that told of it first.
    pub(crate) fn teller(&self) -> &str {
        self.triggers.first().map_or("", |told| told.node.as_str())
    }

    /// Whether a GPU of this key is one that a node told of, or that failed first.
    pub fn names(&self, gpu: &str) -> bool {
        let told = self.triggers.iter().filter_map(|told| told.trigger.gpu.as_deref());
        told.chain(self.first.as_ref().map(|first| first.gpu.as_str())).any(|named| named == gpu)
    }

    /// The node that has sent rows of a GPU of this key.
    pub fn sender(&self, gpu: &str, part: WindowPart) -> Option<&AskedNode> {
        let has_it = |answer: &NodeWindow| answer.gpus.iter().any(|of| of.gpu == gpu);
        self.nodes.iter().find(|node| node.answer(part).is_some_and(has_it))
    }

    /// Whether a GPU of this key has a part in it: it is named, or there are rows of it.
    pub fn concerns(&self, gpu: &str) -> bool {
        self.names(gpu) || WindowPart::ALL.into_iter().any(|part| self.sender(gpu, part).is_some())
    }

    /// When its first trigger was, nanoseconds UTC since 1970.
    pub fn at_ns(&self) -> i64 {
        self.asked.from_ns.saturating_add(BEFORE_NS)
    }

    /// The node of that name, if it is asked.
    pub fn node(&self, name: &str) -> Option<&AskedNode> {
        self.place(name).ok().and_then(|place| self.nodes.get(place))
    }

    /// Where the node of that name stands, or would stand.
    pub(crate) fn place(&self, name: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.node.as_str().cmp(name))
    }

    pub(crate) fn node_mut(&mut self, name: &str) -> Option<&mut AskedNode> {
        self.place(name).ok().and_then(|place| self.nodes.get_mut(place))
    }

    /// Asks a node from this time on, unless it is asked already.
    pub(crate) fn ask(&mut self, name: &str, due_ns: i64) {
        let Err(place) = self.place(name) else { return };
        if self.nodes.len() < NODES_MAX {
            let asked = AskedNode {
                node: name.to_owned(),
                incidents: Vec::new(),
                window_due_ns: due_ns,
                window: None,
                rest_due_ns: None,
                rest: None,
                clock: None,
            };
            self.nodes.insert(place, asked);
        }
    }

    /// Notes what a node told of; its first trigger stands already.
    pub(crate) fn note(&mut self, told: &JobTrigger) {
        self.told += 1;
        if self.told > 1 {
            self.keep_trigger(told);
        }
        let own = self.node_mut(&told.node).filter(|node| node.incidents.len() < OWN_MAX);
        if let Some(node) = own {
            node.incidents.push(told.incident.clone());
        }
        self.first = self.victim();
    }

    /// Keeps one more trigger: in place of the latest one, if there is no room.
    fn keep_trigger(&mut self, told: &JobTrigger) {
        if self.triggers.len() < TRIGGERS_MAX {
            self.triggers.push(told.clone());
            return;
        }
        // The first one says what the incident is about.
        let latest = self.triggers.iter_mut().skip(1).max_by_key(|kept| kept.trigger.at_ns);
        if let Some(latest) = latest.filter(|latest| told.trigger.at_ns < latest.trigger.at_ns) {
            *latest = told.clone();
        }
    }

    /// The time that rows of a part may be of.
    pub fn span(&self, part: WindowPart) -> FlightSpan {
        match part {
            WindowPart::Window => self.asked,
            WindowPart::Rest => FlightSpan {
                from_ns: self.at_ns().saturating_sub(REST_BEFORE_NS),
                to_ns: self.at_ns().saturating_add(REST_AFTER_NS),
            },
        }
    }

    /// Bytes of its files.
    pub(crate) fn bytes(&self) -> u64 {
        let answers = self.nodes.iter().flat_map(|node| [&node.window, &node.rest]).flatten();
        answers.map(|answer| answer.bytes).sum::<u64>().saturating_add(self.about_len)
    }

    /// Says of how many clocks the offset is known.
    pub(crate) fn say_offset(&mut self) {
        let known = self.nodes.iter().filter(|node| node.clock.is_some()).count();
        self.offset = match known {
            0 => "not known".to_owned(),
            _ => format!("known of {known} of {}", counted(self.nodes.len() as u64, "node")),
        };
    }

    /// The GPU that failed first: one that a node told of, or one that gave no value any more. Clocks are compared as far as it is known
    /// how far they are apart.
    pub(crate) fn victim(&self) -> Option<FirstVictim> {
        let mut failed = self.failed();
        failed.sort_by_key(|victim| self.gateway_ns(victim));
        let (first, later) = failed.split_first()?;
        let doubt = later.iter().find_map(|other| self.doubt(first, other));
        Some(FirstVictim { doubt, ..first.clone() })
    }

    /// When a GPU failed by the clock of the gateway, as far as that is known.
    fn gateway_ns(&self, victim: &FirstVictim) -> i64 {
        let clock = self.node(&victim.node).and_then(|node| node.clock);
        victim.at_ns.saturating_sub(clock.map_or(0, |clock| clock.offset_ns))
    }

    /// Why a GPU that seems to have failed after another one may have failed before it.
    fn doubt(&self, first: &FirstVictim, other: &FirstVictim) -> Option<String> {
        if first.node == other.node {
            return None;
        }
        let clock = |victim: &FirstVictim| self.node(&victim.node)?.clock;
        let FirstVictim { node, gpu, .. } = other;
        let (Some(of_first), Some(of_other)) = (clock(first), clock(other)) else {
            let first = &first.node;
            return Some(format!(
                "cannot tell which came first: how far the clocks of {first} and {node} are apart is not known"
            ));
        };
        let later_ns = self.gateway_ns(other).saturating_sub(self.gateway_ns(first));
        let clocks_ns = of_first.ahead_of(of_other).error_ns;
        // What failed between two readings is seen by the second, or has its last value from the first.
        let error_ns =
            [first, other].iter().fold(clocks_ns, |ns, victim| ns.saturating_add(self.pause_ns(victim)));
        (later_ns <= error_ns).then(|| {
            let (later, error) = (milliseconds(later_ns), milliseconds(error_ns));
            format!(
                "cannot tell which came first: GPU {gpu} of {node} failed {later} ms after it, and by their clocks and readings that is known to {error} ms"
            )
        })
    }

    /// The longest time between two readings of a GPU that failed, nanoseconds; 0 as long as its node has sent none of them.
    fn pause_ns(&self, victim: &FirstVictim) -> i64 {
        let window = self.node(&victim.node).and_then(|node| node.window.as_ref());
        let its = window.and_then(|window| window.gpus.iter().find(|of| of.gpu == victim.gpu));
        its.and_then(|gpu| gpu.pause_ns).unwrap_or(0)
    }

    /// All GPUs that failed, each by the clock of its node.
    fn failed(&self) -> Vec<FirstVictim> {
        let told = self.triggers.iter().filter_map(|told| {
            let (gpu, why) = (told.trigger.gpu.clone()?, told.trigger.detail.clone());
            let is_found = told.node == JobTrigger::GATEWAY;
            // Whose it is that a gateway has found shows the node that has sent its rows.
            let node = if is_found { &self.sender(&gpu, WindowPart::Window)?.node } else { &told.node };
            Some(FirstVictim { node: node.clone(), gpu, at_ns: told.trigger.at_ns, why, doubt: None })
        });
        let windows = self.nodes.iter().filter_map(|node| Some((node, node.window.as_ref()?)));
        let stopped = windows.flat_map(|(node, window)| {
            let victim = |(gpu, at_ns)| {
                let why = "it gave no value after that".to_owned();
                FirstVictim { node: node.node.clone(), gpu, at_ns, why, doubt: None }
            };
            window.stopped().map(victim).collect::<Vec<_>>()
        });
        told.chain(stopped).collect()
    }
}

/// Nanoseconds as milliseconds, rounded up to a digit behind the point.
fn milliseconds(ns: i64) -> String {
    let tenths = ns.saturating_add(99_999) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl NodeWindow {
    /// The GPUs that gave no value any more long before its end, and since when. One that is read rarely is silent for as long
    /// between two values.
    fn stopped(&self) -> impl Iterator<Item = (String, i64)> {
        let end_ns = self.had.map_or(i64::MIN, |had| had.to_ns);
        let usual_ns = self.gpus.iter().filter_map(|gpu| gpu.pause_ns).max().unwrap_or(0);
        self.gpus.iter().filter_map(move |gpu| {
            let pause_ns = gpu.pause_ns.unwrap_or(usual_ns).saturating_mul(STOPPED_PAUSES);
            let at_ns = gpu.last_ns?;
            (end_ns.saturating_sub(at_ns) > pause_ns.max(STOPPED_NS)).then(|| (gpu.gpu.clone(), at_ns))
        })
    }
}

impl AskedNode {
    /// From when on it is asked for a part; none: nobody wants it.
    pub(crate) fn due_ns(&self, part: WindowPart) -> Option<i64> {
        match part {
            WindowPart::Window => Some(self.window_due_ns),
            WindowPart::Rest => self.rest_due_ns,
        }
    }

    /// What it answered.
    pub fn answer(&self, part: WindowPart) -> Option<&NodeWindow> {
        match part {
            WindowPart::Window => self.window.as_ref(),
            WindowPart::Rest => self.rest.as_ref(),
        }
    }

    pub(crate) fn keep(&mut self, part: WindowPart, answer: NodeWindow) {
        match part {
            WindowPart::Window => self.window = Some(answer),
            WindowPart::Rest => self.rest = Some(answer),
        }
    }

    /// Notes how far its clock is ahead, if that is known better than before.
    pub(crate) fn note_clock(&mut self, clock: NodeClock) {
        if self.clock.is_none_or(|known| clock.error_ns < known.error_ns) {
            self.clock = Some(clock);
        }
    }

    /// When it was, or is to be, asked for the last of what a part waits for: a rest for all, a window for no rest that is still to
    /// come.
    pub(crate) fn asked_last_ns(&self, before: WindowPart, now_ns: i64) -> i64 {
        let waits_for = |due_ns: &i64| before == WindowPart::Rest || *due_ns <= now_ns;
        self.rest_due_ns.filter(waits_for).unwrap_or(i64::MIN).max(self.window_due_ns)
    }
}
