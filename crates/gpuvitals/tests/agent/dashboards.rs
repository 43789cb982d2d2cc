//! Grafana dashboards, made from the catalogue. `UPDATE=1` writes them; a real Prometheus answers each of their questions.

mod source;

use std::path::Path;

use gpuvitals_core::catalogue::{self, Instrument, Metric, Series, Unit};
use gpuvitals_rig::waiting;
use serde_json::{Value, json};

use super::node::Node;
use super::prometheus::Prometheus;
use source::Source;

/// Joins the labels of `gpu_info` to a series of a GPU. Without a cluster the label is not there, and "All" takes that too.
const OF: &str = "on (job, instance, uuid, partition) group_left (cluster, node, model) gpu_info{cluster=~\"$cluster\",node=~\"$node\"}";
/// The cluster alone.
const IN: &str = "on (job, instance, uuid, partition) group_left (cluster) gpu_info{cluster=~\"$cluster\"}";
/// Pods that hold a GPU. Not joined by `job`, which is the held job's number where a scrape honours labels.
const PODS: &str = "max by (instance, uuid, partition, namespace, pod) (gpu_attribution_info{namespace!=\"\",namespace=~\"$namespace\"})";
/// Batch jobs that hold a GPU. Prometheus makes `exported_job` of a scraped `job`, unless it honours labels.
const JOBS: &str = "max by (instance, uuid, partition, exported_job) (label_replace(gpu_attribution_info{job=~\"[0-9]+\"}, \"exported_job\", \"$1\", \"job\", \"(.+)\") or gpu_attribution_info{exported_job!=\"\"})";
/// The node of an agent; a gateway says the same of the nodes that it reads, with a vendor.
const NODE_INFO: &str = "gpuvitals_node_info{cluster=~\"$cluster\",node=~\"$node\",vendor=\"\"}";
const NODE: &str = "{{node}} {{cluster}}";
const LEGEND: &str = "{{node}} GPU {{gpu}} {{cluster}}";

/// A panel before it has a place.
struct Panel {
    title: String,
    help: String,
    kind: &'static str,
    unit: &'static str,
    /// Expressions with their legends.
    targets: Vec<(String, String)>,
    /// Of 24 columns.
    width: u64,
    /// Red from 1 on.
    is_alarm: bool,
    /// Labels that a table shows as its columns, by the first of which it is sorted; none: all of them.
    columns: &'static [&'static str],
}

fn panel(kind: &'static str, title: &str, unit: &'static str, width: u64, targets: &[(&str, &str)]) -> Panel {
    let targets = targets.iter().map(|(expr, legend)| ((*expr).to_owned(), (*legend).to_owned())).collect();
    Panel {
        title: title.to_owned(),
        help: String::new(),
        kind,
        unit,
        targets,
        width,
        is_alarm: false,
        columns: &[],
    }
}

fn lines(title: &str, unit: &'static str, expr: &str, legend: &str) -> Panel {
    panel("timeseries", title, unit, 12, &[(expr, legend)])
}

fn stat(title: &str, unit: &'static str, expr: &str) -> Panel {
    panel("stat", title, unit, 4, &[(expr, "")])
}

/// A count of what should not be.
fn alarm(title: &str, expr: &str) -> Panel {
    Panel { is_alarm: true, ..stat(title, "short", expr) }
}

/// What is wrong, the worst first: agents that do not answer, GPUs that give no values, conditions.
fn sick() -> Panel {
    let critical = |series: &str, condition: &str, from: &str| {
        format!(
            "label_replace(label_replace({series}, \"condition\", \"{condition}\", \"{from}\", \"(.*)\"), \"severity\", \"critical\", \"\", \"\")"
        )
    };
    let away = format!(
        "(up == 0) * on (job, instance) group_left (node) max by (job, instance, node) (last_over_time({NODE_INFO}[6h]))"
    );
    let away = critical(&away, "the agent does not answer", "");
    let lost = critical("gpu_down_reason{reason!~\"starting|suspended\"}", "no values: $1", "reason");
    let expr = format!("({lost} or gpu_condition) * {OF} or {away}");
    Panel {
        help: "Rows of the last scrape. docs/alerts.md says what to do about each.".to_owned(),
        columns: &["severity", "condition", "cluster", "node", "gpu", "model", "uuid", "instance"],
        ..panel("table", "What is wrong, the worst first", "short", 24, &[(&expr, "")])
    }
}

