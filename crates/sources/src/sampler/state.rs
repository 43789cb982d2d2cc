//! A worker's published state; scrapes read it without asking the worker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::number::float;
use gpuvitals_core::usage::Sharing as _;
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, Table};

use gpuvitals_core::clock::Moment;

use super::sleep::nanos;
use crate::attribution::Owners;
use crate::finding::{Finding, Verdict};
use crate::probe::Driver;

/// Whether a GPU (or the host) answers its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// No reading has ended yet.
    Starting,
    /// The last reading gave a row.
    Up,
    /// The last reading gave no row.
    Down {
        /// The reason, as for absences.
        reason: AbsenceReason,
        /// The driver's message.
        detail: String,
    },
    /// A reading is past its deadline and holds its thread.
    Stuck {
        /// Its duration so far, nanoseconds.
        for_ns: i64,
    },
}

impl Liveness {
    /// Whether it equals the other apart from the driver's message.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Down { reason, .. }, Self::Down { reason: other, .. }) => reason == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// A GPU (or the host) as its worker last saw it.
#[derive(Debug, Clone)]
pub struct TargetState {
    /// Its identity, with the present attribution.
    pub identity: Arc<Identity>,
    /// The same under each pod that holds it, if several share it.
    pub sharers: Vec<Arc<Identity>>,
    /// The table of its rows.
    pub table: Table,
    /// The driver that reads it.
    pub driver: Driver,
    /// Whether it gives rows, or why not.
    pub liveness: Liveness,
    /// When the liveness last changed (UTC nanoseconds); for a stuck one, when its reading began.
    pub since_ns: i64,
    /// Time of its last row, nanoseconds UTC; none before the first.
    pub last_row_ns: Option<i64>,
    /// How often the driver's values really change, as observed so far; never finer than the sampling
    /// interval.
    pub update_interval: Option<Duration>,
}

impl TargetState {
    /// Key of the GPU, or the node of a host; as in [`WorkerStats::targets`].
    pub fn name(&self) -> Arc<str> {
        name_of(&self.identity).unwrap_or_default()
    }
}

fn name_of(identity: &Identity) -> Option<Arc<str>> {
    identity.key().or_else(|| identity.shared(IdentityColumn::Node).cloned())
}

/// Counts of one worker since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStats {
    /// The table of its rows.
    pub table: Table,
    /// Keys of its targets; none if its rows are not about the state of a GPU or the host.
    pub targets: Vec<Arc<str>>,
    /// The driver path by which the worker reads.
    pub driver: Driver,
    /// Its sampling interval.
    pub interval: Duration,
    /// Readings that ended.
    pub ticks: u64,
    /// Ticks that were skipped because a reading took too long or the thread came too late.
    pub ticks_missed: u64,
    /// Rows handed over.
    pub rows: u64,
    /// Rows left out because the driver's snapshot was the same as before.
    pub repeats: u64,
    /// Readings without a row, by reason.
    pub failures: Vec<(AbsenceReason, u64)>,
    /// Impossible values that were left out.
    pub invalid: u64,
    /// Time spent reading, nanoseconds.
    pub read_ns: u64,
    /// Longest reading, nanoseconds.
    pub read_max_ns: u64,
    /// Lateness of ticks: bounds and counts, see [`Lateness`].
    pub lateness: Lateness,
}

/// Most findings of a worker that wait to be taken: the latest.
const FINDINGS_MAX: usize = 16;
/// A gone target is forgotten after this time without a report.
const FORGET_NS: i64 = 600_000_000_000;
/// Buckets of an octave.
const STEPS: u32 = 4;
/// Number of buckets: up to 2^30 ns and beyond.
const BUCKETS: usize = 31 * STEPS as usize;

/// Lateness of ticks, as a histogram with four buckets an octave, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lateness(Vec<u64>);

impl Lateness {
    /// Lateness that this share (0 to 1) of the ticks did not reach, as the upper bound of its bucket; none
    /// without ticks.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        let wanted = share.clamp(0.0, 1.0) * float(total);
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if *count > 0 && float(seen) >= wanted {
                return Some(Duration::from_nanos(upper_bound(bucket)));
            }
        }
        None
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bucket numbers are small")]
fn upper_bound(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    let base = 1_u64 << octave;
    base + base * (step + 1) / u64::from(STEPS)
}

fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1);
    let octave = ns.ilog2();
    let step = (u128::from(ns - (1 << octave)) * u128::from(STEPS)) >> octave;
    (octave as usize * STEPS as usize + usize::try_from(step).unwrap_or(0)).min(BUCKETS - 1)
}

/// State shared by a worker and its readers.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) table: Table,
    pub(crate) driver: Driver,
    pub(crate) interval: Duration,
    deadline: Duration,
    /// Monotonic and wall time at which the present reading began; 0: none.
    out_since: AtomicI64,
    out_since_wall: AtomicI64,
    ended: AtomicBool,
    pub(crate) ticks: AtomicU64,
    pub(crate) ticks_missed: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) repeats: AtomicU64,
    pub(crate) invalid: AtomicU64,
    failures: [AtomicU64; AbsenceReason::ALL.len()],
    read_ns: AtomicU64,
    read_max_ns: AtomicU64,
    lateness: [AtomicU64; BUCKETS],
    targets: Mutex<Targets>,
    findings: Mutex<Vec<Finding>>,
}

