//! GPUs that only a vendor's tool names: nobody knows them before its first answer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

/// A machine whose nvidia-smi runs this script.
fn run(script: &str, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("nvidia-smi");
    // Written by another process: a file that a thread here has open for writing while another one forks is busy.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let written = Command::new("sh").args(["-c", write, "sh", script]).arg(&tool).status().unwrap();
    assert!(written.success());
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    command.args(arguments).args(["--driver", "nvidia-smi"]).env("PATH", path).current_dir(dir.path());
    command.output().unwrap()
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
