//! Incidents of whole jobs at a real gateway: who may have them, what outlives a kill, and how they are fetched.

use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, clock};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::{Value, json};

use crate::access::{asked, token};
use crate::site::{Gateway, start};

const INCIDENTS: &str = "/api/v1/flight/incidents";

/// Its answer to a body, which must be 200.
fn post(gateway: &Gateway, path: &str, kind: &str, body: &[u8]) -> Value {
    let mut answer =
        ureq::post(format!("{}{path}", gateway.url)).header("content-type", kind).send(body).unwrap();
    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
}

fn tell(gateway: &Gateway, body: &Value) -> Value {
    let path = "/api/v1/flight/requests";
    post(gateway, path, "application/json", body.to_string().as_bytes())["id"].clone()
}

/// Three rows of a GPU as its node sends them.
fn rows(gpu: &str, at_ns: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let who = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
    for second in 0..3 {
        let row = builder.row_at(at_ns + second * SECOND_NS, second * SECOND_NS, who);
        builder.set(row, MetricId::of("power_w"), Number::Float(400.0)).unwrap();
    }
    let mut packed = Vec::new();
    gpuvitals_core::wire::pack(&builder.finish(Origin::default(), 1).unwrap(), &mut packed).unwrap();
    let mut piece = u32::try_from(packed.len()).unwrap().to_le_bytes().to_vec();
    piece.extend(packed);
    piece
}

#[test]
fn the_scope_flight_alone_reaches_incidents_of_jobs_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let tokens = at("tokens");
    let of = |scopes: &str| token(&tokens, scopes, scopes);
    let strangers = ["read", "publish", "subscribe"].map(of);
    let [flight, admin] = ["flight", "admin"].map(of);
    let dead = "http://127.0.0.1:1";
    let serve = ["serve", "--port", "0", "--collectors", dead, "--mq-url", dead];
    let place = at("flight");
    let more = ["--token-file", tokens.as_str(), "--flight-dir", place.as_str()];
    let gateway = Gateway::of(start(&[&serve[..], &more].concat()));
    let ask = |method: &str, path: &str, token: Option<&str>| {
        asked(method, &format!("{}{path}", gateway.url), token)
    };
    let (one, node) = (format!("{INCIDENTS}/x"), format!("{INCIDENTS}/x/nodes/n1"));
    let requests = "/api/v1/flight/requests";
    for (method, path, status) in [
        ("GET", INCIDENTS, 200),
        ("GET", one.as_str(), 404),
        ("GET", node.as_str(), 404),
        ("POST", node.as_str(), 404),
        ("POST", requests, 400),
        ("GET", "/api/v1/flight/requests?node=.x", 400),
    ] {
        assert_eq!(ask(method, path, None).0, 401, "{method} {path}");
        for stranger in &strangers {
            assert_eq!(ask(method, path, Some(stranger)), (403, "forbidden".to_owned()), "{method} {path}");
        }
        for own in [&flight, &admin] {
            assert_eq!(ask(method, path, Some(own)).0, status, "{method} {path}");
        }
    }
    assert_eq!(ask("GET", "/api/v1/gpus", Some(&flight)).0, 403);
    gateway.process.terminated();

    let homeless = Gateway::of(start(&[&serve[..], &["--flight-dir", "off"]].concat()));
    assert_eq!(asked("GET", &format!("{}{INCIDENTS}", homeless.url), None), (503, "unavailable".to_owned()));
    homeless.process.terminated();
}

#[test]
fn an_incident_outlives_a_kill_and_is_fetched_as_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, place, target) = (at("data"), at("flight"), at("fetched"));
    let up = ["up", "--source", "simulated", "--gpus", "8", "--port", "0", "--data-dir", data.as_str()];
    let up = [&up[..], &["--flight-dir", place.as_str()]].concat();
    let gateway = Gateway::of(start(&up));
    let held = "/api/v1/gpus?where=job!%3D&labels=cluster";
    let gpus = gateway.until(held, "a GPU that a job holds", |said| said.json["gpus"][0].is_object()).json;
    let held = &gpus["gpus"][0];
    let [gpu, node] = ["id", "hostname"].map(|name| held[name].as_str().unwrap());
    let node = format!("{}/{node}", held["labels"]["cluster"].as_str().unwrap());
    let in_path = |node: &str| node.replace('/', "%2F");
    let at_ns = clock::now_ns();
    let trigger = json!({
        "kind": "lost", "gpu": gpu, "code": null, "detail": "it fell off the bus", "rule": null, "at_ns": at_ns
    });
    let told = json!({"node": node, "incident": "own", "trigger": trigger});
    let id = tell(&gateway, &told);
    let path = format!("{INCIDENTS}/{}", id.as_str().unwrap());
    let kind = "application/octet-stream";
    let sent = post(&gateway, &format!("{path}/nodes/{}", in_path(&node)), kind, &rows(gpu, at_ns));
    assert_eq!(sent, json!({"is_new": true}));
    let before = gateway.get(&path);
    gateway.process.kill();

    let gateway = Gateway::of(start(&up));
    assert_eq!(gateway.get(INCIDENTS), json!({"incidents": [before]}));
    assert_eq!(tell(&gateway, &told), id, "it is known still");
    assert_eq!(tell(&gateway, &json!({"rest": id})), id);
    for of_job in before["nodes"].as_array().unwrap() {
        let name = of_job["node"].as_str().unwrap();
        let rest = rows(&format!("GPU-of-{}", name.replace('/', "-")), at_ns - 300 * SECOND_NS);
        post(&gateway, &format!("{path}/nodes/{}?part=rest", in_path(name)), kind, &rest);
    }
    let fetch = ["flight", "fetch", id.as_str().unwrap(), "--url", &gateway.url, "--output", &target];
    let fetched = gpuvitals!().args(fetch).finished().unwrap();
    let said = String::from_utf8(fetched.stdout).unwrap();
    assert!(fetched.status.success(), "{said} {}", String::from_utf8_lossy(&fetched.stderr));
    let nodes = before["nodes"].as_array().unwrap().len();
    assert!(said.contains(&format!("{} rows in", 3 * nodes)) && said.contains("failed first"), "{said}");
    let mut names: Vec<_> =
        std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["gpu_events.parquet", "incident.json"]);
    let inspected = gpuvitals!().args(["inspect", &target]).finished().unwrap();
    assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
    let again = gpuvitals!().args(fetch).finished().unwrap();
    assert!(!again.status.success(), "a folder that is there is not changed");
    // What cannot be fetched whole leaves nothing in the way of the next try.
    let rest = format!("{place}/jobs/{}/{}.rest", id.as_str().unwrap(), node.replace('/', "@"));
    std::fs::remove_file(rest).unwrap();
    let elsewhere = at("elsewhere");
    let broken = ["flight", "fetch", id.as_str().unwrap(), "--url", &gateway.url, "--output", &elsewhere];
    assert!(!gpuvitals!().args(broken).finished().unwrap().status.success());
    assert!(!std::path::Path::new(&elsewhere).exists());
    let unknown = ["flight", "fetch", "20261130T031459Z-lost", "--url", &gateway.url];
    assert!(!gpuvitals!().args(unknown).current_dir(&folder).finished().unwrap().status.success());
    gateway.process.terminated();
}
