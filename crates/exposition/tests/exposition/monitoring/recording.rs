//! Recording rules: the figures that people look at by node, model and namespace.

use std::fmt::Write;

use gpuvitals_core::catalogue;

use super::checks::test_rules;
use super::{is_current, root, yaml};

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

/// Of what the figures are, the labels that make one of it, and the join that brings them. Two clusters may have nodes and namespaces
/// of equal names; where no cluster is named, the label is not there.
const LEVELS: [(&str, &str, &str); 3] = [
    ("node", "cluster, node", "on (job, instance, uuid, partition) group_left (cluster, node) gpu_info"),
    ("model", "model", "on (job, instance, uuid, partition) group_left (model) gpu_info"),
    // A GPU that a batch job holds may have no namespace; where a scrape honours labels, `job` is that job's number, so it does not join.
    (
        "namespace",
        "cluster, namespace",
        "on (instance, uuid, partition) group_left (namespace) max by (instance, uuid, partition, namespace) \
         (gpu_attribution_info{namespace!=\"\"}) * on (job, instance, uuid, partition) group_left (cluster) gpu_info",
    ),
];

#[test]
fn the_rules_are_made_of_the_catalogue() {
    let mut out = format!("# Generated: `{}`.\ngroups:\n", super::COMMAND);
    for (level, labels, join) in LEVELS {
        writeln!(out, "  - name: gpuvitals-{level}\n    rules:").unwrap();
        for (series, operation, suffix) in figures() {
            let bare = series.trim_start_matches("rate(").split(['{', '[']).next().unwrap();
            writeln!(out, "      - record: {level}:{bare}:{suffix}").unwrap();
            yaml::text(&mut out, 8, "expr", &format!("{operation} by ({labels}) ({series} * {join})"));
        }
    }
    is_current(RULES, &out);
}

/// A GPU's power, with its node and holder. `job` is the number of a job that holds it, in a scrape that honours labels.
fn held(instance: &str, cluster: &str, watts: u32, job: &str, holder: &str) -> String {
    let gpu = format!("instance=\"{instance}\",uuid=\"GPU-{instance}\"");
    let series = [
        (format!("gpu_power_watts{{job=\"agent\",{gpu}}}"), watts),
        (format!("gpu_info{{job=\"agent\",{gpu},node=\"node1\",{cluster}}}"), 1),
        (format!("gpu_attribution_info{{job=\"{job}\",{gpu},{holder}}}"), 1),
    ];
    series.iter().fold(String::new(), |mut out, (series, value)| {
        writeln!(out, "      - {{series: '{series}', values: '{value}x10'}}").unwrap();
        out
    })
}

#[test]
fn equal_names_of_two_clusters_stay_apart_and_jobs_are_no_namespace() {
    let rules = root().join(RULES).canonicalize().unwrap();
    let mut out = format!("rule_files: [\"{}\"]\nevaluation_interval: 1m\ntests:\n", rules.display());
    writeln!(out, "  - interval: 1m\n    input_series:").unwrap();
    let ml = "namespace=\"ml\",pod=\"train-0\"";
    out += &held("a:1", "cluster=\"a\"", 100, "agent", ml);
    out += &held("a:2", "cluster=\"a\"", 10, "4711", ml);
    out += &held("b:1", "cluster=\"b\"", 200, "agent", ml);
    out += &held("b:2", "cluster=\"b\"", 20, "agent", "exported_job=\"4711\"");
    out += &held("b:3", "cluster=\"b\"", 2, "4711", "");
    out += &held("c:1", "", 400, "agent", ml);
    writeln!(out, "    promql_expr_test:").unwrap();
    for (level, name, values) in [
        ("node", "node1", [("a", 110), ("b", 222), ("", 400)]),
        ("namespace", "ml", [("a", 110), ("b", 200), ("", 400)]),
    ] {
        let record = format!("{level}:gpu_power_watts:sum");
        writeln!(out, "      - expr: {record}\n        eval_time: 5m\n        exp_samples:").unwrap();
        for (cluster, value) in values {
            let labels = format!("cluster=\"{cluster}\",{level}=\"{name}\"");
            writeln!(out, "          - {{labels: '{record}{{{labels}}}', value: {value}}}").unwrap();
        }
    }
    test_rules("recording-tests.yaml", &out);
}
