//! Rows.

use gpuvitals_api::Limits;
use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};
use serde_json::{Value, json};

use crate::world::{World, gpu, now_ns, rows};

fn seconds(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|row| &row["timestamp"].as_str().unwrap()[14..19]).collect()
}

#[tokio::test]
async fn rows_have_their_values_newest_first() {
    let world = World::new().await;
    let list = world.ok("/api/v1/gpus/GPU-a/telemetry").await;
    let row = |metrics: Value, timestamp: &str| json!({"gpu_id": "GPU-a", "hostname": "sim-node-01", "metrics": metrics, "timestamp": timestamp, "simulated": true});
    assert_eq!(
        list,
        json!({
            "data": [
                row(json!({"power_w": 598.1, "room_c": 21.5}), "2026-11-20T16:00:00Z"),
                row(json!({"utilization_pct": 97.0, "power_w": 612.4}), "2026-11-20T15:59:50Z"),
                row(json!({"utilization_pct": 90.5, "power_w": 600.1, "memory_total_mb": 81559}), "2026-11-20T15:59:40Z"),
            ],
            "total": 3, "pagination": {"limit": Limits::default().page, "offset": 0, "has_next": false}
        })
    );
}

#[tokio::test]
async fn ranges_pages_and_orders() {
    let world = World::new().await;
    // Query, minute and second of the rows, total, has_next.
    let table: &[(&str, &[&str], usize, bool)] = &[
        ("", &["00:00", "59:50", "59:40"], 3, false),
        ("reverse=true", &["59:40", "59:50", "00:00"], 3, false),
        ("reverse=false", &["00:00", "59:50", "59:40"], 3, false),
        ("limit=1", &["00:00"], 3, true),
        ("limit=1&offset=2", &["59:40"], 3, false),
        ("limit=1&offset=2&reverse=true", &["00:00"], 3, false),
        ("offset=3", &[], 3, false),
        ("start_time=2026-11-20T15:59:50Z", &["00:00", "59:50"], 2, false),
        ("end_time=2026-11-20T15:59:50Z", &["59:50", "59:40"], 2, false),
        ("start_time=2026-11-20T15:59:50Z&end_time=2026-11-20T15:59:50Z", &["59:50"], 1, false),
        ("start_time=2026-11-20T15:59:50.000000001Z&end_time=2026-11-20T15:59:59Z", &[], 0, false),
        ("start_time=2026-11-20T16:59:50%2B01:00", &["00:00", "59:50"], 2, false),
        ("start_time=2026-11-20T16:59:50+01:00", &["00:00", "59:50"], 2, false),
        ("start_time=1795190390", &["00:00", "59:50"], 2, false),
        ("start_time=1795190390000", &["00:00", "59:50"], 2, false),
    ];
    for (query, expected, total, next) in table {
        let list = world.ok(&format!("/api/v1/gpus/GPU-a/telemetry?{query}")).await;
        assert_eq!(seconds(&list), *expected, "{query}");
        assert_eq!(list["total"], json!(total), "{query}");
        assert_eq!(list["pagination"]["has_next"], json!(next), "{query}");
    }
}

#[tokio::test]
async fn from_page_to_page_by_the_place_of_the_last_row() {
    let world = World::new().await;
    for (path, order) in [("telemetry", ""), ("telemetry", "&reverse=true"), ("gpus/GPU-a/telemetry", "")] {
        let whole = world.ok(&format!("/api/v1/{path}?limit=100{order}")).await;
        assert_eq!(whole.get("next"), None);
        for limit in [1, 2, 3, 7] {
            let (mut after, mut found) = (String::new(), Vec::new());
            loop {
                let page = world.ok(&format!("/api/v1/{path}?limit={limit}{order}{after}")).await;
                assert_eq!(page.get("total").is_some(), after.is_empty(), "{page}");
                found.extend(page["data"].as_array().unwrap().iter().cloned());
                let Some(next) = page["next"].as_str() else {
                    assert_eq!(page["pagination"]["has_next"], json!(false));
                    break;
                };
                assert_eq!(page["data"].as_array().map(Vec::len), Some(limit));
                after = format!("&after={next}");
            }
            assert_eq!(json!(found), whole["data"], "{path} {limit}{order}");
        }
    }
}

