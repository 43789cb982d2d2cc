//! How GPUs and hosts do in one word, and their lists as tables.

use gpuvitals_core::IdentityColumn;
use serde_json::{Value, json};

use crate::analysis::{H100, judging};
use crate::world::{World, fleet, gpu, rows};

async fn world() -> World {
    let world = judging().await;
    world.append(fleet()).await;
    world
}

fn texts<'a>(list: &'a Value, of: &str, field: &str) -> Vec<&'a str> {
    list[of].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn gpus_and_hosts_have_the_worst_finding_as_their_word_or_their_state() {
    let world = world().await;
    let list = world.ok("/api/v1/gpus?sort=judgement").await;
    assert_eq!(texts(&list, "gpus", "id"), ["GPU-c", "GPU-d", "rack@7", "GPU-a", "GPU-b"]);
    assert_eq!(texts(&list, "gpus", "judgement"), ["critical", "lost", "unknown", "active", "idle"]);
    let reasons: Vec<&Value> =
        list["gpus"].as_array().unwrap().iter().map(|gpu| &gpu["judgement_reason"]).collect();
    assert_eq!(reasons[0], "XID 79: the GPU has fallen off the bus");
    assert_eq!(reasons[1], &list["gpus"][1]["state_reason"]);
    assert_eq!(reasons[3], &Value::Null);
    let counts = json!({"critical": 1, "lost": 1, "unhealthy": 0, "warning": 0, "notice": 0, "unconfirmed": 0, "stale": 0,
                        "unknown": 1, "active": 1, "idle": 1});
    assert_eq!(list["judgements"], counts);
    assert_eq!(world.ok("/api/v1/gpus/GPU-c").await["gpu"]["judgement"], "critical");

    // The counts are those of all that match but for the judgement.
    let lost = world.ok("/api/v1/gpus?judgement=lost,stale").await;
    assert_eq!((texts(&lost, "gpus", "id"), &lost["total"]), (vec!["GPU-d"], &json!(1)));
    assert_eq!(lost["judgements"], counts);
    let of_host = world.ok("/api/v1/gpus?host=sim-node-02").await;
    assert_eq!((&of_host["judgements"]["lost"], &of_host["judgements"]["critical"]), (&json!(1), &json!(0)));

    let hosts = world.ok("/api/v1/hosts?sort=-judgement").await;
    assert_eq!(texts(&hosts, "hosts", "hostname"), ["sim-node-02", "sim-node-01"]);
    assert_eq!(texts(&hosts, "hosts", "judgement"), ["lost", "critical"]);
    assert_eq!(hosts["hosts"][1]["judgements"]["idle"], 1);
    assert_eq!((&hosts["judgements"]["lost"], &hosts["judgements"]["critical"]), (&json!(1), &json!(1)));
    let critical = world.ok("/api/v1/hosts?judgement=critical").await;
    assert_eq!((texts(&critical, "hosts", "hostname"), &critical["total"]), (vec!["sim-node-01"], &json!(1)));
    assert_eq!(critical["judgements"], hosts["judgements"]);
    for path in ["/api/v1/gpus?judgement=bad", "/api/v1/hosts?judgement=bad", "/api/v1/hosts?sort=bad"] {
        assert_eq!(world.get(path).await.json()["code"], "bad_parameter", "{path}");
    }
}

#[tokio::test]
async fn the_gpus_of_a_finding_are_a_list_and_every_name_that_is_printed_is_found() {
    let world = world().await;
    for (query, expected) in [
        ("finding=node_silent:sim-node-02", &["GPU-d"][..]),
        ("finding=xid:GPU-c&host=sim-node-02", &[]),
        ("search=sim-node-01%20/%20GPU%2010", &["GPU-b"]),
        ("search=Sim-Node-01%20/%20gpu%202", &["GPU-c"]),
        ("search=sim-node-01:gpu0", &["GPU-a"]),
        ("search=node-01:gpu", &["GPU-a", "GPU-c", "GPU-b"]),
        ("search=gpu-d", &["GPU-d"]),
        ("search=research/train-7", &["GPU-a"]),
        ("search=pod:research/train-7/", &["GPU-a"]),
    ] {
        let list = world.ok(&format!("/api/v1/gpus?{query}")).await;
        assert_eq!(texts(&list, "gpus", "id"), expected, "{query}");
    }
    let none = world.get("/api/v1/gpus?finding=xid:GPU-a").await;
    assert_eq!((none.status, &none.json()["code"]), (404, &json!("unknown_finding")));
}

