//! `gpuvitals agent`: what the GPUs and the host of this node do, as metrics to be scraped.
//!
//! Sampling, scraping and asking for owners do not wait for each other: each device has its worker, one thread takes what they
//! hand over, a scrape renders from memory. It ends in order: the listener closes and open scrapes are answered, then the
//! sampling stops; a device that hangs is named and left behind.

mod arrivals;
mod node;
mod own;
mod publishing;
mod scrape;
mod server;
mod settings;
mod spool;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::catalogue::Table;
use gpuvitals_core::clock;
use gpuvitals_core::clock::Moment;
use gpuvitals_exposition::Exposition;
use gpuvitals_listener::PortKind;
use gpuvitals_listener::{Access, Figures, Limits, Terms, Vitals};
use gpuvitals_sources::attribution::{Asking, Ownership};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{Discovery, Finding, Verdict};
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::listening;
use crate::service::{Service, Signals};
use arrivals::Arrivals;
use node::Node;
use own::Counts;
use publishing::Publisher;
use scrape::Scraper;
use server::Shown;

pub(crate) use settings::{Agent, EXAMPLES};

/// Threads that serve scrapes: a second one answers probes while the first renders.
pub(crate) const THREADS: usize = 2;
/// Part of the grace that open scrapes may take.
const SCRAPES_SHARE: u32 = 4;
/// Part of the grace that sampling may take: a reading that is not out for good comes back sooner.
const SAMPLING_SHARE: u32 = 8;
/// Part of the grace that the last rows may take to the queue.
const PUBLISHING_SHARE: u32 = 4;
/// Most connections: a few Prometheus servers and probes need a handful.
const CONNECTIONS_MAX: usize = 128;
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
    let sampling = config.sampling.clone();
    let Some(found) = service.open(move || sampling.discover())? else { return Ok(()) };
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

    let ownership = Arc::new(Ownership::new());
    let (node, background) = begin(&config, machine, found, &ownership, &runtime)?;
    let counts = Arc::new(Counts::new(&config.sampling.node(), clock::now_ns()));
    let scraper = Scraper::new(Arc::clone(&node), Arc::clone(&counts), Arc::clone(&ownership));
    let shown = Arc::new(Shown { node: Arc::clone(&node), scraper });
    let figures = Arc::clone(&shown);
    crate::telemetry::show(Figures::new(move || figures.families()));
    announcer.tell(&format!("metrics: {scheme}://{address}{}", config.agent.metrics_path));

    let agent = Running { node, counts, shown, access, address };
    runtime.block_on(agent.serve(socket, config, reload, signals, background))
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

/// Threads beside the workers. They end when the other end of their channel is dropped.
struct Background {
    feed: JoinHandle<()>,
    asking: Asking,
    stop: Vec<SyncSender<()>>,
}

/// Starts sampling, and what goes with it.
fn begin(
    config: &Config,
    machine: Machine,
    found: Discovery,
    ownership: &Arc<Ownership>,
    runtime: &Handle,
) -> Result<(Arc<Node>, Background), Failure> {
    // Totals grow with the monotonic clock: a step of the wall clock is no time in which energy was used.
    let terms = SamplerConfig { monotonic: true, ..config.sampling.sampler() };
    let sampler = Sampler::start(found.probes, terms, Arc::clone(ownership.owners()))
        .map_err(crate::sampling::refused)?;
    let publisher = Publisher::open(config, runtime)?;
    let node = Arc::new(Node::new(sampler, config.agent.exposition()).publishing(publisher));
    let (stop_feed, feed_stopped) = sync_channel(0);
    let feed = spawn("feed", {
        let node = Arc::clone(&node);
        move || node.feed(&feed_stopped)
    })?;
    let asking =
        config.attribution.ask(ownership, &machine, found.processes).map_err(crate::sampling::unasked)?;
    let (stop_arrivals, arrivals_stopped) = sync_channel(0);
    let forced = config.sampling.drivers.clone();
    let watching = Arc::clone(&node);
    let arrivals = Arrivals::new(machine, forced, found.findings, asking.tables());
    spawn("arrivals", move || arrivals.watch(&watching, &arrivals_stopped))?;
    Ok((node, Background { feed, asking, stop: vec![stop_feed, stop_arrivals] }))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|e| Failure::io(format!("cannot start the thread {name}"), e))
}

