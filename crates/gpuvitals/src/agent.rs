//! `gpuvitals agent`: what the GPUs and the host of this node do, as metrics to be scraped.
//!
//! It ends in order: the listener closes and open scrapes are answered, the last samples go out by remote write, then the
//! sampling stops, then the last rows go to the queue.

use std::net::SocketAddr;
use std::time::Duration;

use gpuvitals_agent::{Agent, AgentError, Parts, SpoolError};
use gpuvitals_core::catalogue::Table;
use gpuvitals_core::figures::Family;
use gpuvitals_inputs::simulated;
use gpuvitals_listener::{Access, ListenerLimits, PortKind, Terms};
use gpuvitals_log::DISPLACED;
use gpuvitals_outgoing::remote_write::RemoteWrite;
use gpuvitals_queue::OpenError;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{Discovery, Finding, Verdict};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Config;
use crate::disk;
use crate::failure::{Exit, Failure};
use crate::incident_files::PARQUET;
use crate::service::{Service, Signals};
use crate::{listening, node_labels, outgoing, sampling};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals agent                                           http://127.0.0.1:9400/metrics
  gpuvitals agent --listen 0.0.0.0 --rate 10                for others to scrape, 10 samples a second
  gpuvitals agent --compat dcgm                             with the series of dcgm-exporter
  gpuvitals agent --mq-url grpc://queue:9090 --spool-dir /var/lib/gpuvitals/spool
  gpuvitals agent --flight-dir /var/lib/gpuvitals/flight    its last minutes on disk, kept around what happens

Docs: docs/agent.md; docs/flight.md; docs/exporter-metrics.md, what each series means.";

/// Threads that serve scrapes: a second one answers probes while the first renders.
pub(crate) const THREADS: usize = 2;
/// Part of the grace that open scrapes may take.
const SCRAPES_SHARE: u32 = 4;
/// Part of the grace that the last samples may take to the receiver of remote write.
const SENDING_SHARE: u32 = 4;
/// Most connections: a few Prometheus servers and probes need a handful.
const CONNECTIONS_MAX: usize = 128;
/// The variable in which systemd names the directories that it gives a service.
pub(crate) const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// Between two looks whether only a new process helps.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Reads all settings anew.
pub(crate) type Reload<'a> = &'a dyn Fn() -> Result<Config, Failure>;

/// Runs until a signal.
///
/// # Errors
/// When a setting is wrong, the port is taken, or there is no GPU where one is required.
pub(crate) fn run(config: Config, mut service: Service, reload: Reload<'_>) -> Result<(), Failure> {
    let machine = config.sampling.machine()?;
    // From the first moment on: unhandled it ends the process.
    let keeping = {
        let _inside = service.runtime.enter();
        signal(SignalKind::user_defined1()).map_err(|error| Failure::io("cannot handle SIGUSR1", error))?
    };
    let settings = config.sampling.clone();
    let Some(found) = service.open(move || sampling::discover(&settings))? else { return Ok(()) };
    tell(&found);
    let gpus = gpus_among(&found);
    if gpus == 0 {
        if config.agent.require_gpus {
            return Err(Failure::new(
                Exit::Unavailable,
                "no GPU was found, and agent.require_gpus is set; what is missing is said above",
            ));
        }
        tracing::warn!("no GPU was found; the host alone is shown, and GPUs are looked for every minute");
    }
    let Service { announcer, runtime, signals } = service;
    // Before anything is sampled, so that a port that is taken is said at once.
    let (socket, address) = {
        let _inside = runtime.enter();
        listening::listen(config.agent.listen, config.agent.port, "--port")?
    };
    let access = listening::access(&config.listener, address, PortKind::Metrics)?;
    let scheme = config.listener.scheme();

    let state_directory = std::env::var_os(STATE_DIRECTORY);
    let parts = Parts {
        settings: &config.agent,
        flight: &config.flight,
        files: PARQUET,
        state_directory: state_directory.as_deref(),
        sampling: &config.sampling,
        attribution: &config.attribution,
        queue: &config.message_queue,
        machine,
        found,
        simulated: simulated::probe::find,
        beside,
    };
    let agent = Agent::start(parts, &runtime).map_err(refused)?;
    let labels = node_labels::read(config.sampling.node(), config.agent.node_labels.clone());
    let _reading = AbortOnDropHandle::new(runtime.spawn(labels));
    outgoing::show(agent.figures());
    let sender = {
        let _inside = runtime.enter();
        let (settings, node) = (&config.remote_write, config.sampling.node());
        outgoing::start_remote_write(settings, &node, agent.figures().into())?
    };
    announcer.tell(&format!("metrics: {scheme}://{address}{}", config.agent.metrics_path));

    let running = RunningAgent { agent, sender, keeping, config, access, address };
    runtime.block_on(running.serve(socket, reload, signals))
}

/// Figures beside the agent's own.
fn beside() -> Vec<Family> {
    outgoing::families().into_iter().chain(node_labels::families()).collect()
}

/// Says what was found and what is missing, with what to do about it.
fn tell(found: &Discovery) {
    for Finding { verdict, subject, text, remedy, .. } in &found.findings {
        let remedy = remedy.as_deref();
        match verdict {
            Verdict::Good | Verdict::Note => tracing::info!(subject, remedy, "{text}"),
            Verdict::Partial => tracing::warn!(subject, remedy, "{text}"),
            Verdict::Broken => tracing::error!(subject, remedy, "{text}"),
        }
    }
    let drivers: Vec<_> = gpuvitals_sources::sampler::drivers(&found.probes);
    let drivers: Vec<&str> = drivers.into_iter().map(Driver::as_str).collect();
    tracing::info!(gpus = gpus_among(found), drivers = drivers.join(", "), "what is sampled");
}

