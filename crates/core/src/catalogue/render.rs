//! The catalogue for people (a table, a document) and for programs (JSON).

use std::collections::BTreeSet;

use serde_json::{Value, json as value};

use super::lookup::{gpu_metrics, host_metrics};
use super::{ColumnType, DcgmName, METRICS, Metric, Table, TableColumn};
use crate::batch::TIMESTAMP_COLUMN;

/// Width of the table, to fit common terminals.
const WIDTH: usize = 118;
const GAP: &str = "  ";

/// A column of the table for terminals: its head and its text.
type ShownColumn = (&'static str, fn(&Metric) -> &'static str);

const SHOWN: [ShownColumn; 5] = [
    ("COLUMN", |metric| metric.column),
    ("TYPE", |metric| metric.column_type.as_str()),
    ("UNIT", |metric| metric.unit.as_str()),
    ("KIND", |metric| metric.instrument.as_str()),
    ("SET", |metric| metric.series.as_str()),
];

/// The table for terminals, at most 120 columns wide. `filter` keeps the metrics that contain it in their
/// column, group, aliases, foreign names or help, ignoring case; an empty one keeps all.
pub fn table(filter: &str) -> String {
    let filter = filter.trim().to_lowercase();
    let rows: Vec<&Metric> = METRICS.iter().filter(|metric| matches(metric, &filter)).collect();
    let columns = SHOWN.map(|(head, text)| {
        let texts = rows.iter().map(|metric| text(metric).chars().count());
        (head, text, texts.chain([head.len()]).max().unwrap_or(0))
    });
    let indent: usize = columns.iter().map(|(_, _, width)| width + GAP.len()).sum();
    let heads: Vec<String> = columns.iter().map(|(head, _, width)| format!("{head:<width$}{GAP}")).collect();
    let mut lines = vec![heads.concat() + "MEANING"];
    for metric in rows {
        let cells: Vec<String> =
            columns.iter().map(|(_, text, width)| format!("{:<width$}{GAP}", text(metric))).collect();
        let mut margin = cells.concat();
        for words in wrapped(metric.help, WIDTH.saturating_sub(indent).max(24)) {
            lines.push(margin + &words);
            margin = " ".repeat(indent);
        }
    }
    ended(&lines)
}

/// Every fact of every metric: an array of objects in the order of the table.
pub fn json() -> Value {
    METRICS.iter().map(object).collect()
}

/// The text of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut lines = vec![HEAD.to_owned()];
    lines.extend(chapter(
        Table::GpuEvents,
        "GPUs",
        &gpu_metrics().map(|(_, metric)| metric).collect::<Vec<_>>(),
    ));
    lines.extend(chapter(
        Table::SystemEvents,
        "Hosts",
        &host_metrics().map(|(_, metric)| metric).collect::<Vec<_>>(),
    ));
    lines.extend(tables());
    lines.push("## Foreign names\n".to_owned());
    lines.push("DCGM value = column value × the factor in brackets, 1 if none is given.\n".to_owned());
    lines.push("| column | DCGM up to 4.8 | DCGM from 4.9 on | OpenTelemetry | aliases |".to_owned());
    lines.push("|---|---|---|---|---|".to_owned());
    let known =
        |metric: &&Metric| !(metric.dcgm.is_empty() && metric.otel.is_none() && metric.aliases.is_empty());
    lines.extend(METRICS.iter().filter(known).map(|metric| {
        let Metric { column, otel, aliases, .. } = metric;
        let otel = otel.map_or_else(String::new, |otel| format!("`{}`", otel.name));
        let aliases: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let (new, old): (Vec<&DcgmName>, Vec<&DcgmName>) = metric.dcgm.iter().partition(|name| name.modern);
        let (old, new) = (dcgm_cell(&old), dcgm_cell(&new));
        format!("| `{column}` | {old} | {new} | {otel} | {} |", aliases.join(", "))
    }));
    ended(&lines)
}

/// The tables with their keys, and the columns that are no metrics.
fn tables() -> Vec<String> {
    let mut lines = vec!["## Tables\n".to_owned(), TABLES.to_owned()];
    lines.extend(Table::ALL.map(|table| {
        let names = [table.subject().name(), TIMESTAMP_COLUMN].into_iter();
        let key: Vec<&str> = names.chain(table.key().map(|column| column.name)).collect();
        let version = table.version().map_or_else(String::new, |version| {
            format!("; of rows with equal keys the one with the largest `{}` stays", version.name)
        });
        format!("- `{table}`: key `{}`{version}", key.join("`, `"))
    }));
    for table in Table::ALL.into_iter().filter(|table| !table.columns().is_empty()) {
        lines.push(format!("\n### `{table}`\n\n| column | type | unit | meaning |\n|---|---|---|---|"));
        lines.extend(table.columns().iter().map(|TableColumn { name, column_type, unit, help, .. }| {
            let column_type = column_type.map_or("text", ColumnType::as_str);
            format!("| `{name}` | {column_type} | {unit} | {help} |")
        }));
    }
    lines.push(String::new());
    lines
}

