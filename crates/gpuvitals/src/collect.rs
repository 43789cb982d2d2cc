//! `gpuvitals collect`: from queue to store. Decode, validate, make durable, acknowledge.
//!
//! A frame is acknowledged after the store has synced its rows, never before. While the store cannot take
//! rows (a full disk) a worker keeps its frames, extends their leases and tries again; it takes nothing new,
//! so the queue fills and the source slows down; after some minutes it gives its frames back. When the
//! store's log has failed (a sync that did not succeed) the process ends, and the next start recovers. A
//! frame that can never be opened or stored goes to the dead letters with its reason, and so does one that
//! makes decoding or storing panic. Of a frame with good and bad rows the good ones are stored and the bad
//! ones published as a dead letter; then it is acknowledged.
//!
//! It ends in order: workers receive nothing more, finish their frames and leave their group, the store
//! flushes and closes, the API closes last. Frames not finished within the grace go back to the queue.

mod bad;
mod defect;
mod meter;
mod opening;
mod progress;
mod serving;
mod settings;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvitals_api::collector::{self, CollectorView};
use gpuvitals_core::figures::Family;
use gpuvitals_core::ports::Sink;
use gpuvitals_core::{Health, causes};
use gpuvitals_listener::PortKind;
use gpuvitals_listener::{Figures, Meter, Vitals};
use gpuvitals_queue::link::MessageQueue;
use gpuvitals_queue::link::{self, AnyConsumer, Client};
use gpuvitals_queue::{ConsumerOptions, ReceiveError, dead_topic};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::bad::BadRows;
use crate::config::Config;
use crate::disk;
use crate::failure::{Exit, Failure};
use crate::listening;
use crate::service::Service;

pub(crate) use meter::families;
pub(crate) use opening::unpacked;
pub(crate) use progress::Progress;
pub(crate) use serving::open_store;
pub(crate) use settings::{CollectFlags, Collector, EXAMPLES};
pub(crate) use worker::{Ended, Terms};

/// Workers get this fraction of the grace to finish their frames; the rest is the store's.
const WORKERS_SHARE: u32 = 2;

/// Runs until a signal, or until nothing more can be collected.
///
/// # Errors
/// When something cannot be opened, or the queue refuses the collector for good.
pub(crate) fn run(config: &Config, service: Service) -> Result<(), Failure> {
    crate::limits::raise_open_files();
    let queue = config.queue_elsewhere();
    let member = Member::new(config, queue.client()?);
    service.runtime.clone().block_on(serve(config, &queue, member, service))
}

async fn serve(
    config: &Config,
    queue: &MessageQueue,
    member: Member,
    Service { announcer, mut signals, .. }: Service,
) -> Result<(), Failure> {
    let (socket, address) =
        listening::listen(config.collector.listen, config.collector.api_port, "--api-port")?;
    let access = listening::access(&config.listener, address, PortKind::Service)?;
    let (sink, store) = open_store(config.collector.store(&config.store))?;
    let progress = Arc::new(Progress::new());
    let terms = Terms::new(Arc::clone(&sink), Arc::clone(&progress), &config.collector);
    announcer.tell(&format!(
        "collecting topic {} of {} as group {}, {} workers",
        queue.topic, queue.address, config.collector.group, config.collector.worker_count
    ));
    announcer.tell(&format!("collector API: {}://{address}/", config.listener.scheme()));
    let workers = config.collector.worker_count;
    let meter = Arc::new(Meter::new("collector"));
    let view = Arc::new(View { progress, sink: Arc::clone(&sink), workers, meter: Arc::clone(&meter) });
    let shown = Arc::clone(&view);
    crate::telemetry::show(Figures::new(move || shown.families()));
    let stop_api = CancellationToken::new();
    let app = collector::router(store, view);
    let api_terms = gpuvitals_listener::Terms { access, ..gpuvitals_listener::Terms::new(meter) };
    let mut server = tokio::spawn(gpuvitals_listener::serve(socket, app, api_terms, stop_api.clone()));
    let mut workers = spawn(config.collector.worker_count, &member, &terms).await?;

    let mut failure = tokio::select! {
        signal = signals.next() => { tracing::info!(signal, "stopping"); None }
        Some(ended) = workers.join_next() => Some(ended_early(ended, queue, &config.store.dir)),
        ended = &mut server => Some(match ended {
            Ok(ended) => Failure::new(Exit::Io, format!("the API ended before its time: {ended:?}")),
            Err(error) => Failure::caused(Exit::Bug, "the API ended by a panic", error),
        }),
    };

    let deadline = Instant::now() + config.shutdown.grace;
    finish(&mut workers, &terms, config.shutdown.grace / WORKERS_SHARE).await;
    close(&*sink, deadline, &mut failure).await;
    stop_api.cancel();
    if !server.is_finished() && tokio::time::timeout_at(deadline, &mut server).await.is_err() {
        tracing::warn!("the API still had open connections");
    }
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

/// How workers join their group of a topic, as often as need be.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    client: Client,
    topic: String,
    group: String,
    options: ConsumerOptions,
}

