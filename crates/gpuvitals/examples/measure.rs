//! A measurement by a Rust program: clocks are locked, a recording runs, both end, and the rows are read back.
//!
//! `cargo run --release -p gpuvitals --example measure -- DIR`
#![expect(clippy::print_stdout, reason = "an example prints what it measured")]

use std::error::Error;
use std::path::PathBuf;

use gpuvitals_clocks::{ClockError, ClocksFound, Held, Level, Lock, find};
use gpuvitals_core::batch::Value;
use gpuvitals_core::{MetricId, Table};
use gpuvitals_record::{Recorder, RecorderConfig};
use gpuvitals_sources::machine::Machine;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("telemetry"), PathBuf::from);
    let machine = Machine::local("node1");
    let mut clocks = find(&machine, &[]);
    let held = highest(&mut clocks)?;

    let recorder = Recorder::start(RecorderConfig::new(&directory, machine))?;
    recorder.mark("work begins")?;
    let sum = work();
    recorder.mark("work ends")?;
    let recorded = recorder.stop()?;

    // Dropped, they would give the clocks back as well, and could not say that this failed.
    for clocks in held {
        clocks.give_back()?;
    }
    let (mut rows, mut most_w) = (0, None);
    for batch in recorded.data()? {
        let batch = batch?;
        if batch.table() != Table::GpuEvents {
            continue;
        }
        rows += batch.rows();
        let Some(power) = batch.metric(MetricId::of("power_w")) else { continue };
        let watts = (0..batch.rows()).filter_map(|row| power.value(row)).map(Value::as_f64);
        most_w = watts.chain(most_w).reduce(f64::max);
    }
    println!("{sum}: {rows} rows of GPUs, {most_w:?} W at most, in {}", directory.display());
    Ok(())
}

/// Locks every GPU that can be locked at its highest clocks.
fn highest(clocks: &mut ClocksFound) -> Result<Vec<Held<'_>>, ClockError> {
    let lock = Lock { level: Some(Level::High), ..Lock::default() };
    let mut held = Vec::new();
    for control in &mut clocks.controls {
        let plan = control.plan(&lock)?;
        held.push(Held::take(control.as_mut(), plan)?);
    }
    Ok(held)
}

/// What is measured.
fn work() -> u64 {
    (0..100_000_000_u64).fold(0, |sum, number| sum ^ number.wrapping_mul(number))
}
