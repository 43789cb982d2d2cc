//! What jobs used, by the sums that a node makes of its samples.

use std::sync::Arc;

use gpuvitals_api::JobPrices;
use gpuvitals_core::usage::{Ledger, Sharing};
use gpuvitals_core::{Identity, IdentityColumn};
use serde_json::{Value, json};

use crate::analysis::H100;
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
    accounted_at(JobPrices::default()).await
}

async fn accounted_at(prices: JobPrices) -> World {
    let world = World::empty(|config, _| config.prices = prices).await;
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

pub(crate) fn near(value: &Value, expected: f64) {
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
    near(&train["wasted_gpu_hours"], hours(88.5));
    near(&train["shared_gpu_hours"], 0.0);
    assert_eq!(train["cost"], Value::Null, "there is no price");
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
async fn time_whose_utilization_is_not_known_is_not_wasted() {
    let world = World::empty(|_, _| {}).await;
    let job = gpu("GPU-0", "sim-node-01", 0, H100).with(IdentityColumn::Job, "train-1").unwrap();
    let told: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 600.0)];
    let untold = &told[1..];
    // The driver tells it in the first half of the hour.
    let minutes =
        (0..60).rev().map(|minute| (job.clone(), 60 * minute, if minute < 30 { untold } else { told }));
    let mut ledger = Ledger::default();
    ledger.add(&rows(&minutes.collect::<Vec<_>>()), &Shared(""));
    world.append(ledger.finish().unwrap()).await;
    let job = &world.ok("/api/v1/jobs").await["jobs"][0];
    let hours = |name: &str| job[name].as_f64().unwrap();
    near(&job["held_gpu_hours"], 59.0 / 60.0);
    // What was told last lasts for some minutes.
    assert!((30.0..36.0).contains(&(120.0 * hours("busy_gpu_hours"))), "{job}");
    near(&job["wasted_gpu_hours"], hours("busy_gpu_hours"));
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
        ("/api/v1/jobs?by=label", 400),
        ("/api/v1/jobs?sort=hosts", 400),
        ("/api/v1/jobs?running=perhaps", 400),
        ("/api/v1/jobs?running=true&start=2026-11-20T12:00:00Z&end=2026-11-20T13:00:00Z", 200),
    ] {
        assert_eq!(world.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn jobs_nobody_and_the_unobserved_together_are_the_time_and_energy_of_their_gpus_which_a_check_says() {
    let world = accounted().await;
    assert_eq!(world.ok("/api/v1/jobs").await["check"], Value::Null, "it was not asked for");
    let check = &world.ok("/api/v1/jobs?check=true").await["check"];
    assert_eq!((&check["gpus"], &check["gpus_without_sums"]), (&json!(4), &json!(0)));
    // Four GPUs from 15:01 to 16:00.
    near(&check["gpu_hours"], 4.0 * 59.0 / 60.0);
    near(&check["own_gpu_hours"], 4.0 * 59.0 / 60.0);
    for residual in ["residual_pct", "energy_residual_pct", "interpolated_pct"] {
        near(&check[residual], 0.0);
    }
    // A GPU that no agent samples, and one whose samples began before its agent did.
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 600.0)];
    let (elsewhere, early) = (gpu("GPU-9", "sim-node-09", 0, H100), gpu("GPU-2", "sim-node-02", 2, H100));
    let minutes = (0..60).map(|minute| (elsewhere.clone(), 60 * minute, busy));
    let before = (60..119).map(|minute| (early.clone(), 60 * minute, busy));
    world.append(rows(&minutes.chain(before).rev().collect::<Vec<_>>())).await;
    let path = "/api/v1/jobs?check=true&start=2026-11-20T14:00:00Z";
    let check = &world.ok(path).await["check"];
    assert_eq!((&check["gpus"], &check["gpus_without_sums"]), (&json!(4), &json!(1)));
    near(&check["own_gpu_hours"], (4.0 * 59.0 + 59.0) / 60.0);
    near(&check["residual_pct"], -20.0);
    let of_host = &world.ok(&format!("{path}&host=sim-node-01")).await["check"];
    assert_eq!((&of_host["gpus"], &of_host["gpus_without_sums"]), (&json!(1), &json!(0)));
    let cut = "/api/v1/jobs?check=true&start=2026-11-20T15:30:00Z";
    near(&world.ok(cut).await["check"]["interpolated_pct"], 100.0);
}

