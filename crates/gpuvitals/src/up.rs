//! `gpuvitals up`: source → queue → store → API, in one process.
//!
//! It ends in order: the source stops, the queue drains into the store, the store flushes and closes, the API
//! closes its streams last, so that a watcher sees the end. What does not end within the grace is named.

mod source;
mod status;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_api::{Api, ApiConfig, ServeError};
use gpuvitals_core::causes;
use gpuvitals_queue::link::Scheme;
use gpuvitals_queue::{ConsumerOptions, InProcessConsumer, Queue};
use gpuvitals_store::{Store, StoreConfig, StoreError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::logging::Announcer;
use crate::{broker, collect};
use source::Broken;
use status::Status;

/// The group under which the store's workers take rows.
const GROUP: &str = "store";
/// Part of the grace that a source may take to stop: one that waits for standard input cannot be stopped.
const SOURCE_SHARE: u32 = 8;

/// Runs until a signal, or until what it was asked to do cannot be done.
///
/// # Errors
/// When something cannot be opened, or the source fails.
pub(crate) fn run(config: &Config, announcer: Announcer) -> Result<(), Failure> {
    crate::limits::raise_open_files();
    if config.message_queue.address.scheme != Scheme::InProcess {
        return Err(Failure::new(
            Exit::Config,
            format!(
                "configuration: message_queue.address is {}; up has its queue in the same process: inproc:",
                config.message_queue.address
            ),
        ));
    }
    let opened = source::open(config)?;
    announcer.tell(opened.announcement());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::io("cannot start the runtime", e))?;
    let outcome = runtime.block_on(serve(config, opened, announcer));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(config: &Config, opened: source::Opened, announcer: Announcer) -> Result<(), Failure> {
    let listener = listen(&config.api).await?;
    let address = listener.local_addr().map_err(|e| Failure::io("cannot ask for the address", e))?;
    let store = open_store(&config.store)?;
    let queue = broker::open(config).await?;
    let workers = subscribe(config, &queue).await?;
    let serving = broker::Serving::beside(config, &queue).await?;
    let status = Arc::new(Status::new(queue.clone(), opened.progress(), opened.kind()));

    announcer.tell(&format!("dashboard and API: http://{address}/"));
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "everyone who reaches this address can read everything: there is no login yet");
    }

    let (stop_source, abandon, stop_api) =
        (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let api = Api::new(api_config(&config.api), store.clone(), Arc::clone(&status) as _);
    let mut server = tokio::spawn(gpuvitals_api::serve(listener, api, stop_api.clone()));
    let terms = collect::Terms {
        store: store.clone(),
        progress: Arc::clone(status.collector()),
        ack_timeout: Duration::from_secs(config.collector.ack_timeout_seconds),
        stop: CancellationToken::new(),
        abandon: abandon.clone(),
    };
    let mut collectors = collect::spawn(workers, &terms);
    let mut source_broken = false;
    let source_thread = opened.spawn(&queue, &config.message_queue.topic, &stop_source);
    let mut failure = loop {
        tokio::select! {
            signal = crate::signal::terminated() => { tracing::info!(signal, "stopping"); break None }
            broken = source_thread.failed(), if !source_broken => match broken {
                Broken::Panicked => break Some(Failure::new(Exit::Bug, "the source's thread panicked")),
                // What was read is worth serving.
                Broken::Input(reason) => {
                    source_broken = true;
                    tracing::error!(reason, "the source broke off; what was read is served");
                    status.collector().source_broke(&reason);
                }
            },
            ended = &mut server => break Some(server_ended(ended)),
            Some(ended) = collectors.join_next() => break Some(collect::ended_early(ended)),
        }
    };

    // One deadline for all of it, since whoever sent the signal has one.
    let deadline = tokio::time::Instant::now() + config.shutdown.grace;
    stop_source.cancel();
    source_thread.join(config.shutdown.grace / SOURCE_SHARE).await;
    let drained = queue.shutdown().await;
    abandon.cancel();
    while collectors.join_next().await.is_some() {}
    serving.stop().await;
    for (topic, rows) in &drained.left {
        tracing::warn!(topic, rows, "rows were left in the queue; nothing acknowledged is among them");
    }
    match tokio::time::timeout_at(deadline, store.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            failure.get_or_insert(Failure::caused(Exit::Io, "closing the store", error));
        }
        Err(_) => tracing::warn!("the store still writes; what is not in files is safe in its log"),
    }
    stop_api.cancel();
    if !server.is_finished() && tokio::time::timeout_at(deadline, &mut server).await.is_err() {
        tracing::warn!("the API still had open connections");
    }
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}

fn server_ended(ended: Result<Result<(), ServeError>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Ok(())) => Failure::new(Exit::Bug, "the API ended before its time"),
        Ok(Err(error @ ServeError::Origin { .. })) => {
            Failure::caused(Exit::Config, "configuration: api.cors", error)
        }
        Ok(Err(error)) => Failure::caused(Exit::Io, "the API failed", error),
        Err(error) => Failure::caused(Exit::Bug, "the API ended by a panic", error),
    }
}

async fn subscribe(config: &Config, queue: &Queue) -> Result<Vec<InProcessConsumer>, Failure> {
    let options = ConsumerOptions {
        max_in_flight: NonZeroU32::new(config.collector.max_in_flight).unwrap_or(NonZeroU32::MIN),
        max_batch: NonZeroU32::new(config.collector.batch_size),
        ack_timeout: Some(Duration::from_secs(config.collector.ack_timeout_seconds)),
        ..ConsumerOptions::default()
    };
    let mut workers = Vec::with_capacity(config.collector.worker_count);
    for _ in 0..config.collector.worker_count {
        let joined = queue.subscribe(&config.message_queue.topic, GROUP, &options).await;
        workers.push(joined.map_err(|e| {
            Failure::new(Exit::Config, format!("configuration: message_queue.topic: {}", causes(&e)))
        })?);
    }
    Ok(workers)
}

fn api_config(api: &config::Api) -> ApiConfig {
    ApiConfig {
        stale_after: api.stale_after,
        cors: api.cors.clone(),
        cache_entries: api.cache_entries,
        ..ApiConfig::default()
    }
}

async fn listen(api: &config::Api) -> Result<TcpListener, Failure> {
    TcpListener::bind((api.listen, api.port)).await.map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
            "; is another gpuvitals running? --port 0 takes a free one"
        } else {
            ""
        };
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Unavailable,
        };
        Failure::caused(exit, format!("cannot listen on {}:{}{hint}", api.listen, api.port), error)
    })
}

fn open_store(settings: &config::Store) -> Result<Store, Failure> {
    let config = StoreConfig {
        flush_age: settings.flush_age,
        flush_rows: settings.flush_rows,
        flush_bytes: usize::try_from(settings.flush_bytes).unwrap_or(usize::MAX),
        ..StoreConfig::new(&settings.dir)
    };
    let (store, recovered) = Store::open(config).map_err(|error| {
        let exit = match &error {
            StoreError::Locked(_) => Exit::Unavailable,
            StoreError::Io { source, .. } => Exit::of(source),
            _ => Exit::Io,
        };
        Failure::caused(exit, format!("cannot open the data directory {}", settings.dir.display()), error)
    })?;
    tracing::info!(
        dir = %settings.dir.display(), gpus = recovered.gpus, files = recovered.files, file_rows = recovered.file_rows,
        log_rows = recovered.log_rows, torn_bytes = recovered.torn_bytes, "store is open"
    );
    for damage in &recovered.damage {
        tracing::error!(damage, "something stored is damaged; the rest is served");
    }
    Ok(store)
}
