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

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History, RowsQuery, Selector};
use gpuvitals_core::{
    Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, catalogue, wire,
};
use gpuvitals_store::{LevelStats, Store, StoreConfig};

const GPUS: usize = 1_000;
/// Rows made at a time: about 3 MB.
const SLICE_ROWS: usize = 20_000;
const START: i64 = 1_795_168_800_000_000_000;
const COLUMNS: [&str; 10] = [
    "power_w",
    "temperature_c",
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_mb",
    "gpu_clock_mhz",
    "mem_clock_mhz",
    "energy_j",
    "encoder_utilization_pct",
    "decoder_utilization_pct",
];

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn identities() -> Vec<Identity> {
    (0..GPUS)
        .filter_map(|gpu| {
            let uuid = format!("GPU-{gpu:08x}-5fd4-f087-86f3-7a43b7114771");
            let mut identity = Identity::default()
                .with(IdentityColumn::Uuid, &uuid)
                .and_then(|i| i.with(IdentityColumn::Node, &format!("node-{:03}", gpu / 8)))
                .and_then(|i| i.with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3"))
                .and_then(|i| i.with(IdentityColumn::Vendor, "nvidia"))
                .and_then(|i| i.with(IdentityColumn::Pci, &format!("0000:{:02x}:00.0", gpu % 8)))
                .and_then(|i| i.with(IdentityColumn::Driver, "550.54.15"))
                .and_then(|i| i.with(IdentityColumn::Source, "simulated"))
                .ok()?;
            identity.index = i32::try_from(gpu % 8).ok();
            Some(identity)
        })
        .collect()
}

/// Makes rows, GPU by GPU and second by second.
struct Maker {
    metrics: Vec<MetricId>,
    identities: Vec<Identity>,
    random: Random,
    energy: Vec<u64>,
    row: usize,
}

impl Maker {
    fn new() -> Self {
        let metrics: Vec<MetricId> = COLUMNS.iter().filter_map(|name| catalogue::by_column(name)).collect();
        assert_eq!(metrics.len(), COLUMNS.len(), "the catalogue lacks a column");
        let random = Random(0x9e37_79b9_7f4a_7c15);
        Self { metrics, identities: identities(), random, energy: vec![0; GPUS], row: 0 }
    }

    fn values(&mut self, gpu: usize, second: usize) -> [f64; 10] {
        let random = &mut self.random;
        let busy = (gpu + second / 600).is_multiple_of(2);
        let power = if busy { 500_000 + random.next(200_000) } else { 70_000 + random.next(8_000) };
        self.energy[gpu] += power;
        let mut noise = |from: u64, below: u64| if busy { (from + random.next(below)) as f64 } else { 0.0 };
        let [load, memory, heat] = [noise(95, 6), noise(40, 20), noise(28, 6)];
        let (used, clock) = if busy { (71_000.0, 1_980.0) } else { (4.0, 345.0) };
        let energy = self.energy[gpu] as f64 / 1000.0;
        [power as f64 / 1000.0, 32.0 + heat, load, memory, used, clock, 2_619.0, energy, 0.0, 0.0]
    }

    fn batch(&mut self, rows: usize) -> Option<Batch> {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for _ in 0..rows {
            let (second, gpu) = (self.row / GPUS, self.row % GPUS);
            let id = builder.intern(&self.identities[gpu]);
            let id = builder.row(START + i64::try_from(second).unwrap_or(0) * 1_000_000_000, id);
            for (metric, value) in self.metrics.clone().into_iter().zip(self.values(gpu, second)) {
                let _ranged = builder.set(id, metric, Value::Float(value));
            }
            self.row += 1;
        }
        let batch = builder.finish(Origin::default(), 0)?;
        // As a collector has it: decoded from bytes that the log takes as they are.
        wire::decode_keeping(&wire::encode(&batch).ok()?).ok()
    }
}

fn cpu() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec.unsigned_abs(), u32::try_from(clock.tv_nsec).unwrap_or(0))
}

fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    let kib: f64 = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}

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
    let mut maker = Maker::new();
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
