//! One GPU node: its tool, its last reading, and the patience with its failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::{Batch, Origin, Table};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::dialect::nvidia_smi::{NvidiaSmi, SmiProcesses};
use gpuvitals_sources::probe::{Probe as _, ProbeError};
use gpuvitals_sources::processes::ProcessProbe;
use gpuvitals_sources::sampler::read_once;
use tokio::time::Instant;

use crate::discovery::{DriverPod, FoundNode};
use crate::error::ClusterError;
use crate::exec::PodTool;
use gpuvitals_core::clusters::{NodeReading, NodeState, NodeView};

/// Longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// The dialect of a node. It remembers which fields the node's driver refuses, so it outlives pods.
#[derive(Debug)]
pub(crate) struct NodeReader {
    pub(crate) tool: Arc<PodTool>,
    node: Arc<str>,
    gpus: NvidiaSmi,
    sequence: u64,
}

/// A reading of a node, and its batches for history.
#[derive(Debug)]
pub(crate) struct NodeAnswer {
    pub(crate) reading: NodeReading,
    /// The GPUs that the tool cannot reach, for people; none if it reaches all.
    pub(crate) unread: Option<Arc<str>>,
    pub(crate) batches: Vec<Batch>,
}

/// Why a node was not read.
#[derive(Debug)]
pub(crate) struct NodeFailure {
    /// The last exec's own error; none if the tool ran, and its output is no answer.
    pub(crate) cause: Option<ClusterError>,
    /// Why, in words for people.
    pub(crate) text: String,
}

impl NodeReader {
    pub(crate) fn new(tool: PodTool, node: &str) -> Self {
        let tool = Arc::new(tool);
        Self {
            gpus: NvidiaSmi::through(Arc::clone(&tool) as _, node),
            node: Arc::from(node),
            tool,
            sequence: 0,
        }
    }

    /// Reads GPUs and processes, one after the other. Blocks.
    pub(crate) fn read(&mut self, owners: &Owners, origin: &Origin) -> Result<NodeAnswer, NodeFailure> {
        self.sequence += 1;
        let mut batches =
            read_once(&mut self.gpus, owners, origin, self.sequence).map_err(|error| self.failure(&error))?;
        let taken_ns = clock::now_ns();
        // GPUs without a value were not read.
        let gpus = batches.iter().find(|batch| batch.table() == Table::GpuEvents).and_then(|batch| {
            let columns: Vec<_> = batch.metrics().map(|(_, column)| column).collect();
            let is_read = |row| columns.iter().any(|column| column.value(row).is_some());
            batch.filter(&(0..batch.rows()).map(is_read).collect::<Vec<_>>())
        });
        let Some(gpus) = gpus else {
            return Err(NodeFailure { cause: None, text: "nvidia-smi lists no GPU".to_owned() });
        };
        let table = SmiProcesses::among(Arc::clone(&self.tool) as _, &self.node, self.gpus.targets());
        let mut processes = ProcessProbe::new(Box::new(table));
        let (processes, processes_error) = match read_once(&mut processes, owners, origin, self.sequence) {
            Ok(found) => (found.into_iter().next(), None),
            Err(error) => (None, Some(Arc::from(self.failure(&error).text))),
        };
        batches.extend(processes.clone());
        let unread = self.gpus.unreached();
        let unread = (!unread.is_empty()).then(|| Arc::from(unread.join("; ")));
        Ok(NodeAnswer {
            reading: NodeReading { taken_ns, gpus, processes, processes_error },
            unread,
            batches,
        })
    }

    fn failure(&self, error: &ProbeError) -> NodeFailure {
        let cause = self.tool.take_failure();
        let text = match &cause {
            Some(cause) => gpuvitals_core::causes(cause),
            None => error.to_string(),
        };
        NodeFailure { cause, text }
    }
}

/// A node as its cluster's task keeps it.
#[derive(Debug)]
pub(crate) struct Node {
    /// Away while it reads.
    pub(crate) reader: Option<NodeReader>,
    pub(crate) pod: DriverPod,
    pub(crate) view: Arc<NodeView>,
    /// Before this time it is not read.
    pub(crate) not_before: Instant,
    failures: u32,
}

impl Node {
    pub(crate) fn new(found: FoundNode, reader: NodeReader, now: Instant, wall_ns: i64) -> Self {
        let view = NodeView {
            name: Arc::clone(&found.name),
            vendor: found.vendor,
            labels: Arc::default(),
            gpus_announced: None,
            state: NodeState::Waiting,
            since_ns: wall_ns,
            error: None,
            reading: None,
        };
        let pod = DriverPod::Missing;
        let mut node = Self { reader: Some(reader), pod, view: Arc::new(view), not_before: now, failures: 0 };
        node.found(found, now, wall_ns);
        node
    }