/// A metric's series, of one of its siblings if it has any.
fn series(metric: &Metric) -> String {
    let labels: Vec<_> = metric.labels.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
    if labels.is_empty() {
        metric.prometheus.to_owned()
    } else {
        format!("{}{{{}}}", metric.prometheus, labels.join(","))
    }
}

fn of(column: &str) -> String {
    series(catalogue::by_column(column).unwrap().metric())
}

/// Grafana's name of the base unit.
fn unit(unit: Unit) -> &'static str {
    match unit.base() {
        "ratio" => "percentunit",
        "hertz" => "hertz",
        "celsius" => "celsius",
        "watts" => "watt",
        "joules" => "joule",
        "bytes" => "bytes",
        "bytes_per_second" => "Bps",
        "rpm" => "rotrpm",
        "volts" => "volt",
        "seconds" => "s",
        _ => "short",
    }
}

fn fleet() -> Vec<Panel> {
    let (load, power) = (of("utilization_pct"), of("power_w"));
    let (used, total, hot) = (of("memory_used_mb"), of("memory_total_mb"), of("temperature_c"));
    let throttled = "rate(gpu_throttled_seconds_total{reason=\"any\"}[$__rate_interval])";
    vec![
        stat("GPUs", "short", &format!("count(gpu_up * {OF})")),
        alarm("GPUs that give no values", &format!("count((gpu_up == 0) * {OF}) or vector(0)")),
        alarm(
            "GPUs with a condition",
            &format!("count(count by (job, instance, uuid, partition) (gpu_condition * {OF})) or vector(0)"),
        ),
        stat("Mean utilisation", "percentunit", &format!("avg({load} * {OF})")),
        stat("Power", "watt", &format!("sum({power} * {OF})")),
        stat("Memory in use", "percentunit", &format!("sum({used} * {OF}) / sum({total} * {OF})")),
        sick(),
        lines("Utilisation by node", "percentunit", &format!("avg by (cluster, node) ({load} * {OF})"), NODE),
        lines("Power by node", "watt", &format!("sum by (cluster, node) ({power} * {OF})"), NODE),
        lines("Utilisation by model", "percentunit", &format!("avg by (model) ({load} * {OF})"), "{{model}}"),
        lines(
            "Memory in use by node",
            "percentunit",
            &format!("sum by (cluster, node) ({used} * {OF}) / sum by (cluster, node) ({total} * {OF})"),
            NODE,
        ),
        lines("Ten hottest GPUs", "celsius", &format!("topk(10, {hot} * {OF})"), LEGEND),
        lines(
            "Ten GPUs whose clocks are held down most",
            "percentunit",
            &format!("topk(10, {throttled} * {OF})"),
            LEGEND,
        ),
    ]
}

/// What people look at of each GPU of a node, and of the host.
fn node() -> Vec<Panel> {
    let columns = [
        "utilization_pct",
        "power_w",
        "memory_used_mb",
        "temperature_c",
        "temperature_memory_c",
        "gfx_clock_mhz",
        "memory_utilization_pct",
        "pcie_tx_bytes_per_s",
        "pcie_rx_bytes_per_s",
    ];
    let of_columns = columns.into_iter().filter_map(catalogue::by_column);
    let mut panels: Vec<Panel> =
        std::iter::once(sick()).chain(of_columns.map(|id| of_metric(id.metric(), "GPU {{gpu}}"))).collect();
    panels.push(lines(
        "Clocks held down",
        "percentunit",
        &format!("rate(gpu_throttled_seconds_total{{reason=\"any\"}}[$__rate_interval]) * {OF}"),
        "GPU {{gpu}}",
    ));
    for (_, metric) in catalogue::host_metrics()
        .filter(|(_, metric)| metric.series <= Series::Standard && metric.scope == catalogue::Scope::Host)
    {
        let expr = format!("{} * on (job, instance) group_left (node) {NODE_INFO}", rated(metric));
        panels.push(Panel {
            help: metric.help.to_owned(),
            ..lines(&title(metric), unit_of(metric), &expr, "{{node}}")
        });
    }
    panels
}

