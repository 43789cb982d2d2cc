//! Times and memory of the use of GPUs (`/analysis/energy`, `/idle`): a row a minute, of GPUs that change hands.
//!
//! `cargo run --release -p gpuvitals-store --example usage_bench -- [GPUs] [DAYS] [HOLDERS]`
//!
//! Without arguments 10,000 GPUs over 7 days, each held by 50 pods one after another: 101 million rows. The rows are simulated.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and asks the clock")]

use std::error::Error;
use std::time::Instant;

use gpuvitals_core::batch::{IdentityId, Value};
use gpuvitals_core::history::History;
use gpuvitals_core::usage::UseQuery;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_store::{Store, StoreConfig};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// 2026-11-20 00:00:00.
const BASE_NS: i64 = 1_795_132_800_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;
const DAY_MINUTES: i64 = 1_440;
/// Rows of a batch, which may have 65,536.
const ROWS_AT_ONCE: i64 = 50_000;

fn main() -> Fallible {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<i64>());
    let mut next = |otherwise: i64| arguments.next().unwrap_or(Ok(otherwise));
    let (gpus, days, holders) = (next(10_000)?, next(7)?, next(50)?);
    let minutes = days * DAY_MINUTES;
    let dir = tempfile::tempdir()?;
    let (store, _) = Store::open(StoreConfig::new(dir.path()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let begun = Instant::now();
    let at_once = (ROWS_AT_ONCE / gpus.max(1)).max(1);
    for start in (0..minutes).step_by(usize::try_from(at_once)?) {
        let batch = rows(gpus, start..(start + at_once).min(minutes), minutes / holders.max(1) + 1)?;
        runtime.block_on(store.append(vec![batch]))?;
    }
    runtime.block_on(async {
        store.flush().await?;
        store.compact().await
    })?;
    println!(
        "{gpus} GPUs, {days} days, a row a minute, {holders} holders a GPU: {} rows in {:.0} s",
        gpus * minutes,
        begun.elapsed().as_secs_f64()
    );
    let ends = [
        ("whole", 0, minutes),
        ("cut", 17, minutes - 23),
        ("a day", 333, 333 + DAY_MINUTES),
        ("an hour", 90, 150),
    ];
    for (name, from, to) in ends {
        let query = UseQuery::of(BASE_NS + from * MINUTE_NS, BASE_NS + to * MINUTE_NS);
        // The highest resident set is counted from here on.
        std::fs::write("/proc/self/clear_refs", "5")?;
        let before = resident("VmRSS")?;
        let asked = Instant::now();
        let part = runtime.block_on(store.usage(query))?;
        let seconds = asked.elapsed().as_secs_f64();
        let joules: f64 = part.answer.iter().filter_map(|one| one.held.joules).sum();
        println!(
            "{name}: {seconds:.2} s, {} MiB more at most, {} uses, {:.0} kWh",
            resident("VmHWM")?.saturating_sub(before) / 1024,
            part.answer.len(),
            joules / 3.6e6
        );
    }
    Ok(())
}

/// A figure of this process's memory, KiB.
fn resident(name: &str) -> Fallible<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such figure")?;
    Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse()?)
}

fn rows(gpus: i64, minutes: std::ops::Range<i64>, hold: i64) -> Fallible<gpuvitals_core::Batch> {
    let metrics =
        ["power_w", "utilization_pct", "energy_mj", "memory_used_mb", "temperature_c"].map(MetricId::of);
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for gpu in 0..gpus {
        let mut of: Option<(i64, IdentityId)> = None;
        for minute in minutes.clone() {
            let holder = (minute + gpu) / hold;
            let identity = match of {
                Some((same, identity)) if same == holder => identity,
                _ => builder.intern(&identity(gpu, holder)?),
            };
            of = Some((holder, identity));
            let row = builder.row(BASE_NS + minute * MINUTE_NS, identity);
            let busy = (holder + gpu) % 5 != 0;
            let noise = (minute * 7_919 + gpu * 104_729) % 97;
            let watts = if busy { 500 + noise } else { 70 };
            let values =
                [watts, if busy { 90 } else { 0 }, 60_000 * 520 * minute, 40_000 + noise, 40 + noise / 4];
            for (metric, value) in metrics.into_iter().zip(values) {
                builder.set(row, metric, Value::Int(value))?;
            }
        }
    }
    Ok(builder.finish(Origin::default(), 0).ok_or("no rows")?)
}

fn identity(gpu: i64, holder: i64) -> Fallible<Identity> {
    let identity = Identity::default()
        .with(IdentityColumn::Uuid, &format!("GPU-{gpu:08x}-5fd4-f087-86f3-7a43b7114771"))?
        .with(IdentityColumn::Node, &format!("node-{:04}", gpu / 8))?
        .with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3")?
        .with(IdentityColumn::Namespace, &format!("team-{}", gpu % 20))?
        .with(IdentityColumn::Pod, &format!("train-{gpu}-{holder}"))?
        .with(IdentityColumn::Source, "simulated")?;
    Ok(identity)
}
