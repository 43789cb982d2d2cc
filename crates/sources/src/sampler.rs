//! The sampler: a worker thread per device, absolute deadlines, bounded hand-off.
//!
//! A worker ticks on the grid of its interval, lets its [`Probe`] read what is due, and fills a batch. Full
//! or aged batches go to one bounded hand-off; if nobody takes them the oldest is dropped and counted. A
//! worker that waits for a sick device holds up nobody: its targets have [`Liveness::Stuck`] from the
//! deadline of its probe on, and the same thread continues when the device answers. No second thread is ever
//! started for it.

mod handoff;
mod rows;
mod schedule;
mod sleep;
mod state;
mod worker;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::catalogue::Table;
use gpuvitals_core::clock::{self, Moment};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::usage::Sharing;
use gpuvitals_core::{Batch, Origin};

use crate::attribution::Owners;
use crate::finding::Finding;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};
use handoff::{Handoff, HandoffTaken};
use rows::{LocalColumns, RowList, RowTimes};
use worker::{Terms, Worker};

pub use state::{Lateness, Liveness, TargetState, WorkerStats};

/// Fastest possible rate.
pub const RATE_MAX_HZ: f64 = 1_000.0;
/// Most batches that wait to be taken: minutes at usual rates, some seconds at the fastest, where each is
/// half a megabyte.
const LISTS_MAX: usize = 64;
/// Shortest time between two listings of the processes on the GPUs.
const PROCESSES_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Stack of a worker; a reading needs a few kilobytes.
const STACK_LEN: usize = 512 << 10;
/// How long [`Source::poll`] waits for a batch, so that a stop is noticed.
const POLL_PATIENCE: Duration = Duration::from_millis(100);

/// Settings of a sampler.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// Time between two samples of a GPU: 1 ms at least.
    pub interval: Duration,
    /// Time between two samples of the host.
    pub system_interval: Duration,
    /// Time between two readings of the slow tier.
    pub slow: Duration,
    /// Time between two readings of the rare tier, and between two listings of processes: a second at least for those.
    pub rare: Duration,
    /// Oldest age of a row before its batch is handed over.
    pub hand_on: Duration,
    /// Whether a rate beyond a driver's limit is refused. Otherwise that driver is read at its limit: right
    /// if nobody chose it by name.
    pub exact: bool,
    /// Whether rows also carry the monotonic clock.
    pub monotonic: bool,
    /// Whether rows of GPUs also say how long their reading took, and why it gave nothing.
    pub reads: bool,
    /// The sampling process.
    pub origin: Origin,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            system_interval: Duration::from_secs(1),
            slow: Duration::from_secs(1),
            rare: Duration::from_secs(30),
            hand_on: Duration::from_secs(1),
            exact: true,
            monotonic: false,
            reads: false,
            origin: Origin::default(),
        }
    }
}

/// A sampler that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The interval is shorter than a driver supports.
    #[error("{driver} cannot be read every {interval:?}: once in {interval_min:?} at most")]
    TooFast {
        /// The driver that cannot be read so often.
        driver: Driver,
        /// The interval that was configured.
        interval: Duration,
        /// Shortest sensible one.
        interval_min: Duration,
    },
    /// The thread could not be started.
    #[error("cannot start a sampling thread")]
    Thread(#[source] io::Error),
}

/// The workers that read devices, and the rows that they hand over.
#[derive(Debug)]
pub struct Sampler {
    config: SamplerConfig,
    owners: Arc<Owners>,
    handoff: Arc<Handoff>,
    /// Batches of rows that were taken together with an earlier batch.
    ready: Mutex<VecDeque<Batch>>,
    stop: Arc<AtomicBool>,
    workers: Mutex<Vec<Member>>,
}