/// Everything of the standard set of one GPU, in the catalogue's order.
fn gpu() -> Vec<Panel> {
    let standard = catalogue::gpu_metrics().filter(|(_, metric)| {
        metric.series <= Series::Standard
            && matches!(metric.instrument, Instrument::Gauge | Instrument::Counter)
    });
    let mut panels: Vec<Panel> = Vec::new();
    for (_, metric) in standard {
        let legend = metric.labels.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(" ");
        let new = of_metric(metric, &format!("GPU {{{{gpu}}}} {legend}"));
        // Siblings of one family share a panel.
        match panels.last_mut().filter(|last| !metric.labels.is_empty() && last.title == new.title) {
            Some(last) => last.targets.extend(new.targets),
            None => panels.push(new),
        }
    }
    for (expr, _) in panels.iter_mut().flat_map(|panel| &mut panel.targets) {
        *expr = expr.replace("node=~\"$node\"", "node=~\"$node\",gpu=~\"$gpu\"");
    }
    panels
}

fn of_metric(metric: &Metric, legend: &str) -> Panel {
    let expr = format!("{} * {OF}", rated(metric));
    Panel { help: metric.help.to_owned(), ..lines(&title(metric), unit_of(metric), &expr, legend) }
}

/// The series, of a counter its rate.
fn rated(metric: &Metric) -> String {
    if metric.instrument == Instrument::Counter {
        format!("rate({}[$__rate_interval])", series(metric))
    } else {
        series(metric)
    }
}

fn unit_of(metric: &Metric) -> &'static str {
    match (metric.instrument, unit(metric.unit)) {
        (Instrument::Counter, "s") => "percentunit",
        (Instrument::Counter, "joule") => "watt",
        (Instrument::Counter, "bytes") => "Bps",
        (_, unit) => unit,
    }
}

/// The family's name in words.
fn title(metric: &Metric) -> String {
    let words =
        metric.prometheus.trim_start_matches("gpu_").trim_start_matches("host_").trim_end_matches("_total");
    words.replace('_', " ")
}

/// What the holders of GPUs do with them, by the labels of a join.
fn by_holder(holder: &str, labels: &str, held: &str, legend: &str) -> Vec<Panel> {
    let (load, power) = (of("utilization_pct"), of("power_w"));
    vec![
        lines(
            &format!("GPUs held by {holder}"),
            "short",
            &format!("count by (cluster, {labels}) (gpu_up * {held})"),
            legend,
        ),
        lines(
            &format!("Utilisation by {holder}"),
            "percentunit",
            &format!("avg by (cluster, {labels}) ({load} * {held})"),
            legend,
        ),
        lines(
            &format!("Power by {holder}"),
            "watt",
            &format!("sum by (cluster, {labels}) ({power} * {held})"),
            legend,
        ),
        panel(
            "table",
            &format!("Energy of the range by {holder}, joules"),
            "joule",
            12,
            &[(
                &format!("sum by (cluster, {labels}) (increase(gpu_energy_joules_total[$__range]) * {held})"),
                "",
            )],
        ),
    ]
}

