//! The use of a fleet over time.

use gpuvitals_core::{Identity, IdentityColumn};
use serde_json::{Value, json};

use crate::analysis::H100;
use crate::world::{Row, World, gpu, rows};

/// A fleet whose GPUs are not sampled alike: of two that work one each minute and one each ten seconds; one is parked, one is free
/// and has no power.
async fn unlike_rates() -> World {
    let world = World::empty(|_, _| {}).await;
    let held =
        |name: &str, job: &str| gpu(name, "sim-node-01", 0, H100).with(IdentityColumn::Job, job).unwrap();
    let busy: &[(&str, f64)] = &[("utilization_pct", 90.0), ("power_w", 600.0)];
    let half: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 300.0)];
    let idle: &[(&str, f64)] = &[("utilization_pct", 0.0), ("power_w", 100.0)];
    let dark: &[(&str, f64)] = &[("utilization_pct", 0.0)];
    let minutes = |identity: Identity, values| (0..=60).map(move |n| (identity.clone(), 60 * n, values));
    let often = (0..=360).map(|n| (held("GPU-1", "train"), 10 * n, half));
    let all: Vec<Row<'_>> = minutes(held("GPU-0", "train"), busy)
        .chain(often)
        .chain(minutes(held("GPU-2", "parked"), idle))
        .chain(minutes(gpu("GPU-3", "sim-node-02", 0, "AMD Instinct MI300X"), dark))
        .collect();
    world.append(rows(&all)).await;
    world
}

#[tokio::test]
async fn the_use_over_time_is_a_sum_over_gpus_however_often_they_are_sampled() {
    let world = unlike_rates().await;
    let answer = world.ok("/api/v1/analysis/usage?by=job&step=10m").await;
    let numbers = |line: &Value, field: &str| -> Vec<Option<f64>> {
        line[field].as_array().unwrap().iter().map(Value::as_f64).collect()
    };
    let check = |line: &Value, field: &str, wanted: f64| {
        let found = numbers(line, field);
        assert_eq!(found.len(), 7, "six steps, and the one that begins with the end");
        for value in found.iter().take(6) {
            assert!((value.unwrap() - wanted).abs() < 1e-6, "{field}: {found:?}, not {wanted}");
        }
        assert_eq!(found[6], None, "one row is no time");
    };
    let whole = &answer["whole"];
    for (field, wanted) in [
        ("gpus", 4.0),
        ("held_gpus", 3.0),
        ("idle_gpus", 1.0),
        ("utilization_pct", 35.0),
        ("power_w", 1_000.0),
        ("power_gpus", 3.0),
    ] {
        check(whole, field, wanted);
    }
    let groups = answer["groups"].as_array().unwrap();
    let names: Vec<&Value> = groups.iter().map(|group| &group["group"]).collect();
    assert_eq!(
        (names, &answer["total"], &answer["rest"]),
        (vec![&json!("train"), &json!("parked"), &Value::Null], &json!(3), &Value::Null)
    );
    check(&groups[0], "power_w", 900.0);
    check(&groups[1], "idle_gpus", 1.0);
    assert_eq!(numbers(&groups[2], "power_w"), vec![None; 7], "no power is absent, not 0");
    check(&groups[2], "gpus", 1.0);
    assert_eq!(whole["simulated"], true);

    // The sums of the range are those of the other answers.
    let (energy, idle) = (world.ok("/api/v1/analysis/energy").await, world.ok("/api/v1/analysis/idle").await);
    for (field, of) in [
        ("energy_kwh", &energy),
        ("gpu_hours", &energy),
        ("busy_gpu_hours", &energy),
        ("held_gpu_hours", &idle),
        ("idle_gpu_hours", &idle),
    ] {
        let (found, wanted) = (whole[field].as_f64().unwrap(), of["whole"][field].as_f64().unwrap());
        assert!((found - wanted).abs() < 1e-9, "{field}: {found}, not {wanted}");
    }

    // What has no line of its own is one.
    let answer = world.ok("/api/v1/analysis/usage?by=job&step=10m&top=1").await;
    assert_eq!((answer["groups"].as_array().unwrap().len(), &answer["total"]), (1, &json!(3)));
    check(&answer["rest"], "power_w", 100.0);
    check(&answer["rest"], "gpus", 2.0);
}

