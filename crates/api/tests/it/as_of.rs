//! The fleet as of an instant of the past.

use std::time::Duration;

use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, IdentityColumn};
use serde_json::{Value, json};

use crate::analysis::{H100, a_job_with_a_straggler, ids, judging};
use crate::world::{Row, World, gpu, now_ns, rows};

/// A job with a straggler until 16:05, free GPUs that idle from then to 16:30, and a GPU that came at 16:10. It is 16:30.
async fn an_hour_later() -> World {
    let world = judging().await;
    a_job_with_a_straggler(&world).await;
    let idle: &[(&str, f64)] = &[("utilization_pct", 0.0), ("gpu_clock_mhz", 300.0), ("power_w", 70.0)];
    let gpus: Vec<Identity> = (0..9).map(|n| gpu(&format!("GPU-{n}"), "sim-node-01", n, H100)).collect();
    let later: Vec<Row<'_>> = (11..=60)
        .flat_map(|half_minute| {
            let there = gpus.iter().filter(move |gpu| gpu.index < Some(8) || half_minute >= 20);
            there.map(move |gpu| (gpu.clone(), -30 * half_minute, idle))
        })
        .collect();
    world.append(rows(&later)).await;
    world.set_time(now_ns() + 30 * MINUTE_NS);
    world
}

fn column<'a>(list: &'a Value, name: &str) -> Vec<&'a Value> {
    list["gpus"].as_array().unwrap().iter().map(|gpu| &gpu[name]).collect()
}

#[tokio::test]
async fn what_was_wrong_at_an_instant_is_judged_by_the_rows_up_to_it() {
    let world = an_hour_later().await;
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("?at=2026-11-20T16:04:00Z", &["straggler:GPU-7"]),
        ("?at=2026-11-20T15:46:30Z", &[]),
        ("?at=2026-11-20T15:00:00Z", &[]),
        ("?at=2026-11-20T16:29:00Z", &[]),
        // It has not come: now.
        ("?at=2026-11-21T00:00:00Z", &[]),
    ];
    for (query, expected) in table {
        let list = world.ok(&format!("/api/v1/analysis/findings{query}")).await;
        assert_eq!(ids(&list), *expected, "{query}");
    }
    let list = world.ok("/api/v1/analysis/findings?at=2026-11-20T16:04:00Z").await;
    let straggler = &list["findings"][0];
    assert_eq!(
        (&straggler["since"], &list["judged_at"]),
        (&json!("2026-11-20T15:45:30Z"), &json!("2026-11-20T16:04:00Z"))
    );
    assert_eq!(straggler["reach"]["job"], "train-7");
    let jobs = world.ok("/api/v1/analysis/stragglers?at=2026-11-20T16:04:00Z").await;
    assert_eq!((&jobs["total"], &jobs["jobs"][0]["gpus"][0]["gpu"]), (&json!(1), &json!("GPU-7")));
}

#[tokio::test]
async fn a_job_stands_still_since_the_first_row_of_those_that_show_it_without_a_break() {
    let world = judging().await;
    let works: &[(&str, f64)] = &[("utilization_pct", 98.0), ("power_w", 650.0)];
    let stuck: &[(&str, f64)] = &[("utilization_pct", 100.0), ("power_w", 240.0)];
    let gpus =
        [0, 1].map(|n| gpu(&format!("GPU-{n}"), "n1", n, H100).with(IdentityColumn::Job, "train-7").unwrap());
    // From 15:58:40 on, and for one row at 15:55.
    let at = |ago: i64| if ago <= 80 || ago == 300 { stuck } else { works };
    let all: Vec<Row<'_>> = (0..=120)
        .flat_map(|tick| gpus.iter().map(move |gpu| (gpu.clone(), 10 * tick, at(10 * tick))))
        .collect();
    world.append(rows(&all)).await;
    let since = async |at: &str| {
        let list = world.ok(&format!("/api/v1/analysis/findings?kind=job_hung&at=2026-11-20T{at}Z")).await;
        let found = list["findings"].as_array().unwrap().iter();
        found.map(|one| json!([one["since"], one["since_at_least"]])).collect::<Vec<_>>()
    };
    for too_early in ["15:55:05", "15:58:45", "15:59:05"] {
        assert!(since(too_early).await.is_empty(), "{too_early}");
    }
    for later in ["15:59:15", "15:59:55", "15:59:59"] {
        assert_eq!(since(later).await, [json!(["2026-11-20T15:58:40Z", false])], "{later}");
    }
}

