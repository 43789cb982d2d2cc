//! The main job: a capture of a fleet goes in, all of it can be queried, and a kill loses nothing.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use crate::server::Server;

/// Series of a capture, and the columns that they fill.
const COLUMNS: [(&str, &str); 10] = [
    ("DCGM_FI_DEV_GPU_UTIL", "utilization_pct"),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "memory_utilization_pct"),
    ("DCGM_FI_DEV_POWER_USAGE", "power_w"),
    ("DCGM_FI_DEV_GPU_TEMP", "temperature_c"),
    ("DCGM_FI_DEV_FB_USED", "memory_used_mb"),
    ("DCGM_FI_DEV_FB_FREE", "memory_free_mb"),
    ("DCGM_FI_DEV_ENC_UTIL", "encoder_utilization_pct"),
    ("DCGM_FI_DEV_DEC_UTIL", "decoder_utilization_pct"),
    ("DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz"),
    ("DCGM_FI_DEV_MEM_CLOCK", "mem_clock_mhz"),
];

/// Asks for everything that must be the same after a kill: every GPU, every row.
fn everything(server: &Server) -> (Value, Value, Value) {
    let gpus = server.get("/api/v1/gpus?limit=1000&include=metrics");
    let hosts = server.get("/api/v1/hosts?limit=1000");
    let first = gpus["gpus"][0]["id"].as_str().unwrap().to_owned();
    let rows = server.get(&format!("/api/v1/gpus/{first}/telemetry?limit=1000&reverse=true"));
    (gpus, hosts, rows)
}

fn survives_a_kill(capture: &Path, check: impl Fn(&Server)) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--csv", capture.to_str().unwrap()]);
    server.until("/stats", "the end of the file", |stats| {
        let source = &stats["source"];
        source["ended"] == true && source["rows_stored"] == source["rows_published"]
    });
    let before = everything(&server);
    assert_eq!(before.0["total"], 247);
    assert_eq!(before.1["total"], 31);
    assert_eq!(before.0["gpus"].as_array().unwrap().len(), 247);
    check(&server);
    server.kill();

    let server = Server::start(folder.path(), &[]);
    assert_eq!(everything(&server), before, "after kill -9 all of it is there, once");
    check(&server);
    assert_eq!(server.terminate(), Some(0));

    let server = Server::start(folder.path(), &["--csv", capture.to_str().unwrap()]);
    server.until("/stats", "the second replay", |stats| {
        let source = &stats["source"];
        source["ended"] == true && source["rows_stored"] == source["rows_published"]
    });
    assert_eq!(everything(&server), before, "the same file again changes nothing");
}

/// A simulated fleet in the form in which Prometheus exports dcgm-exporter's series: a line a value, every field quoted.
fn twin(folder: &Path) -> PathBuf {
    let output = gpuvitals!()
        .args(["simulate", "--gpus", "247", "--hosts", "31", "--duration", "2s"])
        .finished()
        .unwrap();
    assert!(output.status.success());
    let wide = String::from_utf8(output.stdout).unwrap();
    let mut lines = wide.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |column: &str| header.iter().position(|name| *name == column).unwrap();
    let identity = ["timestamp", "gpu", "uuid", "model", "node"].map(at);
    let metrics = COLUMNS.map(|(metric, column)| (metric, at(column)));
    let mut long = String::from(
        "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw\n",
    );
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, gpu, uuid, model, node] = identity.map(|index| cells[index]);
        for (metric, index) in metrics {
            let value = cells[index];
            if value.is_empty() {
                continue;
            }
            writeln!(
                long,
                r#""{time}","{metric}","{gpu}","nvidia{gpu}","{uuid}","{model}","{node}","","","","{value}","source=""simulated""""#
            )
            .unwrap();
        }
    }
    let path = folder.join("twin.csv");
    std::fs::write(&path, long).unwrap();
    path
}

#[test]
fn a_fleet_in_the_long_form_is_all_there_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    survives_a_kill(&twin(folder.path()), |server| {
        let gpus = server.get("/api/v1/gpus?limit=1000");
        assert!(gpus["gpus"].as_array().unwrap().iter().all(|gpu| gpu["simulated"] == true));
    });
}

