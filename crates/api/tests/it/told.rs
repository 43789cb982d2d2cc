//! What is told of jobs beside what they used: who ran them, advice, and users as numbers wherever they are shown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use gpuvitals_api::{Api, ApiConfig, Beside, serve};
use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::clock::Clock;
use gpuvitals_core::history::{Change, Part, RowsQuery};
use gpuvitals_core::time::{HOUR_NS, SECOND_NS};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_listener::Access;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::analysis::H100;
use crate::client::request;
use crate::jobs::near;
use crate::lacking::{Lack, Lacking, REASON};
use crate::world::{Row, World, gpu, now_ns, rows};

/// A row of `gpu_usage` about the hour before now: GPU, holder, and how busy the GPU was in it, in per cent.
type Used<'a> = (Identity, &'a str, i64);

/// Rows of an hour that was held, each GPU with so much memory in use.
fn used(all: &[Used<'_>], memory_mb: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (gpu, holder, busy) in all {
        let identity = match holder.strip_prefix("job:") {
            Some(job) => gpu.clone().with(IdentityColumn::Job, job).unwrap(),
            None => gpu.clone(),
        };
        let identity = builder.intern(&identity);
        let row = builder.row(now_ns() - HOUR_NS, identity);
        for (column, text) in [("holder", *holder), ("share", "exclusive")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let busy_ns = HOUR_NS / 100 * busy;
        let idle_ns = if *busy > 0 { 0 } else { HOUR_NS };
        for (column, number) in [
            ("run", 1),
            ("as_of_ns", now_ns()),
            ("held_ns", HOUR_NS),
            ("known_ns", HOUR_NS),
            ("busy_ns", busy_ns),
            ("idle_ns", idle_ns),
            ("memory_max_mb", memory_mb),
        ] {
            builder.set_extra(row, column, Number::Int(number)).unwrap();
        }
    }
    builder.finish(Origin { node: Arc::from("test"), started_ns: 1 }, 1).unwrap()
}

/// A row of `jobs`: number, who told, seconds before now at which it began and ended, texts, and the user's number.
type Told<'a> = (&'a str, &'a str, [Option<i64>; 2], &'a [(&'a str, &'a str)], Option<i64>);

