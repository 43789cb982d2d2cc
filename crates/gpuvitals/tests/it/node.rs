//! `sample`, `doctor` and `top` on captured machines, through the real binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting::outcome;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs").join(name)
}

/// Runs gpuvitals on a captured machine: command first, then the other arguments.
fn on(machine: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(&arguments[..1])
        .arg("--sysfs")
        .arg(fixture(machine))
        .args(["--node", "node-a"])
        .args(&arguments[1..])
        .finished()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn json_lines_carry_the_column_names_of_the_table_and_why_values_are_missing() {
    let output = on("vega56", &["sample", "--format", "jsonl", "-n", "3", "-i", "20ms"]);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    let first = &rows[0];
    assert_eq!(first["table"], "gpu_events");
    assert_eq!(first["node"], "node-a");
    assert_eq!(first["vendor"], "amd");
    assert_eq!(first["source"], "amd-sysfs");
    assert_eq!(first["gpu"], 0);
    assert!(first["power_w"].is_number() || first["power_average_w"].is_number(), "{first}");
    assert!(first["temperature_c"].is_number());
    assert!(first["absent"].as_object().unwrap().values().all(|reason| reason == "not_supported"));
    let times: Vec<i64> = rows.iter().map(|row| row["timestamp_ns"].as_i64().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[1] > pair[0]), "{times:?}");
    assert!(times.iter().all(|time| time % 1_000_000 == 0));
}

#[test]
fn csv_can_be_replayed() {
    let output = on("rx6900xt", &["sample", "--format", "csv", "-n", "2", "-i", "20ms"]);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "a header and two rows");
    let columns = lines[0].split(',').count();
    assert!(lines[0].split(',').any(|column| column == "power_average_w"));
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
}

