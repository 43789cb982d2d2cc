//! GPUs and hosts.

use gpuvitals_api::{Limits, RackPattern};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Identity, IdentityColumn};
use gpuvitals_settings::Typed as _;
use serde_json::{Value, json};

use crate::analysis::judging;
use crate::world::{World, fleet, gpu, now_ns, rows};

fn ids(list: &Value) -> Vec<&str> {
    list["gpus"].as_array().unwrap().iter().map(|gpu| gpu["id"].as_str().unwrap()).collect()
}

/// Counts of judgements, these and no others.
fn counts(some: &[(&str, usize)]) -> Value {
    let words = [
        "critical",
        "lost",
        "unhealthy",
        "warning",
        "notice",
        "unconfirmed",
        "stale",
        "unknown",
        "active",
        "idle",
    ];
    let count = |word: &str| some.iter().find(|(name, _)| *name == word).map_or(0, |(_, count)| *count);
    words.map(|word| (word.to_owned(), json!(count(word)))).into_iter().collect()
}

#[tokio::test]
async fn a_gpu_in_the_list_has_every_field() {
    let world = judging().await;
    world.append(fleet()).await;
    let list = world.ok("/api/v1/gpus?limit=1&include=metrics&sort=id").await;
    let gpu = json!({
        "id": "GPU-a", "name": "sim-node-01 / GPU 0", "model": "NVIDIA H100 80GB HBM3", "vendor": "nvidia",
        "hostname": "sim-node-01", "index": 0, "memory_mb": 81559, "driver_version": "570.86.15", "state": "active",
        "state_reason": null, "last_seen": "2026-11-20T16:00:00Z", "simulated": true,
        "metrics": {"utilization_pct": 97.0, "power_w": 598.1, "memory_total_mb": 81559, "room_c": 21.5},
        "judgement": "active", "judgement_reason": null
    });
    let judgements = counts(&[("critical", 1), ("lost", 1), ("unknown", 1), ("active", 1), ("idle", 1)]);
    assert_eq!(
        list,
        json!({"gpus": [gpu], "judgements": judgements, "total": 5,
               "pagination": {"limit": 1, "offset": 0, "has_next": true}})
    );
    let plain = world.ok("/api/v1/gpus?limit=1&sort=id").await;
    assert_eq!(plain["gpus"][0].get("metrics"), None);
    let some = world.ok("/api/v1/gpus?limit=1&sort=id&metrics=power_w,room_c,fan_speed_pct").await;
    assert_eq!(some["gpus"][0]["metrics"], json!({"power_w": 598.1, "room_c": 21.5}));
    let texts = world.ok("/api/v1/gpus?limit=1&sort=id&labels=namespace,job,node").await;
    assert_eq!(
        texts["gpus"][0]["labels"],
        json!({"namespace": "research", "job": null, "node": "sim-node-01"})
    );
    // Nobody has said where racks stand in the names of hosts.
    let rack = world.ok("/api/v1/gpus?limit=1&sort=id&labels=rack").await;
    assert_eq!(rack["gpus"][0]["labels"], json!({ "rack": null }));
    let unknown = world.get("/api/v1/gpus?labels=room").await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (400, &json!("bad_parameter")));
    let unknown = world.get("/api/v1/gpus?metrics=powr_w").await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (400, &json!("bad_parameter")));
}

#[tokio::test]
async fn a_rack_is_taken_out_of_the_name_of_the_host() {
    let pattern = RackPattern::read(&json!("^(sim)-node")).unwrap();
    let world = World::empty(|api, _| api.rack_pattern = Some(pattern)).await;
    world.append(fleet()).await;
    let list = world.ok("/api/v1/gpus?limit=1&sort=id&labels=rack").await;
    assert_eq!(list["gpus"][0]["labels"], json!({ "rack": "sim" }));
}

#[tokio::test]
async fn what_is_unknown_is_null() {
    let world = World::new().await;
    let list = world.ok("/api/v1/gpus?search=rack").await;
    let gpu = json!({
        "id": "rack@7", "name": "rack@7", "model": null, "vendor": null, "hostname": null, "index": null,
        "memory_mb": null, "driver_version": null, "state": "unknown", "state_reason": null,
        "last_seen": "2026-11-20T15:59:55Z", "simulated": false, "judgement": "unknown", "judgement_reason": null
    });
    assert_eq!(list["gpus"], json!([gpu]));
}

