//! The alerts: one for each kind of condition, and those on what a single value does not show.

mod gpus;
mod jobs;
mod services;

use std::fmt::Write;

use gpuvitals_analysis::condition;
use gpuvitals_core::MetricId;
use gpuvitals_core::catalogue::{Metric, Unit};

use super::{is_current, yaml};

/// An alert, and series that show it in a test.
pub(crate) struct Alert {
    pub(crate) name: String,
    /// `info`: worth a look in office hours; `warning`: before the week ends; `critical`: now.
    pub(crate) severity: &'static str,
    /// How long the expression must hold.
    pub(crate) hold: &'static str,
    pub(crate) expr: String,
    /// One line for the message: which GPU or service, and the value. A template of Prometheus.
    pub(crate) summary: String,
    /// What it means.
    pub(crate) meaning: String,
    /// What to do. `INDEX` and `ADDRESS` are the GPU's.
    pub(crate) remedy: String,
    /// Ways that it comes about, each a test.
    pub(crate) shown: Vec<Shown>,
}

impl Alert {
    /// The text for the person who is called: what it means and what to do. A template of Prometheus.
    pub(crate) fn description(&self) -> String {
        let remedy =
            self.remedy.replace("INDEX", "{{ $labels.gpu }}").replace("ADDRESS", "{{ $labels.pci }}");
        format!("{} What to do: {remedy}", self.meaning)
    }

    /// Where the text is that says what to do.
    pub(crate) fn runbook(&self) -> String {
        format!("docs/alerts.md#{}", self.name.to_lowercase())
    }
}

type Alerts = fn() -> Vec<Alert>;

/// Series of a test, one value a minute: it fires at minute 60 and is silent at minutes 0 and 180.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) series: Vec<(String, String)>,
    /// Labels of the alert beside its name and severity.
    pub(crate) labels: Vec<(&'static str, &'static str)>,
    /// The part of the summary that shows a value, and its text at minute 60.
    pub(crate) value: (String, &'static str),
}

/// The groups of rules by name.
pub(crate) const GROUPS: [(&str, Alerts); 4] = [
    ("gpuvitals-conditions", conditions),
    ("gpuvitals-gpus", gpus::all),
    ("gpuvitals-jobs", jobs::all),
    ("gpuvitals-pipeline", services::all),
];

/// Joins the cluster, if it has one, the node, the model and the PCI address of a GPU to a series of it.
pub(crate) const OF_GPU: &str =
    "on (job, instance, uuid, partition) group_left (cluster, node, model, pci) gpu_info";
/// Labels of the GPU in the tests.
const GPU: [(&str, &str); 5] =
    [("gpu", "3"), ("instance", "node7:9400"), ("job", "agent"), ("uuid", "GPU-1"), ("vendor", "nvidia")];
pub(crate) const NAMED: &str = "GPU {{ $labels.gpu }} of {{ $labels.node }} ({{ $labels.model }})";

pub(crate) fn name(column: &str) -> &'static str {
    catalogue(column).metric().prometheus
}

fn catalogue(column: &str) -> MetricId {
    gpuvitals_core::catalogue::by_column(column).expect("a column of the catalogue")
}

/// A series of the GPU of the tests, with labels of its own.
pub(crate) fn series(name: &str, own: &[(&str, &str)]) -> String {
    let labels = GPU.iter().chain(own).map(|(label, text)| format!("{label}=\"{text}\""));
    format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// The same of another GPU of the node.
pub(crate) fn other(name: &str, own: &[(&str, &str)]) -> String {
    series(name, own).replace("GPU-1", "GPU-2").replace("gpu=\"3\"", "gpu=\"4\"")
}

/// What an alert on the GPU has from `gpu_info`.
pub(crate) const AT_NODE: [(&str, &str); 4] =
    [("cluster", "lab"), ("model", "H100"), ("node", "node7"), ("pci", "0000:1b:00.0")];

/// The series that names them.
pub(crate) fn info() -> (String, String) {
    (series("gpu_info", &AT_NODE), "1x240".to_owned())
}

pub(crate) fn labels(own: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    GPU.iter().chain(own).copied().collect()
}

fn conditions() -> Vec<Alert> {
    let alert = |condition: &'static condition::Condition| {
        let severity = condition.severity.name();
        let of = [("condition", condition.id), ("severity", severity)];
        let columns: Vec<_> = condition.metrics.iter().map(|id| explained(id.metric())).collect();
        let shown = shown_metric(condition).map(MetricId::metric);
        let template = shown.map(measured).unwrap_or_default();
        let text = match shown {
            None => "",
            Some(metric) if metric.unit == Unit::Celsius => ": 7 °C",
            Some(_) => ": 7",
        };
        let measured = shown.map(|metric| (series(metric.prometheus, metric.labels), "7x240".to_owned()));
        let held = (series("gpu_condition", &of), "_x5 1x100 stale _x130".to_owned());
        Alert {
            name: format!("Gpu{}", camel(condition.id)),
            severity,
            hold: if severity == "critical" { "1m" } else { "10m" },
            expr: format!("gpu_condition{{condition=\"{}\"}} * {OF_GPU}", condition.id),
            summary: format!("{NAMED}: {}{template}", words(condition.id)),
            meaning: format!("The condition `{}` holds, judged by {}.", condition.id, columns.join(" and ")),
            remedy: condition.remedy(None).into_owned(),
            shown: vec![Shown {
                series: [info(), held].into_iter().chain(measured).collect(),
                labels: labels(&[&AT_NODE[..], &[("condition", condition.id)]].concat()),
                value: (template, text),
            }],
        }
    };
    condition::kinds().map(alert).collect()
}

