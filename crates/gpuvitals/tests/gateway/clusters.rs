//! Clusters that are read from outside, shown by a gateway and kept as history.

use std::path::Path;

use gpuvitals_rig::cluster::{Behaviour, Double, NodeSpec, World};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Finished as _;
use serde_json::{Value, json};

use crate::site::{Gateway, start};

const TOKEN: &str = "a-token-that-nobody-may-see";

/// Three nodes of two GPUs that work, and one that hangs.
async fn cluster() -> Double {
    let mut nodes: Vec<NodeSpec> = (1..=3).map(|at| NodeSpec::new(&format!("n{at}"), 2)).collect();
    nodes.push(NodeSpec::new("sick", 2).with(Behaviour::Hang));
    for node in &mut nodes {
        node.labels.insert("nvidia.com/gpu.product".to_owned(), "NVIDIA-H200".to_owned());
        node.labels.insert("team".to_owned(), "not kept".to_owned());
    }
    let mut world = World::new(nodes);
    world.token = Some(TOKEN.to_owned());
    Double::start_tls(world).await
}

/// The configuration of a gateway to that cluster and to one without GPUs.
fn configuration(folder: &Path, double: &Double) -> String {
    let east = json!({
        "name": "east", "api_url": double.url, "ca_data": double.ca, "token": TOKEN,
        "poll_interval": "1s", "exec_deadline": "2s"
    });
    let clusters = json!([east, {"name": "lab", "api_url": "https://10.0.0.1:6443", "has_gpu": false}]);
    let sections = json!({"kubernetes": {"clusters": clusters, "node_labels": ["nvidia.com/gpu.product"]}});
    let file = folder.join("gpuvitals.yaml");
    std::fs::write(&file, sections.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|entry| entry[field].as_str().unwrap()).collect()
}

/// What a gateway to the cluster answers.
fn check(gateway: &Gateway) {
    let nodes = gateway.until("/api/v1/gpu/nodes", "three nodes and what ails the fourth", |said| {
        let read = said.json.as_array().unwrap().iter().filter(|node| node["state"] == "ok").count();
        read == 3 && said.partial.as_deref().is_some_and(|partial| partial.contains("node sick: no answer"))
    });
    assert_eq!(texts(&nodes.json, "node_name"), ["n1", "n2", "n3", "sick"]);
    let first = &nodes.json[0];
    assert_eq!((&first["cluster_id"], &first["gpu_count"]), (&json!("east"), &json!(2)));
    assert_eq!(first["labels"], json!({"nvidia.com/gpu.product": "NVIDIA-H200"}));
    assert_eq!(first["gpus"][0]["name"], "NVIDIA H200");
    assert_eq!(first["gpus"][0]["processes"][0]["node_name"], "n1");
    let processes = gateway.ask("/api/v1/gpu/processes?cluster_id=east&node_name=n2").json;
    assert!(texts(&processes, "command").contains(&"gpu_burn"), "{processes}");
    let summary = gateway.ask("/api/v1/gpu/summary").json;
    assert_eq!((&summary["node_count"], &summary["gpu_count"]), (&json!(4), &json!(6)));
    let clusters = gateway.ask("/api/v1/gpu/clusters").json;
    assert_eq!(texts(&clusters, "state"), ["degraded", "no_gpu"]);
    assert_eq!(clusters[0]["missing"][0]["node_name"], "sick");
    for (path, status) in
        [("nodes?cluster_id=lab", 400), ("nodes?cluster_id=south", 404), ("nodes/east/n9", 404)]
    {
        assert_eq!(gateway.ask(&format!("/api/v1/gpu/{path}")).status, status, "{path}");
    }

    // The same readings are history, and the page shows them as any others.
    let gpus =
        gateway.until("/api/v1/gpus?sort=id", "the GPUs in history", |said| said.json["total"] == 6).json;
    assert_eq!(texts(&gpus["gpus"], "hostname"), ["n1", "n1", "n2", "n2", "n3", "n3"]);
    let id = gpus["gpus"][0]["id"].as_str().unwrap();
    assert_eq!(gateway.get(&format!("/api/v1/gpus/{id}"))["labels"]["cluster"], "east");
    gateway.until("/api/v1/telemetry?table=gpu_processes", "processes in history", |said| {
        said.json["total"].as_u64() > Some(0)
    });

    let health = gateway.ask("/health").json;
    assert_eq!(health["clusters"]["status"], "degraded", "{health}");
    assert!(health["clusters"]["reason"].as_str().unwrap().contains("cluster east"), "{health}");
    assert_eq!(gateway.ask("/readyz").status, 200);
    for (flags, code) in [(&["health"][..], 69), (&["health", "--ready"], 0)] {
        let said = gpuvitals!().args(["query", "--url", &gateway.url]).args(flags).finished().unwrap();
        assert_eq!(said.status.code(), Some(code), "{flags:?}");
    }
    let figures = gateway.text("/metrics");
    for line in [
        "gpuvitals_cluster_state{cluster=\"east\",state=\"degraded\"} 1",
        "gpuvitals_cluster_state{cluster=\"lab\",state=\"no_gpu\"} 1",
        "gpuvitals_cluster_nodes{cluster=\"east\",state=\"ok\"} 3",
        "gpuvitals_cluster_gpus{cluster=\"east\"} 6",
        "gpuvitals_cluster_rows_lost_total{reason=\"dropped_row\"} 0",
        "gpuvitals_node_info{cluster=\"east\",node=\"n1\",vendor=\"nvidia\",label_nvidia_com_gpu_product=\"NVIDIA-H200\"} 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} is not in\n{figures}");
    }
    assert!(!figures.contains("not kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn up_shows_a_cluster_and_keeps_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let double = cluster().await;
    let file = configuration(folder.path(), &double);
    let data = folder.path().join("data");
    let arguments =
        ["up", "--source", "none", "--port", "0", "--config", &file, "--data-dir", data.to_str().unwrap()];
    let up = Gateway::of(start(&arguments));
    check(&up);
    let (code, log) = up.process.terminated();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(TOKEN));
}

