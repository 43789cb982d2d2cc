//! How fast the store takes rows: `cargo run --release -p gpuvitals-store --example ingest_bench -- DIR [ROWS] [BATCH] [WRITERS] [FLUSH_ROWS]`
//!
//! Rows of 1,000 simulated GPUs with ten metrics each, one a second, in batches of BATCH rows that WRITERS tasks send at
//! once. Prints rows per second up to the last acknowledgement (every one synced), and with everything in files; CPU
//! and peak memory of the whole process without the making of the rows; bytes on disk before and after merging; and
//! how long some questions take.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

mod made;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History, RowsQuery, Selector};
use gpuvitals_core::{Batch, Table, catalogue, wire};
use gpuvitals_store::{LevelStats, Store, StoreConfig};
use made::{Maker, START, cpu, memory_mib};

/// Rows made at a time: about 3 MB.
const SLICE_ROWS: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("DIR is missing")?);
    let mut number = |default: usize| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (rows, batch_rows, writers) = (number(3_600_000), number(500), number(4));
    // Within the six seconds of calm that are waited for below.
    let merge_after = Duration::from_secs(2);
    let config = StoreConfig { flush_rows: number(400_000), merge_after, ..StoreConfig::new(dir) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(run(config, rows, batch_rows, writers))
}

/// As many tasks as there are writers, each with one append at a time.
async fn send(store: &Store, batches: VecDeque<Batch>, writers: usize) {
    let work = Arc::new(Mutex::new(batches));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..writers {
        let (store, work) = (store.clone(), Arc::clone(&work));
        tasks.spawn(async move {
            loop {
                let next = work.lock().ok().and_then(|mut work| work.pop_front());
                let Some(item) = next else { return };
                if let Err(error) = store.append(vec![item]).await {
                    println!("append: {error}");
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn run(
    config: StoreConfig,
    rows: usize,
    batch_rows: usize,
    writers: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let (store, found) = Store::open(config)?;
    println!("opened: {} files, {} rows, {} replayed", found.files, found.file_rows, found.log_rows);
    let (mut wall, mut used, mut wire_bytes, mut done) = (Duration::ZERO, Duration::ZERO, 0, 0);
    let mut maker = Maker::new(1_000_000_000);
    while done < rows {
        // Made in slices, so that unsent rows take little memory; the making is not counted.
        let part: VecDeque<Batch> =
            (0..SLICE_ROWS / batch_rows).filter_map(|_| maker.batch(batch_rows)).collect();
        wire_bytes += part.iter().flat_map(wire::encode).map(|bytes| bytes.len()).sum::<usize>();
        done += part.iter().map(Batch::rows).sum::<usize>();
        let (begun, cpu_begun) = (Instant::now(), cpu());
        send(&store, part, writers).await;
        wall += begun.elapsed();
        used += cpu().saturating_sub(cpu_begun);
    }
    let rate = |wall: Duration| done as f64 / wall.as_secs_f64();
    println!(
        "acknowledged: {done} rows in {:.2} s = {:.0} rows/s, CPU {:.2} s",
        wall.as_secs_f64(),
        rate(wall),
        used.as_secs_f64()
    );
    println!(
        "wire and log: {:.1} bytes a row; syncs {}",
        wire_bytes as f64 / done as f64,
        store.stats().log_syncs
    );
    let (begun, cpu_begun) = (Instant::now(), cpu());
    store.flush().await?;
    wall += begun.elapsed();
    used += cpu().saturating_sub(cpu_begun);
    println!(
        "in files:     {:.0} rows/s, CPU {:.2} s = {:.2} us a row",
        rate(wall),
        used.as_secs_f64(),
        used.as_secs_f64() * 1e6 / done as f64
    );
    let begun = cpu();
    let mut news = tokio::time::interval(Duration::from_millis(50));
    let mut merges = u64::MAX;
    let mut calm = 0;
    while calm < 120 {
        news.tick().await;
        let now = store.stats().merges;
        calm = if now == merges { calm + 1 } else { 0 };
        merges = now;
    }
    let (stats, used) = (store.stats(), cpu().saturating_sub(begun));
    println!("merging:      CPU {:.2} s, {} merges", used.as_secs_f64(), stats.merges);
    show("as flushed", stats.flushed);
    show("merged", stats.merged);
    show("rollups", stats.rollups);
    println!("memory: peak {:.0} MiB, now {:.0} MiB", memory_mib("VmHWM:"), memory_mib("VmRSS:"));
    ask(&store).await?;
    store.close().await?;
    Ok(())
}

fn show(name: &str, files: LevelStats) {
    let a_row = files.bytes as f64 / files.rows as f64;
    println!("{name}: {} files, {a_row:.2} bytes a row = {:.3} a sample", files.files, a_row / 10.0);
}

async fn ask(store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    let key = store.fleet().gpus.first().map(|gpu| Arc::clone(&gpu.key)).ok_or("no GPU")?;
    let range = RowsQuery {
        gpus: vec![Arc::clone(&key)],
        newest_first: true,
        with_total: true,
        ..RowsQuery::of(Table::GpuEvents, 500)
    };
    let buckets = BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: catalogue::by_column("power_w").into_iter().collect(),
        start_ns: START,
        end_ns: START + 3_599_999_999_999,
        step_ns: 60_000_000_000,
        phase_ns: 0,
        aggregates: vec![Aggregate::Mean, Aggregate::Max],
        group_by: vec![GroupColumn::Gpu],
    };
    let one = BucketQuery { gpus: vec![key], ..buckets.clone() };
    time("fleet", async || Ok(Some(store.fleet().gpus.len()))).await?;
    time("one GPU, newest 500", async || Ok(store.rows(range.clone()).await?.answer.total)).await?;
    let series = async |query: &BucketQuery| {
        Ok(Some(store.buckets(query.clone()).await?.answer.series(&query.aggregates).len()))
    };
    time("one GPU, hour by minute", async || series(&one).await).await?;
    time("all GPUs, hour by minute", async || series(&buckets).await).await
}

async fn time(
    name: &str,
    work: impl AsyncFn() -> Result<Option<usize>, Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    let mut size = None;
    for _ in 0..21 {
        let begun = Instant::now();
        size = work().await?;
        times.push(begun.elapsed());
    }
    let first = times.remove(0);
    times.sort();
    println!("{name}: first {first:.1?}, then {:.1?} ({size:?})", times[times.len() / 2]);
    Ok(())
}