    /// It is still there, with these labels and this pod.
    pub(crate) fn found(&mut self, found: FoundNode, now: Instant, wall_ns: i64) {
        let FoundNode { labels, vendor, gpu_count: gpus_announced, driver_pod, .. } = found;
        if driver_pod != self.pod {
            // Another pod may well do what the old one could not.
            (self.failures, self.not_before) = (0, now);
        }
        let (state, error): (NodeState, Option<Arc<str>>) = match (&driver_pod, vendor) {
            (DriverPod::Missing, "nvidia") => {
                (NodeState::NoDriverPod, Some("no driver pod runs on it".into()))
            }
            (DriverPod::Missing, _) => {
                (NodeState::NoTool, Some("the agent reads its GPUs; no tool does from outside".into()))
            }
            (DriverPod::NotReady(pod), _) => (
                NodeState::DriverPodNotReady,
                Some(format!("the driver's container in {pod} is not ready").into()),
            ),
            (DriverPod::Ready(_), _) => match self.view.state {
                NodeState::Ok | NodeState::Partial | NodeState::Failing => {
                    (self.view.state, self.view.error.clone())
                }
                _ => (NodeState::Waiting, None),
            },
        };
        self.pod = driver_pod;
        let is_same = *self.view.labels == labels;
        let labels: Arc<BTreeMap<_, _>> =
            if is_same { Arc::clone(&self.view.labels) } else { Arc::new(labels) };
        let view = NodeView { vendor, labels, gpus_announced, ..NodeView::clone(&self.view) };
        self.view = Arc::new(view);
        self.become_state(state, error, wall_ns);
    }

    /// The pod to run the tool in, if it is time and nothing is in flight.
    pub(crate) fn due(&mut self, now: Instant, poll_interval: Duration) -> Option<(NodeReader, Arc<str>)> {
        let DriverPod::Ready(pod) = &self.pod else { return None };
        let pod = Arc::clone(pod);
        if now < self.not_before {
            return None;
        }
        let reader = self.reader.take()?;
        self.not_before = now + poll_interval;
        Some((reader, pod))
    }

    /// It was read, but for the GPUs named in `unread`.
    pub(crate) fn answered(&mut self, reading: NodeReading, unread: Option<Arc<str>>, wall_ns: i64) {
        self.failures = 0;
        let view = NodeView { reading: Some(Arc::new(reading)), ..NodeView::clone(&self.view) };
        self.view = Arc::new(view);
        if matches!(self.pod, DriverPod::Ready(_)) {
            let state = if unread.is_some() { NodeState::Partial } else { NodeState::Ok };
            self.become_state(state, unread, wall_ns);
        }
    }

    /// It was not. The pause doubles each time; its length is random within a fifth, so that nodes which failed together do
    /// not return together.
    pub(crate) fn failed(&mut self, text: String, poll_interval: Duration, now: Instant, wall_ns: i64) {
        self.not_before = now + pause(poll_interval, self.failures, PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        if matches!(self.pod, DriverPod::Ready(_)) {
            self.become_state(NodeState::Failing, Some(text.into()), wall_ns);
        }
    }

    /// It is read at the next round, whatever failed before.
    pub(crate) fn forgive(&mut self, now: Instant) {
        (self.failures, self.not_before) = (0, now);
    }

    fn become_state(&mut self, state: NodeState, error: Option<Arc<str>>, wall_ns: i64) {
        if (self.view.state, &self.view.error) == (state, &error) {
            return;
        }
        let since_ns = if self.view.state == state { self.view.since_ns } else { wall_ns };
        self.view = Arc::new(NodeView { state, since_ns, error, ..NodeView::clone(&self.view) });
    }
}

/// The pause after this many earlier failures, random within a fifth.
pub(crate) fn pause(first: Duration, failures: u32, longest: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << failures.min(16)).min(longest.max(first));
    doubled * fastrand::u32(80..=120) / 100
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn found(pod: &str) -> FoundNode {
        let driver_pod = DriverPod::Ready(pod.into());
        FoundNode {
            name: "n1".into(),
            labels: BTreeMap::new(),
            vendor: "nvidia",
            gpu_count: Some(8),
            driver_pod,
        }
    }

    #[tokio::test]
    async fn a_pod_that_was_replaced_is_asked_at_once_and_the_same_one_after_its_pause() {
        let (interval, now) = (Duration::from_secs(30), Instant::now());
        let tool =
            PodTool::new(vec!["nvidia-smi".to_owned()], interval, 1 << 10, CancellationToken::default());
        let mut node = Node::new(found("driver-1"), NodeReader::new(tool, "n1"), now, 0);
        for _ in 0..4 {
            let (reader, _) = node.due(node.not_before, interval).unwrap();
            node.reader = Some(reader);
            node.failed("no answer".to_owned(), interval, now, 0);
        }
        // 30 s doubled thrice, and varied by a fifth.
        assert!(node.not_before - now > 6 * interval, "{:?}", node.not_before - now);
        node.found(found("driver-1"), now, 0);
        assert!(node.due(now, interval).is_none());
        node.found(found("driver-2"), now, 0);
        let (reader, pod) = node.due(now, interval).unwrap();
        assert_eq!((&*pod, node.view.state), ("driver-2", NodeState::Failing));
        // And its first failure counts as the first.
        node.reader = Some(reader);
        node.failed("no answer".to_owned(), interval, now, 0);
        assert!(node.not_before - now < 2 * interval, "{:?}", node.not_before - now);
    }
}
