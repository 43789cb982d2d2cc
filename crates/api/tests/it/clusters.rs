//! Clusters whose nodes are read from outside.

use std::sync::Arc;

use gpuvitals_core::clusters::{ClusterState, ClusterView, NodeState, NodeView};
use gpuvitals_suite::clusters as sample;
use serde_json::json;

use crate::world::{World, now_ns};

fn node_read(cluster: &str, name: &str, state: NodeState) -> Arc<NodeView> {
    let now_ns = now_ns();
    sample::node(name, state, Some(sample::reading(cluster, name, now_ns)), now_ns)
}

fn node_unread(name: &str, state: NodeState) -> Arc<NodeView> {
    sample::node(name, state, None, now_ns())
}

fn cluster(
    name: &str,
    state: ClusterState,
    error: Option<&str>,
    nodes: Vec<Arc<NodeView>>,
) -> Arc<ClusterView> {
    let view = sample::cluster(name, state, nodes, now_ns());
    Arc::new(ClusterView { error: error.map(Arc::from), skips_tls_verify: name == "west", ..view })
}

/// The cluster `east`, in which all is well.
pub(crate) fn east_with(nodes: &[&str]) -> Arc<ClusterView> {
    let nodes = nodes.iter().map(|name| node_read("east", name, NodeState::Ok)).collect();
    cluster("east", ClusterState::Ok, None, nodes)
}

/// A cluster with one good, one stale and one unread node, one without GPUs, one without an operator, one that refuses.
async fn world() -> World {
    let world = World::empty(|_, _| ()).await;
    let east = vec![
        node_read("east", "n1", NodeState::Ok),
        node_read("east", "n2", NodeState::Failing),
        node_unread("n3", NodeState::Failing),
    ];
    *world.parts.clusters.lock().unwrap() = vec![
        cluster("east", ClusterState::Degraded, Some("n2: no answer within 10s"), east),
        cluster("west", ClusterState::Ok, None, vec![node_read("west", "n1", NodeState::Ok)]),
        cluster("lab", ClusterState::NoGpu, None, vec![]),
        cluster(
            "bare",
            ClusterState::NoGpuOperator,
            Some("no pod in gpu-operator has the label a=b"),
            vec![node_unread("b1", NodeState::NoDriverPod)],
        ),
        cluster("north", ClusterState::Unauthorized, Some("the API server answers 401"), vec![]),
    ];
    world
}

#[tokio::test]
async fn without_clusters_lists_are_empty() {
    let world = World::empty(|_, _| ()).await;
    for path in ["clusters", "nodes", "processes"] {
        assert_eq!(world.ok(&format!("/api/v1/gpu/{path}")).await, json!([]), "{path}");
    }
    let summary = world.ok("/api/v1/gpu/summary").await;
    assert_eq!((&summary["gpu_count"], &summary["total_memory_mb"]), (&json!(0), &json!(0)));
    assert_eq!(world.ok("/health").await["clusters"], json!(null));
}

#[tokio::test]
async fn a_node_has_its_gpus_and_their_processes() {
    let world = world().await;
    let gpu = |index: i32, temperature: serde_json::Value, processes: serde_json::Value| {
        let first = index == 0;
        json!({
            "index": index, "uuid": format!("GPU-n1-{index}"), "name": "NVIDIA H200", "driver_version": "580.65.06",
            "temperature_celsius": temperature, "utilization_gpu_percent": i32::from(first) * 98 + 1,
            "utilization_memory_percent": null, "memory_total_mb": 1000,
            "memory_used_mb": if first { 250 } else { 0 }, "memory_free_mb": null,
            "power_draw_watts": if first { json!(412.12) } else { json!(null) }, "power_limit_watts": null,
            "pcie_generation": null, "pcie_link_width": null, "fan_speed_percent": null, "processes": processes
        })
    };
    let process = json!({
        "pid": 42, "gpu_index": 0, "process_type": "compute", "sm_utilization": 99, "memory_utilization": null,
        "encoder_utilization": null, "decoder_utilization": null, "fb_memory_mb": null, "command": "python3",
        "node_name": "n1", "cluster_id": "east"
    });
    let node = json!({
        "node_name": "n1", "cluster_id": "east", "vendor": "nvidia", "state": "ok", "since": "2026-11-20T16:00:00Z",
        "error": null, "stale": false, "age_seconds": 5.0, "gpu_count": 2, "gpus_announced": 2,
        "total_memory_mb": 2000,
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}, "processes_error": null,
        "gpus": [gpu(0, json!(41), json!([process])), gpu(1, json!(null), json!([]))]
    });
    for path in ["/api/v1/gpu/nodes/east/n1", "/api/v1/gpu/nodes/n1?cluster_id=east"] {
        let answer = world.get(path).await;
        assert_eq!(answer.header("x-partial"), None, "{path}");
        assert_eq!(answer.json(), node, "{path}");
    }
    assert_eq!(world.ok("/api/v1/gpu/nodes?cluster_id=east").await[0], node);
    assert_eq!(world.ok("/api/v1/gpu/processes?cluster_id=east&node_name=n1").await, json!([process]));
    let all = world.ok("/api/v1/gpu/processes").await;
    let places: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["cluster_id"].as_str(), it["node_name"].as_str()))
        .collect();
    assert_eq!(places, [("east", "n1"), ("east", "n2"), ("west", "n1")].map(|(c, n)| (Some(c), Some(n))));
}

