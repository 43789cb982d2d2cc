//! Three clusters with 200 nodes and 1,600 GPUs, one of them refusing, one node hung.

use std::time::Duration;

use gpuvitals_clusters::ClusterSettings;
use gpuvitals_core::clock;
use gpuvitals_core::clusters::{ClusterState, ClusterSummary, NodeState};
use gpuvitals_rig::cluster::{Behaviour, Double, NodeSpec, World};

use crate::{settings, start, when, when_state};

const REFRESH_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn gpus_of_200_nodes_are_read_in_ten_seconds() {
    let before_kib = resident_kib();
    let nodes = |cluster: &str, count: usize| -> Vec<NodeSpec> {
        (0..count).map(|at| NodeSpec::new(&format!("{cluster}-{at:03}"), 8)).collect()
    };
    let mut east = nodes("east", 100);
    east.push(NodeSpec::new("hung", 8).with(Behaviour::Hang));
    // The long tests have a cluster that takes a second for each request.
    let latency = Duration::from_secs(u64::from(std::env::var_os("GPUVITALS_TEST_LONG").is_some()));
    let slowed = |nodes| World { latency, ..World::new(nodes) };
    let east = Double::start_tls(slowed(east)).await;
    let west = Double::start_tls(slowed(nodes("west", 100))).await;
    let mut world = World::new(nodes("north", 1));
    world.token = Some("another".to_owned());
    let north = Double::start_tls(world).await;
    let slow = |cluster: ClusterSettings| ClusterSettings {
        poll_interval: Duration::from_secs(30),
        exec_deadline: Duration::from_secs(10),
        ..cluster
    };
    let begun = clock::instant();
    let (clusters, feed) = start(vec![
        slow(settings("east", &east)),
        slow(settings("west", &west)),
        slow(settings("north", &north)),
    ]);
    for name in ["east", "west"] {
        when(&clusters, name, |view| {
            view.nodes.iter().filter(|node| node.state == NodeState::Ok).count() == 100
        })
        .await;
    }
    let took = begun.elapsed();
    when_state(&clusters, "north", ClusterState::Unauthorized).await;
    let views = clusters.clusters();
    let summary = ClusterSummary::of(views.iter().flat_map(|view| &view.nodes).map(AsRef::as_ref));
    let execs = [&east, &west]
        .map(|double| double.seen().borrow().iter().filter(|seen| seen.path.ends_with("/exec")).count());
    eprintln!("execs: {execs:?}");
    eprintln!(
        "{} GPUs of {} nodes in {took:?}, the doubles in the same process; {} KiB more than before",
        summary.gpu_count,
        summary.node_count,
        resident_kib().saturating_sub(before_kib)
    );
    assert_eq!(summary.gpu_count, 1_600);
    assert!(took < REFRESH_MAX, "{took:?}");
    let view = when_state(&clusters, "east", ClusterState::Degraded).await;
    assert!(view.error.as_deref().unwrap().contains("hung: "), "{:?}", view.error);
    assert_eq!(feed.counts().rows_dropped(), 0);
    clusters.stop().await;
}

/// Memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
