//! The output of `nvidia-smi --query-gpu=… --format=csv`: a header, a line for each GPU, and sentences about
//! those that do not answer.

use gpuvitals_core::batch::Value;
use gpuvitals_core::foreign::{is_credible, reason_of};
use gpuvitals_core::{AbsenceReason, MetricId};

use super::fields::field;
use crate::dialect::{NVIDIA_HELD_DOWN, NVIDIA_REASONS};

/// Lines read at most: GPUs of a node, and a sentence for each.
pub const LINES_MAX: usize = 1024;
/// Columns read at most; the tool knows some 250.
const COLUMNS_MAX: usize = 512;

const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_USED_SHARE: MetricId = MetricId::of("memory_used_pct");
const REASONS: MetricId = MetricId::of("throttle_reasons");
const THROTTLED: MetricId = MetricId::of("throttled");
const SESSIONS: MetricId = MetricId::of("encoder_sessions");
const OF_SESSIONS: [MetricId; 2] = [MetricId::of("encoder_fps"), MetricId::of("encoder_latency_ns")];

/// From this compute capability on `power.draw` is an average over a second; GA100 (8.0) gives the instant.
const AVERAGED_ABOVE: (u32, u32) = (8, 0);

/// An answer of the tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// GPUs with at least an identity.
    pub gpus: Vec<GpuRow>,
    /// Other lines: messages about GPUs that do not answer, or about the tool.
    pub sentences: Vec<String>,
}

/// A line of a GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuRow {
    /// Index on the node.
    pub index: Option<i32>,
    /// UUID of the GPU, `GPU-5fd4f087-…`.
    pub uuid: Option<String>,
    /// Product name of the GPU.
    pub name: Option<String>,
    /// PCI address as the tool spells it, `00000000:0C:00.0`.
    pub pci: Option<String>,
    /// Version of the kernel driver.
    pub driver: Option<String>,
    /// Version of the board's firmware.
    pub vbios: Option<String>,
    /// Compute capability of CUDA, major and minor.
    pub compute_cap: Option<(u32, u32)>,
    /// Each column that was asked for: its value in the column's unit, or why it has none.
    pub values: Vec<(MetricId, Result<Value, AbsenceReason>)>,
    /// Columns of which another field gave a value that cannot be true.
    pub doubted: Vec<MetricId>,
}

impl Query {
    /// Whether the tool speaks of a GPU at this address in a sentence: one it cannot reach.
    pub fn complains_about(&self, pci: &str) -> bool {
        self.unreached().any(|address| address == pci)
    }

    /// The addresses of the GPUs that the tool speaks of in sentences.
    pub(super) fn unreached(&self) -> impl Iterator<Item = String> {
        self.sentences.iter().flat_map(|sentence| addresses(sentence))
    }
}

impl GpuRow {
    /// Its value of a metric.
    pub fn get(&self, metric: MetricId) -> Option<Result<Value, AbsenceReason>> {
        self.values.iter().find(|(id, _)| *id == metric).map(|(_, value)| *value)
    }

    fn is_anybody(&self) -> bool {
        self.index.is_some() || self.uuid.is_some() || self.pci.is_some()
    }

    /// Takes a cell of a column that is still empty, or has a value that cannot be true where this one can.
    fn set(&mut self, metric: MetricId, value: Result<Value, AbsenceReason>) {
        let is_plausible =
            |value: &Result<Value, AbsenceReason>| value.is_ok_and(|value| is_credible(metric, value));
        match self.values.iter_mut().find(|(id, _)| *id == metric) {
            Some((_, known)) if known.is_err() && value.is_ok() => *known = value,
            Some((_, known)) if !is_plausible(known) && is_plausible(&value) => {
                *known = value;
                self.doubted.push(metric);
            }
            Some(_) => {}
            None => self.values.push((metric, value)),
        }
    }

