//! A history at the other end of a connection.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Changes, Fleet, History, HistoryStats, LiveFleet, Part, QueryError, Rows,
    RowsQuery, spelling,
};
use gpuvitals_core::{Batch, Health, Status as HealthStatus, clock, wire};
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::buckets::Gathering;
use crate::changes::RemoteChanges;
use crate::v1::history_client::HistoryClient;
use crate::{MESSAGE_BYTES, border, refusal, v1};

/// Shortest and longest pause between two tries to watch.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A history that another gpuvitals serves. Clones are handles of the same one; it watches the other end until the last is
/// dropped.
#[derive(Debug, Clone)]
pub struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: Arc<Connection>,
    heard: Arc<Mutex<Heard>>,
    /// The last fleet that was asked for, with its version and life at the other end.
    fleet: Mutex<Option<(u64, u64, Arc<Fleet>)>>,
    watch: JoinHandle<()>,
}

/// What the other end said last about itself.
#[derive(Debug)]
struct Heard {
    /// Changes with what the other end says, and with its lives.
    version: u64,
    theirs: Option<(u64, u64)>,
    health: Health,
    stats: HistoryStats,
}

/// How calls are made.
pub(crate) struct Connection {
    name: Arc<str>,
    channel: Channel,
    bearer: Option<MetadataValue<Ascii>>,
}

impl Connection {
    pub(crate) fn client(&self) -> HistoryClient<Channel> {
        HistoryClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// A request with the token.
    pub(crate) fn request<T>(&self, body: T) -> Request<T> {
        let mut request = Request::new(body);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Remote {
    /// The history at an endpoint, which is connected to when it is needed. `name` is its address, for people; `bearer` is sent as
    /// `authorization`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(name: &str, endpoint: &Endpoint, bearer: Option<MetadataValue<Ascii>>) -> Self {
        let connection = Arc::new(Connection { name: name.into(), channel: endpoint.connect_lazy(), bearer });
        let health = Health {
            status: HealthStatus::Degraded,
            reason: "nothing was heard of it yet".to_owned(),
            since_ns: clock::now_ns(),
        };
        let heard = Heard { version: 1, theirs: None, health, stats: HistoryStats::default() };
        let heard = Arc::new(Mutex::new(heard));
        let watch = tokio::spawn(watch(Arc::clone(&connection), Arc::clone(&heard)));
        Self(Arc::new(Inner { connection, heard, fleet: Mutex::default(), watch }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Notes what the other end says about itself, for ever.
async fn watch(connection: Arc<Connection>, heard: Arc<Mutex<Heard>>) {
    let mut pause = PAUSES.0;
    loop {
        let request = connection.request(v1::WatchRequest {});
        let ended = match connection.client().watch(request).await {
            Err(status) => status,
            Ok(states) => {
                pause = PAUSES.0;
                let mut states = states.into_inner();
                loop {
                    match states.message().await {
                        Ok(Some(state)) => lock(&heard).note(state),
                        Ok(None) => break Status::unavailable("the stream ended"),
                        Err(status) => break status,
                    }
                }
            }
        };
        let reason = gpuvitals_core::causes(&refusal::error(&ended));
        lock(&heard).health.observe(HealthStatus::Degraded, reason, clock::now_ns());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

impl Heard {
    fn note(&mut self, state: v1::State) {
        let theirs = Some((state.version, state.life));
        if self.theirs != theirs {
            self.theirs = theirs;
            self.version += 1;
        }
        let status = match state.status.as_str() {
            "healthy" => HealthStatus::Healthy,
            "unhealthy" => HealthStatus::Unhealthy,
            _ => HealthStatus::Degraded,
        };
        self.health = Health { status, reason: state.reason, since_ns: state.since_ns };
        self.stats = HistoryStats {
            rows_on_disk: state.rows_on_disk,
            rows_in_memory: state.rows_in_memory,
            own: serde_json::from_str(&state.own).unwrap_or_default(),
        };
    }
}

/// All messages of an answer.
async fn all<T>(mut stream: Streaming<T>) -> Result<Vec<T>, QueryError> {
    let mut parts = Vec::new();
    while let Some(part) = stream.message().await.map_err(|status| refusal::error(&status))? {
        parts.push(part);
    }
    Ok(parts)
}

/// Works on a thread for blocking work.
async fn work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(QueryError::failed(error)))
}

impl Inner {
    async fn fleet(&self) -> Result<Part<Arc<Fleet>>, QueryError> {
        let known = lock(&self.fleet).clone();
        let (known_version, known_life) =
            known.as_ref().map_or((0, 0), |(version, life, _)| (*version, *life));
        let request = self.connection.request(v1::FleetRequest { known_version, known_life });
        let answer = self.connection.client().fleet(request).await;
        let mut parts = all(answer.map_err(|status| refusal::error(&status))?.into_inner()).await?;
        let head = parts.first_mut().map(std::mem::take).unwrap_or_default();
        let version = lock(&self.heard).version;
        if let (true, Some((.., fleet))) = (head.unchanged, known) {
            return Ok(Part::whole(fleet));
        }
        let fleet = work(move || {
            let mut fleet = LiveFleet::default();
            for part in parts {
                spelling::read(&part.gpus, &mut fleet).map_err(QueryError::failed)?;
            }
            fleet.set_version(version);
            Ok(Arc::new(fleet.snapshot()))
        })
        .await?;
        if head.missing.is_empty() {
            *lock(&self.fleet) = Some((head.version, head.life, Arc::clone(&fleet)));
        }
        Ok(Part { answer: fleet, missing: head.missing })
    }

    async fn rows(&self, query: RowsQuery) -> Result<Part<Rows>, QueryError> {
        let request = self.connection.request(border::rows_request(query));
        let answer = self.connection.client().rows(request).await;
        let mut parts = all(answer.map_err(|status| refusal::error(&status))?.into_inner()).await?;
        let head = parts.first_mut().map(std::mem::take).unwrap_or_default();
        let total = head.total.map(|total| usize::try_from(total).unwrap_or(usize::MAX));
        let batch = work(move || {
            let batches =
                parts.into_iter().skip(1).map(|part| wire::decode(&part.batch).map_err(QueryError::failed));
            let batches: Vec<Batch> = batches.collect::<Result<_, _>>()?;
            Ok(Batch::concat(&batches))
        })
        .await?;
        Ok(Part { answer: Rows { batch, total }, missing: head.missing })
    }

    async fn buckets(&self, query: BucketQuery) -> Result<Part<Buckets>, QueryError> {
        let mut gathering = Gathering::new(&query)?;
        let request = self.connection.request(border::buckets_request(&query));
        let answer = self.connection.client().buckets(request).await;
        let mut parts = answer.map_err(|status| refusal::error(&status))?.into_inner();
        while let Some(part) = parts.message().await.map_err(|status| refusal::error(&status))? {
            gathering.add(part)?;
        }
        Ok(gathering.answer)
    }
}

impl History for Remote {
    fn version(&self) -> u64 {
        lock(&self.0.heard).version
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(self.0.fleet())
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        Box::pin(self.0.rows(query))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(self.0.buckets(query))
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(RemoteChanges::new(Arc::clone(&self.0.connection)))
    }

    fn health(&self) -> Health {
        lock(&self.0.heard).health.clone()
    }

    fn stats(&self) -> HistoryStats {
        lock(&self.0.heard).stats.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