fn gpus_among(found: &Discovery) -> usize {
    let gpus = found.probes.iter().filter(|probe| probe.table() == Table::GpuEvents);
    // A tool that names its GPUs at the first reading only counts as one.
    gpus.map(|probe| probe.targets().len().max(1)).sum()
}

fn refused(error: AgentError) -> Failure {
    let exit = match error {
        AgentError::Sampler(error) => return sampling::refused(error),
        AgentError::Credential(error) => return error.into(),
        AgentError::Connect(error) => return error.into(),
        AgentError::Gateway(error) => {
            return Failure::caused(Exit::Config, "configuration: flight.gateway", error);
        }
        AgentError::Spool(SpoolError::Open(OpenError::Locked { .. })) => Exit::Unavailable,
        AgentError::Spool(SpoolError::Open(OpenError::Directory { ref source, .. })) => Exit::of(source),
        _ => Exit::Io,
    };
    Failure::caused(exit, "cannot start the agent", error)
}

/// Everything that runs.
struct RunningAgent {
    agent: Agent,
    sender: Option<RemoteWrite>,
    /// SIGUSR1: the flight recorder keeps what it has.
    keeping: Signal,
    config: Config,
    access: Access,
    address: SocketAddr,
}

impl RunningAgent {
    async fn serve(
        mut self,
        socket: TcpListener,
        reload: Reload<'_>,
        mut signals: Signals,
    ) -> Result<(), Failure> {
        let stop = CancellationToken::new();
        let grace = self.config.shutdown.grace;
        let limits = ListenerLimits {
            connections: CONNECTIONS_MAX,
            body_bytes: 0,
            drain: grace / SCRAPES_SHARE,
            ..ListenerLimits::default()
        };
        let metrics_path = self.config.agent.metrics_path.clone();
        let app = self.agent.router(&metrics_path);
        let access = self.access.clone();
        let terms = Terms { access, limits, metrics_path, ..Terms::new(self.agent.meter()) };
        let mut serving = tokio::spawn(gpuvitals_listener::serve(socket, app, terms, stop.clone()));
        let mut looks = tokio::time::interval(LOOK_PAUSE);
        let failure = loop {
            tokio::select! {
                _ = looks.tick() => {
                    if let Some(why) = self.agent.end() {
                        break Some(Failure::new(Exit::Unavailable, why));
                    }
                    // Of any other failure of its disk the spool makes the best, in memory.
                    if let Some(why) = self.agent.spool_failed().filter(|why| why.contains(DISPLACED)) {
                        break Some(disk::failed("spool", self.config.agent.spool_dir(), &why));
                    }
                }
                _ = self.keeping.recv() => self.agent.keep_flight(),
                signal = signals.next() => {
                    if signal != "SIGHUP" {
                        tracing::info!(signal, "stopping");
                        break None;
                    }
                    self.reload(reload);
                }
                ended = &mut serving => {
                    break Some(Failure::new(Exit::Bug, format!("the server ended before its time: {ended:?}")));
                }
            }
        };
        stop.cancel();
        if !serving.is_finished()
            && let Err(error) = serving.await
        {
            tracing::error!(%error, "the server ended by a panic");
        }
        // While the sampler still knows its devices.
        if let Some(sender) = self.sender {
            sender.finish(grace / SENDING_SHARE).await;
        }
        self.agent.stop(grace).await;
        tracing::info!("stopped");
        failure.map_or(Ok(()), Err)
    }

    /// Brings new settings into force, as far as that goes while it runs. When they are wrong, the old ones stay.
    fn reload(&mut self, reload: Reload<'_>) {
        let replace = |new: Config| {
            self.access.replace(&new.listener)?;
            Ok(new)
        };
        let new = match reload().and_then(replace) {
            Ok(new) => new,
            Err(failure) => {
                self.agent.reload_failed();
                tracing::error!(reason = %failure, "the configuration was not reloaded; the old one stays in force");
                return;
            }
        };
        for what in needs_restart(&self.config, &new) {
            tracing::warn!(setting = what, "has changed; only a restart brings it into force");
        }
        if let Err(error) = self.access.check_address(self.address) {
            tracing::warn!(%error, "the port");
        }
        self.agent.reload(&self.config.agent, &new.agent);
        tracing::info!("the configuration was reloaded: series, certificates and tokens");
        self.config = new;
    }
}

/// Settings that are read once.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let (a, b) = (&old.agent, &new.agent);
    let changed = [
        ("log", old.log != new.log),
        ("sampling", old.sampling != new.sampling),
        ("agent.listen", a.listen != b.listen),
        ("agent.port", a.port != b.port),
        ("agent.metrics_path", a.metrics_path != b.metrics_path),
        ("agent.node_labels", a.node_labels != b.node_labels),
        ("agent.socket", a.socket != b.socket),
        ("flight", old.flight != new.flight),
        ("agent.spool_dir, spool_max or publish_interval", !a.publishes_as(b)),
        ("listener.request_rate or request_burst", !old.listener.limits_as(&new.listener)),
        ("message_queue", old.message_queue != new.message_queue),
        ("otlp", old.otlp != new.otlp),
        ("remote_write", old.remote_write != new.remote_write),
        ("attribution", old.attribution != new.attribution),
    ];
    changed.into_iter().filter(|(_, is)| *is).map(|(what, _)| what).collect()
}