#[tokio::test]
async fn the_use_over_time_is_of_those_that_are_asked_for_and_a_table_too() {
    let world = unlike_rates().await;
    let names = |answer: &Value| -> Vec<Value> {
        answer["groups"].as_array().unwrap().iter().map(|group| group["group"].clone()).collect()
    };
    let answer = world.ok("/api/v1/analysis/usage?by=model&step=1h").await;
    assert_eq!(names(&answer), [json!(H100), json!("AMD Instinct MI300X")]);
    let answer = world.ok("/api/v1/analysis/usage?by=node&step=1h&where=vendor%3Dnvidia;job!%3Dparked").await;
    assert_eq!((names(&answer), &answer["whole"]["gpus_seen"]), (vec![json!("sim-node-01")], &json!(2)));
    let csv = world.get("/api/v1/analysis/usage?by=job&step=1h&format=csv").await;
    let lines: Vec<&str> = csv.text().lines().collect();
    assert_eq!(lines[0], "timestamp,line,job,gpus,held_gpus,idle_gpus,utilization_pct,power_w,power_gpus");
    assert_eq!(lines[1], "2026-11-20T15:00:00Z,whole,,4,3,1,35,1000,3");
    assert_eq!(lines.len(), 5, "the whole and three groups");
    for query in ["by=gpu", "step=0", "top=0", "start=2026-11-21T00:00:00Z", "where=colour%3Dred"] {
        let answer = world.get(&format!("/api/v1/analysis/usage?{query}")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_parameter")), "{query}");
    }
    let large = world.get("/api/v1/analysis/usage?start=2020-01-01T00:00:00Z&step=1s").await;
    assert_eq!((large.status, &large.json()["code"]), (400, &json!("too_large")));
}

#[tokio::test]
async fn a_gpu_that_changes_hands_counts_by_its_time_and_an_instance_is_none_beside_its_card() {
    let world = World::empty(|_, _| {}).await;
    let card = gpu("GPU-0", "n", 0, H100);
    let instance = |pod: &str| {
        card.clone()
            .with(IdentityColumn::Partition, "1g.10gb-7")
            .unwrap()
            .with(IdentityColumn::Pod, pod)
            .unwrap()
    };
    let changes = |job: &str| gpu("GPU-1", "n", 1, H100).with(IdentityColumn::Job, job).unwrap();
    let values: &[(&str, f64)] = &[("utilization_pct", 40.0), ("power_w", 200.0)];
    let of_instance: &[(&str, f64)] = &[("memory_used_mb", 1.0)];
    let all: Vec<Row<'_>> = (0..=60)
        .flat_map(|n| {
            let job = if n > 45 { "first" } else { "second" };
            [
                (card.clone(), 60 * n, values),
                (instance("a"), 60 * n, of_instance),
                (changes(job), 60 * n, values),
            ]
        })
        .collect();
    world.append(rows(&all)).await;
    let answer = world.ok("/api/v1/analysis/usage?by=job&step=1h").await;
    let first = |line: &Value, field: &str| line[field][0].as_f64().unwrap();
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
    let whole = &answer["whole"];
    near(first(whole, "gpus"), 2.0);
    near(first(whole, "power_w"), 400.0);
    near(first(whole, "held_gpus"), 2.0);
    let group = |name: Value| {
        answer["groups"].as_array().unwrap().iter().find(|group| group["group"] == name).unwrap().clone()
    };
    near(first(&group(json!("first")), "gpus"), 0.25);
    near(first(&group(json!("second")), "power_w"), 150.0);
    let nobody = group(Value::Null);
    near(first(&nobody, "gpus"), 1.0);
    near(first(&nobody, "utilization_pct"), 40.0);
}
