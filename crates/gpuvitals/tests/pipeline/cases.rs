//! Files whose right answers are known: `fixtures/cases`, from the file to the API.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::server::Server;

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cases").join(name)
}

/// Opens a file, and waits until all of it is stored.
fn opened(folder: &Path, name: &str, more: &[&str]) -> Server {
    let file = case(name);
    let server = Server::start(folder, &[&["--csv", file.to_str().unwrap()], more].concat());
    server.until("/stats", "the end", |stats| {
        let source = &stats["source"];
        source["ended"] == true && source["rows_published"] == source["rows_stored"]
    });
    server
}

fn close(found: &Value, wanted: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found}"));
    assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{what}: {found}, not {wanted}");
}

#[test]
fn constant_power_is_its_product_with_the_time_however_the_rows_lie() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "D1-energy-irregular-rows.csv.gz", &[]);
    let range = "start=2026-11-20T09:00:00Z&end=2026-11-20T12:00:00Z&by=gpu";
    let answer = server.get(&format!("/api/v1/analysis/energy?{range}"));
    // The rows of GPU-jit end before the hour; 20 minutes of GPU-gap are no rows.
    let other =
        [("GPU-idle", 0.12, 2.0), ("GPU-jit", 0.099_748, 0.997_48), ("GPU-gap", 0.2 / 3.0, 2.0 / 3.0)];
    for group in answer["groups"].as_array().unwrap() {
        let name = group["group"].as_str().unwrap();
        let found = other.iter().find(|(gpu, ..)| *gpu == name);
        let (kwh, hours) = found.map_or((0.1, 1.0), |(_, kwh, hours)| (*kwh, *hours));
        close(&group["energy_kwh"], kwh, name);
        close(&group["gpu_hours"], hours, name);
    }
    assert_eq!(answer["groups"].as_array().unwrap().len(), 11);
}

#[test]
fn one_extra_row_changes_neither_energy_nor_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "D1-one-extra-row.csv.gz", &[]);
    let answer =
        server.get("/api/v1/analysis/energy?start=2026-11-20T10:00:00Z&end=2026-11-20T11:00:00Z&by=gpu");
    // From the first sample, at 10:00:00, to the last, at 10:59:50.
    let hours = 3_590.0 / 3_600.0;
    close(&answer["whole"]["energy_kwh"], 0.1 * hours, "energy");
    close(&answer["whole"]["gpu_hours"], hours, "hours");
    assert_eq!(answer["whole"]["gpus"], 1);
}

#[test]
fn a_counter_that_is_read_rarely_gives_the_power_at_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "D2-rate-sparse-counter.csv.gz", &[]);
    for step in ["", "&step=10s"] {
        let range = "start=2026-11-25T10:00:00Z&end=2026-11-25T11:00:00Z";
        let path = format!("/api/v1/query?metrics=energy_mj&aggregate=rate&{range}{step}");
        let answer = server.get(&path);
        let values = answer["series"][0]["values"].as_array().unwrap();
        let known: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
        assert!(known.len() > 100, "{step}: {answer}");
        for watts in known {
            close(watts, 100.0, step);
        }
    }
}

#[test]
fn what_belongs_to_a_card_with_instances_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "D3-dcgm-mig.csv.gz", &[]);
    let range = "start=2026-10-01T00:00:00Z&end=2026-10-01T01:00:00Z";
    for by in ["gpu", "node", "namespace"] {
        let whole = server.get(&format!("/api/v1/analysis/energy?{range}&by={by}"))["whole"].clone();
        close(&whole["energy_kwh"], 0.5 / 3.0, by);
        close(&whole["gpu_hours"], 8.0 / 3.0, by);
        assert_eq!(whole["gpus"], 8, "{by}");
    }
    let card = server.get("/api/v1/gpus/GPU-1f027ee8-6e1e-2b8c-0108-3d370e5f0418");
    close(&card["latest"]["power_w"]["value"], 80.0, "the card's power");
}

#[test]
fn zero_degrees_of_a_memory_is_a_sensor_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "D8-dcgm-memory-temp-0.csv.gz", &[]);
    let list = server.get("/api/v1/gpus?include=metrics");
    for gpu in list["gpus"].as_array().unwrap() {
        assert_eq!(gpu["metrics"].get("temperature_memory_c"), None, "{gpu}");
        assert!(gpu["metrics"]["temperature_c"].as_f64() > Some(0.0), "{gpu}");
    }
}

#[test]
fn a_log_of_nvidia_smi_has_the_energy_that_a_meter_saw() {
    let folder = tempfile::tempdir().unwrap();
    let server = opened(folder.path(), "5050_A100.nvidia-smi.csv.gz", &["--timezone", "Europe/London"]);
    // The meter: 1,155 J from 09:12:46.983 to 09:12:56.958.
    let range = "start=2023-07-14T09:12:46.983Z&end=2023-07-14T09:12:56.958Z";
    let whole = server.get(&format!("/api/v1/analysis/energy?{range}"))["whole"].clone();
    let joules = whole["energy_kwh"].as_f64().unwrap() * 3.6e6;
    assert!((joules / 1_155.28 - 0.993).abs() < 0.003, "{joules} J");
}