#[tokio::test]
async fn pages_filters_and_orders() {
    let world = World::new().await;
    let all = ["GPU-a", "GPU-b", "GPU-c", "GPU-d", "rack@7"];
    // Query, ids, total, has_next.
    let table: &[(&str, &[&str], usize, bool)] = &[
        ("limit=2&sort=id", &all[..2], 5, true),
        ("limit=2&offset=2&sort=id", &all[2..4], 5, true),
        ("limit=2&offset=4&sort=id", &all[4..], 5, false),
        ("limit=5&sort=id", &all, 5, false),
        ("limit=10000&sort=id", &all, 5, false),
        ("offset=5&sort=id", &[], 5, false),
        ("offset=9007199254740991", &[], 5, false),
        ("search=&state=&host=&sort=id&include=", &all, 5, false),
        ("search=H100&sort=id", &all[..3], 3, false),
        ("search=h100%20node-01%20gpu-b", &["GPU-b"], 1, false),
        ("search=train-7", &["GPU-a"], 1, false),
        ("search=1b:00", &["GPU-a"], 1, false),
        ("search=nowhere", &[], 0, false),
        ("state=active", &["GPU-a"], 1, false),
        ("state=idle", &["GPU-b"], 1, false),
        ("state=unhealthy", &["GPU-c"], 1, false),
        ("state=stale", &["GPU-d"], 1, false),
        ("state=unknown", &["rack@7"], 1, false),
        ("state=idle,active&sort=id", &all[..2], 2, false),
        ("host=sim-node-02", &["GPU-d"], 1, false),
        ("host=sim-node-02,sim-node-01&sort=-id", &["GPU-d", "GPU-c", "GPU-b", "GPU-a"], 4, false),
        ("host=sim-node-02&state=idle", &[], 0, false),
        ("where=node%3D", &["rack@7"], 1, false),
        ("where=pod%3Dtrain-7", &["GPU-a"], 1, false),
        ("where=vendor!%3D;node%3D~sim-.*;pod%3D&sort=id", &all[1..4], 3, false),
        ("where=node%3Dsim-node-01&state=idle", &["GPU-b"], 1, false),
        ("sort=name", &["GPU-a", "GPU-c", "GPU-b", "GPU-d", "rack@7"], 5, false),
        ("sort=-power_w", &["GPU-d", "GPU-a", "GPU-c", "GPU-b", "rack@7"], 5, false),
        ("sort=power_w", &["GPU-b", "GPU-c", "GPU-a", "GPU-d", "rack@7"], 5, false),
        ("sort=-last_seen&limit=2", &["GPU-a", "GPU-b"], 5, true),
        ("sort=state", &["GPU-c", "GPU-d", "rack@7", "GPU-a", "GPU-b"], 5, false),
        ("sort=-state&limit=1", &["GPU-b"], 5, true),
        ("sort=model&limit=1", &["GPU-d"], 5, true),
        ("sort=memory_mb&limit=1", &["GPU-a"], 5, true),
    ];
    for (query, expected, total, next) in table {
        let list = world.ok(&format!("/api/v1/gpus?{query}")).await;
        assert_eq!(ids(&list), *expected, "{query}");
        assert_eq!(list["total"], json!(total), "{query}");
        assert_eq!(list["pagination"]["has_next"], json!(next), "{query}");
    }
}

#[tokio::test]
async fn without_an_order_gpus_stand_by_host_and_index() {
    let world = World::new().await;
    let list = world.ok("/api/v1/gpus?host=sim-node-01,sim-node-02").await;
    assert_eq!(ids(&list), ["GPU-a", "GPU-c", "GPU-b", "GPU-d"]);
}

#[tokio::test]
async fn a_gpu_says_why_it_is_unhealthy_and_goes_stale_with_time() {
    let world = World::new().await;
    let gpu = world.ok("/api/v1/gpus/GPU-c").await["gpu"].clone();
    assert_eq!(
        (&gpu["state"], &gpu["state_reason"]),
        (&json!("unhealthy"), &json!("XID 79: the GPU has fallen off the bus"))
    );
    world.set_time(now_ns() + 120 * SECOND_NS);
    assert_eq!(ids(&world.ok("/api/v1/gpus?state=stale&limit=9").await).len(), 5);
    // By another name, for the answer above is kept for a while.
    let gpu = world.ok("/api/v1/gpus/sim-node-01:gpu2").await["gpu"].clone();
    let reason = json!(
        "stale since 2026-11-20T16:01:28Z, last seen unhealthy: XID 79: the GPU has fallen off the bus"
    );
    assert_eq!((&gpu["state"], &gpu["state_reason"]), (&json!("stale"), &reason));
}

#[tokio::test]
async fn a_name_of_several_gpus_is_told_from_one_of_none() {
    let world = World::empty(|_, _| ()).await;
    let parts: Vec<_> =
        (0..9).map(|n| part(n).with(IdentityColumn::Partition, &format!("1g.{n}")).unwrap()).collect();
    let rows_of: Vec<_> = parts.iter().map(|gpu| (gpu.clone(), 0, [("power_w", 1.0)].as_slice())).collect();
    world.append(rows(&rows_of)).await;
    for path in [
        "gpus/GPU-p",
        "gpus/GPU-p/telemetry",
        "telemetry?gpus=GPU-p",
        "query?metrics=power_w&gpus=GPU-p",
        "stream?gpus=GPU-p",
    ] {
        let answer = world.get(&format!("/api/v1/{path}")).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["code"]), (404, &json!("ambiguous_gpu")), "{path}");
        let message = body["message"].as_str().unwrap();
        assert!(message.starts_with("9 GPUs are known as \"GPU-p\""), "{message}");
        assert!(
            message.contains("GPU-p:1g.0, GPU-p:1g.1") && message.ends_with("GPU-p:1g.7, …"),
            "{message}"
        );
    }
}

