//! What jobs used, by the sums that a node makes of its samples.

use std::sync::Arc;

use gpuvitals_core::usage::{Ledger, Sharing};
use gpuvitals_core::{Identity, IdentityColumn};
use serde_json::{Value, json};

use crate::analysis::{H100, judging};
use crate::world::{Row, World, gpu, rows};

/// Two pods share this GPU.
#[derive(Debug)]
struct Shared(&'static str);

impl Sharing for Shared {
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>> {
        let pods: &[&str] = if identity.uuid() == Some(self.0) { &["a", "b"] } else { &[] };
        pods.iter().map(|pod| Arc::new(pod_of(identity, pod))).collect()
    }
}

fn pod_of(gpu: &Identity, pod: &str) -> Identity {
    let gpu = gpu.clone().with(IdentityColumn::Namespace, "team").unwrap();
    gpu.with(IdentityColumn::Pod, pod).unwrap()
}

/// The rows of the last hour, a minute apart, and what a ledger makes of them: a job with two GPUs on two hosts, of which one parks, a GPU
/// that two pods share, and one that nobody has and nobody saw for a while.
async fn accounted() -> World {
    let world = judging().await;
    let job = |name: &str, host: &str| gpu(name, host, 0, H100).with(IdentityColumn::Job, "train-1").unwrap();
    let (works, parks) = (job("GPU-0", "sim-node-01"), job("GPU-1", "sim-node-02"));
    let shared = pod_of(&gpu("GPU-2", "sim-node-02", 2, H100), "a");
    let free = gpu("GPU-3", "sim-node-02", 3, H100);
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 600.0)];
    let idle: &[(&str, f64)] = &[("utilization_pct", 0.0), ("power_w", 120.0)];
    let minutes = (0..60).rev();
    let all: Vec<Row<'_>> = minutes
        .flat_map(|minute| {
            let mut rows = vec![
                (works.clone(), 60 * minute, busy),
                (parks.clone(), 60 * minute, idle),
                (shared.clone(), 60 * minute, busy),
            ];
            // Half an hour without a row.
            rows.extend((!(10..40).contains(&minute)).then(|| (free.clone(), 60 * minute, idle)));
            rows
        })
        .collect();
    let samples = rows(&all);
    let mut ledger = Ledger::default();
    ledger.add(&samples, &Shared("GPU-2"));
    let told = ledger.finish().unwrap();
    world.append(samples).await;
    // As it was on the way, and once more in the end: the later one stays.
    world.append(told.clone()).await;
    world.append(told).await;
    world
}

fn near(value: &Value, expected: f64) {
    assert!((value.as_f64().unwrap() - expected).abs() < 1e-6, "{value} is not {expected}");
}

#[tokio::test]
async fn what_jobs_and_pods_used_adds_up_to_the_time_and_energy_of_their_gpus() {
    let world = accounted().await;
    let list = world.ok("/api/v1/jobs").await;
    let holders: Vec<&str> =
        list["jobs"].as_array().unwrap().iter().map(|job| job["holder"].as_str().unwrap()).collect();
    assert_eq!(holders, ["job:train-1", "pod:team/a/", "pod:team/b/"]);
    let [train, a, b] = [0, 1, 2].map(|at| &list["jobs"][at]);
    // Sixty rows a minute apart are 59 minutes.
    let hours = |minutes: f64| minutes / 60.0;
    assert_eq!((&train["gpus"], &train["hosts"]), (&json!(2), &json!(["sim-node-01", "sim-node-02"])));
    assert_eq!(
        (&train["job"], &train["pod"], &train["simulated"]),
        (&json!("train-1"), &Value::Null, &json!(true))
    );
    near(&train["held_gpu_hours"], hours(118.0));
    near(&train["busy_gpu_hours"], hours(29.5));
    near(&train["idle_gpu_hours"], hours(59.0));
    near(&train["energy_kwh"], 0.72 * hours(59.0));
    near(&train["shared_gpu_hours"], 0.0);
    assert_eq!(train["power_max_w"], 600.0);
    for pod in [a, b] {
        near(&pod["held_gpu_hours"], hours(29.5));
        near(&pod["shared_gpu_hours"], hours(29.5));
        near(&pod["energy_kwh"], 0.3 * hours(59.0));
    }
    near(&list["nobody"]["held_gpu_hours"], hours(28.0));
    near(&list["unobserved_gpu_hours"], hours(31.0));
    // The same as the rows themselves say.
    let energy = world.ok("/api/v1/analysis/energy?by=gpu").await;
    let all = ["whole", "nobody"].map(|of| list[of]["energy_kwh"].as_f64().unwrap());
    near(&energy["whole"]["energy_kwh"], all.iter().sum());
    let held = list["whole"]["held_gpu_hours"].as_f64().unwrap() + hours(28.0);
    near(&energy["whole"]["gpu_hours"], held);
    near(&list["whole"]["held_gpu_hours"], hours(118.0 + 59.0));
}

#[tokio::test]
async fn a_part_of_an_hour_is_that_part_of_its_sums_and_it_is_said() {
    let world = accounted().await;
    let whole = world.ok("/api/v1/jobs?start=2026-11-20T15:00:00Z&end=2026-11-20T16:00:00Z").await;
    // The last row is of 16:00, an hour in which nothing is added up yet.
    assert_eq!(whole["interpolated"], false);
    let half = world.ok("/api/v1/jobs?start=2026-11-20T15:00:00Z&end=2026-11-20T15:30:00Z").await;
    assert_eq!(half["interpolated"], true);
    let hours = |list: &Value| list["whole"]["held_gpu_hours"].as_f64().unwrap();
    near(&json!(hours(&half)), hours(&whole) / 2.0);
    let none = world.ok("/api/v1/jobs?start=2026-11-20T12:00:00Z&end=2026-11-20T13:00:00Z").await;
    assert_eq!((&none["total"], &none["interpolated"]), (&json!(0), &json!(false)));
    assert_eq!(none["whole"]["energy_kwh"], Value::Null, "nothing was read, which is not 0");
}

#[tokio::test]
async fn jobs_of_a_host_are_those_of_its_gpus_page_by_page() {
    let world = accounted().await;
    let list = world.ok("/api/v1/jobs?host=sim-node-01").await;
    assert_eq!((&list["total"], &list["jobs"][0]["gpus"]), (&json!(1), &json!(1)));
    let page = world.ok("/api/v1/jobs?limit=1&offset=1").await;
    assert_eq!((&page["total"], &page["jobs"][0]["holder"]), (&json!(3), &json!("pod:team/a/")));
    near(&page["whole"]["held_gpu_hours"], (118.0 + 59.0) / 60.0);
    for (path, status) in [
        ("/api/v1/jobs?host=nowhere", 404),
        ("/api/v1/jobs?start=2026-11-20T16:00:00Z&end=2026-11-20T15:00:00Z", 400),
        ("/api/v1/jobs?by=job", 400),
    ] {
        assert_eq!(world.get(path).await.status, status, "{path}");
    }
}