#[tokio::test]
async fn gpus_hosts_and_room_are_those_of_the_instant() {
    let world = an_hour_later().await;
    let then = "at=2026-11-20T16:04:00Z";
    let gpus = world.ok(&format!("/api/v1/gpus?{then}&metrics=gpu_clock_mhz&labels=job")).await;
    assert_eq!(gpus["total"], 8, "one had not come yet");
    assert!(column(&gpus, "state").iter().all(|state| *state == "active"), "{gpus}");
    assert!(column(&gpus, "labels").iter().all(|labels| labels["job"] == "train-7"), "{gpus}");
    assert!(column(&gpus, "last_seen").iter().all(|seen| *seen == "2026-11-20T16:04:00Z"), "{gpus}");
    let clock = |n: usize| &gpus["gpus"][n]["metrics"]["gpu_clock_mhz"];
    assert_eq!((clock(6), clock(7)), (&json!(1980), &json!(1530)));

    let now = world.ok("/api/v1/gpus?labels=job&sort=state").await;
    assert_eq!(now["total"], 9);
    assert!(column(&now, "labels").iter().all(|labels| labels["job"].is_null()), "{now}");

    let one = world.ok(&format!("/api/v1/gpus/GPU-7?{then}")).await;
    assert_eq!(
        (&one["latest"]["power_w"]["value"], &one["labels"]["job"]),
        (&json!(500.0), &json!("train-7")),
        "{one}"
    );
    let late = world.get(&format!("/api/v1/gpus/GPU-8?{then}")).await;
    assert_eq!(late.status, 404);
    let hosts = world.ok(&format!("/api/v1/hosts?{then}")).await;
    assert_eq!(
        (&hosts["hosts"][0]["gpu_count"], &hosts["hosts"][0]["states"]["active"]),
        (&json!(8), &json!(8))
    );
    let of_host = world.ok(&format!("/api/v1/hosts/sim-node-01/gpus?{then}")).await;
    assert_eq!(of_host["total"], 8);
    let hints = world.ok(&format!("/api/v1/schedule/hints?{then}")).await;
    assert_eq!(hints["nodes"][0]["free"], json!([]), "{hints}");

    // Between the rows, and after the last ones.
    let between = world.ok("/api/v1/gpus?at=2026-11-20T16:04:59.5Z").await;
    assert_eq!(between["gpus"][0]["last_seen"], "2026-11-20T16:04:30Z");
    world.set_time(now_ns() + 90 * MINUTE_NS + SECOND_NS);
    let silent = world.ok("/api/v1/analysis/findings?at=2026-11-20T17:20:00Z").await;
    assert_eq!(ids(&silent), ["node_silent:sim-node-01"]);

    let refused = world.get("/api/v1/gpus?at=yesterday").await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("bad_parameter")));
}

#[tokio::test]
async fn who_held_a_gpu_long_before_is_not_guessed_from_now() {
    let world = judging().await;
    let gpu = gpu("GPU-a", "sim-node-01", 0, H100);
    let held = gpu.clone().with(IdentityColumn::Job, "train-9").unwrap();
    let values: &[(&str, f64)] = &[("utilization_pct", 99.0)];
    world
        .append(rows(&[(gpu.clone(), 5 * 86_400, values), (gpu, 3 * 86_400, values), (held, 60, values)]))
        .await;
    let then = world.ok("/api/v1/gpus/GPU-a?at=2026-11-20T12:00:00Z").await;
    assert_eq!((&then["labels"]["job"], &then["gpu"]["state"]), (&Value::Null, &json!("stale")), "{then}");
    assert_eq!(then["gpu"]["last_seen"], "2026-11-17T16:00:00Z", "it was silent for over a day: {then}");
    assert_eq!(then["gpu"]["simulated"], true);
    assert_eq!(world.ok("/api/v1/gpus/GPU-a").await["labels"]["job"], "train-9");
}

#[tokio::test]
async fn at_the_end_of_a_recording_what_is_true_of_a_gpu_from_its_first_row_on_is_open() {
    let world = judging().await;
    let one = |n: i32| gpu(&format!("GPU-{n}"), "sim-node-01", n, H100);
    let hot: &[(&str, f64)] = &[("throttle_reasons", 32.0)];
    let cool: &[(&str, f64)] = &[("throttle_reasons", 0.0)];
    // From 15:56:37 to 15:56:40: the second GPU becomes hot meanwhile, the third comes and is hot.
    world.append(rows(&[(one(0), 203, hot), (one(1), 203, cool), (one(2), 201, hot)])).await;
    world.append(rows(&[(one(0), 200, hot), (one(1), 200, hot), (one(2), 200, hot)])).await;
    let open = async |at: &str| {
        let list = world.ok(&format!("/api/v1/analysis/findings?at=2026-11-20T{at}Z")).await;
        let found = list["findings"].as_array().unwrap().iter();
        found.map(|one| json!([one["id"], one["since"], one["since_at_least"]])).collect::<Vec<_>>()
    };
    assert!(open("15:56:40").await.is_empty(), "more rows may come");
    *world.parts.recorded_after.lock().unwrap() = Some(Duration::ZERO);
    let hot = [
        json!(["software_thermal_slowdown:GPU-0", "2026-11-20T15:56:37Z", true]),
        json!(["software_thermal_slowdown:GPU-2", "2026-11-20T15:56:39Z", true]),
    ];
    for end in ["15:56:40", "15:56:40.001", "15:56:41"] {
        assert_eq!(open(end).await, hot, "{end}");
    }
    assert!(open("15:56:39").await.is_empty(), "the recording goes on");
}

