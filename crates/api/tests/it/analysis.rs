//! What is wrong with the fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gpuvitals_core::clock::Clock;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use serde_json::{Value, json};

use crate::world::{Row, World, fleet, gpu, now_ns, rows};

pub(crate) const H100: &str = "NVIDIA H100 80GB HBM3";

/// A gateway that judges its fleet for every request.
pub(crate) async fn judging() -> World {
    World::empty(|config, _| config.limits.judge_every = Duration::ZERO).await
}

pub(crate) fn ids(list: &Value) -> Vec<&str> {
    list["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn conditions_and_silence_are_findings_the_worst_first() {
    let world = judging().await;
    world.append(fleet()).await;
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(ids(&list), ["node_silent:sim-node-02", "xid:GPU-c"]);
    assert_eq!((&list["total"], &list["judged_at"]), (&json!(2), &json!("2026-11-20T16:00:00Z")));
    let xid = &list["findings"][1];
    assert_eq!(
        (&xid["severity"], &xid["sentence"]),
        (&json!("critical"), &json!("XID 79: the GPU has fallen off the bus"))
    );
    assert_eq!(xid["subject"], json!({"type": "gpu", "id": "GPU-c", "name": "sim-node-01 / GPU 2"}));
    assert_eq!(
        xid["evidence"],
        json!([{"quantity": "xid_last", "unit": "", "value": 79.0, "compared_with": null,
                "text": "XID 79: the GPU has fallen off the bus"}])
    );
    assert_eq!((&xid["reach"]["hostname"], &xid["simulated"]), (&json!("sim-node-01"), &json!(true)));
    assert!(xid["next_step"].as_str().unwrap().starts_with("Drain the node and reboot it"));
    assert_eq!(list["findings"][0]["since"], "2026-11-20T15:00:00Z");
}

#[tokio::test]
async fn a_host_of_a_cluster_is_asked_for_by_its_name() {
    let world = judging().await;
    let of = |name, node| gpu(name, node, 0, H100).with(IdentityColumn::Cluster, "prod").unwrap();
    let values: &[(&str, f64)] = &[("utilization_pct", 50.0)];
    world.append(rows(&[(of("GPU-a", "n1"), 2, values), (of("GPU-b", "n2"), 3600, values)])).await;
    let list = world.ok("/api/v1/analysis/findings?host=n2").await;
    assert_eq!(ids(&list), ["node_silent:prod/n2"]);
}

#[tokio::test]
async fn findings_are_filtered_and_paged_and_wrong_names_are_refused() {
    let world = judging().await;
    world.append(fleet()).await;
    let table: &[(&str, &[&str], usize)] = &[
        ("severity=critical", &["node_silent:sim-node-02", "xid:GPU-c"], 2),
        ("severity=notice", &[], 0),
        ("kind=xid", &["xid:GPU-c"], 1),
        ("host=sim-node-01", &["xid:GPU-c"], 1),
        ("host=sim-node-02", &["node_silent:sim-node-02"], 1),
        ("namespace=research", &[], 0),
        ("gpus=GPU-c", &["xid:GPU-c"], 1),
        ("limit=1", &["node_silent:sim-node-02"], 2),
        ("limit=1&offset=1", &["xid:GPU-c"], 2),
    ];
    for (query, expected, total) in table {
        let list = world.ok(&format!("/api/v1/analysis/findings?{query}")).await;
        assert_eq!(ids(&list), *expected, "{query}");
        assert_eq!(list["total"], json!(total), "{query}");
    }
    for query in ["severity=bad", "kind=straggler,bad", "limit=0", "node=a"] {
        let answer = world.get(&format!("/api/v1/analysis/findings?{query}")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_parameter")), "{query}");
    }
}

/// Eight GPUs of one job, of which the last runs slowly; a row each half minute.
pub(crate) async fn a_job_with_a_straggler(world: &World) {
    let member = |n: i32| {
        let gpu = gpu(&format!("GPU-{n}"), "sim-node-01", n, H100);
        gpu.with(IdentityColumn::Namespace, "research").unwrap().with(IdentityColumn::Job, "train-7").unwrap()
    };
    let gpus: Vec<Identity> = (0..8).map(member).collect();
    let fast: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 1980.0), ("power_w", 650.0)];
    let slow: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 1530.0), ("power_w", 500.0)];
    let all: Vec<Row<'_>> = (-10..30)
        .flat_map(|half_minute| {
            let values = |n: usize| if n == 7 { slow } else { fast };
            gpus.iter().enumerate().map(move |(n, gpu)| (gpu.clone(), 30 * half_minute, values(n)))
        })
        .collect();
    world.append(rows(&all)).await;
}

