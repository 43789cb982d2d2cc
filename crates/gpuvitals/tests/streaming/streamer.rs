//! `gpuvitals stream` alone: its waits, its reports, its end.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuvitals_queue::link::{Client, Credentials};
use gpuvitals_queue::{Consumer as _, ConsumerOptions, ContentType, Encoding};
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;
use gpuvitals_rig::waiting::PATIENCE;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process::{get, recording, start, until};

fn stream(file: &Path, port: &str, arguments: &[&str]) -> Process {
    let url = format!("http://127.0.0.1:{port}");
    let all = ["stream", "--csv", file.to_str().unwrap(), "--mq-url", &url];
    start(&all.iter().chain(arguments).copied().collect::<Vec<_>>())
}

fn broker(port: &str) -> Process {
    let broker = start(&["broker", "--port", port]);
    broker.says("queue: http");
    broker
}

fn published(port: &str) -> u64 {
    get(port, "/stats/gpu-telemetry")["published"].as_u64().unwrap_or(0)
}

#[test]
fn a_queue_that_is_away_is_waited_for_and_bad_rows_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let rows = "timestamp,gpu_id,temperature,power_draw\n\
                2026-01-01T00:00:00Z,gpu_0,50,300\n\
                yesterday,gpu_0,51,301\n\
                2026-01-01T00:00:02Z,gpu_0,hot,302\n\
                2026-01-01T00:00:03Z,gpu_0,53\n";
    std::fs::write(&file, rows).unwrap();
    for format in ["batch", "json"] {
        let port = Port::new();
        let streamer = stream(&file, &port, &["--once", "--rate", "0", "--format", format]);
        streamer.says("does not take a frame");
        let broker = broker(&port);
        let (code, said) = streamer.ended();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("sent 2 rows") && said.contains("2 bad rows"), "{said}");
        assert!(said.contains("\"line\":3") && said.contains("\"line\":5"), "{said}");
        assert!(said.contains("\"column\":\"temperature\""), "the value that is no number: {said}");
        assert_eq!(published(&port), 2);
        drop(broker);
    }
}

#[test]
fn a_file_of_which_nothing_is_sent_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, "timestamp,gpu_id,temperature\n2126-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let port = Port::new();
    let _broker = broker(&port);
    let (code, said) = stream(&file, &port, &["--once", "--rate", "0"]).ended();
    assert_eq!(code, Some(65), "{said}");
    assert!(
        said.contains("all rows of the file were skipped (1); the first: ")
            && said.contains("rows.csv: line 2"),
        "{said}"
    );
}

/// The content of the next frame, as a foreign consumer unpacks it.
fn next_messages(port: &str) -> Value {
    let receive = async {
        let client = Client::new(format!("grpc://127.0.0.1:{port}").parse().unwrap(), Credentials::default());
        let mut consumer =
            client.consumer("gpu-telemetry", "foreign", &ConsumerOptions::default()).await.unwrap();
        let deliveries = tokio::time::timeout(PATIENCE, consumer.receive()).await.unwrap().unwrap();
        let frame = &deliveries[0].frame;
        assert_eq!((frame.content_type, frame.encoding), (ContentType::Json, Encoding::Zstd));
        serde_json::from_slice(&zstd::stream::decode_all(frame.payload.as_ref()).unwrap()).unwrap()
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(receive)
}

#[test]
fn json_messages_have_the_names_of_the_file_and_our_collector_knows_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let text = "timestamp,gpu_id,temperature,memory_used,power.draw [mW],rack\n\
                2026-01-01T00:00:00Z,gpu_0,50,1024.75,300123,r1\n";
    std::fs::write(&file, text).unwrap();
    let (port, api) = (Port::new(), Port::new());
    let broker = broker(&port);
    let (code, said) = stream(&file, &port, &["--once", "--rate", "0", "--format", "json"]).ended();
    assert_eq!(code, Some(0), "{said}");
    let fields = json!({
        "gpu_id": "gpu_0", "temperature": 50, "memory_used": 1024.75, "power.draw [mW]": 300_123, "rack": "r1"
    });
    assert_eq!(next_messages(&port), json!([{"timestamp": "2026-01-01T00:00:00Z", "fields": fields}]));
    let data = folder.path().join("data");
    let collector =
        start(&["collect", "--api-port", &api, "--broker-port", &port, "--data-dir", data.to_str().unwrap()]);
    let row = json!({"temperature_c": 50.0, "memory_used_mb": 1025, "power_w": 300.123, "rack": "r1"});
    until(&api, "/telemetry/gpu_0", "the row", |rows| rows[0]["metrics"] == row);
    drop((collector, broker));
}

