//! Writes rows into a database as a collector does, and prints how many a second: `ingest HOST DBNAME USER GPUS SECONDS`.
//!
//! Ten seconds of all GPUs, with ten metrics each, are a batch; the next is written when it is acknowledged. The rows are those that
//! `bench/postgres.py` copies beside it. The same rows then come once more, which are merges.

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::time::Instant;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::FleetBounds;
use gpuvitals_core::ports::Sink;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_postgres::{Database, Postgres};
use gpuvitals_settings::Section;

const SECOND_NS: i64 = 1_000_000_000;
/// Midnight, so that all rows are in one partition.
const START_NS: i64 = 1_795_132_800 * SECOND_NS;
const BATCH_SECONDS: i64 = 10;
/// Columns, with the smallest value of each and how many there are.
const METRICS: [(&str, i64, i64); 10] = [
    ("gpu_clock_mhz", 1_200, 700),
    ("mem_clock_mhz", 1_500, 3),
    ("temperature_c", 40, 40),
    ("power_w", 100, 600),
    ("memory_used_mb", 1_000, 70_000),
    ("utilization_pct", 0, 100),
    ("energy_mj", 1_000_000, 1_000_000),
    ("encoder_utilization_pct", 0, 100),
    ("memory_total_mb", 81_559, 1),
    ("encoder_sessions", 0, 8),
];

fn batch(gpus: i64, from: i64) -> Result<Batch, Box<dyn Error>> {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for second in from..from + BATCH_SECONDS {
        for gpu in 0..gpus {
            let identity = Identity::default()
                .with(IdentityColumn::Uuid, &format!("GPU-{gpu:05}"))?
                .with(IdentityColumn::Node, &format!("node-{:04}", gpu / 8))?;
            let identity = builder.intern(&identity);
            let row = builder.row(START_NS + second * SECOND_NS, identity);
            for (place, (column, least, many)) in (1..).zip(METRICS) {
                let value = least + (gpu * 7 + second * place) % many;
                builder.set(row, MetricId::of(column), Value::Int(value))?;
            }
        }
    }
    builder.finish(Origin::default(), 0).ok_or_else(|| "no rows".into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [host, dbname, user, gpus, seconds] = given.as_slice() else {
        return Err("ingest HOST DBNAME USER GPUS SECONDS".into());
    };
    let (gpus, seconds): (i64, i64) = (gpus.parse()?, seconds.parse()?);
    let settings = [("host", host), ("dbname", dbname), ("user", user)]
        .map(|(key, value)| (format!("database.{key}"), value.as_str().into()));
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), Clone::clone(value))).collect();
    let postgres = Postgres::open(
        Database::of(&settings).map_err(|refusal| format!("{refusal:?}"))?,
        None,
        FleetBounds::default(),
    )
    .await?;
    let batches: Vec<Batch> = (0..seconds)
        .step_by(usize::try_from(BATCH_SECONDS)?)
        .map(|from| batch(gpus, from))
        .collect::<Result<_, _>>()?;
    for what in ["new rows", "the same rows again"] {
        #[expect(clippy::disallowed_methods, reason = "what is measured")]
        let start = Instant::now();
        for batch in &batches {
            postgres.accept(vec![batch.clone()]).await?;
        }
        let rows: usize = batches.iter().map(Batch::rows).sum();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = rows as f64 / start.elapsed().as_secs_f64();
        println!("{rate:.0} rows/s, {what}");
    }
    Ok(())
}
