//! A gateway to be measured: 1,000 made-up GPUs with an hour of rows at one in ten seconds, and new rows every second.
//!
//! ```sh
//! cargo run --release -p gpuvitals-api --example load &
//! wrk -t2 -c64 -d10 --latency http://127.0.0.1:8181/api/v1/gpus
//! ```
#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_api::{Api, ApiConfig, Beside, Peer, StatusView, serve};
use gpuvitals_core::batch::Value;
use gpuvitals_core::clock;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};
use gpuvitals_listener::Access;
use gpuvitals_store::{Store, StoreConfig};
use tokio_util::sync::CancellationToken;

const GPUS: i32 = 1_000;
const GPUS_PER_HOST: i32 = 8;
const COLUMNS: [(&str, f64); 8] = [
    ("utilization_pct", 90.0),
    ("memory_utilization_pct", 40.0),
    ("power_w", 600.25),
    ("temperature_c", 60.0),
    ("gpu_clock_mhz", 1980.0),
    ("mem_clock_mhz", 2619.0),
    ("memory_used_mb", 70_000.0),
    ("memory_free_mb", 11_559.0),
];

struct Alone;

impl StatusView for Alone {
    fn queues(&self) -> Vec<Peer> {
        Vec::new()
    }
    fn collectors(&self) -> Vec<Peer> {
        Vec::new()
    }
    fn source(&self) -> serde_json::Value {
        serde_json::json!({"kind": "simulated"})
    }
}

fn rows(time_ns: i64, sequence: u64) -> Result<Batch, Box<dyn Error>> {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for gpu in 0..GPUS {
        let mut identity = Identity::default()
            .with(IdentityColumn::Uuid, &format!("GPU-{gpu:04}"))?
            .with(IdentityColumn::Node, &format!("sim-node-{:03}", gpu / GPUS_PER_HOST))?
            .with(IdentityColumn::Vendor, "nvidia")?
            .with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3")?
            .with(IdentityColumn::Source, "simulated")?;
        identity.index = Some(gpu % GPUS_PER_HOST);
        let id = builder.intern(&identity);
        let row = builder.row(time_ns, id);
        let moved = f64::from(i32::try_from((time_ns / SECOND_NS + i64::from(gpu)) % 10)?);
        for (column, value) in COLUMNS {
            if let Some(metric) = catalogue::by_column(column) {
                builder.set(row, metric, Value::Float(value + moved))?;
            }
        }
    }
    builder
        .finish(Origin { node: Arc::from("load"), started_ns: 1 }, sequence)
        .ok_or_else(|| "no rows".into())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let config = StoreConfig::new(dir.path());
    let (store, _) = tokio::task::spawn_blocking(|| Store::open(config)).await??;
    let begin = clock::now_ns() - 3_600 * SECOND_NS;
    for step in 0..360 {
        let batch = rows(begin + step * 10 * SECOND_NS, u64::try_from(step)?)?;
        store.append(vec![batch]).await?;
    }
    store.flush().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8181").await?;
    println!("http://{}", listener.local_addr()?);
    let api = Api::new(ApiConfig::default(), Arc::new(store.clone()), Arc::new(Alone));
    let served = tokio::spawn(serve(
        listener,
        api,
        Beside::reading(axum::Router::new()),
        Access::open(),
        CancellationToken::new(),
    ));
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for sequence in 1_000.. {
        seconds.tick().await;
        if served.is_finished() {
            break;
        }
        let batch = rows(clock::now_ns(), sequence)?;
        store.append(vec![batch]).await?;
    }
    Ok(served.await??)
}