fn part(index: i32) -> Identity {
    gpu("GPU-p", "sim-node-03", index, "NVIDIA H100 80GB HBM3")
}

#[tokio::test]
async fn a_gpu_without_a_host_is_found_by_its_index() {
    let world = World::empty(|_, _| ()).await;
    let mut nameless = Identity::default();
    nameless.index = Some(0);
    nameless.resolve().unwrap();
    world.append(rows(&[(nameless, 0, &[("power_w", 5.0)])])).await;
    for name in ["0", "unknown:gpu0"] {
        assert_eq!(world.ok(&format!("/api/v1/gpus/{name}")).await["gpu"]["id"], "unknown:gpu0");
        assert_eq!(world.ok(&format!("/api/v1/gpus/{name}/telemetry")).await["total"], 1);
    }
}

#[tokio::test]
async fn memory_without_a_total_is_unknown() {
    let world = World::empty(|_, _| ()).await;
    let gpu = gpu("GPU-m", "n1", 0, "NVIDIA H100 80GB HBM3");
    world.append(rows(&[(gpu, 0, &[("memory_used_mb", 77_413.0), ("memory_free_mb", 3_594.0)])])).await;
    assert_eq!(world.ok("/api/v1/gpus/GPU-m").await["gpu"]["memory_mb"], Value::Null);
}

#[tokio::test]
async fn one_gpu_with_its_latest_values_and_labels() {
    let world = World::new().await;
    let detail = world.ok("/api/v1/gpus/GPU-a").await;
    assert_eq!(detail["gpu"]["id"], "GPU-a");
    assert_eq!(
        detail["latest"],
        json!({
            "utilization_pct": {"value": 97.0, "timestamp": "2026-11-20T15:59:50Z"},
            "power_w": {"value": 598.1, "timestamp": "2026-11-20T16:00:00Z"},
            "memory_total_mb": {"value": 81559, "timestamp": "2026-11-20T15:59:40Z"},
            "room_c": {"value": 21.5, "timestamp": "2026-11-20T16:00:00Z"}
        })
    );
    assert_eq!(
        detail["labels"],
        json!({
            "cluster": null, "pod": "train-7", "namespace": "research", "container": null, "job": null, "uuid": "GPU-a",
            "pci": "0000:1b:00.0", "partition": null, "vbios": null, "source": "simulated"
        })
    );
    assert_eq!(detail["first_seen"], "2026-11-20T15:59:40Z");
    for alias in ["0000:1b:00.0", "sim-node-01:gpu0", "GPU-a"] {
        assert_eq!(world.ok(&format!("/api/v1/gpus/{alias}")).await["gpu"]["id"], "GPU-a", "{alias}");
    }
    assert_eq!(world.ok("/api/v1/gpus/rack%407").await["gpu"]["id"], "rack@7");
}

#[tokio::test]
async fn hosts_and_their_gpus() {
    let world = judging().await;
    world.append(fleet()).await;
    let hosts = world.ok("/api/v1/hosts").await;
    let first = json!({
        "hostname": "sim-node-01", "gpu_count": 3, "models": ["NVIDIA H100 80GB HBM3"], "vendors": ["nvidia"],
        "states": {"active": 1, "idle": 1, "stale": 0, "unhealthy": 1, "unknown": 0},
        "last_seen": "2026-11-20T16:00:00Z", "simulated": true, "judgement": "critical",
        "judgements": counts(&[("critical", 1), ("active", 1), ("idle", 1)])
    });
    assert_eq!(hosts["hosts"][0], first);
    assert_eq!(hosts["hosts"][1]["hostname"], "sim-node-02");
    assert_eq!(hosts["total"], 2);
    let second = world.ok("/api/v1/hosts?limit=1&offset=1").await;
    assert_eq!(second["hosts"][0]["hostname"], "sim-node-02");
    assert_eq!(second["pagination"], json!({"limit": 1, "offset": 1, "has_next": false}));
    let gpus = world.ok("/api/v1/hosts/sim-node-01/gpus?limit=2&include=metrics").await;
    assert_eq!(ids(&gpus), ["GPU-a", "GPU-c"]);
    assert_eq!(gpus["gpus"][1]["metrics"]["power_w"], 300.0);
    assert_eq!((&gpus["total"], &gpus["pagination"]["has_next"]), (&json!(3), &json!(true)));
}

#[tokio::test]
async fn an_empty_store_has_empty_lists() {
    let world = World::empty(|_, _| ()).await;
    let page = json!({"limit": Limits::default().page, "offset": 0, "has_next": false});
    let none = counts(&[]);
    for (path, list) in [("/api/v1/gpus", "gpus"), ("/api/v1/hosts", "hosts")] {
        let empty = json!({list: [], "judgements": none, "total": 0, "pagination": page});
        assert_eq!(world.ok(path).await, empty);
    }
    assert_eq!(world.ok("/api/v1/telemetry").await, json!({"data": [], "total": 0, "pagination": page}));
    let query = world.ok("/api/v1/query?metrics=power_w&step=30m").await;
    assert_eq!(query["series"], json!([]));
    assert_eq!(query["step_ms"], 1_800_000);
}
