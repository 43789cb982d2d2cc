//! Real nats-servers: each with a folder of its own, ended with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use gpuvitals_queue::link::QueueUrl;
use gpuvitals_rig::waiting;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// One nats-server with JetStream.
pub(crate) struct Server {
    folder: TempDir,
    /// What its configuration says beside ports and folder.
    extra: String,
    /// 0 before the first start.
    pub(crate) port: u16,
    child: Option<Child>,
    log: Arc<StdMutex<String>>,
    /// Its port, once it is ready.
    ready: watch::Receiver<Option<u16>>,
}

impl Server {
    fn new(extra: String) -> Self {
        let (folder, ready) = (TempDir::new().unwrap(), watch::channel(None).1);
        Self { folder, extra, port: 0, child: None, log: Arc::default(), ready }
    }

    /// A server on a port of its own.
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// A server with more lines of configuration; JetStream is on unless they mention it.
    pub(crate) async fn start_with(extra: &str) -> Self {
        let mut server = Self::new(extra.to_owned());
        server.run().await;
        server
    }

    /// Starts it (again), with what it has on disk, on the same port.
    pub(crate) async fn run(&mut self) {
        self.spawn();
        self.ready().await;
    }

    pub(crate) fn spawn(&mut self) {
        let folder = self.folder.path();
        let jetstream = if self.extra.contains("jetstream") {
            String::new()
        } else {
            format!("jetstream {{ store_dir: \"{}\" }}\n", folder.join("store").display())
        };
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let config = format!("listen: \"127.0.0.1:{port}\"\n{jetstream}{}", self.extra);
        let path = folder.join("nats.conf");
        fs::write(&path, config).unwrap();
        let started =
            Command::new(binary()).arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| {
            panic!("nats-server did not start ({error}); scripts/need nats installs it")
        });
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, ready) = watch::channel(None);
        (self.child, self.ready) = (Some(child), ready);
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            let mut port = None;
            for line in lines.map_while(Result::ok) {
                if let Some((_, listening)) =
                    line.split_once("Listening for client connections on 127.0.0.1:")
                {
                    port = listening.trim().parse().ok();
                }
                if line.contains("Server is ready") {
                    sender.send_replace(port);
                }
                log.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
    }

    pub(crate) async fn ready(&mut self) {
        let mut ready = self.ready.clone();
        let port = timeout(Duration::from_secs(20), ready.wait_for(Option::is_some)).await;
        let port = port.ok().and_then(Result::ok).and_then(|port| *port);
        self.port = port.unwrap_or_else(|| panic!("nats-server is not up:\n{}", self.log()));
    }

    /// Kills it at once (SIGKILL), as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            waiting::ended(&mut child);
        }
    }

    /// Takes what it has on disk away, while it is not running.
    pub(crate) fn lose_all(&mut self) {
        fs::remove_dir_all(self.folder.path().join("store")).unwrap();
    }

    pub(crate) fn url(&self) -> QueueUrl {
        format!("nats://127.0.0.1:{}", self.port).parse().unwrap()
    }

    /// What an admin has in hand.
    pub(crate) async fn by_hand(&self) -> async_nats::jetstream::Context {
        async_nats::jetstream::new(async_nats::connect(self.url().to_string()).await.unwrap())
    }

    /// Whether it is one of so many that know each other, with JetStream that answers.
    async fn is_formed(&self, count: usize) -> bool {
        let client = async_nats::connect(self.url().to_string()).await.unwrap();
        let answer = client.request("$JS.API.INFO", "".into()).await;
        let has_leader =
            answer.is_ok_and(|answer| !answer.payload.windows(8).any(|part| part == b"\"error\":"));
        has_leader && client.server_info().connect_urls.len() >= count
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the nats-server of port {} said:\n{}", self.port, self.log());
        }
    }
}

/// Three servers that know each other. There is one such cluster at a time: on few processors, two hinder each other
/// until neither keeps a leader.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    _turn: MutexGuard<'static, ()>,
}

/// A cluster, as soon as no other test has one, whose servers know each other and have a leader: how long that takes is
/// no test's concern.
pub(crate) async fn cluster() -> Cluster {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let list: Vec<String> = routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
    let mut servers = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        let extra = format!(
            "server_name: n{number}\ncluster {{ name: three, listen: \"127.0.0.1:{route}\", routes: [{}] }}\n",
            list.join(", ")
        );
        let mut server = Server::new(extra);
        server.spawn();
        servers.push(server);
    }
    for server in &mut servers {
        server.ready().await;
    }
    for server in &servers {
        let is_formed = async || server.is_formed(routes.len()).await.then_some(());
        waiting::retried("a cluster with a leader", is_formed).await;
    }
    Cluster { servers, _turn: turn }
}

/// `NATS_SERVER`, or the one of the system.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian puts it where only root looks.
    let folders =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    let found = folders.map(|folder| folder.join("nats-server")).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("no nats-server on this machine; scripts/need nats installs it"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
