//! Times of the store's questions over a fleet's hour, as `docs/performance.md` has them: 1,000 GPUs × 3,600 s × 20 gauges.
//!
//! `cargo run --release -p gpuvitals-store --example query_bench -- [GPUs] [SECONDS] [merged|lived]`
//!
//! `merged` (default): all rows in one file. `lived`: as a store at work has them, some in merged files, some in
//! small ones, the newest in memory.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvitals_core::batch::{IdentityId, Value};
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, History, RowsQuery, Selector};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, catalogue};
use gpuvitals_store::{Store, StoreConfig};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// 2026-11-20 10:00:00.
const BASE_NS: i64 = 1_795_168_800_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const GAUGES: [&str; 20] = [
    "power_w",
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_mb",
    "memory_free_mb",
    "memory_total_mb",
    "temperature_c",
    "memory_temp_c",
    "graphics_clock_mhz",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "video_clock_mhz",
    "energy_mj",
    "power_limit_w",
    "fan_pct",
    "encoder_utilization_pct",
    "decoder_utilization_pct",
    "pcie_generation",
    "pcie_width",
    "pcie_replay_count",
];

fn main() -> Fallible {
    let mut arguments = std::env::args().skip(1);
    let gpus: u32 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: i64 = arguments.next().map_or(Ok(3600), |text| text.parse())?;
    let lived = arguments.next().as_deref() == Some("lived");
    let metrics: Vec<MetricId> = GAUGES
        .iter()
        .filter_map(|name| catalogue::by_column(name).or_else(|| catalogue::by_alias(name)))
        .collect();
    let dir = tempfile::tempdir()?;
    let mut config = StoreConfig::new(dir.path());
    if !lived {
        config.flush_rows = usize::MAX;
        config.flush_bytes = 4 << 30;
        config.flush_age = Duration::from_hours(24);
    }
    let (store, _) = Store::open(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let started = now();
    fill(&runtime, &store, &metrics, gpus, seconds, if lived { 1 } else { 10 })?;
    if !lived {
        runtime.block_on(store.flush())?;
    }
    let rows = i64::from(gpus) * seconds;
    println!("{rows} rows of {} gauges in {:.1} s", metrics.len(), started.elapsed().as_secs_f64());
    println!("{:?}", store.stats());
    println!("milliseconds:");
    ask(&runtime, &store, gpus, seconds)
}

#[expect(clippy::disallowed_methods, reason = "a bench asks the clock")]
fn now() -> Instant {
    Instant::now()
}

fn fill(
    runtime: &tokio::runtime::Runtime,
    store: &Store,
    metrics: &[MetricId],
    gpus: u32,
    seconds: i64,
    append_s: i64,
) -> Fallible {
    let mut noise = 0x9E37_79B9_u32;
    let mut second = 0;
    while second < seconds {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let ids: Vec<IdentityId> =
            (0..gpus).map(|gpu| Ok(builder.intern(&identity(gpu)?))).collect::<Fallible<_>>()?;
        for at in second..(second + append_s).min(seconds) {
            for (&id, gpu) in ids.iter().zip(0_u32..) {
                let row = builder.row(BASE_NS + at * SECOND_NS, id);
                for (&metric, column) in metrics.iter().zip(0_u32..) {
                    // Four columns of noise, the others mostly still: as real ones are.
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let still = gpu % 17 + column;
                    let value = if column < 4 { still + (noise >> 26) } else { still };
                    let value = match metric.metric().column_type {
                        ColumnType::F32 | ColumnType::F64 => {
                            Value::Float(f64::from(value) + f64::from(noise >> 22) / 1024.0)
                        }
                        ColumnType::I32 | ColumnType::I64 => Value::Int(value.into()),
                    };
                    // A value out of the metric's range is left out, as anywhere.
                    let _refused = builder.set(row, metric, value);
                }
            }
        }
        second += append_s;
        let Some(batch) = builder.finish(Origin::default(), second.unsigned_abs()) else { continue };
        runtime.block_on(store.append(vec![batch]))?;
    }
    Ok(())
}

fn identity(gpu: u32) -> Fallible<Identity> {
    let mut identity = Identity::default();
    identity.index = i32::try_from(gpu % 8).ok();
    let texts = [
        (IdentityColumn::Uuid, format!("GPU-{gpu:08x}-86f3-7a43-b711-4771313afc50")),
        (IdentityColumn::Node, format!("node-{:04}", gpu / 8)),
        (IdentityColumn::Vendor, "nvidia".to_owned()),
        (IdentityColumn::Model, "NVIDIA H100 80GB HBM3".to_owned()),
        (IdentityColumn::Pci, format!("0000:{:02x}:00.0", gpu % 8)),
        (IdentityColumn::Source, gpuvitals_core::identity::SIMULATED.to_owned()),
    ];
    for (column, text) in texts {
        identity.set(column, &text)?;
    }
    Ok(identity)
}

/// CPU time of all threads so far, in milliseconds.
fn cpu_ms() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).map_or(0.0, |spent| spent.as_secs_f64() * 1e3)
}

