//! Alerts on what one value of a GPU does not show.

use super::{AT_NODE, Alert, NAMED, OF_GPU, Shown, info, labels, name, other, series};

/// Labels that make a GPU.
const SAME: &str = "on (job, instance, uuid, partition)";

/// Alerts on a GPU over time.
pub(crate) fn all() -> Vec<Alert> {
    [reached(), throttled(), hardware(), work()].into_iter().flatten().collect()
}

/// Series of the GPU of the tests, labels of the alert beside the GPU's, and the value in its summary.
fn shown(
    series: Vec<(String, String)>,
    own: &[(&'static str, &'static str)],
    value: (&str, &'static str),
) -> Vec<Shown> {
    vec![Shown {
        series: series.into_iter().chain([info()]).collect(),
        labels: labels(&[&AT_NODE, own].concat()),
        value: (value.0.to_owned(), value.1),
    }]
}

/// A counter that rises for a while.
fn rising(rate: &str) -> String {
    format!("0x5 0+{rate}x100 0x130")
}

/// Whether there are values.
fn reached() -> Vec<Alert> {
    const AGE: &str = "{{ $value | humanizeDuration }}";
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
                &[("reason", "gone")],
                ("", ""),
            ),
        },
        Alert {
            name: "GpuSilent".to_owned(),
            severity: "warning",
            hold: "5m",
            expr: format!(
                "(time() - gpu_last_sample_timestamp_seconds > 300) * {OF_GPU} unless {SAME} gpu_down_reason"
            ),
            summary: format!("{NAMED}: the last sample is {AGE} old"),
            meaning: "The agent answers, says nothing of a fault, and has had no sample of the GPU for five minutes.".to_owned(),
            remedy: "Look at the agent's log and at `gpuvitals_readings_failed_total`; start the agent again. Please report it: the agent \
                     should have said why."
                .to_owned(),
            shown: shown(
                vec![(
                    series("gpu_last_sample_timestamp_seconds", &[]),
                    "0+60x5 300x100 6360+60x130".to_owned(),
                )],
                &[],
                (AGE, "55m 0s"),
            ),
        },
    ]
}

/// Whether the clocks are held down.
fn throttled() -> Vec<Alert> {
    const SHARE: &str = "{{ $value | humanizePercentage }}";
    let throttled = name("throttled_thermal_ns");
    let limit = format!("({}{{limit=\"set\"}} * {OF_GPU})", name("power_limit_w"));
    let set = [("limit", "set")];
    vec![
        Alert {
            name: "GpuThrottledByHeat".to_owned(),
            severity: "warning",
            hold: "10m",
            expr: format!("(max without (reason) (rate({throttled}{{reason=~\"thermal|hw_thermal|sw_thermal\"}}[10m])) > 0.1) * {OF_GPU}"),
            summary: format!("{NAMED}: heat holds the clocks down for {SHARE} of the time"),
            meaning: "Heat held the clocks down for more than a tenth of the last ten minutes.".to_owned(),
            remedy: "Compare with the other GPUs of the node, then with its inlet temperature; see GpuHardwareThermalSlowdown.".to_owned(),
            shown: shown(vec![(series(throttled, &[("reason", "thermal")]), rising("30"))], &[], (SHARE, "50%")),
        },
        Alert {
            name: "GpuThrottledByPower".to_owned(),
            severity: "info",
            hold: "30m",
            expr: format!(
                "(max without (reason) (rate({throttled}{{reason=~\"power|sw_power_cap\"}}[30m])) > 0.5) * {OF_GPU} and {SAME} \
                 ({limit} < on (model) group_left () quantile by (model) (0.5, {limit}))"
            ),
            summary: format!("{NAMED}: a power limit below that of others of its model holds the clocks down for {SHARE} of the time"),
            meaning: "The power limit held the clocks down for more than half of the last half hour, and half of the GPUs of the model have a \
                      higher one. At a limit that all have, full load is held down as it should be, and no alert comes."
                .to_owned(),
            remedy: "Look at `gpu_power_limit_watts` of the node: a limit that somebody has left behind is reset with \
                     `nvidia-smi -i INDEX -pl WATTS` or `rocm-smi -d INDEX --resetpoweroverdrive`."
                .to_owned(),
            shown: shown(
                vec![
                    (series(throttled, &[("reason", "power")]), rising("50")),
                    (series(name("power_limit_w"), &set), "400x240".to_owned()),
                    (other(name("power_limit_w"), &set), "700x240".to_owned()),
                    (other("gpu_info", &AT_NODE), "1x240".to_owned()),
                ],
                &[],
                (SHARE, "83.33%"),
            ),
        },
        Alert {
            name: "GpuPowerBrake".to_owned(),
            severity: "warning",
            hold: "10m",
            expr: format!("(max without (reason) (rate({throttled}{{reason=\"hw_power_brake\"}}[10m])) > 0.01) * {OF_GPU}"),
            summary: format!("{NAMED}: the power brake of the chassis holds the clocks down for {SHARE} of the time"),
            meaning: "The chassis asserts the board's external power brake: it can or will not supply more.".to_owned(),
            remedy: "Look at the power supplies, at their redundancy and at the rack's power limit: `ipmitool sel list` shows what the \
                     chassis has noticed. Other GPUs of the node are held down as well."
                .to_owned(),
            shown: shown(vec![(series(throttled, &[("reason", "hw_power_brake")]), rising("30"))], &[], (SHARE, "50%")),
        },
    ]
}

