//! The alerts: one for each kind of condition, and those on what a single value does not show.

use std::fmt::Write;

use gpuvitals_analysis::condition;
use gpuvitals_core::MetricId;

use crate::{is_current, yaml};

/// An alert, and series that show it in a test.
pub(crate) struct Alert {
    pub(crate) name: String,
    /// `info`: worth a look in office hours; `warning`: before the week ends; `critical`: now.
    pub(crate) severity: &'static str,
    /// How long the expression must hold.
    pub(crate) hold: &'static str,
    pub(crate) expr: String,
    /// One line for the message; `{{ $labels.X }}` is filled in.
    pub(crate) summary: String,
    /// What it means.
    pub(crate) meaning: String,
    /// What to do.
    pub(crate) remedy: String,
    pub(crate) shown: Shown,
}

impl Alert {
    /// Where the text is that says what to do.
    pub(crate) fn runbook(&self) -> String {
        format!("docs/alerts.md#{}", self.name.to_lowercase())
    }
}

type Alerts = fn() -> Vec<Alert>;

/// Series of a test, one value a minute: it fires at minute 60 and is silent at minutes 0 and 180.
pub(crate) struct Shown {
    pub(crate) series: Vec<(String, String)>,
    /// Labels of the alert beside its name and severity.
    pub(crate) labels: Vec<(&'static str, &'static str)>,
}

/// The groups of rules by name.
pub(crate) const GROUPS: [(&str, Alerts); 3] =
    [("gpuvitals-conditions", conditions), ("gpuvitals-gpus", gpus), ("gpuvitals-pipeline", pipeline)];

/// Joins the node and the model of a GPU to a series of it.
const OF_GPU: &str = "on (job, instance, uuid, partition) group_left (node, model) gpu_info";
/// Labels of the GPU in the tests.
const GPU: [(&str, &str); 5] =
    [("gpu", "3"), ("instance", "node7:9400"), ("job", "agent"), ("uuid", "GPU-1"), ("vendor", "nvidia")];
const NAMED: &str = "GPU {{ $labels.gpu }} of {{ $labels.node }} ({{ $labels.model }})";

fn name(column: &str) -> &'static str {
    catalogue(column).metric().prometheus
}

fn catalogue(column: &str) -> MetricId {
    gpuvitals_core::catalogue::by_column(column).expect("a column of the catalogue")
}

/// A series of the GPU of the tests, with labels of its own.
fn series(name: &str, own: &[(&str, &str)]) -> String {
    let labels = GPU.iter().chain(own).map(|(label, text)| format!("{label}=\"{text}\""));
    format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// The same of another GPU of the node.
fn other(name: &str, own: &[(&str, &str)]) -> String {
    series(name, own).replace("GPU-1", "GPU-2").replace("gpu=\"3\"", "gpu=\"4\"")
}

/// The series that names its node and model.
fn info() -> (String, String) {
    (series("gpu_info", &[("node", "node7"), ("model", "H100")]), "1x240".to_owned())
}

fn labels(own: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    GPU.iter().chain(own).copied().collect()
}

fn conditions() -> Vec<Alert> {
    let alert = |condition: &'static condition::Condition| {
        let words = condition.id.replace('_', " ");
        let severity = condition.severity.name();
        let of = [("condition", condition.id), ("severity", severity)];
        let columns: Vec<_> =
            condition.metrics.iter().map(|id| format!("`{}`", id.metric().column)).collect();
        Alert {
            name: format!("Gpu{}", camel(condition.id)),
            severity,
            hold: if severity == "critical" { "1m" } else { "10m" },
            expr: format!("gpu_condition{{condition=\"{}\"}} * {OF_GPU}", condition.id),
            summary: format!("{NAMED}: {words}"),
            meaning: format!("The condition `{}` holds, judged by {}.", condition.id, columns.join(" and ")),
            remedy: condition.remedy.to_owned(),
            shown: Shown {
                series: vec![info(), (series("gpu_condition", &of), "_x5 1x100 stale _x130".to_owned())],
                labels: labels(&[("condition", condition.id), ("model", "H100"), ("node", "node7")]),
            },
        }
    };
    condition::kinds().map(alert).collect()
}

/// `row_remap_failed` as `RowRemapFailed`.
fn camel(id: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    id.split('_').map(capital).collect()
}

fn gpus() -> Vec<Alert> {
    [reached(), throttled(), hardware(), work()].into_iter().flatten().collect()
}

