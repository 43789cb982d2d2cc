//! `gpuvitals collect`: from a queue to the store.
//!
//! When the store's log has failed (a sync that did not succeed) the process ends, and the next start recovers.
//!
//! It ends in order: workers receive nothing more, finish their frames and leave their group, the store
//! flushes and closes, the API closes last. Frames not finished within the grace go back to the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use gpuvitals_api::Limits;
use gpuvitals_api::collector::{self, CollectorView};
use gpuvitals_collect::{CollectorProgress, Ended, Member, Workers, families};
use gpuvitals_core::figures::Family;
use gpuvitals_core::ports::Sink;
use gpuvitals_core::{Health, causes};
use gpuvitals_listener::{Meter, PortKind, Vitals};
use gpuvitals_outgoing::remote_write::RemoteWrite;
use gpuvitals_outgoing::{FamilyParts, ReadFamilies};
use gpuvitals_queue::ReceiveError;
use gpuvitals_queue::link::MessageQueue;
use gpuvitals_settings::Override;
use gpuvitals_store::StoreConfig;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::disk;
use crate::failure::{Exit, Failure};
use crate::fleet_figures::FleetFigures;
use crate::outgoing;
use crate::service::Service;
use crate::{listening, sinks};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals collect                                         from the queue of this machine into ./data
  gpuvitals collect --mq-url grpc://queue:9090 --data-dir /var/lib/gpuvitals
  gpuvitals collect --group audit --data-dir audit          all rows once more, beside the others";

/// Workers get this fraction of the grace to finish their frames; the rest is the store's.
const WORKERS_SHARE: u32 = 2;
/// And the last samples this one to the receiver of remote write.
const SENDING_SHARE: u32 = 4;

/// Runs until a signal, or until nothing more can be collected.
///
/// # Errors
/// When something cannot be opened, or the queue refuses the collector for good.
pub(crate) fn run(config: &Config, service: Service) -> Result<(), Failure> {
    crate::limits::raise_open_files();
    let queue = config.queue_elsewhere();
    let member = Member::new(&config.collector, &queue.topic, queue.client()?);
    service.runtime.clone().block_on(serve(config, &queue, member, service))
}

async fn serve(
    config: &Config,
    queue: &MessageQueue,
    member: Member,
    Service { announcer, mut signals, runtime }: Service,
) -> Result<(), Failure> {
    let (socket, address) =
        listening::listen(config.collector.listen, config.collector.api_port, "--api-port")?;
    let access = listening::access(&config.listener, address, PortKind::Service)?;
    let kept = StoreConfig {
        recent_rows: config.collector.max_entries,
        recent_bytes: config.collector.cache_bytes.as_usize(),
        ..sinks::store_config(&config.store, &config.collector)
    };
    let (sink, store) = sinks::open(config, &kept).await?;
    let progress = Arc::new(CollectorProgress::new());
    announcer.tell(&format!(
        "collecting topic {} of {} as group {}, {} workers",
        queue.topic, queue.address, config.collector.group, config.collector.worker_count
    ));
    announcer.tell(&format!("collector API: {}://{address}/", config.listener.scheme()));
    let workers = config.collector.worker_count;
    let meter = Arc::new(Meter::new("collector"));
    let view = Arc::new(ServedCollector {
        progress: Arc::clone(&progress),
        sink: Arc::clone(&sink),
        workers,
        meter: Arc::clone(&meter),
    });
    let gpus = FleetFigures::new(Arc::clone(&store), runtime);
    let sender = send(config, &view, gpus)?;
    let stop_api = CancellationToken::new();
    let queries = Arc::new(Semaphore::new(Limits::default().queries));
    let calls = gpuvitals_remote::serve(Arc::clone(&store), Arc::clone(&queries), &stop_api).await;
    let app = collector::router(store, queries, view).merge(calls);
    let api_terms = gpuvitals_listener::Terms { access, ..gpuvitals_listener::Terms::new(meter) };
    let mut server = tokio::spawn(gpuvitals_listener::serve(socket, app, api_terms, stop_api.clone()));
    let mut workers = Workers::start(&config.collector, &member, Arc::clone(&sink), progress).await?;

    let mut failure = tokio::select! {
        signal = signals.next() => { tracing::info!(signal, "stopping"); None }
        ended = workers.ended() => Some(ended_early(ended, config, queue)),
        ended = &mut server => Some(match ended {
            Ok(ended) => Failure::new(Exit::Io, format!("the API ended before its time: {ended:?}")),
            Err(error) => Failure::caused(Exit::Bug, "the API ended by a panic", error),
        }),
    };

    let deadline = Instant::now() + config.shutdown.grace;
    workers.finish(config.shutdown.grace / WORKERS_SHARE).await;
    if let Some(sender) = sender {
        sender.finish(config.shutdown.grace / SENDING_SHARE).await;
    }
    close(&*sink, deadline, &mut failure).await;
    stop_api.cancel();
    if !server.is_finished() && tokio::time::timeout_at(deadline, &mut server).await.is_err() {
        tracing::warn!("the API still had open connections");
    }
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

/// Sends the collector's figures and the GPUs of its store to those who are named: by OTLP, and by remote write.
fn send(
    config: &Config,
    view: &Arc<ServedCollector>,
    gpus: FleetFigures,
) -> Result<Option<RemoteWrite>, Failure> {
    let (shown, present) = (Arc::clone(view), gpus.clone());
    outgoing::show(ReadFamilies::new(move || {
        let parts = std::iter::once(shown.families()).chain(present.read().into_iter().flatten());
        Some(Box::new(parts) as FamilyParts)
    }));
    let shown = Arc::clone(view);
    let read = ReadFamilies::new(move || {
        let parts = gpus.read()?.chain(std::iter::once(shown.families()));
        Some(Box::new(parts) as FamilyParts)
    });
    outgoing::start_remote_write(&config.remote_write, &config.sampling.node(), read)
}

/// Closes the sink.
pub(crate) async fn close(sink: &dyn Sink, deadline: Instant, failure: &mut Option<Failure>) {
    match tokio::time::timeout_at(deadline, sink.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            failure.get_or_insert(Failure::caused(Exit::Io, "cannot close the sinks", error));
        }
        Err(_) => tracing::warn!("the sinks still write; rows not yet in files are safe in their logs"),
    }
}