/// A worker, seen from outside.
#[derive(Debug)]
struct Member {
    state: Arc<state::WorkerState>,
    /// Rows under construction; never locked while the device is read.
    rows: Arc<Mutex<RowList>>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Starts a worker for each probe. Without a probe it ends at once.
    ///
    /// # Errors
    /// If a probe does not support the rate, or a thread cannot be started.
    pub fn start(
        probes: Vec<Box<dyn Probe>>,
        config: SamplerConfig,
        owners: Arc<Owners>,
    ) -> Result<Self, SamplerError> {
        for probe in &probes {
            let interval = interval_of(probe.as_ref(), &config);
            if interval < probe.interval_min() {
                let (driver, interval_min) = (probe.driver(), probe.interval_min());
                if !config.exact {
                    tracing::warn!(%driver, ?interval, ?interval_min, "is read at its fastest rate");
                    continue;
                }
                return Err(SamplerError::TooFast { driver, interval, interval_min });
            }
        }
        let sampler = Self {
            config,
            owners,
            handoff: Arc::new(Handoff::new(LISTS_MAX)),
            ready: Mutex::default(),
            stop: Arc::default(),
            workers: Mutex::default(),
        };
        for probe in probes {
            sampler.add(probe)?;
        }
        Ok(sampler)
    }

    /// Starts a worker for one more probe: a device that was added.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn add(&self, probe: Box<dyn Probe>) -> Result<(), SamplerError> {
        let state = Arc::new(state::WorkerState::new(
            probe.table(),
            probe.driver(),
            interval_of(probe.as_ref(), &self.config).max(probe.interval_min()),
            probe.deadline(),
        ));
        let targets = probe.targets();
        if targets.is_empty() {
            state.stand_in(Moment::now());
        }
        for identity in targets {
            state.know(&identity, Moment::now());
        }
        self.handoff.joined();
        let rows = Arc::new(Mutex::new(RowList::new(Arc::clone(&state))));
        let worker = Worker {
            state: Arc::clone(&state),
            handoff: Arc::clone(&self.handoff),
            owners: Arc::clone(&self.owners),
            stop: Arc::clone(&self.stop),
            terms: Terms { slow: self.config.slow, rare: self.config.rare, hand_on: self.config.hand_on },
            rows: Arc::clone(&rows),
            entries: Vec::new(),
            generation: self.owners.generation(),
            probe,
        };
        let thread = std::thread::Builder::new()
            .name(format!("sample-{}", state.driver))
            .stack_size(STACK_LEN)
            .spawn(move || worker.run())
            .map_err(SamplerError::Thread)?;
        self.members().push(Member { state, rows, thread });
        Ok(())
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything sampled up to now, in order, including rows that workers would hand over later. Never
    /// waits for a device.
    pub fn take_all(&self, mut take: impl FnMut(Batch)) {
        let lists: Vec<_> = self.members().iter().map(|member| Arc::clone(&member.rows)).collect();
        for rows in lists {
            self.handoff.give(&mut rows.lock().unwrap_or_else(PoisonError::into_inner));
            // After each, so that those of many workers do not displace each other.
            while let Some(batch) = self.next(Duration::ZERO) {
                take(batch);
            }
        }
    }

    /// Waits until a batch can be taken, at most for `patience`.
    pub fn wait(&self, patience: Duration) {
        if self.ready().is_empty() {
            self.handoff.wait(patience);
        }
    }

    /// The next batch; none if nothing came within this time, or nothing will come any more
    /// ([`Sampler::is_over`]).
    pub fn next(&self, patience: Duration) -> Option<Batch> {
        match self.take(patience) {
            Poll::Ready(batch) => Some(batch),
            Poll::NotBefore(_) | Poll::End => None,
        }
    }

    /// The next batch, nothing yet, or the end.
    fn take(&self, patience: Duration) -> Poll {
        loop {
            if let Some(batch) = self.ready().pop_front() {
                return Poll::Ready(batch);
            }
            match self.handoff.take(patience) {
                HandoffTaken::Rows(sequence, rows) => {
                    let SamplerConfig { monotonic, reads, origin, .. } = &self.config;
                    let local = LocalColumns { monotonic: *monotonic, reads: *reads };
                    self.ready().extend(rows.to_batches(local, origin, sequence));
                    self.handoff.give_back(rows);
                }
                HandoffTaken::Nothing => return Poll::NotBefore(0),
                HandoffTaken::End => return Poll::End,
            }
        }
    }