/// Series of the GPU of the tests, and labels of the alert.
fn shown(series: Vec<(String, String)>, labels: Vec<(&'static str, &'static str)>) -> Shown {
    Shown { series: series.into_iter().chain([info()]).collect(), labels }
}

/// Labels of an alert that has node and model.
fn at_node() -> Vec<(&'static str, &'static str)> {
    labels(&[("model", "H100"), ("node", "node7")])
}

/// A counter that rises for a while.
fn rising(rate: &str) -> String {
    format!("0x5 0+{rate}x100 0x130")
}

/// One series of a service.
fn simple(series: &str, values: &str, labels: &[(&'static str, &'static str)]) -> Shown {
    Shown { series: vec![(series.to_owned(), values.to_owned())], labels: labels.to_vec() }
}

/// Whether there are values.
fn reached() -> Vec<Alert> {
    vec![
        Alert {
            name: "GpuLost".to_owned(),
            severity: "critical",
            hold: "2m",
            expr: format!("gpu_down_reason{{reason!~\"starting|suspended\"}} * {OF_GPU}"),
            summary: format!("{NAMED} gives no values: {{{{ $labels.reason }}}}"),
            meaning: "The agent runs and cannot read the GPU; `reason` says why. A GPU that sleeps (`suspended`) or has not been \
                      read yet (`starting`) does not count."
                .to_owned(),
            remedy: "`gpuvitals doctor` on the node says what is missing. `gone`: `dmesg | grep -iE 'xid|amdgpu'`, `lspci`; reboot the \
                     node, then reseat or exchange the board. `timed_out`, `stuck`: the driver hangs; drain the node and reboot \
                     it. `denied`: the rights of the agent have changed."
                .to_owned(),
            shown: shown(
                vec![(series("gpu_down_reason", &[("reason", "gone")]), "_x5 1x100 stale _x130".to_owned())],
                labels(&[("model", "H100"), ("node", "node7"), ("reason", "gone")]),
            ),
        },
        Alert {
            name: "GpuSilent".to_owned(),
            severity: "warning",
            hold: "5m",
            expr: format!(
                "(time() - gpu_last_sample_timestamp_seconds > 300) * {OF_GPU} unless on (job, instance, uuid, partition) gpu_down_reason"
            ),
            summary: format!("{NAMED}: the last sample is old"),
            meaning: "The agent answers, says nothing of a fault, and has had no sample of the GPU for five minutes.".to_owned(),
            remedy: "Look at the agent's log and at `gpuvitals_readings_failed_total`; start the agent again. Please report it: the agent \
                     should have said why."
                .to_owned(),
            shown: shown(
                vec![(
                    series("gpu_last_sample_timestamp_seconds", &[]),
                    "0+60x5 300x100 6360+60x130".to_owned(),
                )],
                at_node(),
            ),
        },
    ]
}

/// Whether the clocks are held down.
fn throttled() -> Vec<Alert> {
    let throttled = name("throttled_thermal_ns");
    vec![
        Alert {
            name: "GpuThrottledByHeat".to_owned(),
            severity: "warning",
            hold: "10m",
            expr: format!("max without (reason) (rate({throttled}{{reason=~\"thermal|hw_thermal|sw_thermal\"}}[10m])) > 0.1"),
            summary: "GPU {{ $labels.gpu }} of {{ $labels.instance }}: heat holds the clocks down for more than a tenth of the time".to_owned(),
            meaning: "Share of the last ten minutes in which heat held the clocks down.".to_owned(),
            remedy: "Compare with the other GPUs of the node, then with its inlet temperature; see GpuHardwareThermalSlowdown.".to_owned(),
            shown: shown(vec![(series(throttled, &[("reason", "thermal")]), rising("30"))], labels(&[])),
        },
        Alert {
            name: "GpuThrottledByPower".to_owned(),
            severity: "info",
            hold: "30m",
            expr: format!("max without (reason) (rate({throttled}{{reason=~\"power|sw_power_cap|hw_power_brake\"}}[30m])) > 0.5"),
            summary: "GPU {{ $labels.gpu }} of {{ $labels.instance }}: the power limit holds the clocks down for more than half of the time"
                .to_owned(),
            meaning: "Share of the last half hour in which power held the clocks down. Under full load at the limit that is as it should \
                      be; on one GPU of many with the same work it is not."
                .to_owned(),
            remedy: "Compare `gpu_power_limit_watts` with that of the node's other GPUs: a limit that somebody has left behind is reset with \
                     `nvidia-smi -i INDEX -pl WATTS` or `rocm-smi -d INDEX --resetpoweroverdrive`."
                .to_owned(),
            shown: shown(vec![(series(throttled, &[("reason", "power")]), rising("50"))], labels(&[])),
        },
    ]
}