#[tokio::test]
async fn a_straggler_is_found_after_it_held_for_two_minutes() {
    let world = judging().await;
    a_job_with_a_straggler(&world).await;
    assert!(ids(&world.ok("/api/v1/analysis/findings").await).is_empty(), "it is new");
    world.set_time(now_ns() + 150 * SECOND_NS);
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(ids(&list), ["straggler:GPU-7"]);
    let straggler = &list["findings"][0];
    assert_eq!(straggler["since"], "2026-11-20T15:45:30Z", "the first row that shows it, not the first look");
    assert_eq!(straggler["since_at_least"], false);
    assert_eq!(straggler["reach"]["concerned_gpus"], 8);
    assert_eq!(straggler["reach"]["job"], "train-7");
    let compared = json!({"value": 1980.0, "origin": "median of the job"});
    assert_eq!(straggler["evidence"][0]["compared_with"], compared);

    let jobs = world.ok("/api/v1/analysis/stragglers").await;
    let job = &jobs["jobs"][0];
    assert_eq!((&job["job"], &jobs["total"]), (&json!("/research/train-7"), &json!(1)));
    assert_eq!(job["clock_mhz"]["median"], 1980.0);
    let slowest = &job["gpus"][0];
    assert_eq!((&slowest["gpu"], &slowest["straggler"]), (&json!("GPU-7"), &json!(true)));
    assert_eq!(job["gpus"][1]["straggler"], false);
    // 450 MHz and 150 W below the medians, of each of which one hundredth is the smallest deviation.
    let distance = |of: &str| slowest[of].as_f64().unwrap();
    assert!((distance("clock_distance") + 22.73).abs() < 0.01, "{slowest}");
    assert!((distance("power_distance") + 23.08).abs() < 0.01, "{slowest}");
    assert!(distance("utilization_distance").abs() < 0.01, "{slowest}");

    let metrics = world.get("/metrics").await.text().to_owned();
    assert!(metrics.contains("gpuvitals_findings{kind=\"straggler\",severity=\"warning\"} 1\n"), "{metrics}");
    assert!(metrics.contains("gpuvitals_findings{kind=\"xid\",severity=\"critical\"} 0\n"), "{metrics}");
    let labels = "uuid=\"GPU-7\",node=\"sim-node-01\",namespace=\"research\",job=\"train-7\"";
    let straggler = format!("gpuvitals_straggler_clock_ratio{{{labels}}} 0.77");
    assert!(metrics.contains(&straggler), "{metrics}");
}

#[tokio::test]
async fn a_straggler_began_with_its_first_slow_row_within_a_minute() {
    let world = judging().await;
    let values = |clock: f64| [("utilization_pct", 99.0), ("gpu_clock_mhz", clock), ("power_w", 650.0)];
    let (fast, slow) = (values(1980.0), values(900.0));
    let gpus: Vec<Identity> = (0..8)
        .map(|n| {
            let gpu = gpu(&format!("GPU-{n}"), "sim-node-01", n, H100);
            gpu.with(IdentityColumn::Job, "train-8").unwrap()
        })
        .collect();
    let all: Vec<Row<'_>> = (-20..80_i64)
        .flat_map(|quarter| {
            let (fast, slow) = (&fast[..], &slow[..]);
            let values = move |n: usize| if n == 7 && quarter <= 37 { slow } else { fast };
            gpus.iter().enumerate().map(move |(n, gpu)| (gpu.clone(), 15 * quarter, values(n)))
        })
        .collect();
    world.append(rows(&all)).await;
    world.ok("/api/v1/analysis/findings").await;
    world.set_time(now_ns() + 150 * SECOND_NS);
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(ids(&list), ["straggler:GPU-7"]);
    assert_eq!(list["findings"][0]["since"], "2026-11-20T15:50:45Z");
}

