//! The log's cost compared with the disk: each measure runs beside a bare loop that writes the same bytes
//! into a zero-filled file and syncs. They alternate, so that other load on the machine affects both.
//!
//! `cargo run --release -p gpuvitals-log --example log_bench -- DIRECTORY [ROUNDS]`
//!
//! Expected: a sync takes the disk's time (60 to 500 us on the flash of a data centre), and the log adds two
//! wake-ups of a thread and a few microseconds of work.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark asks the clock and prints")]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpuvitals_log::{Durability, FsDisk, Log, LogConfig, RECORD_LEN_MAX};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A row as JSON.
const PAYLOAD_LEN: usize = 270;
/// The same with the log's header, at a multiple of 8.
const RECORD_LEN: usize = 296;
/// Calls of one turn.
const TURN: usize = 200;
const WAITERS: usize = 16;
const BARE_LEN: usize = 64 << 20;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        return Err("usage: log_bench DIRECTORY [ROUNDS]".into());
    };
    let rounds: usize = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let directory = Path::new(&directory).join("log-bench");
    std::fs::create_dir_all(&directory)?;
    let outcome = measure(&directory, rounds);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn measure(directory: &Path, rounds: usize) -> Outcome<()> {
    let mut bare = Bare::new(&directory.join("bare"))?;
    let (log, _) = Log::open(FsDisk::open(directory.join("log"))?, LogConfig::default())?;
    let log = Arc::new(log);
    let (mut singles, mut bare_singles) = (Vec::new(), Vec::new());
    let (mut groups, mut bare_groups) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        bare.singles(&mut bare_singles)?;
        log_singles(&log, &mut singles)?;
        bare_groups += bare.groups()?;
        groups += log_groups(&log)?;
    }
    println!("{:32} {:>10} {:>10} {:>8}", "", "bare loop", "log", "log/bare");
    for (name, percent) in [("one row synced, p50 us", 50), ("p90 us", 90), ("p99 us", 99)] {
        let (bare, log) = (percentile(&mut bare_singles, percent), percentile(&mut singles, percent));
        row(name, bare.as_secs_f64() * 1e6, log.as_secs_f64() * 1e6);
    }
    let count = u32::try_from(rounds * TURN * WAITERS)?;
    let rate = |took: Duration| f64::from(count) / took.as_secs_f64();
    row("16 waiters, rows/s", rate(bare_groups), rate(groups));
    let stats = log.stats();
    println!("{} records in {} groups, {} syncs", stats.records, stats.groups, stats.syncs);
    large(directory, &log)
}

/// The throughput of the largest records: the disk's own rate, twice, as everything is zero-filled first.
fn large(directory: &Path, log: &Log) -> Outcome<()> {
    const COUNT: u32 = 24;
    let payload = Bytes::from(vec![7; RECORD_LEN_MAX / 4]);
    let began = Instant::now();
    let file = File::create(directory.join("large"))?;
    for _ in 0..COUNT {
        (&file).write_all(&payload)?;
        file.sync_data()?;
    }
    let bare = began.elapsed();
    let began = Instant::now();
    for _ in 0..COUNT {
        log.append(1, payload.clone(), Durability::Synced).wait()?;
    }
    let rate = |took: Duration| f64::from(COUNT * 4) / took.as_secs_f64();
    row("4 MiB records, MiB/s", rate(bare), rate(began.elapsed()));
    Ok(())
}

fn row(name: &str, bare: f64, log: f64) {
    println!("{name:32} {bare:>10.0} {log:>10.0} {:>8.2}", log / bare);
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len() * percent / 100).copied().unwrap_or_default()
}

struct Bare {
    file: File,
    at: usize,
}

impl Bare {
    fn new(path: &Path) -> Outcome<Self> {
        let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        file.write_all(&vec![0; BARE_LEN])?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.file.write_all_at(bytes, u64::try_from(self.at)?)?;
        self.file.sync_data()?;
        self.at = (self.at + bytes.len()) % (BARE_LEN - RECORD_LEN * WAITERS);
        Ok(())
    }

    fn singles(&mut self, times: &mut Vec<Duration>) -> Outcome<()> {
        for _ in 0..TURN {
            let began = Instant::now();
            self.write(&[1; RECORD_LEN])?;
            times.push(began.elapsed());
        }
        Ok(())
    }

    fn groups(&mut self) -> Outcome<Duration> {
        let began = Instant::now();
        for _ in 0..TURN {
            self.write(&[2; RECORD_LEN * WAITERS])?;
        }
        Ok(began.elapsed())
    }
}

fn log_singles(log: &Log, times: &mut Vec<Duration>) -> Outcome<()> {
    for _ in 0..TURN {
        let began = Instant::now();
        log.append(1, Bytes::from(vec![1; PAYLOAD_LEN]), Durability::Synced).wait()?;
        times.push(began.elapsed());
    }
    Ok(())
}

fn log_groups(log: &Arc<Log>) -> Outcome<Duration> {
    let barrier = Arc::new(Barrier::new(WAITERS + 1));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (log, barrier) = (Arc::clone(log), Arc::clone(&barrier));
            thread::spawn(move || -> Outcome<()> {
                barrier.wait();
                for _ in 0..TURN {
                    log.append(1, Bytes::from(vec![2; PAYLOAD_LEN]), Durability::Synced).wait()?;
                }
                Ok(())
            })
        })
        .collect();
    barrier.wait();
    let began = Instant::now();
    for waiter in waiters {
        waiter.join().map_err(|_| "a waiter panicked")??;
    }
    Ok(began.elapsed())
}