#[tokio::test]
async fn what_is_missing_is_named_and_the_rest_stands() {
    let world = world().await;
    let answer = world.get("/api/v1/gpu/nodes").await;
    let nodes = answer.json();
    let shown: Vec<_> = nodes
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            (
                node["node_name"].as_str().unwrap(),
                node["stale"].as_bool().unwrap(),
                node["gpus"].as_array().unwrap().len(),
            )
        })
        .collect();
    assert_eq!(shown, [("n1", false, 2), ("n2", true, 2), ("n3", false, 0), ("n1", false, 2)]);
    assert_eq!(
        (&nodes[2]["age_seconds"], &nodes[2]["gpu_count"], &nodes[2]["gpus_announced"]),
        (&json!(null), &json!(0), &json!(2))
    );
    assert_eq!(
        answer.header("x-partial").unwrap(),
        "cluster east: node n2: no answer within 10s (its last reading is shown); \
         cluster east: node n3: no answer within 10s; \
         cluster bare: no_gpu_operator: no pod in gpu-operator has the label a=b; \
         cluster north: unauthorized: the API server answers 401"
    );
    let stale = world.get("/api/v1/gpu/nodes/east/n2").await;
    assert_eq!(
        stale.header("x-partial").unwrap(),
        "cluster east: node n2: no answer within 10s (its last reading is shown)"
    );
    assert_eq!(world.get("/api/v1/gpu/nodes?cluster_id=west").await.header("x-partial"), None);

    let clusters = world.ok("/api/v1/gpu/clusters").await;
    let east = &clusters[0];
    assert_eq!(
        (&east["state"], &east["node_count"], &east["gpu_count"]),
        (&json!("degraded"), &json!(3), &json!(4))
    );
    assert_eq!(east["nodes"]["failing"], 2);
    assert_eq!(
        (&east["newest_reading_age_seconds"], &east["oldest_reading_age_seconds"]),
        (&json!(5.0), &json!(5.0))
    );
    assert_eq!(
        east["missing"][1],
        json!({"node_name": "n3", "state": "failing", "since": "2026-11-20T16:00:00Z",
               "error": "no answer within 10s", "stale": false})
    );
    assert_eq!(
        (&clusters[1]["skips_tls_verify"], &clusters[0]["skips_tls_verify"]),
        (&json!(true), &json!(false))
    );
    assert_eq!((&clusters[2]["has_gpu"], &clusters[2]["node_count"]), (&json!(false), &json!(null)));
    assert_eq!(clusters[4]["node_count"], json!(null));
}

#[tokio::test]
async fn without_an_operator_nothing_is_listed_and_the_cluster_says_why() {
    let world = world().await;
    let bare = world.get("/api/v1/gpu/nodes?cluster_id=bare").await;
    assert_eq!((bare.status, bare.text()), (200, "[]"));
    assert!(bare.header("x-partial").unwrap().contains("no pod in gpu-operator"));
    let summary = world.ok("/api/v1/gpu/summary?cluster_id=bare").await;
    for total in ["node_count", "gpu_count", "total_memory_mb", "used_memory_mb"] {
        assert_eq!(summary[total], 0, "{total}: {summary}");
    }
    // Who asks for a node by its name is told what it lacks.
    let by_name = world.get("/api/v1/gpu/nodes/bare/b1").await;
    assert_eq!((by_name.status, &by_name.json()["state"]), (200, &json!("no_driver_pod")));
    assert_eq!(by_name.header("x-partial"), Some("cluster bare: node b1: no_driver_pod"));
    let clusters = world.ok("/api/v1/gpu/clusters").await;
    let bare = &clusters[3];
    assert_eq!((&bare["state"], &bare["node_count"]), (&json!("no_gpu_operator"), &json!(1)));
    assert_eq!(bare["nodes"]["no_driver_pod"], 1);
}