#[tokio::test]
async fn a_host_whose_rows_go_on_ahead_of_the_clock_has_a_wrong_one() {
    let world = judging().await;
    for second in [0, 15, 30, 75] {
        world.set_time(now_ns() + second * SECOND_NS);
        world.append(rows(&[(gpu("GPU-a", "n1", 0, H100), -3_000 - second, &[("power_w", 1.0)])])).await;
        let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
        assert_eq!(ids(&list).len(), usize::from(second == 75), "{second} s: {list}");
    }
    let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
    assert_eq!(ids(&list), ["clock_wrong:n1"]);
    let sentence = list["findings"][0]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("its rows come with a time 50 min ahead"), "{sentence}");
}

#[tokio::test]
async fn rows_that_come_while_a_busy_machine_judges_are_of_no_wrong_clock() {
    // Ten seconds pass from one look at the clock to the next.
    let looked = Arc::new(AtomicI64::new(now_ns()));
    let looks = Arc::clone(&looked);
    let clock = Clock::new(move || looks.fetch_add(10 * SECOND_NS, Ordering::Relaxed));
    let world = World::empty(|config, _| {
        config.limits.judge_every = Duration::ZERO;
        config.clock = clock;
    })
    .await;
    for _ in 0..12 {
        let ahead_s = (looked.load(Ordering::Relaxed) - now_ns()) / SECOND_NS + 8;
        world.append(rows(&[(gpu("GPU-a", "n1", 0, H100), -ahead_s, &[("power_w", 1.0)])])).await;
        let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
        assert!(ids(&list).is_empty(), "{list}");
    }
}

#[tokio::test]
async fn a_row_far_ahead_hides_no_clock_that_is_less_so() {
    let world = judging().await;
    world.append(rows(&[(gpu("GPU-a", "n1", 0, H100), -3_000, &[("power_w", 1.0)])])).await;
    for second in (0..=150).step_by(15) {
        world.set_time(now_ns() + second * SECOND_NS);
        world.append(rows(&[(gpu("GPU-a", "n1", 0, H100), -100 - second, &[("power_w", 1.0)])])).await;
        world.append(rows(&[(gpu("GPU-b", "n2", 0, H100), -second, &[("power_w", 1.0)])])).await;
        let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
        assert_eq!(ids(&list).len(), usize::from(second >= 75), "{second} s: {list}");
    }
    let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
    assert_eq!(ids(&list), ["clock_wrong:n1"]);
    let sentence = list["findings"][0]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("its rows come with a time 100 s ahead"), "{sentence}");
    // Set right: what came before stays ahead, and nothing is added.
    for second in (165..=600).step_by(15) {
        world.set_time(now_ns() + second * SECOND_NS);
        world.append(rows(&[(gpu("GPU-a", "n1", 0, H100), -second, &[("power_w", 1.0)])])).await;
        world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
    }
    let list = world.ok("/api/v1/analysis/findings?kind=clock_wrong").await;
    assert!(ids(&list).is_empty(), "{list}");
}

#[tokio::test]
async fn a_slow_gpu_is_explained_by_its_clock_beside_its_job() {
    let world = judging().await;
    a_job_with_a_straggler(&world).await;
    let answer = world.ok("/api/v1/gpus/sim-node-01:gpu7/explain").await;
    assert_eq!(answer["verdict"], "under load it ran at 1530 MHz, the median of its peers is 1980 MHz");
    assert_eq!(answer["peers"], json!({"basis": "job", "name": "/research/train-7", "count": 7}));
    assert_eq!(answer["causes"][0]["id"], "clock");
    assert_eq!(answer["causes"][0]["evidence"][0]["compared_with"]["value"], 1980.0);
    assert_eq!(
        (&answer["start"], &answer["figures"]["minutes"]),
        (&json!("2026-11-20T15:50:00Z"), &json!(10))
    );
    let sound =
        world.ok("/api/v1/gpus/GPU-0/explain?start=2026-11-20T15:50:00Z&end=2026-11-20T15:59:00Z").await;
    assert_eq!(
        (&sound["verdict"], &sound["causes"]),
        (&json!("nothing unusual is known about this time"), &json!([]))
    );
    for (query, code) in [
        ("GPU-0/explain?start=2026-11-18T15:50:00Z&end=2026-11-20T15:50:00Z", "bad_parameter"),
        ("GPU-0/explain?start=2026-11-20T16:00:00Z&end=2026-11-20T15:00:00Z", "bad_parameter"),
        ("GPU-none/explain", "unknown_gpu"),
    ] {
        assert_eq!(world.get(&format!("/api/v1/gpus/{query}")).await.json()["code"], code, "{query}");
    }
}