/// Everything that runs.
struct Running {
    node: Arc<Node>,
    counts: Arc<Counts>,
    shown: Arc<Shown>,
    access: Access,
    address: SocketAddr,
}

impl Running {
    async fn serve(
        self,
        socket: TcpListener,
        mut config: Config,
        reload: Reload<'_>,
        mut signals: Signals,
        mut background: Background,
    ) -> Result<(), Failure> {
        let stop = CancellationToken::new();
        let grace = config.shutdown.grace;
        let limits = Limits {
            connections: CONNECTIONS_MAX,
            body_bytes: 0,
            drain: grace / SCRAPES_SHARE,
            ..Limits::default()
        };
        let metrics_path = config.agent.metrics_path.clone();
        let app = Arc::clone(&self.shown).router(&metrics_path);
        let access = self.access.clone();
        let terms = Terms { access, limits, metrics_path, ..Terms::new(Arc::clone(&self.counts.listener)) };
        let mut serving = tokio::spawn(gpuvitals_listener::serve(socket, app, terms, stop.clone()));
        let mut looks = tokio::time::interval(LOOK_PAUSE);
        let failure = loop {
            tokio::select! {
                _ = looks.tick() => {
                    if let Some(why) = self.node.end(Moment::now()) {
                        break Some(Failure::new(Exit::Unavailable, why));
                    }
                }
                signal = signals.next() => {
                    if signal != "SIGHUP" {
                        tracing::info!(signal, "stopping");
                        break None;
                    }
                    self.reload(&mut config, reload);
                }
                ended = &mut serving => {
                    break Some(Failure::new(Exit::Bug, format!("the server ended before its time: {ended:?}")));
                }
            }
        };
        stop.cancel();
        drop(std::mem::take(&mut background.asking));
        if !serving.is_finished()
            && let Err(error) = serving.await
        {
            tracing::error!(%error, "the server ended by a panic");
        }
        self.stop_sampling(grace / SAMPLING_SHARE, background);
        if let Some(publisher) = self.node.publisher() {
            publisher.finish(grace / PUBLISHING_SHARE).await;
        }
        tracing::info!("stopped");
        failure.map_or(Ok(()), Err)
    }

    fn stop_sampling(&self, patience: Duration, background: Background) {
        for target in self.node.sampler().stop(patience) {
            let gpu = target.identity.key();
            tracing::warn!(gpu = gpu.as_deref(), driver = %target.driver, "a device still hangs; its reading is left behind");
        }
        drop(background.stop);
        if background.feed.join().is_err() {
            tracing::error!("the feed ended by a panic");
        }
    }

    /// Brings new settings into force, as far as that goes while it runs. When they are wrong, the old ones stay.
    fn reload(&self, config: &mut Config, reload: Reload<'_>) {
        let replace = |new: Config| {
            self.access.replace(&new.listener)?;
            Ok(new)
        };
        let new = match reload().and_then(replace) {
            Ok(new) => new,
            Err(failure) => {
                self.counts.reload_worked.store(0, Ordering::Relaxed);
                tracing::error!(reason = %failure, "the configuration was not reloaded; the old one stays in force");
                return;
            }
        };
        for what in needs_restart(config, &new) {
            tracing::warn!(setting = what, "has changed; only a restart brings it into force");
        }
        if !new.agent.exposes_as(&config.agent) {
            *self.node.exposition() = Exposition::new(new.agent.exposition());
            tracing::info!("other series are shown; windows and totals begin anew");
        }
        if let Err(error) = self.access.check_address(self.address) {
            tracing::warn!(%error, "the port");
        }
        self.counts.reload_worked.store(1, Ordering::Relaxed);
        self.counts.reloaded_ns.store(clock::now_ns(), Ordering::Relaxed);
        tracing::info!("the configuration was reloaded: series, certificates and tokens");
        *config = new;
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
        ("agent.spool_dir, spool_max or publish_interval", !a.publishes_as(b)),
        ("message_queue", old.message_queue != new.message_queue),
        ("otlp", old.otlp != new.otlp),
        ("attribution", old.attribution != new.attribution),
    ];
    changed.into_iter().filter(|(_, is)| *is).map(|(what, _)| what).collect()
}
