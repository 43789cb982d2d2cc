//! The queue inside `gpuvitals up`, as others on the machine see it.

use std::net::TcpListener;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting;
use serde_json::Value;

use crate::process::{agent, answer, message};

struct Up(Process);

impl Up {
    fn start(folder: &std::path::Path, port: u16) -> Self {
        let mut command = gpuvitals!();
        command
            .args(["up", "--source", "none", "--port", "0", "--data-dir"])
            .arg(folder)
            .args(["--broker-port", &port.to_string()]);
        Self(Process::start(&mut command))
    }

    /// The line of its log that has this message.
    fn line(&self, message: &str) -> Value {
        serde_json::from_str(&self.0.says(message)).unwrap()
    }
}

#[test]
fn what_is_published_beside_it_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(folder.path(), 0);
    let queue = up.line("the queue is served")["address"].as_str().unwrap().to_owned();
    let api = up.line("dashboard and API: ")["message"].as_str().unwrap().to_owned();
    let api = api.trim_start_matches("dashboard and API: ").trim_end_matches('/').to_owned();
    let post = agent().post(format!("http://{queue}/publish/gpu-telemetry"));
    let sent = post.header("content-type", "application/json").send(message(0, 123)).unwrap();
    assert!(sent.status().is_success());
    let stats = || answer(agent().get(format!("http://{queue}/stats")).call().unwrap()).1;
    let has_joined = |stats: &Value| stats["topics"]["gpu-telemetry"]["groups"]["store"].is_object();
    waiting::until("the collector's group", stats, has_joined);
    let gpus = || answer(agent().get(format!("{api}/api/v1/gpus")).call().unwrap()).1;
    waiting::until("a stored row", gpus, |gpus| gpus["total"] == 1);
}

#[test]
fn the_gateway_shows_the_queue_without_the_paths_to_publish() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(folder.path(), 0);
    let queue = up.line("the queue is served")["address"].as_str().unwrap().to_owned();
    let api = up.line("dashboard and API: ")["message"].as_str().unwrap().to_owned();
    let api = api.trim_start_matches("dashboard and API: ").trim_end_matches('/').to_owned();
    let under = |path: &str| format!("{api}/api/v1/queue{path}");
    // A frame whose rows the collector cannot read.
    let damaged = {
        let body = [&[0, 4][..], b"node", &[0; 16], &[3, 1, 6], b"broken", &[9]].concat();
        let packed = zstd::stream::encode_all(&*body, 0).unwrap();
        [&b"GVB1"[..], &u32::try_from(body.len()).unwrap().to_le_bytes(), &packed].concat()
    };
    let post = agent().post(format!("http://{queue}/publish/gpu-telemetry"));
    let sent = post.header("content-type", "application/vnd.gpuvitals.batch").send(&damaged).unwrap();
    assert!(sent.status().is_success());
    let stats = || answer(agent().get(under("/stats")).call().unwrap()).1;
    let stats =
        waiting::until("a dead letter", stats, |stats| stats["topics"]["gpu-telemetry"]["dead_letters"] == 3);
    assert!(stats["topics"]["gpu-telemetry"]["groups"]["store"].is_object(), "{stats}");
    let (status, dead) =
        answer(agent().get(under("/topics/gpu-telemetry/dead?content=false")).call().unwrap());
    assert_eq!((status, &dead["dead"][0]["messages_count"]), (200, &3.into()), "{dead}");
    let (status, purged) =
        answer(agent().delete(under("/topics/gpu-telemetry/dead?oldest=1")).call().unwrap());
    assert_eq!((status, &purged["letters"]), (200, &1.into()), "{purged}");
    // A page of another site changes nothing, although its browser is on this machine.
    let foreign =
        agent().delete(under("/topics/gpu-telemetry/dead")).header("origin", "https://evil.example");
    assert_eq!(answer(foreign.call().unwrap()).0, 403);
    let (status, refused) = answer(agent().post(under("/publish/gpu-telemetry")).send(&damaged).unwrap());
    assert_eq!((status, &refused["code"]), (405, &"method_not_allowed".into()), "{refused}");
}

#[test]
fn a_port_that_is_taken_is_done_without() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = taken.local_addr().unwrap().port();
    let up = Up::start(folder.path(), port);
    let warning = up.line("the queue is not served");
    let reason = warning["reason"].as_str().unwrap();
    assert!(reason.contains("--broker-port 0 takes a free one"), "{warning}");
    assert!(reason.contains(&format!(":{port};")) && warning["port"] == port, "{warning}");
    up.line("dashboard and API: ");
}
