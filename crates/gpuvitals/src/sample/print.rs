//! Rows as text.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{Scope, Table, Tier, gpu_metrics, host_metrics};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, time};
use gpuvitals_inputs::csv::write::{WideWriter, WriteError};
use gpuvitals_sources::sampler::SamplerConfig;
use serde_json::{Map, Value as Json};

use super::format::Format;
use super::round::name;
use crate::sampling::lasts_ns;
use crate::table::shortened;

/// Lines after which the heading is printed again.
const HEADING_EVERY: usize = 24;

/// A column for people: heading, width, content.
struct Column {
    heading: &'static str,
    width: usize,
    metric: MetricId,
    decimals: usize,
}

const fn column(heading: &'static str, width: usize, column: &str, decimals: usize) -> Column {
    Column { heading, width, metric: MetricId::of(column), decimals }
}

const GPU: &[Column] = &[
    column("busy %", 6, "utilization_pct", 0),
    column("used MiB", 8, "memory_used_mb", 0),
    column("mem %", 5, "memory_used_pct", 0),
    column("W", 6, "power_w", 1),
    column("cap W", 5, "power_limit_w", 0),
    column("°C", 4, "temperature_c", 0),
    column("hot °C", 6, "temperature_junction_c", 0),
    column("MHz", 5, "gpu_clock_mhz", 0),
    column("mem MHz", 7, "mem_clock_mhz", 0),
    column("fan %", 5, "fan_speed_pct", 0),
    column("throttled", 9, "throttled", 0),
];

const HOST: &[Column] = &[
    column("cpu %", 6, "cpu_pct", 1),
    column("used MiB", 8, "memory_mb", 0),
    column("load", 6, "load1", 2),
    column("ctx switches", 14, "ctx_switches", 0),
    column("page faults", 14, "page_faults", 0),
    column("irqs", 14, "irqs", 0),
];

const CPU: MetricId = MetricId::of("cpu_pct");
/// The metric shown in its place in a line about one CPU.
const CORE: MetricId = MetricId::of("cpu_core_pct");

/// Prints rows one by one.
pub(super) struct Printer {
    format: Format,
    per_core: bool,
    /// Table of the heading that was printed last, and the lines since.
    heading: Option<(Table, usize)>,
    csv: Option<WideWriter<Vec<u8>>>,
    sampler: SamplerConfig,
    /// The latest value of a slow metric of a device, with the time of its row: the table shows it until it is old.
    slow: HashMap<(Arc<str>, MetricId), (Value, i64)>,
}

impl Printer {
    pub(super) fn new(format: Format, per_core: bool, sampler: SamplerConfig) -> Self {
        Self { format, per_core, heading: None, csv: None, sampler, slow: HashMap::new() }
    }

    /// Prints a row.
    pub(super) fn print(&mut self, out: &mut impl Write, batch: &Batch, row: usize) -> io::Result<()> {
        match self.format {
            Format::Table => self.line(out, batch, row),
            Format::Jsonl => writeln!(out, "{}", json(batch, row)),
            Format::Csv => self.csv(out, batch, row),
        }
    }

    fn line(&mut self, out: &mut impl Write, batch: &Batch, row: usize) -> io::Result<()> {
        let table = batch.table();
        let columns = if table == Table::GpuEvents { GPU } else { HOST };
        let since = match self.heading {
            Some((before, since)) if before == table && since < HEADING_EVERY => since,
            _ => {
                let who = if table == Table::GpuEvents { "gpu" } else { "host" };
                let what = if batch.identity(row).is_simulated() { "simulated" } else { "" };
                write!(out, "{:12} {who:>3} {what:20}", "time (UTC)")?;
                for column in columns {
                    write!(out, " {:>width$}", column.heading, width = column.width)?;
                }
                writeln!(out)?;
                0
            }
        };
        self.heading = Some((table, since + 1));
        let identity = batch.identity(row);
        let at = batch.timestamps().get(row).copied().unwrap_or_default();
        let index = identity.index.map_or(String::new(), |index| index.to_string());
        let called = match table {
            Table::GpuEvents => identity
                .get(IdentityColumn::Model)
                .or_else(|| identity.get(IdentityColumn::Pci))
                .or_else(|| identity.uuid()),
            _ => identity.node(),
        };
        let core = batch.instance(Scope::CpuCore, row);
        let called =
            core.map_or_else(|| called.unwrap_or_default().to_owned(), |core| format!("  cpu {core}"));
        write!(out, "{:12} {index:>3} {:20}", clock_time(at), shortened(&called, 20))?;
        for column in columns {
            let metric = if core.is_some() && column.metric == CPU { CORE } else { column.metric };
            let value = batch.metric(metric).and_then(|values| values.value(row));
            let value = if core.is_some() { value } else { self.known(batch, (row, at), metric, value) };
            let text = value.map_or_else(|| "-".to_owned(), |value| number(value, column.decimals));
            write!(out, " {text:>width$}", width = column.width)?;
        }
        writeln!(out)
    }