/// The column and what it is; the bits of a mask would be too many words.
fn explained(metric: &Metric) -> String {
    let help = if metric.bits.is_empty() {
        format!(" ({})", metric.help.trim_end_matches('.'))
    } else {
        String::new()
    };
    format!("`{}`{help}", metric.column)
}

/// The metric whose value says how bad it is; none if a yes is all there is.
fn shown_metric(condition: &condition::Condition) -> Option<MetricId> {
    let first = *condition.metrics.first()?;
    let metric = if first == catalogue("throttle_reasons") { catalogue("temperature_c") } else { first };
    (metric.metric().range.1 > 1.0).then_some(metric)
}

/// Template: the value of another series of the GPU at the moment, if it is there.
fn measured(metric: &Metric) -> String {
    let labels =
        metric.labels.iter().fold(String::new(), |all, (label, text)| all + &format!("{label}=\"{text}\","));
    let unit = if metric.unit == Unit::Celsius { " °C" } else { "" };
    format!(
        "{{{{ with printf `{}{{{labels}job=%q,instance=%q,uuid=%q,partition=%q}}` $labels.job $labels.instance $labels.uuid \
         $labels.partition | query }}}}: {{{{ . | first | value | humanize }}}}{unit}{{{{ end }}}}",
        metric.prometheus
    )
}

/// `ecc_uncorrected` as `ECC uncorrected`.
fn words(id: &str) -> String {
    let word = |word: &str| {
        if ["ecc", "ras", "sram", "xid"].contains(&word) { word.to_uppercase() } else { word.to_owned() }
    };
    id.split('_').map(word).collect::<Vec<_>>().join(" ")
}

/// `row_remap_failed` as `RowRemapFailed`.
fn camel(id: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    id.split('_').map(capital).collect()
}

#[test]
fn the_rules_are_those_of_the_table() {
    let mut out =
        format!("# Generated: `{}`. What to do about each: docs/alerts.md.\ngroups:\n", super::COMMAND);
    for (group, alerts) in GROUPS {
        writeln!(out, "  - name: {group}\n    rules:").unwrap();
        for alert in alerts() {
            writeln!(out, "      - alert: {}", alert.name).unwrap();
            yaml::text(&mut out, 8, "expr", &alert.expr);
            yaml::word(&mut out, 8, "for", alert.hold);
            writeln!(out, "        labels:").unwrap();
            yaml::word(&mut out, 10, "severity", alert.severity);
            writeln!(out, "        annotations:").unwrap();
            yaml::text(&mut out, 10, "summary", &alert.summary);
            yaml::text(&mut out, 10, "description", &alert.description());
            yaml::text(&mut out, 10, "runbook", &alert.runbook());
        }
    }
    is_current(RULES, &out);
}

#[test]
fn each_alert_says_what_to_do() {
    let mut out = format!("<!-- Generated: `{}`. -->\n\n{HEAD}", super::COMMAND);
    for (group, alerts) in GROUPS {
        let title = match group {
            "gpuvitals-conditions" => "Conditions of a GPU",
            "gpuvitals-gpus" => "GPUs over time",
            "gpuvitals-jobs" => "Jobs",
            _ => "Services",
        };
        writeln!(out, "\n## {title}").unwrap();
        for Alert { name, severity, hold, expr, meaning, remedy, .. } in alerts() {
            assert!(!meaning.is_empty() && !remedy.is_empty(), "{name}");
            writeln!(out, "\n### {name}\n\n{severity}, after {hold}. {meaning}\n").unwrap();
            writeln!(out, "**What to do.** {remedy}\n\n```promql\n{expr}\n```").unwrap();
        }
    }
    is_current("docs/alerts.md", &out);
}

/// The file of the rules.
pub(crate) const RULES: &str = "deploy/prometheus/alerts.yaml";

const HEAD: &str = "# Alerts

`deploy/prometheus/alerts.yaml` has these rules for Prometheus; `deploy/prometheus/recording.yaml` has sums and means by node, model
and namespace, those of nodes and namespaces by cluster as well. Each alert is tested: it fires, it clears, and it stays silent where all is well.

- `critical`: somebody should look now. `warning`: before the week ends. `info`: worth a look.
- An alert on a GPU carries its `gpu` (index), `uuid`, `instance`, `cluster` (if `sampling.cluster` names it), `node`, `model` and `pci` (address). The
  kernel's log names the GPU by its address.
- The `summary` names the GPU or service with the value, the `description` says what to do, as below.
- Commands in the text run on the node of the GPU, unless they say otherwise. INDEX is the label `gpu`, ADDRESS the label `pci`, JOB the label
  `exported_job`: a batch job, under the name that Prometheus gives the label `job` of `gpu_attribution_info`.
- To drain a node, first let nothing new start there: `kubectl cordon NODE`, then `kubectl drain NODE --ignore-daemonsets
  --delete-emptydir-data`; with Slurm `scontrol update nodename=NODE state=drain reason=gpu`.
";
