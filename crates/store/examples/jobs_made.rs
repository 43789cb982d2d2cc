//! The jobs of a large fleet, for `bench/jobs`: rows of `gpu_usage`, as ledgers make them of samples, and of `jobs`, as hooks tell them.
//!
//! `cargo run --release -p gpuvitals-store --example jobs_made -- DIR [GPUs] [JOBS A DAY] [DAYS]`
//!
//! Puts them into the store in DIR, up to 2026-02-01, and then ten more minutes as nodes publish them: it prints what these cost the
//! processor. Without numbers 4,000 GPUs, 50,000 jobs a day and 30 days. All of it is simulated, and each tenth job does nothing.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and asks the clock")]

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS};
use gpuvitals_core::usage::{Ledger, Sharing};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, RowId, Table};
use gpuvitals_store::{Store, StoreConfig};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// 2026-02-01 00:00:00.
const END_NS: i64 = 1_769_904_000 * SECOND_NS;
const GPUS_OF_JOB: i64 = 2;
const GPUS_OF_NODE: i64 = 8;
/// Between two samples of the weeks: a ledger makes as many rows of these as of one a second.
const SAMPLE_NS: i64 = 15 * MINUTE_NS;
/// Between two publications of a node.
const PUBLISHED_NS: i64 = 10 * SECOND_NS;
/// What nodes publish is measured for so long.
const MEASURED_NS: i64 = 10 * MINUTE_NS;
const MEASURED_S: f64 = 600.0;
const USERS: i64 = 200;
const METRICS: [MetricId; 4] = [
    MetricId::of("utilization_pct"),
    MetricId::of("power_w"),
    MetricId::of("temperature_c"),
    MetricId::of("memory_used_mb"),
];

fn main() -> Fallible {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let mut number = |otherwise: i64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let (gpus, jobs_a_day, days) = (number(4_000)?, number(50_000)?, number(30)?);
    let slot_ns = DAY_NS / (jobs_a_day * GPUS_OF_JOB).max(1) * gpus;
    let fleet = JobFleet { gpus, slot_ns: slot_ns.max(SAMPLE_NS), start_ns: END_NS - days * DAY_NS };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (store, _) = Store::open(StoreConfig::new(&dir))?;
        let begun = Instant::now();
        let (used, told) = fleet.weeks(&store).await?;
        println!(
            "{gpus} GPUs, {jobs_a_day} jobs a day, {days} days: {used} rows of gpu_usage and {told} of jobs in {:.0} s",
            begun.elapsed().as_secs_f64()
        );
        fleet.measure(&store).await?;
        Ok(store.close().await?)
    })
}

/// A fleet whose GPUs, two at a time, have a job after another.
struct JobFleet {
    gpus: i64,
    /// How long a job lasts.
    slot_ns: i64,
    start_ns: i64,
}

/// A job of two GPUs.
struct FleetJob {
    id: i64,
    begin_ns: i64,
    end_ns: i64,
}

/// Nobody shares a GPU.
#[derive(Debug)]
struct NobodyShares;

impl Sharing for NobodyShares {
    fn sharers(&self, _: &Arc<Identity>) -> Vec<Arc<Identity>> {
        Vec::new()
    }
}

impl JobFleet {
    /// The job of a pair of GPUs.
    fn job(&self, pair: i64, time_ns: i64) -> FleetJob {
        let offset_ns = pair * 7_919 * SECOND_NS % self.slot_ns;
        let number = (time_ns - self.start_ns + offset_ns) / self.slot_ns;
        let begin_ns = self.start_ns - offset_ns + number * self.slot_ns;
        let id = number * (self.gpus / GPUS_OF_JOB) + pair + 1;
        FleetJob { id, begin_ns, end_ns: begin_ns + self.slot_ns }
    }

    /// A sample of each of these GPUs.
    fn samples(&self, gpus: Range<i64>, time_ns: i64) -> Fallible<Batch> {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in gpus {
            let job = self.job(gpu / GPUS_OF_JOB, time_ns);
            let identity = builder.intern(&identity(gpu, job.id)?);
            let row = builder.row(time_ns, identity);
            let (busy, watts) = if job.id % 10 == 0 { (0, 90) } else { (80 + gpu % 20, 550) };
            for (metric, value) in METRICS.into_iter().zip([busy, watts, 50, 40_000]) {
                builder.set(row, metric, Value::Int(value))?;
            }
        }
        Ok(builder.finish(origin(), 0).ok_or("there are no GPUs")?)
    }