    fn take(&mut self, column: &QueryColumn<'_>, cell: &str) {
        let text = || reason_of(cell).is_none().then(|| cell.to_owned());
        match column.name {
            "index" => self.index = cell.parse().ok().filter(|index| *index >= 0),
            "uuid" | "gpu_uuid" => self.uuid = text(),
            "name" | "gpu_name" => self.name = text(),
            "pci.bus_id" | "gpu_bus_id" => self.pci = text(),
            "driver_version" => self.driver = text(),
            "vbios_version" => self.vbios = text(),
            "compute_cap" => {
                self.compute_cap = cell
                    .split_once('.')
                    .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            }
            name => {
                if let Some(field) = field(name) {
                    self.set(field.metric, field.value(cell, column.unit));
                }
            }
        }
    }

    /// Values derived from other columns. `has_instant`: its power is the instantaneous one.
    fn derive(&mut self, has_instant: bool) {
        let is_true = |metric: MetricId, value: &Value| metric.metric().admits(value.as_f64());
        let got = |metric| {
            let told = self.get(metric)?;
            Some(told.and_then(|value| {
                Some(value).filter(|value| is_true(metric, value)).ok_or(AbsenceReason::Invalid)
            }))
        };
        let mut derived = Vec::new();
        if let Some(reasons) = got(REASONS) {
            for (bits, metric) in [(NVIDIA_HELD_DOWN, THROTTLED)].into_iter().chain(NVIDIA_REASONS) {
                derived.push((metric, reasons.map(|reasons| has_any(reasons, bits))));
            }
        }
        if let Some(used) = got(MEMORY_USED) {
            let total = got(MEMORY_TOTAL).unwrap_or(Err(AbsenceReason::NotSupported));
            let share = used.and_then(|used| {
                let (used, total) = (used.as_f64(), total?.as_f64());
                let is_part = total > 0.0 && used <= total;
                is_part.then_some(Value::Float(100.0 * used / total)).ok_or(AbsenceReason::Invalid)
            });
            derived.push((MEMORY_USED_SHARE, share));
        }
        let is_averaged = !has_instant && self.compute_cap.is_some_and(|part| part > AVERAGED_ABOVE);
        // If a part's only power is an average, it is also its most instantaneous power.
        if let (true, Some(power), None | Some(Err(_))) = (is_averaged, got(POWER), got(POWER_AVERAGE)) {
            derived.push((POWER_AVERAGE, power));
        }
        // Without a session the tool prints a rate and a latency of 0, which nothing has measured.
        if matches!(got(SESSIONS), Some(Ok(Value::Int(0)))) {
            self.values.retain(|(metric, _)| !OF_SESSIONS.contains(metric));
        }
        for (metric, value) in derived {
            self.set(metric, value);
        }
    }
}

/// 1 if the mask has any of these bits.
fn has_any(mask: Value, bits: u64) -> Value {
    match mask {
        Value::Int(mask) => Value::Int((mask.cast_unsigned() & bits != 0).into()),
        other => other,
    }
}

/// A column: its field and the unit its header names.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryColumn<'a> {
    pub(super) name: &'a str,
    pub(super) unit: Option<&'a str>,
}

impl<'a> QueryColumn<'a> {
    /// A title such as `power.draw [W]`, taken apart.
    fn parse(title: &'a str) -> Self {
        let title = title.trim();
        match title.split_once(" [") {
            Some((name, unit)) => Self { name: name.trim(), unit: Some(unit.trim_end_matches(']')) },
            None => Self { name: title, unit: None },
        }
    }
}

/// Parses an answer to `--query-gpu`. The header names the columns; an answer without one has the columns
/// `fields`, in that order.
pub fn parse_query_csv(text: &str, fields: &[&str]) -> Query {
    let mut query = Query::default();
    let table = QueryTable::parse(text, fields, |name| {
        field(name).is_some() || super::fields::IDENTITY.contains(&name) || name == "timestamp"
    });
    query.sentences = table.sentences.into_iter().map(str::to_owned).collect();
    // Power is the instant if a part reports it, whatever the order of the columns.
    let is_last = |column: &QueryColumn<'_>| column.name == "power.draw";
    for cells in table.rows {
        let mut row = GpuRow::default();
        let pairs = || table.columns.iter().zip(&cells);
        for (column, cell) in pairs().filter(|(column, _)| !is_last(column)) {
            row.take(column, cell);
        }
        let has_instant = matches!(row.get(POWER), Some(Ok(_)));
        for (column, cell) in pairs().filter(|(column, _)| is_last(column)) {
            row.take(column, cell);
        }
        row.derive(has_instant);
        if row.is_anybody() {
            query.gpus.push(row);
        }
    }
    query
}

