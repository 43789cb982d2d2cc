//! The node as a scrape sees it: the sampler, the rows handed over so far, and whether everything still
//! works.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::catalogue::Table;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::Family;
use gpuvitals_core::{AbsenceReason, Batch, Identity, IdentityColumn};
use gpuvitals_exposition::{DeviceStatus, Exposition, ExpositionConfig};
use gpuvitals_flight::FlightRecorder;
use gpuvitals_sources::probe::{Driver, Probe};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerError, TargetState};

use crate::hooks::Jobs;
use crate::kernel::{KernelNews, KernelWatch};
use crate::publishing::{Publisher, WaitingRows};
use crate::reads::ReadWatch;

/// Longest wait for a batch, so that a stop is noticed and the feed's pulse continues.
const PATIENCE: Duration = Duration::from_millis(250);
/// A feed without a pulse for this long hangs.
const PULSE_NS: i64 = 30_000_000_000;
/// How long all GPUs of NVML must be unreadable before a restart is asked for.
const LOST_NS: i64 = 120_000_000_000;
const LIBRARY_LOST: &str = "NVML can read none of the GPUs any more that it has read; a new process may";
/// Time between two log lines about one device, so that an unstable one does not fill the log.
const TOLD_NS: i64 = 10_000_000_000;
/// Between two looks at how the devices do.
const LOOK_NS: i64 = 500_000_000;
/// Most GPUs and partitions of a node; further ones are not sampled.
const TARGETS_MAX: usize = 512;

/// The running parts of this node.
#[derive(Debug)]
pub(crate) struct Node {
    sampler: Sampler,
    exposition: Mutex<Exposition>,
    publisher: Option<Arc<Publisher>>,
    /// What hooks tell of jobs, if they may.
    jobs: Option<Arc<Jobs>>,
    /// What the kernel says.
    kernel: Option<Arc<KernelWatch>>,
    /// Keeps the last minutes, if it may.
    flight: Option<Arc<FlightRecorder>>,
    /// How long readings take.
    reads: Mutex<ReadWatch>,
    /// Rows waiting to be published. The holder takes rows from the sampler and passes them on, so that they
    /// stay in order.
    intake: Mutex<Option<WaitingRows>>,
    /// When the feed last came round, monotonic.
    pulse_ns: AtomicI64,
    library: Mutex<Library>,
    /// Vendor and index of every GPU ever sampled: a returning one gets its own, a new one takes no other's.
    places: Mutex<BTreeSet<(Arc<str>, i32)>>,
}

/// How the GPUs do that a library in this very process reads.
#[derive(Debug, Clone, Copy, Default)]
struct Library {
    was_read: bool,
    /// Monotonic time since when none of them can be read.
    lost_since_ns: Option<i64>,
    /// Whether the library fails for all of them, rather than that they are gone or denied.
    fails: bool,
}

impl Library {
    fn is_lost(&self, now: Moment) -> bool {
        self.lost_since_ns.is_some_and(|since| now.mono_ns - since > LOST_NS)
    }
}

impl Node {
    /// Over a running sampler.
    pub(crate) fn new(sampler: Sampler, config: ExpositionConfig) -> Self {
        let places = sampler.states().iter().filter_map(|state| place_of(&state.identity)).collect();
        Self {
            reads: Mutex::new(ReadWatch::new(sampler.origin().clone())),
            sampler,
            exposition: Mutex::new(Exposition::new(config)),
            publisher: None,
            jobs: None,
            kernel: None,
            flight: None,
            intake: Mutex::default(),
            pulse_ns: AtomicI64::new(Moment::now().mono_ns),
            library: Mutex::default(),
            places: Mutex::new(places),
        }
    }

    /// The same, its rows published too.
    pub(crate) fn publishing(self, publisher: Option<Publisher>) -> Self {
        Self {
            intake: Mutex::new(
                publisher.as_ref().map(|publisher| WaitingRows::new(publisher, self.sampler.sharing())),
            ),
            publisher: publisher.map(Arc::new),
            ..self
        }
    }

