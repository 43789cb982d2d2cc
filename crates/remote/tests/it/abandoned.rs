//! A question that nobody waits for any more costs the collectors no more time.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History};
use gpuvitals_core::ports::Sink;
use gpuvitals_core::{MetricId, Table};
use gpuvitals_remote::{Merged, NamedHistory};
use gpuvitals_rig::waiting::watched;
use gpuvitals_suite::{BASE_NS, TestRow, batch};
use tokio::time::Instant;

use crate::world::{Kept, Service, remote};

const SECONDS: i64 = 200;
/// Name of the threads of the collectors; those that they start have it too.
const NAME: &str = "collector";

fn row(gpu: u8, second: i64) -> TestRow {
    let (power, clock) = (Some(i16::from(gpu)), Some(1_000 + i16::from(gpu)));
    TestRow { power, clock, memory: Some(5), energy: Some(second.unsigned_abs()), ..TestRow::of(gpu, second) }
}

async fn collector() -> (Kept, Service) {
    let kept = Kept::of(|config| config);
    // All in one hour.
    let seconds: Vec<i64> = (30..30 + SECONDS).collect();
    for seconds in seconds.chunks(50) {
        let rows: Vec<TestRow> =
            seconds.iter().flat_map(|second| (0..=255).map(|gpu| row(gpu, *second))).collect();
        Sink::accept(&kept.store, vec![batch(&rows)]).await.unwrap();
    }
    kept.store.flush().await.unwrap();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    (kept, service)
}

/// Nanoseconds that the threads of the collectors have had of a core.
fn busy_ns() -> u64 {
    let of_thread = |thread: std::fs::DirEntry| {
        // A thread may have ended by now.
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let figures = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ns = figures.split(' ').next()?.parse::<u64>().ok();
        ns.filter(|_| name.trim_end() == NAME)
    };
    std::fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(of_thread).sum()
}

#[test]
fn a_question_to_several_that_is_dropped_costs_the_collectors_no_more_time() {
    let collectors =
        tokio::runtime::Builder::new_multi_thread().thread_name(NAME).enable_all().build().unwrap();
    let (a, b) = collectors.block_on(async { (collector().await, collector().await) });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (whole, took) = runtime.block_on(async {
        let member = |service| NamedHistory { name: "".into(), history: Arc::new(remote(service)) };
        let both = Merged::new(vec![member(&a.1), member(&b.1)], Duration::from_mins(1));
        let metrics = ["power_w", "gpu_clock_mhz", "memory_used_mb", "energy_mj"].map(MetricId::of).into();
        let end_ns = BASE_NS + (30 + SECONDS) * 1_000_000_000;
        let query = BucketQuery {
            aggregates: vec![Aggregate::P50, Aggregate::Mean],
            group_by: vec![GroupColumn::Gpu],
            ..BucketQuery::of(Table::GpuEvents, metrics, BASE_NS, end_ns, 1_000_000_000)
        };
        let began = Instant::now();
        both.buckets(query.clone()).await.unwrap();
        let whole = began.elapsed();
        let before = busy_ns();
        assert!(tokio::time::timeout(whole / 4, both.buckets(query)).await.is_err(), "it takes {whole:?}");
        let (dropped, mut busy) = (Instant::now(), busy_ns());
        assert!(busy - before > 10_000_000, "they had begun: {before}, {busy}");
        let (mut last, mut quiet) = (Duration::ZERO, 0);
        watched("the end of their work", || {
            let now = busy_ns();
            (last, quiet) =
                if now.abs_diff(busy) > 1_000_000 { (dropped.elapsed(), 0) } else { (last, quiet + 1) };
            busy = now;
            quiet > 20
        })
        .await;
        (whole, last)
    });
    eprintln!("a whole answer takes {whole:.0?}; dropped, the collectors worked on it for {took:.0?}");
    assert!(took < whole / 2, "{took:?} of {whole:?}");
    collectors.block_on(async {
        a.1.end().await;
        b.1.end().await;
    });
}