#[derive(Debug, Default)]
struct Targets {
    order: Vec<Arc<str>>,
    by_key: HashMap<Arc<str>, Arc<Target>>,
}

/// A GPU (or the host) of a worker. A row that follows a row updates three numbers and takes no lock.
#[derive(Debug)]
pub(crate) struct Target {
    report: Mutex<LivenessReport>,
    is_up: AtomicBool,
    /// When its liveness was last reported, monotonic.
    reported_ns: AtomicI64,
    /// 0 before the first.
    last_row_ns: AtomicI64,
    /// 0 while unknown.
    update_ns: AtomicI64,
}

#[derive(Debug)]
struct LivenessReport {
    identity: Arc<Identity>,
    liveness: Liveness,
    since_ns: i64,
}

impl Target {
    fn new(identity: &Arc<Identity>, now: Moment) -> Self {
        let identity = Arc::clone(identity);
        Self {
            report: Mutex::new(LivenessReport {
                identity,
                liveness: Liveness::Starting,
                since_ns: now.wall_ns,
            }),
            is_up: AtomicBool::new(false),
            reported_ns: AtomicI64::new(now.mono_ns),
            last_row_ns: AtomicI64::new(0),
            update_ns: AtomicI64::new(0),
        }
    }

    fn report(&self) -> MutexGuard<'_, LivenessReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It gave a row, of this time unless it was a repeat; its values change about this often.
    pub(crate) fn gave(&self, row_ns: Option<i64>, update_ns: Option<i64>, now: Moment) {
        if let Some(row_ns) = row_ns {
            self.last_row_ns.store(row_ns, Ordering::Relaxed);
        }
        if let Some(update_ns) = update_ns {
            self.update_ns.store(update_ns, Ordering::Relaxed);
        }
        if !self.is_up() {
            self.becomes(Liveness::Up, now);
        }
    }

    /// Whether its last reading gave a row.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Whether nothing is known of it yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.report().liveness == Liveness::Starting
    }

    /// Sets its liveness.
    pub(crate) fn becomes(&self, liveness: Liveness, now: Moment) {
        let mut report = self.report();
        if !report.liveness.is_like(&liveness) {
            report.since_ns = now.wall_ns;
        }
        self.is_up.store(liveness == Liveness::Up, Ordering::Relaxed);
        self.reported_ns.store(now.mono_ns, Ordering::Relaxed);
        report.liveness = liveness;
    }

    /// A probe that continues reports a removed partition as gone once and then no more.
    fn is_forgotten(&self, liveness: &Liveness, now: Moment) -> bool {
        matches!(liveness, Liveness::Down { reason: AbsenceReason::Gone, .. })
            && now.mono_ns - self.reported_ns.load(Ordering::Relaxed) > FORGET_NS
    }
}

