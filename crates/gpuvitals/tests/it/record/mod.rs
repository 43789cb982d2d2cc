//! `gpuvitals record`, `repair`, `mark`, `report`, `export` and `compare` on captured machines.

mod comparing;
mod damaged;
mod exporting;
mod program;
mod report;
mod visible;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_record::Data;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

/// `gpuvitals record` of a captured machine into a directory.
fn record(tree: &str, output: &Path) -> Command {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").canonicalize().unwrap();
    let mut command = gpuvitals!();
    command.arg("record").arg("--sysfs").arg(fixtures.join("amd/sysfs").join(tree));
    command.arg("--procfs").arg(fixtures.join("host/x86-2cpu"));
    command.args(["--node", "n1", "--output"]).arg(output);
    command
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs it to a good end and gives its summary.
fn summary(command: &mut Command) -> Value {
    let output = command.args(["--json", "--duration", "500ms"]).finished().unwrap();
    let (stdout, stderr) = said(&output);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn open(file: &Path) -> ParquetRecordBatchReaderBuilder<File> {
    ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap()
}

/// Rows of a file.
fn rows(file: &Path) -> i64 {
    open(file).metadata().file_metadata().num_rows()
}

/// Compares with a file beside the tests; `UPDATE=1` writes it.
fn golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/record").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs; UPDATE=1 writes it anew");
}

#[test]
fn the_columns_that_every_recording_has_are_these() {
    let (dir, bare) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    summary(&mut record("rx7900xtx", dir.path()));
    summary(record("rx7900xtx", bare.path()).args(["--driver", "procfs"]));
    let columns = |file: PathBuf| -> Vec<String> {
        let reader = open(&file.with_extension("parquet"));
        let columns = reader.parquet_schema().columns().iter().map(|column| {
            let optional = if column.self_type().is_optional() { "" } else { " required" };
            format!("  {} {}{optional}\n", column.name(), column.physical_type())
        });
        columns.collect()
    };
    let mut text = String::new();
    for name in ["gpu_events", "system_events", "marks"] {
        let promised = columns(bare.path().join(name));
        let found = columns(dir.path().join(name));
        assert!(promised.iter().all(|column| found.contains(column)), "{name}: {found:?}");
        text.extend([name, "\n"].into_iter().chain(promised.iter().map(String::as_str)));
        assert!(name != "gpu_events" || found.len() > promised.len() + 10, "what was read is there as well");
    }
    golden("columns.txt", &text);
}

#[test]
fn each_cpu_is_recorded_by_itself_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = gpuvitals!();
    command.args(["record", "--driver", "procfs", "--per-core", "--output"]).arg(dir.path());
    let found = summary(&mut command);
    let file = dir.path().join("system_events.parquet");
    let (all, samples) = (found["system_rows"].as_i64().unwrap(), found["host"]["samples"].as_i64().unwrap());
    assert!(samples > 0 && all > samples, "{all} rows, {samples} of them of the host as a whole");
    assert_eq!(all, rows(&file));
    for batch in open(&file).build().unwrap() {
        let batch = batch.unwrap();
        let nulls = |column| batch.column_by_name(column).unwrap().null_count();
        assert_eq!((nulls("core"), nulls("cpu_core_pct")), (samples.try_into().unwrap(), nulls("core")));
    }
}

