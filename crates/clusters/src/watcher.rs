//! The task of one cluster: it lists nodes and pods, reads nodes that are due, and publishes the view.
//!
//! Readings run beside the task, each on a thread for blocking work, so a pod that hangs delays neither the others nor the
//! next list. Whatever a cluster does wrong ends in its own state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::{Origin, causes};
use gpuvitals_sources::attribution::Owners;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::Cluster;
use crate::discovery::{Discovered, discover};
use crate::error::{ClusterError, ErrorClass};
use crate::exec::{ExecTarget, PodTool};
use crate::labels::{LabelledPod, PodLabels};
use crate::node::{Node, NodeAnswer, NodeFailure, NodeReader, pause};
use crate::session::Session;
use gpuvitals_core::clusters::{ClusterState, ClusterView, NodeState};
use gpuvitals_core::feed::Outlet;

/// First and longest pause before a cluster that failed is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(5));
/// Errors of nodes that a cluster's own error names.
const NODES_NAMED: usize = 3;

/// A reading that has ended.
struct Finished {
    node: Arc<str>,
    /// None: it went with a panic; the node gets another.
    reader: Option<NodeReader>,
    /// None: it was not begun, since the server asked for patience or the collector stops.
    outcome: Option<Result<NodeAnswer, NodeFailure>>,
}

/// The task and what it owns.
pub(crate) struct Watcher {
    cluster: Arc<Cluster>,
    session: Session,
    owners: Arc<Owners>,
    origin: Origin,
    outlet: Outlet,
    cancel: CancellationToken,
    slots: Arc<Semaphore>,
    nodes: BTreeMap<Arc<str>, Node>,
    reads: JoinSet<Finished>,
    /// The list in flight, one at most.
    lists: JoinSet<Result<Discovered, ClusterError>>,
    view: watch::Sender<Arc<ClusterView>>,
    /// Nodes are read at this time, and an interval after that.
    poll_at: Instant,
    discover_at: Instant,
    /// A reading has shown that the last list is outdated.
    wants_list: bool,
    /// Where the driver's pods are; none: there are none.
    driver_namespace: Option<Arc<str>>,
    pod_labels: PodLabels,
    /// Whether its pods could be listed for their labels.
    has_labels: bool,
    has_discovered: bool,
    failure: Option<ClusterError>,
    failures: u32,
}

impl Watcher {
    pub(crate) fn new(cluster: Cluster, origin: Origin, outlet: Outlet, cancel: CancellationToken) -> Self {
        let settings = &cluster.settings;
        let name: Arc<str> = Arc::from(settings.name.as_str());
        let view = ClusterView {
            name: Arc::clone(&name),
            has_gpu: cluster.has_gpu,
            skips_tls_verify: settings.skip_tls_verify,
            state: if cluster.has_gpu { ClusterState::Starting } else { ClusterState::NoGpu },
            since_ns: clock::now_ns(),
            error: None,
            has_driver_pods: false,
            nodes: Vec::new(),
        };
        if settings.skip_tls_verify {
            tracing::warn!(cluster = %name, "its certificate is not verified: anybody on the way can read its token");
        }
        let slots = Arc::new(Semaphore::new(cluster.parallel));
        let cluster = Arc::new(cluster);
        Self {
            session: Session::new(Arc::clone(&cluster)),
            cluster,
            owners: Owners::in_cluster(Some(name)),
            origin,
            outlet,
            cancel,
            slots,
            nodes: BTreeMap::new(),
            reads: JoinSet::new(),
            lists: JoinSet::new(),
            view: watch::Sender::new(Arc::new(view)),
            poll_at: Instant::now(),
            discover_at: Instant::now(),
            wants_list: false,
            driver_namespace: None,
            pod_labels: PodLabels::default(),
            has_labels: true,
            has_discovered: false,
            failure: None,
            failures: 0,
        }
    }