/// First and median time of a query, and its CPU time, in milliseconds.
fn time<T>(name: &str, runs: usize, mut question: impl FnMut() -> Fallible<T>) -> Fallible {
    let mut times = Vec::with_capacity(runs);
    let cpu = cpu_ms();
    for _ in 0..runs {
        let started = now();
        std::hint::black_box(question()?);
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let first = times.first().copied().unwrap_or_default();
    let cpu = (cpu_ms() - cpu) / f64::from(u32::try_from(runs)?);
    times.sort_by(f64::total_cmp);
    let median = times.get(runs / 2).copied().unwrap_or_default();
    println!("{name:<44} first {first:9.3}   p50 {median:9.3}   CPU {cpu:9.3}");
    Ok(())
}

fn ask(runtime: &tokio::runtime::Runtime, store: &Store, gpus: u32, seconds: i64) -> Fallible {
    let one: Vec<Arc<str>> = identity(gpus / 2)?.key().into_iter().collect();
    let page = |gpus: &[Arc<str>]| RowsQuery {
        gpus: gpus.to_vec(),
        newest_first: true,
        with_total: true,
        ..RowsQuery::of(Table::GpuEvents, 500)
    };
    let last_ns = BASE_NS + (seconds - 1) * SECOND_NS;
    let power = catalogue::by_column("power_w").ok_or("no power")?;
    let buckets =
        |gpus: &[Arc<str>], start_ns, aggregates: &[Aggregate], group_by: &[GroupColumn]| BucketQuery {
            table: Table::GpuEvents,
            gpus: gpus.to_vec(),
            selector: Selector::default(),
            metrics: vec![power],
            start_ns,
            end_ns: last_ns,
            step_ns: 60 * SECOND_NS,
            phase_ns: 0,
            aggregates: aggregates.to_vec(),
            group_by: group_by.to_vec(),
        };
    let rows = |query: &RowsQuery| Ok(runtime.block_on(store.rows(query.clone()))?);
    let values = |query: &BucketQuery| Ok(runtime.block_on(store.buckets(query.clone()))?);
    let with_p99 = [Aggregate::Mean, Aggregate::Max, Aggregate::P99];
    let (all, ten_minutes) = (Vec::new(), last_ns - 600 * SECOND_NS);
    time("one GPU raw, newest 500", 100, || rows(&page(&one)))?;
    let slim = RowsQuery { metrics: Some(vec!["power_w".to_owned()]), ..page(&one) };
    time("one GPU raw, newest 500, power only", 100, || rows(&slim))?;
    time("fleet raw, newest 500", 20, || rows(&page(&all)))?;
    let one_hour = buckets(&one, BASE_NS, &with_p99, &[GroupColumn::Gpu]);
    time("one GPU, 1 h, avg/max/p99 per minute", 100, || values(&one_hour))?;
    let fleet = buckets(&all, BASE_NS, &with_p99, &[]);
    time("fleet, 1 h, avg/max/p99 per minute", 20, || values(&fleet))?;
    let fleet = buckets(&all, BASE_NS, &with_p99[..2], &[]);
    time("fleet, 1 h, avg/max per minute", 20, || values(&fleet))?;
    let each = buckets(&all, BASE_NS, &with_p99, &[GroupColumn::Gpu]);
    time("each GPU, 1 h, avg/max/p99 per minute", 20, || values(&each))?;
    let each = buckets(&all, ten_minutes, &with_p99[..1], &[GroupColumn::Gpu]);
    time("each GPU, 10 min, avg (for a top 10)", 20, || values(&each))
}
