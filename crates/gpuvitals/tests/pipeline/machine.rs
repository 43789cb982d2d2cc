//! `up` on a machine with GPUs: a captured one.

use std::path::Path;

use crate::server::Server;

fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs");
    root.join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_gpus_of_the_machine_are_sampled_stored_and_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let sysfs = fixture("vega56");
    let server = Server::start(&data, &["--sysfs", &sysfs, "--node", "node-a"]);
    assert!(server.first_line.contains("sampling 1 GPU by amd-sysfs"), "{}", server.first_line);
    let gpus = server.until("/api/v1/gpus", "a row", |answer| answer["total"] == 1);
    let gpu = &gpus["gpus"][0];
    assert_eq!(gpu["vendor"], "amd");
    assert_eq!(gpu["hostname"], "node-a");
    let stats = server.get("/stats");
    assert_eq!(stats["source"]["down"].as_array().map(Vec::len), Some(0), "{stats}");
    let id = gpu["id"].as_str().unwrap().to_owned();
    server.until(&format!("/api/v1/gpus/{id}/telemetry"), "a second row", |answer| {
        answer["total"].as_u64() >= Some(2)
    });
    server.kill();

    let again = Server::start(&data, &["--source", "none"]);
    assert_eq!(again.get("/api/v1/gpus")["total"], 1, "what was sampled is kept");
    again.kill();
}
