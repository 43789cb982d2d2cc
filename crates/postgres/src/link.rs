//! Connections, a few of which are kept open.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::{Table, causes};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, IsolationLevel, Transaction};

use crate::error::PostgresError;
use crate::settings::{Database, SslMode};
use crate::tls::Tls;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Longest time in which a question waits for others to give a connection back.
const QUESTION_WAITS: Duration = Duration::from_secs(5);
/// Longest time for ending a statement whose answer nobody waits for.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// Of so many connections one is not for questions.
const CONNECTIONS_PER_WRITER: usize = 4;
/// A peer that acknowledges nothing for so long is gone.
const PEER_SILENT: Duration = Duration::from_secs(15);
/// Transactions that merge after a row came that was there already.
const MERGES_AFTER_REPEAT: u32 = 16;
/// Statements end after `statement_timeout`. If this process dies the server notices within a second (from version 14 on); a
/// question that is dropped is cancelled long before that.
/// Acknowledged rows are synced, whatever the server's default.
const SESSION: &str = "\
    SET statement_timeout = '30s'; SET lock_timeout = '10s'; SET client_min_messages = warning;
    SELECT set_config(name, '1000', false) FROM pg_settings WHERE name = 'client_connection_check_interval';
    SELECT set_config(name, 'on', false) FROM pg_settings WHERE name = 'synchronous_commit' AND setting = 'off'";

/// Connections to one database.
pub(crate) struct Links {
    settings: Database,
    tls: Tls,
    idle: Mutex<Vec<Link>>,
    permits: Arc<Semaphore>,
    /// Fewer than `permits`: questions leave connections to those who write.
    questions: Arc<Semaphore>,
}

/// The purpose of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Question,
    /// Writing, and everything else that no question keeps waiting.
    Other,
}

/// A connection; it is closed when it is dropped.
pub(crate) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    /// Tables that have their temporary twin in this session.
    staged: Vec<Table>,
    /// Transactions that merge before the next one that copies directly.
    merges_left: u32,
    in_use: Option<InUse>,
}

/// The use of a connection, which may have a statement under way.
struct InUse {
    tls: Tls,
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

/// A connection in use. Unless it is given back, its statement is ended and it is closed: then nobody knows in which state it is.
pub(crate) struct Lease<'a> {
    link: Link,
    links: &'a Links,
}

impl Links {
    /// # Errors
    /// If the authorities of the settings cannot be read or used.
    pub(crate) fn new(settings: Database) -> Result<Self, PostgresError> {
        let most = settings.connections;
        let for_questions = most - (most / CONNECTIONS_PER_WRITER).max(1);
        Ok(Self {
            tls: Tls::new(&settings)?,
            settings,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(most)),
            questions: Arc::new(Semaphore::new(for_questions)),
        })
    }

    /// A connection: an idle one, or a new one.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn lease(&self, purpose: Purpose) -> Result<Lease<'_>, PostgresError> {
        let permit = async |semaphore: &Arc<Semaphore>| {
            let permit = Arc::clone(semaphore).acquire_owned().await;
            permit.map(Some).map_err(|_| PostgresError::Closed)
        };
        let permits = match purpose {
            Purpose::Other => [permit(&self.permits).await?, None],
            Purpose::Question => {
                let both = async { Ok([permit(&self.questions).await?, permit(&self.permits).await?]) };
                let doing = "waiting for a free connection (database.connections)";
                let late = PostgresError::TimedOut { doing, within: QUESTION_WAITS };
                tokio::time::timeout(QUESTION_WAITS, both).await.unwrap_or(Err(late))?
            }
        };
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut link = match idle.filter(|link| !link.client.is_closed()) {
            Some(link) => link,
            None => self.connect().await?,
        };
        link.in_use = Some(InUse { tls: self.tls.clone(), _permits: permits });
        Ok(Lease { link, links: self })
    }

    async fn connect(&self) -> Result<Link, PostgresError> {
        let settings = &self.settings;
        let password = match &settings.password_file {
            None => settings.password.reveal().to_owned(),
            Some(path) => {
                let read = std::fs::read_to_string(path).map_err(|source| PostgresError::File {
                    setting: "database.password_file",
                    path: path.clone(),
                    source,
                })?;
                read.trim_end_matches(['\r', '\n']).to_owned()
            }
        };
        let is_local = settings.host.starts_with('/');
        let mut config = Config::new();
        config
            .host(&settings.host)
            .port(settings.port)
            .user(&settings.user)
            .dbname(&settings.dbname)
            .application_name("gpuvitals")
            .connect_timeout(CONNECT_WITHIN)
            .tcp_user_timeout(PEER_SILENT)
            .keepalives_idle(PEER_SILENT)
            .ssl_mode(match settings.sslmode {
                SslMode::Disable => tokio_postgres::config::SslMode::Disable,
                _ if is_local => tokio_postgres::config::SslMode::Disable,
                SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
                SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                    tokio_postgres::config::SslMode::Require
                }
            });
        if !password.is_empty() {
            config.password(password);
        }
        let connecting = async {
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error = causes(&error), "a connection to PostgreSQL ended");
                }
            });
            let link = Link { client, driver, staged: Vec::new(), merges_left: 0, in_use: None };
            link.client.batch_execute(SESSION).await?;
            Ok(link)
        };
        let doing = "connect to PostgreSQL";
        match tokio::time::timeout(2 * CONNECT_WITHIN, connecting).await {
            Ok(connected) => {
                connected.map_err(|source| PostgresError::Connect { server: settings.server(), source })
            }
            Err(_) => Err(PostgresError::TimedOut { doing, within: 2 * CONNECT_WITHIN }),
        }
    }

    /// Closes idle connections; those in use close when they are given back, and there is no other.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.questions.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Lease<'_> {
    /// Keeps the connection open for the next one.
    pub(crate) fn give_back(self) {
        let Self { mut link, links } = self;
        let ended = link.in_use.take();
        if !links.permits.is_closed() {
            links.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
        drop(ended);
    }

    /// Whether the next rows are copied straight into their tables: no row that is there already came lately.
    pub(crate) fn copies_directly(&mut self) -> bool {
        let left = self.link.merges_left;
        self.link.merges_left = left.saturating_sub(1);
        left == 0
    }

    /// Notes that a row came that is there already.
    pub(crate) fn note_repeat(&mut self) {
        self.link.merges_left = MERGES_AFTER_REPEAT;
    }

    /// A transaction that sees one moment of the database and changes nothing.
    pub(crate) async fn moment(&mut self) -> Result<Transaction<'_>, PostgresError> {
        let begun = self.link.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        begun.read_only(true).start().await.map_err(PostgresError::statement("begin to read"))
    }

    /// Tables that have their temporary twin in this session.
    pub(crate) fn staged(&mut self) -> &mut Vec<Table> {
        &mut self.link.staged
    }
}

impl Deref for Lease<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.link.client
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.link.client
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let driver = self.driver.abort_handle();
        let (Some(in_use), Ok(runtime), false) =
            (self.in_use.take(), Handle::try_current(), self.client.is_closed())
        else {
            return driver.abort();
        };
        let token = self.client.cancel_token();
        // There are no more of these tasks than connections: each keeps the permit of its own until it ends.
        runtime.spawn(async move {
            match tokio::time::timeout(CANCEL_WITHIN, token.cancel_query(in_use.tls.clone())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(error = causes(&error), "a statement in PostgreSQL runs on");
                }
                Err(_) => tracing::debug!("PostgreSQL does not say whether it ends a statement"),
            }
            driver.abort();
            drop(in_use);
        });
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("settings", &self.settings).finish_non_exhaustive()
    }
}
