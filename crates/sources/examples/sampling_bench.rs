//! Cost and punctuality of sampling, beside a loop that only sleeps and reads.
//!
//! `cargo run --release -p gpuvitals-sources --example sampling_bench -- bare|sampler|published|ledger SYSFS HZ SECONDS`
//!
//! `bare`: a thread a card; absolute deadlines, `pread` of the same two files that the sampler's fast tier reads
//! (`gpu_metrics`, `mem_info_vram_used`), nothing decoded, nothing kept. `sampler`: the sampler as the agent and the
//! recorder use it, its batches taken and dropped. `published`: these batches put into the form in which they are published. `ledger`:
//! the same, and what the holders of the GPUs use is added up and published too. Prints one line: CPU in % of a core, CPU a tick, lateness, missed
//! ticks.
//!
//! Expected: a wake-up and two reads of a tmpfs cost some 5 µs; decoding 2 KiB into 40 columns should add 1 to 2 µs.
#![expect(clippy::print_stdout, reason = "an example prints what it measured")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use gpuvitals_core::usage::Ledger;
use gpuvitals_core::wire::encode;
use gpuvitals_core::{Batch, Table};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{discover, no_simulation};
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, sysfs, hz, seconds] = arguments.as_slice() else {
        return Err("usage: sampling_bench bare|sampler|published|ledger SYSFS HZ SECONDS".into());
    };
    let (hz, seconds): (f64, f64) = (hz.parse()?, seconds.parse()?);
    let measured = match mode.as_str() {
        "bare" => bare(Path::new(sysfs), hz, seconds)?,
        "sampler" => sampler(Path::new(sysfs), hz, seconds, &mut |_| Ok(()))?,
        "published" => sampler(Path::new(sysfs), hz, seconds, &mut |batch| publish(&batch))?,
        "ledger" => {
            let (mut ledger, owners) = (Ledger::default(), Owners::new());
            sampler(Path::new(sysfs), hz, seconds, &mut |batch| {
                ledger.add(&batch, &*owners);
                publish(&batch)?;
                ledger.due().map_or(Ok(()), |used| publish(&used))
            })?
        }
        other => return Err(format!("no mode {other}").into()),
    };
    println!("{mode:8} {measured}");
    Ok(())
}

struct Measured {
    ticks: u64,
    missed: u64,
    rows: u64,
    cpu_ns: i64,
    wall_ns: i64,
    late_p50_us: f64,
    late_p99_us: f64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "cpu_pct {:.2} cpu_us_per_tick {:.2} late_p50_us {:.1} late_p99_us {:.1} ticks {} missed {} rows {}",
            self.cpu_ns as f64 / self.wall_ns as f64 * 100.0,
            self.cpu_ns as f64 / self.ticks.max(1) as f64 / 1e3,
            self.late_p50_us,
            self.late_p99_us,
            self.ticks,
            self.missed,
            self.rows,
        )
    }
}