#[tokio::test]
async fn the_host_and_the_job_of_a_cluster_are_found_as_findings_and_holders_call_them() {
    let world = judging().await;
    let of = |name, node| gpu(name, node, 0, H100).with(IdentityColumn::Cluster, "prod").unwrap();
    let held = of("GPU-a", "n1").with(IdentityColumn::Job, "41").unwrap();
    let values: &[(&str, f64)] = &[("utilization_pct", 50.0)];
    world.append(rows(&[(held, 2, values), (of("GPU-b", "n2"), 2, values)])).await;
    for (search, expected) in
        [("prod/n2", &["GPU-b"][..]), ("job:41", &["GPU-a"]), ("prod//41", &["GPU-a"]), ("job:4711", &[])]
    {
        let list = world.ok(&format!("/api/v1/gpus?search={search}")).await;
        assert_eq!(texts(&list, "gpus", "id"), expected, "{search}");
    }
}

#[tokio::test]
async fn each_list_comes_in_the_format_that_is_named() {
    let world = world().await;
    // Of each the head of the table and the first line.
    for (path, head, first) in [
        (
            "/api/v1/gpus?sort=judgement&limit=1",
            "id,timestamp,hostname,index,model,vendor,driver_version,memory_mb,state,judgement",
            "GPU-c,2026-11-20T15:59:58Z,sim-node-01,2,NVIDIA H100 80GB HBM3,nvidia,,,unhealthy,critical",
        ),
        (
            "/api/v1/hosts/sim-node-02/gpus?metrics=power_w",
            "id,timestamp,power_w",
            "GPU-d,2026-11-20T15:00:00Z,750",
        ),
        (
            "/api/v1/hosts?sort=judgement&limit=1",
            "hostname,timestamp,gpu_count,models,vendors,judgement",
            "sim-node-01,2026-11-20T16:00:00Z,3,NVIDIA H100 80GB HBM3,nvidia,critical",
        ),
        (
            "/api/v1/analysis/findings?kind=xid",
            "id,timestamp,since_at_least,severity,kind,subject_type,subject,sentence,evidence,next_step,gpu_count,\
             concerned_gpus,cluster,hostname,namespace,pod,job,silenced,silenced_until,note,simulated",
            "xid:GPU-c,2026-11-20T15:59:58Z,",
        ),
        (
            "/api/v1/query?start=2026-11-20T15:59:40Z&end=2026-11-20T15:59:59Z&step=10s&metrics=power_w&host=sim-node-01&wide=true",
            "timestamp,sim-node-01:gpu0,sim-node-01:gpu2,sim-node-01:gpu10",
            "2026-11-20T15:59:40Z,600.1,,",
        ),
        (
            "/api/v1/query?start_time=2026-11-20T15:59:40Z&end_time=2026-11-20T15:59:59Z&step=10s&metrics=power_w,utilization_pct&gpus=GPU-a&aggregate=max,count&wide=true",
            "timestamp,power_w max sim-node-01:gpu0,power_w count sim-node-01:gpu0,utilization_pct max sim-node-01:gpu0,utilization_pct \
             count sim-node-01:gpu0",
            "2026-11-20T15:59:40Z,600.1,1,90.5,1",
        ),
        (
            "/api/v1/query?start=2026-11-20T15:59:40Z&end=2026-11-20T15:59:59Z&step=10s&metrics=power_w&gpus=GPU-b&group_by=namespace&wide=true",
            "timestamp,no namespace",
            "2026-11-20T15:59:40Z,",
        ),
        (
            "/api/v1/telemetry?start=2026-11-20T15:59:40Z&end=2026-11-20T15:59:41Z&metrics=power_w",
            "timestamp,",
            "2026-11-20T15:59:40Z,",
        ),
    ] {
        let csv = world.get(&format!("{path}&format=csv")).await;
        assert_eq!((csv.status, csv.header("content-type")), (200, Some("text/csv")), "{path}");
        let mut lines = csv.text().lines();
        let (found, line) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(found.starts_with(head) && line.starts_with(first), "{path}\n{found}\n{line}");
        // JSON is a format like the others, whatever is accepted.
        let json = world.get(&format!("{}&format=json", path.replace("&wide=true", ""))).await;
        assert_eq!(json.header("content-type"), Some("application/json"), "{path}");
    }
    assert_eq!(world.get("/api/v1/hosts?limit=1&format=csv").await.header("x-next"), Some("1"));
    let arrow = world.get("/api/v1/gpus?metrics=power_w&format=arrow").await;
    let reader = arrow_ipc::reader::StreamReader::try_new(arrow.body.as_slice(), None).unwrap();
    let power = reader.schema().field_with_name("power_w").unwrap().metadata().clone();
    assert_eq!(power.get("unit").map(String::as_str), Some("W"));
    assert!(power.get("help").is_some_and(|help| !help.is_empty()));
    for path in ["/api/v1/gpus?format=xml", "/api/v1/query?metrics=power_w&wide=maybe"] {
        assert_eq!(world.get(path).await.json()["code"], "bad_parameter", "{path}");
    }
    let both = world.ok("/api/v1/telemetry?start=2026-11-20T16:00:00Z&start_time=2026-11-20T15:00:00Z").await;
    assert_eq!(both["total"], 1, "the newer name counts");
}