    /// The same, where hooks tell of these jobs.
    pub(crate) fn told_of(self, jobs: Option<Arc<Jobs>>) -> Self {
        Self { jobs, ..self }
    }

    /// The same, its last minutes kept.
    pub(crate) fn recording(self, flight: Option<Arc<FlightRecorder>>) -> Self {
        Self { flight, ..self }
    }

    /// The same, the kernel's lines heard.
    pub(crate) fn hearing(self, kernel: Arc<KernelWatch>) -> Self {
        Self { kernel: Some(kernel), ..self }
    }

    /// What the kernel says.
    pub(crate) fn kernel(&self) -> Option<&KernelWatch> {
        self.kernel.as_deref()
    }

    /// The flight recorder, if there is one.
    pub(crate) fn flight(&self) -> Option<&FlightRecorder> {
        self.flight.as_deref()
    }

    /// What hooks tell of jobs, if they may.
    pub(crate) fn jobs(&self) -> Option<&Jobs> {
        self.jobs.as_deref()
    }

    /// The publisher, if there is one.
    pub(crate) fn publisher(&self) -> Option<&Publisher> {
        self.publisher.as_deref()
    }

    /// What the holders of the GPUs have used so far, as families of metrics; nothing where no rows are published.
    pub(crate) fn families_of_jobs(&self) -> Vec<Family> {
        self.intake().as_ref().map_or_else(Vec::new, WaitingRows::families)
    }

    pub(crate) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The exposition of the rows so far.
    pub(crate) fn exposition(&self) -> MutexGuard<'_, Exposition> {
        self.exposition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the exposition up to now: all rows that were taken, also those that the workers still hold. Never waits for a device.
    pub(crate) fn catch_up(&self) {
        let (mut intake, now) = (self.intake(), Moment::now());
        if intake.as_ref().is_some_and(WaitingRows::is_full) {
            // Publishing hangs: the sampler keeps what it can, and counts the dropped rows.
            return;
        }
        self.sampler.take_all(|batch| self.pass_on(batch, &mut intake, now));
    }

    fn intake(&self) -> MutexGuard<'_, Option<WaitingRows>> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds sampled rows to the exposition, and to the publisher, until the other end of `stop` is dropped.
    pub(crate) fn feed(&self, stop: &Receiver<()>) {
        let (mut seen, mut stuck) = (AbsencesSeen::new(), BTreeSet::new());
        let mut looked_ns = 0;
        loop {
            self.sampler.wait(PATIENCE);
            let is_over = self.sampler.is_over();
            let now = Moment::now();
            let is_idle = self.drain(now) == 0 && is_over;
            self.publish(|waiting| waiting.due(now));
            self.pulse_ns.store(now.mono_ns, Ordering::Relaxed);
            if now.mono_ns - looked_ns >= LOOK_NS {
                looked_ns = now.mono_ns;
                let states = self.sampler.states();
                tell_changes(&states, &mut seen, now);
                self.watch_library(&states, now);
                self.tell_stuck(&states, &mut stuck);
                self.take_reads(&states, now);
                self.take_jobs(&states, now);
                self.take_kernel(&states, now);
            }
            // If nothing is sampled, the stop is the only event to wait for.
            let wait = if is_idle { PATIENCE } else { Duration::ZERO };
            if stop.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        let now = Moment::now();
        self.drain(now);
        self.take_jobs(&self.sampler.states(), now);
        self.take_kernel(&self.sampler.states(), now);
        self.publish(WaitingRows::last);
    }

    /// Takes the waiting batches. Returns their number.
    fn drain(&self, now: Moment) -> usize {
        let mut intake = self.intake();
        let handed_on = std::iter::from_fn(|| self.sampler.next(Duration::ZERO));
        handed_on.map(|batch| self.pass_on(batch, &mut intake, now)).count()
    }

    /// Gives jobs their GPUs, and rows about them to be published.
    fn take_jobs(&self, states: &[TargetState], now: Moment) {
        let Some(jobs) = &self.jobs else { return };
        jobs.allot(states, now);
        if let Some(waiting) = self.intake().as_mut()
            && let Some(batch) = jobs.due(now)
        {
            waiting.take(batch, now);
        }
    }

    /// Passes on what the kernel has said.
    fn take_kernel(&self, states: &[TargetState], now: Moment) {
        let Some(kernel) = &self.kernel else { return };
        let KernelNews { lines, log, rows } = kernel.take(states, now);
        if let Some(flight) = &self.flight {
            if let Some(what) = &log {
                flight.kernel_log(what);
            }
            for line in lines {
                flight.kernel(line);
            }
        }
        self.take_more(rows, now);
    }

    /// Passes on whose readings have slowed down.
    fn take_reads(&self, states: &[TargetState], now: Moment) {
        let rows = self.reads.lock().unwrap_or_else(PoisonError::into_inner).look(states, now);
        self.take_more(rows, now);
    }

    /// Rows that no sampler has made wait to be published, too.
    fn take_more(&self, rows: Option<Batch>, now: Moment) {
        if let (Some(waiting), Some(rows)) = (self.intake().as_mut(), rows) {
            waiting.take(rows, now);
        }
    }

    /// Publishes rows that have waited. A scrape does not wait for that.
    fn publish(&self, take: impl FnOnce(&mut WaitingRows) -> Vec<Batch>) {
        let batches = self.intake().as_mut().map(take).unwrap_or_default();
        if let Some(publisher) = &self.publisher {
            publisher.publish_all(&batches);
        }
    }

    fn pass_on(&self, batch: Batch, waiting: &mut Option<WaitingRows>, now: Moment) {
        if let Some(flight) = &self.flight {
            flight.take(&batch);
        }
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).take(&batch);
        if let Some(kernel) = &self.kernel {
            kernel.sampled(&batch, now);
        }
        self.exposition().observe(&batch);
        if let Some(waiting) = waiting {
            waiting.take(batch, now);
        }
    }

