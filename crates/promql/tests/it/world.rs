//! A store with two hours of eight GPUs of both vendors and their hosts, with everything that goes wrong: gaps, late GPUs,
//! counters that begin anew, holders that change.

use gpuvitals_core::batch::{BatchBuilder, Value};
use gpuvitals_core::catalogue::{ColumnType, Instrument, gpu_metrics, host_metrics};
use gpuvitals_core::{Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_store::{Store, StoreConfig};

pub(crate) const SECOND_NS: i64 = 1_000_000_000;
/// 2026-11-24 15:00 UTC.
pub(crate) const BASE_NS: i64 = 1_795_532_400 * SECOND_NS;
/// Between two rows of a GPU.
pub(crate) const EVERY_NS: i64 = 15 * SECOND_NS;
pub(crate) const ROWS: i64 = 240;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// A generator whose numbers are the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let world = Self { store, runtime, _folder: folder };
        world.fill();
        world
    }

    fn fill(&self) {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for gpu in 0..8_i64 {
            let columns: Vec<MetricId> = gpu_metrics().map(|(id, _)| id).filter(|id| has(gpu, *id)).collect();
            let mut counters = vec![1.0e6_f64; columns.len()];
            for row in 0..ROWS {
                // One is away for ten minutes, one comes late.
                if (gpu == 2 && (80..120).contains(&row)) || (gpu == 5 && row < 100) {
                    continue;
                }
                let identity = builder.intern(&identity(gpu, row));
                let id = builder.row(BASE_NS + row * EVERY_NS + (gpu * 131 + 37) * 1_000_000, identity);
                for (at, metric) in columns.iter().enumerate() {
                    if chance.next() < 0.03 {
                        continue;
                    }
                    let value = match value(*metric, &mut counters[at], &mut chance) {
                        // Which of equal values is among the largest is nobody's promise.
                        Value::Float32(value) if value > 50.0 => Value::Float32(value - gpu as f32 / 100.0),
                        value => value,
                    };
                    builder.set(id, *metric, value).unwrap();
                }
            }
        }
        let batch = builder.finish(Origin::default(), 0).unwrap();
        self.runtime.block_on(self.store.append(vec![batch])).unwrap();
        let mut builder = BatchBuilder::new(Table::SystemEvents);
        for node in ["n0", "n1"] {
            let columns: Vec<MetricId> = host_metrics().map(|(id, _)| id).collect();
            let mut counters = vec![1.0e6_f64; columns.len()];
            let identity = Identity::default().with(IdentityColumn::Node, node).unwrap();
            let identity = builder.intern(&identity);
            for row in 0..ROWS {
                let id = builder.row(BASE_NS + row * EVERY_NS + 9_000_000, identity);
                for (at, metric) in columns.iter().enumerate() {
                    let value = value(*metric, &mut counters[at], &mut chance);
                    builder.set(id, *metric, value).unwrap();
                }
            }
        }
        let batch = builder.finish(Origin::default(), 1).unwrap();
        self.runtime.block_on(self.store.append(vec![batch])).unwrap();
        self.runtime.block_on(self.store.flush()).unwrap();
    }
}

/// Whether a GPU gives a column: the vendors do not give the same.
fn has(gpu: i64, metric: MetricId) -> bool {
    let column = metric.metric().column;
    if gpu < 6 { !column.starts_with("ras_") } else { !column.starts_with("xid") && column != "sm_clock_mhz" }
}

fn identity(gpu: i64, row: i64) -> Identity {
    use IdentityColumn as Id;
    let node = format!("n{}", gpu / 4);
    let (vendor, model) =
        if gpu < 6 { ("nvidia", "NVIDIA H100 80GB HBM3") } else { ("amd", "AMD Instinct MI300X") };
    let mut identity = Identity::default();
    for (column, text) in [
        (Id::Cluster, "east".to_owned()),
        (Id::Node, node),
        (Id::Uuid, format!("GPU-{gpu:08}")),
        (Id::Vendor, vendor.to_owned()),
        (Id::Model, model.to_owned()),
        (Id::Pci, format!("0000:{gpu:02x}:00.0")),
        (Id::Driver, "570.1".to_owned()),
    ] {
        identity.set(column, &text).unwrap();
    }
    // A job ends and another begins; some GPUs are free.
    if gpu % 3 != 0 {
        identity.set(Id::Namespace, if gpu % 2 == 0 { "research" } else { "prod" }).unwrap();
        identity.set(Id::Pod, &format!("train-{}", if row < 130 { gpu } else { gpu + 10 })).unwrap();
        identity.set(Id::Container, "main").unwrap();
    } else if gpu == 3 {
        // Held by a job without a pod.
        identity.set(Id::Job, "4711").unwrap();
    }
    identity.index = Some((gpu % 4) as i32);
    identity
}

#[expect(clippy::cast_possible_truncation, reason = "made to fit")]
fn value(metric: MetricId, counter: &mut f64, chance: &mut Chance) -> Value {
    let row = metric.metric();
    let (low, high) = row.range;
    let value = if row.instrument == Instrument::Counter {
        // It begins anew above 0: how far a rate reaches back to where a counter was 0 differs between versions 2 and 3.
        *counter = if chance.next() < 0.01 { 1.0e5 } else { *counter + (chance.next() * 1_000.0).floor() };
        *counter
    } else {
        let high = high.min(low + 2_000.0);
        low + (high - low) * chance.next()
    };
    match row.column_type {
        ColumnType::I32 | ColumnType::I64 => Value::Int(value.floor() as i64),
        ColumnType::F32 => Value::Float32((value * 10.0).floor() as f32 / 10.0),
        ColumnType::F64 => Value::Float((value * 1_000.0).floor() / 1_000.0),
    }
}