/// MIG instances of a card, by their profiles, as pods of a team hold them.
fn instances(card: &Identity, profiles: &[&str]) -> Vec<Identity> {
    let instance = |(number, profile): (usize, &&str)| {
        let part = pod_of(card, &format!("mig-{number}"));
        let part = part.with(IdentityColumn::Partition, &number.to_string()).unwrap();
        part.with(IdentityColumn::Model, &format!("{H100} MIG {profile}")).unwrap()
    };
    profiles.iter().enumerate().map(instance).collect()
}

#[tokio::test]
async fn a_check_counts_a_card_with_its_instances_once_and_energy_only_where_both_have_it() {
    let world = World::empty(|_, _| {}).await;
    let [part, full] =
        [("GPU-4", 0), ("GPU-5", 1)].map(|(name, index)| gpu(name, "sim-node-04", index, H100));
    let all = [instances(&part, &["3g.40gb", "2g.20gb", "1g.10gb"]), instances(&full, &["1g.10gb"; 7])];
    let all = all.concat();
    let power: &[(&str, f64)] = &[("power_w", 600.0)];
    let memory: &[(&str, f64)] = &[("memory_used_mb", 100.0)];
    let minutes = (0..60).rev().flat_map(|minute| {
        let cards = [(part.clone(), 60 * minute, power), (full.clone(), 60 * minute, power)];
        cards.into_iter().chain(all.iter().map(move |one| (one.clone(), 60 * minute, memory)))
    });
    let samples = rows(&minutes.collect::<Vec<_>>());
    let mut ledger = Ledger::default();
    ledger.add(&samples, &Shared(""));
    let told = ledger.finish().unwrap();
    world.append(samples).await;
    world.append(told).await;
    // A GPU of which the ledger saw no power.
    let dark = gpu("GPU-6", "sim-node-04", 2, H100);
    let of_dark =
        |values| rows(&(0..60).rev().map(|minute| (dark.clone(), 60 * minute, values)).collect::<Vec<_>>());
    let mut ledger = Ledger::default();
    ledger.add(&of_dark(memory), &Shared(""));
    world.append(ledger.finish().unwrap()).await;
    world.append(of_dark(power)).await;
    let check = &world.ok("/api/v1/jobs?check=true").await["check"];
    assert_eq!((&check["gpus"], &check["gpus_without_sums"]), (&json!(3), &json!(0)));
    near(&check["own_gpu_hours"], 3.0 * 59.0 / 60.0);
    near(&check["own_energy_kwh"], 2.0 * 0.6 * 59.0 / 60.0);
    for residual in ["residual_pct", "energy_residual_pct"] {
        assert!(check[residual].as_f64().unwrap().abs() < 1e-3, "{check}");
    }
}

fn holder<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["jobs"].as_array().unwrap().iter().find(|job| job["holder"] == name).unwrap()
}

/// Beside GPUs with an agent three without one, on a host of theirs: one changes hands, one nobody has and nobody saw for a while, and one is
/// the third of a job.
async fn accounted_and_by_rows() -> World {
    let world = accounted().await;
    let on_host = |name: &str, index: i32| gpu(name, "sim-node-07", index, H100);
    let of = |gpu: Identity, job: &str| gpu.with(IdentityColumn::Job, job).unwrap();
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 600.0)];
    let minutes = (0..60).rev().flat_map(|minute| {
        let job = if minute < 30 { "later" } else { "outside" };
        let held = [(of(on_host("GPU-7", 0), job), 60 * minute, busy)];
        let third = [(of(on_host("GPU-9", 2), "train-1"), 60 * minute, busy)];
        let is_seen = !(10..40).contains(&minute);
        let free = is_seen.then(|| (on_host("GPU-8", 1), 60 * minute, busy));
        held.into_iter().chain(third).chain(free)
    });
    world.append(rows(&minutes.collect::<Vec<_>>())).await;
    world
}