#[test]
fn a_file_is_sent_again_and_again_until_a_signal_and_nothing_read_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (file, keys) = recording(folder.path(), 50);
    let port = Port::new();
    let broker = broker(&port);
    let streamer = stream(&file, &port, &["--rate", "2000", "--workers", "3"]);
    until(&port, "/stats/gpu-telemetry", "several passes", |stats| {
        stats["published"].as_u64() > Some(4 * keys.len() as u64)
    });
    let (code, said) = streamer.terminated();
    assert_eq!(code, Some(0), "{said}");
    let sent: u64 = said.split("sent ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(sent, published(&port), "what it says it sent is what the queue took");
    drop(broker);
}

#[test]
fn it_ends_after_its_time_and_keeps_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 50);
    let port = Port::new();
    let broker = broker(&port);
    // In the long run, the defaults: 40 rows of 4 workers.
    let long = ["--rate", "1", "--workers", "4", "--duration", "10s"];
    let short = ["--rate", "5", "--workers", "2", "--duration", "2s"];
    let (terms, most) =
        if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { (long, 40) } else { (short, 20) };
    let streamer = stream(&file, &port, &terms);
    let (code, said) = streamer.ended();
    assert_eq!(code, Some(0), "{said}");
    // A pause of a busy machine is not made up for, so there may be fewer.
    let rows = published(&port);
    assert!((most * 3 / 4..=most).contains(&rows), "{rows} rows with {terms:?}");
    drop(broker);
}

#[test]
fn a_signal_after_its_time_is_the_first_and_what_was_read_is_still_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 50);
    let port = Port::new();
    let first = broker(&port);
    let streamer = stream(&file, &port, &["--rate", "0", "--duration", "1s"]);
    until(&port, "/stats/gpu-telemetry", "rows", |stats| stats["published"].as_u64() > Some(0));
    first.kill();
    streamer.says("the time is over");
    streamer.signal("TERM");
    streamer.says("stopping");
    let broker = broker(&port);
    let (code, said) = streamer.ended();
    assert_eq!(code, Some(0), "{said}");
    drop(broker);
}

#[test]
fn a_queue_that_was_never_there_is_not_waited_for_beyond_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 50);
    let began = Instant::now();
    let (code, said) = stream(&file, &Port::new(), &["--rate", "0", "--duration", "1s"]).ended();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}: {said}", began.elapsed());
    assert_eq!(code, Some(69), "{said}");
    assert!(
        said.contains("has taken nothing") && said.contains("no connection: Connection refused"),
        "{said}"
    );
    assert_eq!(said.matches("does not take a frame").count(), 1, "once for all workers: {said}");
}

#[test]
fn a_second_signal_ends_it_at_once_and_what_was_not_sent_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 50);
    let streamer = stream(&file, &Port::new(), &["--rate", "0"]);
    streamer.says("does not take a frame");
    streamer.signal("TERM");
    streamer.says("stopping");
    streamer.signal("TERM");
    let (code, said) = streamer.ended();
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("rows were read and not taken by the queue"), "{said}");
}

#[test]
fn a_signal_ends_what_still_waits_for_its_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for arguments in [&["stream", "--csv", "-"][..], &["up", "--csv", "-", "--port", "0", "--data-dir", data]]
    {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
        let mut child = command.env_clear().args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // From its first moments on a signal is handled: the bit of signal 15.
        let handled = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            u64::from_str_radix(mask, 16).unwrap() >> 14 & 1
        };
        waiting::until("a handler of SIGTERM", handled, |bit| *bit == 1);
        // Held, since to wait for a child closes its input.
        let _input = child.stdin.take();
        let id = child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", "TERM", &id]).finished().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        assert_eq!(gpuvitals_rig::waiting::ended(&mut child).code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_streamed_ends_with_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 5);
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let [file, empty] = [&file, &empty].map(|path| path.to_str().unwrap());
    for (arguments, code, words) in [
        (vec!["stream"], 74, "data.csv"),
        (vec!["stream", "--csv", "/no/such.csv"], 74, "/no/such.csv"),
        (vec!["stream", "--csv", empty], 65, "empty"),
        (vec!["stream", "--csv", file, "--mq-url", "kafka://x"], 64, "kafka://x"),
        (vec!["stream", "--csv", file, "--mq-url", "http://user:secret@x"], 64, "credentials"),
        (vec!["stream", "--csv", file, "--topic", "no such topic"], 64, "topic"),
        (vec!["stream", "--csv", file, "--times", "now", "--rate", "5"], 64, "--speed"),
        (vec!["stream", "--csv", file, "--workers", "0"], 64, "0 is out of range: 1 to 256"),
        (vec!["collect", "--max-entries", "0"], 64, "--max-entries"),
        (vec!["collect", "--mq-url", "http://localhost:9090", "--broker-port", "9"], 64, "cannot be used"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
            .env_clear()
            .args(&arguments)
            .finished()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && !said.contains("secret"), "{arguments:?}: {said}");
    }
}
