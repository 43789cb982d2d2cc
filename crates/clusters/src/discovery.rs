//! GPU nodes and driver pods of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::config::Cluster;
use crate::error::ClusterError;
use crate::labels::LabelledPod;

/// Objects of a page.
const PAGE_LEN: u32 = 500;
/// Objects of a list at most: twice the nodes that Kubernetes supports.
const OBJECTS_MAX: usize = 10_000;
/// Times that a list is begun anew because its pages expired.
const RESTARTS_MAX: usize = 3;

/// The GPU nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Discovered {
    pub(crate) nodes: Vec<FoundNode>,
    /// Where driver pods are, ready or not; none: nowhere.
    pub(crate) driver_namespace: Option<Arc<str>>,
    /// The pods whose labels are kept. The role may have no right to list them, and the GPUs are read all the same.
    pub(crate) pods: Result<Vec<LabelledPod>, ClusterError>,
}

/// A node with GPUs.
#[derive(Debug)]
pub(crate) struct FoundNode {
    pub(crate) name: Arc<str>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) vendor: &'static str,
    /// Physical GPUs by label or capacity.
    pub(crate) gpu_count: Option<u32>,
    pub(crate) driver_pod: DriverPod,
}

/// The pod of a node in which the tool runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DriverPod {
    Missing,
    /// There, and its container does not run yet.
    NotReady(Arc<str>),
    Ready(Arc<str>),
}

/// Lists nodes and driver pods. Each page has the time of an exec.
pub(crate) async fn discover(client: &Client, cluster: &Cluster) -> Result<Discovered, ClusterError> {
    let (driver_namespace, pods) = driver_pods(client, cluster).await?;
    let mut nodes = Vec::new();
    let all = Api::<Node>::all(client.clone());
    let deadline = cluster.settings.exec_deadline;
    list(&all, &ListParams::default(), deadline, |node: Node| nodes.extend(gpu_node(node, cluster, &pods)))
        .await?;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let pods = labelled_pods(client, cluster).await;
    Ok(Discovered { nodes, driver_namespace, pods })
}

/// The pods of the namespaces whose labels are kept; one may come twice.
async fn labelled_pods(client: &Client, cluster: &Cluster) -> Result<Vec<LabelledPod>, ClusterError> {
    let settings = &cluster.settings;
    let mut found = Vec::new();
    for namespace in &settings.pod_namespaces {
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        list(&api, &ListParams::default(), settings.exec_deadline, |pod: Pod| {
            found.extend(LabelledPod::of(pod, &settings.pod_labels));
        })
        .await?;
    }
    Ok(found)
}

/// The driver pods by node, and their namespace: the first that has any. The role may have rights in one of them alone, so what
/// the first one answers counts only if no other has pods.
async fn driver_pods(
    client: &Client,
    cluster: &Cluster,
) -> Result<(Option<Arc<str>>, BTreeMap<String, DriverPod>), ClusterError> {
    let mut first = None;
    for namespace in cluster.settings.driver_namespaces() {
        match driver_pods_in(client, cluster, namespace).await {
            Ok(pods) if !pods.is_empty() => return Ok((Some(Arc::from(namespace)), pods)),
            other => first.get_or_insert(other),
        };
    }
    Ok((None, first.unwrap_or_else(|| Ok(BTreeMap::new()))?))
}