fn namespaces() -> Vec<Panel> {
    let (load, power, used) = (of("utilization_pct"), of("power_w"), of("memory_used_mb"));
    let by_pod = format!("on (instance, uuid, partition) group_left (namespace, pod) {PODS} * {IN}");
    let by_job = format!("on (instance, uuid, partition) group_left (exported_job) {JOBS} * {IN}");
    let mut panels = by_holder("namespace", "namespace", &by_pod, "{{namespace}} {{cluster}}");
    panels.extend([
        lines(
            "Memory in use by namespace",
            "bytes",
            &format!("sum by (cluster, namespace) ({used} * {by_pod})"),
            "{{namespace}} {{cluster}}",
        ),
        panel(
            "table",
            "Held for half an hour and idle",
            "percentunit",
            12,
            &[(&format!("(avg_over_time({load}[30m]) < 0.01) * {by_pod}"), "")],
        ),
        lines(
            "Utilisation by pod",
            "percentunit",
            &format!("avg by (cluster, namespace, pod) ({load} * {by_pod})"),
            "{{namespace}}/{{pod}} {{cluster}}",
        ),
        lines(
            "Power by pod",
            "watt",
            &format!("sum by (cluster, namespace, pod) ({power} * {by_pod})"),
            "{{namespace}}/{{pod}} {{cluster}}",
        ),
    ]);
    panels.extend(by_holder("job", "exported_job", &by_job, "{{exported_job}} {{cluster}}"));
    panels.push(panel(
        "table",
        "Held by a job for half an hour and idle",
        "percentunit",
        12,
        &[(&format!("(avg_over_time({load}[30m]) < 0.01) * {by_job}"), "")],
    ));
    panels
}

fn pipeline() -> Vec<Panel> {
    let rate = |name: &str| format!("rate({name}[$__rate_interval])");
    let mean =
        |name: &str| format!("rate({name}_sum[$__rate_interval]) / rate({name}_count[$__rate_interval])");
    vec![
        lines(
            "Services that answer",
            "short",
            "up and on (job, instance) {__name__=~\"gpuvitals_build_info|gpuvitals_[a-z]+_uptime_seconds\"}",
            "{{job}} {{instance}}",
        ),
        lines(
            "Messages published a second",
            "short",
            &rate("gpuvitals_queue_published_messages_total"),
            "{{topic}}",
        ),
        lines(
            "Messages that wait for a group",
            "short",
            "gpuvitals_queue_group_lag_messages",
            "{{topic}} {{group}}",
        ),
        lines("Dead letters kept", "short", "gpuvitals_queue_dead_letter_messages", "{{topic}}"),
        lines(
            "Messages delivered again a second",
            "short",
            &rate("gpuvitals_queue_redelivered_messages_total"),
            "{{topic}}",
        ),
        lines(
            "Time of a publish, mean",
            "s",
            &mean("gpuvitals_queue_publish_duration_seconds"),
            "{{instance}}",
        ),
        lines(
            "Rows stored a second",
            "short",
            &rate("gpuvitals_collector_rows_stored_total"),
            "{{instance}}",
        ),
        lines(
            "Time until rows are durable, mean",
            "s",
            &mean("gpuvitals_collector_store_duration_seconds"),
            "{{instance}}",
        ),
        lines(
            "Bytes of the store",
            "bytes",
            "gpuvitals_store_file_bytes + gpuvitals_store_rollup_bytes",
            "{{instance}}",
        ),
        lines("Free bytes of the store's disk", "bytes", "gpuvitals_store_disk_free_bytes", "{{instance}}"),
        lines("Free bytes of the queue's disk", "bytes", "gpuvitals_queue_disk_free_bytes", "{{instance}}"),
        lines(
            "Answers from the gateway's cache",
            "percentunit",
            "rate(gpuvitals_gateway_cache_hits_total[$__rate_interval]) / (rate(gpuvitals_gateway_cache_hits_total[$__rate_interval]) + rate(gpuvitals_gateway_cache_misses_total[$__rate_interval]))",
            "{{instance}}",
        ),
        lines(
            "Rows an agent lost a second",
            "short",
            &rate("gpuvitals_publish_dropped_rows_total"),
            "{{instance}} {{reason}}",
        ),
    ]
}

/// A choice at the top of a dashboard.
struct Choice(&'static str, &'static str);

const CLUSTERS: Choice = Choice("cluster", "label_values(gpu_info, cluster)");
const NODES: Choice = Choice("node", "label_values(gpu_info{cluster=~\"$cluster\"}, node)");
const GPUS: Choice = Choice("gpu", "label_values(gpu_info{cluster=~\"$cluster\",node=~\"$node\"}, gpu)");
const NAMESPACES: Choice = Choice("namespace", "label_values(gpu_attribution_info, namespace)");