/// `up` over these clusters, read often.
fn up_over(folder: &Path, clusters: &[(&str, &Double)]) -> Gateway {
    let clusters = clusters.iter().map(|(name, double)| {
        json!({"name": name, "api_url": double.url, "poll_interval": "1s", "exec_deadline": "2s"})
    });
    let file = folder.join("gpuvitals.yaml");
    let sections = json!({"kubernetes": {"clusters": clusters.collect::<Vec<_>>()}});
    std::fs::write(&file, sections.to_string()).unwrap();
    let (file, data) = (file.to_str().unwrap(), folder.join("data"));
    let data = data.to_str().unwrap();
    Gateway::of(start(&["up", "--source", "none", "--port", "0", "--config", file, "--data-dir", data]))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_operator_the_list_is_empty_and_health_and_the_clusters_name_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let without_pod = |name| NodeSpec { pod_label: None, ..NodeSpec::new(name, 8) };
    let bare = Double::start(World::new(vec![without_pod("b1"), without_pod("b2")])).await;
    let partly = Double::start(World::new(vec![NodeSpec::new("n1", 2), without_pod("n2")])).await;
    let up = up_over(folder.path(), &[("bare", &bare), ("east", &partly)]);
    let clusters = up.until("/api/v1/gpu/clusters", "both clusters", |said| {
        said.json[0]["state"] == "no_gpu_operator" && said.json[1]["nodes"]["ok"] == 1
    });
    let of_bare = |path: &str| up.ask(&format!("/api/v1/gpu/{path}?cluster_id=bare"));
    let nodes = of_bare("nodes");
    assert_eq!((nodes.status, &nodes.json), (200, &json!([])));
    assert_eq!(of_bare("processes").json, json!([]));
    let summary = of_bare("summary").json;
    for total in ["node_count", "gpu_count", "total_memory_mb", "used_memory_mb"] {
        assert_eq!(summary[total], 0, "{total}: {summary}");
    }
    let health = up.ask("/health").json;
    let said =
        [nodes.partial.as_deref(), clusters.json[0]["error"].as_str(), health["clusters"]["reason"].as_str()];
    for words in said {
        assert!(words.unwrap().contains("driver_namespace names another namespace"), "{words:?}");
    }
    // Where the operator is, a node that lacks its pod is listed.
    let nodes = up.ask("/api/v1/gpu/nodes").json;
    assert_eq!(texts(&nodes, "node_name"), ["n1", "n2"]);
    assert_eq!(texts(&nodes, "state"), ["ok", "no_driver_pod"]);
    let summary = up.ask("/api/v1/gpu/summary").json;
    assert_eq!((&summary["node_count"], &summary["gpu_count"]), (&json!(2), &json!(2)));
    assert_eq!(up.process.terminated().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_whose_handle_the_tool_cannot_determine_is_partial_and_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = vec![NodeSpec::new("n1", 3).with(Behaviour::Lost), NodeSpec::new("n2", 3)];
    let double = Double::start(World::new(nodes)).await;
    let up = up_over(folder.path(), &[("east", &double)]);
    let nodes = up.until("/api/v1/gpu/nodes", "both nodes", |said| {
        said.json
            .as_array()
            .is_some_and(|nodes| nodes.len() == 2 && nodes.iter().all(|node| node["age_seconds"].is_number()))
    });
    assert_eq!(texts(&nodes.json, "state"), ["partial", "ok"]);
    assert!(nodes.partial.unwrap().contains("node n1: GPU (0000:01:00.0) was not read"), "{}", nodes.json);
    assert_eq!(up.ask("/api/v1/gpu/summary").json["gpu_count"], 5);
    let is_lost = |finding: &Value| finding["kind"] == "gpu_lost";
    let findings = up.until("/api/v1/analysis/findings", "the lost GPU", |said| {
        said.json["findings"].as_array().is_some_and(|all| all.iter().any(is_lost))
    });
    let lost: Vec<_> =
        findings.json["findings"].as_array().unwrap().iter().filter(|it| is_lost(it)).collect();
    assert_eq!(lost.len(), 1, "{}", findings.json);
    assert_eq!((&lost[0]["severity"], &lost[0]["reach"]["hostname"]), (&json!("critical"), &json!("n1")));
    assert_eq!(lost[0]["reach"]["gpu_count"], 1, "{}", lost[0]);
    let sentence = lost[0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("it cannot be read"), "{sentence}");
    assert_eq!(up.process.terminated().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_publishes_a_cluster_to_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let double = cluster().await;
    let file = configuration(folder.path(), &double);
    let (queue, api) = (Port::new(), Port::new());
    let broker = start(&["broker", "--port", &queue]);
    broker.says("queue: http");
    let data = folder.path().join("data");
    let collect = start(&[
        "collect",
        "--api-port",
        &api,
        "--broker-port",
        &queue,
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    collect.says("collector API");
    let (mq, collector) = (format!("http://127.0.0.1:{queue}"), format!("http://127.0.0.1:{api}"));
    let arguments = ["serve", "--port", "0", "--config", &file, "--collectors", &collector, "--mq-url", &mq];
    let serve = Gateway::of(start(&arguments));
    check(&serve);
    let (code, log) = serve.process.terminated();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(TOKEN));
}

#[test]
fn impossible_clusters_are_an_error_of_the_configuration_and_tokens_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpuvitals.yaml");
    let run = |arguments: &[&str], clusters: Value| {
        std::fs::write(&file, json!({"kubernetes": {"clusters": clusters}}).to_string()).unwrap();
        let out = gpuvitals!().args(arguments).arg("--config").arg(&file).finished().unwrap();
        let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(!text.contains(TOKEN), "{text}");
        (out.status.code(), text)
    };
    let good = json!({"name": "east", "api_url": "https://10.0.0.1:6443", "token": TOKEN});
    assert_eq!(run(&["config", "check"], json!([good])).0, Some(0));
    let (code, text) = run(&["config", "show"], json!([good]));
    assert!(code == Some(0) && text.contains("https://10.0.0.1:6443") && text.contains("***"), "{text}");
    for (bad, words) in [
        (json!([good, good]), "two clusters have the name east"),
        (json!([{"name": "east", "api_url": "http://10.0.0.1", "token": TOKEN}]), "not sent over http://"),
        (
            json!([{"name": "east", "api_url": "https://10.0.0.1", "tokne": TOKEN}]),
            "cluster east: tokne: unknown field",
        ),
        (json!(TOKEN), "kubernetes.clusters: it is no JSON"),
    ] {
        for command in ["up", "serve"] {
            let (code, text) = run(&[command], bad.clone());
            assert!(code == Some(78) && text.contains(words), "{command}: {code:?} {text}");
        }
    }
}