#[tokio::test]
async fn of_gpus_without_an_agent_the_same_is_made_from_their_rows_and_it_is_said() {
    let world = accounted_and_by_rows().await;
    let list = world.ok("/api/v1/jobs").await;
    let [outside, later, train] = ["job:outside", "job:later", "job:train-1"].map(|name| holder(&list, name));
    near(&outside["held_gpu_hours"], 30.0 / 60.0);
    near(&outside["busy_gpu_hours"], 15.0 / 60.0);
    near(&outside["wasted_gpu_hours"], 15.0 / 60.0);
    near(&outside["energy_kwh"], 0.3);
    near(&later["held_gpu_hours"], 29.0 / 60.0);
    assert_eq!((&outside["running"], &later["running"]), (&json!(false), &json!(true)));
    near(&train["held_gpu_hours"], (118.0 + 59.0) / 60.0);
    assert_eq!((&train["gpus"], &train["gpus_by_rows"]), (&json!(3), &json!(1)));
    assert_eq!((&outside["gpus_by_rows"], &list["gpus_by_rows"]), (&json!(1), &json!(3)));
    assert_eq!(holder(&list, "pod:team/a/")["gpus_by_rows"], Value::Null, "its agent made sums");
    near(&list["nobody"]["held_gpu_hours"], 2.0 * 28.0 / 60.0);
    near(&list["unobserved_gpu_hours"], 2.0 * 31.0 / 60.0);
    let whole = (118.0 + 59.0 + 59.0 + 59.0) / 60.0;
    near(&list["whole"]["held_gpu_hours"], whole);
    let energy = &world.ok("/api/v1/analysis/energy").await["whole"];
    near(&energy["gpu_hours"], whole + 2.0 * 28.0 / 60.0);
    let by_day = world.ok("/api/v1/jobs?by=day").await;
    assert_eq!((&by_day["total"], &by_day["jobs"][0]["group"]), (&json!(1), &json!("2026-11-20")));
    near(&by_day["jobs"][0]["held_gpu_hours"], whole);
    let check = &world.ok("/api/v1/jobs?check=true").await["check"];
    assert_eq!((&check["gpus"], &check["gpus_without_sums"]), (&json!(4), &json!(3)));
    let there = world.ok("/api/v1/jobs?host=sim-node-07").await;
    near(&holder(&there, "job:train-1")["held_gpu_hours"], 59.0 / 60.0);
    let one = world.ok("/api/v1/jobs/outside").await;
    assert_eq!((&one["gpus"][0]["gpu"], &one["job"]["gpus_by_rows"]), (&json!("GPU-7"), &json!(1)));
    near(&one["job"]["held_gpu_hours"], 30.0 / 60.0);
    assert_eq!(world.ok("/api/v1/jobs/later").await["job"]["running"], true);
}

#[tokio::test]
async fn a_mig_instance_without_an_agent_has_its_slices_of_its_card() {
    let world = World::empty(|_, _| {}).await;
    let card = gpu("GPU-4", "sim-node-04", 0, H100);
    let parts = instances(&card, &["3g.40gb", "2g.20gb", "1g.10gb"]);
    let power: &[(&str, f64)] = &[("power_w", 600.0)];
    let memory: &[(&str, f64)] = &[("memory_used_mb", 100.0)];
    let minutes = (0..60).rev().flat_map(|minute| {
        let of_parts = parts.iter().map(move |part| (part.clone(), 60 * minute, memory));
        std::iter::once((card.clone(), 60 * minute, power)).chain(of_parts)
    });
    world.append(rows(&minutes.collect::<Vec<_>>())).await;
    let list = world.ok("/api/v1/jobs?check=true").await;
    for (name, slices) in [("pod:team/mig-0/", 3.0), ("pod:team/mig-1/", 2.0), ("pod:team/mig-2/", 1.0)] {
        near(&holder(&list, name)["held_gpu_hours"], slices / 7.0 * 59.0 / 60.0);
        near(&holder(&list, name)["energy_kwh"], slices / 7.0 * 0.6 * 59.0 / 60.0);
    }
    near(&list["nobody"]["held_gpu_hours"], 59.0 / 60.0 / 7.0);
    near(&list["unobserved_gpu_hours"], 0.0);
    assert_eq!((&list["check"]["gpus"], &list["check"]["gpus_without_sums"]), (&json!(0), &json!(1)));
    let one = world.ok("/api/v1/jobs/pod%3Ateam%2Fmig-1%2F").await;
    near(&one["job"]["held_gpu_hours"], 2.0 / 7.0 * 59.0 / 60.0);
}

