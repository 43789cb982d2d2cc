//! When findings began, and names that are used twice. All values are made up.

use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};

use crate::analysis::{H100, ids, judging};
use crate::world::{Row, gpu, now_ns, rows};

/// Seconds before now, or after it, of a row a minute since so many seconds ago.
fn minutes(since_s: i64) -> impl Iterator<Item = i64> {
    (-3..=since_s / 60).map(|minute| 60 * minute)
}

const HOUR: i64 = 3_600;

/// A GPU, how many seconds ago, and its values.
type Owned = (Identity, i64, Vec<(&'static str, f64)>);

/// GPUs with one fault each, which began at a known time: a row a minute.
fn faulty_gpus() -> Vec<Owned> {
    type Fault = fn(i64) -> Vec<(&'static str, f64)>;
    let when = |is_bad: bool, bad: f64, good: f64| if is_bad { bad } else { good };
    // (finding, first row, values so many seconds ago)
    let xid: [(&str, i64, Fault); 3] = [
        ("xid:GPU-x", 3 * HOUR, |ago| vec![("xid_last", if ago <= 2 * HOUR { 79.0 } else { 0.0 })]),
        ("xid:GPU-old", 30 * HOUR, |_| vec![("xid_last", 79.0)]),
        ("xid:GPU-new", 600, |_| vec![("xid_last", 79.0)]),
    ];
    let other: [(&str, i64, Fault); 3] = [
        ("fan_stopped:GPU-fan", 3 * HOUR, |ago| {
            // It stood before, too, while the GPU was cool.
            let (fan, celsius) = if ago <= 3_000 { (0.0, 80.0) } else { (0.0, 40.0) };
            vec![("fan_speed_pct", fan), ("temperature_c", celsius)]
        }),
        ("pcie_degraded:GPU-pcie", 3 * HOUR, |ago| {
            let lanes = if ago <= 2_400 { 8.0 } else { 16.0 };
            vec![("pcie_width", lanes), ("pcie_width_max", 16.0), ("utilization_pct", 99.0)]
        }),
        ("thermal_margin:GPU-hot", 3 * HOUR, |ago| {
            vec![("temperature_margin_c", if ago <= 5_400 { 1.0 } else { 20.0 })]
        }),
    ];
    let held = |name: &str, job: &str| {
        let gpu = gpu(name, "n1", 0, H100).with(IdentityColumn::Namespace, "research").unwrap();
        gpu.with(IdentityColumn::Job, job).unwrap()
    };
    let mut all: Vec<Owned> = Vec::new();
    for (place, (id, first, values)) in (0..).zip(xid.into_iter().chain(other)) {
        // Alone of its model on its node: it is compared with nobody.
        let (_, name) = id.split_once(':').unwrap();
        let gpu = gpu(name, &format!("n{place}"), 0, &format!("model {place}"));
        all.extend(minutes(first).map(|ago| (gpu.clone(), ago, values(ago))));
    }
    for ago in minutes(30 * HOUR) {
        all.push((held("GPU-parked", "parked"), ago, vec![("utilization_pct", 0.0)]));
    }
    for ago in minutes(3 * HOUR) {
        let busy = when(ago <= 2 * HOUR, 0.0, 99.0);
        all.push((held("GPU-idle", "idle"), ago, vec![("utilization_pct", busy)]));
    }
    all
}

#[tokio::test]
async fn a_finding_began_with_the_first_row_that_shows_it_and_says_if_nobody_looked_further() {
    let all = faulty_gpus();
    let world = judging().await;
    let all: Vec<Row<'_>> =
        all.iter().map(|(gpu, ago, values)| (gpu.clone(), *ago, values.as_slice())).collect();
    world.append(rows(&all)).await;
    world.ok("/api/v1/analysis/findings").await;
    world.set_time(now_ns() + 150 * SECOND_NS);
    let list = world.ok("/api/v1/analysis/findings").await;
    let found = |id: &str| {
        let one = list["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id);
        let one = one.unwrap_or_else(|| panic!("{id}: {list}"));
        (one["since"].as_str().unwrap().to_owned(), one["since_at_least"].as_bool().unwrap(), one)
    };
    for (id, since, at_least) in [
        ("xid:GPU-x", "2026-11-20T14:00:00Z", false),
        ("xid:GPU-old", "2026-11-19T16:00:00Z", true),
        ("xid:GPU-new", "2026-11-20T15:50:00Z", false),
        ("fan_stopped:GPU-fan", "2026-11-20T15:10:00Z", false),
        ("pcie_degraded:GPU-pcie", "2026-11-20T15:20:00Z", false),
        ("thermal_margin:GPU-hot", "2026-11-20T14:30:00Z", false),
        ("idle_held:/research/parked", "2026-11-19T16:00:00Z", true),
        ("idle_held:/research/idle", "2026-11-20T14:00:00Z", false),
    ] {
        let (began, is_bound, _) = found(id);
        assert_eq!((began.as_str(), is_bound), (since, at_least), "{id}");
    }
    let sentence = |id: &str| found(id).2["sentence"].as_str().unwrap();
    assert_eq!(
        sentence("idle_held:/research/parked"),
        "parked holds 1 GPU that did nothing for at least 24.0 hours"
    );
    assert_eq!(sentence("idle_held:/research/idle"), "idle holds 1 GPU that did nothing for 2.0 hours");
    let metrics = world.get("/metrics").await.text().to_owned();
    let labels = "uuid=\"GPU-idle\",node=\"n1\",namespace=\"research\",job=\"idle\"";
    assert!(metrics.contains(&format!("gpuvitals_idle_held_seconds{{{labels}}} 7350\n")), "{metrics}");
}

#[tokio::test]
async fn one_gpu_on_two_nodes_and_one_name_of_two_nodes_are_findings() {
    let world = judging().await;
    let (cloned, copy) = (gpu("GPU-x", "n1", 0, H100), gpu("GPU-x", "n2", 0, H100));
    let moved = |ago: i64| gpu("GPU-m", if ago > 300 { "n3" } else { "n4" }, 0, H100);
    let same_name = [gpu("GPU-a", "gpu-host", 0, H100), gpu("GPU-b", "gpu-host", 0, H100)];
    let values: &[(&str, f64)] = &[("utilization_pct", 0.0), ("temperature_c", 40.0)];
    let mut all: Vec<Row<'_>> = Vec::new();
    for ago in (-180..1_800).step_by(20) {
        let twice = if ago <= 600 { vec![(copy.clone(), ago - 7, values)] } else { Vec::new() };
        all.extend([(cloned.clone(), ago, values), (moved(ago), ago, values)]);
        all.extend(same_name.iter().map(|gpu| (gpu.clone(), ago, values)));
        all.extend(twice);
    }
    world.append(rows(&all)).await;
    world.ok("/api/v1/analysis/findings").await;
    world.set_time(now_ns() + 150 * SECOND_NS);
    let list = world.ok("/api/v1/analysis/findings").await;
    let mut found = ids(&list);
    found.sort_unstable();
    assert_eq!(found, ["duplicate_gpu:GPU-x", "duplicate_node:gpu-host"], "{list}");
    let of = |kind: &str| {
        let all = list["findings"].as_array().unwrap();
        all.iter().find(|finding| finding["kind"] == kind).unwrap()
    };
    let gpu = of("duplicate_gpu");
    let sentence = gpu["sentence"].as_str().unwrap();
    assert!(sentence.contains("n1") && sentence.contains("n2"), "{sentence}");
    assert_eq!(gpu["since"], "2026-11-20T15:50:00Z");
    assert_eq!(
        of("duplicate_node")["sentence"],
        "two machines report under this name: each has a GPU of number 0"
    );
    let metrics = world.get("/metrics").await.text().to_owned();
    assert!(
        metrics.contains("gpuvitals_findings{kind=\"duplicate_gpu\",severity=\"warning\"} 1\n"),
        "{metrics}"
    );
}

/// Rows of hosts, each with how many seconds ago and what it had counted since its boot.
fn counts(rows: &[(&str, i64, i64)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::SystemEvents);
    for (host, seconds_ago, count) in rows {
        let identity = builder.intern(&Identity::default().with(IdentityColumn::Node, host).unwrap());
        let row = builder.row(now_ns() - seconds_ago * SECOND_NS, identity);
        builder.set(row, catalogue::by_column("ctx_switches").unwrap(), Value::Int(*count)).unwrap();
    }
    builder.finish(Origin { node: Arc::from("test"), started_ns: 2 }, 1).unwrap()
}

#[tokio::test]
async fn two_machines_of_one_name_without_uuids_are_told_by_what_they_count_since_boot() {
    let world = judging().await;
    let gpu_of = |node: &str| {
        let named = Identity::default().with(IdentityColumn::Node, node).unwrap();
        let mut identity = named.with(IdentityColumn::Uuid, &format!("{node}:gpu0")).unwrap();
        identity.index = Some(0);
        identity
    };
    let values: &[(&str, f64)] = &[("utilization_pct", 0.0), ("temperature_c", 40.0)];
    let (mut gpus, mut hosts): (Vec<Row<'_>>, Vec<(&str, i64, i64)>) = (Vec::new(), Vec::new());
    for ago in (-480..1_800).step_by(20) {
        let risen = 10 * (2_000 - ago);
        gpus.extend(["twin", "booted", "looped"].map(|node| (gpu_of(node), ago, values)));
        gpus.push((gpu_of("twin"), ago - 7, values));
        hosts.extend([("twin", ago, 1_000_000 + risen), ("twin", ago - 7, 9_000_000 + risen)]);
        hosts.push(("booted", ago, if ago > 290 { 5_000_000 + risen } else { risen }));
        // A recording of 40 seconds, again and again.
        hosts.push(("looped", ago, 1_000_000 + ago.rem_euclid(40)));
    }
    world.append(rows(&gpus)).await;
    world.append(counts(&hosts)).await;
    world.ok("/api/v1/analysis/findings").await;
    world.set_time(now_ns() + 450 * SECOND_NS);
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(ids(&list), ["duplicate_node:twin"], "{list}");
    let found = &list["findings"][0];
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.contains("what it counted since boot goes back and forth"), "{sentence}");
    assert_eq!(found["since_at_least"], true);
}

/// An event of a GPU, so many seconds ago; by its agent, or by its driver.
fn event(who: &Identity, (seconds_ago, kind, source): (i64, &str, &str)) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    let who = builder.intern(&who.clone().with(IdentityColumn::Source, source).unwrap());
    let row = builder.row(now_ns() - seconds_ago * SECOND_NS, who);
    builder.set_extra(row, "sequence", 1).unwrap();
    builder.set_extra(row, "code", 41_000).unwrap();
    for (column, text) in [("kind", kind), ("detail", "its readings slowed from 0.3 to 41 ms")] {
        builder.set_extra_text(row, column, text).unwrap();
    }
    builder.finish(Origin { node: Arc::from(source), started_ns: 1 }, 1).unwrap()
}

#[tokio::test]
async fn readings_that_slow_down_are_a_finding_since_their_agent_says_so() {
    let world = judging().await;
    let (slow, other) = (gpu("GPU-slow", "n1", 0, H100), gpu("GPU-other", "n1", 1, H100));
    let values: &[(&str, f64)] = &[("temperature_c", 40.0)];
    world.append(rows(&[(slow.clone(), 0, values), (other.clone(), 0, values)])).await;
    world.append(event(&slow, (60, "reads_slowed", "agent"))).await;
    world.append(event(&other, (60, "reads_slowed", "nvml"))).await;
    let list = world.ok("/api/v1/analysis/findings").await;
    assert_eq!(ids(&list), ["reads_slowed:GPU-slow"], "{list}");
    let found = &list["findings"][0];
    assert_eq!(found["sentence"], "its readings slowed from 0.3 to 41 ms");
    assert_eq!((&found["since"], &found["since_at_least"]), (&"2026-11-20T15:59:00Z".into(), &false.into()));
    assert_eq!((&found["evidence"][0]["value"], &found["evidence"][0]["unit"]), (&41.0.into(), &"ms".into()));
}
