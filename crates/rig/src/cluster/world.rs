//! What the cluster has, and how its pods behave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node and its driver pod.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Name of the node.
    pub name: String,
    /// How many GPUs it has.
    pub gpus: usize,
    /// Resource in the capacity; none: only labels tell.
    pub resource: Option<&'static str>,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Label of its driver pod; none: no pod.
    pub pod_label: Option<(&'static str, &'static str)>,
    /// Whether its driver pod is ready.
    pub is_ready: bool,
    /// What an exec in its pod does.
    pub behaviour: Behaviour,
}

/// What happens to an exec in a node's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It answers as the tool does.
    Normal,
    /// A GPU is lost: a sentence between the rows, and an exit code.
    Lost,
    /// Nothing is ever said.
    Hang,
    /// A byte at a time, for longer than anybody waits.
    Drip,
    /// The output and no status.
    NoStatus,
    /// Half the output, then the connection breaks.
    Cut,
    /// The runtime has no such program.
    NoTool,
    /// The runtime fails.
    Internal,
    /// The tool writes megabytes.
    Flood,
    /// The pod has just gone.
    Gone,
    /// nvidia-smi itself fails.
    NoDriver,
    /// It reads the GPUs and may not list processes.
    NoProcesses,
}

/// The container of a driver pod in which the tool runs, and that of a pod of the device plugin.
const DRIVER_CONTAINER: &str = "nvidia-driver-ctr";
const PLUGIN_CONTAINER: &str = "nvidia-device-plugin";

/// What the server answers with; tests change it at any time.
#[derive(Debug, Clone)]
pub struct World {
    /// The nodes of the cluster.
    pub nodes: Vec<NodeSpec>,
    /// Where their pods are.
    pub namespace: &'static str,
    /// The token it accepts; none: everybody.
    pub token: Option<String>,
    /// Verbs that are refused: `list`, and `get` and `create` of `pods/exec`.
    pub forbidden: BTreeSet<&'static str>,
    /// Pages that expire before they are answered.
    pub expiring: usize,
    /// Requests that are refused for its load, and the seconds to wait.
    pub busy: (usize, u64),
    /// Versions of the exec protocol it speaks.
    pub protocols: Vec<&'static str>,
    /// Lists are never answered.
    pub hangs: bool,
    /// Stands before each answer.
    pub latency: Duration,
}

/// A pod of a node in which the tool can be run.
#[derive(Debug)]
pub(super) struct PodSpec {
    pub(super) name: String,
    pub(super) label: (&'static str, &'static str),
    pub(super) container: &'static str,
    pub(super) is_ready: bool,
}

impl NodeSpec {
    /// An NVIDIA node with a driver pod that works.
    pub fn new(name: &str, gpus: usize) -> Self {
        Self {
            name: name.to_owned(),
            gpus,
            resource: Some("nvidia.com/gpu"),
            labels: BTreeMap::from([("nvidia.com/gpu.present".to_owned(), "true".to_owned())]),
            pod_label: Some(("app", "nvidia-driver-daemonset")),
            is_ready: true,
            behaviour: Behaviour::Normal,
        }
    }

    /// The same with another behaviour of execs.
    pub fn with(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    /// Its driver pod, unless it has none, and its pod of the device plugin, which works wherever the driver is.
    pub(super) fn pods(&self) -> impl Iterator<Item = PodSpec> {
        let driver = self.pod_label.map(|label| PodSpec {
            name: format!("driver-{}", self.name),
            label,
            container: DRIVER_CONTAINER,
            is_ready: self.is_ready,
        });
        let plugin = PodSpec {
            name: format!("plugin-{}", self.name),
            label: ("app", "nvidia-device-plugin-daemonset"),
            container: PLUGIN_CONTAINER,
            is_ready: true,
        };
        driver.into_iter().chain([plugin])
    }
}

impl World {
    /// These nodes, and no failures.
    pub fn new(nodes: Vec<NodeSpec>) -> Self {
        Self {
            nodes,
            namespace: "gpu-operator",
            token: None,
            forbidden: BTreeSet::new(),
            expiring: 0,
            busy: (0, 0),
            protocols: vec!["v5.channel.k8s.io", "v4.channel.k8s.io"],
            hangs: false,
            latency: Duration::ZERO,
        }
    }

    /// Where the API has its pods.
    pub(super) fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }
}
