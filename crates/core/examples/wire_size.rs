//! Bytes a row and rows a second of the wire form, beside Arrow IPC with zstd on the same columns.
//! `cargo run --release -p gpuvitals-core --example wire_size`
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program"
)]
#![expect(clippy::cast_precision_loss, reason = "rates for people")]

use std::time::Instant;

use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::by_column;
use gpuvitals_core::wire::{decode, encode};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};

const METRICS: [(&str, f64, f64); 10] = [
    ("utilization_pct", 0.0, 1.0),
    ("memory_utilization_pct", 0.0, 1.0),
    ("power_w", 66.0, 0.001),
    ("temperature_c", 26.0, 1.0),
    ("memory_used_mb", 4.0, 16.0),
    ("memory_free_mb", 4.0, 16.0),
    ("gpu_clock_mhz", 1965.0, 15.0),
    ("mem_clock_mhz", 2619.0, 0.0),
    ("encoder_utilization_pct", 0.0, 0.0),
    ("decoder_utilization_pct", 0.0, 0.0),
];

fn batch(rows: u32) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut state = 7_u64;
    for row in 0..rows {
        let identity = Identity::default()
            .with(IdentityColumn::Uuid, &format!("GPU-5fd4f087-86f3-7a43-b711-{:012}", row % 64))
            .and_then(|i| i.with(IdentityColumn::Node, &format!("mtv5-dgx1-hgpu-{:03}", row % 64 / 8)))
            .and_then(|i| i.with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3"))
            .unwrap();
        let id = builder.intern(&identity);
        let at = builder.row(1_750_000_000_000_000_000 + i64::from(row / 64) * 1_000_000_000, id);
        for (name, low, step) in METRICS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = f64::from(u32::try_from(state >> 58).unwrap());
            builder.set(at, by_column(name).unwrap(), Value::Float(low + step * noise)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

fn ipc(batch: &Batch) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(batch.records()).unwrap();
    writer.into_inner().unwrap()
}

fn rate(rows: u32, mut work: impl FnMut()) -> f64 {
    let rounds = 400_000 / rows;
    let start = Instant::now();
    (0..rounds).for_each(|_| work());
    f64::from(rounds * rows) / start.elapsed().as_secs_f64()
}

fn main() {
    println!(
        "{:>6} {:>12} {:>12} {:>14} {:>14} {:>14}",
        "rows", "ours B/row", "IPC B/row", "encode rows/s", "IPC rows/s", "decode rows/s"
    );
    for rows in [8, 100, 500] {
        let batch = batch(rows);
        let (ours, theirs) = (encode(&batch).unwrap(), ipc(&batch));
        println!(
            "{rows:>6} {:>12.1} {:>12.1} {:>14.0} {:>14.0} {:>14.0}",
            ours.len() as f64 / f64::from(rows),
            theirs.len() as f64 / f64::from(rows),
            rate(rows, || drop(encode(&batch).unwrap())),
            rate(rows, || drop(ipc(&batch))),
            rate(rows, || drop(decode(&ours).unwrap())),
        );
    }
}
