//! A history at the other end of a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Changes, Fleet, History, HistoryStats, LiveFleet, Part, QueryError, Rows,
    RowsQuery, spelling,
};
use gpuvitals_core::usage::{GpuUse, UseQuery};
use gpuvitals_core::{Batch, Health, Status as HealthStatus, clock, wire};
use gpuvitals_listener::client::Dial;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::border::{self, too_many, work};
use crate::buckets::Gathering;
use crate::changes::Feed;
use crate::connection::Connection;
use crate::v1::history_client::HistoryClient;
use crate::{refusal, usage, v1};

/// Shortest and longest pause between two tries to watch.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Longest wait for the first word of a watch: a service that hangs takes connections all the same.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(3);

/// A history that another gpuvitals serves. Clones are handles of the same one; it watches the other end until the last is
/// dropped.
#[derive(Debug, Clone)]
pub struct Remote(Arc<RemoteState>);

#[derive(Debug)]
struct RemoteState {
    connection: Arc<Connection>,
    heard: Receiver<OtherEnd>,
    fleet: Mutex<Option<KnownFleet>>,
    /// The changes, while somebody follows them.
    feed: Mutex<Weak<Feed>>,
    watch: JoinHandle<()>,
}

/// The last fleet that was asked for, with its version and life at the other end.
type KnownFleet = (u64, u64, Arc<Fleet>);

/// The other end's last word about itself.
#[derive(Debug)]
struct OtherEnd {
    /// Why it is not reached; none while it is, and before the first try. Questions then fail at once.
    lost: Option<Arc<str>>,
    /// Changes with what the other end says, and with its lives.
    version: u64,
    theirs: Option<(u64, u64)>,
    health: Health,
    stats: HistoryStats,
}

impl Remote {
    /// The history of a service, which is connected to when it is needed. `name` is for people.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(name: &str, dial: Dial) -> Self {
        let channel = dial.endpoint().connect_lazy();
        let connection = Arc::new(Connection { name: name.into(), channel, dial });
        let health = Health {
            status: HealthStatus::Degraded,
            reason: "no answer yet".to_owned(),
            since_ns: clock::now_ns(),
        };
        let heard = OtherEnd { lost: None, version: 1, theirs: None, health, stats: HistoryStats::default() };
        let (told, heard) = watch::channel(heard);
        let watch = tokio::spawn(listen(Arc::clone(&connection), told));
        Self(Arc::new(RemoteState {
            connection,
            heard,
            fleet: Mutex::default(),
            feed: Mutex::default(),
            watch,
        }))
    }
}

