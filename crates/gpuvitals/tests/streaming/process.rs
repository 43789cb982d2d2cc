//! The components of a pipeline: processes, files, stores.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpuvitals_core::batch::text_at;
use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting;
use gpuvitals_rig::waiting::PATIENCE;
use gpuvitals_store::{Store, StoreConfig};
use serde_json::Value;

pub(crate) fn start(arguments: &[&str]) -> Process {
    start_with(arguments, &[])
}

/// With settings from the environment.
pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Process {
    let mut command = gpuvitals!();
    Process::start(command.envs(environment.iter().copied()).args(arguments).stderr(Stdio::piped()))
}

/// A nats-server with JetStream.
pub(crate) struct Nats {
    child: Child,
    _port: Port,
    pub(crate) url: String,
}

impl Nats {
    pub(crate) fn start(folder: &Path) -> Self {
        let port = Port::new();
        // Debian installs it where not everybody looks.
        let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
        let found =
            path.split(':').map(|folder| Path::new(folder).join("nats-server")).find(|file| file.is_file());
        let child =
            Command::new(found.expect("no nats-server on this machine; scripts/need nats installs it"))
                .args(["-js", "-a", "127.0.0.1", "-p", &port, "-sd"])
                .arg(folder)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let address = format!("127.0.0.1:{port}");
        waiting::until("a nats-server", || TcpStream::connect(&address).is_ok(), |is_there| *is_there);
        Self { child, _port: port, url: format!("nats://{address}") }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

pub(crate) fn get(port: &str, path: &str) -> Value {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
    let Ok(mut answer) = agent.get(format!("http://127.0.0.1:{port}{path}")).call() else {
        return Value::Null;
    };
    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
}

/// Asks until the answer satisfies `done`.
pub(crate) fn until(port: &str, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    waiting::until(what, || get(port, path), done)
}

/// GPU and time of a row.
pub(crate) type Keys = BTreeSet<(String, i64)>;

/// A file of rows of ten GPUs, and their keys.
pub(crate) fn recording(folder: &Path, rows: u64) -> (PathBuf, Keys) {
    let (mut text, mut keys) = (String::from("timestamp,uuid,power_w\n"), Keys::new());
    for row in 0..rows {
        let (second, milli, gpu) = (1_767_225_600 + row / 100, row / 10 % 10 * 100, row % 10);
        writeln!(text, "{second}.{milli:03},GPU-{gpu},{}.{}", 100 + row % 500, row % 7).unwrap();
        keys.insert((format!("GPU-{gpu}"), i64::try_from(second * 1_000 + milli).unwrap() * 1_000_000));
    }
    let path = folder.join("rows.csv");
    std::fs::write(&path, text).unwrap();
    (path, keys)
}

/// The keys in a store without a writer.
pub(crate) fn stored(folder: &Path) -> Keys {
    let (store, _) = Store::open(StoreConfig::new(folder)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut keys = Keys::new();
    loop {
        let query = RowsQuery {
            metrics: Some(vec!["power_w".to_owned()]),
            offset: keys.len(),
            ..RowsQuery::of(Table::GpuEvents, 50_000)
        };
        let rows = runtime.block_on(store.rows(query)).unwrap();
        assert!(rows.missing.is_empty(), "{:?}", rows.missing);
        let Some(batch) = rows.answer.batch else { return keys };
        let uuids = batch.identity_column(IdentityColumn::Uuid).unwrap();
        let before = keys.len();
        for (row, time_ns) in batch.timestamps().iter().enumerate() {
            keys.insert((text_at(uuids, row).unwrap().to_owned(), *time_ns));
        }
        assert_eq!(keys.len(), before + batch.rows(), "every key is there once");
    }
}
