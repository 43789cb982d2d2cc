//! A real broker on free ports, and helpers to use it.

use std::io::Write;
use std::process::Output;

use futures_util::FutureExt as _;
use gpuvitals_queue::link::{AnyConsumer, Client, Credentials};
use gpuvitals_queue::{Consumer, ConsumerOptions, Delivery, Frame, Producer, Receipt};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting::PATIENCE;
use serde_json::Value;

pub(crate) struct Broker {
    pub process: Process,
    /// `http://127.0.0.1:1234`.
    pub http: String,
    /// `grpc://127.0.0.1:1234`.
    pub grpc: String,
}

impl Broker {
    /// Starts it on a free port and waits for the line that names it.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = gpuvitals!();
        command.args(["broker", "--port", "0", "--log-level", "debug"]).args(arguments);
        let process = Process::start(&mut command);
        let address = |line: &Value| line["message"].as_str()?.strip_prefix("queue: ").map(str::to_owned);
        let http = said(&process, "an address", |lines| lines.iter().find_map(address));
        let grpc = http.replacen("http", "grpc", 1);
        Self { process, http, grpc }
    }

    /// What the log has, once it has it.
    pub(crate) fn logged<T>(&self, what: &str, find: impl Fn(&[Value]) -> Option<T>) -> T {
        said(&self.process, what, find)
    }

    /// All of the log so far, as text.
    pub(crate) fn log(&self) -> String {
        self.process.said("a log", |lines| Some(lines.join("\n")))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        answer(agent().get(format!("{}{path}", self.http)).call().unwrap())
    }

    /// Publishes by HTTP.
    pub(crate) fn post(&self, topic: &str, body: &str) -> (u16, Value) {
        let request = agent().post(format!("{}/publish/{topic}", self.http));
        answer(request.header("content-type", "application/json").send(body).unwrap())
    }

    /// Publishes by gRPC.
    pub(crate) async fn publish(&self, topic: &str, frame: Frame) -> Receipt {
        let client = Client::new(self.grpc.parse().unwrap(), Credentials::default());
        client.producer(topic).unwrap().publish(frame).await.unwrap()
    }

    /// A consumer by gRPC.
    pub(crate) fn consumer(&self, topic: &str, group: &str) -> AnyConsumer {
        consumer(&self.grpc, topic, group)
    }

    /// `gpuvitals queue` on it.
    pub(crate) fn queue(&self, arguments: &[&str]) -> Output {
        gpuvitals!().arg("queue").args(arguments).args(["--mq-url", &self.http]).finished().unwrap()
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.terminated().0
    }
}

/// What lines of the log are found, once they are there.
fn said<T>(process: &Process, what: &str, find: impl Fn(&[Value]) -> Option<T>) -> T {
    process.said(what, |lines| {
        let parsed = |line: &String| -> Value {
            serde_json::from_str(line).expect("every line of a machine's log is JSON")
        };
        find(&lines.iter().map(parsed).collect::<Vec<_>>())
    })
}

pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into()
}

pub(crate) fn answer(mut response: ureq::http::Response<ureq::Body>) -> (u16, Value) {
    let body = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

pub(crate) fn consumer(url: &str, topic: &str, group: &str) -> AnyConsumer {
    let client = Client::new(url.parse().unwrap(), Credentials::default());
    let consumer = client.consumer(topic, group, &ConsumerOptions::default()).now_or_never();
    consumer.expect("a queue elsewhere is not asked yet").unwrap()
}

/// The next deliveries; they have to come.
pub(crate) async fn receive(consumer: &mut AnyConsumer) -> Vec<Delivery> {
    tokio::time::timeout(PATIENCE, consumer.receive()).await.expect("nothing came").unwrap()
}

/// One message of a GPU as JSON.
pub(crate) fn message(gpu: u32, power_w: u32) -> String {
    format!(
        r#"{{"timestamp":"2026-01-01T00:00:00Z","fields":{{"gpu_id":{gpu},"node":"n1","power_w":{power_w}}}}}"#
    )
}

/// Runs to the end; gives exit code, standard output and standard error.
pub(crate) fn outcome(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A file that only its owner can read.
pub(crate) fn secret(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