#[tokio::test]
async fn jobs_are_put_together_by_what_their_rows_know() {
    let world = accounted().await;
    for (by, groups) in [
        ("namespace", json!([null, "team"])),
        ("job", json!(["train-1", null])),
        ("pod", json!([null, "a", "b"])),
        ("node", json!(["sim-node-02", "sim-node-01"])),
        ("gpu", json!(["GPU-0", "GPU-1", "GPU-2"])),
        ("model", json!([H100])),
        ("day", json!(["2026-11-20"])),
    ] {
        let list = world.ok(&format!("/api/v1/jobs?by={by}")).await;
        let found: Vec<&Value> = list["jobs"].as_array().unwrap().iter().map(|job| &job["group"]).collect();
        assert_eq!(json!(found), groups, "{by}");
        let held = list["jobs"].as_array().unwrap().iter().map(|job| job["held_gpu_hours"].as_f64().unwrap());
        near(&list["whole"]["held_gpu_hours"], held.sum());
        near(&list["whole"]["held_gpu_hours"], (118.0 + 59.0) / 60.0);
        near(&list["nobody"]["held_gpu_hours"], 28.0 / 60.0);
    }
    // What is the same in all of a group stays known.
    let team = &world.ok("/api/v1/jobs?by=namespace&sort=-group").await["jobs"][0];
    assert_eq!(
        (&team["namespace"], &team["pod"], &team["holder"]),
        (&json!("team"), &Value::Null, &Value::Null)
    );
    let wasteful = world.ok("/api/v1/jobs?by=gpu&sort=-wasted_gpu_hours").await;
    assert_eq!(wasteful["jobs"][0]["group"], "GPU-1");
    let least = world.ok("/api/v1/jobs?sort=energy_kwh&limit=1").await;
    assert_eq!(least["jobs"][0]["holder"], "pod:team/a/");
}

#[tokio::test]
async fn prices_make_costs_and_carbon_of_hours_and_energy() {
    let prices = JobPrices { per_gpu_hour: Some(2.0), per_kwh: Some(0.5), carbon_g_per_kwh: Some(400.0) };
    let world = accounted_at(prices).await;
    let train = &world.ok("/api/v1/jobs").await["jobs"][0];
    near(&train["cost"], 2.0 * 118.0 / 60.0);
    near(&train["wasted_cost"], 2.0 * 88.5 / 60.0);
    let kwh = 0.72 * 59.0 / 60.0;
    near(&train["energy_cost"], 0.5 * kwh);
    near(&train["carbon_kg"], 0.4 * kwh);
}