#[tokio::test]
async fn a_gpu_that_is_busy_at_low_power_is_compared_with_its_model_where_no_limit_is_known() {
    let world = judging().await;
    let [low, high] = [118.0, 689.0].map(|watts| [("utilization_pct", 100.0), ("power_w", watts)]);
    let both = |n: i64| {
        [
            (gpu("GPU-low", "n1", 1, H100), 15 * n, low.as_slice()),
            (gpu("GPU-high", "n1", 0, H100), 15 * n, high.as_slice()),
        ]
    };
    let all: Vec<Row<'_>> = (0..40).flat_map(both).collect();
    world.append(rows(&all)).await;
    let answer = world.ok("/api/v1/gpus/GPU-low/explain").await;
    assert_eq!(answer["causes"][0]["id"], "low_power", "{answer}");
    let beside = &answer["causes"][0]["evidence"][0]["compared_with"];
    assert_eq!(*beside, json!({"value": 689.0, "origin": "a GPU of its model"}));
    assert!(answer["verdict"].as_str().unwrap().contains("while a GPU of its model draws 689 W"), "{answer}");
    assert_eq!(world.ok("/api/v1/gpus/GPU-high/explain").await["causes"], json!([]));
}

#[tokio::test]
async fn the_figures_of_an_explanation_have_no_digits_that_nobody_has_read() {
    let world = judging().await;
    let who = gpu("GPU-x", "n1", 0, H100);
    let values: &[(&str, f64)] = &[("utilization_pct", 71.1), ("power_w", 100.3), ("temperature_c", 60.4)];
    let all: Vec<Row<'_>> = (0..60).map(|n| (who.clone(), 5 + 10 * n, values)).collect();
    world.append(rows(&all)).await;
    let range = "start=2026-11-20T15:51:00Z&end=2026-11-20T15:59:00Z";
    let figures = world.ok(&format!("/api/v1/gpus/GPU-x/explain?{range}")).await["figures"].clone();
    let found = ["utilization_pct", "power_w", "temperature_max_c"].map(|name| figures[name].clone());
    assert_eq!(found, [json!(71.1), json!(100.3), json!(60.4)], "{figures}");
}

