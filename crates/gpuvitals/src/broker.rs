//! `gpuvitals broker`: the queue as a service of its own.
//!
//! It ends in order: it takes nothing new, consumers acknowledge what they have (a queue in memory is drained
//! first, into groups with consumers), then the connections close. All of it within the grace; the rest is
//! named. SIGHUP does not end it: it reads the tokens again.

mod opening;

use std::sync::Arc;

use gpuvitals_listener::PortKind;
use gpuvitals_listener::{AcceptError, Access, Figures, ListenerLimits};
use gpuvitals_queue::server::{HttpLimits, ServerConfig, ServerMeter};
use gpuvitals_queue::{BrokerSettings, DrainReport, Queue, server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::disk;
use crate::failure::{Exit, Failure};
use crate::listening;
use crate::queue::TAIL_PREFIX;
use crate::service::Service;

pub(crate) use opening::open;

/// The flag that names the queue's port.
pub(crate) const BROKER_PORT: &str = "--broker-port";

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals broker                                          in memory, for this machine
  gpuvitals broker --persistence-path /data/mq              kept on disk
  gpuvitals broker --listen 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file tokens
  gpuvitals queue stats                                     a look into it

Docs: docs/broker.md, what it promises and how it is run; docs/queue-protocol.md, how a client talks to it.";

/// Files beside the connections: segments of the log, listeners, standard streams.
const OTHER_FILES: u64 = 64;
/// Largest frame that a producer may send, bytes.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Part of the grace that the connections may take to close; the rest is the queue's.
const CONNECTIONS_SHARE: u32 = 4;

/// Runs until a signal, or until nothing can be stored any more.
///
/// # Errors
/// When a setting is wrong, a port is taken, the directory cannot be opened, or its disk failed for good.
pub(crate) fn run(config: &Config, service: Service) -> Result<(), Failure> {
    let files = crate::limits::raise_open_files();
    let wanted = u64::try_from(config.broker.connections_max).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    if let Some(files) = files.filter(|files| *files < wanted) {
        tracing::warn!(
            files,
            connections = config.broker.connections_max,
            "the limit of open files is lower than the connections there may be; ulimit -n or LimitNOFILE= raises it"
        );
    }
    service.runtime.clone().block_on(serve(config, service))
}

async fn serve(config: &Config, Service { announcer, mut signals, .. }: Service) -> Result<(), Failure> {
    let settings = &config.broker;
    // Before the directory is read, so that a taken port is reported at once.
    let (socket, address) = listening::listen(settings.listen, settings.port, "--port")?;
    let access = listening::access(&config.listener, address, PortKind::Queue)?;
    let queue = open(settings, config.shutdown.grace).await?;

    let mut serving = Serving::start(queue.clone(), Some(socket), server_config(config, access.clone()));
    crate::outgoing::show(serving.figures());
    announcer.tell(&format!("queue: {}://{address}", config.listener.scheme()));
    let failure = loop {
        tokio::select! {
            signal = signals.next() => {
                if signal != "SIGHUP" {
                    tracing::info!(signal, "stopping");
                    break None;
                }
                access.follow_files();
            }
            failure = serving.failed() => break Some(failure),
            reason = queue.failed() => break Some(disk::failed("queue", settings.directory(), &reason)),
        }
    };
    end(&queue, config).await;
    serving.stop().await;
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

/// Delivers the queue's contents to consumers, and names the rest. A disk that hangs does not hold it up for
/// ever.
pub(crate) async fn end(queue: &Queue, config: &Config) {
    let limit = config.shutdown.grace.saturating_sub(config.shutdown.grace / CONNECTIONS_SHARE);
    if let Ok(drained) = tokio::time::timeout(limit, queue.shutdown()).await {
        report(queue, &drained, &config.broker);
    } else {
        tracing::error!("the queue's disk does not answer; the queue ends without closing its log");
    }
}

fn report(queue: &Queue, drained: &DrainReport, settings: &BrokerSettings) {
    if drained.unacknowledged > 0 {
        let messages = drained.unacknowledged;
        tracing::warn!(messages, "consumers still had messages that they had not acknowledged");
    }
    for (topic, messages) in &drained.left {
        if settings.keeps() {
            tracing::info!(topic, messages, "kept for the next start");
        } else {
            let groups = queue.topic_stats(topic).map(|topic| topic.groups).unwrap_or_default();
            let behind = groups.iter().filter(|(_, group)| group.lag > 0);
            let groups: Vec<&str> = behind.map(|(name, _)| name.as_str()).collect();
            if !groups.is_empty() && groups.iter().all(|group| group.starts_with(TAIL_PREFIX)) {
                tracing::info!(topic, messages, "held for tails alone, and gone");
            } else {
                let groups = groups.join(", ");
                tracing::warn!(topic, messages, groups, "messages were left in memory and are gone");
            }
        }
    }
}

fn server_config(config: &Config, access: Access) -> ServerConfig {
    let drain = config.shutdown.grace / CONNECTIONS_SHARE;
    ServerConfig {
        limits: ListenerLimits {
            connections: config.broker.connections_max,
            drain,
            ..ListenerLimits::default()
        },
        http: HttpLimits { body_bytes: FRAME_BYTES_MAX, ..HttpLimits::default() },
        max_frame_bytes: FRAME_BYTES_MAX,
        access,
        origins: config.broker.cors.clone(),
        meter: Arc::new(ServerMeter::beside(crate::outgoing::families)),
    }
}

/// A queue on the network, as far as it is.
pub(crate) struct Serving {
    /// None: the port is taken.
    task: Option<JoinHandle<Result<(), AcceptError>>>,
    stop: CancellationToken,
    figures: Figures,
}

impl Serving {
    fn start(queue: Queue, socket: Option<TcpListener>, config: ServerConfig) -> Self {
        let stop = CancellationToken::new();
        let (shown, meter) = (queue.clone(), Arc::clone(&config.meter));
        let figures = Figures::new(move || server::families(&shown, &meter));
        let task = socket.map(|socket| tokio::spawn(server::serve(socket, queue, config, stop.clone())));
        Self { task, stop, figures }
    }

    /// Serves the queue of this process to tools and to publishers beside it. A port that is taken is done without;
    /// nothing of this process needs it.
    ///
    /// # Errors
    /// When a setting is wrong.
    pub(crate) fn beside(config: &Config, queue: &Queue) -> Result<Self, Failure> {
        let settings = &config.broker;
        let (socket, access) = match listening::listen(settings.listen, settings.port, BROKER_PORT) {
            Ok((socket, address)) => {
                let access = listening::access(&config.listener, address, PortKind::Queue)?;
                tracing::info!(%address, "the queue is served");
                (Some(socket), access)
            }
            Err(failure) => {
                tracing::warn!(port = settings.port, reason = %failure, "the queue is not served");
                (None, Access::open())
            }
        };
        Ok(Self::start(queue.clone(), socket, server_config(config, access)))
    }

    /// Figures of the queue and of its servers.
    pub(crate) fn figures(&self) -> Figures {
        self.figures.clone()
    }

    /// Waits until it ends before its time.
    async fn failed(&mut self) -> Failure {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(Ok(())) => Failure::new(Exit::Bug, "the server ended before its time"),
            Ok(Err(error)) => Failure::caused(Exit::Io, "the server failed", error),
            Err(error) => Failure::caused(Exit::Bug, "the server ended by a panic", error),
        }
    }

    /// Closes the connections.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Some(task) = self.task
            && !matches!(task.await, Ok(Ok(())))
        {
            tracing::error!("the server did not end in order");
        }
    }
}