#[tokio::test]
async fn one_job_has_its_gpus_by_host_with_what_it_used_of_each() {
    let world = accounted().await;
    let train = world.ok("/api/v1/jobs/train-1").await;
    assert_eq!(train, world.ok("/api/v1/jobs/job%3Atrain-1").await);
    assert_eq!((&train["job"]["holder"], &train["job"]["gpus"]), (&json!("job:train-1"), &json!(2)));
    assert_eq!((&train["job"]["running"], &train["interpolated"]), (&json!(true), &json!(false)));
    near(&train["job"]["held_gpu_hours"], 118.0 / 60.0);
    let [works, parks] = [0, 1].map(|at| &train["gpus"][at]);
    assert_eq!(
        (&works["gpu"], &works["hostname"], &works["model"]),
        (&json!("GPU-0"), &json!("sim-node-01"), &json!(H100))
    );
    assert_eq!((&works["index"], &works["memory_mb"]), (&json!(0), &Value::Null));
    near(&works["known_gpu_hours"], 59.0 / 60.0);
    let read = [("memory_total_mb", 81_559.0)];
    world.append(rows(&[(gpu("GPU-0", "sim-node-01", 0, H100), 1, &read)])).await;
    let again = world.ok("/api/v1/jobs/train-1").await;
    let [works_too, parks_too] = [0, 1].map(|at| &again["gpus"][at]["memory_mb"]);
    assert_eq!((works_too, parks_too), (&json!(81_559), &Value::Null));
    assert_eq!((&parks["gpu"], &parks["hostname"]), (&json!("GPU-1"), &json!("sim-node-02")));
    near(&works["wasted_gpu_hours"], 29.5 / 60.0);
    near(&parks["wasted_gpu_hours"], 59.0 / 60.0);
    assert_eq!((&works["power_max_w"], &parks["power_max_w"]), (&json!(600.0), &json!(120.0)));
    // A name with slashes is one part of the path.
    let pod = world.ok("/api/v1/jobs/pod%3Ateam%2Fb%2F").await;
    assert_eq!((&pod["job"]["pod"], &pod["gpus"][0]["gpu"]), (&json!("b"), &json!("GPU-2")));
    for (path, code) in [
        ("/api/v1/jobs/train-2", "unknown_job"),
        ("/api/v1/jobs/nobody", "unknown_job"),
        ("/api/v1/jobs/train-1?cluster=east", "unknown_job"),
        ("/api/v1/jobs/train-1?start=2026-11-20T12:00:00Z&end=2026-11-20T13:00:00Z", "unknown_job"),
        ("/api/v1/jobs/train-1?by=gpu", "bad_parameter"),
    ] {
        assert_eq!(world.get(path).await.json()["code"], code, "{path}");
    }
}

/// A GPU that changes hands, as an agent tells it on the way.
#[tokio::test]
async fn a_job_whose_gpu_somebody_else_has_now_does_not_run_any_more() {
    let world = accounted().await;
    let of = |job: &str, cluster: &str| {
        let gpu = gpu(&format!("GPU-{cluster}"), "sim-node-03", 0, H100).with(IdentityColumn::Job, job);
        gpu.and_then(|gpu| gpu.with(IdentityColumn::Cluster, cluster)).unwrap()
    };
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0), ("power_w", 600.0)];
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for ago_s in (0..180).rev().map(|row| 20 * row) {
        let job = if ago_s < 180 { "new" } else { "old" };
        let samples = [(of(job, "east"), ago_s, busy), (of("old", "west"), ago_s, busy)];
        ledger.add(&rows(&samples), &Shared(""));
        told.extend(ledger.due());
    }
    told.extend(ledger.finish());
    world.store.append(told).await.unwrap();
    let list = world.ok("/api/v1/jobs?sort=group").await;
    let running: Vec<Value> = list["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| json!([job["holder"], job["cluster"], job["running"]]))
        .collect();
    assert!(running.contains(&json!(["job:old", "east", false])), "{running:?}");
    assert!(running.contains(&json!(["job:old", "west", true])), "{running:?}");
    assert!(running.contains(&json!(["job:new", "east", true])), "{running:?}");
    let now = world.ok("/api/v1/jobs?running=true").await;
    assert_eq!(now["total"].as_u64().unwrap() + 1, list["total"].as_u64().unwrap());
    let past = world.ok("/api/v1/jobs?start=2026-11-20T15:00:00Z&end=2026-11-20T15:30:00Z").await;
    assert_eq!(past["jobs"][0]["running"], Value::Null);
    // Of two clusters with a job of one name the one that is meant must be said.
    let unsaid = world.get("/api/v1/jobs/old").await;
    let message = "cluster is missing; give one of the clusters with a job or pod of this name: east, west";
    assert_eq!((unsaid.status, &unsaid.json()["message"]), (400, &json!(message)));
    let east = world.ok("/api/v1/jobs/old?cluster=east").await;
    assert_eq!(east["job"]["running"], false, "the rows of others say so");
    let west = world.ok("/api/v1/jobs/old?cluster=west").await;
    assert_eq!(west["job"]["running"], true);
    assert_eq!((&west["job"]["cluster"], &west["gpus"][0]["gpu"]), (&json!("west"), &json!("GPU-west")));
}
