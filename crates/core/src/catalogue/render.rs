//! The catalogue for people (a table, a document) and for programs (JSON).

use serde_json::{Value, json as value};

use super::lookup::{gpu_metrics, host_metrics};
use super::{DcgmName, METRICS, Metric, Table};

/// Width of the table that fits any terminal worth the name.
const WIDTH: usize = 118;
const GAP: &str = "  ";

/// The table for terminals, at most 120 columns wide. `filter` keeps the metrics that have it in their column,
/// group, aliases, foreign names or help, whatever the case; an empty one keeps all.
pub fn table(filter: &str) -> String {
    let filter = filter.trim().to_lowercase();
    let rows: Vec<&Metric> = METRICS.iter().filter(|metric| matches(metric, &filter)).collect();
    let width = |text: fn(&Metric) -> &'static str, head: &str| {
        rows.iter().map(|metric| text(metric).chars().count()).chain([head.len()]).max().unwrap_or(0)
    };
    let columns: [(&str, fn(&Metric) -> &'static str); 5] = [
        ("COLUMN", |metric| metric.column),
        ("TYPE", |metric| metric.column_type.as_str()),
        ("UNIT", |metric| metric.unit.as_str()),
        ("KIND", |metric| metric.instrument.as_str()),
        ("SET", |metric| metric.series.as_str()),
    ];
    let columns = columns.map(|(head, text)| (head, text, width(text, head)));
    let indent: usize = columns.iter().map(|(_, _, width)| width + GAP.len()).sum();
    let mut out = String::new();
    for (head, _, width) in &columns {
        out.push_str(&format!("{head:<width$}{GAP}"));
    }
    out.push_str("MEANING\n");
    for metric in rows {
        for (_, text, width) in &columns {
            out.push_str(&format!("{:<width$}{GAP}", text(metric)));
        }
        for (line, words) in wrapped(metric.help, WIDTH.saturating_sub(indent).max(24)).iter().enumerate() {
            let margin = if line == 0 { 0 } else { indent };
            out.push_str(&format!("{:margin$}{words}\n", ""));
        }
    }
    out
}

/// Every fact of every metric: an array of objects in the order of the table.
pub fn json() -> Value {
    METRICS.iter().map(object).collect()
}

/// The text of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    let tables = [
        (Table::GpuEvents, "GPUs", gpu_metrics().map(|(_, metric)| metric).collect::<Vec<_>>()),
        (Table::SystemEvents, "Hosts", host_metrics().map(|(_, metric)| metric).collect()),
    ];
    for (table, title, metrics) in tables {
        out.push_str(&format!("\n## {title} (`{table}`)\n\n{} columns.\n", metrics.len()));
        let mut groups: Vec<_> = metrics.iter().map(|metric| metric.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            out.push_str(&format!("\n### {}\n\n", group.title()));
            out.push_str("| column | type | unit | kind | set | read | Prometheus | meaning |\n");
            out.push_str("|---|---|---|---|---|---|---|---|\n");
            for metric in metrics.iter().filter(|metric| metric.group == group) {
                out.push_str(&markdown_row(metric));
            }
        }
    }
    out.push_str("\n## Foreign names\n\n");
    out.push_str("DCGM value = column value × the factor in brackets, 1 where there is none.\n\n");
    out.push_str(
        "| column | DCGM up to 4.8 | DCGM from 4.9 on | OpenTelemetry | aliases |\n|---|---|---|---|---|\n",
    );
    for metric in METRICS {
        let otel = if metric.otel.is_empty() { String::new() } else { format!("`{}`", metric.otel) };
        out.push_str(&format!(
            "| `{}` | {} | {} | {} | {} |\n",
            metric.column,
            dcgm_cell(metric, false),
            dcgm_cell(metric, true),
            otel,
            metric.aliases.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(", "),
        ));
    }
    out
}

const HEAD: &str = "\
<!-- Generated from crates/core/src/catalogue by its test: `UPDATE=1 cargo test -p gpuvitals-core --test catalogue`. -->

# Metrics

Every metric has one row in the catalogue, and everything that names it comes from that row: columns of recordings
and of the store, JSON, Prometheus series, DCGM names. `gpuvitals metrics` prints the same, as a table or as JSON.

- **column**: name in `gpu_events` and `system_events`, in files, in JSON and in queries. A value stays in the
  column's unit everywhere but in Prometheus, which has base units. A missing value was not read; it is never 0.
- **kind**: a *gauge* goes up and down, a *counter* only grows until driver or host restart, a *state* is one of a few
  values or a mask of bits, an *info* changes only with the configuration.
- **set**: the smallest set of Prometheus series it stands in: `basic`, `standard` (the default), `all`.
- **read**: `fast` at the sampling rate, `slow` at most once a second, `rare` every 30 to 60 s.
- What has instances (links, ECC blocks, HBM stacks) is a total here; each instance is a row of `gpu_details`.
";

fn matches(metric: &Metric, filter: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(filter);
    filter.is_empty()
        || [metric.column, metric.group.as_str(), metric.prometheus, metric.otel, metric.help]
            .into_iter()
            .any(has)
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
        "otel": (!metric.otel.is_empty()).then_some(metric.otel),
        "aliases": metric.aliases,
        "help": metric.help,
    })
}

fn markdown_row(metric: &Metric) -> String {
    let labels: Vec<String> =
        metric.labels.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let per = metric.scope.label().map_or(String::new(), |label| format!(" Details per {label}."));
    format!(
        "| `{}` | {} | {} | {} | {} | {} | `{}{}` | {}{} |\n",
        metric.column,
        metric.column_type,
        metric.unit,
        metric.instrument,
        metric.series,
        metric.tier,
        metric.prometheus,
        labels,
        metric.help,
        per,
    )
}

fn dcgm_cell(metric: &Metric, modern: bool) -> String {
    let names = metric.dcgm.iter().filter(|name| name.modern == modern);
    let spelled = names.map(|name| {
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
