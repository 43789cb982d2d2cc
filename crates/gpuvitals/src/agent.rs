//! `gpuvitals agent`: what the GPUs and the host of this node do, as metrics to be scraped.
//!
//! Sampling, scraping and asking for owners do not wait for each other: each device has its worker, one thread takes what they
//! hand over, a scrape renders from memory. It ends in order: the listener closes and open scrapes are answered, then the
//! sampling stops; a device that hangs is named and left behind.

mod access;
mod arrivals;
mod node;
mod own;
mod publishing;
mod scrape;
mod server;
mod settings;
mod spool;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::catalogue::Table;
use gpuvitals_core::clock;
use gpuvitals_core::clock::Moment;
use gpuvitals_exposition::Exposition;
use gpuvitals_listener::Figures;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{Finding, Found, Verdict};
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::logging::Announcer;
use crate::ownership::Ownership;
use access::{Access, Written};
use arrivals::Arrivals;
use node::Node;
use own::Counts;
use publishing::Publisher;
use scrape::Scraper;
use server::{Server, Terms};

pub(crate) use settings::{Agent, EXAMPLES};

/// Threads that serve scrapes: a second one answers probes while the first renders.
const SERVING_THREADS: usize = 2;
/// Part of the grace that open scrapes may take.
const SCRAPES_SHARE: u32 = 4;
/// Part of the grace that sampling may take: a reading that is not out for good comes back sooner.
const SAMPLING_SHARE: u32 = 8;
/// Part of the grace that the last rows may take to the queue.
const PUBLISHING_SHARE: u32 = 4;
/// Between two looks whether certificates or logins were written anew, for nobody sends a signal when Kubernetes renews a secret,
/// and whether only a new process helps.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Reads all settings anew.
pub(crate) type Reload<'a> = &'a dyn Fn() -> Result<Config, Failure>;

/// Runs until a signal.
///
/// # Errors
/// When a setting is wrong, the port is taken, or there is no GPU where one is required.
pub(crate) fn run(config: Config, announcer: Announcer, reload: Reload<'_>) -> Result<(), Failure> {
    // Looked at first: what is written while it is read is read again.
    let written = Access::written(&config.agent);
    let access = Access::load(&config.agent)?;
    let machine = config.sampling.machine()?;
    let found = config.sampling.discover()?;
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVING_THREADS)
        .enable_all()
        .build()
        .map_err(|e| Failure::io("cannot start the runtime", e))?;
    // Before anything is sampled, so that a port that is taken is said at once.
    let listener = runtime.block_on(listen(&config.agent))?;
    let address = listener.local_addr().map_err(|e| Failure::io("cannot ask for the address", e))?;
    let scheme = if access.tls.is_some() { "https" } else { "http" };
    if !address.ip().is_loopback() && access.is_open() {
        tracing::warn!(%address, "everyone who reaches this address can read the metrics; see agent.basic_auth_file and agent.tls_client_ca");
    }

    let ownership = Arc::new(Ownership::new());
    let stop_asking = CancellationToken::new();
    let asking = (runtime.handle(), stop_asking.clone());
    let (node, background) = begin(&config, machine, found, &ownership, asking)?;
    let counts = Arc::new(Counts::new(&config.sampling.node(), clock::now_ns()));
    let scraper = Scraper::new(Arc::clone(&node), Arc::clone(&counts), Arc::clone(&ownership));
    let terms = Terms { metrics_path: config.agent.metrics_path.clone(), access };
    let server = Arc::new(Server::new(Arc::clone(&node), Arc::clone(&counts), scraper, terms));
    let shown = Arc::clone(&server);
    crate::telemetry::show(Figures::new(move || shown.families()));
    let hangups = {
        let _inside = runtime.enter();
        crate::signal::hangups()?
    };
    announcer.tell(&format!("metrics: {scheme}://{address}{}", config.agent.metrics_path));

    let agent = Running { node, counts, stop_asking, server, written };
    let outcome = runtime.block_on(agent.serve(listener, config, reload, hangups, background));
    // A worker of the runtime never waits for a device; what is left here is a name lookup at most.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Says what was found and what is missing, with what to do about it.
fn tell(found: &Found) {
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

fn gpus_among(found: &Found) -> usize {
    let gpus = found.probes.iter().filter(|probe| probe.table() == Table::GpuEvents);
    // A tool that names its GPUs at the first reading only counts as one.
    gpus.map(|probe| probe.targets().len().max(1)).sum()
}

async fn listen(settings: &Agent) -> Result<TcpListener, Failure> {
    TcpListener::bind((settings.listen, settings.port)).await.map_err(|error| {
        let (exit, hint) = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                (Exit::Unavailable, "; is another exporter running? --port 0 takes a free one")
            }
            std::io::ErrorKind::PermissionDenied => (Exit::Permission, ""),
            _ => (Exit::Unavailable, ""),
        };
        Failure::caused(exit, format!("cannot listen on {}:{}{hint}", settings.listen, settings.port), error)
    })
}