#[test]
fn the_real_capture_shows_the_values_of_the_file() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/dcgm/metrics.csv");
    if !capture.exists() {
        eprintln!("skipped: {} is not on this machine", capture.display());
        return;
    }
    let id = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
    survives_a_kill(&capture, |server| {
        let gpu = server.get(&format!("/api/v1/gpus/{id}"));
        assert_eq!(gpu["gpu"]["hostname"], "mtv5-dgx1-hgpu-031");
        assert_eq!(gpu["gpu"]["model"], "NVIDIA H100 80GB HBM3");
        assert_eq!(gpu["gpu"]["driver_version"], "535.129.03");
        assert_eq!(gpu["gpu"]["simulated"], false);
        for (column, wanted) in values_in(&capture, id) {
            assert_eq!(gpu["latest"][column]["value"].as_f64(), Some(wanted), "{column}");
        }
    });
}

#[test]
fn the_real_capture_opens_on_its_one_finding() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/dcgm/metrics.csv");
    if !capture.exists() {
        eprintln!("skipped: {} is not on this machine", capture.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Then with the history alone, as somebody who opens it next week.
    for source in [["--csv", capture.to_str().unwrap()], ["--source", "none"]] {
        let server = Server::start(folder.path(), &source);
        server.until("/stats", "the end of the file", |stats| {
            let source = &stats["source"];
            source["kind"] == "none"
                || (source["ended"] == true && source["rows_stored"] == source["rows_published"])
        });
        assert_eq!(server.get("/health")["recording_end"], "2025-07-18T20:42:37Z");
        let list = server.get("/api/v1/analysis/findings?at=2025-07-18T20:42:37Z");
        let ids: Vec<&Value> =
            list["findings"].as_array().unwrap().iter().map(|finding| &finding["id"]).collect();
        assert_eq!(ids, ["gpu_missing:mtv5-dgx1-hgpu-012"]);
        let missing = &list["findings"][0];
        assert_eq!(missing["since"], "2025-07-18T20:42:34Z");
        assert_eq!(missing["since_at_least"], true);
        assert_eq!(server.get("/api/v1/analysis/findings?at=2025-07-18T20:42:36Z")["total"], 0);
        assert_eq!(server.terminate(), Some(0));
    }
}

/// The ten values of a GPU, read from the file in the plainest way.
fn values_in(capture: &Path, id: &str) -> Vec<(&'static str, f64)> {
    let text = std::fs::read_to_string(capture).unwrap();
    let values: Vec<_> = COLUMNS
        .into_iter()
        .filter_map(|(metric, column)| {
            let line = text.lines().find(|l| l.contains(id) && l.contains(&format!("\"{metric}\",")))?;
            Some((column, line.split("\",\"").nth(10)?.parse().unwrap()))
        })
        .collect();
    assert_eq!(values.len(), 10);
    values
}

#[test]
fn what_was_said_to_be_stored_is_there_after_a_kill_in_the_middle() {
    const ROWS: u64 = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let mut rows = String::from("timestamp,uuid,power_w\n");
    for row in 0..ROWS {
        let (second, milli, gpu) = (1_767_225_600 + row / 100, row / 10 % 10 * 100, row % 10);
        writeln!(rows, "{second}.{milli:03},GPU-{gpu},{}.{}", 100 + row % 500, row % 7).unwrap();
    }
    let capture = folder.path().join("rows.csv");
    std::fs::write(&capture, rows).unwrap();
    let data = folder.path().join("data");
    let total = |server: &Server| server.get("/api/v1/telemetry?limit=1")["total"].as_u64().unwrap();
    // Slow enough to be killed in the middle, repeatedly; each start begins the file anew.
    let arguments = ["--csv", capture.to_str().unwrap(), "--rate", "20000"];
    let mut before = 0;
    for wanted in [2_000, 9_000, 21_000] {
        let server = Server::start(&data, &arguments);
        let stats =
            server.until("/stats", "rows", |stats| stats["source"]["rows_stored"].as_u64() >= Some(wanted));
        let stored = stats["source"]["rows_stored"].as_u64().unwrap();
        server.kill();
        let server = Server::start(&data, &[]);
        let after = total(&server);
        assert!(after >= stored.max(before) && after <= ROWS, "{after} rows of {stored}, {before} before");
        before = after;
        server.kill();
    }
    let server = Server::start(&data, &["--csv", capture.to_str().unwrap()]);
    server.until("/stats", "the whole file", |stats| stats["source"]["rows_stored"].as_u64() == Some(ROWS));
    assert_eq!(total(&server), ROWS, "all of it, once");
}