/// A machine of files: a captured GPU and host, and a process of a Slurm job on the GPU.
fn machine_with_a_job() -> tempfile::TempDir {
    let (root, fixtures) =
        (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures"));
    for (from, to) in [("amd/sysfs/rx580", "sys"), ("host/x86-2cpu", "proc")] {
        gpuvitals_rig::tree::copy(&fixtures.join(from), &root.path().join(to));
    }
    let process = root.path().join("proc/77");
    for folder in [
        process.join("fdinfo"),
        process.join("fd"),
        root.path().join("sys/fs/cgroup/system.slice/slurmstepd.scope"),
    ] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for (file, text) in [
        ("comm", "python\n"),
        ("cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"),
        (
            "fdinfo/5",
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t30\ndrm-pdev:\t0000:09:00.0\ndrm-memory-vram:\t1024 KiB\n",
        ),
    ] {
        std::fs::write(process.join(file), text).unwrap();
    }
    std::os::unix::fs::symlink("/dev/dri/renderD128", process.join("fd/5")).unwrap();
    root
}

#[test]
fn rows_carry_the_job_that_holds_the_gpu() {
    let (machine, dir) = (machine_with_a_job(), tempfile::tempdir().unwrap());
    let jobs = |how: &str| {
        let mut command = gpuvitals!();
        command.arg("record").arg("--sysfs").arg(machine.path().join("sys"));
        command.arg("--procfs").arg(machine.path().join("proc"));
        command.args(["--node", "n1", "--force", "--output"]).arg(dir.path());
        command.env("GPUVITALS_ATTRIBUTION_SLURM", how);
        summary(&mut command);
        let batches = Data::open(dir.path()).unwrap().map(Result::unwrap);
        let gpus = batches.filter(|batch| batch.table() == Table::GpuEvents);
        let jobs = gpus.flat_map(|batch| {
            let job = |row| batch.identity(row).get(IdentityColumn::Job).map(str::to_owned);
            (0..batch.rows()).map(job).collect::<Vec<_>>()
        });
        jobs.collect::<Vec<_>>()
    };
    let found = jobs("auto");
    assert_eq!(found.last().unwrap().as_deref(), Some("4711"), "{found:?}");
    assert!(found.iter().flatten().all(|job| job == "4711"));
    assert!(jobs("off").iter().all(Option::is_none));
}

#[test]
fn the_summary_has_this_form() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = summary(&mut record("rx7900xtx", dir.path()));
    assert_eq!(found["gpu_rows"].as_i64().unwrap(), rows(&dir.path().join("gpu_events.parquet")));
    assert_eq!(found["system_rows"].as_i64().unwrap(), rows(&dir.path().join("system_events.parquet")));
    let energy = &found["gpus"][0]["energy"];
    let (joules, seconds) =
        (energy["joules"].as_f64().unwrap(), found["gpus"][0]["duration_s"].as_f64().unwrap());
    assert!(
        (joules / seconds - found["gpus"][0]["power_w"]["mean"].as_f64().unwrap()).abs() < 0.5,
        "{energy}"
    );
    found["gpus"][0]["rate_hz"] = "…".into();
    mask(&mut found);
    golden("summary.json", &format!("{found:#}\n"));
}

/// Removes the parts that depend on timing.
fn mask(value: &mut Value) {
    const VOLATILE: [&str; 15] = [
        "bytes",
        "directory",
        "gpu_rows",
        "system_rows",
        "duration_s",
        "joules",
        "power_seen_s",
        "lateness_p99_s",
        "rate_hz",
        "rate_kept",
        "samples",
        "ticks_missed",
        "repeats",
        "update_interval_s",
        "host",
    ];
    let Value::Object(object) = value else { return };
    for (name, value) in object.iter_mut() {
        let is_asked = name == "rate_hz" && value.as_f64() == Some(100.0);
        if VOLATILE.contains(&name.as_str()) && !value.is_null() && !is_asked {
            *value = "…".into();
        } else if let Value::Array(entries) = value {
            entries.iter_mut().for_each(mask);
        } else {
            mask(value);
        }
    }
}

#[test]
fn the_text_is_for_people_and_says_where_energy_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let output = record("rx7900xtx", dir.path()).args(["--duration", "200ms"]).finished().unwrap();
    let (stdout, stderr) = said(&output);
    for word in [
        "gpu  model",
        "W mean/p99/max",
        "energy of 0: integrated from power",
        "energy of 0: not known",
        "host n1: cpu",
    ] {
        assert!(stdout.contains(word), "{word} in\n{stdout}");
    }
    assert!(stderr.contains("recording to") && stderr.contains("GPUVITALS_MARK_SOCKET="), "{stderr}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 160), "{stdout}");

    assert!(!stdout.contains("Simulated"), "{stdout}");
    let dir = tempfile::tempdir().unwrap();
    let simulated = ["--driver", "simulated", "--duration", "200ms"];
    let output = record("rx7900xtx", dir.path()).args(simulated).finished().unwrap();
    assert!(said(&output).0.contains("\nSimulated, not measured: "), "{output:?}");
}