type Dashboard = (&'static str, &'static str, &'static [Choice], fn() -> Vec<Panel>);

const DASHBOARDS: [Dashboard; 5] = [
    ("fleet", "GPUs: fleet", &[CLUSTERS, NODES], fleet),
    ("node", "GPUs: node", &[CLUSTERS, NODES], node),
    ("gpu", "GPUs: every figure", &[CLUSTERS, NODES, GPUS], gpu),
    ("namespaces", "GPUs: namespaces, pods and jobs", &[CLUSTERS, NAMESPACES], namespaces),
    ("pipeline", "gpuvitals: pipeline", &[], pipeline),
];

fn json_of((name, title, choices, panels): &Dashboard, of: Source) -> Value {
    let (mut x, mut y, mut row) = (0, 0, 0);
    let mut placed = Vec::new();
    for (panel, id) in of.panels(panels()).into_iter().zip(1_u64..) {
        let height = if panel.kind == "stat" { 4 } else { 8 };
        if x + panel.width > 24 {
            (x, y, row) = (0, y + row, 0);
        }
        placed.push(panel_json(&panel, id, &json!({ "x": x, "y": y, "w": panel.width, "h": height })));
        (x, row) = (x + panel.width, row.max(height));
    }
    let mut source =
        json!({ "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" });
    if of == Source::History {
        source["regex"] = json!("/gpuvitals/i");
    }
    let choices = choices.iter().map(|Choice(name, query)| {
        json!({
            "name": name, "type": "query", "datasource": SOURCE.clone(), "query": { "query": query, "refId": name },
            "refresh": 2, "includeAll": true, "multi": true, "allValue": ".*", "sort": 1,
            "current": { "text": "All", "value": "$__all" },
        })
    });
    json!({
        "id": null, "uid": of.uid(name), "title": of.title(title), "tags": ["gpu", "gpuvitals"], "schemaVersion": 39, "version": 1,
        "editable": true, "refresh": "30s", "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": std::iter::once(source).chain(choices).collect::<Vec<_>>() },
        "panels": placed,
    })
}

static SOURCE: std::sync::LazyLock<Value> =
    std::sync::LazyLock::new(|| json!({ "type": "prometheus", "uid": "${datasource}" }));

fn panel_json(panel: &Panel, id: u64, place: &Value) -> Value {
    let is_table = panel.kind == "table";
    let targets = panel.targets.iter().zip('A'..).map(|((expr, legend), name)| {
        json!({
            "refId": name.to_string(), "expr": expr, "legendFormat": legend, "datasource": SOURCE.clone(),
            "format": if is_table { "table" } else { "time_series" }, "instant": is_table, "range": !is_table,
        })
    });
    let mut defaults = json!({ "unit": panel.unit });
    if panel.is_alarm {
        let steps = json!([{ "color": "green", "value": null }, { "color": "red", "value": 1 }]);
        defaults["thresholds"] = json!({ "mode": "absolute", "steps": steps });
    }
    let mut json = json!({
        "id": id, "type": panel.kind, "title": panel.title, "description": panel.help, "gridPos": place, "datasource": SOURCE.clone(),
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": {}, "targets": targets.collect::<Vec<_>>(),
    });
    if let Some(first) = panel.columns.first() {
        json["options"] = json!({ "sortBy": [{ "displayName": first, "desc": false }] });
        json["fieldConfig"]["overrides"] = overrides();
        let places: serde_json::Map<_, _> =
            panel.columns.iter().zip(0_u64..).map(|(label, at)| ((*label).to_owned(), at.into())).collect();
        let names = panel.columns.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
        json["transformations"] = json!([
            { "id": "filterFieldsByName", "options": { "include": { "names": names } } },
            { "id": "organize", "options": { "excludeByName": {}, "indexByName": places, "renameByName": {} } },
        ]);
    }
    json
}