const TABLES: &str = "\
A row has the time, the identity of its GPU or host, the metrics of its table and the columns below. Rows with equal keys
are one row: they join, column by column. The key of a GPU is `uuid`, with `partition` if it has one.
";

/// The metrics of one table, group by group.
fn chapter(table: Table, title: &str, metrics: &[&Metric]) -> Vec<String> {
    let mut lines = vec![format!("## {title} (`{table}`)\n\n{} columns.\n", metrics.len())];
    let groups: BTreeSet<_> = metrics.iter().map(|metric| metric.group).collect();
    for group in groups {
        lines.push(format!("### {}\n", group.title()));
        lines.push("| column | type | unit | kind | set | read | Prometheus | meaning |".to_owned());
        lines.push("|---|---|---|---|---|---|---|---|".to_owned());
        lines
            .extend(metrics.iter().filter(|metric| metric.group == group).map(|metric| markdown_row(metric)));
        lines.push(String::new());
    }
    lines
}

const HEAD: &str = "\
<!-- Generated from crates/core/src/catalogue by its test: `UPDATE=1 cargo test -p gpuvitals-core --test it catalogue`. -->

# Metrics

Every metric has one row in the catalogue, and all its names come from that row: columns of recordings
and of the store, JSON, Prometheus series, DCGM names. `gpuvitals metrics` prints the same, as a table or as JSON.

- **column**: name in its table, in files, in JSON and in queries. A value stays in the
  column's unit everywhere but in Prometheus, which has base units. A missing value was not read; it is never 0.
- **kind**: a *gauge* goes up and down, a *counter* only grows until driver or host restart, a *state* is one of a few
  values or a mask of bits, an *info* changes only with the configuration.
- **set**: the smallest set of Prometheus series that contains it: `basic`, `standard` (the default), `all`.
- **read**: `fast` at the sampling rate, `slow` at most once a second, `rare` every 30 to 60 s.
- A metric of links, ECC blocks or HBM stacks has one value for all of them in `gpu_events`, and single values in
  `gpu_details` if the driver has them. The CPUs of the host are rows of `system_events`, with their number in the
  column `core`, on request.
";

fn matches(metric: &Metric, filter: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(filter);
    filter.is_empty()
        || [metric.column, metric.group.as_str(), metric.prometheus, metric.help].into_iter().any(has)
        || metric.otel.is_some_and(|otel| has(otel.name))
        || metric.aliases.iter().any(|alias| has(alias))
        || metric.dcgm.iter().any(|name| has(name.name))
}

fn object(metric: &Metric) -> Value {
    let labels: serde_json::Map<String, Value> =
        metric.labels.iter().map(|(label, text)| ((*label).to_owned(), value!(text))).collect();
    let dialect = |name: &DcgmName| if name.modern { "modern" } else { "legacy" };
    value!({
        "column": metric.column,
        "table": metric.table,
        "type": metric.column_type,
        "unit": metric.unit,
        "instrument": metric.instrument,
        "scope": metric.scope,
        "instance_label": metric.scope.label(),
        "group": metric.group,
        "tier": metric.tier,
        "series": metric.series,
        "min": metric.range.0,
        "max": metric.range.1,
        "prometheus": {
            "name": metric.prometheus,
            "labels": labels,
            "unit": metric.unit.base(),
            "factor": metric.factor,
        },
        "dcgm": metric.dcgm.iter().map(|name| value!({
            "name": name.name,
            "dialect": dialect(name),
            "factor": name.factor,
        })).collect::<Value>(),
        "otel": metric.otel.map(|otel| otel.name),
        "aliases": metric.aliases,
        "bits": metric.bits.iter().map(|(bit, name)| value!({ "bit": bit, "name": name })).collect::<Value>(),
        "help": metric.help,
    })
}

fn markdown_row(metric: &Metric) -> String {
    let labels: Vec<String> =
        metric.labels.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    format!(
        "| `{}` | {} | {} | {} | {} | {} | `{}{}` | {} |",
        metric.column,
        metric.column_type,
        metric.unit,
        metric.instrument,
        metric.series,
        metric.tier,
        metric.prometheus,
        labels,
        metric.help,
    )
}

fn dcgm_cell(names: &[&DcgmName]) -> String {
    let spelled = names.iter().map(|name| {
        let DcgmName { name, factor, .. } = name;
        if (*factor - 1.0).abs() < f64::EPSILON {
            format!("`{name}`")
        } else {
            format!("`{name}` ({factor})")
        }
    });
    spelled.collect::<Vec<_>>().join(", ")
}

/// The words of a sentence in lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Joins lines into a text that ends with a line break.
fn ended(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}