#[test]
fn a_recording_is_overwritten_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    summary(&mut record("rx7900xtx", dir.path()));
    let file = dir.path().join("gpu_events.parquet");
    let before = std::fs::read(&file).unwrap();
    let refused = record("rx7900xtx", dir.path()).args(["--duration", "100ms"]).finished().unwrap();
    assert_eq!(refused.status.code(), Some(65));
    assert!(said(&refused).1.contains("--force"), "{}", said(&refused).1);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let misspelt = record("rx7900xtx", dir.path()).args(["--force", "--", "pyhton"]).finished().unwrap();
    assert_eq!(misspelt.status.code(), Some(127), "{}", said(&misspelt).1);
    assert_eq!(std::fs::read(&file).unwrap(), before, "nothing has replaced it");
    summary(record("rx7900xtx", dir.path()).arg("--force"));
    assert_ne!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn without_a_gpu_the_host_is_recorded_and_that_is_said() {
    let (dir, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = record("rx7900xtx", dir.path());
    let output = command.arg("--driver").arg("procfs").args(["--duration", "300ms"]).finished().unwrap();
    let (stdout, stderr) = said(&output);
    assert!(output.status.success() && stderr.contains("only the host is recorded"), "{stderr}");
    assert!(stdout.contains("0 rows of GPUs"), "{stdout}");
    assert!(rows(&dir.path().join("system_events.parquet")) > 0);
    assert_eq!(rows(&dir.path().join("gpu_events.parquet")), 0);

    let refused = record("rx7900xtx", &empty.path().join("out"))
        .args(["--driver", "procfs", "--require-gpus"])
        .finished()
        .unwrap();
    assert_eq!(refused.status.code(), Some(69));
    assert!(said(&refused).1.contains("no GPU was found"), "{}", said(&refused).1);

    let nothing = gpuvitals!()
        .args(["record", "--driver", "amd-sysfs", "--sysfs"])
        .arg(empty.path())
        .arg("--output")
        .arg(empty.path().join("out"))
        .finished()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(69), "{}", said(&nothing).1);
    assert!(!empty.path().join("out").exists(), "nothing was begun");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], code: i32| {
        let output = record("rx7900xtx", &dir.path().join("out")).args(arguments).finished().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output).1);
        assert!(!dir.path().join("out").exists(), "{arguments:?}");
    };
    check(&["--rate", "5000"], 64);
    check(&["--rate", "0"], 64);
    check(&["--duration", "soon"], 64);
    check(&["--duration", "1s", "--", "true"], 64);
    check(&["--pid", "1", "--", "true"], 64);
    // More than Linux gives.
    check(&["--pid", "4194305"], 64);
    check(&["--sysfs", "/nonexistent"], 64);
    let output = gpuvitals!().args(["repair"]).arg(dir.path()).finished().unwrap();
    assert_eq!(output.status.code(), Some(65), "{}", said(&output).1);
    let output = gpuvitals!().args(["mark", "x", "--socket", "/nonexistent"]).finished().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", said(&output).1);
    assert!(said(&output).1.contains("gpuvitals record"), "{}", said(&output).1);
    let refused = |arguments: &[&str], words: &str| {
        let output =
            gpuvitals!().env_remove("GPUVITALS_MARK_SOCKET").arg("mark").args(arguments).finished().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(said(&output).1.contains(words), "{arguments:?}: {}", said(&output).1);
    };
    refused(&["x"], "gpuvitals record -- CMD");
    refused(&[], "TEXT");
    refused(&["--value", "tokens"], "NAME=NUMBER");
    refused(&["--value", "loss=NaN"], "NAME=NUMBER");
    let empty = gpuvitals!().env("GPUVITALS_MARK_SOCKET", "").args(["mark", "x"]).finished().unwrap();
    assert_eq!(empty.status.code(), Some(64), "{}", said(&empty).1);
    assert!(said(&empty).1.contains("gpuvitals record -- CMD"), "{}", said(&empty).1);
}
