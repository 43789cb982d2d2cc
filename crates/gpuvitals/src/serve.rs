//! `gpuvitals serve`: REST, gRPC, live streams and the page over collectors elsewhere.
//!
//! Every question goes to all collectors at once and their answers are put together. With a database ranges of time are asked
//! there, and the collectors have the newest rows.

mod collectors;
mod status;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_api::{Api, Beside};
use gpuvitals_core::history::History;
use gpuvitals_listener::{Figures, PortKind};
use gpuvitals_remote::{Merged, SharedDatabase};
use tokio_util::sync::CancellationToken;

use crate::clusters::{self, ClusterReaders};
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::pipe::SidePipe;
use crate::service::Service;
use crate::watched::Watched;
use crate::{flight_jobs, listening, queue_api, sinks, up};
use collectors::Collectors;
use status::Status;

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals serve                                           the collector and the queue of this machine
  gpuvitals serve --collectors http://a:8080,http://b:8080 --mq-url http://queue:9090
  gpuvitals serve --collectors http://collectors:8080       every address of that name, looked up again and again

Dashboard and API are then at http://127.0.0.1:8081. Docs: docs/serve.md.";

/// Between two looks at the addresses of names, and at the database.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Part of the grace that the last rows of clusters and findings may take on their way to the queue.
const ROWS_SHARE: u32 = 2;

/// Runs until a signal.
///
/// # Errors
/// When something cannot be opened, or the listener fails.
pub(crate) fn run(config: &Config, service: Service) -> Result<(), Failure> {
    crate::limits::raise_open_files();
    service.runtime.clone().block_on(serve(config, service))
}

async fn serve(config: &Config, Service { announcer, mut signals, .. }: Service) -> Result<(), Failure> {
    let (socket, address) = listening::listen(config.api.listen, config.api.port, "--port")?;
    let access = listening::access(&config.listener, address, PortKind::Service)?;
    let queue_settings = config.queue_elsewhere();
    let queue = Watched::queue(&queue_settings)?;
    let merged = Arc::new(
        Merged::new(Vec::new(), config.gateway.timeout).with_bounds(config.collector.fleet_bounds()),
    );
    let collectors = Arc::new(Collectors::new(&config.gateway, Arc::clone(&merged))?);
    let database = if config.database.host.is_empty() {
        None
    } else {
        let keep = sinks::store_config(&config.store, &config.collector).keep;
        Some(sinks::open_postgres(&config.database, keep, config.collector.fleet_bounds()).await?)
    };
    let history: Arc<dyn History> = match &database {
        Some(database) => Arc::new(SharedDatabase { database: Arc::clone(database) as _, services: merged }),
        None => merged,
    };
    collectors.look_up().await;
    let producer = || Ok(queue_settings.client()?.producer(queue_settings.topic.as_str())?);
    let clusters = ClusterReaders::start(&config.kubernetes, &config.sampling.node(), producer)?;
    let (outlet, findings) = SidePipe::of_findings(producer()?);
    let status = Arc::new(Status {
        queue,
        collectors: Arc::clone(&collectors),
        clusters: clusters.clone(),
        findings: Arc::clone(&findings),
    });

    let names: Vec<String> = config.gateway.collectors.iter().map(ToString::to_string).collect();
    announcer.tell(&format!("asking {} and the queue {}", names.join(", "), status.queue.name()));
    announcer.tell(&format!("dashboard and API: {}://{address}/", config.listener.scheme()));
    let stop = CancellationToken::new();
    let api = Api::new(config.api.config(&config.jobs), history, status);
    let calls = gpuvitals_remote::serve(api.shown_history(), api.queries(), &stop).await;
    let beside = queue_api::with(Beside::reading(calls), None, &queue_settings)?;
    api.keep_findings(outlet, &config.sampling.node());
    flight_jobs::keep(&api, &config.flight);
    let shown = api.clone();
    crate::outgoing::show(Figures::new(move || shown.families()));
    let mut server = tokio::spawn(gpuvitals_api::serve(socket, api, beside, access, stop.clone()));
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let looking = async {
        loop {
            looks.tick().await;
            collectors.look_up().await;
            if let Some(database) = &database {
                // What is wrong is in its health.
                let _in_health = database.ping().await;
            }
        }
    };

    let failure = tokio::select! {
        signal = signals.next() => { tracing::info!(signal, "stopping"); None }
        ended = &mut server => Some(up::server_ended(ended)),
        () = looking => Some(Failure::new(Exit::Bug, "nothing looks for collectors any more")),
    };
    let deadline = tokio::time::Instant::now() + config.shutdown.grace;
    let patience = config.shutdown.grace / ROWS_SHARE;
    tokio::join!(clusters::end(clusters.as_deref(), patience), findings.end(patience));
    stop.cancel();
    up::server_ends(&mut server, deadline).await;
    tracing::info!("stopped");
    failure.map_or(Ok(()), Err)
}