/// Parts around the GPU.
fn hardware() -> Vec<Alert> {
    let width = format!("({} * {OF_GPU})", name("pcie_width"));
    let temperature = series(name("temperature_c"), &[("sensor", "gpu")]);
    vec![
        Alert {
            name: "GpuPcieDegraded".to_owned(),
            severity: "warning",
            hold: "30m",
            expr: format!("{width} < on (model) group_left () quantile by (model) (0.5, {width})"),
            summary: format!("{NAMED} has fewer PCIe lanes than others of its model"),
            meaning: "Half of the GPUs of the model have more lanes: its copies between host and GPU take longer, and slow down the whole \
                      job."
                .to_owned(),
            remedy: "`lspci -vv -s ADDRESS` shows what the link can do (LnkCap) and does (LnkSta). Drain the node, reseat the board and its \
                     riser; `gpu_pcie_replays_total` that rises speaks for a bad contact."
                .to_owned(),
            shown: shown(
                vec![
                    (series(name("pcie_width"), &[]), "16x5 8x100 16x130".to_owned()),
                    (other(name("pcie_width"), &[]), "16x240".to_owned()),
                    (other("gpu_info", &[("node", "node7"), ("model", "H100")]), "1x240".to_owned()),
                ],
                at_node(),
            ),
        },
        Alert {
            name: "GpuFanStopped".to_owned(),
            severity: "warning",
            hold: "5m",
            expr: format!(
                "({fan} == 0) * {OF_GPU} and on (job, instance, uuid, partition) {hot}{{sensor=\"gpu\"}} > 80",
                fan = name("fan_speed_pct"),
                hot = name("temperature_c")
            ),
            summary: format!("{NAMED}: above 80 °C, and its fan stands still"),
            meaning: "The fan is set to 0 although the GPU is hot. Passive cards have no such value.".to_owned(),
            remedy: "Drain the node; look at the fan, its plug, and at a fan speed that somebody has set by hand.".to_owned(),
            shown: shown(
                vec![
                    (series(name("fan_speed_pct"), &[]), "0x240".to_owned()),
                    (temperature, "60x5 85x100 60x130".to_owned()),
                ],
                at_node(),
            ),
        },
    ]
}

/// What is done with it.
fn work() -> Vec<Alert> {
    let utilization = name("utilization_pct");
    vec![
        Alert {
            name: "GpuIdleWhileHeld".to_owned(),
            severity: "info",
            hold: "10m",
            expr: format!(
                "(avg_over_time({utilization}[30m]) < 0.01) * on (job, instance, uuid, partition) group_left (pod, namespace, container) \
                 gpu_attribution_info"
            ),
            summary: "GPU {{ $labels.gpu }} of {{ $labels.instance }} is held by {{ $labels.namespace }}/{{ $labels.pod }} and idle".to_owned(),
            meaning: "A pod has held the GPU for half an hour without using it.".to_owned(),
            remedy: "Ask its owner. `kubectl -n NAMESPACE describe pod POD` says since when it runs, `gpuvitals query` what it used before."
                .to_owned(),
            shown: shown(
                vec![
                    (series(utilization, &[]), "0.9x5 0x100 0.9x130".to_owned()),
                    (
                        series("gpu_attribution_info", &[("namespace", "ml"), ("pod", "train-0"), ("container", "main")]),
                        "1x240".to_owned(),
                    ),
                ],
                labels(&[("container", "main"), ("namespace", "ml"), ("pod", "train-0")]),
            ),
        },
        Alert {
            name: "GpuXidOfApplication".to_owned(),
            severity: "info",
            hold: "0m",
            expr: format!(
                "changes({xid}[15m]) > 0 unless on (job, instance, uuid, partition) gpu_condition{{condition=\"xid\"}}",
                xid = name("xid_last")
            ),
            summary: "GPU {{ $labels.gpu }} of {{ $labels.instance }}: an XID that applications cause".to_owned(),
            meaning: "The last XID changed within a quarter of an hour, to one that does not make the GPU unhealthy (13, 31, 43, 45, 68, \
                      109: mostly a bug of the program that ran)."
                .to_owned(),
            remedy: "`dmesg | grep -i xid` on the node names the process. Many of them on one GPU, with programs that run elsewhere, speak for \
                     the GPU after all."
                .to_owned(),
            shown: shown(
                vec![(series(name("xid_last"), &[]), "0x50 13x190".to_owned())],
                labels(&[]),
            ),
        },
    ]
}