/// The driver pods of a namespace by node, of the first selector that finds any.
async fn driver_pods_in(
    client: &Client,
    cluster: &Cluster,
    namespace: &str,
) -> Result<BTreeMap<String, DriverPod>, ClusterError> {
    let settings = &cluster.settings;
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut found: BTreeMap<String, DriverPod> = BTreeMap::new();
    for selector in &settings.driver_selectors {
        list(&api, &ListParams::default().labels(selector), settings.exec_deadline, |pod: Pod| {
            let Some((node, pod)) = driver_pod(&pod, &settings.driver_container) else { return };
            // While an update rolls a node may have two.
            let slot = found.entry(node).or_insert(DriverPod::Missing);
            if !matches!(slot, DriverPod::Ready(_)) {
                *slot = pod;
            }
        })
        .await?;
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// Passes on each object of a list, page by page. A list that expires meanwhile (410) is begun anew: objects then come twice.
async fn list<K>(
    api: &Api<K>,
    params: &ListParams,
    deadline: Duration,
    mut take: impl FnMut(K),
) -> Result<(), ClusterError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    'anew: for _ in 0..RESTARTS_MAX {
        let (mut params, mut count) = (params.clone().limit(PAGE_LEN), 0);
        loop {
            let page = timeout(deadline, api.list(&params)).await;
            let page = match page.map(|page| page.map_err(ClusterError::of)) {
                Ok(Ok(page)) => page,
                Ok(Err(ClusterError::Api { code: 410, .. })) => continue 'anew,
                Ok(Err(other)) => return Err(other),
                Err(_) => return Err(ClusterError::TimedOut(deadline)),
            };
            count += page.items.len();
            if count > OBJECTS_MAX {
                return Err(ClusterError::TooMany(OBJECTS_MAX));
            }
            page.items.into_iter().for_each(&mut take);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
    Err(ClusterError::Expired)
}

fn driver_pod(pod: &Pod, container: &str) -> Option<(String, DriverPod)> {
    let name: Arc<str> = Arc::from(pod.metadata.name.as_deref()?);
    let node = pod.spec.as_ref()?.node_name.clone()?;
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = pod.status.as_ref();
    let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let is_ready = is_running && containers.into_iter().any(|state| state.name == container && state.ready);
    Some((node, if is_ready { DriverPod::Ready(name) } else { DriverPod::NotReady(name) }))
}

/// A node with GPUs, by its resources or its labels.
fn gpu_node(node: Node, cluster: &Cluster, pods: &BTreeMap<String, DriverPod>) -> Option<FoundNode> {
    let name = node.metadata.name?;
    let labels = node.metadata.labels.unwrap_or_default();
    let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
    let has_resource =
        |begins: &[&str]| capacity.keys().any(|key| begins.iter().any(|begin| key.starts_with(begin)));
    let is_true = |label: &str| labels.get(label).is_some_and(|value| value == "true");
    let has_device = |vendor: &str| {
        labels.iter().any(|(key, value)| {
            let device = key
                .strip_prefix("feature.node.kubernetes.io/pci-")
                .and_then(|rest| rest.strip_suffix(".present"));
            value == "true" && device.is_some_and(|device| device.rsplit('_').next() == Some(vendor))
        })
    };
    let has_label =
        |begins: &[&str]| labels.keys().any(|key| begins.iter().any(|begin| key.starts_with(begin)));
    let is_nvidia = has_resource(&["nvidia.com/gpu", "nvidia.com/mig-"])
        || is_true("nvidia.com/gpu.present")
        || has_device("10de");
    let is_amd = has_resource(&["amd.com/gpu"])
        || is_true("feature.node.kubernetes.io/amd-gpu")
        || has_label(&["amd.com/gpu.", "beta.amd.com/gpu."])
        || has_device("1002");
    let vendor = match (is_nvidia, is_amd) {
        (true, _) => "nvidia",
        (false, true) => "amd",
        (false, false) => return None,
    };
    let number = |text: &String| text.parse::<u32>().ok();
    let capacity_of = |name: &str| capacity.get(name).and_then(|quantity| number(&quantity.0));
    // Time slicing multiplies the capacity.
    let replicas = labels.get("nvidia.com/gpu.replicas").and_then(number).filter(|replicas| *replicas > 1);
    let gpu_count = labels
        .get("nvidia.com/gpu.count")
        .and_then(number)
        .or_else(|| capacity_of("nvidia.com/gpu").map(|count| count / replicas.unwrap_or(1)))
        .or_else(|| capacity_of("amd.com/gpu"));
    let driver_pod = pods.get(&name).cloned().unwrap_or(DriverPod::Missing);
    let labels = labels.into_iter().filter(|(name, _)| cluster.keeps_label(name)).collect();
    Some(FoundNode { name: Arc::from(name), labels, vendor, gpu_count, driver_pod })
}