/// Parts around the GPU.
fn hardware() -> Vec<Alert> {
    const VALUE: &str = "{{ $value }}";
    let width = format!("({} * {OF_GPU})", name("pcie_width"));
    let temperature = series(name("temperature_c"), &[("sensor", "gpu")]);
    vec![
        Alert {
            name: "GpuPcieDegraded".to_owned(),
            severity: "warning",
            hold: "30m",
            expr: format!("{width} < on (model) group_left () quantile by (model) (0.5, {width})"),
            summary: format!("{NAMED} has {VALUE} PCIe lanes, fewer than others of its model"),
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
                    (other("gpu_info", &AT_NODE), "1x240".to_owned()),
                ],
                &[],
                (VALUE, "8"),
            ),
        },
        Alert {
            name: "GpuFanStopped".to_owned(),
            severity: "warning",
            hold: "5m",
            expr: format!(
                "max without (sensor) ({hot}{{sensor=\"gpu\"}} > 80) * {OF_GPU} and {SAME} {fan} == 0",
                fan = name("fan_speed_pct"),
                hot = name("temperature_c")
            ),
            summary: format!("{NAMED}: at {VALUE} °C its fan stands still"),
            meaning: "The fan is set to 0 although the GPU is above 80 °C. Passive cards have no such value.".to_owned(),
            remedy: "Drain the node; look at the fan, its plug, and at a fan speed that somebody has set by hand.".to_owned(),
            shown: shown(
                vec![
                    (series(name("fan_speed_pct"), &[]), "0x240".to_owned()),
                    (temperature, "60x5 85x100 60x130".to_owned()),
                ],
                &[],
                (VALUE, "85"),
            ),
        },
    ]
}

/// What is done with it.
fn work() -> Vec<Alert> {
    const XID: &str = "{{ $value }}";
    vec![
        idle_while_held(),
        Alert {
            name: "GpuXidOfApplication".to_owned(),
            severity: "info",
            hold: "0m",
            expr: format!(
                "({xid} > 0 and changes({xid}[15m]) > 0) * {OF_GPU} unless {SAME} gpu_condition{{condition=\"xid\"}}",
                xid = name("xid_last")
            ),
            summary: format!("{NAMED}: XID {XID}, which applications cause"),
            meaning: "The last XID changed within a quarter of an hour, to one that does not make the GPU unhealthy (13, 31, 43, 45, 68, \
                      109: mostly a bug of the program that ran)."
                .to_owned(),
            remedy: "`dmesg | grep -i xid` on the node names the process. Many of them on one GPU, with programs that run elsewhere, speak for \
                     the GPU after all."
                .to_owned(),
            shown: shown(
                vec![(series(name("xid_last"), &[]), "0x50 13x120 0x80".to_owned())],
                &[],
                (XID, "13"),
            ),
        },
    ]
}

/// The holder's labels.
const HOLDER: &str = "pod, namespace, container, exported_job";

fn idle_while_held() -> Alert {
    const BY: &str = "{{ if $labels.pod }}{{ $labels.namespace }}/{{ $labels.pod }}{{ else }}job {{ $labels.exported_job }}{{ end }}";
    let utilization = name("utilization_pct");
    // A scrape that honours labels leaves a job's number in `job`; any other makes `exported_job` of it. So `job` does not join.
    let held = "label_replace(gpu_attribution_info and gpu_attribution_info offset 30m, \"exported_job\", \"$1\", \"job\", \"([0-9]+)\")";
    let pod = [("namespace", "ml"), ("pod", "train-0"), ("container", "main")];
    let job = [("exported_job", "4711")];
    let case = |attribution: String, own: &[(&'static str, &'static str)], text| {
        let idle = (series(utilization, &[]), "0.9x5 0x100 0.9x130".to_owned());
        shown(vec![idle, (attribution, "1x240".to_owned())], own, (BY, text))
    };
    let attributed = |own: &[(&str, &str)]| series("gpu_attribution_info", own);
    Alert {
        name: "GpuIdleWhileHeld".to_owned(),
        severity: "info",
        hold: "10m",
        expr: format!(
            "(avg_over_time({utilization}[30m]) < 0.01) * {OF_GPU} * on (instance, uuid, partition) group_left ({HOLDER}) \
             max by (instance, uuid, partition, {HOLDER}) ({held})"
        ),
        summary: format!("{NAMED} is held by {BY} and idle"),
        meaning: "A pod or a batch job has held the GPU for half an hour without using it.".to_owned(),
        remedy: "Ask its owner. `kubectl -n NAMESPACE describe pod POD`, and of a job `scontrol show job JOB`, says since when it runs, \
                 `gpuvitals query` what it used before."
            .to_owned(),
        shown: [
            case(attributed(&pod), &pod, "ml/train-0"),
            case(attributed(&job), &job, "job 4711"),
            case(attributed(&[]).replace("job=\"agent\"", "job=\"4711\""), &job, "job 4711"),
            case(attributed(&[&pod[..], &job].concat()), &[&pod[..], &job].concat(), "ml/train-0"),
        ]
        .concat(),
    }
}
