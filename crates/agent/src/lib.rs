//! The agent of a node: what its GPUs and its host do, as metrics to be scraped and as rows for a queue.
//!
//! Sampling, scraping and asking for owners do not wait for each other: each device has its worker, one thread takes what they
//! hand over, a scrape renders from memory. Rows for a queue go through a spool, so that a queue that is away holds up none
//! of them.

mod arrivals;
mod burst;
#[cfg(test)]
mod doubles;
mod error;
mod flight;
mod hooks;
mod job_windows;
mod kernel;
mod node;
mod own;
mod publishing;
mod reads;
mod scrape;
mod server;
mod settings;
mod spool;

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use gpuvitals_core::clock::{self, Moment};
use gpuvitals_core::figures::Family;
use gpuvitals_exposition::Exposition;
use gpuvitals_flight::{FlightSettings, IncidentFiles};
use gpuvitals_listener::{Figures, Meter, Vitals};
use gpuvitals_queue::link::MessageQueue;
use gpuvitals_sources::attribution::Asking;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::registry::{Discovery, Find, discover};
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use gpuvitals_sources::settings::{Attribution, Sampling};
use tokio::runtime::Handle;

use arrivals::Arrivals;
use burst::FullSearch;
use flight::{Flight, FlightParts};
use hooks::{HookSocket, Jobs, KeptJobs};
use job_windows::JobGateway;
use kernel::KernelWatch;
use node::Node;
use own::AgentCounts;
use publishing::Publisher;
use scrape::Scraper;
use server::ShownNode;

pub use error::{AgentError, GatewayError};
pub use hooks::{HookError, HookMessage, JobHook, RunNews, SocketError};
pub use settings::{AgentSettings, HOOK_SOCKET};
pub use spool::SpoolError;

/// Part of the grace that sampling may take to end: a reading that is not out for good comes back sooner.
const SAMPLING_SHARE: u32 = 8;
/// Part of the grace that the last rows may take to the queue.
const PUBLISHING_SHARE: u32 = 4;
/// Part of the grace that the flight recorder may take, with an incident that has begun.
const FLIGHT_SHARE: u32 = 8;
/// Part of the grace that the file of the jobs that run may take.
const KEEPING_SHARE: u32 = 8;

/// What an agent is started with.
#[derive(Debug)]
pub struct Parts<'a> {
    /// What it shows, publishes and spools.
    pub settings: &'a AgentSettings,
    /// What it keeps of its last minutes.
    pub flight: &'a FlightSettings,
    /// How incidents of that become files.
    pub files: IncidentFiles,
    /// The directories that the system gives it: `STATE_DIRECTORY`.
    pub state_directory: Option<&'a OsStr>,
    /// How the machine is sampled.
    pub sampling: &'a Sampling,
    /// Which sources tell the owners of the GPUs.
    pub attribution: &'a Attribution,
    /// The queue for the rows, if its address names one elsewhere.
    pub queue: &'a MessageQueue,
    /// Where the files of the machine are that it samples.
    pub machine: Machine,
    /// The devices that a search of the machine has found.
    pub found: Discovery,
    /// The search for simulated GPUs, if these are asked for.
    pub simulated: Find,
    /// Figures of the program that are shown beside the agent's own.
    pub beside: fn() -> Vec<Family>,
}

/// An agent that samples and serves until it is shut down.
#[derive(Debug)]
pub struct Agent {
    node: Arc<Node>,
    counts: Arc<AgentCounts>,
    shown: Arc<ShownNode>,
    feed: JoinHandle<()>,
    asking: Asking,
    hooks: Option<HookSocket>,
    flight: Option<Flight>,
    /// Reads the kernel's lines.
    hearing: JoinHandle<()>,
    /// Between two samples of a GPU.
    interval: Duration,
    /// The threads end when the other end of their channel is dropped.
    stop: Vec<SyncSender<()>>,
}