    /// Tells the flight recorder which GPUs hang since the look before.
    fn tell_stuck(&self, states: &[TargetState], before: &mut BTreeSet<Arc<str>>) {
        let Some(flight) = &self.flight else { return };
        let hangs = |state: &&TargetState| matches!(state.liveness, Liveness::Stuck { .. });
        let stuck: BTreeSet<_> =
            states.iter().filter(hangs).filter_map(|state| state.identity.key()).collect();
        if stuck.difference(before).next().is_some() {
            // What such a GPU said last still waits with its worker.
            self.catch_up();
        }
        stuck.difference(before).for_each(|gpu| flight.stuck(gpu));
        *before = stuck;
    }

    /// NVML lives in this process, and after some failures (the driver was updated, the container lost its device nodes) only a
    /// new process can read again. A restart is worth it once: a process that never read anything does not ask for one.
    fn watch_library(&self, states: &[TargetState], now: Moment) {
        let mut gpus = states.iter().filter(|state| state.driver == Driver::Nvml).peekable();
        if gpus.peek().is_none() {
            return;
        }
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = |liveness: &Liveness| matches!(liveness, Liveness::Down { reason, .. } if *reason != AbsenceReason::Suspended);
        let is_failure =
            |liveness: &Liveness| matches!(liveness, Liveness::Down { reason: AbsenceReason::Invalid, .. });
        let (mut any_up, mut all_lost, mut all_fail) = (false, true, true);
        for state in gpus {
            any_up |= state.liveness == Liveness::Up;
            all_lost &= is_lost(&state.liveness);
            all_fail &= is_failure(&state.liveness);
        }
        library.was_read |= any_up;
        library.fails = all_fail;
        library.lost_since_ns =
            (library.was_read && all_lost).then(|| library.lost_since_ns.unwrap_or(now.mono_ns));
    }

