//! A GPU that hangs: a sensor that is a FIFO without a writer. It affects no other.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use gpuvitals_rig::library::Library;
use gpuvitals_rig::program::Finished as _;

use super::node::{Node, RX580, VEGA56, series};
use super::process::value;

/// Makes the power sensor of the RX 580 a FIFO.
fn hang(node: &Node) -> PathBuf {
    let sensor = node.path("sys/class/drm/card0/device/hwmon/hwmon4/power1_average");
    std::fs::remove_file(&sensor).unwrap();
    let made = Command::new("mkfifo").arg(&sensor).finished().unwrap();
    assert!(made.status.success(), "{made:?}");
    sensor
}

#[test]
fn a_gpu_that_hangs_is_shown_as_such_and_comes_back() {
    let node = Node::new();
    let sensor = hang(&node);
    let agent = node.agent(&["--rate", "20"]);
    let (sick, well) = (series("gpu_up", 0, RX580), series("gpu_up", 1, VEGA56));
    let reason = series("gpu_down_reason", 0, RX580).replace('{', "{reason=\"stuck\",");
    let text = agent.until("the reason", |text| value(text, &reason) == Some(1.0));
    assert_eq!((value(&text, &sick), value(&text, &well)), (Some(0.0), Some(1.0)), "{text}");
    // As seen by the clock of the GPU that is well: a deadline is 1 s, two are promised, the rest is a busy machine.
    let last = "gpuvitals_last_row_timestamp_seconds{driver=\"amd-sysfs\",device=\"0000:0b:00.0@n1\"} ";
    let since = value(&text, last).unwrap() - value(&text, "process_start_time_seconds ").unwrap();
    assert!(since < 5.0, "it took {since} s to see that it hangs");
    assert_eq!(agent.get("/readyz", &[]).status, 200, "a GPU that hangs does not hold up the others");
    assert_eq!(agent.get("/healthz", &[]).status, 200, "nor would a restart cure it");
    agent.logged("does not answer");

    // Every scrape is answered, shows nothing of the sick one, and the others' samples go on.
    let samples = series("gpu_samples_total", 1, VEGA56);
    let before = value(&text, &samples).unwrap();
    let text = agent.until("30 more samples", |text| value(text, &samples).unwrap() > before + 30.0);
    assert!(!text.contains(&series("gpu_power_watts", 0, RX580)), "{text}");
    let (seconds, scrapes) = ("gpuvitals_scrape_seconds_total ", "gpuvitals_scrapes_total ");
    let mean = value(&text, seconds).unwrap() / value(&text, scrapes).unwrap();
    assert!(
        mean < 0.1,
        "a scrape took {mean} s on average; one that waited for the device would take seconds"
    );

    // The sensor answers again: a value for each reading.
    std::thread::scope(|scope| {
        let (wanted, end) = sync_channel::<()>(0);
        let sensor = &sensor;
        scope.spawn(move || {
            let mut fifo = OpenOptions::new().write(true).open(sensor).unwrap();
            while end.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                fifo.write_all(b"33000000\n").unwrap();
            }
        });
        let power = series("gpu_power_watts", 0, RX580);
        agent.until("the GPU", |text| value(text, &sick) == Some(1.0) && value(text, &power) == Some(33.0));
        agent.logged("answers again");
        drop(wanted);
    });
}

#[test]
fn a_gpu_that_hangs_does_not_hold_up_the_end() {
    let node = Node::new();
    let _sensor = hang(&node);
    let agent = node.agent(&[]);
    agent.logged("does not answer");
    agent.process.signal("TERM");
    assert_eq!(agent.logged("left behind")["gpu"], RX580);
    assert_eq!(agent.process.ended().0, Some(0));
}

#[test]
fn a_gpu_that_was_lost_when_the_agent_started_is_shown_and_comes_back() {
    let (node, library) = (Node::new(), Library::new());
    library.says(&["1.lost 15"]);
    let path = library.path();
    let agent = node.agent_in(&["--rate", "20"], &[("GPUVITALS_NVML_LIBRARY", path.to_str().unwrap())]);
    let up = |key: &str| format!("gpu_up{{gpu=\"1\",uuid=\"{key}\",vendor=\"nvidia\"}} ");
    let sick = up("n1:gpu1");
    let reason = sick.replace("gpu_up{", "gpu_down_reason{reason=\"gone\",");
    let text = agent.until("the reason", |text| value(text, &reason) == Some(1.0));
    assert_eq!(value(&text, &sick), Some(0.0), "{text}");
    // A GPU that is lost does not hold up the others.
    agent.until("readiness", |_| agent.get("/readyz", &[]).status == 200);
    library.says(&[]);
    let well = up("GPU-5fd4f087-86f3-7a43-b711-4771313afc51");
    let text = agent.until("the GPU", |text| value(text, &well) == Some(1.0));
    // The counters of its reader may carry the old name until the next scrape: they are read a moment earlier.
    assert!(!text.contains("uuid=\"n1:gpu1\""), "{text}");
}