impl Drop for RemoteState {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Notes the other end's words about itself, for ever.
async fn listen(connection: Arc<Connection>, told: Sender<OtherEnd>) {
    let mut pause = PAUSES.0;
    loop {
        let mut has_spoken = false;
        let ended = follow(&connection, &told, &mut has_spoken).await;
        if has_spoken {
            pause = PAUSES.0;
        }
        told.send_modify(|heard| heard.lose(&ended));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Notes its words until it says nothing more.
async fn follow(connection: &Connection, told: &Sender<OtherEnd>, has_spoken: &mut bool) -> Status {
    let mut client = connection.client();
    let begin = async {
        let mut states = client.watch(connection.request(v1::WatchRequest {})).await?.into_inner();
        let first = states.message().await?;
        Ok::<_, Status>((first, states))
    };
    let begun = tokio::time::timeout(FIRST_WORD_WITHIN, begin).await;
    let late = || Err(Status::unavailable(format!("no answer within {} s", FIRST_WORD_WITHIN.as_secs())));
    let (mut state, mut states) = match begun.unwrap_or_else(|_| late()) {
        Ok(begun) => begun,
        Err(status) => return status,
    };
    *has_spoken = true;
    loop {
        match state {
            Some(state) => told.send_modify(|heard| heard.note(state)),
            None => return Status::unavailable("the stream ended"),
        }
        state = match states.message().await {
            Ok(state) => state,
            Err(status) => return status,
        };
    }
}

impl OtherEnd {
    /// It is not reached.
    fn lose(&mut self, ended: &Status) {
        let reason = refusal::error(ended).to_string();
        if self.lost.is_none() {
            // Answers lack its rows from now on.
            self.version += 1;
        }
        self.lost = Some(reason.as_str().into());
        self.health.observe(HealthStatus::Degraded, reason, clock::now_ns());
    }

    fn note(&mut self, state: v1::State) {
        let theirs = Some((state.version, state.life));
        if self.lost.take().is_some() || self.theirs != theirs {
            self.theirs = theirs;
            self.version += 1;
        }
        let status = HealthStatus::by_name(&state.status).unwrap_or(HealthStatus::Degraded);
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

impl RemoteState {
    /// The client of a service that is reached, as far as is known.
    fn client(&self) -> Result<HistoryClient<Channel>, QueryError> {
        match &self.heard.borrow().lost {
            Some(reason) => Err(QueryError::away(reason.to_string())),
            None => Ok(self.connection.client()),
        }
    }

    /// The fleet; that of the last answer while the other end is away, so that no GPU vanishes with its service.
    async fn fleet(&self) -> Result<Part<Arc<Fleet>>, QueryError> {
        let known = lock(&self.fleet).clone();
        match (self.fleet_after(known.clone()).await, known) {
            (Err(QueryError::Away { reason }), Some((.., fleet))) => {
                let missing = vec![format!("{reason}; its GPUs are shown as it gave them last")];
                Ok(Part { answer: fleet, missing })
            }
            (asked, _) => asked,
        }
    }

    async fn fleet_after(&self, known: Option<KnownFleet>) -> Result<Part<Arc<Fleet>>, QueryError> {
        let (known_version, known_life) =
            known.as_ref().map_or((0, 0), |(version, life, _)| (*version, *life));
        let request = self.connection.request(v1::FleetRequest { known_version, known_life, at_ns: None });
        let answer = self.client()?.fleet(request).await;
        let mut parts = all(answer.map_err(|status| refusal::error(&status))?.into_inner()).await?;
        let head = parts.first_mut().map(std::mem::take).unwrap_or_default();
        let version = self.heard.borrow().version;
        if let (true, Some((.., fleet))) = (head.unchanged, known) {
            return Ok(Part::whole(fleet));
        }
        let (fleet, too_many) = work(move || {
            let mut fleet = LiveFleet::default();
            for part in parts {
                spelling::read(&part.gpus, &mut fleet).map_err(QueryError::failed)?;
            }
            fleet.set_version(version);
            let missing = too_many(fleet.bounds(), fleet.forgotten());
            Ok((Arc::new(fleet.snapshot()), missing))
        })
        .await?;
        let missing: Vec<String> = head.missing.into_iter().chain(too_many).collect();
        if missing.is_empty() {
            *lock(&self.fleet) = Some((head.version, head.life, Arc::clone(&fleet)));
        }
        Ok(Part { answer: fleet, missing })
    }

    async fn rows(&self, query: RowsQuery) -> Result<Part<Rows>, QueryError> {
        let request = self.connection.request(border::rows_request(query));
        let answer = self.client()?.rows(request).await;
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
        let answer = self.client()?.buckets(request).await;
        let mut parts = answer.map_err(|status| refusal::error(&status))?.into_inner();
        while let Some(part) = parts.message().await.map_err(|status| refusal::error(&status))? {
            gathering = work(move || gathering.add(part).map(|()| gathering)).await?;
        }
        work(move || gathering.finish()).await
    }

    async fn usage(&self, query: UseQuery) -> Result<Part<Vec<GpuUse>>, QueryError> {
        let request = self.connection.request(border::usage_request(&query));
        let answer = self.client()?.usage(request).await;
        let mut parts = answer.map_err(|status| refusal::error(&status))?.into_inner();
        let mut whole = Part::whole(Vec::new());
        while let Some(part) = parts.message().await.map_err(|status| refusal::error(&status))? {
            whole.answer.extend(part.uses.into_iter().map(usage::read));
            whole.missing.extend(part.missing);
        }
        Ok(whole)
    }
}

impl History for Remote {
    fn version(&self) -> u64 {
        self.0.heard.borrow().version
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

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        Box::pin(self.0.usage(query))
    }

    fn changes(&self) -> Box<dyn Changes> {
        let mut held = lock(&self.0.feed);
        let feed = held.upgrade().unwrap_or_else(|| Arc::new(Feed::new(Arc::clone(&self.0.connection))));
        *held = Arc::downgrade(&feed);
        Box::new(feed.changes())
    }

    fn health(&self) -> Health {
        self.0.heard.borrow().health.clone()
    }

    fn stats(&self) -> HistoryStats {
        self.0.heard.borrow().stats.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
