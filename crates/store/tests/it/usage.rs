//! The use of GPUs: that of rollups is that of their rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::energy::EnergySource;
use gpuvitals_core::history::{
    History, QueryError, RowsQuery, TakeRows, all_holdings, batch_jobs, job_steps, job_texts, use_of_history,
};
use gpuvitals_core::usage::{GpuUse, Holder, HoldingGroup, HoldingsQuery, JobText, UseDetail, UseQuery};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_store::{Store, StoreConfig};

use crate::support::{HOUR, SECOND, quiet, wait_for};

/// Rows of some GPUs every second of a range, whose job changes every 700 s; the first GPU has a counter, and is silent for
/// ten minutes.
fn rows(gpus: usize, seconds: std::ops::Range<i64>) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for gpu in 0..gpus {
        for second in seconds.clone() {
            if gpu == 0 && (1_500..2_100).contains(&second) {
                continue;
            }
            let identity = Identity::default()
                .with(IdentityColumn::Uuid, &format!("GPU-{gpu:04}"))
                .and_then(|it| it.with(IdentityColumn::Node, "node-1"))
                .and_then(|it| it.with(IdentityColumn::Job, &format!("job-{}", (second / 700) % 3)))
                .unwrap();
            let identity = builder.intern(&identity);
            let row = builder.row(HOUR + second * SECOND, identity);
            let watts = 300.0 + ((second * 7 + gpu as i64) % 200) as f64;
            let busy = if (second / 100) % 4 == 0 { 0.0 } else { 80.0 };
            builder.set(row, MetricId::of("power_w"), Value::Float(watts)).unwrap();
            builder.set(row, MetricId::of("utilization_pct"), Value::Float(busy)).unwrap();
            if gpu == 1 {
                // The firmware counts on every other second, and half of its steps are at the power limit.
                let steps = 100 * (second / 2);
                builder.set(row, MetricId::of("throttle_sample_count"), Value::Int(steps)).unwrap();
                builder.set(row, MetricId::of("throttle_ppt_count"), Value::Int(steps / 2)).unwrap();
            }
            if gpu == 2 {
                builder.set(row, MetricId::of("throttled"), Value::Int((second / 50) % 2)).unwrap();
            }
            if gpu == 0 {
                let counted = Value::Float(400_000.0 * second as f64);
                builder.set(row, MetricId::of("energy_mj"), counted).unwrap();
            }
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// Merges by the hour at once.
fn merging(dir: &Path) -> StoreConfig {
    StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, rollup_rows: 8, ..quiet(dir) }
}

async fn filled(config: StoreConfig) -> Store {
    let (store, _) = Store::open(config).unwrap();
    for part in 0..8 {
        store.append(vec![rows(3, part * 1_200..(part + 1) * 1_200)]).await.unwrap();
        store.flush().await.unwrap();
    }
    store
}

fn seconds(start: i64, end: i64) -> UseQuery {
    UseQuery::of(HOUR + start * SECOND, HOUR + end * SECOND)
}

async fn used(history: &dyn History, query: UseQuery) -> Vec<GpuUse> {
    let part = history.usage(query).await.unwrap();
    assert_eq!(part.missing, Vec::<String>::new());
    part.answer
}

/// Whether each number is that of the other, to the last digits.
fn assert_same(found: &[GpuUse], wanted: &[GpuUse], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(
            (&found.gpu, &found.holder, found.step_ns, found.source, found.rows_ns),
            (&wanted.gpu, &wanted.holder, wanted.step_ns, wanted.source, wanted.rows_ns),
            "{what}"
        );
        assert_eq!((found.first_ns, found.last_ns), (wanted.first_ns, wanted.last_ns), "{what}");
        let of = |one: &GpuUse| {
            let held = one.held;
            [
                Some(held.seconds),
                held.busy_s,
                held.idle_s,
                held.throttled_s,
                held.joules,
                held.idle_joules,
                Some(held.power.joules),
                Some(held.power.seconds),
            ]
        };
        for (number, (found_is, wanted_is)) in of(found).into_iter().zip(of(wanted)).enumerate() {
            assert_eq!(
                found_is.is_some(),
                wanted_is.is_some(),
                "{what}: {number} of {found:?}, not {wanted:?}"
            );
            let (found_is, wanted_is) = (found_is.unwrap_or(0.0), wanted_is.unwrap_or(0.0));
            // Between its readings, and where a step changes hands, a counter's energy follows the power; so does the idle part
            // of it within a step.
            let allowed = match (wanted.source, number) {
                (Some(EnergySource::Counter), 4) => 1e-3,
                (Some(EnergySource::Counter), 5) if wanted.step_ns.is_some() => 0.1,
                (Some(EnergySource::Counter), 5) => 0.02,
                _ => 1e-9,
            };
            assert!(
                (found_is - wanted_is).abs() <= allowed * wanted_is.abs().max(1.0),
                "{what}: {found:?}, not {wanted:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_use_of_rollups_is_that_of_their_rows() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(merging(one.path())).await;
    wait_for(&store, |store| store.stats().flushed.files == 0).await;
    let plain = filled(quiet(other.path())).await;
    for (start, end) in [(0, 9_600), (-10, 20_000), (3, 9_590), (3_600, 7_200), (1_234, 5_678), (700, 700)] {
        let query = seconds(start, end);
        let of_rows = used(&plain, query.clone()).await;
        let what = format!("{start} to {end}");
        assert_same(&of_rows, &use_of_history(&plain, query.clone()).await.unwrap().answer, &what);
        assert_same(&used(&store, query).await, &of_rows, &what);
    }
    for (start, end, step) in [(0, 9_600, 3_600), (-10, 20_000, 600), (1_234, 5_678, 60), (3, 9_590, 7)] {
        let query = UseQuery { step_ns: Some(step * SECOND), ..seconds(start, end) };
        let of_rows = used(&plain, query.clone()).await;
        let what = format!("{start} to {end} by {step}");
        assert_same(&of_rows, &use_of_history(&plain, query.clone()).await.unwrap().answer, &what);
        assert_same(&used(&store, query).await, &of_rows, &what);
    }
    for gpus in [&["GPU-0001"][..], &["GPU-0002", "GPU-0000"], &["GPU-9999"]] {
        let query = UseQuery { gpus: gpus.iter().copied().map(Arc::from).collect(), ..seconds(3, 9_590) };
        let all = used(&store, seconds(3, 9_590)).await;
        let wanted: Vec<GpuUse> = all.into_iter().filter(|one| gpus.contains(&one.gpu.as_ref())).collect();
        assert_same(&used(&store, query.clone()).await, &wanted, &format!("{gpus:?}"));
        let of_rows = used(&plain, query.clone()).await;
        assert_same(&of_rows, &use_of_history(&plain, query).await.unwrap().answer, &format!("{gpus:?}"));
    }
    let whole = used(&store, seconds(0, 9_599)).await;
    let hours = |gpu: &str| -> f64 {
        whole.iter().filter(|one| one.gpu.as_ref() == gpu).map(|one| one.held.seconds).sum()
    };
    assert_eq!((hours("GPU-0000"), hours("GPU-0001")), (9_599.0 - 601.0, 9_599.0));
    let throttled = |gpu: &str| -> f64 {
        whole.iter().filter(|one| one.gpu.as_ref() == gpu).filter_map(|one| one.held.throttled_s).sum()
    };
    // Until the counters move for the first time nothing is known.
    assert!((throttled("GPU-0001") - 0.5 * 9_598.0).abs() < 1e-6, "{}", throttled("GPU-0001"));
    assert!((throttled("GPU-0002") - 4_799.0).abs() < 1.5, "{}", throttled("GPU-0002"));
}

/// Who had which GPU, the times of the first and the last of these rows, and of all rows of the GPU.
fn times(uses: &[GpuUse]) -> Vec<(Arc<str>, Holder, [i64; 4])> {
    let of = |one: &GpuUse| {
        let times = [one.rows_ns.0, one.rows_ns.1, one.first_ns, one.last_ns];
        (Arc::clone(&one.gpu), Arc::clone(&one.holder), times)
    };
    uses.iter().map(of).collect()
}

#[tokio::test]
async fn times_alone_are_those_of_the_sums_and_nothing_is_added_up() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(merging(one.path())).await;
    wait_for(&store, |store| store.stats().flushed.files == 0).await;
    let plain = filled(quiet(other.path())).await;
    for (start, end) in [(0, 9_600), (-10, 20_000), (3, 9_590), (3_600, 7_200), (1_234, 5_678), (700, 700)] {
        let wanted = times(&used(&plain, seconds(start, end)).await);
        for store in [&store, &plain] {
            let query = UseQuery { detail: UseDetail::Times, ..seconds(start, end) };
            let found = used(store, query).await;
            assert_eq!(times(&found), wanted, "{start} to {end}");
            assert!(found.iter().all(|one| one.held.joules.is_none()), "{found:?}");
        }
    }
    let by_step = UseQuery { step_ns: Some(600 * SECOND), ..seconds(0, 9_600) };
    let wanted = used(&plain, by_step.clone()).await;
    let by_step = UseQuery { detail: UseDetail::Times, ..by_step };
    assert_same(&used(&plain, by_step).await, &wanted, "steps have their sums all the same");
}

#[tokio::test]
async fn an_instant_has_gpus_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(quiet(dir.path())).await;
    let uses = used(&store, seconds(40, 40)).await;
    assert_eq!(uses.len(), 3);
    assert!(uses.iter().all(|one| one.held.seconds == 0.0 && one.held.joules.is_none()), "{uses:?}");
}

/// What the pages of jobs ask for: it was too much for one answer.
#[tokio::test]
async fn a_day_of_many_gpus_that_often_change_hands_is_no_large_question() {
    const GPUS: i64 = 256;
    const HOLDERS: i64 = 45;
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for gpu in 0..GPUS {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for step in 0..=480_i64 {
            let holder = step * HOLDERS / 481;
            let identity = Identity::default()
                .with(IdentityColumn::Uuid, &format!("GPU-{gpu:04}"))
                .and_then(|it| it.with(IdentityColumn::Pod, &format!("pod-{gpu}-{holder}")))
                .unwrap();
            let identity = builder.intern(&identity);
            let row = builder.row(HOUR + step * 180 * SECOND, identity);
            builder.set(row, MetricId::of("power_w"), Value::Float(100.0)).unwrap();
        }
        store.append(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
    }
    for is_merged in [false, true] {
        if is_merged {
            store.flush().await.unwrap();
            store.compact().await.unwrap();
        }
        let uses = used(&store, seconds(0, 24 * 3_600)).await;
        assert_eq!(uses.len() as i64, GPUS * HOLDERS);
        let joules: f64 = uses.iter().filter_map(|one| one.held.joules).sum();
        let wanted = 100.0 * 24.0 * 3_600.0 * GPUS as f64;
        assert!((joules - wanted).abs() <= 1e-9 * wanted, "{joules}, not {wanted}");
    }
}

/// A column of 32-bit floats has 100.3 as 100.30000305: a sum of that is off by 3e-8.
#[tokio::test]
async fn the_sums_are_those_of_the_decimals_that_were_read() {
    const SECONDS: i64 = 3_600;
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-a").unwrap());
    for second in 0..=SECONDS {
        let row = builder.row(HOUR + second * SECOND, identity);
        builder.set(row, MetricId::of("power_w"), Value::Float(100.3)).unwrap();
        builder.set(row, MetricId::of("utilization_pct"), Value::Float(71.1)).unwrap();
    }
    store.append(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
    for is_merged in [false, true] {
        if is_merged {
            store.flush().await.unwrap();
            store.compact().await.unwrap();
        }
        let uses = used(&store, seconds(0, SECONDS)).await;
        assert_eq!(uses.len(), 1);
        let held = uses[0].held;
        let hour_s = SECONDS as f64;
        for (found, wanted) in [(held.joules, 100.3 * hour_s), (held.busy_s, 0.711 * hour_s)] {
            let found = found.unwrap();
            assert!((found - wanted).abs() <= 1e-9 * wanted, "{found}, not {wanted}; merged: {is_merged}");
        }
    }
}

#[tokio::test]
async fn rows_that_are_read_in_pieces_are_of_the_gpus_asked_for() {
    // Together more rows than are held at a time.
    const ROWS: i64 = 135_000;
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for start in (0..ROWS).step_by(15_000) {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in ["GPU-a", "GPU-b", "GPU-c"] {
            let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
            for second in start..start + 15_000 {
                let row = builder.row(HOUR + second * SECOND, identity);
                builder.set(row, MetricId::of("power_w"), Value::Float(100.0)).unwrap();
            }
        }
        store.append(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
        store.flush().await.unwrap();
    }
    let query = UseQuery { gpus: vec!["GPU-c".into(), "GPU-a".into()], ..seconds(0, ROWS) };
    let found = used(&store, query).await;
    let sums: Vec<(&str, f64, Option<f64>)> =
        found.iter().map(|one| (one.gpu.as_ref(), one.held.seconds, one.held.joules)).collect();
    let seconds = (ROWS - 1) as f64;
    assert_eq!(sums, ["GPU-a", "GPU-c"].map(|gpu| (gpu, seconds, Some(100.0 * seconds))));
}

/// What two jobs held of three GPUs in an hour, and whose they are, as it was known after so many minutes.
fn known_after(minutes: i64, user: &str) -> Vec<Batch> {
    let (mut used, mut told) = (BatchBuilder::new(Table::GpuUsage), BatchBuilder::new(Table::Jobs));
    let (as_of_ns, held_ns) = (HOUR + minutes * 60 * SECOND, minutes * 60 * SECOND);
    for (gpu, job) in [("GPU-a", "7"), ("GPU-b", "7"), ("GPU-c", "8")] {
        let identity = Identity::default().with(IdentityColumn::Uuid, gpu);
        let identity = used.intern(&identity.and_then(|it| it.with(IdentityColumn::Job, job)).unwrap());
        let row = used.row(HOUR, identity);
        for (column, text) in [("holder", format!("job:{job}").as_str()), ("share", "exclusive")] {
            used.set_extra_text(row, column, text).unwrap();
        }
        for (column, number) in [("run", 1), ("as_of_ns", as_of_ns), ("held_ns", held_ns)] {
            used.set_extra(row, column, Value::Int(number)).unwrap();
        }
        let host = told.intern(&Identity::default().with(IdentityColumn::Node, "node-1").unwrap());
        let row = told.row(HOUR, host);
        for (column, text) in [("job_id", job), ("step", "whole"), ("told_by", "prolog"), ("job_user", user)]
        {
            told.set_extra_text(row, column, text).unwrap();
        }
        told.set_extra(row, "as_of_ns", Value::Int(as_of_ns)).unwrap();
    }
    [used, told].into_iter().filter_map(|mut builder| builder.finish(Origin::default(), 0)).collect()
}

#[tokio::test]
async fn what_was_held_counts_once_wherever_the_versions_of_a_row_lie() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for (minutes, user) in [(20, "old"), (60, "kim"), (40, "late")] {
        // The last ones stay in memory.
        store.flush().await.unwrap();
        store.append(known_after(minutes, user)).await.unwrap();
    }
    let (start_ns, end_ns) = (HOUR, HOUR + 3_600 * SECOND);
    for is_merged in [false, true] {
        if is_merged {
            store.flush().await.unwrap();
            store.compact().await.unwrap();
        }
        let users = job_texts(&store, JobText::User, (start_ns, end_ns)).await.unwrap();
        for (told, wanted) in [
            (None, vec![("job:7", 7_200.0, 2), ("job:8", 3_600.0, 1)]),
            (Some(Arc::new(users.answer)), vec![("kim", 10_800.0, 3)]),
        ] {
            let by = HoldingGroup::Holder;
            let query = HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by, holder: None };
            let found = all_holdings(&store, &query, told).await.unwrap();
            assert_eq!(found.missing, Vec::<String>::new());
            let answer = found.answer.finish();
            let groups: Vec<_> = answer
                .groups
                .iter()
                .map(|one| (one.group.as_deref().unwrap(), one.sums.held_s.round(), one.gpus.len()))
                .collect();
            assert_eq!(groups, wanted, "merged: {is_merged}");
        }
    }
}

/// Rows of `jobs` about a job as a whole and about so many steps of it.
fn with_steps(steps: usize) -> Batch {
    let mut told = BatchBuilder::new(Table::Jobs);
    let host = Identity::default().with(IdentityColumn::Node, "node-1");
    let host = told.intern(&host.and_then(|it| it.with(IdentityColumn::Job, "7")).unwrap());
    let steps = (0..steps).map(|step| (step.to_string(), "cgroup"));
    for (step, told_by) in steps.chain([("whole".to_owned(), "prolog")]) {
        let row = told.row(HOUR, host);
        for (column, text) in [("job_id", "7"), ("step", step.as_str()), ("told_by", told_by)] {
            told.set_extra_text(row, column, text).unwrap();
        }
        told.set_extra(row, "as_of_ns", Value::Int(HOUR + SECOND)).unwrap();
    }
    told.finish(Origin::default(), 0).unwrap()
}

#[tokio::test]
async fn rows_about_steps_are_none_of_the_rows_about_jobs_that_an_answer_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    store.append(vec![with_steps(5)]).await.unwrap();
    let range = (HOUR, HOUR + 60 * SECOND);
    let jobs = batch_jobs(&store, Vec::new(), range, 1).await.unwrap();
    assert!(jobs.answer.get(None, "7", HOUR + SECOND).is_some());
    let too_many = batch_jobs(&store, Vec::new(), range, 0).await;
    assert!(matches!(too_many, Err(QueryError::TooManyRows { max: 0, .. })), "{too_many:?}");
    let steps = job_steps(&store, "7".into(), range, 5).await.unwrap();
    assert_eq!(steps.answer.of(None).len(), 5);
    let too_many = job_steps(&store, "7".into(), range, 4).await;
    assert!(matches!(too_many, Err(QueryError::TooManyRows { max: 4, .. })), "{too_many:?}");
}

#[tokio::test]
async fn who_refuses_rows_is_not_given_the_rest() {
    const GPUS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    // Each GPU lies in a part of its own.
    let config = StoreConfig { row_group_gpus: 1, page_rows: 1, ..quiet(dir.path()) };
    let (store, _) = Store::open(config).unwrap();
    store.append(vec![rows(GPUS, 0..1)]).await.unwrap();
    store.flush().await.unwrap();
    let swept = async |taken_max: usize| {
        let given = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&given);
        let take: TakeRows = Arc::new(move |_: &Batch| {
            let is_taken = count.fetch_add(1, Ordering::Relaxed) < taken_max;
            if is_taken { Ok(()) } else { Err(QueryError::TooManyPoints { max: 0 }) }
        });
        let answer = store.sweep(RowsQuery::of(Table::GpuEvents, 0), take).await;
        (answer.map(drop), given.load(Ordering::Relaxed))
    };
    let (answer, given) = swept(GPUS).await;
    answer.unwrap();
    assert_eq!(given, GPUS);
    let (answer, given) = swept(0).await;
    assert!(matches!(answer, Err(QueryError::TooManyPoints { .. })), "{answer:?}");
    // Each thread was at one of them.
    assert!(given <= 8, "{given}");
}