#[test]
fn the_table_has_a_dash_where_there_is_no_value() {
    let output = on("hd7870", &["sample", "-n", "1"]);
    let text = stdout(&output);
    assert!(text.starts_with("time (UTC)"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains(" - "), "{text}");
}

#[test]
fn the_table_keeps_slow_values_and_says_that_gpus_are_simulated() {
    // The limit is read once a second.
    let text = stdout(&on("rx7900xtx", &["sample", "-n", "4", "-i", "50ms"]));
    let limits: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    assert_eq!(limits, ["290"; 4], "{text}");
    assert!(!text.contains("simulated"), "{text}");
    let text = stdout(&on("vega56", &["sample", "--driver", "simulated", "-n", "1"]));
    assert!(text.lines().next().unwrap().contains("simulated"), "{text}");
    let top = stdout(&on("vega56", &["top", "--driver", "simulated", "--once"]));
    assert!(top.lines().next().unwrap().contains("simulated"), "{top}");
}

#[test]
fn a_frame_whose_reader_has_gone_is_no_failure() {
    let mut top = Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
        .args(["top", "--driver", "simulated", "--once"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(top.stdout.take());
    let output = outcome(top);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_host_is_sampled_beside_the_gpus_when_asked_for() {
    let output = on("vega56", &["sample", "--host", "--format", "jsonl", "-n", "2", "-i", "50ms"]);
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let host: Vec<&Value> = rows.iter().filter(|row| row["table"] == "system_events").collect();
    assert_eq!((rows.len(), host.len()), (4, 2));
    assert!(host[0]["cpu_pct"].is_null(), "a share needs two readings");
    assert!(host[1]["ctx_switches"].as_i64() > host[0]["ctx_switches"].as_i64());
}

/// CPUs of this machine that are online.
fn cpus() -> usize {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
}

#[test]
fn each_cpu_has_a_row_of_its_own_where_it_is_asked_for() {
    let output = on("vega56", &["sample", "--per-core", "--format", "jsonl", "-n", "3", "-i", "200ms"]);
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let host: Vec<&Value> = rows.iter().filter(|row| row["table"] == "system_events").collect();
    let (cores, whole): (Vec<&Value>, Vec<&Value>) = host.iter().partition(|row| row["core"].is_string());
    assert_eq!((whole.len(), rows.len() - host.len()), (3, 3), "three of the host, three of the GPU");
    assert!((1..=2 * cpus()).contains(&cores.len()), "the first of three readings gives no share: {cores:?}");
    for row in cores {
        assert!(row["core"].as_str().unwrap().parse::<usize>().is_ok(), "{row}");
        assert!((0.0..=100.0).contains(&row["cpu_core_pct"].as_f64().unwrap()), "{row}");
        assert_eq!((&row["node"], &row["ctx_switches"]), (&"node-a".into(), &Value::Null));
    }
    assert!(whole.iter().all(|row| row["ctx_switches"].is_i64() && row["cpu_core_pct"].is_null()));

    let csv = stdout(&on("vega56", &["sample", "--per-core", "--format", "csv", "-n", "3", "-i", "200ms"]));
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let at = |column| lines[0].iter().position(|name| *name == column).unwrap();
    let (core, share, switches) = (at("core"), at("cpu_core_pct"), at("ctx_switches"));
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let of_cores: Vec<_> = lines[1..].iter().filter(|line| !line[core].is_empty()).collect();
    assert!(of_cores.iter().all(|line| !line[share].is_empty() && line[switches].is_empty()), "{csv}");
    assert!(!of_cores.is_empty() && lines.len() == 1 + 3 + of_cores.len(), "{csv}");

    let table = stdout(&on("vega56", &["sample", "--per-core", "-n", "3", "-i", "200ms"]));
    assert!(table.lines().any(|line| line.contains("  cpu 0 ")), "{table}");
}

#[test]
fn a_machine_without_gpus_says_what_was_looked_at() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    for command in ["sample", "top", "doctor"] {
        let output = on("vega56", &[command, "--sysfs", path]);
        // The later of two flags is refused, so the machine is given once.
        assert_eq!(output.status.code(), Some(64), "{command}: {output:?}");
        let output = Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
            .env_clear()
            .args([command, "--sysfs", path])
            .finished()
            .unwrap();
        assert_eq!(output.status.code(), Some(69), "{command}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no GPU"), "{command}: {said}");
    }
}

#[test]
fn doctor_reads_each_device_and_its_exit_code_says_whether_sampling_works() {
    let output = on("vega56", &["doctor", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["works"], true);
    let gpu = report["devices"].as_array().unwrap().iter().find(|d| d["driver"] == "amd-sysfs").unwrap();
    assert_eq!(gpu["liveness"], "up");
    assert!(gpu["values"].as_u64().unwrap() > 20, "{gpu}");
    assert!(gpu["reading_us"].as_f64().unwrap() > 0.0);
    let text = stdout(&on("vega56", &["doctor", "--absent"]));
    assert!(text.contains("not_supported:"), "{text}");
    for here in ["kernel:", "clock:", "store ", "port:", "queue ", "procfs"] {
        assert!(!text.contains(here), "{here} is this machine's, not the captured one's: {text}");
    }
}

#[test]
fn top_prints_a_frame_where_there_is_no_terminal() {
    let output = on("rx7900xtx", &["top", "--once"]);
    assert!(output.status.success(), "{output:?}");
    let frame = stdout(&output);
    assert!(frame.starts_with("gpuvitals top  node-a  1 GPU "), "{frame}");
    assert_eq!(on("rx7900xtx", &["top"]).status.code(), Some(64), "without a terminal and --once");
}

#[test]
fn a_rate_that_no_driver_stands_is_refused() {
    let output = on("vega56", &["sample", "-i", "10us"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--interval"), "{output:?}");
}

#[test]
fn top_gives_the_terminal_back_when_it_is_quit() {
    let top = format!("{} top --sysfs {}", env!("CARGO_BIN_EXE_gpuvitals"), fixture("rx7900xtx").display());
    gives_the_terminal_back(&top, b"s?q");
}

#[test]
fn top_gives_the_terminal_back_when_it_is_terminated() {
    // The shell becomes top; what it left behind waits until top catches SIGTERM (0x4000), and sends it.
    let top = format!("{} top --sysfs {}", env!("CARGO_BIN_EXE_gpuvitals"), fixture("rx7900xtx").display());
    let kill = "while ! grep -q ^SigCgt:.*[4-7c-f]...$ /proc/$$/status; do :; done; kill -TERM $$";
    gives_the_terminal_back(&format!("sh -c '({kill}) & exec {top}'"), b"");
}

/// Runs a command that draws, on a terminal that script(1) of every Debian gives it.
fn gives_the_terminal_back(command: &str, keys_pressed: &[u8]) {
    let mut child = Command::new("script")
        .args(["-qec", command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(keys_pressed).unwrap();
    let output = outcome(child);
    drop(keys);
    assert!(output.status.success(), "{output:?}");
    let drawn = String::from_utf8_lossy(&output.stdout);
    let (enter, leave) = (drawn.find("\u{1b}[?1049h"), drawn.rfind("\u{1b}[?1049l"));
    assert!(enter.is_some() && enter < leave, "{drawn:?}");
}

/// A copy of a captured RX 6900 XT with this for its `gpu_metrics`.
fn with_table(bytes: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    gpuvitals_rig::tree::copy(&fixture("rx6900xt"), dir.path());
    std::fs::write(dir.path().join("class/drm/card0/device/gpu_metrics"), bytes).unwrap();
    dir
}

#[test]
fn a_table_that_is_not_understood_is_told_with_its_version_by_whoever_reads_it() {
    let mut unknown = std::fs::read(fixture("rx6900xt").join("class/drm/card0/device/gpu_metrics")).unwrap();
    unknown[3] = 42;
    let mut unfilled = vec![0xff; 120];
    unfilled[..4].copy_from_slice(&[120, 0, 1, 3]);
    for (bytes, words) in [
        (&unknown[..], "gpu_metrics: v1.42 (120 bytes) is not known"),
        (&[0, 0, 1, 3], "gpu_metrics: v1.3 (0 bytes) was never filled"),
        (&unfilled, "gpu_metrics: v1.3 (120 bytes), no field of it is filled"),
    ] {
        let tree = with_table(bytes);
        let tree = tree.path().to_str().unwrap();
        let output = tempfile::tempdir().unwrap();
        let output = output.path().join("recording");
        let told = "gpuvitals: amd-sysfs card0 (0000:0c:00.0): ".to_owned() + words;
        for command in [
            &["sample", "-n", "1"][..],
            &["record", "--duration", "200ms", "--output", output.to_str().unwrap()],
        ] {
            let got = on(tree, command);
            let error = String::from_utf8(got.stderr).unwrap();
            assert!(got.status.success(), "{error}");
            assert_eq!(error.matches(&told).count(), 1, "{command:?}: {error}");
        }
        let text = stdout(&on(tree, &["doctor"]));
        let line = format!("  partial   amd-sysfs card0 (0000:0c:00.0): {words}");
        assert_eq!(text.matches(&line).count(), 1, "{text}");
    }
}
