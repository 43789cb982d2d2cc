//! `gpuvitals inspect`: what each log of `fixtures/logs` and `fixtures/cases` is taken for. `UPDATE=1` writes the expected texts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs")
}

/// Inspects a log, and compares the output with the file `LOG.inspect` beside it.
fn expect(folder: &Path, log: &str, arguments: &[&str]) {
    let output = inspect(folder, &[arguments, &[log]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{log}: {said}{}", String::from_utf8_lossy(&output.stderr));
    let expected = folder.join(format!("{log}.inspect"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&expected, &said).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap_or_default();
    assert_eq!(said, expected, "{log}: run with UPDATE=1 and read what changed");
}

fn inspect(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    command
        .env_clear()
        .env("TZ", "UTC")
        .current_dir(folder)
        .arg("inspect")
        .args(arguments)
        .finished()
        .unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = inspect(folder, &[&["--json"], arguments].concat());
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["files"][0].clone()
}

#[test]
fn each_log_is_taken_for_what_it_is() {
    for (log, arguments) in [
        ("date-and-time.csv", &[][..]),
        ("date-and-time-of-a-gpu.csv", &[]),
        ("tokyo.csv", &["--timezone", "Asia/Tokyo"]),
        ("newyork.csv", &["--timezone", "America/New_York"]),
        ("jetson.csv", &["--column", "timestamp=time:mdy"]),
        ("name-only.csv", &["--timezone", "+09:00", "--gpu", "left"]),
        ("power-only.csv", &["--host", "lab"]),
        ("german.csv", &[]),
        ("amd-smi-metric.csv", &[]),
        ("comma.csv", &[]),
        ("cleaned.csv", &[]),
        ("hostA.csv", &[]),
        ("hostB.csv", &[]),
        ("dmon.txt", &[]),
        ("dcgm.prom", &[]),
        ("newest-first.csv", &["--timezone", "Europe/Berlin"]),
        ("tools/wandb.csv", &[]),
        ("tools/mlflow.csv", &[]),
        ("tools/mlflow_wide.csv", &[]),
        ("tools/influx.csv", &[]),
        ("tools/gpustat.txt", &[]),
        ("tools/dcgmi.txt", &[]),
        ("tools/nvitop.csv", &[]),
        ("tools/grafana-labels.csv", &[]),
        ("tools/GPU Temperature-data-as-joinbyfield-2024-04-25 17_03_20.csv", &[]),
        ("meter/5050_3090.csv", &["--timezone", "Europe/London"]),
        ("meter/4090_TR.csv", &["--timezone", "Europe/London"]),
        ("meter/K40m_TR.csv", &["--timezone", "Europe/London"]),
        ("meter/update_A100.csv", &["--timezone", "Europe/London"]),
        ("mi300x/gpu_power.csv", &[]),
        ("mi300x/gpu_temp.csv", &[]),
        ("mi300x/gpu_usage.csv", &[]),
        ("mi300x/cpu.csv", &[]),
        ("mi300x/memory.csv", &[]),
    ] {
        expect(&folder(), log, arguments);
    }
    for log in [
        "D1-energy-irregular-rows.csv.gz",
        "D1-one-extra-row.csv.gz",
        "D2-rate-sparse-counter.csv.gz",
        "D3-dcgm-mig.csv.gz",
        "D8-dcgm-memory-temp-0.csv.gz",
    ] {
        expect(&folder().join("../cases"), log, &[]);
    }
}

#[test]
fn rows_that_replace_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "timestamp,power.draw [W]\n2026-01-12 10:00:00,100\n2026-01-12 10:00:00,200\n2026-01-12 10:00:01,101\n";
    std::fs::write(folder.path().join("two.csv"), rows).unwrap();
    assert_eq!(json(folder.path(), &["two.csv"])["rows_repeated"], 1);
    let said = String::from_utf8(inspect(folder.path(), &["two.csv"]).stdout).unwrap();
    assert!(said.contains("note: 1 row has the GPU and time of an earlier row"), "{said}");
}

#[test]
fn of_several_files_one_may_lack_a_column_that_the_user_speaks_of() {
    let said = |files: &[&str]| {
        let output = inspect(&folder(), &[&["--column", "Power_Draw=power_average_w:mW"], files].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = said(&["comma.csv", "dmon.txt"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        text.matches("there is no column \"Power_Draw\", which --column speaks of").count(),
        1,
        "{text}"
    );
    let (code, text) = said(&["dmon.txt"]);
    assert_eq!(code, Some(65), "{text}");
}

#[test]
fn a_program_reads_the_same() {
    let found =
        json(&folder(), &["--host", "rack/7", "--column", "Power_Draw=power_average_w:mW", "comma.csv"]);
    assert_eq!(found["gpus"]["names"][0], "rack_7:gpu0");
    let power = &found["csv"]["columns"][2];
    assert_eq!((&power["role"], &power["column"]), (&"metric".into(), &"power_average_w".into()));
    assert_eq!((&power["factor"], &power["example"]), (&0.001.into(), &"45,37".into()));
    assert_eq!((&found["rows_taken"], &found["interval_seconds"]), (&2.into(), &1.0.into()));
    assert_eq!(
        (&found["csv"]["timezone"], &found["csv"]["timezone_from"]),
        (&"UTC".into(), &"machine".into())
    );
}

#[test]
fn what_is_refused_says_what_each_column_is_and_what_settles_it() {
    let output = inspect(&folder(), &["jetson.csv"]);
    assert_eq!(output.status.code(), Some(65));
    let said = String::from_utf8_lossy(&output.stdout);
    for words in ["--column timestamp=time:dmy", "utilization.gpu [%] (utilization_pct)", "name (model)"] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("future.csv"), "timestamp,power_w\n2500-01-01T00:00:00Z,1\n").unwrap();
    let output = inspect(other.path(), &["future.csv", "none.csv"]);
    assert_eq!(output.status.code(), Some(74));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("all its rows would be skipped") && said.contains("none.csv"), "{said}");
    let output = inspect(&folder(), &["--column", "a=powr_w", "comma.csv"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean power_w?"));
    assert!(std::fs::read_dir(other.path()).unwrap().count() == 1, "nothing is stored");
}

#[test]
fn several_files_are_understood_as_one_replay_is_and_what_has_no_rows_is_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run1");
    std::fs::create_dir(&run).unwrap();
    let write = |name: &str, text: &str| std::fs::write(run.join(name), text).unwrap();
    let rows = "timestamp,power.draw [W]\n2026-01-12 10:00:00,100\n2026-01-12 10:00:01,101\n";
    for name in ["power_gpu0.csv", "power_gpu1.csv", "a.csv", "b.csv"] {
        write(name, rows);
    }
    let said = |files: &[&str]| {
        let output = inspect(&run, files);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = said(&["power_gpu0.csv", "power_gpu1.csv"]);
    assert!(code == Some(0) && text.contains("(run1:gpu0)") && text.contains("(run1:gpu1)"), "{text}");
    assert!(!text.contains("refused"), "{text}");
    assert!(text.contains("are one machine's, run1; store import names the host of each"), "{text}");
    let (code, text) = said(&["a.csv", "b.csv"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("as one replay these files are refused: b.csv: it has the same GPU (run1:gpu0)"),
        "{text}"
    );
    write("none.csv", "timestamp,gpu,power_w\n");
    let (code, text) = said(&["none.csv"]);
    assert!(code == Some(65) && text.contains("it has no rows"), "{text}");
    write("cut.csv", "timestamp,gpu,power_w\n2026-01-12 10:00:00,0,1\nx\ny\n");
    let (code, text) = said(&["cut.csv"]);
    assert!(code == Some(65) && text.contains("more than half"), "{text}");
    let slots = "timestamp,slot,gpu,power_w\n1752871354,x,0,1\n1752871354,y,0,2\n1752871355,x,0,1\n1752871355,y,0,2\n";
    write("slots.csv", slots);
    let (_, text) = said(&["slots.csv"]);
    assert!(text.contains("2 rows have") && text.contains("--column \"slot=gpu\""), "{text}");
    assert_eq!(text.matches("of an earlier row").count(), 1, "{text}");
}

#[test]
fn a_pipe_that_nobody_writes_into_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("pipe")).finished().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = Command::new("timeout");
    command.arg("60").arg(env!("CARGO_BIN_EXE_gpuvitals")).args(["inspect", "pipe"]);
    let output = command.current_dir(folder.path()).finished().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(65), "{text}");
    assert!(text.contains("pipe: it is a named pipe") && text.contains("- reads standard input"), "{text}");
}
