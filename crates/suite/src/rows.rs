//! Rows to write, and rows of answers with their columns spelt.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use gpuvitals_core::batch::{Value, numbers, text_at};
use gpuvitals_core::history::Rows;
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::usage::NOBODY;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

/// 2026-11-20 09:59:40: rows of the first minute fall on both sides of an hour.
pub const BASE_NS: i64 = 1_795_168_780_000_000_000;

/// When the process began that adds up.
const RUN_NS: i64 = 7;

/// Columns of a row that have a value, spelt.
pub type Cells = BTreeMap<String, String>;

/// A row of `gpu_events`. With a clock there is a row of `gpu_details` too, with a node and memory one of `system_events`, with an XID one
/// of `gpu_usage`, and with a node and a job one of `jobs`: the last two as of its time.
#[derive(Debug, Clone, Default)]
pub struct TestRow {
    /// Number of its GPU, whose key is `GPU-0`, or `GPU-0:p1` with a partition.
    pub gpu: u8,
    /// Number of its partition.
    pub partition: Option<u8>,
    /// Whether it names its node: one of two.
    pub has_node: bool,
    /// Number of its pod.
    pub pod: Option<u8>,
    /// Number of its job.
    pub job: Option<u8>,
    /// Time, nanoseconds UTC since 1970.
    pub time_ns: i64,
    /// `power_w` in eighths: FLOAT.
    pub power: Option<i16>,
    /// `memory_used_mb`: 64-bit integer.
    pub memory: Option<i32>,
    /// `gpu_clock_mhz`: 32-bit integer.
    pub clock: Option<i16>,
    /// `energy_mj`: 64-bit integer, a counter that may fall.
    pub energy: Option<u64>,
    /// `xid_last`: 32-bit integer.
    pub xid: Option<u8>,
    /// `utilization_pct`, in whole percents.
    pub utilization: Option<u8>,
    /// `throttled`: a state.
    pub throttled: Option<bool>,
    /// `strange`, a number that the catalogue does not know.
    pub extra: Option<i8>,
    /// `note`, a text that the catalogue does not know.
    pub note: Option<u8>,
}

impl TestRow {
    /// A row without values, so many seconds after [`BASE_NS`].
    pub fn of(gpu: u8, second: i64) -> Self {
        Self { gpu, has_node: true, time_ns: BASE_NS + second * 1_000_000_000, ..Self::default() }
    }

    /// Key of its GPU.
    pub fn key(&self) -> String {
        let gpu = self.gpu;
        self.partition.map_or_else(|| format!("GPU-{gpu}"), |partition| format!("GPU-{gpu}:p{partition}"))
    }

    /// Name of its node, if it names it.
    fn node(&self) -> Option<String> {
        self.has_node.then(|| format!("node-{}", self.gpu % 2))
    }

    /// Keys and times of its rows, by table.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Table, (String, i64))> {
        let instance = |clock: i16| format!("{}\0gpu_clock_mhz\0{}", self.key(), clock % 3);
        let details = self.clock.map(|clock| (Table::GpuDetails, instance(clock)));
        let system = self.node().filter(|_| self.memory.is_some());
        let system = system.map(|node| (Table::SystemEvents, node));
        let of_its_time = [(Table::GpuEvents, self.key())].into_iter().chain(details).chain(system);
        let used = self.xid.map(|_| format!("{}\0{}\0exclusive\0{RUN_NS:020}", self.key(), self.holder()));
        let used = used.map(|key| (Table::GpuUsage, (key, self.hour_ns())));
        let job = self.node().zip(self.job);
        let job =
            job.map(|(node, job)| (Table::Jobs, (format!("{node}\0{job}\0whole\0prolog"), self.hour_ns())));
        of_its_time.map(|(table, key)| (table, (key, self.time_ns))).chain(used).chain(job)
    }

    fn hour_ns(&self) -> i64 {
        self.time_ns - self.time_ns.rem_euclid(HOUR_NS)
    }

    fn holder(&self) -> String {
        self.pod.map_or_else(|| NOBODY.to_owned(), |pod| format!("pod:/pod-{pod}/"))
    }

    fn identity(&self) -> Identity {
        let mut identity = Identity::default();
        identity.index = Some(self.gpu.into());
        let numbered = |name: &str, number: Option<u8>| number.map(|number| format!("{name}-{number}"));
        for (column, text) in [
            (IdentityColumn::Uuid, Some(format!("GPU-{}", self.gpu))),
            (IdentityColumn::Model, Some(format!("model {}", self.gpu % 3))),
            (IdentityColumn::Node, self.node()),
            (IdentityColumn::Partition, self.partition.map(|partition| format!("p{partition}"))),
            (IdentityColumn::Pod, numbered("pod", self.pod)),
            (IdentityColumn::Job, numbered("job", self.job)),
        ] {
            if let Some(text) = text {
                identity.set(column, &text).unwrap();
            }
        }
        identity
    }
}