fn pipeline() -> Vec<Alert> {
    [services(), queue(), losses(), edges()].into_iter().flatten().collect()
}

/// Whether services work.
fn services() -> Vec<Alert> {
    vec![
        Alert {
            name: "GpuvitalsDown".to_owned(),
            severity: "critical",
            hold: "5m",
            expr: "up == 0 and on (job, instance) last_over_time({__name__=~\"gpuvitals_build_info|gpuvitals_[a-z]+_uptime_seconds\"}[6h])".to_owned(),
            summary: "{{ $labels.job }} at {{ $labels.instance }} cannot be scraped".to_owned(),
            meaning: "A service of gpuvitals that was there within the last six hours does not answer Prometheus.".to_owned(),
            remedy: "`kubectl describe pod` or `systemctl status gpuvitals-*` on its node; its last lines of the log say why it ended. A service \
                     ends with status 74 when its disk fails to sync."
                .to_owned(),
            shown: Shown {
                series: vec![
                    ("up{job=\"agent\",instance=\"node7:9400\"}".to_owned(), "1x5 0x100 1x130".to_owned()),
                    (
                        "gpuvitals_build_info{job=\"agent\",instance=\"node7:9400\"}".to_owned(),
                        "1x5 stale _x99 1x130".to_owned(),
                    ),
                ],
                labels: vec![("instance", "node7:9400"), ("job", "agent")],
            },
        },
        Alert {
            name: "GpuvitalsCollectorStuck".to_owned(),
            severity: "critical",
            hold: "5m",
            expr: "gpuvitals_collector_healthy == 0".to_owned(),
            summary: "the collector at {{ $labels.instance }} cannot store rows".to_owned(),
            meaning: "Rows stay in the queue, nothing is lost yet.".to_owned(),
            remedy: "Its `/health` gives the reason: a full disk, a database that is away, a store that is damaged (`gpuvitals store check`)."
                .to_owned(),
            shown: simple(
                "gpuvitals_collector_healthy{job=\"collector\",instance=\"collector:8080\"}",
                "1x5 0x100 1x130",
                &[("instance", "collector:8080"), ("job", "collector")],
            ),
        },
    ]
}