    /// Why a restart is needed; none as long as the process works.
    pub(crate) fn ailment(&self, now: Moment) -> Option<&'static str> {
        if now.mono_ns - self.pulse_ns.load(Ordering::Relaxed) > PULSE_NS {
            return Some("sampled rows are no longer taken: a bug");
        }
        self.library().is_lost(now).then_some(LIBRARY_LOST)
    }

    /// The reason why the process must end: its NVML answers only failures, as after an update of the driver,
    /// and not every supervisor polls [`Node::ailment`]. GPUs that are gone, or that a container may not
    /// open, are no reason.
    pub(crate) fn end(&self, now: Moment) -> Option<&'static str> {
        let library = self.library();
        (library.is_lost(now) && library.fails).then_some(LIBRARY_LOST)
    }

    fn library(&self) -> Library {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Targets that have not answered for the first time yet.
    pub(crate) fn starting(&self) -> usize {
        self.sampler.states().iter().filter(|state| state.liveness == Liveness::Starting).count()
    }

    /// Number of GPUs (and partitions) that are sampled.
    pub(crate) fn gpus(&self) -> usize {
        self.sampler.states().iter().filter(|state| state.table == Table::GpuEvents).count()
    }

    /// All targets as the exposition shows them.
    pub(crate) fn devices(&self) -> Vec<DeviceStatus> {
        self.sampler.states().into_iter().map(status_of).collect()
    }

    /// Samples devices that have come: those of which no target is known, be it by its place only. Gives the number of probes
    /// added.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn add(&self, probes: Vec<Box<dyn Probe>>) -> Result<usize, SamplerError> {
        let states = self.sampler.states();
        // A tool that has not answered yet has no target.
        let drivers: BTreeSet<(Driver, Table)> =
            self.sampler.stats().iter().map(|worker| (worker.driver, worker.table)).collect();
        let known: BTreeSet<_> = states.iter().filter_map(|state| state.identity.key()).collect();
        let mut added = 0;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for mut probe in probes {
            let targets = probe.targets();
            // One probe of a tool or of processes answers for all GPUs, also for added ones; and there is one host.
            let is_new = if targets.is_empty() || probe.table() == Table::SystemEvents {
                !drivers.contains(&(probe.driver(), probe.table()))
            } else {
                let is_known = |target: &Arc<Identity>| {
                    let stands = |state: &TargetState| {
                        state.identity.stands_for(target) || target.stands_for(&state.identity)
                    };
                    target.key().is_some_and(|key| known.contains(&key)) || states.iter().any(stands)
                };
                !targets.iter().any(is_known)
            };
            if is_new && known.len() + added + targets.len() <= TARGETS_MAX {
                if let Some((vendor, place)) = targets.first().and_then(|target| place_of(target)) {
                    let is_free = |place: &i32| !places.contains(&(Arc::clone(&vendor), *place));
                    if let Some(free) = (0..i32::MAX).find(is_free).filter(|_| !is_free(&place)) {
                        probe.renumber(free);
                    }
                }
                places.extend(probe.targets().iter().filter_map(|target| place_of(target)));
                self.sampler.add(probe)?;
                added += 1;
            }
        }
        Ok(added)
    }
}

/// The vendor of a GPU, and its place among the vendor's on this node.
fn place_of(gpu: &Identity) -> Option<(Arc<str>, i32)> {
    Some((Arc::clone(gpu.shared(IdentityColumn::Vendor)?), gpu.index?))
}

/// The last report about each device (its failure, or none), and when, monotonic.
type AbsencesSeen = HashMap<Arc<str>, (Option<AbsenceReason>, i64)>;

/// Logs which devices have stopped giving rows, and which do again.
fn tell_changes(states: &[TargetState], seen: &mut AbsencesSeen, now: Moment) {
    for state in states {
        let Some(device) =
            state.identity.key().or_else(|| state.identity.shared(IdentityColumn::Node).cloned())
        else {
            continue;
        };
        let (trouble, detail) = match &state.liveness {
            Liveness::Starting => continue,
            Liveness::Up => (None, ""),
            Liveness::Down { reason, detail } => (Some(*reason), detail.as_str()),
            Liveness::Stuck { .. } => (Some(AbsenceReason::TimedOut), "a reading is out past its deadline"),
        };
        let (before, told_ns) = seen.get(&device).copied().unwrap_or((None, i64::MIN));
        if before == trouble || now.mono_ns < told_ns.saturating_add(TOLD_NS) {
            continue;
        }
        seen.insert(Arc::clone(&device), (trouble, now.mono_ns));
        let driver = state.driver.as_str();
        match trouble {
            None => tracing::info!(%device, driver, "the device answers again"),
            Some(AbsenceReason::Suspended) => {
                tracing::info!(%device, driver, detail, "the device sleeps and is left asleep");
            }
            Some(reason) => {
                tracing::warn!(%device, driver, reason = reason.as_str(), detail, "the device does not answer");
            }
        }
    }
}

