//! Alerts on the services.

use super::{Alert, Shown};

/// Bytes in a summary.
const FREE: &str = "{{ $value | humanize1024 }}B";
/// A count in a summary.
const COUNT: &str = "{{ $value | humanize }}";
const NO_VALUE: (&str, &str) = ("", "");

/// Alerts on the services.
pub(crate) fn all() -> Vec<Alert> {
    [services(), queue(), losses(), edges(), vec![disk_filling(), cluster_unread()]]
        .into_iter()
        .flatten()
        .collect()
}

/// One series of a service, and the value in the summary.
fn simple(
    series: &str,
    values: &str,
    labels: &[(&'static str, &'static str)],
    value: (&str, &'static str),
) -> Vec<Shown> {
    vec![Shown {
        series: vec![(series.to_owned(), values.to_owned())],
        labels: labels.to_vec(),
        value: (value.0.to_owned(), value.1),
    }]
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
            remedy: "If it is an agent: does its node answer at all? Then `kubectl describe pod` or `systemctl status gpuvitals-*` on its node; the last \
                     lines of its log say why it ended. A service ends with status 74 when its disk fails to sync."
                .to_owned(),
            shown: vec![Shown {
                series: vec![
                    ("up{job=\"agent\",instance=\"node7:9400\"}".to_owned(), "1x5 0x100 1x130".to_owned()),
                    (
                        "gpuvitals_build_info{job=\"agent\",instance=\"node7:9400\"}".to_owned(),
                        "1x5 stale _x99 1x130".to_owned(),
                    ),
                ],
                labels: vec![("instance", "node7:9400"), ("job", "agent")],
                value: (String::new(), ""),
            }],
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
                NO_VALUE,
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
                NO_VALUE,
            ),
        },
        Alert {
            name: "GpuvitalsQueueLag".to_owned(),
            severity: "warning",
            hold: "10m",
            expr: "gpuvitals_queue_group_lag_messages > 100000 and deriv(gpuvitals_queue_group_lag_messages[10m]) > 0".to_owned(),
            summary: format!("group {{{{ $labels.group }}}} of {{{{ $labels.topic }}}} falls behind: {COUNT} messages wait"),
            meaning: "More than 100,000 rows wait for the group, and it gets more: collectors are away, or too slow.".to_owned(),
            remedy: "`gpuvitals queue stats` shows who is connected. Look at the collectors' `/health`; add one more (each owns a store), or give \
                     the one more workers (`collector.worker_count`)."
                .to_owned(),
            shown: simple(
                "gpuvitals_queue_group_lag_messages{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\",group=\"collectors\"}",
                "0x5 200000+5000x100 0x130",
                &[("group", "collectors"), ("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
                (COUNT, "470k"),
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
            summary: format!("about {COUNT} messages of {{{{ $labels.topic }}}} became dead letters"),
            meaning: "Nobody could take them, after several tries. They are kept until their own bound.".to_owned(),
            remedy: "`gpuvitals queue dead` shows them with reasons; once the cause is mended `gpuvitals queue redrive` sends them again.".to_owned(),
            shown: simple(
                "gpuvitals_queue_dead_messages_total{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\"}",
                "0x50 0+1x20 20x170",
                &[("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
                (COUNT, "9"),
            ),
        },
        Alert {
            name: "GpuvitalsQueueLoses".to_owned(),
            severity: "critical",
            hold: "0m",
            expr: "increase(gpuvitals_queue_dropped_messages_total[15m]) > 0".to_owned(),
            summary: format!("{{{{ $labels.topic }}}} dropped about {COUNT} of its oldest messages"),
            meaning: "The topic is at its bound, and its policy is to make room: rows are lost for good.".to_owned(),
            remedy: "Bring the collectors back (`gpuvitals queue stats`), then raise the bound or the disk.".to_owned(),
            shown: simple(
                "gpuvitals_queue_dropped_messages_total{job=\"broker\",instance=\"broker:9090\",topic=\"gpu-telemetry\"}",
                "0x50 0+1x20 20x170",
                &[("instance", "broker:9090"), ("job", "broker"), ("topic", "gpu-telemetry")],
                (COUNT, "9"),
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
            summary: format!("the agent at {{{{ $labels.instance }}}} lost about {COUNT} rows: {{{{ $labels.reason }}}}"),
            meaning: "`limit`: the queue was away for longer than the spool has room; `refused`: the queue does not take the rows; \
                      `unwritable`: the disk of the spool fails. Scrapes are not concerned."
                .to_owned(),
            remedy: "`gpuvitals doctor` on the node tries the queue. Raise the spool's limit where the queue is away for long.".to_owned(),
            shown: simple(
                "gpuvitals_publish_dropped_rows_total{job=\"agent\",instance=\"node7:9400\",reason=\"limit\"}",
                "0x50 0+10x20 200x170",
                &[("instance", "node7:9400"), ("job", "agent"), ("reason", "limit")],
                (COUNT, "90"),
            ),
        },
        Alert {
            name: "GpuvitalsXidsMissed".to_owned(),
            severity: "warning",
            hold: "0m",
            expr: "increase(gpuvitals_xids_missed_total[15m]) > 0".to_owned(),
            summary: format!(
                "the agent at {{{{ $labels.instance }}}} has two sources of XIDs, and {{{{ $labels.source }}}} missed about {COUNT}"
            ),
            meaning: "`driver`: the kernel's log tells of XIDs that the driver has not counted; `kernel`: the driver has counted XIDs of \
                      which the log has no line. The source is dead, or lags, and says nothing of it itself."
                .to_owned(),
            remedy: "`driver`: restart the agent, and compare `gpuvitals doctor` with `dmesg | grep Xid` on the node. `kernel`: are its \
                     lines in `dmesg`, and is `gpuvitals_kernel_log_up` 1? Until then XIDs come from the other source alone."
                .to_owned(),
            shown: simple(
                "gpuvitals_xids_missed_total{job=\"agent\",instance=\"node7:9400\",source=\"driver\"}",
                "0x50 0+10x20 200x170",
                &[("instance", "node7:9400"), ("job", "agent"), ("source", "driver")],
                (COUNT, "90"),
            ),
        },
        Alert {
            name: "GpuvitalsRemoteWriteLoses".to_owned(),
            severity: "warning",
            hold: "0m",
            expr: "increase(gpuvitals_remote_write_samples_dropped_total[15m]) > 0".to_owned(),
            summary: format!("{{{{ $labels.job }}}} at {{{{ $labels.instance }}}} lost about {COUNT} samples of remote write: {{{{ $labels.reason }}}}"),
            meaning: "`limit` and `age`: the receiver was away for longer than samples may wait; `refused`: it does not take them. Scrapes \
                      and rows are not concerned."
                .to_owned(),
            remedy: "The log of the service has the receiver's own words. `gpuvitals_remote_write_up` says whether it answers now; raise \
                     `remote_write.queue_max` and `remote_write.max_age` where it is away for long."
                .to_owned(),
            shown: simple(
                "gpuvitals_remote_write_samples_dropped_total{job=\"agent\",instance=\"node7:9400\",reason=\"age\"}",
                "0x50 0+10x20 200x170",
                &[("instance", "node7:9400"), ("job", "agent"), ("reason", "age")],
                (COUNT, "90"),
            ),
        },
    ]
}

fn disk_filling() -> Alert {
    // In one process with one disk both would say the same: the first of `or` counts.
    let filling = |part: &str| {
        let free = format!("gpuvitals_{part}_disk_free_bytes");
        format!("({free} and predict_linear({free}[1h], 86400) < 0)")
    };
    let series = |part, labels: &str| {
        let values = "90000000000x5 90000000000-100000000x100 90000000000x130".to_owned();
        (format!("gpuvitals_{part}_disk_free_bytes{{{labels}}}"), values)
    };
    let case = |series, instance, job| Shown {
        series,
        labels: vec![("instance", instance), ("job", job)],
        value: (FREE.to_owned(), "78.79GiB"),
    };
    let up = "job=\"up\",instance=\"node7:8081\"";
    Alert {
        name: "GpuvitalsDiskFilling".to_owned(),
        severity: "warning",
        hold: "30m",
        expr: format!("{} or {}", filling("store"), filling("queue")),
        summary: format!("the disk of {{{{ $labels.job }}}} at {{{{ $labels.instance }}}} is full within a day: {FREE} are free"),
        meaning: "The free bytes of the last hour, drawn on as a line, reach 0 within a day. On a full disk nothing is taken, and \
                  nothing that was taken is lost."
            .to_owned(),
        remedy: "`gpuvitals store stats` shows what takes the room; `store.max_bytes` bounds it, `store.keep` and `store.keep_10s` delete \
                 sooner. Of a broker `gpuvitals queue stats` shows what waits; bring the collectors back, or lower `broker.bytes_max`. Or \
                 give it a larger disk."
            .to_owned(),
        shown: vec![
            case(vec![series("store", "job=\"collector\",instance=\"collector:8080\"")], "collector:8080", "collector"),
            case(vec![series("queue", "job=\"broker\",instance=\"broker:9090\"")], "broker:9090", "broker"),
            case(vec![series("store", up), series("queue", up)], "node7:8081", "up"),
        ],
    }
}

fn cluster_unread() -> Alert {
    // The cause may change meanwhile, so the label `state` is none of the alert's.
    const UNREAD: &str = "gpuvitals_cluster_state{state=~\"unreachable|unauthorized|forbidden|failed\"}";
    let state = "{{ with printf `gpuvitals_cluster_state{job=%q,instance=%q,cluster=%q} == 1` $labels.job $labels.instance $labels.cluster | query \
                 }}: {{ . | first | label \"state\" }}{{ end }}";
    let series = |state: &str, values: &str| {
        let labels = format!("job=\"gateway\",instance=\"gateway:8081\",cluster=\"east\",state=\"{state}\"");
        (format!("gpuvitals_cluster_state{{{labels}}}"), values.to_owned())
    };
    Alert {
        name: "GpuvitalsClusterUnread".to_owned(),
        severity: "warning",
        hold: "10m",
        expr: format!("max without (state) ({UNREAD}) == 1"),
        summary: format!("cluster {{{{ $labels.cluster }}}} cannot be read by {{{{ $labels.instance }}}}{state}"),
        meaning: "The gateway reads the GPUs of this cluster through its API server, and cannot. Answers show the last readings with their \
                  age; the history has none of this time."
            .to_owned(),
        remedy: "`GET /api/v1/gpu/clusters` of the gateway has the last error in words. `unreachable`: does `curl -k API_URL/readyz` answer where \
                 the gateway runs? In the chart `networkPolicy.apiServers` has to let it through; else look at the certificate and \
                 `ca_file`. `unauthorized`: the token has expired or was taken away; put a new one into `token_file`, which is read before \
                 each round. `forbidden`: the account lacks a right that docs/kubernetes.md lists; `kubectl auth can-i create pods/exec \
                 --as=system:serviceaccount:NAMESPACE:NAME -n gpu-operator` tries it. `failed`: the error says why."
            .to_owned(),
        shown: vec![Shown {
            series: vec![
                series("ok", "1x5 0x100 1x130"),
                series("unreachable", "0x5 1x40 0x190"),
                series("failed", "0x46 1x59 0x130"),
                series("no_gpu_nodes", "0x240"),
            ],
            labels: vec![("cluster", "east"), ("instance", "gateway:8081"), ("job", "gateway")],
            value: (state.to_owned(), ": failed"),
        }],
    }
}
