//! `up` on a machine with GPUs: a captured one.

use std::path::Path;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::tree;
use serde_json::{Value, json};

use crate::server::Server;

/// A captured GPU whose memory counts errors.
fn machine(dir: &Path) -> String {
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/vega56");
    let sysfs = dir.join("sys");
    tree::copy(&captured, &sysfs);
    let ras = sysfs.join("class/drm/card0/device/ras");
    std::fs::create_dir(&ras).unwrap();
    std::fs::write(ras.join("umc_err_count"), "ue: 0\nce: 3\n").unwrap();
    sysfs.to_str().unwrap().to_owned()
}

/// The details of the one GPU, without its name and the time.
fn details(answer: &Value) -> Vec<Value> {
    let mut details: Vec<Value> =
        answer["data"].as_array().unwrap().iter().map(|row| row["metrics"].clone()).collect();
    details.sort_by_key(Value::to_string);
    details
}

#[test]
fn the_gpus_of_the_machine_are_sampled_stored_and_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let sysfs = machine(dir.path());
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
    let path = format!("/api/v1/gpus/{id}/telemetry?table=gpu_details");
    let errors = [("ras_corrected", 3.0), ("ras_uncorrected", 0.0)];
    let errors = errors.map(|(metric, value)| json!({ "metric": metric, "instance": "umc", "value": value }));
    let answer = server.until(&path, "the errors of its memory", |answer| answer["total"] != 0);
    assert_eq!(details(&answer), errors);
    let printed =
        gpuvitals!().args(["query", "--url", &server.url, "rows", "gpu_details"]).finished().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    for cells in [["umc", "ras_corrected", "3.0"], ["umc", "ras_uncorrected", "0.0"]] {
        let has_all = |line: &str| cells.iter().all(|cell| line.split_whitespace().any(|word| word == *cell));
        assert!(printed.lines().any(has_all), "{cells:?} is not in\n{printed}");
    }
    // Nobody has the GPU, and that is added up too; until then it is known by rows.
    let nobody = |list: &Value| list["nobody"]["held_gpu_hours"].as_f64();
    let held = |list: &Value| nobody(list) > Some(0.0) && list["gpus_by_rows"].is_null();
    let used = server.until("/api/v1/jobs", "the first sums, after ten seconds", held);
    assert_eq!((&used["total"], &used["unobserved_gpu_hours"]), (&json!(0), &json!(0.0)));
    let jobs = |arguments: &[&str]| {
        let printed =
            gpuvitals!().arg("jobs").args(arguments).args(["--url", &server.url]).finished().unwrap();
        String::from_utf8([printed.stdout, printed.stderr].concat()).unwrap()
    };
    let printed = jobs(&["--check"]);
    assert!(printed.starts_with("0 holders; nobody had 0.0"), "{printed}");
    assert!(printed.contains("check: 0.0"), "{printed}");
    let waste = jobs(&["waste", "--by", "namespace"]);
    assert!(waste.starts_with("NAMESPACE") && waste.contains("Nobody had 0.0"), "{waste}");
    let csv = jobs(&["waste", "--csv"]);
    assert!(csv.starts_with("user,gpus,held_gpu_hours,"), "{csv}");
    let arguments = ["report", "waste", "--csv", "--url", &server.url];
    let reported = String::from_utf8(gpuvitals!().args(arguments).finished().unwrap().stdout).unwrap();
    assert!(reported.starts_with("user,gpus,held_gpu_hours,"), "{reported}");
    let page = dir.path().join("waste.html");
    assert_eq!(jobs(&["waste", "--html", page.to_str().unwrap()]), "");
    assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    let again = jobs(&["waste", "--html", page.to_str().unwrap()]);
    assert!(again.contains("waste.html exists; --force replaces it"), "{again}");
    let beside = dir.path().join("waste.html.tmp");
    std::fs::write(&beside, "mine").unwrap();
    assert_eq!(jobs(&["waste", "--force", "--html", page.to_str().unwrap()]), "");
    assert_eq!(std::fs::read(&beside).unwrap(), b"mine");
    let nowhere = jobs(&["waste", "--html", "/nowhere/waste.html"]);
    assert!(nowhere.contains("/nowhere/waste.html: cannot be written"), "{nowhere}");
    for none in [&["list", "--by", "day"][..], &["top"]] {
        assert!(jobs(none).starts_with("0 "), "{}", jobs(none));
    }
    assert!(jobs(&["show", "7"]).contains("no GPU was held by \"7\""), "{}", jobs(&["show", "7"]));
    server.kill();

    let again = Server::start(&data, &["--source", "none"]);
    assert_eq!(again.get("/api/v1/gpus")["total"], 1, "what was sampled is kept");
    assert_eq!(details(&again.get(&path)), errors);
    again.kill();
}