#[tokio::test]
async fn an_xid_in_the_values_is_a_cause_and_a_whole_minute_at_the_end_is_not_empty() {
    let world = judging().await;
    let who = gpu("GPU-x", "n1", 0, H100);
    let rows_of = |from: i64, xid: f64| -> Vec<(i64, [(&'static str, f64); 3])> {
        let at = |n: i64| (from - 10 * n, [("utilization_pct", 99.0), ("power_w", 600.0), ("xid_last", xid)]);
        (0..60).map(at).collect()
    };
    let all: Vec<_> = rows_of(1_205, 0.0).into_iter().chain(rows_of(605, 79.0)).collect();
    let all: Vec<Row<'_>> = all.iter().map(|(at, values)| (who.clone(), *at, values.as_slice())).collect();
    world.append(rows(&all)).await;
    let ask = |range: &'static str| world.ok(range);
    let answer = ask("/api/v1/gpus/GPU-x/explain?start=2026-11-20T15:45:00Z&end=2026-11-20T15:55:00Z").await;
    assert_eq!(answer["causes"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(
        answer["verdict"],
        "it had events that interrupt work: XID 79 (the GPU has fallen off the bus)"
    );
    let event = json!({"timestamp": "2026-11-20T15:49:55Z", "kind": "xid", "detail": "XID 79 (the GPU has fallen off the bus)"});
    assert_eq!((&answer["events"], &answer["figures"]["minutes"]), (&json!([event]), &json!(10)));
    let later = ask("/api/v1/gpus/GPU-x/explain?start=2026-11-20T15:52:00Z&end=2026-11-20T15:58:00Z").await;
    assert_eq!(
        later["verdict"],
        "XID 79 (the GPU has fallen off the bus) came before this time, and nothing has cleared it"
    );
    let before = ask("/api/v1/gpus/GPU-x/explain?start=2026-11-20T15:41:00Z&end=2026-11-20T15:49:00Z").await;
    assert_eq!((&before["causes"], &before["events"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn hints_say_which_gpus_are_free_busy_or_unhealthy() {
    let world = judging().await;
    world.append(fleet()).await;
    let hints = world.ok("/api/v1/schedule/hints").await;
    let node = &hints["nodes"][0];
    assert_eq!((&node["hostname"], &node["whole"]), (&json!("sim-node-01"), &json!(false)));
    assert_eq!((&node["free"], &node["busy"]), (&json!(["GPU-b"]), &json!(["GPU-a"])));
    assert_eq!(
        node["unhealthy"],
        json!([{"gpu": "GPU-c", "reasons": ["xid: XID 79: the GPU has fallen off the bus"]}])
    );
    assert_eq!(hints["nodes"][1]["unhealthy"][0]["reasons"], json!(["it reports nothing any more"]));
    let totals = json!(
        {"free": 1, "busy": 1, "memory_in_use": 0, "unhealthy": 2, "whole_nodes": 0, "fragmentation": 1.0}
    );
    assert_eq!((&hints["totals"], &hints["total"]), (&totals, &json!(2)));
    assert_eq!(node["memory_in_use"], json!([]));
    let some = world.ok("/api/v1/schedule/hints?min_free=1&model=NVIDIA%20H100%2080GB%20HBM3").await;
    assert_eq!(some["total"], 1);
    assert_eq!(world.get("/api/v1/schedule/hints?min_free=x").await.status, 400);
}

#[tokio::test]
async fn a_gpu_whose_memory_is_in_use_is_not_free_and_the_hint_says_how_much() {
    let world = judging().await;
    let idle = |used: f64| vec![("utilization_pct", 0.0), ("memory_used_mb", used)];
    // As in the capture of a real fleet: idle, with a console's memory, and with a model that waits for requests.
    let mut all: Vec<(Identity, Vec<(&str, f64)>)> = (0..)
        .zip([4.0, 741.0, 72_099.0, 4_851.0])
        .map(|(n, used)| (gpu(&format!("GPU-{n}"), "n1", n, H100), idle(used)))
        .collect();
    all[2].1.push(("memory_total_mb", 81_559.0));
    // An idle process holds it, whose job nobody knows.
    all[2].1.push(("process_count", 1.0));
    let all: Vec<Row<'_>> = all.iter().map(|(gpu, values)| (gpu.clone(), 1, values.as_slice())).collect();
    world.append(rows(&all)).await;
    let hints = world.ok("/api/v1/schedule/hints").await;
    let node = &hints["nodes"][0];
    assert_eq!(node["free"], json!(["GPU-0", "GPU-1"]));
    assert_eq!((&node["busy"], &node["whole"]), (&json!(["GPU-2", "GPU-3"]), &json!(false)));
    assert_eq!(
        node["memory_in_use"],
        json!([
            {"gpu": "GPU-2", "used_mb": 72_099.0, "total_mb": 81_559.0},
            {"gpu": "GPU-3", "used_mb": 4_851.0, "total_mb": null},
        ])
    );
    assert_eq!(hints["totals"]["memory_in_use"], 2);
}

#[tokio::test]
async fn memory_in_use_is_known_by_what_is_free_of_it_or_by_its_share_too() {
    let world = judging().await;
    let idle: [(&str, &[(&str, f64)]); 5] = [
        ("GPU-0", &[("memory_free_mb", 6_559.0), ("memory_total_mb", 81_559.0)]),
        ("GPU-1", &[("memory_used_pct", 50.0), ("memory_total_mb", 81_560.0)]),
        ("GPU-2", &[("memory_used_pct", 93.0)]),
        ("GPU-3", &[("memory_free_mb", 80_900.0), ("memory_total_mb", 81_559.0)]),
        ("GPU-4", &[("memory_used_pct", 1.0)]),
    ];
    let all: Vec<Row<'_>> =
        (0..).zip(idle).map(|(n, (name, values))| (gpu(name, "n1", n, H100), 1, values)).collect();
    world.append(rows(&all)).await;
    let hints = world.ok("/api/v1/schedule/hints").await;
    let node = &hints["nodes"][0];
    assert_eq!(
        (&node["free"], &node["busy"]),
        (&json!(["GPU-3", "GPU-4"]), &json!(["GPU-0", "GPU-1", "GPU-2"]))
    );
    assert_eq!(
        node["memory_in_use"],
        json!([
            {"gpu": "GPU-0", "used_mb": 75_000.0, "total_mb": 81_559.0},
            {"gpu": "GPU-1", "used_mb": 40_780.0, "total_mb": 81_560.0},
        ])
    );
}

#[tokio::test]
async fn work_goes_to_the_instances_of_a_card_unless_the_card_is_unhealthy() {
    let world = judging().await;
    let instance = |card: &str, index: i32, partition: &str| {
        gpu(card, "n1", index, H100).with(IdentityColumn::Partition, partition).unwrap()
    };
    let works: &[(&str, f64)] = &[("graphics_engine_active_ratio", 0.7), ("memory_used_mb", 12.0)];
    let rests: &[(&str, f64)] = &[("graphics_engine_active_ratio", 0.0), ("memory_used_mb", 12.0)];
    world
        .append(rows(&[
            (gpu("GPU-0", "n1", 0, H100), 1, &[("power_w", 90.0)]),
            (instance("GPU-0", 0, "3"), 1, works),
            (instance("GPU-0", 0, "5"), 1, rests),
            (gpu("GPU-1", "n1", 1, H100), 1, &[("power_w", 90.0), ("xid_last", 79.0)]),
            (instance("GPU-1", 1, "3"), 1, rests),
            // Its partitions share its memory.
            (gpu("GPU-2", "n1", 2, H100), 1, &[("memory_used_mb", 72_099.0)]),
            (instance("GPU-2", 2, "cpx0"), 1, &[("utilization_pct", 0.0)]),
        ]))
        .await;
    let hints = world.ok("/api/v1/schedule/hints").await;
    let node = &hints["nodes"][0];
    assert_eq!(
        (&node["free"], &node["busy"]),
        (&json!(["GPU-0:5"]), &json!(["GPU-0:3", "GPU-2", "GPU-2:cpx0"]))
    );
    assert_eq!(
        node["unhealthy"],
        json!([{"gpu": "GPU-1:3", "reasons": ["xid: XID 79: the GPU has fallen off the bus"]}])
    );
}

#[tokio::test]
async fn energy_and_idle_hours_belong_to_their_holders() {
    let world = judging().await;
    let held = |name: &str, job: &str| {
        let gpu = gpu(name, "sim-node-01", 0, H100);
        gpu.with(IdentityColumn::Namespace, "research").unwrap().with(IdentityColumn::Job, job).unwrap()
    };
    let (works, idles, free) =
        (held("GPU-0", "train-1"), held("GPU-1", "parked-2"), gpu("GPU-2", "sim-node-01", 2, H100));
    let all: Vec<Row<'_>> = (1..=60)
        .flat_map(|minute| {
            let busy: &[(&str, f64)] = &[("utilization_pct", 99.0), ("power_w", 600.0)];
            let idle: &[(&str, f64)] = &[("utilization_pct", 0.0), ("power_w", 120.0)];
            [
                (works.clone(), 60 * minute, busy),
                (idles.clone(), 60 * minute, idle),
                (free.clone(), 60 * minute, idle),
            ]
        })
        .collect();
    world.append(rows(&all)).await;
    let energy = world.ok("/api/v1/analysis/energy?by=job").await;
    let group = &energy["groups"][0];
    assert_eq!(
        (&group["group"], &group["source"], &group["gpus"]),
        (&json!("train-1"), &json!("integrated"), &json!(1))
    );
    let near = |value: &Value, expected: f64| {
        // Sixty rows a minute apart are 59 minutes.
        let expected = expected * 59.0 / 60.0;
        assert!((value.as_f64().unwrap() - expected).abs() < 1e-9, "{value} {expected}");
    };
    near(&group["energy_kwh"], 0.6);
    near(&group["busy_gpu_hours"], 0.99);
    near(&energy["whole"]["energy_kwh"], 0.84);
    near(&energy["whole"]["gpu_hours"], 3.0);
    assert_eq!(energy["total"], 3, "one group has no job");
    let idle = world.ok("/api/v1/analysis/idle?by=job&price=2.5").await;
    assert_eq!((&idle["groups"][0]["group"], &idle["total"]), (&json!("parked-2"), &json!(1)));
    near(&idle["groups"][0]["idle_gpu_hours"], 1.0);
    near(&idle["groups"][0]["idle_cost"], 2.5);
    near(&idle["groups"][0]["idle_energy_kwh"], 0.12);
    near(&idle["whole"]["held_gpu_hours"], 2.0);
    assert_eq!(world.ok("/api/v1/analysis/idle").await["groups"][0]["idle_cost"], Value::Null);

    // One row is no duration, and costs nothing.
    let at = world.ok("/api/v1/analysis/energy?by=gpu").await["end"].as_str().unwrap().to_owned();
    let instant = format!("start={at}&end={at}");
    let energy = world.ok(&format!("/api/v1/analysis/energy?by=gpu&{instant}")).await;
    for field in ["energy_kwh", "counted_kwh", "gpu_hours", "busy_gpu_hours", "source"] {
        assert_eq!(energy["whole"][field], Value::Null, "{field} of {energy}");
    }
    let idle = world.ok(&format!("/api/v1/analysis/idle?price=2&{instant}")).await;
    assert_eq!((&idle["whole"]["held_gpu_hours"], &idle["whole"]["idle_cost"]), (&Value::Null, &Value::Null));
    for query in ["energy?by=model", "idle?price=-1", "energy?start=2026-11-21T00:00:00Z"] {
        let answer = world.get(&format!("/api/v1/analysis/{query}")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_parameter")), "{query}");
    }
}

#[tokio::test]
async fn energy_and_idle_hours_are_of_the_gpus_and_hosts_that_are_asked_for() {
    let world = judging().await;
    let held = |name: &str, node: &str| {
        gpu(name, node, 0, H100).with(IdentityColumn::Namespace, "research").unwrap()
    };
    let gpus = [held("GPU-0", "n1"), held("GPU-1", "n1"), held("GPU-2", "n2"), held("GPU-3", "n3")];
    let idle: &[(&str, f64)] = &[("utilization_pct", 0.0), ("power_w", 360.0)];
    let of_minute = |minute: i64| gpus.iter().map(move |gpu| (gpu.clone(), 60 * minute, idle));
    world.append(rows(&(1..=11).flat_map(of_minute).collect::<Vec<_>>())).await;
    let table: &[(&str, &[&str])] = &[
        ("", &["GPU-0", "GPU-1", "GPU-2", "GPU-3"]),
        ("&gpus=GPU-1,GPU-2", &["GPU-1", "GPU-2"]),
        ("&gpus=n3:gpu0", &["GPU-3"]),
        ("&host=n1", &["GPU-0", "GPU-1"]),
        ("&host=n1,n3", &["GPU-0", "GPU-1", "GPU-3"]),
        ("&gpus=GPU-1,GPU-2&host=n1", &["GPU-1"]),
        ("&gpus=GPU-2&host=n1", &[]),
    ];
    for (query, expected) in table {
        for path in ["energy", "idle"] {
            let answer = world.ok(&format!("/api/v1/analysis/{path}?by=gpu{query}")).await;
            let groups = answer["groups"].as_array().unwrap().iter();
            let mut found: Vec<&str> = groups.map(|group| group["group"].as_str().unwrap()).collect();
            found.sort_unstable();
            assert_eq!(
                (&found[..], &answer["whole"]["gpus"]),
                (*expected, &json!(expected.len())),
                "{path} {query}"
            );
            // Ten minutes of 360 W each.
            let energy = if path == "energy" { "energy_kwh" } else { "idle_energy_kwh" };
            match answer["whole"][energy].as_f64() {
                Some(kwh) => {
                    let wanted: f64 = expected.iter().map(|_| 0.06).sum();
                    assert!((kwh - wanted).abs() < 1e-9, "{path} {query}: {kwh}");
                }
                None => assert_eq!(expected.len(), 0, "{path} {query}"),
            }
        }
    }
}

#[tokio::test]
async fn without_a_utilisation_work_is_not_known_and_without_a_holder_nothing_was_held() {
    let world = World::empty(|_, _| {}).await;
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-dark").unwrap());
    let last_ns = now_ns();
    for second in 0..60 {
        let row = builder.row(last_ns - second * SECOND_NS, identity);
        builder.set(row, MetricId::of("power_w"), gpuvitals_core::batch::Value::Float(100.0)).unwrap();
    }
    world.append(builder.finish(Origin { node: Arc::from("n"), started_ns: 1 }, 1).unwrap()).await;
    let whole = world.ok("/api/v1/analysis/energy").await["whole"].clone();
    assert!((whole["gpu_hours"].as_f64().unwrap() - 59.0 / 3_600.0).abs() < 1e-9, "{whole}");
    assert_eq!((&whole["busy_gpu_hours"], &whole["throttled_gpu_hours"]), (&Value::Null, &Value::Null));
    let whole = world.ok("/api/v1/analysis/idle?price=2").await["whole"].clone();
    for field in ["held_gpu_hours", "idle_gpu_hours", "idle_cost"] {
        assert_eq!(whole[field], 0.0, "{field}");
    }
}

/// Busy at 60 °C, once a minute of the last day (`of_minutes` tells which), and under another pod each `hold` minutes.
fn day(gpus: i32, hold: i64, of_minutes: impl Fn(i64) -> Option<f64>) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for number in 0..gpus {
        for minute in 0..1_440 {
            let Some(busy) = of_minutes(minute) else { continue };
            let pod = format!("pod-{}", minute / hold);
            let identity = gpu(&format!("GPU-{number:03}"), &format!("n{}", number / 8), number % 8, H100);
            let identity = builder.intern(&identity.with(IdentityColumn::Pod, &pod).unwrap());
            let row = builder.row(now_ns() - (1_440 - minute) * 60 * SECOND_NS, identity);
            let mut set = |column, value| {
                builder.set(row, MetricId::of(column), gpuvitals_core::batch::Value::Float(value))
            };
            set("utilization_pct", busy).unwrap();
            set("temperature_c", 60.0).unwrap();
        }
    }
    builder.finish(Origin { node: Arc::from("n"), started_ns: 1 }, 1).unwrap()
}

#[tokio::test]
async fn a_day_of_many_gpus_and_of_one_that_often_changes_hands_is_explained() {
    let world = World::empty(|_, _| {}).await;
    world.append(day(70, 1_440, |minute| (minute % 60 == 0 || minute > 1_430).then_some(90.0))).await;
    let answer = world.ok("/api/v1/gpus/GPU-000/explain?start=2026-11-19T16:00:00Z").await;
    assert_eq!(answer["peers"]["count"], 63, "{answer}");
    let world = World::empty(|_, _| {}).await;
    world.append(day(1, 10, |minute| (minute % 5 == 0).then_some(90.0))).await;
    let answer = world.ok("/api/v1/gpus/GPU-000/explain?start=2026-11-19T16:00:00Z").await;
    assert_eq!(answer["figures"]["minutes"], 288, "{answer}");
}

#[tokio::test]
async fn many_idle_gpus_that_often_changed_hands_are_judged() {
    let idle_from = 1_440 - 45;
    let busy = |minute| {
        (minute % 4 == 0 || minute >= idle_from).then_some(if minute < idle_from { 90.0 } else { 0.0 })
    };
    let world =
        World::with(vec![day(40, 32, busy)], |config, _| config.limits.judge_every = Duration::ZERO).await;
    let list = world.ok("/api/v1/analysis/findings?kind=idle_held&limit=100").await;
    let concerned = &list["findings"][0]["reach"]["concerned_gpus"];
    assert_eq!((&list["total"], concerned), (&json!(1), &json!(40)), "{list}");
}
