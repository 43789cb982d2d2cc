//! `gpuvitals up`: source → queue → store → API, in one process; the queue may be elsewhere.
//!
//! It ends in order: the source stops, the queue drains into the store, the store flushes and closes, the API
//! closes its streams last, so that a watcher sees the end. Parts that do not end within the grace are named.
//! It also ends when a sync of the store's log fails; its last line names the disk, and the next start
//! recovers.

mod status;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gpuvitals_api::{Api, Beside};
use gpuvitals_collect::{Member, Workers};
use gpuvitals_core::causes;
use gpuvitals_listener::{AcceptError, Figures, PortKind};
use gpuvitals_queue::Queue;
use gpuvitals_queue::link::{AnyProducer, Client, MessageQueue, Scheme};
use gpuvitals_settings::Override;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::clusters::{self, ClusterReaders};
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::listening;
use crate::pipe::{Counts, PipeError, Progress, SidePipe};
use crate::service::Service;
use crate::watched::Watched;
use crate::{broker, collect, disk, flight_jobs, queue_api, sinks, source};
use status::{Status, StatusQueue};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals up                                      the GPUs of this machine
  gpuvitals up --source simulated                   a fleet that needs no GPU
  gpuvitals up --csv rows.csv --times now --loop    recorded rows, as if live
  gpuvitals up --csv power.csv temperature.csv      several files of one machine
  gpuvitals up --replay telemetry                   the recording in a directory
  gpuvitals up --broker-port 9091                   beside a broker that has port 9090

Dashboard and API are then at http://127.0.0.1:8081, the queue at http://127.0.0.1:9090.";

/// Between two looks at the health of the parts: `since` is late by this at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Part of the grace that a source may take to stop: one that waits for standard input cannot be stopped.
const SOURCE_SHARE: u32 = 8;
/// Part of the grace that the queue may take to drain; the rest is the store's and the API's.
const QUEUE_SHARE: u32 = 2;

/// `gpuvitals up`
#[derive(Debug, Args)]
pub(crate) struct UpFlags {
    /// Port of the queue of this process; 0 takes a free one, and one that is taken is done without [default: 9090]
    #[arg(long, value_name = "PORT", display_order = 100)]
    broker_port: Option<u16>,
}

impl UpFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let port =
            |port: u16| Override { setting: "broker.port", value: port.into(), flag: broker::BROKER_PORT };
        self.broker_port.map(port).into_iter().collect()
    }
}

/// Runs until a signal, or until the source fails.
///
/// # Errors
/// When something cannot be opened, or the source fails.
pub(crate) fn run(config: &Config, mut service: Service) -> Result<(), Failure> {
    crate::limits::raise_open_files();
    let settings = (config.source.clone(), config.files.clone());
    let machine = (config.sampling.clone(), config.attribution.clone());
    let open = move || source::open((&settings.0, &settings.1), &machine.0, machine.1);
    let Some(opened) = service.open(open)? else { return Ok(()) };
    service.announcer.tell(opened.announcement());
    service.runtime.clone().block_on(serve(config, opened, service))
}

