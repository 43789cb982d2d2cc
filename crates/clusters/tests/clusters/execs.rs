//! The tool in a pod: what it says, and every way in which it fails.

use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::clusters::{ClusterState, ClusterSummary, NodeState};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_rig::cluster::{Behaviour, Double, NodeSpec, SeenRequest, World};

use crate::{settings, start, watched, when, when_seen, when_state};

#[tokio::test(flavor = "multi_thread")]
async fn gpus_and_processes_of_a_node_are_read_in_both_versions_of_the_protocol() {
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let mut world = World::new(vec![NodeSpec::new("n1", 3)]);
        world.protocols = vec![protocol];
        let (double, clusters, mut feed) = watched(world).await;
        let view = when_state(&clusters, "east", ClusterState::Ok).await;
        let node = view.node("n1").unwrap();
        assert_eq!((node.state, node.is_stale(), node.gpus_announced), (NodeState::Ok, false, Some(3)));
        let gpus = node.gpus().unwrap();
        assert_eq!(gpus.len(), 3);
        let (last, first) = (gpus.last().unwrap(), gpus.first().unwrap());
        assert_eq!((last.index, last.uuid.as_deref()), (Some(2), Some("GPU-n1-0002")));
        assert_eq!(first.name.as_deref(), Some("NVIDIA H200"));
        assert!(first.memory_total_mb.unwrap() > 140_000.0 && first.power_draw_watts.unwrap() > 0.0);
        assert_eq!(first.fan_speed_percent, None, "N/A is no number");
        let processes = node.reading.as_ref().unwrap().processes();
        let busy = processes.iter().find(|process| process.command.as_deref() == Some("gpu_burn")).unwrap();
        assert_eq!((busy.gpu_index, busy.sm_utilization), (Some(0), Some(99.0)));
        assert_eq!((busy.process_type.as_str(), busy.encoder_utilization), ("compute", None));
        assert_eq!((busy.node_name.as_str(), busy.cluster_id.as_str()), ("n1", "east"));
        let summary = ClusterSummary::of(view.nodes.iter().map(AsRef::as_ref));
        assert_eq!((summary.node_count, summary.gpu_count), (1, 3));
        assert_eq!(double.most_at_once().0, 1, "one exec in flight for a pod");
        let seen = double.seen().borrow().clone();
        let is_list = |at: usize| seen.get(at).is_some_and(|seen| !seen.path.ends_with("/exec"));
        let of_a_round: Vec<&str> = (0..seen.len())
            .skip_while(|at| is_list(*at))
            .take_while(|at| !is_list(*at))
            .filter_map(|at| seen.get(at)?.query.split("command=").nth(2))
            .take(2)
            .collect();
        assert!(of_a_round.first().is_some_and(|first| first.starts_with("--query-gpu")), "{of_a_round:?}");
        assert!(of_a_round.last().is_some_and(|last| last.starts_with("pmon")), "{of_a_round:?}");
        // Both tables go into the pipe, under cluster and node.
        let mut tables = Vec::new();
        while !(tables.contains(&Table::GpuEvents) && tables.contains(&Table::GpuProcesses)) {
            let Poll::Ready(batch) = tokio::task::block_in_place(|| feed.poll(0)).unwrap() else { continue };
            let identity = batch.identity(0);
            assert_eq!(identity.get(IdentityColumn::Cluster), Some("east"));
            assert_eq!(identity.node(), Some("n1"));
            tables.push(batch.table());
        }
        clusters.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_one_node_names_its_cause_and_leaves_the_others_alone() {
    let causes = [
        (Behaviour::Hang, "no answer within 2s"),
        (Behaviour::Drip, "no answer within 2s"),
        (Behaviour::NoStatus, "closed before the tool ended"),
        (Behaviour::Cut, "the connection"),
        (Behaviour::NoTool, "executable file not found"),
        (Behaviour::Internal, "container is not running"),
        (Behaviour::Flood, "more than 1048576 bytes"),
        (Behaviour::Gone, "404"),
        (Behaviour::NoDriver, "couldn't communicate with the NVIDIA driver"),
    ];
    let mut nodes: Vec<NodeSpec> = causes
        .iter()
        .map(|(behaviour, _)| NodeSpec::new(&format!("{behaviour:?}"), 2).with(*behaviour))
        .collect();
    nodes.push(NodeSpec::new("well", 2));
    let (_double, clusters, _feed) = watched(World::new(nodes)).await;
    let view = when(&clusters, "east", |view| {
        view.nodes.len() == causes.len() + 1 && view.nodes.iter().all(|node| node.state != NodeState::Waiting)
    })
    .await;
    assert_eq!(view.state, ClusterState::Degraded);
    assert!(view.error.as_deref().unwrap().contains("and 6 more"), "{:?}", view.error);
    for (behaviour, expected) in causes {
        let node = view.node(&format!("{behaviour:?}")).unwrap();
        let error = node.error.as_deref().unwrap_or_default();
        assert_eq!(node.state, NodeState::Failing, "{behaviour:?}");
        assert!(error.contains(expected), "{behaviour:?}: {error}");
        assert!(node.reading.is_none());
    }
    assert_eq!(view.node("well").unwrap().state, NodeState::Ok);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_good_gpus_count_though_the_tool_fails() {
    let (_double, clusters, _feed) =
        watched(World::new(vec![NodeSpec::new("n1", 3).with(Behaviour::Lost)])).await;
    let view = when_state(&clusters, "east", ClusterState::Degraded).await;
    let node = view.node("n1").unwrap();
    let indexes: Vec<_> = node.gpus().unwrap().iter().map(|gpu| gpu.index).collect();
    assert_eq!(indexes, [Some(0), Some(2)]);
    // The one that the tool cannot reach is named, though it was never listed, and does not count as read.
    assert_eq!((node.state, node.is_stale(), view.gpus_read()), (NodeState::Partial, false, 2));
    let missing = view.missing();
    assert!(
        missing.len() == 1 && missing[0].contains("node n1: GPU (0000:01:00.0) was not read"),
        "{missing:?}"
    );
    assert_eq!(ClusterSummary::of(view.nodes.iter().map(AsRef::as_ref)).gpu_count, 2);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_processes_cannot_be_listed_is_well_and_its_answer_says_so() {
    let nodes = vec![NodeSpec::new("n1", 2).with(Behaviour::NoProcesses), NodeSpec::new("n2", 2)];
    let (_double, clusters, _feed) = watched(World::new(nodes)).await;
    let view = when(&clusters, "east", |view| {
        view.nodes.len() == 2 && view.nodes.iter().all(|node| node.state == NodeState::Ok)
    })
    .await;
    assert_eq!(view.state, ClusterState::Ok);
    let reading = view.node("n1").unwrap().reading.clone().unwrap();
    assert_eq!((reading.gpus().len(), reading.processes().len()), (2, 0));
    let missing = view.missing();
    assert!(
        missing.len() == 1 && missing[0].contains("node n1: its processes could not be listed: "),
        "{missing:?}"
    );
    assert_eq!(view.missing_of(view.node("n1").unwrap()), missing);
    assert_eq!(view.missing_of(view.node("n2").unwrap()), [""; 0]);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_keeps_its_last_reading_as_stale_and_comes_back() {
    let (double, clusters, _feed) = watched(World::new(vec![NodeSpec::new("n1", 2)])).await;
    when_state(&clusters, "east", ClusterState::Ok).await;
    let become_ =
        |behaviour| double.change(|world| world.nodes.iter_mut().for_each(|node| node.behaviour = behaviour));
    become_(Behaviour::Internal);
    let view = when_state(&clusters, "east", ClusterState::Degraded).await;
    let node = view.node("n1").unwrap();
    assert!(node.is_stale() && node.gpus().unwrap().len() == 2);
    assert!(node.age_ns(clock::now_ns()).unwrap() > 0);
    become_(Behaviour::Normal);
    let view = when_state(&clusters, "east", ClusterState::Ok).await;
    assert!(!view.node("n1").unwrap().is_stale());
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_pods_are_asked_less_and_less_and_end_with_the_collector() {
    let double = Double::start(World::new(vec![NodeSpec::new("n1", 2).with(Behaviour::Hang)])).await;
    let mut cluster = settings("east", &double);
    cluster.exec_deadline = Duration::from_millis(300);
    let (clusters, _feed) = start(vec![cluster]);
    let mut seen = double.seen();
    // Lists go on at their interval, execs do not at theirs.
    let is_list = |path: &str| path == "/api/v1/nodes";
    let all = when_seen(&mut seen, |all| all.iter().filter(|seen| is_list(&seen.path)).count() >= 12).await;
    let execs = all.iter().filter(|seen| seen.path.ends_with("/exec")).count();
    assert!((1..=6).contains(&execs), "{execs} execs");
    assert_eq!(double.most_at_once().0, 1);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_read_while_a_list_hangs() {
    let double = Double::start(World::new(vec![NodeSpec::new("n1", 2)])).await;
    let mut cluster = settings("east", &double);
    // Longer than the test waits.
    cluster.exec_deadline = Duration::from_mins(2);
    let (clusters, _feed) = start(vec![cluster]);
    when_state(&clusters, "east", ClusterState::Ok).await;
    double.change(|world| world.hangs = true);
    let mut seen = double.seen();
    let execs = |all: &[SeenRequest]| all.iter().filter(|seen| seen.path.ends_with("/exec")).count();
    let before = execs(&seen.borrow());
    // The next list begins within 0.4 s, and two execs are a reading.
    when_seen(&mut seen, |all| execs(all) >= before + 12).await;
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_execs_run_at_once_than_the_cluster_may_have() {
    let nodes = (0..20).map(|at| NodeSpec::new(&format!("n{at}"), 1).with(Behaviour::Hang)).collect();
    let double = Double::start(World::new(nodes)).await;
    let mut cluster = settings("east", &double);
    (cluster.parallel, cluster.exec_deadline) = (Some(4), Duration::from_millis(300));
    let (clusters, _feed) = start(vec![cluster]);
    let is_tried = |state| state == NodeState::Failing;
    when(&clusters, "east", |view| {
        view.nodes.len() == 20 && view.nodes.iter().all(|node| is_tried(node.state))
    })
    .await;
    let (of_a_pod, of_all) = double.most_at_once();
    // The server may notice the end of an exec after the next has begun.
    assert!(of_a_pod == 1 && (4..=8).contains(&of_all), "{of_a_pod} {of_all}");
    clusters.stop().await;
}