    /// The value of a row, or the one before if its metric is read less often than the device.
    fn known(
        &mut self,
        batch: &Batch,
        (row, at_ns): (usize, i64),
        metric: MetricId,
        value: Option<Value>,
    ) -> Option<Value> {
        if metric.metric().tier == Tier::Fast {
            return value;
        }
        let of = (name(batch, row), metric);
        if let Some(value) = value {
            self.slow.insert(of, (value, at_ns));
            return Some(value);
        }
        // One that was read in vain is not there any more.
        if batch.absences().iter().any(|absence| absence.gpu == of.0 && absence.metric == metric) {
            self.slow.remove(&of);
        }
        let (value, then_ns) = *self.slow.get(&of)?;
        (at_ns - then_ns <= lasts_ns(metric, &self.sampler)).then_some(value)
    }

    fn csv(&mut self, out: &mut impl Write, batch: &Batch, row: usize) -> io::Result<()> {
        let writer = self.csv.get_or_insert_with(|| {
            let metrics: Vec<MetricId> = match batch.table() {
                Table::GpuEvents => gpu_metrics().map(|(id, _)| id).collect(),
                _ => host_metrics().map(|(id, _)| id).collect(),
            };
            let cores =
                Scope::CpuCore.label().filter(|_| self.per_core && batch.table() == Table::SystemEvents);
            WideWriter::with_metrics(Vec::new(), metrics).and_columns(cores)
        });
        let keep: Vec<bool> = (0..batch.rows()).map(|at| at == row).collect();
        let Some(one) = batch.filter(&keep) else { return Ok(()) };
        match writer.write(&one) {
            Ok(()) => {}
            Err(WriteError::Io(error)) => return Err(error),
            Err(error) => return Err(io::Error::other(error)),
        }
        let lines = std::mem::take(writer.get_mut());
        out.write_all(&lines)
    }
}

/// `12:34:56.789` of a UTC time.
fn clock_time(timestamp_ns: i64) -> String {
    let text = time::format(timestamp_ns.div_euclid(1_000_000) * 1_000_000);
    let clock = text.split('T').nth(1).unwrap_or(&text).trim_end_matches('Z').to_owned();
    let (seconds, fraction) = clock.split_once('.').unwrap_or((&clock, ""));
    format!("{seconds}.{fraction:0<3}")
}

fn number(value: Value, decimals: usize) -> String {
    match value {
        Value::Int(v) => v.to_string(),
        other => format!("{:.decimals$}", other.as_f64()),
    }
}

/// The row with the column names of the table, without missing values; `absent` has the reasons.
fn json(batch: &Batch, row: usize) -> Json {
    let mut object = Map::new();
    let at = batch.timestamps().get(row).copied().unwrap_or_default();
    object.insert("table".to_owned(), batch.table().name().into());
    object.insert("timestamp".to_owned(), time::format(at).into());
    object.insert("timestamp_ns".to_owned(), at.into());
    let identity = batch.identity(row);
    if let Some(index) = identity.index {
        object.insert("gpu".to_owned(), index.into());
    }
    for column in IdentityColumn::ALL {
        if let Some(text) = identity.get(column) {
            object.insert(column.name().to_owned(), text.into());
        }
    }
    if let (Some(label), Some(core)) = (Scope::CpuCore.label(), batch.instance(Scope::CpuCore, row)) {
        object.insert(label.to_owned(), core.into());
    }
    for (metric, values) in batch.metrics() {
        if let Some(value) = values.value(row) {
            object.insert(metric.metric().column.to_owned(), value.to_json());
        }
    }
    let key = identity.key();
    let absent: Map<String, Json> = batch
        .absences()
        .iter()
        .filter(|absence| Some(&absence.gpu) == key.as_ref())
        .map(|absence| (absence.metric.metric().column.to_owned(), absence.reason.as_str().into()))
        .collect();
    if !absent.is_empty() {
        object.insert("absent".to_owned(), absent.into());
    }
    Json::Object(object)
}