#[tokio::test]
async fn readings_of_a_cluster_that_answers_no_more_are_stale() {
    let world = world().await;
    let nodes = vec![node_read("far", "n1", NodeState::Ok)];
    let far = cluster("far", ClusterState::Unreachable, Some("cannot talk to the API server"), nodes);
    *world.parts.clusters.lock().unwrap() = vec![far];
    for path in ["/api/v1/gpu/nodes/far/n1", "/api/v1/gpu/nodes?cluster_id=far"] {
        let answer = world.get(path).await;
        let json = answer.json();
        let node = if json.is_array() { &json[0] } else { &json };
        assert_eq!((&node["stale"], node["gpus"].as_array().unwrap().len()), (&json!(true), 2), "{path}");
        let words = "cluster far: unreachable: cannot talk to the API server (its last readings are shown)";
        assert_eq!(answer.header("x-partial"), Some(words), "{path}");
    }
}

#[tokio::test]
async fn a_summary_adds_up_what_was_read() {
    let world = world().await;
    let of_east = world.ok("/api/v1/gpu/summary?cluster_id=east").await;
    assert_eq!(
        of_east,
        json!({
            "cluster_id": "east", "node_count": 3, "gpu_count": 4, "total_memory_mb": 4000, "used_memory_mb": 500,
            "memory_utilization_percent": 12.5, "average_gpu_utilization_percent": 49.8,
            "average_temperature_celsius": 41.0
        })
    );
    let of_all = world.get("/api/v1/gpu/summary").await;
    assert_eq!((&of_all.json()["gpu_count"], &of_all.json()["cluster_id"]), (&json!(6), &json!(null)));
    assert!(of_all.header("x-partial").unwrap().contains("cluster north"));
}

#[tokio::test]
async fn names_that_are_not_there_are_refused() {
    let world = world().await;
    for (path, status, code, words) in [
        ("/api/v1/gpu/nodes?cluster_id=south", 404, "unknown_cluster", "south"),
        ("/api/v1/gpu/processes?cluster_id=south", 404, "unknown_cluster", "south"),
        ("/api/v1/gpu/summary?cluster_id=south", 404, "unknown_cluster", "south"),
        ("/api/v1/gpu/nodes/south/n1", 404, "unknown_cluster", "south"),
        ("/api/v1/gpu/nodes?cluster_id=lab", 400, "no_gpus", "lab"),
        ("/api/v1/gpu/nodes/lab/n1", 400, "no_gpus", "lab"),
        ("/api/v1/gpu/summary?cluster_id=lab", 400, "no_gpus", "lab"),
        ("/api/v1/gpu/nodes/east/n9", 404, "unknown_node", "n9"),
        ("/api/v1/gpu/nodes/n9?cluster_id=west", 404, "unknown_node", "n9"),
        ("/api/v1/gpu/processes?cluster_id=east&node_name=n9", 404, "unknown_node", "n9"),
        // The cluster that refuses may have it.
        ("/api/v1/gpu/nodes/n9", 503, "incomplete", "unauthorized"),
        ("/api/v1/gpu/nodes/north/n1", 503, "incomplete", "unauthorized"),
        ("/api/v1/gpu/nodes/n1", 400, "bad_parameter", "cluster_id is missing"),
        ("/api/v1/gpu/nodes?cluster=east", 400, "bad_parameter", "cluster_id"),
        ("/api/v1/gpu/clusters?cluster_id=east", 400, "bad_parameter", "cluster_id"),
    ] {
        let answer = world.get(path).await;
        let body = answer.json();
        assert_eq!((answer.status, body["code"].as_str()), (status, Some(code)), "{path}: {body}");
        assert!(body["message"].as_str().unwrap().contains(words), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_read_degrades_health_and_never_readiness() {
    let world = world().await;
    let report = world.ok("/health").await;
    assert_eq!((&report["status"], &report["clusters"]["status"]), (&json!("degraded"), &json!("degraded")));
    let reason = report["clusters"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("cluster east: degraded: n2: no answer") && reason.contains("cluster north"),
        "{reason}"
    );
    let ready = world.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("cluster north"), "{}", ready.text());
    let well = vec![
        cluster("west", ClusterState::Ok, None, vec![]),
        cluster("new", ClusterState::Starting, None, vec![]),
    ];
    *world.parts.clusters.lock().unwrap() = well;
    assert_eq!(world.ok("/health").await["clusters"]["status"], "healthy");
}
