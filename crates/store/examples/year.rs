//! A year of a fleet in one store: `cargo run --release -p gpuvitals-store --example year -- DIR [DAYS] [SECONDS]`
//!
//! 1,000 made-up GPUs with ten metrics, a row every SECONDS (60) of each, as fast as the store takes them; merges and rollups
//! run as they do at work. Prints files and bytes of each grain, and how long questions take: first in a store that was just
//! opened, then the median.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a measurement"
)]

mod made;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History, RowsQuery, Selector};
use gpuvitals_core::{Table, catalogue};
use gpuvitals_store::{Store, StoreConfig};
use made::{GPUS, Maker, START, cpu, memory_mib};

type Fallible<T = ()> = Result<T, Box<dyn std::error::Error>>;

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;
/// Steps of one batch.
const STEPS_AT_ONCE: usize = 10;

fn main() -> Fallible {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("DIR is missing")?);
    let mut number = |default: i64| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (days, seconds) = (number(365), number(60));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        if !dir.join("wal").exists() {
            write(&dir, days, seconds * SECOND_NS).await?;
        }
        show(&dir)?;
        ask(&dir, days).await
    })
}

async fn write(dir: &Path, days: i64, step_ns: i64) -> Fallible {
    let (store, _) = Store::open(StoreConfig::new(dir))?;
    let mut maker = Maker::new(step_ns);
    let (begun, mut rows) = (Instant::now(), 0);
    let mut next = Some(made_batch(&mut maker)?);
    for at in 1..=days * DAY_NS / step_ns / i64::try_from(STEPS_AT_ONCE)? {
        let Some(batch) = next.take() else { break };
        rows += batch.rows();
        // The next batch is made while this one is written.
        let (written, made) = tokio::join!(store.append(vec![batch]), async {
            made_batch(&mut maker).map_err(|e| e.to_string())
        });
        written?;
        next = Some(made?);
        if at % (30 * DAY_NS / step_ns / 10) == 0 {
            println!(
                "{rows} rows after {:.0} s, memory {:.0} MiB",
                begun.elapsed().as_secs_f64(),
                memory_mib("VmRSS:")
            );
        }
    }
    store.flush().await?;
    let taken = begun.elapsed().as_secs_f64();
    store.compact().await?;
    println!(
        "{rows} rows: {taken:.0} s, {:.0} rows/s with the making of rows; last merges {:.0} s; CPU {:.0} s; peak {:.0} MiB",
        rows as f64 / taken,
        begun.elapsed().as_secs_f64() - taken,
        cpu().as_secs_f64(),
        memory_mib("VmHWM:")
    );
    Ok(store.close().await?)
}

fn made_batch(maker: &mut Maker) -> Fallible<gpuvitals_core::Batch> {
    maker.batch(GPUS * STEPS_AT_ONCE).ok_or_else(|| "no batch".into())
}

fn show(dir: &Path) -> Fallible {
    for table in &gpuvitals_store::contents(dir)?.tables {
        println!("{table:?}");
    }
    Ok(())
}

async fn ask(dir: &Path, days: i64) -> Fallible {
    let end_ns = START + days * DAY_NS;
    let (store, _) = Store::open(StoreConfig { merge: false, ..StoreConfig::new(dir) })?;
    let key = store.fleet().gpus.first().map(|gpu| Arc::clone(&gpu.key)).ok_or("no GPU")?;
    store.close().await?;
    drop(store);
    let fleet = |aggregate, step_ns: i64, days: i64| BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: catalogue::by_column("power_w").into_iter().collect(),
        start_ns: end_ns - days * DAY_NS,
        end_ns: end_ns - 1,
        step_ns,
        phase_ns: 0,
        aggregates: vec![aggregate],
        group_by: Vec::new(),
    };
    let one = |step_ns, days| BucketQuery {
        gpus: vec![Arc::clone(&key)],
        group_by: vec![GroupColumn::Gpu],
        ..fleet(Aggregate::Mean, step_ns, days)
    };
    let p99 = Aggregate::Quantile(99);
    let questions = [
        ("fleet's mean power by day, all days", fleet(Aggregate::Mean, DAY_NS, days)),
        ("fleet's p99 of power by day, all days", fleet(p99, DAY_NS, days)),
        ("fleet's mean power by hour, 30 days", fleet(Aggregate::Mean, DAY_NS / 24, 30.min(days))),
        ("fleet's mean power by 10 min, 1 day", fleet(Aggregate::Mean, DAY_NS / 144, 1)),
        ("one GPU by day, all days", one(DAY_NS, days)),
        ("one GPU by hour, 30 days", one(DAY_NS / 24, 30.min(days))),
        ("one GPU by minute, 1 day", one(DAY_NS / 1_440, 1)),
    ];
    for (name, query) in questions {
        let (store, _) = Store::open(StoreConfig { merge: false, ..StoreConfig::new(dir) })?;
        time(name, async || {
            let found = store.buckets(query.clone()).await?;
            Ok(format!("{} ms rollup", found.answer.rollup_ns() / 1_000_000))
        })
        .await?;
        store.close().await?;
    }
    let (store, _) = Store::open(StoreConfig { merge: false, ..StoreConfig::new(dir) })?;
    let page = RowsQuery { gpus: vec![key], newest_first: true, ..RowsQuery::of(Table::GpuEvents, 500) };
    time("one GPU, newest 500 rows", async || {
        let found = store.rows(page.clone()).await?;
        Ok(format!("{} rows", found.answer.batch.map_or(0, |batch| batch.rows())))
    })
    .await?;
    Ok(())
}

async fn time(name: &str, work: impl AsyncFn() -> Fallible<String>) -> Fallible {
    let (mut times, mut found) = (Vec::new(), String::new());
    for _ in 0..11 {
        let begun = Instant::now();
        found = work().await?;
        times.push(begun.elapsed());
    }
    let first = times.remove(0);
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or(Duration::ZERO);
    println!("{name}: first {first:.1?}, then {median:.1?} ({found})");
    Ok(())
}
