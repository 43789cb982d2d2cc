//! The labels of this machine's Kubernetes node as tags: `gpuvitals_node_labels_info` beside the agent's own figures.
//!
//! Labels of a node are in no file of a pod: the API server is asked with the pod's own account, which needs the right to `get`
//! nodes. Labels rarely change; they are read once, when the agent starts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::{Family, Kind, Labels, Number};
use gpuvitals_queue::link::Credentials;
use serde::Deserialize;
use ureq::http::StatusCode;

use crate::client::http_client;
use crate::failure::{Exit, Failure};

/// What every pod has of its account, unless it is told not to.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long the API server has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// First and longest pause before a server that does not answer is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// Names of labels of nodes that are remembered, which is for good. Further ones are in the inventory alone.
const LABEL_NAMES_MAX: usize = 256;

/// What was read; a process has one node.
static READ: OnceLock<Family> = OnceLock::new();

/// A node, as far as it is read.
#[derive(Debug, Deserialize)]
struct Node {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The family, once it was read.
pub(crate) fn families() -> Option<Family> {
    READ.get().cloned()
}

/// Reads the labels that the patterns keep, until the server has answered. Does nothing outside a pod, without an account, and
/// without patterns.
pub(crate) async fn read(node: String, patterns: Vec<String>) {
    let Some(server) = server().filter(|_| !patterns.is_empty()) else { return };
    let mut pause = PAUSE.0;
    loop {
        let (url, name) = (format!("{server}/api/v1/nodes/{node}"), node.clone());
        let asked = tokio::task::spawn_blocking(move || ask(&url)).await;
        match asked.unwrap_or_else(|error| Err(Failure::new(Exit::Bug, error.to_string()))) {
            Ok(labels) => {
                let _read_once = READ.set(family(&name, &kept(labels, &patterns)));
                return;
            }
            Err(failure) if failure.code() == Exit::Unavailable as u8 => {
                tracing::debug!(reason = %failure, "the labels of the node");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
            Err(failure) => {
                tracing::warn!(
                    reason = %failure,
                    "the labels of the node are not shown; grant its account `get` on nodes, or set agent.node_labels to []"
                );
                return;
            }
        }
    }
}

/// The API server of the cluster that this pod runs in.
fn server() -> Option<String> {
    let variable = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    if !Path::new(ACCOUNT).join("token").exists() {
        tracing::info!(
            "the labels of the node are not shown: this pod has no token of its account (in the chart agent.nodeLabels)"
        );
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

/// The labels of a node by its URL.
///
/// # Errors
/// [`Exit::Unavailable`] if the server may answer later.
fn ask(url: &str) -> Result<BTreeMap<String, String>, Failure> {
    let account = Path::new(ACCOUNT);
    let token = std::fs::read_to_string(account.join("token"))
        .map_err(|e| Failure::io("cannot read the token of the pod's account", e))?;
    let access = Credentials { ca: Some(account.join("ca.crt")), ..Credentials::default() };
    let client = http_client(true, &access, ANSWER_WITHIN)?;
    let mut answer = client
        .get(url)
        .header("authorization", format!("Bearer {}", token.trim()))
        .call()
        .map_err(|e| Failure::caused(Exit::Unavailable, "the API server does not answer", e))?;
    match answer.status() {
        StatusCode::OK => {}
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            return Err(Failure::new(Exit::Unavailable, format!("the API server answers {status}")));
        }
        status => return Err(Failure::new(Exit::Permission, format!("the API server answers {status}"))),
    }
    let text = answer
        .body_mut()
        .read_to_string()
        .map_err(|e| Failure::caused(Exit::Unavailable, "the API server's answer ends early", e))?;
    let node: Node = serde_json::from_str(&text)
        .map_err(|e| Failure::caused(Exit::Data, "the API server's answer is no node", e))?;
    Ok(node.metadata.labels)
}

/// The labels that a pattern names, with `*` at its end for anything.
fn kept(labels: BTreeMap<String, String>, patterns: &[String]) -> BTreeMap<String, String> {
    let is_kept = |name: &str| {
        patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => name == pattern,
        })
    };
    labels.into_iter().filter(|(name, _)| is_kept(name)).collect()
}

fn family(node: &str, kept: &BTreeMap<String, String>) -> Family {
    let mut labels: Labels = vec![("node", node.to_owned())];
    extend(&mut labels, kept);
    let help = "This Kubernetes node, with the labels that are kept.";
    Family::new("gpuvitals_node_labels_info", Kind::Info, help).with(labels, Number::Int(1))
}

/// Adds labels of a node under names that Prometheus takes. Two may have the same name there: the first counts.
pub(crate) fn extend(labels: &mut Labels, of_node: &BTreeMap<String, String>) {
    for (name, text) in of_node {
        let Some(name) = label_name(name) else { continue };
        if labels.iter().all(|(known, _)| *known != name) {
            labels.push((name, text.clone()));
        }
    }
}

/// `label_nvidia_com_gpu_product` of `nvidia.com/gpu.product`; none beyond [`LABEL_NAMES_MAX`].
fn label_name(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    if names.len() == LABEL_NAMES_MAX {
        return None;
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let made: String = "label_".chars().chain(name.chars().map(plain)).collect();
    // The names of labels are static in all figures; these come from nodes, and are few.
    let made: &'static str = Box::leak(made.into_boxed_str());
    names.insert(name.to_owned(), made);
    if names.len() == LABEL_NAMES_MAX {
        tracing::warn!(
            max = LABEL_NAMES_MAX,
            "nodes have more labels than the figures take; narrow kubernetes.node_labels or agent.node_labels"
        );
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_that_are_kept_are_tags_of_the_node() {
        let node = r#"{"kind": "Node", "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H200",
            "topology.kubernetes.io/zone": "b", "example.com/secret": "x"}}}"#;
        let node: Node = serde_json::from_str(node).unwrap();
        let patterns = ["nvidia.com/*", "topology.kubernetes.io/zone"].map(str::to_owned);
        let family = family("n1", &kept(node.metadata.labels, &patterns));
        let [sample] = family.samples.as_slice() else { panic!("{family:?}") };
        let labels: Vec<_> = sample.labels.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let expected = [
            ("node", "n1"),
            ("label_nvidia_com_gpu_product", "NVIDIA-H200"),
            ("label_topology_kubernetes_io_zone", "b"),
        ];
        assert_eq!(labels, expected);
    }
}