impl Member {
    /// The publisher of bad rows as dead letters.
    ///
    /// # Errors
    /// If a name is refused, or a credential cannot be read.
    fn bad_rows(&self) -> Result<BadRows, Failure> {
        let producer = self.client.producer(dead_topic(&self.topic))?;
        Ok(BadRows { group: self.group.clone(), producer })
    }

    /// Joins through this client.
    pub(crate) fn new(config: &Config, client: Client) -> Self {
        let (topic, group) = (config.message_queue.topic.clone(), config.collector.group.clone());
        Self { client, topic, group, options: link::of_one_consumer(config.collector.options()) }
    }

    /// Joins. A remote queue is not contacted before the first receive.
    ///
    /// # Errors
    /// If a name is refused, or a credential cannot be read.
    pub(crate) async fn join(&self) -> Result<AnyConsumer, Failure> {
        let joined = self.client.consumer(self.topic.as_str(), self.group.as_str(), &self.options).await;
        joined
            .map_err(|error| Failure::caused(Exit::Config, "configuration: message_queue, collector", error))
    }
}

/// Sets workers going. Their group is there from now on, before anything is published to a queue of this process.
///
/// # Errors
/// When a worker cannot join.
pub(crate) async fn spawn(workers: usize, member: &Member, terms: &Terms) -> Result<JoinSet<Ended>, Failure> {
    let mut joined = Vec::with_capacity(workers);
    for _ in 0..workers {
        joined.push(member.join().await?);
    }
    Ok(joined.into_iter().map(|consumer| worker::work(consumer, member.clone(), terms.clone())).collect())
}

/// Lets workers finish their frames; the rest goes back to the queue.
pub(crate) async fn finish(workers: &mut JoinSet<Ended>, terms: &Terms, patience: Duration) {
    terms.stop.cancel();
    let finished = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, finished).await.is_err() {
        tracing::warn!("rows that were received could not be stored in time; the queue delivers them again");
        terms.abandon.cancel();
        while workers.join_next().await.is_some() {}
    }
}

/// Closes the sink.
pub(crate) async fn close(sink: &dyn Sink, deadline: Instant, failure: &mut Option<Failure>) {
    match tokio::time::timeout_at(deadline, sink.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            failure.get_or_insert(Failure::caused(Exit::Io, "closing the store", error));
        }
        Err(_) => tracing::warn!("the store still writes; rows not yet in files are safe in its log"),
    }
}

/// The consequence of a worker's unexpected end.
pub(crate) fn ended_early(
    ended: Result<Ended, JoinError>,
    queue: &MessageQueue,
    store_dir: &Path,
) -> Failure {
    match ended {
        Ok(Ended::SinkFailed(error)) => disk::failed("store", Some(store_dir), &causes(&error)),
        Ok(Ended::Queue(error)) => {
            let (exit, advice) = match error {
                ReceiveError::Denied { .. } => (Exit::Permission, format!("; {}", queue.way_in())),
                _ => (Exit::Unavailable, String::new()),
            };
            Failure::new(exit, format!("nothing can be collected any more: {}{advice}", causes(&error)))
        }
        Ok(Ended::Refused(failure)) => failure,
        Ok(Ended::Stopped | Ended::SinkClosed) => {
            Failure::new(Exit::Bug, "a collector ended before its time")
        }
        Ok(Ended::Panicked(error)) | Err(error) => {
            Failure::caused(Exit::Bug, "a collector ended by a panic", error)
        }
    }
}

/// The API's view of the collector.
#[derive(Debug)]
struct View {
    progress: Arc<Progress>,
    sink: Arc<dyn Sink>,
    workers: usize,
    meter: Arc<Meter>,
}

impl CollectorView for View {
    fn rows_stored(&self) -> u64 {
        self.progress.rows_stored.load(Ordering::Relaxed)
    }
}

impl Vitals for View {
    /// That of the collector or its sink, whichever is worse.
    fn health(&self) -> Health {
        let (collector, sink) = (self.progress.health(), self.sink.health());
        if sink.status > collector.status { sink } else { collector }
    }

    fn families(&self) -> Vec<Family> {
        let mut families = families(&self.progress, self.workers);
        families.extend(self.sink.families());
        families.extend(self.meter.families());
        families.extend(crate::telemetry::families());
        families
    }
}
