//! A silence from the command line, which outlasts the gateway.

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use crate::site::{Gateway, start};

/// What `gpuvitals findings` prints.
fn findings(gateway: &Gateway, flags: &[&str]) -> String {
    let said = gpuvitals!().args(["findings", "--url", &gateway.url]).args(flags).finished().unwrap();
    assert!(said.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn a_host_that_is_silenced_is_so_after_a_restart_until_it_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up =
        ["up", "--source", "simulated", "--gpus", "8", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let gateway = Gateway::of(start(&up));
    let gpus = gateway.until("/api/v1/gpus", "a GPU", |said| said.json["total"] == 8).json;
    let host = gpus["gpus"][0]["hostname"].as_str().unwrap();
    let what = format!("host={host}");
    // The cluster of the simulation is known, so that the host has a longer id.
    let id = format!("simulated/{host}");
    assert_eq!(findings(&gateway, &["--silences"]), "nothing is silenced\n");
    let silence = ["--silence", what.as_str(), "--for", "8h", "--note", "Kim: board exchange"];
    let said = findings(&gateway, &silence);
    assert!(said.starts_with(&format!("host {id}: silenced until 20")), "{said}");
    let listed = findings(&gateway, &["--silences"]);
    assert!(listed.contains(&id) && listed.contains("Kim: board exchange"), "{listed}");
    let rows = "/api/v1/telemetry?table=gpu_health_events&where=source%3Doperator";
    gateway.until(rows, "its row", |said| said.json["total"] == 1);
    gateway.process.terminated();

    let gateway = Gateway::of(start(&up));
    assert_eq!(findings(&gateway, &["--silences"]), listed);
    gateway.until("/api/v1/gpus", "a GPU", |said| said.json["total"] == 8);
    assert_eq!(findings(&gateway, &["--release", &what]), format!("host {id}: released\n"));
    assert_eq!(findings(&gateway, &["--silences"]), "nothing is silenced\n");
    gateway.process.terminated();
}