fn told(all: &[Told<'_>]) -> Batch {
    told_with(all, None)
}

/// Rows about jobs that asked for so many GPUs.
fn told_with(all: &[Told<'_>], gpus_asked: Option<i64>) -> Batch {
    let mut builder = BatchBuilder::new(Table::Jobs);
    for (id, told_by, times, texts, uid) in all {
        let mut host = Identity::default();
        for (column, text) in [(IdentityColumn::Node, "sim-node-01"), (IdentityColumn::Job, *id)] {
            host.set(column, text).unwrap();
        }
        let host = builder.intern(&host);
        let row = builder.row(now_ns() - HOUR_NS, host);
        let key = [("job_id", *id), ("step", "whole"), ("told_by", *told_by)];
        for (column, text) in key.iter().chain(*texts) {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let times = ["start_ns", "end_ns"].into_iter().zip(times);
        let times = times.filter_map(|(column, ago_s)| Some((column, now_ns() - (*ago_s)? * SECOND_NS)));
        let uid = uid.map(|uid| ("uid", uid));
        let asked = gpus_asked.map(|gpus| ("gpus_asked", gpus));
        for (column, number) in times.chain(uid).chain(asked).chain([("as_of_ns", now_ns())]) {
            builder.set_extra(row, column, Number::Int(number)).unwrap();
        }
    }
    builder.finish(Origin { node: Arc::from("test"), started_ns: 1 }, 1).unwrap()
}

fn card(number: i32) -> Identity {
    gpu(&format!("GPU-{number}"), "sim-node-01", number, H100)
}

/// Two jobs of Kim, one of Leez, and a GPU that Leez uses without a job.
async fn shared(hides_users: bool) -> World {
    let world = World::empty(|config, _| config.hides_users = hides_users).await;
    world.append(rows(&[(card(3), 1, &[("power_w", 100.0)])])).await;
    let all = [(card(0), "job:7", 100), (card(1), "job:8", 50), (card(2), "job:9", 0)];
    world.append(used(&all, 100)).await;
    world.append(used(&[(card(3), "user:leez", 25), (card(4), "pod:team/p/", 100)], 100)).await;
    let kim = [("job_user", "kim"), ("account", "ml"), ("queue", "gpu")];
    world
        .append(told(&[
            ("7", "prolog", [Some(3_600), None], &[("job_user", "kim"), ("queue", "gpu")], Some(1_001)),
            ("7", "controller", [Some(3_601), None], &[("job_name", "train"), ("account", "ml")], None),
            ("8", "controller", [Some(3_600), Some(10)], &kim, Some(1_001)),
            ("8", "epilog", [None, Some(12)], &[("exit_code", "3:0")], None),
            ("9", "prolog", [Some(3_600), None], &[("job_user", "leez")], None),
        ]))
        .await;
    world
}

fn group<'a>(list: &'a Value, name: &Value) -> &'a Value {
    list["jobs"].as_array().unwrap().iter().find(|job| job["group"] == *name).unwrap()
}

#[tokio::test]
async fn a_job_has_its_name_user_account_queue_and_times() {
    let world = shared(false).await;
    let list = world.ok("/api/v1/jobs").await;
    let about = &group(&list, &json!("job:7"))["about"];
    assert_eq!(
        *about,
        json!({"name": "train", "user": "kim", "uid": 1001, "gpus_asked": null, "account": "ml", "queue": "gpu", "array_task": null,
               "start": "2026-11-20T14:59:59Z", "end": null, "state": "running", "exit_code": null})
    );
    let over = &group(&list, &json!("job:8"))["about"];
    assert_eq!((&over["state"], &over["end"]), (&json!("ended"), &json!("2026-11-20T15:59:50Z")));
    assert_eq!(group(&list, &json!("user:leez"))["about"], Value::Null, "nobody tells of it");
    assert_eq!(world.ok("/api/v1/jobs/7").await["job"]["about"], *about);
    let past = world.ok("/api/v1/jobs?start=2026-11-20T15:00:00Z&end=2026-11-20T15:30:00Z").await;
    let over = &group(&past, &json!("job:8"))["about"];
    assert_eq!((&over["state"], &over["end"]), (&json!("running"), &Value::Null), "it ended after the range");
}

#[tokio::test]
async fn what_a_job_or_pod_asked_for_stands_beside_what_it_had() {
    let world = World::empty(|_, _| {}).await;
    world.append(used(&[(card(0), "job:7", 100), (card(1), "pod:team/p/main", 50)], 100)).await;
    let since = [Some(3_600), None];
    world.append(told(&[("7", "prolog", since, &[], None)])).await;
    let asking: [Told<'_>; 2] =
        [("7", "controller", since, &[], None), ("pod:team/p", "kubernetes", [None, None], &[], None)];
    world.append(told_with(&asking, Some(4))).await;
    let list = world.ok("/api/v1/jobs").await;
    for holder in ["job:7", "pod:team/p/main"] {
        let one = group(&list, &json!(holder));
        assert_eq!((&one["gpus"], &one["about"]["gpus_asked"]), (&json!(1), &json!(4)), "{holder}");
    }
    assert_eq!(world.ok("/api/v1/jobs/7").await["job"]["about"]["gpus_asked"], 4);
}

#[tokio::test]
async fn labels_that_are_chosen_are_shown_and_put_jobs_together() {
    let world = World::empty(|config, _| config.job_labels = ["team".into()].into()).await;
    let all = [(card(0), "job:7", 100), (card(1), "job:8", 50), (card(2), "job:9", 0)];
    world.append(used(&all, 100)).await;
    let since = [Some(3_600), None];
    world
        .append(told(&[
            ("7", "prolog", since, &[("labels", "team=nlp,phase=2")], None),
            ("8", "controller", since, &[("labels", "team=nlp")], None),
            ("9", "prolog", since, &[("labels", "phase=2")], None),
        ]))
        .await;
    let [chosen, other] = [world.ok("/api/v1/jobs/7").await, world.ok("/api/v1/jobs/9").await];
    assert_eq!(chosen["job"]["about"]["labels"], json!({"team": "nlp"}));
    assert_eq!(other["job"]["about"]["labels"], Value::Null);
    let list = world.ok("/api/v1/jobs?by=label:team").await;
    assert_eq!(group(&list, &json!("nlp"))["gpus"], 2);
    assert_eq!(group(&list, &Value::Null)["gpus"], 1);
    assert_eq!(world.get("/api/v1/jobs?by=label:phase").await.status, 400, "nobody chose it");
}

#[tokio::test]
async fn a_job_is_found_by_its_place_in_an_array() {
    let world = World::empty(|_, _| {}).await;
    world.append(used(&[(card(0), "job:4720", 100)], 100)).await;
    world
        .append(told(&[("4720", "controller", [Some(3_600), None], &[("array_task", "4719_1")], None)]))
        .await;
    assert_eq!(world.ok("/api/v1/jobs/4719_1").await["job"]["holder"], "job:4720");
    assert_eq!(world.get("/api/v1/jobs/4719_2").await.status, 404);
}

#[tokio::test]
async fn a_pod_has_the_labels_that_its_cluster_tells_of() {
    let world = World::empty(|config, _| config.job_labels = ["team".into()].into()).await;
    world.append(used(&[(card(4), "pod:team/p/main", 100), (card(5), "pod:team/q/main", 50)], 100)).await;
    let labels = [("labels", "team=vision,app=x")];
    world.append(told(&[("pod:team/p", "kubernetes", [None, None], &labels, None)])).await;
    let list = world.ok("/api/v1/jobs?by=label:team").await;
    near(&group(&list, &json!("vision"))["held_gpu_hours"], 1.0);
    near(&group(&list, &Value::Null)["held_gpu_hours"], 1.0);
    let list = world.ok("/api/v1/jobs").await;
    let labels = |holder: &str| &group(&list, &json!(holder))["about"]["labels"];
    assert_eq!(*labels("pod:team/p/main"), json!({"team": "vision"}));
    assert_eq!(*labels("pod:team/q/main"), Value::Null);
}

#[tokio::test]
async fn what_was_held_adds_up_by_user_account_and_queue() {
    let world = shared(false).await;
    for (by, groups) in [
        ("user", json!([["kim", 2.0], ["leez", 2.0], [null, 1.0]])),
        ("account", json!([["ml", 2.0], [null, 3.0]])),
        ("queue", json!([["gpu", 2.0], [null, 3.0]])),
    ] {
        let list = world.ok(&format!("/api/v1/jobs?by={by}&sort=group")).await;
        for wanted in groups.as_array().unwrap() {
            near(&group(&list, &wanted[0])["held_gpu_hours"], wanted[1].as_f64().unwrap());
        }
        assert_eq!(list["total"], groups.as_array().unwrap().len(), "{by}");
        near(&list["whole"]["held_gpu_hours"], 5.0);
    }
    let users = &world.ok("/api/v1/jobs?by=user&sort=-wasted_gpu_hours").await["jobs"];
    assert_eq!(
        (&users[0]["group"], &users[0]["gpus"]),
        (&json!("leez"), &json!(2)),
        "whoever wasted most first"
    );
}

/// The number that is shown for a user.
fn made_number(user: &Value) -> String {
    let number = user.as_str().unwrap();
    assert!(number.parse::<u64>().unwrap() > u64::from(u32::MAX), "no user of a host has it: {number}");
    number.to_owned()
}

#[tokio::test]
async fn users_are_numbers_on_every_path_that_shows_them() {
    let world = shared(true).await;
    let list = world.ok("/api/v1/jobs").await;
    let about = |id: &str| made_number(&group(&list, &json!(id))["about"]["user"]);
    let (kim, leez) = (about("job:7"), about("job:9"));
    assert_ne!(kim, leez);
    let by_user = world.ok("/api/v1/jobs?by=user").await;
    near(&group(&by_user, &json!(kim))["held_gpu_hours"], 2.0);
    near(&group(&by_user, &json!(leez))["held_gpu_hours"], 2.0);
    let held = world.ok(&format!("/api/v1/jobs/user%3A{leez}")).await;
    assert_eq!(held["job"]["holder"], format!("user:{leez}"));
    assert_eq!(world.get("/api/v1/jobs/user%3Aleez").await.status, 404, "who knows the name learns nothing");
    let rows = "start=2026-11-20T14:00:00Z&end=2026-11-20T16:00:00Z&limit=100";
    for path in [
        "/api/v1/jobs".to_owned(),
        "/api/v1/jobs/7".to_owned(),
        "/api/v1/jobs?by=user".to_owned(),
        format!("/api/v1/telemetry?table=jobs&{rows}"),
        format!("/api/v1/telemetry?table=jobs&format=csv&{rows}"),
        format!("/api/v1/telemetry?table=jobs&metrics=job_user&{rows}"),
        format!("/api/v1/telemetry?table=gpu_usage&{rows}"),
        format!("/api/v1/telemetry?table=gpu_usage&format=csv&{rows}"),
        format!("/api/v1/gpus/GPU-3/telemetry?table=gpu_usage&{rows}"),
    ] {
        let answer = world.get(&path).await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{path}: {text}");
        assert!(!text.contains("kim") && !text.contains("leez"), "{path}: {text}");
        assert!(text.contains(&kim) || text.contains(&leez), "{path}: {text}");
    }
    let csv = world.get(&format!("/api/v1/telemetry?table=jobs&metrics=job_user&format=csv&{rows}")).await;
    let head = csv.text().lines().next().unwrap();
    let has = |name: &str| head.split(',').any(|column| column == name);
    assert!(has("job_user") && !has("uid"), "it was not asked for: {head}");
}

#[tokio::test]
async fn where_users_are_numbers_jobs_have_the_chosen_labels_alone() {
    let world = World::empty(|config, _| {
        config.hides_users = true;
        config.job_labels = ["team".into()].into();
    })
    .await;
    let since = [Some(3_600), None];
    world
        .append(told(&[
            ("7", "prolog", since, &[("labels", "owner=kim,team=nlp")], None),
            ("8", "prolog", since, &[("labels", "owner=kim")], None),
        ]))
        .await;
    let rows = "start=2026-11-20T14:00:00Z&end=2026-11-20T16:00:00Z&limit=100";
    for format in ["json", "csv"] {
        let answer = world.get(&format!("/api/v1/telemetry?table=jobs&format={format}&{rows}")).await;
        let text = answer.text();
        assert!(answer.status == 200 && text.contains("team=nlp"), "{text}");
        assert!(!text.contains("owner") && !text.contains("kim"), "{text}");
    }
}

#[tokio::test]
async fn who_has_a_job_and_a_process_is_one_number() {
    let world = World::empty(|config, _| config.hides_users = true).await;
    world.append(used(&[(card(0), "job:7", 100), (card(1), "user:kim", 50)], 100)).await;
    world.append(told(&[("7", "prolog", [Some(3_600), None], &[("job_user", "kim")], Some(1_001))])).await;
    let users = world.ok("/api/v1/jobs?by=user").await;
    assert_eq!(users["total"], 1, "{users}");
    let kim = &users["jobs"][0];
    near(&kim["held_gpu_hours"], 2.0);
    assert_eq!(world.ok("/api/v1/jobs/7").await["job"]["about"]["user"], made_number(&kim["group"]));
}

#[tokio::test]
async fn pages_of_rows_go_on_behind_a_user_that_is_a_number() {
    let world = shared(true).await;
    let path = "/api/v1/telemetry?table=gpu_usage&limit=1&reverse=true";
    let mut answer = world.ok(path).await;
    let mut gpus = Vec::new();
    loop {
        gpus.extend(answer["data"].as_array().unwrap().iter().map(|row| row["gpu_id"].clone()));
        let Some(next) = answer["next"].as_str().map(str::to_owned) else { break };
        assert!(gpus.len() < 10, "{gpus:?}");
        answer = world.ok(&format!("{path}&after={next}")).await;
    }
    assert_eq!(json!(gpus), json!(["GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4"]));
}

/// A place behind a row of GPU-3 as `after` has it, with another user for its own.
fn place_of(next: &str, user: &str) -> String {
    let (time, key) = next.split_once('_').unwrap();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let key = String::from_utf8(key.as_bytes().chunks(2).map(byte).collect()).unwrap();
    let (before, rest) = key.split_once("user:").unwrap();
    let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let hex = |byte: u8| format!("{byte:02x}");
    let key: String = format!("{before}user:{user}{rest}").bytes().map(hex).collect();
    format!("{time}_{key}")
}

#[tokio::test]
async fn a_place_with_a_made_up_name_tells_nothing_of_the_names_that_there_are() {
    let world = shared(true).await;
    let path = "/api/v1/telemetry?table=gpu_usage&reverse=true";
    let page = world.ok(&format!("{path}&limit=4")).await;
    let next = page["next"].as_str().unwrap();
    let (lower, higher) = (place_of(next, "a"), place_of(next, "z"));
    let [lower, higher] = [lower, higher].map(|place| format!("{path}&limit=4&after={place}"));
    let (lower, higher) = (world.ok(&lower).await, world.ok(&higher).await);
    assert_eq!(lower["data"], higher["data"], "Leez is between them");
    let last = lower["data"].as_array().unwrap().last().unwrap();
    assert_eq!(last["gpu_id"], "GPU-4", "the page goes on");
}

#[tokio::test]
async fn who_shows_the_history_in_another_way_shows_no_users_either() {
    let world = shared(true).await;
    let config = ApiConfig { hides_users: true, ..ApiConfig::default() };
    let history =
        Api::new(config, Arc::new(world.store.clone()), Arc::clone(&world.parts) as _).shown_history();
    let mut changes = history.changes();
    let names = |batch: &Batch| format!("{:?}", batch.records());
    for table in [Table::Jobs, Table::GpuUsage] {
        let Part { answer, .. } = history.rows(RowsQuery::of(table, 100)).await.unwrap();
        let shown = names(&answer.batch.unwrap());
        assert!(!shown.contains("kim") && !shown.contains("leez"), "{shown}");
    }
    world.append(told(&[("10", "prolog", [Some(1), None], &[("job_user", "kim")], Some(1_001))])).await;
    let Some(Change::Rows(rows)) = changes.next().await else { panic!("rows have come") };
    let shown: String = rows.iter().map(names).collect();
    assert!(shown.contains("1001") && !shown.contains("kim"), "{shown}");
}

#[tokio::test]
async fn what_was_used_is_told_where_nothing_is_told_of_the_jobs() {
    let world = shared(false).await;
    let config = ApiConfig { clock: Clock::new(now_ns), ..ApiConfig::default() };
    let history = Lacking(world.store.clone(), Lack::Rows(Table::Jobs));
    let api = Api::new(config, Arc::new(history), Arc::clone(&world.parts) as _);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let beside = Beside::reading(Router::new());
    tokio::spawn(serve(listener, api, beside, Access::open(), world.shutdown.clone()));
    let list = request(address, "GET", "/api/v1/jobs", "").await;
    let missing = format!("what is told of jobs: {REASON}");
    assert_eq!((list.status, list.header("x-partial")), (200, Some(missing.as_str())));
    assert_eq!((&list.json()["total"], &list.json()["jobs"][0]["about"]), (&json!(5), &Value::Null));
    let one = request(address, "GET", "/api/v1/jobs/8", "").await;
    let missing = format!("{missing}; the steps of the job: {REASON}");
    assert_eq!((one.status, one.header("x-partial")), (200, Some(missing.as_str())));
    let by_user = request(address, "GET", "/api/v1/jobs?by=user", "").await;
    assert_eq!(by_user.status, 503, "without them there are no users: {}", by_user.text());
}

/// The advice about a job of four GPUs of which two did nothing, that began and ended so many seconds ago.
async fn advised(times: [Option<i64>; 2], memory_mb: i64, busy: [i64; 4]) -> Value {
    let world = World::empty(|_, _| {}).await;
    let of_job: Vec<Used<'_>> =
        (0..4).zip(busy).map(|(number, busy)| (card(number), "job:7", busy)).collect();
    world.append(used(&of_job, memory_mb)).await;
    world.append(told(&[("7", "controller", times, &[("job_user", "kim")], None)])).await;
    world.ok("/api/v1/jobs/7?start=2026-11-20T15:00:00Z&end=2026-11-20T16:00:00Z").await["advice"].clone()
}

#[tokio::test]
async fn gpus_that_a_job_never_used_are_named_with_what_that_costs() {
    let half = [100, 50, 0, 0];
    let whole = [Some(3_600), Some(0)];
    let advice = advised(whole, 600, half).await;
    assert_eq!(
        advice["text"],
        "2 of 4 GPUs never passed 1 %; with 2 this job would have saved 2.0 GPU hours"
    );
    assert_eq!((&advice["gpus"], &advice["idle_gpus"]), (&json!(4), &json!(2)));
    near(&advice["saved_gpu_hours"], 2.0);
    let none = advised(whole, 600, [0; 4]).await;
    assert_eq!(
        none["text"],
        "none of its 4 GPUs ever passed 1 %; without GPUs this job would have saved 4.0 GPU hours"
    );
    // All of them worked; it may still use them; it may have used them before; they may hold data for the others.
    for (times, memory_mb, busy) in [
        (whole, 600, [100, 50, 2, 2]),
        ([Some(3_600), None], 600, half),
        ([Some(7_200), Some(0)], 600, half),
        (whole, 70_000, half),
    ] {
        assert_eq!(advised(times, memory_mb, busy).await, Value::Null, "{times:?} {memory_mb} {busy:?}");
    }
}

/// A job of Kim that worked for twenty minutes, and for twelve does nothing.
async fn stalled(hides_users: bool) -> World {
    let cards = [0, 1].map(|number| card(number).with(IdentityColumn::Job, "7").unwrap());
    let (works, rests) = ([("utilization_pct", 95.0)], [("utilization_pct", 0.0)]);
    let mut all: Vec<Row<'_>> = Vec::new();
    for ago_s in (0..99).rev().map(|row| row * 20) {
        let values: &[(&str, f64)] = if ago_s > 720 { &works } else { &rests };
        all.extend(cards.iter().map(|gpu| (gpu.clone(), ago_s, values)));
    }
    let texts = [("job_user", "kim"), ("job_name", "train")];
    let told = told(&[("7", "controller", [Some(1_980), None], &texts, Some(1_001))]);
    World::with(vec![rows(&all), told], |config, _| {
        config.limits.judge_every = Duration::ZERO;
        config.hides_users = hides_users;
    })
    .await
}

#[tokio::test]
async fn a_finding_about_a_job_names_users_as_all_else_does() {
    let answer = stalled(true).await.get("/api/v1/analysis/findings").await;
    assert!(!answer.text().contains("kim"), "{}", answer.text());
    made_number(&answer.json()["findings"][0]["reach"]["user"]);
}

#[tokio::test]
async fn a_job_that_has_stalled_is_named_with_its_user_and_what_it_costs() {
    let world = stalled(false).await;
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(list["total"], 1, "{list}");
    let stalled = &list["findings"][0];
    assert_eq!(
        (&stalled["id"], &stalled["since"]),
        (&json!("job_stalled://7"), &json!("2026-11-20T15:48:00Z"))
    );
    let reach = &stalled["reach"];
    assert_eq!((&reach["user"], &reach["job_name"]), (&json!("kim"), &json!("train")));
    assert_eq!((&reach["concerned_gpus"], &reach["gpu_hours_per_hour"]), (&json!(2), &json!(2.0)));
    let metrics = world.get("/metrics").await.text().to_owned();
    assert!(metrics.contains("gpuvitals_idle_held_seconds{uuid=\"GPU-0\""), "{metrics}");
}

#[tokio::test]
async fn a_job_whose_gpus_have_no_agent_is_put_to_its_user_too() {
    let world = stalled(false).await;
    let by_user = world.ok("/api/v1/jobs?by=user").await;
    let kim = group(&by_user, &json!("kim"));
    assert_eq!((&by_user["total"], &kim["gpus_by_rows"]), (&json!(1), &json!(2)));
    near(&kim["held_gpu_hours"], 2.0 * 1_960.0 / 3_600.0);
    assert_eq!(world.ok("/api/v1/jobs/7").await["job"]["about"]["user"], "kim");
}

#[tokio::test]
async fn a_gpu_is_found_by_the_user_and_the_name_of_its_job() {
    let found = async |world: &World, search: &str| {
        world.ok(&format!("/api/v1/gpus?search={search}")).await["total"].clone()
    };
    let world = stalled(false).await;
    for (search, count) in [("kim", 2), ("Train", 2), ("kim%20train%207", 2), ("leez", 0)] {
        assert_eq!(found(&world, search).await, count, "{search}");
    }
    assert_eq!(found(&stalled(true).await, "kim").await, 0, "users are numbers");
}
