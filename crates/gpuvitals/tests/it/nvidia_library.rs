//! The real program with an imitation of NVIDIA's library, named by the environment.

use std::process::{Command, Output};

use gpuvitals_rig::library::Library;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

fn run(library: &Library, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
        .args(arguments)
        .env("GPUVITALS_NVML_LIBRARY", library.path())
        .env("RUNTIME_DIRECTORY", library.path().with_file_name("run"))
        .finished()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn sample_gives_rows_of_the_library_that_the_environment_names() {
    let library = Library::new();
    library.says(&["1.field.186 99500"]);
    let sampled = run(&library, &["sample", "--driver", "nvml", "--format", "jsonl", "--count", "1"]);
    assert!(sampled.status.success(), "{}", text(&sampled.stderr));
    assert!(!text(&sampled.stderr).contains("GPUVITALS_NVML_LIBRARY"), "no stranger among variables");
    let mut powers: Vec<(i64, f64)> = text(&sampled.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|row| Some((row.get("gpu")?.as_i64()?, row.get("power_w")?.as_f64()?)))
        .collect();
    powers.sort_by_key(|(gpu, _)| *gpu);
    assert_eq!(powers, [(0, 312.5), (1, 99.5)]);
}

#[test]
fn doctor_times_the_calls_and_says_what_keeps_the_library_from_starting() {
    let library = Library::new();
    library.says(&["count 1", "ret.nvmlDeviceGetComputeMode 3"]);
    let measured = text(&run(&library, &["doctor", "--measure", "--driver", "nvml"]).stdout);
    for call in ["field values (fast): ", "compute contexts: ", "memory: ", "GPM sample: ", "temperature_c: "]
    {
        let has = |line: &str| line.contains(call) && line.contains(", at most ");
        assert_eq!(measured.lines().filter(|line| has(line)).count(), 1, "{call}\n{measured}");
    }
    assert!(
        measured.lines().any(|line| line.contains("compute_mode: ") && line.contains("not supported")),
        "{measured}"
    );
    let calls = std::fs::read_to_string(library.path().with_extension("so.calls")).unwrap();
    let times = calls.lines().filter(|call| *call == "nvmlDeviceGetUtilizationRates 0").count();
    assert!((20..30).contains(&times), "{times}");
    library.says(&["ret.nvmlInit_v2 18"]);
    let refused = run(&library, &["doctor", "--driver", "nvml"]);
    assert_eq!(refused.status.code(), Some(69));
    assert!(text(&refused.stdout).contains("different driver versions"), "{}", text(&refused.stdout));
}

#[test]
fn a_lock_lasts_as_long_as_its_command_or_ends_with_the_code_of_a_missing_right() {
    let library = Library::new();
    library.says(&["ret.nvmlDeviceSetGpuLockedClocks 4"]);
    let locked = run(&library, &["clocks", "lock", "--driver", "nvml", "--level", "high", "--", "true"]);
    assert_eq!(locked.status.code(), Some(77), "{}", text(&locked.stderr));
    library.says(&["clock.0 1980"]);
    let locked =
        run(&library, &["clocks", "lock", "--driver", "nvml", "--level", "high", "--", "sh", "-c", "exit 3"]);
    assert_eq!(locked.status.code(), Some(3), "{}", text(&locked.stderr));
    library.says(&["clock.0 1200"]);
    let kept = run(&library, &["clocks", "lock", "--driver", "nvml", "--gpu", "1", "--sclk", "1200"]);
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    let shown = run(&library, &["clocks", "show", "--driver", "nvml", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let is_locked: Vec<_> = (0..2).map(|gpu| shown[gpu]["is_locked"].as_bool()).collect();
    assert_eq!(is_locked, [None, Some(true)], "the driver does not tell, the lock is ours");
    library.says(&["clock.0 345"]);
    let low = run(&library, &["clocks", "lock", "--driver", "nvml", "--level", "low", "--", "true"]);
    assert!(low.status.success(), "{}", text(&low.stderr));
    let calls = std::fs::read_to_string(library.path().with_extension("so.calls")).unwrap();
    let mut of_second = calls.lines().filter_map(|call| call.strip_suffix(" 1"));
    let mut next = |wanted: &str| of_second.find(|call| call.ends_with(wanted)).is_some();
    let reset = "nvmlDeviceResetGpuLockedClocks";
    let expected = ["gpu_clocks=1980..1980", reset, "gpu_clocks=1200..1200", "gpu_clocks=345..345", reset];
    assert!(expected.into_iter().all(&mut next), "{calls}");
    assert!(!next("gpu_clocks=1200..1200"), "a lock that was kept is not made again: {calls}");
}