impl WorkerState {
    pub(crate) fn new(table: Table, driver: Driver, interval: Duration, deadline: Duration) -> Self {
        Self {
            table,
            driver,
            interval,
            deadline,
            out_since: AtomicI64::new(0),
            out_since_wall: AtomicI64::new(0),
            ended: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
            ticks_missed: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; AbsenceReason::ALL.len()],
            read_ns: AtomicU64::new(0),
            read_max_ns: AtomicU64::new(0),
            lateness: [const { AtomicU64::new(0) }; BUCKETS],
            targets: Mutex::default(),
            findings: Mutex::default(),
        }
    }

    /// A reading begins, this long after it was due.
    pub(crate) fn begins(&self, now: Moment, late_ns: i64) {
        self.out_since_wall.store(now.wall_ns, Ordering::Relaxed);
        self.out_since.store(now.mono_ns.max(1), Ordering::Release);
        if let Some(bucket) = self.lateness.get(bucket_of(late_ns.max(0).unsigned_abs())) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The reading has finished. Returns whether it was past its deadline.
    pub(crate) fn came_back(&self, now: Moment) -> bool {
        let took_ns = (now.mono_ns - self.out_since.swap(0, Ordering::AcqRel)).max(0);
        self.read_ns.fetch_add(took_ns.unsigned_abs(), Ordering::Relaxed);
        self.read_max_ns.fetch_max(took_ns.unsigned_abs(), Ordering::Relaxed);
        self.ticks.fetch_add(1, Ordering::Relaxed);
        let was_stuck = took_ns > nanos(self.deadline);
        if was_stuck {
            // Its present liveness began only now.
            for target in self.targets().by_key.values() {
                target.report().since_ns = now.wall_ns;
            }
        }
        was_stuck
    }

    /// The worker's thread ends.
    pub(crate) fn ends(&self) {
        self.out_since.store(0, Ordering::Release);
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn failed(&self, reason: AbsenceReason) {
        if let Some(count) = self.failures.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds findings of readings.
    pub(crate) fn found(&self, findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        for Finding { verdict, subject, text, remedy, .. } in &findings {
            let remedy = remedy.as_deref();
            match verdict {
                Verdict::Good | Verdict::Note => tracing::info!(subject, remedy, "{text}"),
                Verdict::Partial | Verdict::Broken => tracing::warn!(subject, remedy, "{text}"),
            }
        }
        let mut kept = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(findings);
        let surplus = kept.len().saturating_sub(FINDINGS_MAX);
        kept.drain(..surplus);
    }

    /// Findings that were not taken yet.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.findings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn targets(&self) -> MutexGuard<'_, Targets> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool knows its GPUs only after its first run. Until then it is a target itself, under the name of
    /// the driver, so that readers can wait for it, and it can report problems.
    pub(crate) fn stand_in(&self, now: Moment) {
        let name = self.driver.as_str();
        let named = Identity::default().with(IdentityColumn::Uuid, name);
        if let Ok(identity) = named.and_then(|identity| identity.with(IdentityColumn::Source, name)) {
            self.know(&Arc::new(identity), now);
        }
    }

    /// Registers a target, or updates its identity. A GPU that was known by its place only, and has its name
    /// now, is not shown under both.
    pub(crate) fn know(&self, identity: &Arc<Identity>, now: Moment) -> Arc<Target> {
        if !matches!(self.table, Table::GpuEvents | Table::SystemEvents) {
            // Another worker tells the state of that GPU.
            return Arc::new(Target::new(identity, now));
        }
        let key = name_of(identity).unwrap_or_default();
        let mut targets = self.targets();
        if let Some(target) = targets.by_key.get(&key) {
            target.report().identity = Arc::clone(identity);
            return Arc::clone(target);
        }
        let Targets { order, by_key } = &mut *targets;
        by_key.retain(|name, target| {
            **name != *self.driver.as_str() && !target.report().identity.stands_for(identity)
        });
        order.retain(|name| by_key.contains_key(name));
        let target = Arc::new(Target::new(identity, now));
        targets.order.push(Arc::clone(&key));
        targets.by_key.insert(key, Arc::clone(&target));
        target
    }

    /// Sets the liveness of all targets.
    pub(crate) fn observe_all(&self, liveness: &Liveness, now: Moment) {
        for target in self.targets().by_key.values() {
            target.becomes(liveness.clone(), now);
        }
    }

    /// The targets as they are at `now`, with their present owners.
    pub(crate) fn states(&self, owners: &Owners, now: Moment) -> Vec<TargetState> {
        let out_since = self.out_since.load(Ordering::Acquire);
        let stuck = (out_since != 0)
            .then(|| now.mono_ns - out_since)
            .filter(|&for_ns| for_ns > nanos(self.deadline))
            .map(|for_ns| (for_ns, self.out_since_wall.load(Ordering::Relaxed)));
        let targets = self.targets();
        let state = |key| {
            let target: &Arc<Target> = targets.by_key.get(key)?;
            let report = target.report();
            let (liveness, since_ns) = match stuck {
                Some((for_ns, since_ns)) => (Liveness::Stuck { for_ns }, since_ns),
                None if target.is_forgotten(&report.liveness, now) => return None,
                None => (report.liveness.clone(), report.since_ns),
            };
            let known = |ns: &AtomicI64| Some(ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0);
            Some(TargetState {
                identity: owners.attribute(&report.identity),
                sharers: owners.sharers(&report.identity),
                table: self.table,
                driver: self.driver,
                liveness,
                since_ns,
                last_row_ns: known(&target.last_row_ns),
                update_interval: known(&target.update_ns).map(|ns| Duration::from_nanos(ns.unsigned_abs())),
            })
        };
        targets.order.iter().filter_map(state).collect()
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkerStats {
            table: self.table,
            targets: self.targets().order.clone(),
            driver: self.driver,
            interval: self.interval,
            ticks: load(&self.ticks),
            ticks_missed: load(&self.ticks_missed),
            rows: load(&self.rows),
            repeats: load(&self.repeats),
            failures: AbsenceReason::ALL.into_iter().zip(self.failures.iter().map(load)).collect(),
            invalid: load(&self.invalid),
            read_ns: load(&self.read_ns),
            read_max_ns: load(&self.read_max_ns),
            lateness: Lateness(self.lateness.iter().map(load).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_bounds_what_lies_in_it() {
        for ns in [1, 2, 3, 5, 7, 8, 999, 1_000, 50_000, 123_456_789, 1 << 30] {
            let bucket = bucket_of(ns);
            assert!(ns <= upper_bound(bucket), "{ns}");
            assert!(bucket == 0 || ns >= upper_bound(bucket - 1), "{ns}");
        }
        let mut counts = vec![0; BUCKETS];
        counts[bucket_of(1_000)] = 99;
        counts[bucket_of(1_000_000)] = 1;
        let lateness = Lateness(counts);
        assert!(lateness.quantile(0.5).unwrap() < Duration::from_nanos(1_300));
        assert!(lateness.quantile(1.0).unwrap() >= Duration::from_millis(1));
        assert_eq!(Lateness(vec![0; BUCKETS]).quantile(0.5), None);
    }
}