async fn serve(
    config: &Config,
    opened: source::Opened,
    Service { announcer, mut signals, .. }: Service,
) -> Result<(), Failure> {
    let (socket, address) = listening::listen(config.api.listen, config.api.port, "--port")?;
    let access = listening::access(&config.listener, address, PortKind::Service)?;
    let kept = sinks::store_config(&config.store, &config.collector);
    let (sink, store) = sinks::open(config, &kept).await?;
    let queueing = Queueing::of(config).await?;
    let queue = queueing.shown(&config.message_queue)?;
    let clusters =
        ClusterReaders::start(&config.kubernetes, &config.sampling.node(), || queueing.producer(config))?;
    let (outlet, findings) = SidePipe::of_findings(queueing.producer(config)?);
    let Queueing { here, producer, member, .. } = queueing;
    let progress = Arc::clone(&opened.progress);
    let status = Arc::new(Status::new(
        queue,
        (opened.kind(), Arc::clone(&progress)),
        (Arc::clone(&sink), config.collector.worker_count),
        (clusters.clone(), Arc::clone(&findings)),
    ));
    announcer.tell(&format!("dashboard and API: {}://{address}/", config.listener.scheme()));
    let [stop_source, give_up, stop_api] = [(); 3].map(|()| CancellationToken::new());
    let api = Api::new(config.api.config(&config.jobs), store, Arc::clone(&status) as _);
    let calls = gpuvitals_remote::serve(api.shown_history(), api.queries(), &stop_api).await;
    let (calls, queue) = (Beside::reading(calls), here.as_ref().map(|it| &it.0));
    let beside = queue_api::with(calls, queue, &config.message_queue)?;
    api.keep_findings(outlet, &config.sampling.node());
    flight_jobs::keep(&api, &config.flight);
    crate::outgoing::show(figures(api.clone(), here.as_ref().map(|it| it.1.figures())));
    let mut server = tokio::spawn(gpuvitals_api::serve(socket, api, beside, access, stop_api.clone()));
    let (sink_too, collector) = (Arc::clone(&sink), Arc::clone(status.collector()));
    let mut collectors = Workers::start(&config.collector, &member, sink_too, collector).await?;
    let mut looks = tokio::time::interval(LOOK_PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut source = opened.start(producer, &stop_source, &give_up);

    let mut failure = loop {
        tokio::select! {
            signal = signals.next() => { tracing::info!(signal, "stopping"); break None }
            ended = source.ended() => match source_ended(ended, &progress, &status) {
                None => {}
                failure => break failure,
            },
            _ = looks.tick() => status.look(),
            ended = &mut server => break Some(server_ended(ended)),
            ended = collectors.ended() => {
                break Some(collect::ended_early(ended, config, &config.message_queue));
            }
            failure = queue_failed(here.as_ref().map(|(queue, _)| queue), config) => break Some(failure),
        }
    };

    // One deadline for everything, since the sender of the signal has one.
    let (deadline, patience) = (Instant::now() + config.shutdown.grace, config.shutdown.grace / SOURCE_SHARE);
    stop_source.cancel();
    readings_end(&mut source, (clusters.as_deref(), &findings), &give_up, patience).await;
    if let Some((queue, serving)) = here {
        broker::end(&queue, config).await;
        collectors.abandon();
        serving.stop().await;
    }
    collectors.finish(config.shutdown.grace / QUEUE_SHARE).await;
    collect::close(&*sink, deadline, &mut failure).await;
    stop_api.cancel();
    server_ends(&mut server, deadline).await;
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

/// Waits until a gateway that was told to stop has.
pub(crate) async fn server_ends<T>(server: &mut JoinHandle<T>, deadline: Instant) {
    if !server.is_finished() && tokio::time::timeout_at(deadline, server).await.is_err() {
        tracing::warn!("the API still had open connections");
    }
}

/// The source, which was told to stop, the clusters and the findings hand their last rows to the queue, or give them up after this
/// time.
async fn readings_end(
    source: &mut source::RunningSource,
    (clusters, findings): (Option<&ClusterReaders>, &SidePipe),
    give_up: &CancellationToken,
    patience: Duration,
) {
    let source_ends = async {
        if source.pipe.is_some() && tokio::time::timeout(patience, source.ended()).await.is_err() {
            tracing::warn!("the source still waits for its input or for the queue");
            give_up.cancel();
        }
    };
    tokio::join!(source_ends, clusters::end(clusters, patience), findings.end(patience));
}

/// The consequence of the source's end: a failure if it was a bug. The rows read so far are worth serving.
fn source_ended(ended: Result<(), PipeError>, progress: &Progress, status: &Status) -> Option<Failure> {
    match ended {
        Ok(()) => {
            let Counts { rows, bad, .. } = progress.counts();
            tracing::info!(rows, bad_rows = bad, "the source has handed over everything");
            if let Some(why) = progress.nothing_read() {
                tracing::error!("{why}");
                status.collector().source_broke(&why);
            }
            None
        }
        Err(error @ PipeError::Panicked) => Some(Failure::caused(Exit::Bug, "the source failed", error)),
        Err(error) => {
            let reason = causes(&error);
            tracing::error!(reason, "the source failed; the rows read so far are served");
            status.collector().source_broke(&reason);
            None
        }
    }
}

/// Waits until the queue of this process, if it has one, can store nothing more.
async fn queue_failed(queue: Option<&Queue>, config: &Config) -> Failure {
    match queue {
        Some(queue) => disk::failed("queue", config.broker.directory(), &queue.failed().await),
        None => std::future::pending().await,
    }
}

/// Figures of the gateway, of the parts beside it, and of the queue in this process.
fn figures(gateway: Api, queue: Option<Figures>) -> Figures {
    Figures::new(move || gateway.families().into_iter().chain(queue.iter().flat_map(Figures::read)).collect())
}

/// The failure of a gateway that ended by itself.
pub(crate) fn server_ended(ended: Result<Result<(), AcceptError>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Ok(())) => Failure::new(Exit::Bug, "the API ended before its time"),
        Ok(Err(error)) => Failure::caused(Exit::Io, "the API failed", error),
        Err(error) => Failure::caused(Exit::Bug, "the API ended by a panic", error),
    }
}

/// The queue that was asked for, from both ends.
struct Queueing {
    /// The queue and its ports, if it is in this process.
    here: Option<(Queue, broker::Serving)>,
    client: Client,
    producer: AnyProducer,
    member: Member,
}

impl Queueing {
    async fn of(config: &Config) -> Result<Self, Failure> {
        let settings = &config.message_queue;
        let (here, client) = if settings.address.scheme == Scheme::InProcess {
            let queue = broker::open(&config.broker, config.shutdown.grace).await?;
            let serving = broker::Serving::beside(config, &queue)?;
            let client = Client::in_process(queue.clone());
            (Some((queue, serving)), client)
        } else {
            (None, settings.client()?)
        };
        let producer = client.producer(settings.topic.as_str())?;
        let member = Member::new(&config.collector, &settings.topic, client.clone());
        Ok(Self { here, client, producer, member })
    }

    /// One more producer.
    fn producer(&self, config: &Config) -> Result<AnyProducer, Failure> {
        Ok(self.client.producer(config.message_queue.topic.as_str())?)
    }

    /// The queue as the gateway sees it.
    fn shown(&self, settings: &MessageQueue) -> Result<StatusQueue, Failure> {
        Ok(match &self.here {
            Some((queue, _)) => StatusQueue::Here(queue.clone(), settings.address.to_string()),
            None => StatusQueue::Elsewhere(Watched::queue(settings)?),
        })
    }
}