#[tokio::test]
async fn a_recording_ends_with_its_own_last_row_although_the_history_has_newer_ones() {
    let world = judging().await;
    *world.parts.recorded_after.lock().unwrap() = Some(Duration::ZERO);
    let hot: &[(&str, f64)] = &[("throttle_reasons", 32.0)];
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0)];
    let [recorded, other] = [("GPU-a", "n1"), ("GPU-b", "n2")].map(|(key, node)| gpu(key, node, 0, H100));
    world.append(rows(&[(recorded.clone(), 603, hot), (recorded, 600, hot)])).await;
    world.append(rows(&[(other.clone(), 200, busy)])).await;
    let (end, newest) = ("2026-11-20T15:50:00Z", "2026-11-20T15:56:40Z");
    let end_ns = now_ns() - 600 * SECOND_NS;
    // A row of it that was not stored is no end.
    for (until_ns, told) in [(None, newest), (Some(end_ns), end), (Some(now_ns()), newest)] {
        *world.parts.recorded_until.lock().unwrap() = until_ns;
        assert_eq!(world.ok("/health").await["recording_end"], told, "{until_ns:?}");
    }
    *world.parts.recorded_until.lock().unwrap() = Some(end_ns);
    let list = world.ok(&format!("/api/v1/analysis/findings?at={end}")).await;
    assert_eq!(ids(&list), ["software_thermal_slowdown:GPU-a"]);
    // While something else still reports, the fleet is that of now.
    world.append(rows(&[(other, 5, busy)])).await;
    assert_eq!(world.ok("/health").await["recording_end"], Value::Null);
}

#[tokio::test]
async fn no_row_tells_that_a_recording_fell_silent() {
    let busy: &[(&str, f64)] = &[("utilization_pct", 50.0)];
    for (recorded_after, is_told) in [(None, true), (Some(Duration::ZERO), false)] {
        let world = judging().await;
        *world.parts.recorded_after.lock().unwrap() = recorded_after;
        let gpus = [gpu("GPU-a", "n1", 0, H100), gpu("GPU-b", "n2", 0, H100)];
        world.append(rows(&gpus.map(|gpu| (gpu, 600, busy)))).await;
        let list = world.ok("/api/v1/analysis/findings").await;
        assert!(!ids(&list).is_empty(), "nothing reports now");
        assert_eq!(!world.store_findings().await.is_empty(), is_told, "{list}");
    }
}

#[tokio::test]
async fn rollups_tell_of_an_instant_nothing_that_its_rows_do_not() {
    let world = World::empty(|config, store| {
        config.limits.judge_every = Duration::ZERO;
        store.rollup_rows = 1;
    })
    .await;
    let sound: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("pcie_width", 16.0), ("pcie_width_max", 16.0), ("temperature_c", 60.0)];
    let gpus: Vec<Identity> = (0..4).map(|n| gpu(&format!("GPU-{n}"), "sim-node-01", n, H100)).collect();
    for ticks in [46..=90, 1..=45] {
        let all: Vec<Row<'_>> =
            ticks.flat_map(|tick| gpus.iter().map(move |gpu| (gpu.clone(), 10 * tick, sound))).collect();
        world.append(rows(&all)).await;
        world.store.flush().await.unwrap();
    }
    world.store.compact().await.unwrap();
    let merged = async {
        while world.store.stats().flushed.files > 0 || world.store.stats().rollups.files == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), merged).await.unwrap();
    world.set_time(now_ns() + 30 * MINUTE_NS);
    let course =
        "/api/v1/query?metrics=pcie_width&step=60s&start=2026-11-20T15:46:00Z&end=2026-11-20T15:57:59Z";
    assert_eq!(world.ok(course).await["rollup_ms"], 60_000);
    let list = world.ok("/api/v1/analysis/findings?at=2026-11-20T15:59:00Z").await;
    assert!(ids(&list).is_empty(), "{list}");
}