/// Threads beside the workers. They end when the other end of their channel is dropped.
struct Background {
    feed: JoinHandle<()>,
    stop: Vec<SyncSender<()>>,
}

/// Starts sampling, and what goes with it.
fn begin(
    config: &Config,
    machine: Machine,
    found: Found,
    ownership: &Arc<Ownership>,
    (runtime, stop_asking): (&Handle, CancellationToken),
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
    let tables = ownership.follow(&config.attribution, &machine, found.processes, runtime, stop_asking)?;
    let (stop_arrivals, arrivals_stopped) = sync_channel(0);
    let forced = config.sampling.drivers.clone();
    let watching = Arc::clone(&node);
    let arrivals = Arrivals::new(machine, forced, found.findings, tables);
    spawn("arrivals", move || arrivals.watch(&watching, &arrivals_stopped))?;
    Ok((node, Background { feed, stop: vec![stop_feed, stop_arrivals] }))
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
    stop_asking: CancellationToken,
    server: Arc<Server>,
    /// What certificates and logins were when they were read.
    written: Vec<Option<Written>>,
}

impl Running {
    async fn serve(
        mut self,
        listener: TcpListener,
        mut config: Config,
        reload: Reload<'_>,
        mut hangups: Signal,
        background: Background,
    ) -> Result<(), Failure> {
        let stop = CancellationToken::new();
        let grace = config.shutdown.grace;
        let serving = Arc::clone(&self.server).serve(listener, stop.clone(), grace / SCRAPES_SHARE);
        let mut serving = tokio::spawn(serving);
        // One future for all rounds, so that no signal falls between two.
        let mut terminated = std::pin::pin!(crate::signal::terminated());
        let mut looks = tokio::time::interval(LOOK_PAUSE);
        let failure = loop {
            tokio::select! {
                _ = looks.tick() => {
                    if let Some(why) = self.node.end(Moment::now()) {
                        break Some(Failure::new(Exit::Unavailable, why));
                    }
                    let now = Access::written(&config.agent);
                    if now != self.written {
                        self.renew(&config);
                    }
                    self.written = now;
                }
                signal = &mut terminated => {
                    tracing::info!(signal, "stopping");
                    break None;
                }
                Some(()) = hangups.recv() => self.reload(&mut config, reload),
                ended = &mut serving => {
                    break Some(Failure::new(Exit::Bug, format!("the server ended before its time: {ended:?}")));
                }
            }
        };
        stop.cancel();
        self.stop_asking.cancel();
        if !serving.is_finished() {
            match serving.await {
                Ok(0) => {}
                Ok(open) => tracing::warn!(open, "connections were still open at the end of the grace"),
                Err(error) => tracing::error!(%error, "the server ended by a panic"),
            }
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
        let read = reload().and_then(|new| Access::load(&new.agent).map(|access| (new, access)));
        let (new, access) = match read {
            Ok(read) => read,
            Err(failure) => return self.refuse(&failure),
        };
        for what in needs_restart(config, &new) {
            tracing::warn!(setting = what, "has changed; only a restart brings it into force");
        }
        if !new.agent.exposes_as(&config.agent) {
            *self.node.exposition() = Exposition::new(new.agent.exposition());
            tracing::info!("other series are shown; windows and totals begin anew");
        }
        self.accept(&new, access);
        tracing::info!("the configuration was reloaded: series, certificates and logins");
        *config = new;
    }

    /// Takes certificates and logins that were written anew.
    fn renew(&self, config: &Config) {
        match Access::load(&config.agent) {
            Ok(access) => {
                self.accept(config, access);
                tracing::info!("certificates or logins were written anew and are in force");
            }
            Err(failure) => self.refuse(&failure),
        }
    }

    fn accept(&self, config: &Config, access: Access) {
        self.server.set_terms(Terms { metrics_path: config.agent.metrics_path.clone(), access });
        self.counts.reload_worked.store(1, Ordering::Relaxed);
        self.counts.reloaded_ns.store(clock::now_ns(), Ordering::Relaxed);
    }

    fn refuse(&self, failure: &Failure) {
        self.counts.reload_worked.store(0, Ordering::Relaxed);
        tracing::error!(reason = %failure, "the configuration was not reloaded; the old one stays in force");
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
        ("agent.spool_dir, spool_max or publish_interval", !a.publishes_as(b)),
        ("message_queue", old.message_queue != new.message_queue),
        ("otlp", old.otlp != new.otlp),
        ("attribution", old.attribution != new.attribution),
    ];
    changed.into_iter().filter(|(_, is)| *is).map(|(what, _)| what).collect()
}