fn status_of(state: TargetState) -> DeviceStatus {
    let (up, reason, stuck) = match &state.liveness {
        Liveness::Starting => (false, None, false),
        Liveness::Up => (true, None, false),
        Liveness::Down { reason, .. } => (false, Some(*reason), false),
        Liveness::Stuck { .. } => (false, Some(AbsenceReason::TimedOut), true),
    };
    DeviceStatus {
        identity: state.identity,
        sharers: state.sharers,
        up,
        reason,
        stuck,
        since_ns: state.since_ns,
        update_interval: state.update_interval,
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::catalogue::Series;
    use gpuvitals_exposition::Compat;
    use gpuvitals_sources::attribution::Owners;
    use gpuvitals_sources::probe::{Due, ProbeError, Reading};
    use gpuvitals_sources::processes::{GpuProcess, ProcessKind, ProcessList, ProcessTable};
    use gpuvitals_sources::registry::Discovery;
    use gpuvitals_sources::sampler::SamplerConfig;

    use super::*;
    use crate::doubles::gpu_up;

    fn gpu(uuid: &str) -> Arc<Identity> {
        Arc::new(Identity::default().with(IdentityColumn::Uuid, uuid).unwrap())
    }

    /// A card that is there and has nothing to say.
    struct Silent(Driver, Vec<Arc<Identity>>);

    impl Probe for Silent {
        fn driver(&self) -> Driver {
            self.0
        }
        fn targets(&self) -> Vec<Arc<Identity>> {
            self.1.clone()
        }
        fn fill(&mut self, _: Due, _: &mut Reading) -> Result<(), ProbeError> {
            Ok(())
        }
    }

    fn silent(driver: Driver, uuids: &[&str]) -> Box<dyn Probe> {
        Box::new(Silent(driver, uuids.iter().map(|uuid| gpu(uuid)).collect()))
    }

    fn node(probes: Vec<Box<dyn Probe>>) -> Node {
        let terms = SamplerConfig { rare: Duration::from_secs(1), ..SamplerConfig::default() };
        let sampler = Sampler::start(probes, terms, Owners::new()).unwrap();
        let window = Duration::from_secs(30);
        Node::new(
            sampler,
            ExpositionConfig { set: Series::Basic, compat: Compat::Off, window, interval: Duration::ZERO },
        )
    }

    fn state(driver: Driver, liveness: Liveness) -> TargetState {
        TargetState { driver, liveness, ..gpu_up(gpu("GPU-1")) }
    }

    #[test]
    fn a_library_that_lost_all_its_gpus_asks_for_a_restart_once() {
        let down = |reason| Liveness::Down { reason, detail: String::new() };
        let lost = down(AbsenceReason::Gone);
        let failing = down(AbsenceReason::Invalid);
        let denied = down(AbsenceReason::Denied);
        let asleep = down(AbsenceReason::Suspended);
        let stuck = Liveness::Stuck { for_ns: 1 };
        for (driver, before, after, ails, ends) in [
            (Driver::Nvml, &Liveness::Up, &lost, true, false),
            (Driver::Nvml, &Liveness::Up, &denied, true, false),
            (Driver::Nvml, &Liveness::Up, &failing, true, true),
            (Driver::Nvml, &Liveness::Up, &Liveness::Up, false, false),
            (Driver::Nvml, &failing, &failing, false, false),
            (Driver::Nvml, &Liveness::Up, &asleep, false, false),
            (Driver::Nvml, &Liveness::Up, &stuck, false, false),
            (Driver::AmdSysfs, &Liveness::Up, &failing, false, false),
        ] {
            let node = node(Vec::new());
            let now = Moment::now();
            let later = |ns| Moment { mono_ns: now.mono_ns + ns, ..now };
            node.watch_library(&[state(driver, before.clone())], now);
            node.watch_library(&[state(driver, after.clone())], later(1));
            assert_eq!((node.ailment(later(2)), node.end(later(2))), (None, None));
            node.pulse_ns.store(now.mono_ns + LOST_NS, Ordering::Relaxed);
            assert_eq!(node.ailment(later(LOST_NS + 2)).is_some(), ails, "{driver} {before:?} {after:?}");
            assert_eq!(node.end(later(LOST_NS + 2)).is_some(), ends, "{driver} {before:?} {after:?}");
        }
    }

    #[test]
    fn a_feed_that_hangs_is_an_ailment() {
        let node = node(Vec::new());
        let now = Moment::now();
        assert_eq!(node.ailment(now), None);
        assert!(node.ailment(Moment { mono_ns: now.mono_ns + PULSE_NS + 1_000_000_000, ..now }).is_some());
    }

    /// A list of one process.
    struct Listed;

    impl ProcessTable for Listed {
        fn driver(&self) -> Driver {
            Driver::NvidiaSmi
        }
        fn another(&self) -> Box<dyn ProcessTable> {
            Box::new(Self)
        }
        fn read(&mut self) -> Result<ProcessList, ProbeError> {
            let process = GpuProcess {
                gpu: gpu("GPU-1"),
                pid: 4711,
                name: "python3".into(),
                kind: ProcessKind::Compute,
                memory_mb: Some(512),
                utilization_pct: None,
                memory_utilization_pct: None,
                encoder_utilization_pct: None,
                decoder_utilization_pct: None,
                compute_units: None,
            };
            Ok(ProcessList { processes: vec![process], gaps: Vec::new() })
        }
    }

    #[test]
    fn processes_are_rows_beside_those_of_their_tool_and_no_device() {
        let node = node(vec![silent(Driver::NvidiaSmi, &[])]);
        let found = Discovery { processes: vec![Box::new(Listed)], ..Discovery::default() };
        assert_eq!(node.add(found.process_probes()).unwrap(), 1);
        assert_eq!(node.add(found.process_probes()).unwrap(), 0, "they are listed already");
        let batch = node.sampler().next(Duration::from_mins(1)).unwrap();
        assert_eq!((batch.table(), batch.rows()), (Table::GpuProcesses, 1));
        let names: Vec<_> = node.sampler().states().iter().map(TargetState::name).collect();
        assert_eq!(names, [Arc::from("nvidia-smi")]);
        let stats = node.sampler().stats();
        let tables: Vec<_> = stats.iter().map(|worker| (worker.table, worker.targets.len())).collect();
        assert_eq!(tables, [(Table::GpuEvents, 1), (Table::GpuProcesses, 0)]);
    }

    #[test]
    fn only_devices_that_are_new_are_added() {
        let node = node(vec![silent(Driver::AmdSysfs, &["GPU-1", "GPU-2"]), silent(Driver::RocmSmi, &[])]);
        let found = vec![
            silent(Driver::AmdSysfs, &["GPU-1", "GPU-2"]),
            silent(Driver::AmdSysfs, &["GPU-3"]),
            silent(Driver::RocmSmi, &[]),
        ];
        let before = node.gpus();
        assert_eq!(node.add(found).unwrap(), 1);
        assert_eq!(node.gpus(), before + 1);
        assert_eq!(node.add(vec![silent(Driver::AmdSysfs, &["GPU-3"])]).unwrap(), 0);
        let at_4 = |uuid: &str| {
            let mut gpu = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
            gpu.index = Some(4);
            gpu.resolve().unwrap();
            Box::new(Silent(Driver::Nvml, vec![Arc::new(gpu)])) as Box<dyn Probe>
        };
        assert_eq!(node.add(vec![at_4("")]).unwrap(), 1);
        assert_eq!(node.add(vec![at_4("GPU-4")]).unwrap(), 0, "its own worker asks for its name");
        let crowd: Vec<String> = (0..=TARGETS_MAX).map(|i| format!("GPU-9{i}")).collect();
        let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
        assert_eq!(node.add(vec![silent(Driver::AmdSysfs, &crowd)]).unwrap(), 0, "there is a bound");
    }
}