impl Agent {
    /// Starts sampling, and what goes with it.
    ///
    /// # Errors
    /// When the sampler refuses its settings, the spool, the client of the queue or that of the gateway cannot be opened, hooks cannot be
    /// listened for, or a thread cannot be started.
    pub fn start(parts: Parts<'_>, runtime: &Handle) -> Result<Self, AgentError> {
        let Parts { settings, flight, files, state_directory, sampling, attribution, .. } = parts;
        let Parts { queue, machine, found, simulated, beside, .. } = parts;
        let ownership = sampling.ownership();
        // Totals grow with the monotonic clock: a step of the wall clock is no time in which energy was used.
        let terms = SamplerConfig { monotonic: true, reads: true, ..sampling.sampler() };
        let processes = found.process_probes();
        let probes = found.probes.into_iter().chain(processes).collect();
        let interval = terms.interval;
        let sampler = Sampler::start(probes, terms, Arc::clone(ownership.owners()))?;
        let publisher = Publisher::open(settings, queue, runtime)?;
        let jobs = Jobs::new(Arc::clone(&ownership), &sampling.node());
        let jobs = Arc::new(jobs.kept_in(state_directory.and_then(KeptJobs::below), Moment::now()));
        let hooks = HookSocket::open(settings, &machine, &jobs, runtime)?;
        let jobs = hooks.is_some().then_some(jobs);
        let search: FullSearch = {
            let (machine, drivers) = (machine.clone(), sampling.drivers.clone());
            Arc::new(move || discover(&machine, &drivers, simulated))
        };
        let flight = Flight::open(&FlightParts {
            settings: flight,
            files,
            state_directory,
            sampling,
            owners: Arc::clone(ownership.owners()),
            search: Arc::clone(&search),
            gateway: JobGateway::of(flight)?,
            runtime,
        });
        let node = Node::new(sampler, settings.exposition(interval)).publishing(publisher).told_of(jobs);
        let kernel = Arc::new(KernelWatch::new(machine.clone(), sampling.sampler().origin));
        let node = node.hearing(Arc::clone(&kernel));
        let node = Arc::new(node.recording(flight.as_ref().map(Flight::recorder)));
        let (stop_hearing, hearing_stopped) = sync_channel(0);
        let hearing = spawn("kernel", move || kernel.watch(&hearing_stopped))?;
        let (stop_feed, feed_stopped) = sync_channel(0);
        let feed = spawn("feed", {
            let node = Arc::clone(&node);
            move || node.feed(&feed_stopped)
        })?;
        let asking = attribution.ask(&ownership, &machine, found.processes).map_err(AgentError::Owners)?;
        let (stop_arrivals, arrivals_stopped) = sync_channel(0);
        let arrivals = Arrivals::new(machine, move || search(), found.findings, asking.tables());
        let watching = Arc::clone(&node);
        spawn("arrivals", move || arrivals.watch(&watching, &arrivals_stopped))?;
        let counts = Arc::new(AgentCounts::new(&sampling.node(), clock::now_ns(), beside));
        let scraper = Scraper::new(Arc::clone(&node), Arc::clone(&counts), ownership);
        let shown = Arc::new(ShownNode { node: Arc::clone(&node), scraper });
        let stop = vec![stop_feed, stop_arrivals, stop_hearing];
        Ok(Self { node, counts, shown, feed, asking, hooks, flight, hearing, interval, stop })
    }

    /// Its paths, with the metrics at this one.
    pub fn router(&self, metrics_path: &str) -> Router {
        Arc::clone(&self.shown).router(metrics_path)
    }

    /// All that it shows.
    pub fn figures(&self) -> Figures {
        let shown = Arc::clone(&self.shown);
        Figures::new(move || shown.families())
    }

    /// What its listener counts.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.counts.listener)
    }

    /// Why only a new process helps, if that is so.
    pub fn end(&self) -> Option<&'static str> {
        self.node.end(Moment::now())
    }

    /// Why the spool stores nothing more on its disk, if so: rows are kept in memory from then on.
    pub fn spool_failed(&self) -> Option<Arc<str>> {
        self.node.publisher()?.spool_failed()
    }

    /// Keeps what the flight recorder has now and what comes soon, if there is one.
    pub fn keep_flight(&self) {
        if let Some(recorder) = self.node.flight() {
            recorder.signal();
        } else {
            tracing::warn!("the flight recorder is off and keeps nothing");
        }
    }

    /// Brings new settings into force, as far as that goes while it runs.
    pub fn reload(&self, old: &AgentSettings, new: &AgentSettings) {
        if !new.exposes_as(old) {
            *self.node.exposition() = Exposition::new(new.exposition(self.interval));
            tracing::info!("other series are shown; windows and totals begin anew");
        }
        self.counts.reload_worked.store(1, Ordering::Relaxed);
        self.counts.reloaded_ns.store(clock::now_ns(), Ordering::Relaxed);
    }

    /// New settings are wrong, and the old ones stay in force.
    pub fn reload_failed(&self) {
        self.counts.reload_worked.store(0, Ordering::Relaxed);
    }

    /// Stops sampling within its part of the grace, and sends the last rows; the spool keeps the rest if it can. A device that
    /// hangs is named and left behind.
    pub async fn stop(self, grace: Duration) {
        drop(self.asking);
        drop(self.hooks);
        for target in self.node.sampler().stop(grace / SAMPLING_SHARE) {
            let gpu = target.identity.key();
            tracing::warn!(gpu = gpu.as_deref(), driver = %target.driver, "a device still hangs; its reading is left behind");
        }
        drop(self.stop);
        if self.feed.join().is_err() {
            tracing::error!("the feed ended by a panic");
        }
        if let Some(publisher) = self.node.publisher() {
            publisher.finish(grace / PUBLISHING_SHARE).await;
        }
        // Last: a disk that hangs holds up nothing else.
        if let Some(flight) = self.flight {
            flight.finish(grace / FLIGHT_SHARE);
        }
        keep_jobs(self.node, grace / KEEPING_SHARE);
        // One that still reads is left behind: the process ends, and with it a tool that hangs.
        if self.hearing.is_finished() && self.hearing.join().is_err() {
            tracing::error!("the reader of the kernel's lines ended by a panic");
        }
    }
}

/// Keeps what hooks told for the next start. A disk that hangs is left behind within this time.
fn keep_jobs(node: Arc<Node>, patience: Duration) {
    let (done, is_done) = sync_channel::<()>(0);
    let work = move || {
        if let Some(jobs) = node.jobs() {
            jobs.keep();
        }
        drop(done);
    };
    if let Err(error) = spawn("jobs", work) {
        let error = gpuvitals_core::causes(&error);
        tracing::warn!(error, "an agent that starts again will not know the jobs that run");
    } else if is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("the disk hangs: an agent that starts again may not know the jobs that run");
    }
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|source| AgentError::Thread { name, source })
}
