//! Recording rules: the figures that people look at by node, model and namespace.

use std::fmt::Write;

use gpuvitals_core::catalogue;

use crate::{is_current, yaml};

/// The file of the rules.
pub(crate) const RULES: &str = "deploy/prometheus/recording.yaml";

/// What is put together: the series, how, and the name of the operation.
fn figures() -> Vec<(String, &'static str, &'static str)> {
    let name = |column: &str| {
        let metric = catalogue::by_column(column).expect("a column of the catalogue").metric();
        let labels: Vec<_> =
            metric.labels.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
        if labels.is_empty() {
            metric.prometheus.to_owned()
        } else {
            format!("{}{{{}}}", metric.prometheus, labels.join(","))
        }
    };
    vec![
        ("gpu_up".to_owned(), "count", "count"),
        ("gpu_up".to_owned(), "sum", "sum"),
        (name("utilization_pct"), "avg", "avg"),
        (name("power_w"), "sum", "sum"),
        (name("memory_used_mb"), "sum", "sum"),
        (name("memory_total_mb"), "sum", "sum"),
        (name("temperature_c"), "max", "max"),
        ("rate(gpu_energy_joules_total[5m])".to_owned(), "sum", "sum_rate5m"),
        ("rate(gpu_throttled_seconds_total{reason=\"any\"}[5m])".to_owned(), "max", "max_rate5m"),
    ]
}

/// The label that comes with the series, and the series that has it.
const LEVELS: [(&str, &str); 3] =
    [("node", "gpu_info"), ("model", "gpu_info"), ("namespace", "gpu_attribution_info")];

#[test]
fn the_rules_are_made_of_the_catalogue() {
    let mut out = format!("# Generated: `{}`.\ngroups:\n", crate::COMMAND);
    for (level, from) in LEVELS {
        writeln!(out, "  - name: gpuvitals-{level}\n    rules:").unwrap();
        for (series, operation, suffix) in figures() {
            let bare = series.trim_start_matches("rate(").split(['{', '[']).next().unwrap();
            writeln!(out, "      - record: {level}:{bare}:{suffix}").unwrap();
            let join = format!("on (job, instance, uuid, partition) group_left ({level}) {from}");
            yaml::text(&mut out, 8, "expr", &format!("{operation} by ({level}) ({series} * {join})"));
        }
    }
    is_current(RULES, &out);
}