#[tokio::test]
async fn rows_are_selected_by_their_identity() {
    let world = World::new().await;
    let total = async |path: &str| world.ok(&format!("/api/v1/{path}")).await["total"].clone();
    assert_eq!(total("telemetry?where=pod=train-7").await, 3);
    assert_eq!(total("telemetry?where=model!~.*H100.*;vendor=amd").await, 1);
    assert_eq!(total("gpus/GPU-a/telemetry?where=namespace=research").await, 3);
    assert_eq!(total("gpus/GPU-a/telemetry?where=namespace=other").await, 0);
}

#[tokio::test]
async fn only_the_columns_that_are_asked_for() {
    let world = World::new().await;
    let list = world.ok("/api/v1/gpus/GPU-a/telemetry?metrics=utilization_pct,room_c").await;
    let metrics: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|row| &row["metrics"]).collect();
    assert_eq!(
        metrics,
        [&json!({"room_c": 21.5}), &json!({"utilization_pct": 97.0}), &json!({"utilization_pct": 90.5})]
    );
}

#[tokio::test]
async fn several_gpus_and_all() {
    let world = World::new().await;
    let gpus = |list: &Value| -> Vec<String> {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["gpu_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let two = world.ok("/api/v1/telemetry?gpus=GPU-b,GPU-c,GPU-b").await;
    assert_eq!(gpus(&two), ["GPU-b", "GPU-c"]);
    let alias = world.ok("/api/v1/telemetry?gpus=sim-node-01:gpu10").await;
    assert_eq!(gpus(&alias), ["GPU-b"]);
    let all = world.ok("/api/v1/telemetry?limit=3&reverse=true").await;
    assert_eq!(gpus(&all), ["GPU-d", "GPU-a", "GPU-a"]);
    assert_eq!(all["total"], 7);
    let lonely = world.ok("/api/v1/gpus/rack%407/telemetry").await;
    assert_eq!(lonely["data"][0]["hostname"], Value::Null);
}

#[tokio::test]
async fn partial_rows_of_one_instant_are_one_row_and_texts_are_kept() {
    let world = World::new().await;
    let a = gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3");
    world.append(rows(&[(a.clone(), 0, &[("utilization_pct", 33.3)])])).await;
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = builder.intern(&a);
    let row = builder.row(now_ns(), identity);
    builder.set(row, catalogue::by_column("temperature_c").unwrap(), Number::Float(64.0)).unwrap();
    builder.set_extra_text(row, "phase", "warm \"up\"\n").unwrap();
    world.append(builder.finish(Origin::default(), 2).unwrap()).await;
    let list = world.ok("/api/v1/gpus/GPU-a/telemetry?limit=1").await;
    assert_eq!(list["total"], 3);
    let expected = json!({
        "utilization_pct": 33.3, "power_w": 598.1, "temperature_c": 64.0, "room_c": 21.5, "phase": "warm \"up\"\n"
    });
    assert_eq!(list["data"][0]["metrics"], expected);
}

#[tokio::test]
async fn a_float_is_spelled_as_short_as_it_was_read() {
    let world = World::new().await;
    let answer = world.get("/api/v1/gpus/GPU-a/telemetry").await;
    assert!(answer.text().contains("\"power_w\":612.4,") || answer.text().contains("\"power_w\":612.4}"));
    assert!(!answer.text().contains("612.40"));
}

#[tokio::test]
async fn a_part_of_a_gpu_is_a_gpu() {
    let world = World::empty(|_, _| ()).await;
    let part = gpu("GPU-m", "sim-node-01", 0, "NVIDIA H100 80GB HBM3");
    let part = part.with(gpuvitals_core::IdentityColumn::Partition, "1g.10gb-3").unwrap();
    world.append(rows(&[(part, 0, &[("power_w", 50.0)])])).await;
    let list = world.ok("/api/v1/gpus").await;
    assert_eq!(list["gpus"][0]["id"], "GPU-m:1g.10gb-3");
    assert_eq!(list["gpus"][0]["name"], "sim-node-01 / GPU 0 / 1g.10gb-3");
    let rows = world.ok("/api/v1/gpus/GPU-m:1g.10gb-3/telemetry").await;
    assert_eq!(rows["data"][0]["gpu_id"], "GPU-m:1g.10gb-3");
}

/// One row of each table, taken now, with a value in every column of its own.
fn one_of_each_table() -> Vec<Batch> {
    let of_table = |table: Table| {
        let mut builder = BatchBuilder::new(table);
        let whose = if table.subject() == IdentityColumn::Node {
            Identity::default().with(IdentityColumn::Node, "sim-node-01").unwrap()
        } else {
            gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3")
        };
        let identity = builder.intern(&whose);
        let row = builder.row(now_ns(), identity);
        for column in table.columns() {
            match column.column_type {
                Some(_) => builder.set_extra(row, column.name, Number::Int(7)).unwrap(),
                None => builder.set_extra_text(row, column.name, "seven").unwrap(),
            }
        }
        if table == Table::SystemEvents {
            builder.set(row, catalogue::by_column("cpu_pct").unwrap(), Number::Float(12.5)).unwrap();
        }
        builder.finish(Origin::default(), 1).unwrap()
    };
    Table::ALL.into_iter().filter(|table| *table != Table::GpuEvents).map(of_table).collect()
}

#[tokio::test]
async fn events_are_asked_for_by_their_kinds() {
    let world = World::new().await;
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    let identity = builder.intern(&gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3"));
    let kinds = ["xid", "throttle", "finding_opened", "throttle", "finding_closed", "throttle"];
    for (number, kind) in (0_i64..).zip(kinds) {
        let row = builder.row(now_ns() - 10 + number, identity);
        builder.set_extra(row, "sequence", Number::Int(number)).unwrap();
        builder.set_extra_text(row, "kind", kind).unwrap();
    }
    world.append(builder.finish(Origin::default(), 1).unwrap()).await;
    let asked =
        async |more: &str| world.ok(&format!("/api/v1/telemetry?table=gpu_health_events&{more}")).await;
    let told = |list: &Value| -> Vec<Value> {
        list["data"].as_array().unwrap().iter().map(|row| row["metrics"]["kind"].clone()).collect()
    };
    let some = "kind=xid,finding_opened,finding_closed";
    for (more, expected) in [
        (some.to_owned(), &["finding_closed", "finding_opened", "xid"][..]),
        (format!("{some}&reverse=true"), &["xid", "finding_opened", "finding_closed"]),
        (format!("{some}&offset=2"), &["xid"]),
        (format!("{some}&offset=3"), &[]),
        ("kind=none".to_owned(), &[]),
    ] {
        assert_eq!(told(&asked(&more).await), expected, "{more}");
    }
    let first = asked(&format!("{some}&limit=2")).await;
    assert_eq!((told(&first).len(), &first["pagination"]["has_next"]), (2, &json!(true)));
    let rest = asked(&format!("{some}&limit=2&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!((told(&rest), &rest["pagination"]["has_next"]), (vec![json!("xid")], &json!(false)));
    // The kind is read to choose the rows, though it is not wanted.
    assert_eq!(asked("kind=xid&metrics=sequence").await["data"][0]["metrics"], json!({"sequence": 0}));
    let table = "/api/v1/telemetry?table=gpu_health_events&kind=xid&metrics=sequence&format=csv";
    let table = world.get(table).await;
    let heads: Vec<&str> = table.text().lines().next().unwrap().split(',').collect();
    assert!(heads.contains(&"sequence") && !heads.contains(&"kind"), "{heads:?}");
    assert_eq!(world.ok("/api/v1/telemetry?kind=xid").await["data"], json!([]));
}

#[tokio::test]
async fn rows_of_every_table_are_asked_for_by_its_name() {
    let world = World::new().await;
    for batch in one_of_each_table() {
        world.append(batch).await;
    }
    let usual = world.ok("/api/v1/telemetry").await;
    assert_eq!(usual, world.ok("/api/v1/telemetry?table=gpu_events").await);
    assert_eq!(usual["total"], 7, "other tables' rows are not among those of gpu_events");
    let of_table = async |table: &str| {
        let list = world.ok(&format!("/api/v1/telemetry?table={table}")).await;
        assert_eq!(list["total"], 1, "{list}");
        (list["data"][0]["gpu_id"].clone(), list["data"][0]["metrics"].clone())
    };
    let details = json!({ "metric": "seven", "instance": "seven", "value": 7.0 });
    assert_eq!(of_table("gpu_details").await, (json!("GPU-a"), details));
    let texts = ["kind", "detail", "finding", "silenced", "until"];
    let mut event = json!({ "sequence": 7, "code": 7 });
    for name in texts {
        event[name] = json!("seven");
    }
    assert_eq!(of_table("gpu_health_events").await, (json!("GPU-a"), event.clone()));
    assert_eq!(of_table("gpu_processes").await.1["command"], "seven");
    assert_eq!(of_table("system_events").await, (json!("sim-node-01"), json!({ "cpu_pct": 12.5 })));
    let (host, job) = of_table("jobs").await;
    assert_eq!((host, &job["job_id"], &job["uid"]), (json!("sim-node-01"), &json!("seven"), &json!(7)));

    let of_gpu = world.ok("/api/v1/gpus/GPU-a/telemetry?table=gpu_health_events&metrics=kind,code").await;
    assert_eq!(of_gpu["data"][0]["metrics"], json!({ "kind": "seven", "code": 7 }));
    assert_eq!(world.ok("/api/v1/gpus/GPU-b/telemetry?table=gpu_health_events").await["total"], 0);
    for table in ["system_events", "jobs"] {
        let of_host = async |host: &str| {
            let list = world.ok(&format!("/api/v1/telemetry?table={table}&gpus={host}")).await;
            list["total"].clone()
        };
        assert_eq!(
            (of_host("sim-node-01").await, of_host("sim-node-02").await),
            (json!(1), json!(0)),
            "{table}"
        );
    }

    for (path, words) in [
        ("telemetry?table=gpu", "gpu_events, system_events, gpu_details, gpu_processes, gpu_health_events"),
        ("gpus/GPU-a/telemetry?table=system_events", "gpu_events, gpu_details"),
        ("telemetry?table=gpu_details&metrics=power_w", "a column of gpu_details"),
        ("query?metrics=power_w&table=gpu_details", "these have metrics"),
        ("query?metrics=power_w&table=system_events", "a metric of hosts"),
        ("query?metrics=cpu_pct&table=system_events&group_by=gpu", "node or all"),
        ("query?metrics=cpu_pct&table=system_events&gpus=GPU-a", "asked for with hosts"),
    ] {
        let refused = world.get(&format!("/api/v1/{path}")).await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text().contains(words), "{path}: {}", refused.text());
    }
}

#[tokio::test]
async fn metrics_of_hosts_are_charted_by_host() {
    let world = World::new().await;
    for batch in one_of_each_table() {
        world.append(batch).await;
    }
    for path in [
        "query?metrics=cpu_pct&table=system_events",
        "query?metrics=cpu_pct&table=system_events&hosts=sim-node-01",
    ] {
        let answer = world.ok(&format!("/api/v1/{path}")).await;
        assert_eq!(answer["series"].as_array().map(Vec::len), Some(1), "{answer}");
        let series = &answer["series"][0];
        assert_eq!(
            (series["group"].as_str(), series["hostname"].as_str()),
            (Some("sim-node-01"), Some("sim-node-01"))
        );
        assert!(series["values"].as_array().unwrap().contains(&json!(12.5)), "{answer}");
    }
    let elsewhere = world.ok("/api/v1/query?metrics=cpu_pct&table=system_events&hosts=sim-node-02").await;
    assert_eq!(elsewhere["series"], json!([]));
}
