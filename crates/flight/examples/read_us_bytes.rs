//! How many bytes of a ring say how long readings took: its records of rows of GPUs are packed again, with the column `read_us` and
//! without it.
//!
//! `cargo run --release -p gpuvitals-flight --example read_us_bytes -- DIRECTORY/ring`
//!
//! Expected: 2 % of these records at most. It reads beside the agent whose ring it is.
#![expect(clippy::print_stdout, reason = "a measuring program")]

use std::error::Error;
use std::path::Path;

use gpuvitals_core::Batch;
use gpuvitals_core::batch::READ_US_COLUMN;
use gpuvitals_core::wire::{WireError, pack, unpack};
use gpuvitals_log::read_beside;

/// The kind of records with rows of `gpu_events`, and the bytes before their rows (`crates/flight/src/ring.rs`).
const GPU_ROWS: u8 = 1;
const TIMES_LEN: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(ring) = std::env::args().nth(1) else {
        return Err("usage: read_us_bytes DIRECTORY/ring".into());
    };
    let (mut records, mut rows, mut with, mut without) = (0, 0, 0, 0);
    for record in read_beside(Path::new(&ring))? {
        let record = record?;
        let Some(packed) = record.payload.get(TIMES_LEN..).filter(|_| record.kind == GPU_ROWS) else {
            continue;
        };
        let batch = unpack(packed)?;
        records += 1;
        rows += batch.rows();
        with += packed_len(&batch)?;
        without += packed_len(&batch.without_foreign(|name| name == READ_US_COLUMN))?;
    }
    if with == 0 {
        return Err(format!("{ring} has no row of a GPU").into());
    }
    let hundredths = with.saturating_sub(without) * 10_000 / with;
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    println!("read_us {whole}.{rest:02} % of {with} bytes: {records} records with {rows} rows of GPUs");
    Ok(())
}

fn packed_len(batch: &Batch) -> Result<usize, WireError> {
    let mut bytes = Vec::new();
    pack(batch, &mut bytes)?;
    Ok(bytes.len())
}