    /// Who the rows are from.
    pub fn origin(&self) -> &Origin {
        &self.config.origin
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Batch>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all workers have ended. Batches they handed over may still wait.
    pub fn is_over(&self) -> bool {
        self.members().iter().all(|member| member.state.has_ended())
    }

    /// All targets as they are now. Never waits for a device.
    pub fn states(&self) -> Vec<TargetState> {
        let now = Moment::now();
        self.members().iter().flat_map(|member| member.state.states(&self.owners, now)).collect()
    }

    /// Who shares a GPU.
    pub fn sharing(&self) -> Arc<dyn Sharing> {
        Arc::clone(&self.owners) as _
    }

    /// The counts of all workers. Never waits for a device.
    pub fn stats(&self) -> Vec<WorkerStats> {
        self.members().iter().map(|member| member.state.stats()).collect()
    }

    /// New findings of readings since the last call, beyond those of discovery: the latest of each worker.
    /// They are also in the log. Never waits for a device.
    pub fn findings(&self) -> Vec<Finding> {
        self.members().iter().flat_map(|member| member.state.take_findings()).collect()
    }

    /// Rows dropped because nobody took them in time.
    pub fn rows_dropped(&self) -> u64 {
        self.handoff.rows_dropped()
    }

    fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        for member in &*self.members() {
            member.thread.thread().unpark();
        }
    }

    /// Ends sampling: workers finish their tick and hand over their rows. Waits for them at most for
    /// `patience`, and returns those that are still waiting: a worker that waits for a sick device cannot be
    /// ended, only left.
    pub fn stop(&self, patience: Duration) -> Vec<TargetState> {
        self.tell_to_stop();
        let deadline = Moment::now().mono_ns.saturating_add(sleep::nanos(patience));
        // Not under the lock: callers that ask for states meanwhile do not wait for a device.
        while clock::mono_ns() < deadline && !self.is_over() {
            sleep::sleep_until(clock::mono_ns() + 1_000_000);
        }
        let mut out = Vec::new();
        let members = std::mem::take(&mut *self.members());
        for Member { state, rows, thread } in members {
            if state.has_ended() {
                // The worker itself noted a panic when it ended.
                let _panicked = thread.join();
            } else {
                self.handoff.give(&mut rows.lock().unwrap_or_else(PoisonError::into_inner));
                out.extend(state.states(&self.owners, Moment::now()));
            }
        }
        out
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// Reads everything of a probe once, in the caller's thread, into batches: for callers with a schedule of their own. A GPU
/// that gives nothing has a row without values.
///
/// # Errors
/// If the whole device gives nothing.
pub fn read_once(
    probe: &mut dyn Probe,
    owners: &Owners,
    origin: &Origin,
    sequence: u64,
) -> Result<Vec<Batch>, ProbeError> {
    let mut reading = Reading::default();
    probe.read(Due::ALL, &mut reading)?;
    let now = Moment::now();
    // These rows have no column of how long it took.
    let times = RowTimes::of(now, now.wall_ns, 0);
    let state = state::WorkerState::new(probe.table(), probe.driver(), Duration::ZERO, probe.deadline());
    let mut rows = RowList::new(Arc::new(state));
    for row in reading.rows() {
        let identity = owners.attribute(row.identity());
        if let Some((reason, _)) = row.is_down() {
            rows.add_blank(&identity, reason, times);
        } else {
            let timestamp_ns = row.taken_ns().unwrap_or(now.wall_ns);
            rows.add(&identity, row, RowTimes { timestamp_ns, ..times });
        }
    }
    Ok(rows.to_batches(LocalColumns::default(), origin, sequence).collect())
}

fn interval_of(probe: &dyn Probe, config: &SamplerConfig) -> Duration {
    match probe.table() {
        Table::SystemEvents => config.system_interval,
        Table::GpuProcesses => config.rare.max(PROCESSES_INTERVAL_MIN),
        _ => config.interval,
    }
}

/// A sampler as a source.
impl Source for Sampler {
    type Error = std::convert::Infallible;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error> {
        Ok(match self.take(POLL_PATIENCE) {
            Poll::NotBefore(_) => Poll::NotBefore(now_ns),
            other => other,
        })
    }
}

/// The distinct drivers among probes, for people.
pub fn drivers(probes: &[Box<dyn Probe>]) -> Vec<Driver> {
    probes.iter().map(|probe| probe.driver()).collect::<BTreeSet<_>>().into_iter().collect()
}