    /// Stores the weeks, hour by hour, and says how many rows of `gpu_usage` and of `jobs` that were.
    async fn weeks(&self, store: &Store) -> Fallible<(usize, usize)> {
        let (mut ledger, mut used, mut told) = (Ledger::default(), 0, 0);
        let mut hour_ns = self.start_ns;
        while hour_ns < END_NS {
            for sample in 0..HOUR_NS / SAMPLE_NS {
                ledger.add(&self.samples(0..self.gpus, hour_ns + sample * SAMPLE_NS)?, &NobodyShares);
            }
            let jobs = self.told(hour_ns)?;
            told += jobs.rows();
            let mut batches = vec![jobs];
            batches.extend(ledger.due());
            used += batches.iter().skip(1).map(Batch::rows).sum::<usize>();
            store.append(batches).await?;
            hour_ns += HOUR_NS;
        }
        if let Some(last) = ledger.finish() {
            used += last.rows();
            store.append(vec![last]).await?;
        }
        store.compact().await?;
        Ok((used, told))
    }

    /// The rows of `jobs` of an hour.
    fn told(&self, hour_ns: i64) -> Fallible<Batch> {
        let mut builder = BatchBuilder::new(Table::Jobs);
        for pair in 0..self.gpus / GPUS_OF_JOB {
            let mut time_ns = hour_ns;
            while time_ns < hour_ns + HOUR_NS {
                let job = self.job(pair, time_ns);
                for told_by in ["prolog", "controller"] {
                    let host = Identity::default()
                        .with(IdentityColumn::Node, &node(pair * GPUS_OF_JOB))?
                        .with(IdentityColumn::Job, &job.id.to_string())?;
                    let host = builder.intern(&host);
                    let row = builder.row(hour_ns, host);
                    tell(&mut builder, row, &job, (told_by, hour_ns))?;
                }
                time_ns = job.end_ns;
            }
        }
        Ok(builder.finish(origin(), 0).ok_or("there are no jobs")?)
    }

    /// Stores ten minutes as nodes publish them, and prints what that cost.
    async fn measure(&self, store: &Store) -> Fallible {
        let nodes = (self.gpus / GPUS_OF_NODE).max(1);
        let mut ledgers: Vec<Ledger> = (0..nodes).map(|_| Ledger::default()).collect();
        let mut ticks = Vec::new();
        for tick in 0..MEASURED_NS / PUBLISHED_NS {
            let time_ns = END_NS + tick * PUBLISHED_NS;
            let mut published = Vec::new();
            for (ledger, node) in ledgers.iter_mut().zip(0..) {
                let gpus = node * GPUS_OF_NODE..((node + 1) * GPUS_OF_NODE).min(self.gpus);
                ledger.add(&self.samples(gpus, time_ns)?, &NobodyShares);
                published.extend(ledger.due());
            }
            ticks.push(published);
        }
        let rows: usize = ticks.iter().flatten().map(Batch::rows).sum();
        let before = cpu();
        for published in ticks {
            store.append(published).await?;
        }
        store.flush().await?;
        let share = cpu().saturating_sub(before).as_secs_f64() / MEASURED_S;
        let verdict = if share <= 0.05 { "met" } else { "MISSED" };
        println!(
            "storing what {nodes} nodes publish of gpu_usage, {rows} rows in ten minutes: {share:.4} of a core, of 0.05: {verdict}"
        );
        Ok(())
    }
}

/// What a teller knows of a job in an hour.
fn tell(builder: &mut BatchBuilder, row: RowId, job: &FleetJob, (told_by, hour_ns): (&str, i64)) -> Fallible {
    let has_ended = job.end_ns <= hour_ns + HOUR_NS;
    let user = job.id % USERS;
    let texts = [
        ("job_id", job.id.to_string()),
        ("step", "whole".to_owned()),
        ("told_by", told_by.to_owned()),
        ("job_user", format!("user-{user:03}")),
        ("account", format!("account-{:02}", user % 20)),
        ("queue", "gpu".to_owned()),
        ("state", if has_ended { "ended" } else { "running" }.to_owned()),
    ];
    for (column, text) in &texts {
        builder.set_extra_text(row, column, text)?;
    }
    builder.set_extra(row, "as_of_ns", Value::Int(job.end_ns.min(hour_ns + HOUR_NS)))?;
    builder.set_extra(row, "start_ns", Value::Int(job.begin_ns))?;
    if has_ended {
        builder.set_extra(row, "end_ns", Value::Int(job.end_ns))?;
    }
    Ok(())
}

fn identity(gpu: i64, job: i64) -> Fallible<Identity> {
    let identity = Identity::default()
        .with(IdentityColumn::Uuid, &format!("GPU-{gpu:08x}-5fd4-f087-86f3-7a43b7114771"))?
        .with(IdentityColumn::Node, &node(gpu))?
        .with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3")?
        .with(IdentityColumn::Job, &job.to_string())?
        .with(IdentityColumn::Source, "simulated")?;
    Ok(identity)
}

fn node(gpu: i64) -> String {
    format!("node-{:04}", gpu / GPUS_OF_NODE)
}

fn origin() -> Origin {
    Origin { node: Arc::from("bench"), started_ns: 1 }
}

fn cpu() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec.unsigned_abs(), u32::try_from(clock.tv_nsec).unwrap_or(0))
}