/// Rows as a batch, in order. There must be one.
pub fn batch(rows: &[TestRow]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for row in rows {
        let identity = builder.intern(&row.identity());
        let to = builder.row(row.time_ns, identity);
        for (column, value) in [
            ("power_w", row.power.map(|power| Value::Float(f64::from(power) / 8.0))),
            ("memory_used_mb", row.memory.map(|memory| Value::Int(memory.into()))),
            ("gpu_clock_mhz", row.clock.map(|clock| Value::Int(clock.into()))),
            ("energy_mj", row.energy.map(|energy| Value::Int(energy.cast_signed()))),
            ("xid_last", row.xid.map(|xid| Value::Int(xid.into()))),
            ("utilization_pct", row.utilization.map(|percent| Value::Float(f64::from(percent)))),
            ("throttled", row.throttled.map(|is_held| Value::Int(is_held.into()))),
        ] {
            if let Some(value) = value {
                builder.set(to, MetricId::of(column), value).unwrap();
            }
        }
        if let Some(extra) = row.extra {
            builder.set_extra(to, "strange", f64::from(extra)).unwrap();
        }
        if let Some(note) = row.note {
            builder.set_extra_text(to, "note", &format!("note {note}")).unwrap();
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// The rows of all tables, a batch for each that has some.
pub(crate) fn batches(rows: &[TestRow]) -> Vec<Batch> {
    let mut details = BatchBuilder::new(Table::GpuDetails);
    let mut system = BatchBuilder::new(Table::SystemEvents);
    let mut usage = BatchBuilder::new(Table::GpuUsage);
    let mut jobs = BatchBuilder::new(Table::Jobs);
    for row in rows {
        if let (Some(node), Some(job)) = (row.node(), row.job) {
            let identity = jobs.intern(&host(&node));
            let to = jobs.row(row.hour_ns(), identity);
            for (name, text) in
                [("job_id", job.to_string()), ("step", "whole".into()), ("told_by", "prolog".into())]
            {
                jobs.set_extra_text(to, name, &text).unwrap();
            }
            jobs.set_extra(to, "as_of_ns", Value::Int(row.time_ns)).unwrap();
            if let Some(memory) = row.memory {
                jobs.set_extra(to, "uid", Value::Int(memory.unsigned_abs().into())).unwrap();
            }
        }
        if let Some(xid) = row.xid {
            let identity = usage.intern(&row.identity());
            let to = usage.row(row.hour_ns(), identity);
            usage.set_extra_text(to, "holder", &row.holder()).unwrap();
            usage.set_extra_text(to, "share", "exclusive").unwrap();
            for (name, number) in [("run", RUN_NS), ("as_of_ns", row.time_ns), ("held_ns", xid.into())] {
                usage.set_extra(to, name, Value::Int(number)).unwrap();
            }
            if let Some(power) = row.power {
                usage
                    .set_extra(to, "power_max_w", Value::Float(f64::from(power.unsigned_abs()) / 8.0))
                    .unwrap();
            }
        }
        if let Some(clock) = row.clock {
            let identity = details.intern(&row.identity());
            let to = details.row(row.time_ns, identity);
            details.set_extra_text(to, "metric", "gpu_clock_mhz").unwrap();
            details.set_extra_text(to, "instance", &(clock % 3).to_string()).unwrap();
            details.set_extra(to, "value", f64::from(clock)).unwrap();
        }
        if let (Some(node), Some(memory)) = (row.node(), row.memory) {
            let identity = system.intern(&host(&node));
            let to = system.row(row.time_ns, identity);
            system.set(to, MetricId::of("memory_mb"), Value::Int(memory.into())).unwrap();
        }
    }
    let others = [details, system, usage, jobs].into_iter();
    let others = others.filter_map(|mut other| other.finish(Origin::default(), 0));
    std::iter::once(batch(rows)).chain(others).collect()
}

fn host(node: &str) -> Identity {
    Identity::default().with(IdentityColumn::Node, node).unwrap()
}

/// Rows of an answer.
pub fn answer(rows: &Rows) -> Vec<Cells> {
    rows.batch.iter().flat_map(|batch| (0..batch.rows()).map(|row| cells(batch, row))).collect()
}

/// Columns of a batch's row that have a value.
pub(crate) fn cells(batch: &Batch, row: usize) -> Cells {
    let mut cells = Cells::from([("timestamp_ns".to_owned(), batch.timestamps()[row].to_string())]);
    let identity = batch.identity(row);
    cells.extend(identity.index.map(|index| ("gpu".to_owned(), index.to_string())));
    for column in IdentityColumn::ALL {
        cells.extend(identity.get(column).map(|text| (column.name().to_owned(), text.to_owned())));
    }
    for (metric, column) in batch.metrics() {
        let text = column.value(row).map(|value| value.as_f64().to_string());
        cells.extend(text.map(|text| (metric.metric().column.to_owned(), text)));
    }
    for (name, array) in batch.extras() {
        let text = if let Some(texts) = array.as_dictionary_opt() {
            text_at(texts, row).map(str::to_owned)
        } else {
            numbers(array).and_then(|numbers| numbers.value(row)).map(|number| number.as_f64().to_string())
        };
        cells.extend(text.map(|text| (name.to_owned(), text)));
    }
    cells
}
