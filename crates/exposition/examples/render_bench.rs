//! Cost of a scrape: `cargo run --release -p gpuvitals-exposition --example render_bench`.
//!
//! Eight GPUs with every column of the catalogue, sampled at 100 Hz for two windows; then scrapes, while the
//! values keep changing. Napkin calculation: some 2,400 series of 150 bytes, 20 ns of copying and 50 ns for a
//! number each, so 0.2 ms.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark by hand: it prints, stops when it is wrong, and measures time"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{ColumnType, Series, Table, gpu_metrics};
use gpuvitals_core::figures::Format;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition, ExpositionConfig};

const GPUS: i32 = 8;
const SCRAPES: u32 = 500;
const S: i64 = 1_000_000_000;
const BEGIN: i64 = 1_752_840_000 * S;
const RATE: i64 = 100;

fn main() {
    let gpus: Vec<Arc<Identity>> = (0..GPUS).map(identity).collect();
    let devices: Vec<DeviceStatus> = gpus.iter().map(up).collect();
    for (set, compat) in [
        (Series::Standard, Compat::Off),
        (Series::Standard, Compat::Dcgm),
        (Series::Standard, Compat::Both),
        (Series::All, Compat::Both),
    ] {
        let window = Duration::from_secs(30);
        let mut exposition =
            Exposition::new(ExpositionConfig { set, compat, window, interval: Duration::ZERO });
        let mut observed = Duration::ZERO;
        for second in 0..61 {
            for gpu in &gpus {
                let batch = second_of(gpu, BEGIN + second * S);
                let begin = Instant::now();
                exposition.observe(&batch);
                observed += begin.elapsed();
            }
        }
        let mut out = Vec::new();
        let mut times = Vec::new();
        for scrape in 0..SCRAPES {
            let now_ns = BEGIN + 61 * S + i64::from(scrape) * 1_000_000;
            let begin = Instant::now();
            exposition.render(Format::Prometheus, now_ns, &devices, &[], &mut out);
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        let series = out.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).count() - 1;
        let (median, last) =
            (times.get(times.len() / 2).unwrap(), times.get(times.len() * 99 / 100).unwrap());
        let row_ns = observed.as_nanos() / (61 * u128::try_from(RATE).unwrap() * gpus.len() as u128);
        println!(
            "{set} {compat:?}: {series} series, {} KiB; scrape median {median:?}, p99 {last:?}; observe {row_ns} ns a row",
            out.len() / 1024,
        );
    }
}

fn identity(index: i32) -> Arc<Identity> {
    let mut identity = Identity::default();
    identity.index = Some(index);
    let uuid = format!("GPU-5fd4f087-86f3-7a43-b711-47713{index:07}");
    let pci = format!("0000:{index:02x}:00.0");
    for (column, text) in [
        (IdentityColumn::Node, "gpu-node-031"),
        (IdentityColumn::Uuid, &uuid),
        (IdentityColumn::Vendor, "nvidia"),
        (IdentityColumn::Model, "NVIDIA H100 80GB HBM3"),
        (IdentityColumn::Pci, &pci),
        (IdentityColumn::Driver, "535.129.03"),
        (IdentityColumn::Pod, "llm-train-worker-0"),
        (IdentityColumn::Namespace, "research"),
        (IdentityColumn::Container, "main"),
    ] {
        identity.set(column, text).unwrap();
    }
    Arc::new(identity)
}

fn up(identity: &Arc<Identity>) -> DeviceStatus {
    DeviceStatus {
        identity: Arc::clone(identity),
        sharers: Vec::new(),
        up: true,
        reason: None,
        stuck: false,
        since_ns: BEGIN,
        update_interval: Some(Duration::from_millis(100)),
    }
}

/// A second of rows with every column, floats with fractions in them.
fn second_of(identity: &Arc<Identity>, from_ns: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.add_identity(identity);
    for tick in 0..RATE {
        let row = builder.row(from_ns + tick * S / RATE, id);
        for (metric, facts) in gpu_metrics() {
            let (low, high) = facts.range;
            let share = f64::from(i32::try_from(tick).unwrap()) / 301.7 + 0.1;
            let value = low.max(0.0) + (high.min(1e6) - low.max(0.0)) * share;
            let value = match facts.column_type {
                #[expect(clippy::cast_possible_truncation, reason = "at most a million")]
                ColumnType::I32 | ColumnType::I64 => Value::Int(value as i64),
                #[expect(clippy::cast_possible_truncation, reason = "the column's type")]
                ColumnType::F32 => Value::Float32(value as f32),
                ColumnType::F64 => Value::Float(value),
            };
            builder.set(row, metric, value).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}