/// A severity in its colour; a node leads to every figure of its GPUs.
fn overrides() -> Value {
    let colour = |severity: &str, colour: &str| json!({ "type": "value", "options": { severity: { "color": colour } } });
    let of = |name: &str, properties: Value| json!({ "matcher": { "id": "byName", "options": name }, "properties": properties });
    json!([
        of(
            "severity",
            json!([
                { "id": "mappings", "value": [colour("critical", "red"), colour("warning", "orange")] },
                { "id": "custom.cellOptions", "value": { "type": "color-background" } },
            ])
        ),
        of(
            "node",
            json!([
                { "id": "links", "value": [{ "title": "Every figure", "url": "/d/gpuvitals-gpu?var-node=${__value.raw}" }] },
            ])
        ),
    ])
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana")
}

#[test]
fn the_dashboards_are_made_of_the_catalogue() {
    for (dashboard, source) in DASHBOARDS.iter().flat_map(|it| [(it, Source::Scrapes), (it, Source::History)])
    {
        if source.panels(dashboard.3()).is_empty() {
            assert_eq!(
                (dashboard.0, source),
                ("pipeline", Source::History),
                "services are not in the history"
            );
            continue;
        }
        let text = serde_json::to_string_pretty(&json_of(dashboard, source)).unwrap() + "\n";
        let wanted = text.replace("/d/gpuvitals-gpu?", &format!("/d/{}?", source.uid("gpu")));
        let path = folder().join(format!("{}.json", source.uid(dashboard.0)));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{} is stale: run `UPDATE=1 cargo test -p gpuvitals --test agent dashboards`",
            path.display()
        );
    }
}

/// The query with these choices, as Grafana would send it.
pub(crate) fn filled(expr: &str, choices: &[(&str, &str)]) -> String {
    let ranges = [("$__rate_interval", "10s"), ("$__range", "10s")];
    ranges.iter().chain(choices).fold(expr.to_owned(), |expr, (from, to)| expr.replace(from, to))
}

/// Every choice as it is at first.
const ALL: [(&str, &str); 4] = [("$cluster", ".*"), ("$node", ".*"), ("$gpu", ".*"), ("$namespace", ".*")];

#[test]
fn prometheus_answers_every_question_of_the_dashboards() {
    let node = Node::new();
    let agent = node.agent(&["--driver=simulated", "--driver=procfs", "--rate=20", "--interval=2s"]);
    let target = agent.url.trim_start_matches("http://").trim_end_matches("/metrics");
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- {{job_name: gpuvitals, static_configs: [{{targets: [\"{target}\"]}}]}}\n"
    );
    let prometheus = Prometheus::start(&node, &config);
    prometheus.becomes("count(gpu_window_end_timestamp_seconds and rate(gpu_samples_total[10s]) > 0)", 16.0);
    prometheus.becomes("count(gpu_info{source=\"simulated\"})", 16.0);
    let questions: Vec<(&str, String)> = DASHBOARDS
        .iter()
        .flat_map(|(name, _, _, panels)| {
            panels().into_iter().flat_map(|panel| panel.targets).map(|(expr, _)| (*name, filled(&expr, &ALL)))
        })
        .collect();
    let with_values = || {
        let answers = questions.iter().map(|(name, expr)| {
            prometheus.result(expr).unwrap_or_else(|error| panic!("{name}: {expr}: {error}"))
        });
        answers.filter(|found| !found.is_empty()).count()
    };
    waiting::until("more than 70 questions with an answer", with_values, |count| *count > 70);
    // GPU 6 has failing memory. Once the agent is away, that is all there is to say of its node.
    let wrong = filled(&sick().targets[0].0, &ALL);
    let rows = prometheus.result(&wrong).unwrap();
    let is_wanted = |row: &Value| {
        let labels = &row["metric"];
        labels["gpu"] == "6" && labels["condition"] == "xid_nonfatal" && labels["node"] == "sim-node-0001"
    };
    assert!(rows.iter().any(is_wanted), "{rows:?}");
    drop(agent);
    prometheus.becomes(&format!("count({wrong})"), 1.0);
    let row = &prometheus.result(&wrong).unwrap()[0]["metric"];
    assert_eq!(
        (&row["severity"], &row["condition"]),
        (&json!("critical"), &json!("the agent does not answer"))
    );
    assert!(row["node"].is_string(), "{row}");
}
