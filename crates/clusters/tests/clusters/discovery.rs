//! GPU nodes and driver pods are found by what clusters really have.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvitals_clusters::{ClusterSettings, Clusters};
use gpuvitals_core::Table;
use gpuvitals_core::clusters::{ClusterSelection, ClusterState, ClusterView, NodeState};
use gpuvitals_rig::cluster::{Behaviour, Double, NodeSpec, World};

use crate::{settings, start, watched, when, when_seen, when_state};

fn labelled(name: &str, label: (&str, &str)) -> NodeSpec {
    let labels = BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]);
    NodeSpec { resource: None, labels, pod_label: None, ..NodeSpec::new(name, 0) }
}

fn amd() -> NodeSpec {
    NodeSpec {
        resource: Some("amd.com/gpu"),
        labels: BTreeMap::new(),
        pod_label: None,
        ..NodeSpec::new("amd", 8)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_that_no_tool_reads_from_outside_are_no_fault_of_their_cluster() {
    let (_double, clusters, _feed) = watched(World::new(vec![amd(), NodeSpec::new("nvidia", 8)])).await;
    let view = when_state(&clusters, "east", ClusterState::Ok).await;
    assert_eq!((view.node("amd").unwrap().state, view.error.clone()), (NodeState::NoTool, None));
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_found_by_resource_or_label_in_pages() {
    let mut nodes = vec![
        NodeSpec {
            resource: Some("nvidia.com/mig-1g.10gb"),
            labels: BTreeMap::new(),
            ..NodeSpec::new("mig", 7)
        },
        amd(),
        labelled("by-label", ("nvidia.com/gpu.present", "true")),
        labelled("by-device", ("feature.node.kubernetes.io/pci-0302_10de.present", "true")),
        labelled("amd-by-device", ("feature.node.kubernetes.io/pci-1200_1002.present", "true")),
        labelled("not-present", ("nvidia.com/gpu.present", "false")),
        labelled("plain", ("private/label", "x")),
    ];
    nodes.extend((0..1_200).map(|at| labelled(&format!("cpu-{at}"), ("a", "b"))));
    let mut world = World::new(nodes);
    world.expiring = 2;
    let (double, clusters, _feed) = watched(world).await;
    let view =
        when(&clusters, "east", |view| view.node("mig").is_some_and(|node| node.state == NodeState::Ok))
            .await;
    let names: Vec<_> = view.nodes.iter().map(|node| (&*node.name, node.vendor, node.state)).collect();
    assert_eq!(
        names,
        [
            ("amd", "amd", NodeState::NoTool),
            ("amd-by-device", "amd", NodeState::NoTool),
            ("by-device", "nvidia", NodeState::NoDriverPod),
            ("by-label", "nvidia", NodeState::NoDriverPod),
            ("mig", "nvidia", NodeState::Ok),
        ]
    );
    assert_eq!(view.node("amd").unwrap().gpus_announced, Some(8));
    let seen = double.seen().borrow().clone();
    let expired: Vec<usize> =
        (0..seen.len()).filter(|at| seen.get(*at).is_some_and(|seen| seen.status == 410)).collect();
    assert_eq!(expired.len(), 2);
    for at in expired {
        let next = seen.get(at + 1).unwrap();
        assert_eq!(next.path, "/api/v1/nodes", "the list is begun anew, not the round");
        assert!(!next.query.contains("continue="), "{}", next.query);
    }
    let labels: Vec<_> = view.node("by-label").unwrap().labels.keys().cloned().collect();
    assert_eq!(labels, ["kubernetes.io/hostname", "nvidia.com/gpu.present"]);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_pods_are_found_by_the_second_label_and_wait_for_their_container() {
    let label = ("app.kubernetes.io/component", "nvidia-driver");
    let ready = NodeSpec { pod_label: Some(label), ..NodeSpec::new("ready", 1) };
    let building = NodeSpec { pod_label: Some(label), is_ready: false, ..NodeSpec::new("building", 1) };
    let (double, clusters, _feed) = watched(World::new(vec![ready, building])).await;
    let view =
        when(&clusters, "east", |view| view.node("ready").is_some_and(|node| node.state == NodeState::Ok))
            .await;
    assert_eq!(view.node("building").unwrap().state, NodeState::DriverPodNotReady);
    double.change(|world| world.nodes.iter_mut().for_each(|node| node.is_ready = true));
    when_state(&clusters, "east", ClusterState::Ok).await;
    clusters.stop().await;
}

/// A node without a driver pod.
fn without_pod(name: &str) -> NodeSpec {
    NodeSpec { pod_label: None, ..NodeSpec::new(name, 8) }
}

/// What is answered about all nodes: their names, and the numbers of nodes and GPUs in the summary.
fn answered(clusters: &Clusters) -> (Vec<String>, (usize, usize)) {
    let all = ClusterSelection::default();
    let selected = all.among(&clusters.clusters()).unwrap();
    let summary = all.summary(&selected);
    let names = selected.nodes.iter().map(|(_, node)| node.name.to_string()).collect();
    (names, (summary.node_count, summary.gpu_count))
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_without_operator_or_gpu_nodes_say_so_and_list_nothing() {
    let (double, clusters, _feed) = watched(World::new(vec![without_pod("n1")])).await;
    let view = when_state(&clusters, "east", ClusterState::NoGpuOperator).await;
    for words in ["nvidia-driver-daemonset", "gpu-operator or nvidia-gpu-operator", "driver_namespace"] {
        assert!(view.error.as_deref().unwrap().contains(words), "{words}: {:?}", view.error);
        assert!(view.health().reason.contains(words), "{words}: {:?}", view.health());
        assert!(view.missing()[0].contains(words), "{words}: {:?}", view.missing());
    }
    assert_eq!(view.node("n1").unwrap().state, NodeState::NoDriverPod);
    assert_eq!(answered(&clusters), (Vec::new(), (0, 0)));
    // Nor does it list them while it does not answer.
    double.change(|world| world.token = Some("another".to_owned()));
    when_state(&clusters, "east", ClusterState::Unauthorized).await;
    assert_eq!(answered(&clusters), (Vec::new(), (0, 0)));
    double.change(|world| (world.token, world.nodes) = (None, vec![labelled("plain", ("a", "b"))]));
    when_state(&clusters, "east", ClusterState::NoGpuNodes).await;
    assert_eq!(answered(&clusters), (Vec::new(), (0, 0)));
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_operators_pod_is_listed_and_so_is_what_was_read_before_the_operator_went() {
    let (double, clusters, _feed) =
        watched(World::new(vec![NodeSpec::new("n1", 2), without_pod("n2"), amd()])).await;
    let is_read = |view: &ClusterView| view.node("n1").is_some_and(|node| node.state == NodeState::Ok);
    let view = when(&clusters, "east", is_read).await;
    assert_eq!(
        (view.state, view.node("n2").unwrap().state),
        (ClusterState::Degraded, NodeState::NoDriverPod)
    );
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(answered(&clusters), (names(&["amd", "n1", "n2"]), (3, 2)));
    double.change(|world| world.nodes.iter_mut().for_each(|node| node.pod_label = None));
    let view = when_state(&clusters, "east", ClusterState::NoGpuOperator).await;
    assert!(view.node("n1").unwrap().is_stale());
    assert_eq!(answered(&clusters), (names(&["amd", "n1"]), (2, 2)));
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openshifts_driver_pods_are_found_and_those_of_another_namespace_by_the_setting_that_is_named() {
    let in_namespace = |namespace| World { namespace, ..World::new(vec![NodeSpec::new("n1", 2)]) };
    let (_double, clusters, _feed) = watched(in_namespace("nvidia-gpu-operator")).await;
    let view = when_state(&clusters, "east", ClusterState::Ok).await;
    assert_eq!(view.gpus_read(), 2);
    clusters.stop().await;

    let double = Double::start(in_namespace("gpus")).await;
    let unset = settings("east", &double);
    let set = ClusterSettings { driver_namespace: Some("gpus".to_owned()), ..settings("west", &double) };
    let (clusters, _feed) = start(vec![unset, set]);
    let view = when_state(&clusters, "east", ClusterState::NoGpuOperator).await;
    let error = view.error.as_deref().unwrap();
    assert!(error.contains("driver_namespace names another namespace"), "{error}");
    let view = when_state(&clusters, "west", ClusterState::Ok).await;
    assert_eq!(view.gpus_read(), 2);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_driver_on_the_host_the_sentence_says_what_reads_it_and_so_it_is_read() {
    let double = Double::start(World::new(vec![without_pod("n1")])).await;
    let unset = settings("east", &double);
    // As docs/kubernetes.md has it.
    let set = ClusterSettings {
        driver_selectors: vec!["app=nvidia-device-plugin-daemonset".to_owned()],
        driver_container: "nvidia-device-plugin".to_owned(),
        ..settings("west", &double)
    };
    let (clusters, _feed) = start(vec![unset, set]);
    let view = when_state(&clusters, "east", ClusterState::NoGpuOperator).await;
    let error = view.error.as_deref().unwrap();
    for words in [
        "of a driver on the host driver_selectors and driver_container name pods that have nvidia-smi",
        "or the agent runs as a DaemonSet",
        "docs/kubernetes.md",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let view = when_state(&clusters, "west", ClusterState::Ok).await;
    assert_eq!(view.gpus_read(), 8);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_pod_is_found_by_a_list_at_once() {
    let double = Double::start(World::new(vec![NodeSpec::new("n1", 1)])).await;
    let mut cluster = settings("east", &double);
    cluster.discovery_interval = Duration::from_mins(10);
    let (clusters, _feed) = start(vec![cluster]);
    when_state(&clusters, "east", ClusterState::Ok).await;
    double.change(|world| world.nodes.iter_mut().for_each(|node| node.behaviour = Behaviour::Gone));
    let mut seen = double.seen();
    when_seen(&mut seen, |all| {
        let gone = all.iter().position(|seen| seen.path.ends_with("/exec") && seen.status == 404);
        gone.is_some_and(|gone| all.iter().skip(gone).any(|seen| seen.path == "/api/v1/nodes"))
    })
    .await;
    double.change(|world| world.nodes.iter_mut().for_each(|node| node.behaviour = Behaviour::Normal));
    when_state(&clusters, "east", ClusterState::Ok).await;
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_pods_of_named_namespaces_are_rows() {
    let double = Double::start(World::new(vec![NodeSpec::new("n1", 1)])).await;
    let named = ClusterSettings {
        pod_namespaces: vec!["gpu-operator".to_owned()],
        pod_labels: vec!["app".to_owned()],
        ..settings("east", &double)
    };
    let (clusters, mut feed) = start(vec![named]);
    when_state(&clusters, "east", ClusterState::Ok).await;
    clusters.stop().await;
    let rows = feed.rest().into_iter().find(|batch| batch.table() == Table::Jobs).unwrap();
    let shown = format!("{:?}", rows.records());
    for text in ["pod:gpu-operator/driver-n1", "app=nvidia-driver-daemonset", "kubernetes", "east"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}