/// The consequence of a worker's unexpected end.
pub(crate) fn ended_early(ended: Ended, config: &Config, queue: &MessageQueue) -> Failure {
    match ended {
        Ended::SinkFailed(error) => disk::failed("collector", Some(&config.store.dir), &causes(&error)),
        Ended::Queue(ReceiveError::NotSubscribed) => {
            let (group, topic) = (&config.collector.group, &queue.topic);
            let why = format!(
                "group {group} of topic {topic} was removed from the queue; the next start creates it anew"
            );
            Failure::new(Exit::Unavailable, why)
        }
        Ended::Queue(error) => {
            let (exit, advice) = match error {
                ReceiveError::Denied { .. } => (Exit::Permission, format!("; {}", queue.way_in())),
                _ => (Exit::Unavailable, String::new()),
            };
            Failure::new(exit, format!("nothing can be collected any more: {}{advice}", causes(&error)))
        }
        Ended::Refused(error) => error.into(),
        Ended::Stopped | Ended::SinkClosed => Failure::new(Exit::Bug, "a collector ended before its time"),
        Ended::Panicked(error) => Failure::caused(Exit::Bug, "a collector ended by a panic", error),
    }
}

/// The API's view of the collector.
#[derive(Debug)]
struct ServedCollector {
    progress: Arc<CollectorProgress>,
    sink: Arc<dyn Sink>,
    workers: usize,
    meter: Arc<Meter>,
}

impl CollectorView for ServedCollector {
    fn rows_stored(&self) -> u64 {
        self.progress.rows_stored.load(Ordering::Relaxed)
    }
}

impl Vitals for ServedCollector {
    fn health(&self) -> Health {
        Health::of_all([self.progress.health(), self.sink.health()])
    }

    fn families(&self) -> Vec<Family> {
        let mut families = families(&self.progress, self.workers);
        families.extend(self.sink.families());
        families.extend(self.meter.families());
        families.extend(outgoing::families());
        families
    }
}

/// `gpuvitals collect`
#[derive(Debug, Args)]
pub(crate) struct CollectFlags {
    /// Port of a queue on this machine [default: 9090]
    #[arg(long, value_name = "PORT", conflicts_with = "message_queue.address", display_order = 100)]
    broker_port: Option<u16>,
}

impl CollectFlags {
    /// The settings these flags change: the queue of this machine, whatever the file says.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let here = |port: u16| {
            [("message_queue.address", "inproc:".into()), ("broker.port", port.into())]
                .map(|(setting, value)| Override { setting, value, flag: "--broker-port" })
        };
        self.broker_port.into_iter().flat_map(here).collect()
    }
}
