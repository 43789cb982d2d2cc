//! GPUs that only a vendor's tool names: they are unknown before its first answer.

use std::path::Path;
use std::process::{Command, Output};

use gpuvitals_rig::program::Finished as _;

/// A machine whose nvidia-smi runs this script.
fn run(script: &str, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), script, arguments)
}

fn run_in(dir: &Path, script: &str, arguments: &[&str]) -> Output {
    let tool = dir.join("nvidia-smi");
    // Written by another process: a file that a thread here has open for writing while another one forks is busy.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let written = Command::new("sh").args(["-c", write, "sh", script]).arg(&tool).finished().unwrap();
    assert!(written.status.success(), "{written:?}");
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    command.args(arguments).args(["--driver", "nvidia-smi"]).env("PATH", path).current_dir(dir);
    command.finished().unwrap()
}

const ANSWERS: &str = "echo 'index, uuid, name, power.draw [W]'; echo '0, GPU-1, NVIDIA H200, 77.71 W'; \
     echo '1, GPU-2, NVIDIA H200, 78.00 W'";
const FAILS: &str = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18";

#[test]
fn rows_are_waited_for_until_the_tool_has_answered() {
    let output = run(ANSWERS, &["sample", "-n", "1", "--format", "jsonl"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("\"power_w\":77.71") && text.contains("GPU-2"), "{text}");
    let doctor = run(ANSWERS, &["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.contains("GPU 1 NVIDIA H200 by nvidia-smi"), "{text}");
    assert!(text.contains("kernel: ") && text.contains("queue: it is part"), "{text}");
}

#[test]
fn a_recording_says_the_rate_that_the_tool_gives() {
    let output = run(ANSWERS, &["record", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("asked 100 Hz, nvidia-smi gives 1\n").count(), 1, "{text}");
}

#[test]
fn doctor_names_a_driver_that_is_older_than_any_that_was_tested() {
    let old = "echo 'index, uuid, name, driver_version, power.draw [W]'; \
               echo '0, GPU-1, NVIDIA T4, 470.256.02, 27.71 W'";
    let text = run(old, &["doctor"]).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("NVIDIA driver 470.256.02 is older than 535.154.5"), "{text}");
}

#[test]
fn doctor_does_not_call_a_gpu_good_that_needs_a_reset() {
    let reset = "echo 'index, uuid, name, memory.used [MiB], temperature.gpu, power.draw [W], gpu_recovery_action'; \
                 echo '0, GPU-1, NVIDIA RTX PRO 6000, 58222, [GPU requires reset], [N/A], Reset'; \
                 echo '1, GPU-2, NVIDIA RTX PRO 6000, 1000, 40, 100.00, None'";
    // An older driver has no field for it.
    let sensors = "echo 'index, uuid, name, memory.used [MiB], temperature.gpu, power.draw [W]'; \
                   echo '0, GPU-1, NVIDIA A100, 58222, [GPU requires reset], [N/A]'; \
                   echo '1, GPU-2, NVIDIA A100, 1000, 40, 100.00'";
    let empty = "echo 'index, uuid, name, temperature.gpu, power.draw [W]'; echo '0, GPU-1, NVIDIA A100, [N/A], [N/A]'; \
                 echo '1, GPU-2, NVIDIA A100, 40, 100.00'";
    for (script, words) in [
        (reset, "the driver asks for a reset of the GPU\n            → Take the GPU's jobs away"),
        (sensors, "the driver has lost it or asks for a reset: 1 of its values"),
        (empty, "it answers, and gives no value"),
    ] {
        let output = run(script, &["doctor"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(69), "{text}");
        assert!(text.contains("broken   GPU 0 ") && text.contains(words), "{text}");
        assert!(text.contains("good   GPU 1 "), "{text}");
        assert!(text.contains("good   host by procfs"), "a chosen driver leaves the host: {text}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 2 GPUs"));
    }
}

#[test]
fn doctor_does_not_call_a_database_good_that_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gpuvitals.yaml");
    std::fs::write(&config, "database: {host: 127.0.0.1, port: 1, user: gv, dbname: telemetry}\n").unwrap();
    let output = run_in(dir.path(), ANSWERS, &["doctor", "--config", config.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("broken   database telemetry of 127.0.0.1: "), "{text}");
    assert!(text.contains("→ start the server, or correct database.host"), "{text}");
}

#[test]
fn a_gpu_that_is_lost_from_the_start_is_named_by_doctor_and_sample() {
    let one_lost = "echo 'index, uuid, name, pci.bus_id, power.draw [W]'; echo '0, GPU-1, NVIDIA H200, 00000000:01:00.0, 77.71 W'; \
                    echo 'Unable to determine the device handle for GPU0000:02:00.0: Unknown Error'; exit 15";
    let doctor = run(one_lost, &["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(69), "{text}");
    assert!(text.contains("broken   0000:02:00.0@") && text.contains("nvidia-smi cannot reach it"), "{text}");
    let sample = run(one_lost, &["sample", "-n", "1"]);
    let text = String::from_utf8_lossy(&sample.stderr);
    assert!(sample.status.success() && text.contains("nvidia-smi cannot reach it"), "{text}");
}

#[test]
fn top_shows_the_gpus_of_a_tool_and_not_the_tool() {
    let one = "echo 'index, uuid, name, power.draw [W]'; echo '0, GPU-1, NVIDIA H200, 77.71 W'";
    let output = run(one, &["top", "--once"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("  1 GPU  ") && !text.contains("nvidia-smi"), "{text}");
    assert_eq!(text.matches("H200").count(), 1, "{text}");
}

#[test]
fn a_recording_without_a_row_of_the_driver_that_was_named_fails_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    // The first reading comes within a second.
    let record =
        |script| run_in(dir.path(), script, &["record", "--rate", "1", "--duration", "2s", "--force"]);
    let failed = record(FAILS);
    let text = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(69), "{text}");
    assert!(text.contains("nvidia-smi by nvidia-smi: ") && text.contains("version mismatch"), "{text}");
    let recorded = record(ANSWERS);
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let text = String::from_utf8_lossy(&recorded.stdout);
    assert!(text.contains("rows of GPUs") && !text.contains("recorded 0 rows"), "{text}");
}

#[test]
fn a_tool_that_names_no_gpu_is_the_reason() {
    let reason = "Driver/library version mismatch";
    for command in [&["sample", "-n", "1"][..], &["doctor"]] {
        let output = run(FAILS, command);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(69), "{command:?}: {text}");
        assert!(text.contains("nvidia-smi by nvidia-smi") && text.contains(reason), "{command:?}: {text}");
    }
}
