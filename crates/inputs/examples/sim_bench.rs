//! Cost of the simulated fleet: `cargo run --release -p gpuvitals-inputs --example sim_bench [GPUS]
//! [SECONDS]`.
//!
//! Expected: about 80 values a row at some 15 ns each and as much again for identity and physics, so 2 to 4 µs a
//! row; 1,000 GPUs at 1 Hz are then 0.2 to 0.4 % of a core.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::time::Instant;

use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_inputs::simulated::{SimConfig, SimPace, Simulated};

#[expect(clippy::disallowed_methods, reason = "a bench is the loop that asks the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u32>().ok());
    let gpus = numbers.next().unwrap_or(1000);
    let seconds = numbers.next().unwrap_or(600);
    let before_kib = resident_kib();
    let start = Instant::now();
    let mut source = Simulated::new(SimConfig {
        gpus: usize::try_from(gpus)?,
        pace: SimPace::Unpaced { end_ns: i64::from(seconds - 1) * 1_000_000_000 },
        ..SimConfig::default()
    })?;
    let built = start.elapsed();
    let fleet_kib = resident_kib().saturating_sub(before_kib);
    let start = Instant::now();
    let (mut rows, mut batches, mut values) = (0_usize, 0_u32, 0_usize);
    while let Poll::Ready(batch) = source.poll(0)? {
        rows += batch.rows();
        values += batch.metrics().count() * batch.rows();
        batches += 1;
    }
    let spent = start.elapsed();
    let rate = f64::from(u32::try_from(rows)?) / spent.as_secs_f64();
    println!("{gpus} GPUs, {seconds} ticks of 1 s: fleet built in {built:.1?}, {fleet_kib} KiB");
    println!("{rows} rows ({batches} batches, {values} cells) in {spent:.2?}: {rate:.0} rows/s");
    println!("live at 1 Hz: {:.3} % of a core", 100.0 * spent.as_secs_f64() / f64::from(seconds));
    println!("resident after: {} KiB more than at start", resident_kib().saturating_sub(before_kib));
    Ok(())
}

/// Resident memory of this process, KiB; 0 if /proc does not have it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
