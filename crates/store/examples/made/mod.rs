//! Rows of a made-up fleet, and what a process used, for the measurements.
#![expect(clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a measurement")]

use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{
    Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, catalogue, wire,
};

pub(crate) const GPUS: usize = 1_000;
pub(crate) const START: i64 = 1_795_168_800_000_000_000;
const COLUMNS: [&str; 10] = [
    "power_w",
    "temperature_c",
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_mb",
    "gpu_clock_mhz",
    "mem_clock_mhz",
    "energy_mj",
    "encoder_utilization_pct",
    "decoder_utilization_pct",
];

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn identities() -> Vec<Identity> {
    (0..GPUS)
        .filter_map(|gpu| {
            let uuid = format!("GPU-{gpu:08x}-5fd4-f087-86f3-7a43b7114771");
            let mut identity = Identity::default()
                .with(IdentityColumn::Uuid, &uuid)
                .and_then(|i| i.with(IdentityColumn::Node, &format!("node-{:03}", gpu / 8)))
                .and_then(|i| i.with(IdentityColumn::Model, "NVIDIA H100 80GB HBM3"))
                .and_then(|i| i.with(IdentityColumn::Vendor, "nvidia"))
                .and_then(|i| i.with(IdentityColumn::Pci, &format!("0000:{:02x}:00.0", gpu % 8)))
                .and_then(|i| i.with(IdentityColumn::Driver, "550.54.15"))
                .and_then(|i| i.with(IdentityColumn::Source, "simulated"))
                .ok()?;
            identity.index = i32::try_from(gpu % 8).ok();
            Some(identity)
        })
        .collect()
}

/// Makes rows, GPU by GPU and step by step.
pub(crate) struct Maker {
    metrics: Vec<MetricId>,
    identities: Vec<Identity>,
    random: Random,
    energy: Vec<u64>,
    row: usize,
    /// Time between two rows of a GPU.
    step_ns: i64,
}

impl Maker {
    pub(crate) fn new(step_ns: i64) -> Self {
        let metrics: Vec<MetricId> = COLUMNS.iter().filter_map(|name| catalogue::by_column(name)).collect();
        assert_eq!(metrics.len(), COLUMNS.len(), "the catalogue lacks a column");
        let random = Random(0x9e37_79b9_7f4a_7c15);
        Self { metrics, identities: identities(), random, energy: vec![0; GPUS], row: 0, step_ns }
    }

    fn values(&mut self, gpu: usize, second: usize) -> [f64; 10] {
        let random = &mut self.random;
        let busy = (gpu + second / 600).is_multiple_of(2);
        let power = if busy { 500_000 + random.next(200_000) } else { 70_000 + random.next(8_000) };
        self.energy[gpu] += power;
        let mut noise = |from: u64, below: u64| if busy { (from + random.next(below)) as f64 } else { 0.0 };
        let [load, memory, heat] = [noise(95, 6), noise(40, 20), noise(28, 6)];
        let (used, clock) = if busy { (71_000.0, 1_980.0) } else { (4.0, 345.0) };
        let energy = self.energy[gpu] as f64;
        [power as f64 / 1000.0, 32.0 + heat, load, memory, used, clock, 2_619.0, energy, 0.0, 0.0]
    }

    pub(crate) fn batch(&mut self, rows: usize) -> Option<Batch> {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for _ in 0..rows {
            let (second, gpu) = (self.row / GPUS, self.row % GPUS);
            let id = builder.intern(&self.identities[gpu]);
            let id = builder.row(START + i64::try_from(second).unwrap_or(0) * self.step_ns, id);
            for (metric, value) in self.metrics.clone().into_iter().zip(self.values(gpu, second)) {
                let _ranged = builder.set(id, metric, Value::Float(value));
            }
            self.row += 1;
        }
        let batch = builder.finish(Origin::default(), 0)?;
        // As a collector has it: decoded from bytes that the log takes as they are.
        wire::decode_keeping(&wire::encode(&batch).ok()?).ok()
    }
}

pub(crate) fn cpu() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec.unsigned_abs(), u32::try_from(clock.tv_nsec).unwrap_or(0))
}

pub(crate) fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    let kib: f64 = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}