    /// The present view.
    pub(crate) fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.view.subscribe()
    }

    /// Runs until cancelled.
    pub(crate) async fn run(mut self) {
        let mut next = Instant::now();
        let cancel = self.cancel.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = sleep_until(next) => next = self.round(),
                Some(listed) = self.lists.join_next() => next = self.listed(listed),
                Some(ended) = self.reads.join_next() => {
                    self.settle(ended);
                    // Those that ended meanwhile: one view for all of them.
                    while let Some(ended) = self.reads.try_join_next() {
                        self.settle(ended);
                    }
                    if std::mem::take(&mut self.wants_list) {
                        self.discover_at = Instant::now();
                        next = self.discover_at;
                    }
                }
            }
            self.publish();
        }
        // Readings in flight see the cancellation by themselves.
        while self.reads.join_next().await.is_some() {}
    }

    /// Begins a list if it is time, starts what is due; returns the time of the next round.
    fn round(&mut self) -> Instant {
        let now = Instant::now();
        if let Some(until) = self.session.pause().until(now) {
            return until;
        }
        let client = match self.session.client() {
            Ok(client) => client,
            Err(error) => return self.refused(error),
        };
        if now >= self.discover_at && self.lists.is_empty() {
            let (client, cluster) = (client.clone(), Arc::clone(&self.cluster));
            self.lists.spawn(async move { discover(&client, &cluster).await });
        }
        if self.failure.is_none() {
            self.start(&client, now);
        }
        if now >= self.poll_at {
            self.poll_at = now + self.cluster.settings.poll_interval;
        }
        if self.lists.is_empty() { self.poll_at.min(self.discover_at) } else { self.poll_at }
    }

    /// Takes over a list that has ended; returns the time of the next round.
    fn listed(&mut self, ended: Result<Result<Discovered, ClusterError>, tokio::task::JoinError>) -> Instant {
        match ended {
            Ok(Ok(discovered)) => self.found(discovered),
            Ok(Err(error)) => return self.refused(error),
            Err(error) => tracing::error!(cluster = self.cluster.name(), %error, "a list was lost"),
        }
        let now = Instant::now();
        self.discover_at = now + self.cluster.settings.discovery_interval;
        now
    }

    /// The cluster as a whole gave no answer. Returns the time of the next try.
    fn refused(&mut self, error: ClusterError) -> Instant {
        let now = Instant::now();
        let (first, longest) = PAUSE;
        let first = first.min(self.cluster.settings.poll_interval);
        let until = now + pause(first, self.failures, longest);
        let is_news = self.failure.as_ref().map(ClusterError::class) != Some(error.class());
        if is_news {
            tracing::warn!(
                cluster = self.cluster.name(),
                error = causes(&error),
                "the cluster gives no answer"
            );
        }
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(error);
        self.discover_at = now;
        self.session.pause().until(now).map_or(until, |asked| asked.max(until))
    }

    fn found(&mut self, discovered: Discovered) {
        let (now, wall_ns) = (Instant::now(), clock::now_ns());
        if self.failure.take().is_some() {
            tracing::info!(cluster = self.cluster.name(), "the cluster answers again");
            for node in self.nodes.values_mut() {
                node.forgive(now);
            }
        }
        self.failures = 0;
        (self.has_discovered, self.driver_namespace) = (true, discovered.driver_namespace);
        self.tell_labels(discovered.pods, wall_ns);
        let mut before = std::mem::take(&mut self.nodes);
        for found in discovered.nodes {
            let name = Arc::clone(&found.name);
            let node = if let Some(mut node) = before.remove(&name) {
                node.found(found, now, wall_ns);
                node
            } else {
                Node::new(found, self.reader_of(&name), now, wall_ns)
            };
            self.nodes.insert(name, node);
        }
    }

    /// Hands over the labels of pods. That they cannot be listed is no fault of the cluster's.
    fn tell_labels(&mut self, pods: Result<Vec<LabelledPod>, ClusterError>, wall_ns: i64) {
        let cluster = self.cluster.name();
        match pods {
            Ok(pods) => {
                let rows = self.pod_labels.rows(pods, cluster, &self.origin, wall_ns);
                if let Some(rows) = rows {
                    self.outlet.give(rows);
                }
                self.has_labels = true;
            }
            Err(error) => {
                if self.has_labels {
                    tracing::warn!(cluster, error = causes(&error), "the labels of its pods cannot be read");
                }
                self.has_labels = false;
            }
        }
    }

    fn reader_of(&self, node: &str) -> NodeReader {
        let settings = &self.cluster.settings;
        let tool = PodTool::new(
            settings.command.clone(),
            settings.exec_deadline,
            settings.output_max,
            self.cancel.clone(),
        );
        NodeReader::new(tool, node)
    }

    /// Starts a reading of each node that is due.
    fn start(&mut self, client: &Client, now: Instant) {
        let settings = &self.cluster.settings;
        let Some(namespace) = &self.driver_namespace else { return };
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        for (name, node) in &mut self.nodes {
            let Some((reader, pod)) = node.due(now, settings.poll_interval) else { continue };
            let container = settings.driver_container.clone();
            reader.tool.aim(ExecTarget { pods: pods.clone(), pod, container });
            let (slots, server, cancel) =
                (Arc::clone(&self.slots), self.session.pause().clone(), self.cancel.clone());
            let (owners, origin, node) = (Arc::clone(&self.owners), self.origin.clone(), Arc::clone(name));
            self.reads.spawn(async move {
                let slot = tokio::select! {
                    () = cancel.cancelled() => None,
                    slot = slots.acquire_owned() => slot.ok(),
                };
                if slot.is_none() || server.until(Instant::now()).is_some() {
                    return Finished { node, reader: Some(reader), outcome: None };
                }
                read(node, reader, owners, origin).await
            });
        }
    }

    /// Takes over a reading that has ended.
    fn settle(&mut self, ended: Result<Finished, tokio::task::JoinError>) {
        let (now, wall_ns) = (Instant::now(), clock::now_ns());
        let Finished { node, reader, outcome } = match ended {
            Ok(finished) => finished,
            Err(error) => {
                tracing::error!(cluster = self.cluster.name(), %error, "a reading was lost");
                return;
            }
        };
        let reader = reader.unwrap_or_else(|| self.reader_of(&node));
        // A node may have left the cluster meanwhile.
        let Some(known) = self.nodes.get_mut(&node) else { return };
        known.reader = Some(reader);
        match outcome {
            None => known.not_before = now,
            Some(Ok(NodeAnswer { reading, unread, batches })) => {
                if let Some(text) = &unread
                    && known.view.error.as_ref() != Some(text)
                {
                    tracing::warn!(cluster = self.cluster.name(), %node, error = &**text, "cannot read every GPU of the node");
                }
                known.answered(reading, unread, wall_ns);
                for batch in batches {
                    self.outlet.give(batch);
                }
            }
            Some(Err(NodeFailure { cause, text })) => {
                let class = cause.as_ref().map(ClusterError::class);
                // Neither is the node's own failure.
                if matches!(cause, Some(ClusterError::Stopped)) || class == Some(ErrorClass::Throttled) {
                    known.not_before = now;
                    return;
                }
                if known.view.state != NodeState::Failing {
                    tracing::warn!(cluster = self.cluster.name(), %node, error = text, "cannot read the node");
                }
                known.failed(text, self.cluster.settings.poll_interval, now, wall_ns);
                // The pod was replaced, or the token expired: a list says more.
                let is_outdated = matches!(class, Some(ErrorClass::NotFound | ErrorClass::Unauthorized));
                self.wants_list |= is_outdated && self.failure.is_none();
            }
        }
    }

    /// Publishes the view if anything has changed.
    fn publish(&self) {
        let (state, error) = self.state();
        let has_driver_pods = self.driver_namespace.is_some();
        let nodes: Vec<_> = self.nodes.values().map(|node| Arc::clone(&node.view)).collect();
        self.view.send_if_modified(|view| {
            let is_same_state = view.state == state;
            let is_same = is_same_state
                && view.has_driver_pods == has_driver_pods
                && view.error.as_deref() == error.as_deref()
                && view.nodes.len() == nodes.len()
                && view.nodes.iter().zip(&nodes).all(|(one, other)| Arc::ptr_eq(one, other));
            if is_same {
                return false;
            }
            let since_ns = if is_same_state { view.since_ns } else { clock::now_ns() };
            let error = error.map(Arc::from);
            let before = ClusterView::clone(view);
            *view = Arc::new(ClusterView { state, since_ns, error, has_driver_pods, nodes, ..before });
            true
        });
    }

    fn state(&self) -> (ClusterState, Option<String>) {
        if self.session.pause().until(Instant::now()).is_some() {
            return (ClusterState::Throttled, Some("the API server asks for patience".to_owned()));
        }
        if let Some(error) = &self.failure {
            let state = match error.class() {
                ErrorClass::Unauthorized => ClusterState::Unauthorized,
                ErrorClass::Forbidden => ClusterState::Forbidden,
                ErrorClass::Throttled => ClusterState::Throttled,
                ErrorClass::Unreachable => ClusterState::Unreachable,
                ErrorClass::NotFound | ErrorClass::Failed => ClusterState::Failed,
            };
            return (state, Some(causes(error)));
        }
        if !self.has_discovered {
            return (ClusterState::Starting, None);
        }
        if self.nodes.is_empty() {
            return (ClusterState::NoGpuNodes, None);
        }
        if self.driver_namespace.is_none() && self.nodes.values().any(|node| node.view.vendor == "nvidia") {
            let settings = &self.cluster.settings;
            let selectors = settings.driver_selectors.join(" or ");
            let text = format!(
                "no pod in {} has the label {selectors}; driver_namespace names another namespace; of a driver on the host \
                 driver_selectors and driver_container name pods that have nvidia-smi, or the agent runs as a DaemonSet \
                 (docs/kubernetes.md)",
                settings.driver_namespaces().join(" or ")
            );
            return (ClusterState::NoGpuOperator, Some(text));
        }
        self.state_of_nodes()
    }

    fn state_of_nodes(&self) -> (ClusterState, Option<String>) {
        let views = || self.nodes.values().map(|node| &node.view);
        // What no tool reads from outside is not at fault.
        let is_fine = |state| matches!(state, NodeState::Ok | NodeState::Waiting | NodeState::NoTool);
        let failing: Vec<_> = views().filter(|view| !is_fine(view.state)).collect();
        if failing.is_empty() {
            let has = |state| views().any(|view| view.state == state);
            let is_new = has(NodeState::Waiting) && !has(NodeState::Ok);
            return (if is_new { ClusterState::Starting } else { ClusterState::Ok }, None);
        }
        let mut texts: Vec<String> = failing
            .iter()
            .take(NODES_NAMED)
            .map(|view| format!("{}: {}", view.name, view.error.as_deref().unwrap_or_default()))
            .collect();
        if failing.len() > NODES_NAMED {
            texts.push(format!("and {} more", failing.len() - NODES_NAMED));
        }
        (ClusterState::Degraded, Some(texts.join("; ")))
    }
}

/// Reads a node on a thread for blocking work.
async fn read(node: Arc<str>, mut reader: NodeReader, owners: Arc<Owners>, origin: Origin) -> Finished {
    let reading = tokio::task::spawn_blocking(move || {
        let outcome = reader.read(&owners, &origin);
        (reader, outcome)
    });
    match reading.await {
        Ok((reader, outcome)) => Finished { node, reader: Some(reader), outcome: Some(outcome) },
        Err(error) => {
            tracing::error!(%node, %error, "a reading has ended with a bug");
            let failure =
                NodeFailure { cause: None, text: "reading it ended with a bug of the collector".to_owned() };
            Finished { node, reader: None, outcome: Some(Err(failure)) }
        }
    }
}
