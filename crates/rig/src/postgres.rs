//! A PostgreSQL server of the tests' own, in a temporary folder. It refuses to run as root: then it runs as `nobody`.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::waiting;

/// The user whom the server runs as, if the tests run as root.
pub const NOBODY: u32 = 65_534;

/// A running server, whose superuser is `gpu`; it ends when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    dir: TempDir,
    bin: PathBuf,
    databases: AtomicU32,
}

impl PostgresServer {
    /// A server of its own, with these lines in its configuration.
    pub fn start(options: &str) -> Self {
        let server = Self { dir: TempDir::new().unwrap(), bin: bin(), databases: AtomicU32::new(0) };
        if rustix::process::geteuid().is_root() {
            chown(server.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let settings =
            ["--no-sync", "--auth=trust", "--username=gpu", "--no-instructions", "--encoding=UTF8"];
        server.run("initdb", &[&settings[..], &["--locale=C", "-D", "data"]].concat());
        server.configure(&format!("unix_socket_directories = '{}'\n{options}", server.dir.path().display()));
        server.begin();
        server
    }

    /// The server that the tests of a process share.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start("listen_addresses = ''\nfsync = off\nmax_connections = 200\n"));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Adds to its configuration, for the next start.
    pub fn configure(&self, text: &str) {
        let path = self.path("data/postgresql.conf");
        let known = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, known + text + "\n").unwrap();
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts it; returns when it takes connections.
    pub fn begin(&self) {
        self.run("pg_ctl", &["start", "-w", "-D", "data", "-l", "log"]);
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&self) {
        self.run("pg_ctl", &["stop", "-w", "-m", "immediate", "-D", "data"]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.bin.join(program));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .stdout(Stdio::null())
            .env_clear()
            .env("TZ", "UTC");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let status = waiting::ended(&mut command.spawn().unwrap());
        assert!(status.success(), "{program} {arguments:?}");
    }

    /// Its port, if it runs, which is in the name of its socket too.
    pub fn port(&self) -> u16 {
        let pid = std::fs::read_to_string(self.path("data/postmaster.pid")).unwrap_or_default();
        pid.lines().nth(3).and_then(|port| port.parse().ok()).unwrap_or(5432)
    }

    /// The folder of its socket, which a client takes for its host.
    pub fn host(&self) -> String {
        self.dir.path().display().to_string()
    }

    /// Makes a new, empty database. Returns its name.
    pub async fn database(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}")).await;
        name
    }

    /// Runs statements; returns the columns of each row as text.
    pub async fn sql(&self, dbname: &str, sql: &str) -> Vec<Vec<Option<String>>> {
        let mut config = tokio_postgres::Config::new();
        config.host(self.host()).port(self.port()).user("gpu").dbname(dbname);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let messages = client.simple_query(sql).await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
        let rows = messages.into_iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect())
            }
            _ => None,
        });
        rows.collect()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.path("data/postmaster.pid").exists() {
            self.kill();
        }
    }
}

/// The folder of the server's programs: Debian does not have them in the path.
fn bin() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = versions.into_iter().rev().chain(std::env::split_paths(&path));
    let has_all = |bin: &Path| bin.join("initdb").exists() && bin.join("pg_ctl").exists();
    all.into_iter().find(|bin| has_all(bin)).expect("PostgreSQL's initdb and pg_ctl: scripts/need postgres")
}