/// Lines of comma-separated cells, and those that are none.
#[derive(Debug, Default)]
pub(super) struct QueryTable<'a> {
    pub(super) columns: Vec<QueryColumn<'a>>,
    pub(super) rows: Vec<Vec<&'a str>>,
    pub(super) sentences: Vec<&'a str>,
}

impl<'a> QueryTable<'a> {
    /// A line is a header if two of its cells (or its only one) are names of fields, a row if it has as many
    /// cells as columns, and a sentence otherwise.
    pub(super) fn parse(text: &'a str, fields: &[&'a str], is_field: impl Fn(&str) -> bool) -> Self {
        let mut table = Self::default();
        table.columns.extend(fields.iter().take(COLUMNS_MAX).map(|name| QueryColumn { name, unit: None }));
        let lines = text.lines().map(|line| line.trim_matches(|c: char| c.is_whitespace() || c == '\0'));
        for line in lines.filter(|line| !line.is_empty()).take(LINES_MAX) {
            let titles: Vec<QueryColumn<'_>> =
                line.split(',').take(COLUMNS_MAX).map(QueryColumn::parse).collect();
            let known = titles.iter().filter(|title| is_field(title.name)).take(2).count();
            let is_header = known >= titles.len().min(2);
            if is_header && table.rows.is_empty() {
                table.columns = titles;
                continue;
            }
            match cells_of(line, &table.columns) {
                Some(cells) => table.rows.push(cells),
                None => table.sentences.push(line),
            }
        }
        table
    }
}

/// The cells of a row; none when their number is wrong. A name may have commas in it.
fn cells_of<'a>(line: &'a str, columns: &[QueryColumn<'_>]) -> Option<Vec<&'a str>> {
    let count = line.split(',').count();
    let surplus = count.checked_sub(columns.len()).filter(|_| !columns.is_empty())?;
    let is_name = |column: &QueryColumn<'_>| matches!(column.name, "process_name" | "name" | "gpu_name");
    let wide = columns.iter().rposition(is_name);
    if surplus > 0 && (wide.is_none() || surplus > 64) {
        return None;
    }
    let mut cells = Vec::with_capacity(columns.len());
    let mut rest = line;
    for at in 0..columns.len() {
        let commas = if Some(at) == wide { surplus } else { 0 };
        let end = rest.match_indices(',').nth(commas).map_or(rest.len(), |(end, _)| end);
        let (cell, after) = rest.split_at_checked(end)?;
        cells.push(cell.trim());
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some(cells)
}

/// PCI addresses in a sentence, as the kernel spells them: `Unable to determine the device handle for GPU0000:02:00.0: …`.
fn addresses(sentence: &str) -> impl Iterator<Item = String> {
    sentence.split_ascii_whitespace().filter_map(|word| {
        let word = word.trim_end_matches([':', '.', ',']);
        let bare = word.strip_prefix("GPU").or(word.strip_prefix("gpu")).unwrap_or(word);
        is_address(bare).then(|| kernel_address(bare))
    })
}

fn is_address(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let mut is_hex = |lens: std::ops::RangeInclusive<usize>| {
        parts
            .next()
            .is_some_and(|part| lens.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    is_hex(4..=8) && is_hex(2..=2) && is_hex(2..=2) && is_hex(1..=1) && parts.next().is_none()
}

/// `00000000:0C:00.0` to `0000:0c:00.0`.
pub(super) fn kernel_address(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => {
            let short = domain.strip_prefix("0000").unwrap_or(domain);
            format!("{short}:{rest}")
        }
        _ => text,
    }
}
