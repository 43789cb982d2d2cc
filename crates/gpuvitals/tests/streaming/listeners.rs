//! The port of every role beside connections that are idle or slow, in the real binary.
//!
//! `IDLE_CONNECTIONS` and `SLOW_CONNECTIONS` set how many; `scripts/test-long` holds 5,000 and 500.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting;
use gpuvitals_rig::waiting::PATIENCE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Longest time of the usual answer.
const LIMIT: Duration = Duration::from_millis(50);

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// A role on a free port, and the line that names its address.
fn roles(folder: &std::path::Path) -> Vec<(&'static str, Command)> {
    let csv = folder.join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/vega56");
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let role = |line, arguments: &[&str]| {
        let mut command = gpuvitals!();
        command.args(arguments).env("GPUVITALS_BROKER_PORT", "0");
        (line, command)
    };
    let nobody = "grpc://127.0.0.1:1";
    vec![
        role("metrics: http", &["agent", "--port", "0", "--driver", "amd-sysfs", "--sysfs", &text(&fixture)]),
        role("queue: http", &["broker"]),
        role(
            "collector API: http",
            &["collect", "--api-port", "0", "--mq-url", nobody, "--data-dir", &text(&folder.join("collect"))],
        ),
        role("metrics: http", &["stream", "--metrics-port", "0", "--mq-url", nobody, "--csv", &text(&csv)]),
        role(
            "dashboard and API: http",
            &["up", "--source", "none", "--port", "0", "--data-dir", &text(&folder.join("up"))],
        ),
        role("dashboard and API: http", &["serve", "--port", "0", "--collectors", "http://127.0.0.1:1"]),
    ]
}

/// The status and how long the answer took.
fn ask(address: &str, path: &str) -> (String, Duration) {
    let began = clock::instant();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().to_owned(), began.elapsed())
}

#[test]
fn health_and_metrics_answer_beside_idle_and_slow_connections() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (idle, slow) = (number("IDLE_CONNECTIONS", 300), number("SLOW_CONNECTIONS", 50));
    for (line, mut command) in roles(folder.path()) {
        let process = Process::start(&mut command);
        let said = process.says(line);
        let address = said.split("http://").nth(1).unwrap().split(['/', '"']).next().unwrap().to_owned();
        let mut held: Vec<TcpStream> = Vec::new();
        for number in 0..idle + slow {
            let mut stream = TcpStream::connect(&address).unwrap();
            if number >= idle {
                // Half of a request's head; the rest never comes.
                stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: ").unwrap();
            }
            held.push(stream);
        }
        for path in ["/health", "/healthz", "/metrics"] {
            let mut answers: Vec<_> = (0..21).map(|_| ask(&address, path)).collect();
            assert!(answers.iter().all(|(status, _)| status == "200"), "{said} {path}: {answers:?}");
            answers.sort_by_key(|(_, took)| *took);
            let median = answers[10].1;
            println!("{address} {line} {path}: {median:?} beside {idle} idle and {slow} slow connections");
            assert!(median < LIMIT, "{said} {path}: {median:?}");
        }
    }
}

#[test]
fn a_nats_port_that_accepts_and_closes_is_one_line_an_outage() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", port.local_addr().unwrap());
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    std::thread::spawn(move || {
        for taken in port.incoming() {
            drop(taken);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let data = folder.path().join("collect");
    let roles: [&[&str]; 2] = [
        &["stream", "--metrics-port", "0", "--csv", csv.to_str().unwrap()],
        &["collect", "--api-port", "0", "--data-dir", data.to_str().unwrap()],
    ];
    for role in roles {
        let before = tried.load(Ordering::Relaxed);
        let mut command = gpuvitals!();
        let process = Process::start(command.args(role).args(["--mq-url", &url]).stderr(Stdio::piped()));
        waiting::until("tries to connect", || tried.load(Ordering::Relaxed) - before, |tries| *tries >= 12);
        let loud = process.said("lines", |lines| {
            let is_loud =
                |line: &&String| line.contains("\"level\":\"error\"") || line.contains("\"level\":\"warn\"");
            Some(lines.iter().filter(is_loud).cloned().collect::<Vec<_>>())
        });
        assert!(loud.len() <= 1, "{role:?}: {loud:#?}");
    }
}
