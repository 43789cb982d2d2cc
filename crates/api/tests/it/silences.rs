//! Silences: of a finding, a host and a job.

use std::sync::Arc;

use gpuvitals_core::time::{DAY_NS, MINUTE_NS, SECOND_NS};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table};
use serde_json::{Value, json};

use crate::analysis::{H100, ids, judging};
use crate::client::{Answer, request};
use crate::world::{World, gpu, now_ns, rows};

const PATH: &str = "/api/v1/analysis/silences";
const FINDINGS: &str = "/api/v1/analysis/findings";

/// A request with a body.
async fn post(world: &World, kind: &str, body: &str) -> Answer {
    let headers = format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    request(world.address, "POST", PATH, &format!("{headers}\r\n{body}")).await
}

async fn silence(world: &World, body: Value) -> Value {
    let answer = post(world, "application/json; charset=utf-8", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

async fn release(world: &World, query: &str) -> Answer {
    request(world.address, "DELETE", &format!("{PATH}?{query}"), "").await
}

/// A GPU of host `a/n1` that job `a/research/train-7` holds.
fn held(uuid: &str, index: i32) -> Identity {
    let texts = [
        (IdentityColumn::Cluster, "a"),
        (IdentityColumn::Namespace, "research"),
        (IdentityColumn::Job, "train-7"),
    ];
    texts
        .into_iter()
        .fold(gpu(uuid, "n1", index, H100), |gpu, (column, text)| gpu.with(column, text).unwrap())
}

/// A fleet with an XID on a GPU of each of two hosts; that of `a/n1` is held by a job.
async fn two_hosts(world: &World) {
    let xid: &[(&str, f64)] = &[("xid_last", 79.0)];
    world.append(rows(&[(held("GPU-x", 0), 0, xid), (gpu("GPU-y", "n2", 0, H100), 0, xid)])).await;
}

#[tokio::test]
async fn a_finding_is_acknowledged_and_released_and_its_life_is_rows() {
    let world = judging().await;
    world.append(rows(&[(gpu("GPU-x", "n1", 0, H100), 0, &[("xid_last", 79.0)])])).await;
    assert_eq!(ids(&world.ok(FINDINGS).await), ["xid:GPU-x"]);
    world.set_time(now_ns() + 10 * SECOND_NS);
    let told = silence(&world, json!({"finding": "xid:GPU-x", "note": " Kim: drained "})).await;
    let expected = json!({
        "type": "finding", "id": "xid:GPU-x", "at": "2026-11-20T16:00:10Z", "until": null, "note": "Kim: drained"
    });
    assert_eq!(told, expected);
    assert_eq!(world.ok(FINDINGS).await["findings"][0]["silenced"], expected);
    assert_eq!(world.ok(PATH).await["silences"], json!([expected]));

    world.set_time(now_ns() + 20 * SECOND_NS);
    let released = release(&world, "finding=xid%3AGPU-x").await;
    assert_eq!((released.status, released.json()), (200, expected));
    assert_eq!(world.ok(FINDINGS).await["findings"][0]["silenced"], Value::Null);
    assert_eq!(release(&world, "finding=xid%3AGPU-x").await.json()["code"], "unknown_silence");
    world.store_findings().await;
    let rows =
        world.ok("/api/v1/telemetry?table=gpu_health_events&metrics=kind,finding,silenced,detail").await;
    let told: Vec<_> = rows["data"].as_array().unwrap().iter().map(|row| &row["metrics"]).collect();
    let event = |kind, about: &str, detail| {
        let mut event = json!({"kind": kind, "detail": detail});
        event[about] = json!("xid:GPU-x");
        event
    };
    assert_eq!(
        told,
        [
            &event("released", "silenced", ""),
            &event("silenced", "silenced", "Kim: drained"),
            &event("finding_opened", "finding", "XID 79: the GPU has fallen off the bus"),
        ]
    );
}

#[tokio::test]
async fn a_host_is_silenced_until_a_time_in_every_gateway_and_in_a_look_back() {
    let (here, there) = (judging().await, judging().await);
    for world in [&here, &there] {
        two_hosts(world).await;
        assert_eq!(ids(&world.ok(FINDINGS).await), ["xid:GPU-x", "xid:GPU-y"]);
        world.set_time(now_ns() + 60 * SECOND_NS);
    }
    let body = json!({"host": "n1", "note": "Kim: board exchange", "until": "2026-11-20T16:10:00Z"});
    let told = silence(&here, body).await;
    let expected = json!({
        "type": "host", "id": "a/n1", "at": "2026-11-20T16:01:00Z", "until": "2026-11-20T16:10:00Z",
        "note": "Kim: board exchange"
    });
    assert_eq!(told, expected);
    let said = here.store_findings().await;
    for batch in said {
        there.append(batch).await;
    }
    // A finding that opens while the silence holds is silenced, too.
    for world in [&here, &there] {
        world.append(rows(&[(held("GPU-z", 1), -60, &[("xid_last", 79.0)])])).await;
        world.set_time(now_ns() + 90 * SECOND_NS);
        let list = world.ok(FINDINGS).await;
        assert_eq!(ids(&list), ["xid:GPU-y", "xid:GPU-x", "xid:GPU-z"]);
        assert_eq!(
            (&list["findings"][0]["silenced"], &list["findings"][1]["silenced"]),
            (&Value::Null, &expected)
        );
        assert_eq!(world.ok(PATH).await["silences"], json!([expected]));
        // It has ended by itself.
        world.append(rows(&[(held("GPU-z", 1), -599, &[("xid_last", 79.0)])])).await;
        world.set_time(now_ns() + 10 * MINUTE_NS);
        assert_eq!(world.ok(PATH).await["silences"], json!([]));
        let list = world.ok(FINDINGS).await;
        assert!(
            list["findings"].as_array().unwrap().iter().all(|finding| finding["silenced"].is_null()),
            "{list}"
        );
        // As of an instant at which it held, and of one before it.
        let then = world.ok(&format!("{FINDINGS}?at=2026-11-20T16:02:00Z&kind=xid&host=n1")).await;
        assert_eq!(then["findings"][0]["silenced"], expected);
        assert_eq!(world.ok(&format!("{PATH}?at=2026-11-20T16:02:00Z")).await["silences"], json!([expected]));
        assert_eq!(world.ok(&format!("{PATH}?at=2026-11-20T16:00:30Z")).await["silences"], json!([]));
    }
}

#[tokio::test]
async fn a_job_is_silenced_and_released() {
    let world = judging().await;
    two_hosts(&world).await;
    let until = "2026-11-20T17:00:00Z";
    let told = silence(&world, json!({"job": "a/research/train-7", "until": until})).await;
    assert_eq!((&told["type"], &told["id"]), (&json!("job"), &json!("a/research/train-7")));
    let list = world.ok(FINDINGS).await;
    assert_eq!(ids(&list), ["xid:GPU-y", "xid:GPU-x"]);
    assert_eq!(list["findings"][1]["silenced"], told);
    // Nothing else of its GPUs changes by it.
    let gpus = world.ok("/api/v1/gpus").await;
    assert_eq!((&gpus["gpus"][0]["judgement"], gpus["total"].as_u64()), (&json!("critical"), Some(2)));
    assert_eq!(release(&world, "job=a%2Fresearch%2Ftrain-7").await.status, 200);
    assert_eq!(ids(&world.ok(FINDINGS).await), ["xid:GPU-x", "xid:GPU-y"]);
}

#[tokio::test]
async fn what_another_gateway_said_of_a_finding_counts_here() {
    let world = judging().await;
    let who = gpu("GPU-x", "n1", 0, H100);
    world.append(rows(&[(who.clone(), 0, &[("xid_last", 79.0)])])).await;
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    let said = builder.intern(&who.clone().with(IdentityColumn::Source, "operator").unwrap());
    let seen = builder.intern(&who);
    for (second, who, kind, column, detail) in [
        (-7_200, seen, "finding_opened", "finding", "XID 79: the GPU has fallen off the bus"),
        (-60, said, "silenced", "silenced", "Ada looks"),
    ] {
        let row = builder.row(now_ns() + second * SECOND_NS, who);
        builder.set_extra(row, "sequence", 1).unwrap();
        for (column, text) in [("kind", kind), (column, "xid:GPU-x"), ("detail", detail)] {
            builder.set_extra_text(row, column, text).unwrap();
        }
    }
    world.append(builder.finish(Origin { node: Arc::from("other"), started_ns: 1 }, 1).unwrap()).await;
    let list = world.ok(FINDINGS).await;
    let finding = &list["findings"][0];
    assert_eq!(finding["since"], "2026-11-20T14:00:00Z");
    assert_eq!(
        (&finding["silenced"]["at"], &finding["silenced"]["note"]),
        (&json!("2026-11-20T15:59:00Z"), &json!("Ada looks"))
    );
    world.store_findings().await;
    let rows = world.ok("/api/v1/telemetry?table=gpu_health_events").await;
    assert_eq!(rows["total"], 2, "it was told already");
}

#[tokio::test]
async fn when_a_finding_opened_is_found_behind_any_number_of_other_events() {
    let world = judging().await;
    let who = gpu("GPU-x", "n1", 0, H100);
    world.append(rows(&[(who.clone(), 0, &[("xid_last", 79.0)])])).await;
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    let seen = builder.intern(&who);
    for number in 0..=10_000_i64 {
        let row = builder.row(now_ns() - 7_200 * SECOND_NS + number * SECOND_NS / 2, seen);
        builder.set_extra(row, "sequence", number).unwrap();
        let kind = if number == 0 { "finding_opened" } else { "throttle" };
        builder.set_extra_text(row, "kind", kind).unwrap();
        if number == 0 {
            builder.set_extra_text(row, "finding", "xid:GPU-x").unwrap();
        }
    }
    world.append(builder.finish(Origin { node: Arc::from("other"), started_ns: 1 }, 1).unwrap()).await;
    assert_eq!(world.ok(FINDINGS).await["findings"][0]["since"], "2026-11-20T14:00:00Z");
}

#[tokio::test]
async fn silences_that_make_no_sense_are_refused() {
    let world = judging().await;
    two_hosts(&world).await;
    // Of two hosts with one name the cluster says which is meant; one without cluster has no other name.
    let hosts =
        [("GPU-1", "twin", ""), ("GPU-2", "twin", "b"), ("GPU-3", "both", "b"), ("GPU-4", "both", "c")];
    let idle: &[(&str, f64)] = &[("power_w", 70.0)];
    let hosts = hosts.map(|(uuid, host, cluster)| {
        (gpu(uuid, host, 0, H100).with(IdentityColumn::Cluster, cluster).unwrap(), 0, idle)
    });
    world.append(rows(&hosts)).await;
    let until = "2026-11-20T17:00:00Z";
    let far = gpuvitals_core::time::format(now_ns() + 31 * DAY_NS);
    let json = "application/json";
    for (kind, body, status, code) in [
        ("text/plain", json!({"finding": "xid:GPU-x"}), 400, "bad_body"),
        (json, json!("{"), 400, "bad_body"),
        (json, json!({}), 400, "bad_body"),
        (json, json!({"id": "xid:GPU-x"}), 400, "bad_body"),
        (json, json!({"finding": "xid:GPU-x", "host": "n1", "until": until}), 400, "bad_body"),
        (json, json!({"finding": "xid:GPU-x", "note": "ä".repeat(501)}), 400, "bad_body"),
        (json, json!({"finding": "xid:GPU-x", "until": "soon"}), 400, "bad_body"),
        (json, json!({"finding": "xid:GPU-x", "until": "2026-11-20T16:00:00Z"}), 400, "bad_body"),
        (json, json!({"host": "n1"}), 400, "bad_body"),
        (json, json!({"host": "n1", "until": far}), 400, "bad_body"),
        (json, json!({"host": "both", "until": until}), 400, "bad_body"),
        (json, json!({"host": "twin", "until": until}), 200, ""),
        (json, json!({"host": "c/both", "until": until}), 200, ""),
        (json, json!({"finding": "xid:GPU-z"}), 404, "unknown_finding"),
        (json, json!({"host": "n9", "until": until}), 404, "unknown_host"),
        (json, json!({"job": "a/research/x", "until": until}), 404, "unknown_job"),
    ] {
        let answer = post(&world, kind, &body.to_string()).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, told["code"].as_str().unwrap_or_default()),
            (status, code),
            "{body}: {told}"
        );
    }
    assert_eq!(release(&world, "").await.status, 400);
    assert_eq!(release(&world, "host=n1&finding=xid%3AGPU-x").await.status, 400);
    assert_eq!(release(&world, "host=n1").await.json()["code"], "unknown_silence");
    assert_eq!(request(world.address, "PUT", PATH, "").await.status, 405);
}
