//! Jobs that start and end, and drivers that change.

use gpuvitals_core::{Identity, IdentityColumn};
use serde_json::{Value, json};

use crate::analysis::H100;
use crate::world::{Row, World, gpu, rows};

const IDLE: &[(&str, f64)] = &[("utilization_pct", 0.0), ("power_w", 100.0)];

fn with(identity: &Identity, texts: &[(IdentityColumn, &str)]) -> Identity {
    texts.iter().fold(identity.clone(), |identity, (column, text)| identity.with(*column, text).unwrap())
}

/// An hour of two GPUs of a host, and one of another host. A job has both GPUs of the first for 20 minutes, a pod held the other from
/// the beginning on and ends, and the first host gets another driver.
async fn changing() -> World {
    let world = World::empty(|_, _| {}).await;
    let all: Vec<Row<'_>> = (0..=60)
        .flat_map(|minute| {
            let ago = 60 - minute;
            let driver = if minute < 40 { "570.1" } else { "580.2" };
            let of_host = [0, 1].map(|n| {
                let card = gpu(&format!("GPU-{n}"), "sim-node-01", n, H100);
                let card = with(&card, &[(IdentityColumn::Driver, driver), (IdentityColumn::Vbios, "96.00")]);
                let job = [(IdentityColumn::Namespace, "research"), (IdentityColumn::Job, "train-7")];
                if (10..30).contains(&minute) { with(&card, &job) } else { card }
            });
            let other = gpu("GPU-2", "sim-node-02", 0, H100);
            let other = if minute < 50 { with(&other, &[(IdentityColumn::Pod, "old-0")]) } else { other };
            of_host.into_iter().chain([other]).map(move |identity| (identity, 60 * ago, IDLE))
        })
        .collect();
    world.append(rows(&all)).await;
    world
}

fn told(answer: &Value) -> Vec<(&str, &str, &str, u64)> {
    let changes = answer["changes"].as_array().unwrap().iter();
    changes
        .map(|change| {
            let text = |field: &str| change[field].as_str().unwrap();
            (text("at"), text("kind"), text("hostname"), change["gpus"].as_u64().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn jobs_and_drivers_change_once_a_node() {
    let world = changing().await;
    let answer = world.ok("/api/v1/analysis/changes").await;
    assert_eq!(
        told(&answer),
        [
            ("2026-11-20T15:49:00Z", "job_ended", "sim-node-02", 1),
            ("2026-11-20T15:40:00Z", "driver_changed", "sim-node-01", 2),
            ("2026-11-20T15:29:00Z", "job_ended", "sim-node-01", 2),
            ("2026-11-20T15:10:00Z", "job_started", "sim-node-01", 2),
        ],
        "the pod was there before the range"
    );
    let [pod, driver, job, _] = answer["changes"].as_array().unwrap().as_slice() else {
        panic!("four changes")
    };
    assert_eq!(
        (&driver["from"], &driver["to"], &driver["job"]),
        (&json!("570.1"), &json!("580.2"), &Value::Null)
    );
    assert_eq!(
        (&job["namespace"], &job["job"], &job["from"]),
        (&json!("research"), &json!("train-7"), &Value::Null)
    );
    assert_eq!((&pod["pod"], &pod["gpu"]), (&json!("old-0"), &json!("GPU-2")));
}

#[tokio::test]
async fn changes_are_filtered_and_cut_and_wrong_kinds_are_refused() {
    let world = changing().await;
    let count = async |query: &str| {
        let answer = world.ok(&format!("/api/v1/analysis/changes?{query}")).await;
        (answer["changes"].as_array().unwrap().len(), answer["total"].as_u64().unwrap())
    };
    assert_eq!(count("host=sim-node-01").await, (3, 3));
    assert_eq!(count("kind=job_started,job_ended").await, (3, 3));
    assert_eq!(count("host=sim-node-02&kind=driver_changed,vbios_changed").await, (0, 0));
    assert_eq!(count("limit=2").await, (2, 4));
    // Of a range in which nothing was there before and everything stays nothing is known.
    assert_eq!(count("start=2026-11-20T15:12:00Z&end=2026-11-20T15:25:00Z").await, (0, 0));
    let answer = world.get("/api/v1/analysis/changes?kind=xid").await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_parameter")));
}