/// The queue.
fn queue() -> Vec<Alert> {
    vec![
        Alert {
            name: "GpuvitalsQueueUnhealthy".to_owned(),
            severity: "critical",
            hold: "2m",
            expr: "gpuvitals_queue_status > 0".to_owned(),
            summary: "the queue at {{ $labels.instance }} is near its bounds, or takes nothing".to_owned(),
            meaning: "1: losses or refusals are near; 2: it takes nothing.".to_owned(),
            remedy: "Its `/health` gives the reason: a full disk, a topic at its bound, a disk that fails.".to_owned(),
            shown: simple(
                "gpuvitals_queue_status{job=\"broker\",instance=\"broker:9090\"}",
                "0x5 1x100 0x130",
                &[("instance", "broker:9090"), ("job", "broker")],
            ),
        },
        Alert {
            name: "GpuvitalsQueueLag".to_owned(),
            severity: "warning",
            hold: "10m",
            expr: "gpuvitals_queue_group_lag_messages > 100000 and deriv(gpuvitals_queue_group_lag_messages[10m]) > 0".to_owned(),
            summary: "group {{ $labels.group }} of {{ $labels.topic }} falls behind".to_owned(),
            meaning: "More than 100,000 rows wait for the group, and it gets more: collectors are away, or too slow.".to_owned(),
            remedy: "`gpuvitals queue stats` shows who is connected. Look at the collectors' `/health`; add one more (each owns a store), or give \
                     the one more workers (`collector.worker_count`)."
                .to_owned(),
            shown: simple(
                "gpuvitals_queue_group_lag_messages{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\",group=\"collectors\"}",
                "0x5 200000+5000x100 0x130",
                &[("group", "collectors"), ("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
            ),
        },
    ]
}

/// What nobody takes.
fn losses() -> Vec<Alert> {
    vec![
        Alert {
            name: "GpuvitalsDeadLetters".to_owned(),
            severity: "warning",
            hold: "0m",
            expr: "increase(gpuvitals_queue_dead_messages_total[15m]) > 0".to_owned(),
            summary: "messages of {{ $labels.topic }} became dead letters".to_owned(),
            meaning: "Nobody could take them, after several tries. They are kept until their own bound.".to_owned(),
            remedy: "`gpuvitals queue dead` shows them with reasons; once the cause is mended `gpuvitals queue redrive` sends them again.".to_owned(),
            shown: simple(
                "gpuvitals_queue_dead_messages_total{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\"}",
                "0x50 0+1x20 20x170",
                &[("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
            ),
        },
        Alert {
            name: "GpuvitalsQueueLoses".to_owned(),
            severity: "critical",
            hold: "0m",
            expr: "increase(gpuvitals_queue_dropped_messages_total[15m]) > 0".to_owned(),
            summary: "{{ $labels.topic }} drops its oldest messages".to_owned(),
            meaning: "The topic is at its bound, and its policy is to make room: rows are lost for good.".to_owned(),
            remedy: "Bring the collectors back (`gpuvitals queue stats`), then raise the bound or the disk.".to_owned(),
            shown: simple(
                "gpuvitals_queue_dropped_messages_total{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\"}",
                "0x50 0+1x20 20x170",
                &[("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
            ),
        },
    ]
}

/// Where rows come from and where they stay.
fn edges() -> Vec<Alert> {
    vec![
        Alert {
            name: "GpuvitalsAgentLoses".to_owned(),
            severity: "warning",
            hold: "0m",
            expr: "increase(gpuvitals_publish_dropped_rows_total[15m]) > 0".to_owned(),
            summary: "the agent at {{ $labels.instance }} loses rows: {{ $labels.reason }}".to_owned(),
            meaning: "`limit`: the queue was away for longer than the spool has room; `refused`: the queue does not take the rows; \
                      `unwritable`: the disk of the spool fails. Scrapes are not concerned."
                .to_owned(),
            remedy: "`gpuvitals doctor` on the node tries the queue. Raise the spool's limit where the queue is away for long.".to_owned(),
            shown: simple(
                "gpuvitals_publish_dropped_rows_total{job=\"agent\",instance=\"node7:9400\",reason=\"limit\"}",
                "0x50 0+10x20 200x170",
                &[("instance", "node7:9400"), ("job", "agent"), ("reason", "limit")],
            ),
        },
        Alert {
            name: "GpuvitalsDiskFilling".to_owned(),
            severity: "warning",
            hold: "30m",
            expr: "predict_linear(gpuvitals_store_disk_free_bytes[1h], 86400) < 0".to_owned(),
            summary: "the disk of {{ $labels.job }} at {{ $labels.instance }} is full within a day".to_owned(),
            meaning: "The free bytes of the last hour, drawn on as a line, reach 0 within a day. On a full disk nothing is taken, and \
                      nothing that was taken is lost."
                .to_owned(),
            remedy: "`gpuvitals store stats` shows what takes the room; `store.max_bytes` bounds it, `store.keep` and `store.keep_10s` delete \
                     sooner. Or give it a larger disk."
                .to_owned(),
            shown: simple(
                "gpuvitals_store_disk_free_bytes{job=\"collector\",instance=\"collector:8080\"}",
                "90000000000x5 90000000000-100000000x100 90000000000x130",
                &[("instance", "collector:8080"), ("job", "collector")],
            ),
        },
    ]
}

#[test]
fn the_rules_are_those_of_the_table() {
    let mut out =
        format!("# Generated: `{}`. What to do about each: docs/alerts.md.\ngroups:\n", crate::COMMAND);
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
            yaml::text(&mut out, 10, "description", &alert.meaning);
            yaml::text(&mut out, 10, "runbook", &alert.runbook());
        }
    }
    is_current(RULES, &out);
}

#[test]
fn each_alert_says_what_to_do() {
    let mut out = format!("<!-- Generated: `{}`. -->\n\n{HEAD}", crate::COMMAND);
    for (group, alerts) in GROUPS {
        let title = match group {
            "gpuvitals-conditions" => "Conditions of a GPU",
            "gpuvitals-gpus" => "GPUs over time",
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
and namespace. Each alert is tested: it fires, it clears, and it stays silent where all is well.

- `critical`: somebody should look now. `warning`: before the week ends. `info`: worth a look.
- An alert on a GPU carries its `gpu` (index), `uuid` and `instance`; most carry its `node` and `model` as well, from `gpu_info`.
- Commands in the text run on the node of the GPU, unless they say otherwise. INDEX is the label `gpu`.
";