fn clock(id: ClockId) -> i64 {
    let now = clock_gettime(id);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn sleep_until(ns: i64) {
    let request = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
}

fn cards(sysfs: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut cards = Vec::new();
    for entry in std::fs::read_dir(sysfs.join("class/drm"))? {
        let device = entry?.path().join("device");
        if device.join("gpu_metrics").exists() && device.join("mem_info_vram_used").exists() {
            cards.push(device);
        }
    }
    // A render node leads to the same device as its card.
    cards.retain(|device| device.parent().is_some_and(|card| !card.to_string_lossy().contains("render")));
    Ok(cards)
}

/// Sleeps and reads, nothing else.
#[expect(clippy::cast_possible_truncation, reason = "nanoseconds of an interval")]
fn bare(sysfs: &Path, hz: f64, seconds: f64) -> Result<Measured, Failure> {
    let interval_ns = (1e9 / hz) as i64;
    let cards = cards(sysfs)?;
    let stop = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(cards.len() + 1));
    let threads: Vec<_> = cards
        .into_iter()
        .map(|card| {
            let (stop, ready) = (Arc::clone(&stop), Arc::clone(&ready));
            std::thread::spawn(move || -> std::io::Result<(u64, u64, Vec<u32>)> {
                let slack = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
                slack?;
                let files =
                    [File::open(card.join("gpu_metrics"))?, File::open(card.join("mem_info_vram_used"))?];
                let mut buffer = vec![0; 4096];
                let (mut ticks, mut missed) = (0, 0);
                let mut late = Vec::with_capacity(1 << 20);
                ready.wait();
                let now = clock(ClockId::Monotonic);
                let mut next = now + interval_ns - now % interval_ns;
                while !stop.load(Ordering::Relaxed) {
                    sleep_until(next);
                    late.push(u32::try_from(clock(ClockId::Monotonic) - next).unwrap_or(u32::MAX));
                    for file in &files {
                        file.read_at(&mut buffer, 0)?;
                    }
                    ticks += 1;
                    next += interval_ns;
                    let now = clock(ClockId::Monotonic);
                    while next <= now {
                        next += interval_ns;
                        missed += 1;
                    }
                }
                Ok((ticks, missed, late))
            })
        })
        .collect();
    ready.wait();
    let (wall, cpu) = (clock(ClockId::Monotonic), clock(ClockId::ProcessCPUTime));
    sleep_until(wall + (seconds * 1e9) as i64);
    let (wall_ns, cpu_ns) = (clock(ClockId::Monotonic) - wall, clock(ClockId::ProcessCPUTime) - cpu);
    stop.store(true, Ordering::Relaxed);
    let (mut ticks, mut missed, mut late) = (0, 0, Vec::new());
    for thread in threads {
        let (t, m, l) = thread.join().map_err(|_| "a thread panicked")??;
        ticks += t;
        missed += m;
        late.extend(l);
    }
    late.sort_unstable();
    let quantile = |share: f64| {
        let at = ((late.len() as f64 - 1.0) * share).max(0.0);
        #[expect(clippy::cast_sign_loss, reason = "an index")]
        late.get(at as usize).map_or(f64::NAN, |&ns| f64::from(ns) / 1e3)
    };
    Ok(Measured {
        ticks,
        missed,
        rows: 0,
        cpu_ns,
        wall_ns,
        late_p50_us: quantile(0.5),
        late_p99_us: quantile(0.99),
    })
}

/// Puts rows into the form in which they are published.
fn publish(batch: &Batch) -> Result<(), Failure> {
    std::hint::black_box(encode(batch)?);
    Ok(())
}

/// The sampler, as it is, whose batches this takes.
#[expect(clippy::cast_possible_truncation, reason = "seconds of a bench")]
fn sampler(
    sysfs: &Path,
    hz: f64,
    seconds: f64,
    take: &mut dyn FnMut(Batch) -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    let machine = Machine { sysfs: sysfs.to_owned(), ..Machine::local("bench") };
    let mut found = discover(&machine, &[Driver::AmdSysfs], no_simulation);
    found.probes.retain(|probe| probe.table() == Table::GpuEvents);
    if found.probes.is_empty() {
        return Err(format!("no card in {}: {:?}", sysfs.display(), found.findings).into());
    }
    let config = SamplerConfig { interval: Duration::from_secs_f64(1.0 / hz), ..SamplerConfig::default() };
    let sampler = Sampler::start(found.probes, config, Owners::new())?;
    // The first reading opens files.
    let warm = clock(ClockId::Monotonic) + 1_500_000_000;
    while clock(ClockId::Monotonic) < warm {
        sampler.next(Duration::from_millis(100)).map_or(Ok(()), &mut *take)?;
    }
    let count = |pick: fn(&gpuvitals_sources::sampler::WorkerStats) -> u64| {
        sampler.stats().iter().map(pick).sum::<u64>()
    };
    let before = (count(|s| s.ticks), count(|s| s.ticks_missed), count(|s| s.rows));
    let (wall, cpu) = (clock(ClockId::Monotonic), clock(ClockId::ProcessCPUTime));
    let end = wall + (seconds * 1e9) as i64;
    while clock(ClockId::Monotonic) < end {
        sampler.next(Duration::from_millis(100)).map_or(Ok(()), &mut *take)?;
    }
    let (wall_ns, cpu_ns) = (clock(ClockId::Monotonic) - wall, clock(ClockId::ProcessCPUTime) - cpu);
    let stats = sampler.stats();
    let worst = |share: f64| {
        let of = |s: &gpuvitals_sources::sampler::WorkerStats| s.lateness.quantile(share);
        let mut all: Vec<Duration> = stats.iter().filter_map(of).collect();
        all.sort();
        all.get(all.len() / 2).map_or(f64::NAN, |late| late.as_secs_f64() * 1e6)
    };
    Ok(Measured {
        ticks: count(|s| s.ticks) - before.0,
        missed: count(|s| s.ticks_missed) - before.1,
        rows: count(|s| s.rows) - before.2,
        cpu_ns,
        wall_ns,
        late_p50_us: worst(0.5),
        late_p99_us: worst(0.99),
    })
}
