//! Dashboards that others made for dcgm-exporter: a real Prometheus answers their queries from `agent --compat`, for simulated GPUs
//! of NVIDIA and of AMD.

use gpuvitals_core::catalogue::gpu_metrics;
use serde_json::Value;

use super::dashboards::filled;
use super::node::Node;
use super::process::fixture;
use super::prometheus::Prometheus;

/// Queries that can have no answer: the vendor of the GPUs, a part of the query, why.
const UNANSWERED: [(&str, &str, &str); 4] = [
    ("amd", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "AMD's drivers count no activity of the matrix cores"),
    ("amd", "DCGM_FI_DEV_XID_ERRORS", "XIDs are NVIDIA's"),
    ("amd", ",GPU_I_PROFILE)", "a choice among MIG instances, which are NVIDIA's"),
    ("nvidia", ",GPU_I_PROFILE)", "a choice among MIG instances; the simulated GPUs have none"),
];

/// The queries of each dashboard, those of its variables included.
fn dashboards() -> [(&'static str, Vec<String>); 2] {
    let json = std::fs::read_to_string(fixture("grafana/dcgm-exporter-dashboard.json")).unwrap();
    let mut queries = Vec::new();
    collect(&serde_json::from_str(&json).unwrap(), &mut queries);
    let list = std::fs::read_to_string(fixture("grafana/23382.promql")).unwrap();
    let found = [("12239", queries), ("23382", list.lines().map(str::to_owned).collect())];
    assert_eq!(found.each_ref().map(|(_, queries)| queries.len()), [10, 24]);
    found
}

fn collect(json: &Value, queries: &mut Vec<String>) {
    match json {
        Value::Object(fields) => {
            let texts = [&json["expr"], &json["query"]].into_iter().filter_map(Value::as_str);
            queries.extend(texts.filter(|text| text.contains("DCGM")).map(str::to_owned));
            fields.values().for_each(|field| collect(field, queries));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, queries)),
        _ => {}
    }
}

/// The query in the names of dcgm-exporter 4.9 and later.
fn modern(query: &str) -> String {
    let mut query = query.replace("Hostname", "hostname").replace("$hostname", "$Hostname");
    for metric in gpu_metrics().map(|(_, metric)| metric) {
        let (old, new) =
            (metric.dcgm.iter().filter(|name| !name.modern), metric.dcgm.iter().find(|name| name.modern));
        for (old, new) in old.filter_map(|old| Some((old.name, new?.name))) {
            for end in ['{', ',', ')'] {
                query = query.replace(&format!("{old}{end}"), &format!("{new}{end}"));
            }
        }
    }
    query
}

/// As Grafana asks, with every choice at "All"; a variable as the labels that it lists.
fn asked(query: &str) -> String {
    let variable =
        query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')?.split_once(','));
    let query = match variable {
        Some((series, label)) => {
            let label = label.trim();
            format!("group by ({label}) ({series}{{{label}!=\"\"}})")
        }
        None => query.to_owned(),
    };
    let all = ["$instance", "$gpu", "$Hostname", "$mig"].map(|choice| (choice, ".*"));
    filled(&query, &all)
}

/// A Prometheus, in this folder, that keeps the series of one vendor's GPUs.
fn prometheus(folder: &Node, url: &str, vendor: &str) -> Prometheus {
    let target = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: dcgm\n  static_configs: [{{targets: [\"{target}\"]}}]\n  \
         metric_relabel_configs: [{{action: keep, source_labels: [device], regex: \"{vendor}[0-9]+\"}}]\n"
    );
    Prometheus::start(folder, &config)
}

/// Asks all queries, each changed in this way, of an agent with this dialect.
fn ask(compat: &str, changed: &[fn(&str) -> String], ready: &str) {
    let node = Node::new();
    let agent = node.agent(&["--driver=simulated", "--rate=20", &format!("--compat={compat}")]);
    for vendor in ["nvidia", "amd"] {
        let folder = Node::with(&[]);
        let prometheus = prometheus(&folder, &agent.url, vendor);
        prometheus.becomes(&format!("count(rate({ready}[10s]))"), 8.0);
        for (dashboard, queries) in dashboards() {
            for (query, change) in
                queries.iter().flat_map(|query| changed.iter().map(move |change| (query, change)))
            {
                let unanswered =
                    UNANSWERED.iter().find(|(of, part, _)| *of == vendor && query.contains(part));
                let query = asked(&change(query));
                let answer = prometheus.result(&query);
                let found = answer.unwrap_or_else(|error| panic!("{dashboard}: {query}: {error}"));
                let why = unanswered.map(|(_, _, why)| why);
                assert_eq!(
                    found.is_empty(),
                    why.is_some(),
                    "{compat}, {vendor}, {dashboard}: {query}: {why:?}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn they_are_answered_in_the_dialect_that_they_were_made_for() {
    ask("dcgm-legacy", &[str::to_owned], "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL");
}

#[test]
fn they_are_answered_in_the_newer_dialect_once_their_names_are_changed() {
    ask("dcgm", &[modern], "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND");
}

#[test]
fn they_are_answered_before_and_after_the_change_of_names_with_both_dialects() {
    ask("both", &[str::to_owned, modern], "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL");
}
