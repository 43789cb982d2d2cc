//! A worker: one thread, one probe, one batch under construction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::clock::{Moment, mono_ns};
use gpuvitals_core::{AbsenceReason, Identity, Table};

use super::handoff::Handoff;
use super::rows::{RowList, RowTimes, ShownReads, WATCHED};
use super::schedule::{Schedule, stamp};
use super::sleep::{nanos, sleep_until};
use super::state::{Liveness, Target, WorkerState};
use crate::attribution::Owners;
use crate::probe::{Due, Probe, ProbeError, Reading, Row};
use crate::processes::pids;

/// Rows after which a batch is handed over, whatever its age.
const ROWS_MAX: usize = 512;
/// A wait longer than this can be ended early by a stop.
const EXACT_NS: i64 = 4_000_000;
/// From this interval on the kernel's timer slack (50 µs) is worth avoiding.
const EXACT_INTERVAL: Duration = Duration::from_millis(20);
/// Shortest and longest pause before a device that is gone is tried again.
const GONE_PAUSE_NS: (i64, i64) = (1_000_000_000, 30_000_000_000);
/// Snapshots that have changed before are stale after this time without a change, or after a multiple of the
/// usual time between two.
const STALE_NS: i64 = 2_000_000_000;
const STALE_UPDATES: i64 = 5;
const STALE: &str = "its snapshot does not change: the driver keeps returning the same one";

/// A worker's settings.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) slow: Duration,
    pub(crate) rare: Duration,
    pub(crate) hand_on: Duration,
}

/// The loop of one worker and what it owns.
pub(crate) struct Worker {
    pub(crate) probe: Box<dyn Probe>,
    pub(crate) state: Arc<WorkerState>,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) owners: Arc<Owners>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) terms: Terms,
    /// Rows under construction. Locked to add some or to hand them over, never while the device is read.
    pub(crate) rows: Arc<Mutex<RowList>>,
    pub(crate) entries: Vec<WorkerEntry>,
    pub(crate) generation: u64,
}

/// A target as the worker keeps it between rows.
pub(crate) struct WorkerEntry {
    /// Its identity from the probe.
    probed: Arc<Identity>,
    /// The same with its owners.
    attributed: Arc<Identity>,
    /// Its published state.
    target: Arc<Target>,
    /// Driver's snapshot (or the watched value) of the last row and when it last changed, monotonic.
    seen: Option<u64>,
    changed_ns: i64,
    /// Whether a named snapshot has ever changed.
    moves: bool,
    /// Shortest time between two recent changes.
    update_ns: Option<i64>,
}

/// A row compared with the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Fresh,
    /// The same snapshot again.
    Repeat,
    /// The same snapshot for so long that the present values are unknown.
    Stale,
}

impl Worker {
    /// Ticks until told to stop.
    pub(crate) fn run(mut self) {
        let interval_ns = nanos(self.state.interval);
        if self.state.interval <= EXACT_INTERVAL {
            // Without it a tick is merely later.
            let _kept = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        }
        let started = Moment::now();
        for identity in self.probe.targets() {
            self.state.know(&identity, started);
        }
        let mut schedule = Schedule::new(interval_ns, started);
        let (mut slow_ns, mut rare_ns) = (started.mono_ns, started.mono_ns);
        let (mut last_stamp_ns, mut slowest_ns) = (i64::MIN, 0);
        let (mut pause, mut reading, mut shown) =
            (Pause::default(), Reading::default(), ShownReads::default());
        while self.wait(schedule.next_ns()) {
            let begin = Moment::now();
            if pause.until_ns > begin.mono_ns {
                schedule.advance(begin);
                continue;
            }
            let due = Due {
                slow: is_due(&mut slow_ns, self.terms.slow, begin.mono_ns),
                rare: is_due(&mut rare_ns, self.terms.rare, begin.mono_ns),
            };
            self.state.begins(begin, begin.mono_ns - schedule.next_ns());
            reading.clear();
            let result = self.probe.read(due, &mut reading);
            let end = Moment::now();
            let was_stuck = self.state.came_back(end);
            // A device that is always slow provides everything it has; one that hung provided nothing
            // meanwhile.
            let took_ns = end.mono_ns - begin.mono_ns;
            let read_us = shown.next(took_ns);
            let has_hung = was_stuck && took_ns > slowest_ns * 2;
            slowest_ns = took_ns.max(slowest_ns - slowest_ns / 64);
            // A reading that hung has the time of its end; any other that of its begin.
            let taken = if was_stuck { end } else { begin };
            pause.after(&result, begin.mono_ns);
            self.state.found(self.probe.findings());
            let failure = result.as_ref().err().map(ProbeError::reason);
            if let Some(reason) = failure.or(has_hung.then_some(AbsenceReason::TimedOut)) {
                last_stamp_ns = stamp(begin.wall_ns, interval_ns, last_stamp_ns);
                self.lose_all(reason, RowTimes::of(begin, last_stamp_ns, read_us));
            }
            if let Err(error) = result {
                self.state.failed(error.reason());
                let liveness = Liveness::Down { reason: error.reason(), detail: error.to_string() };
                self.state.observe_all(&liveness, begin);
                // Rows after a return are handed over at once.
                (slow_ns, rare_ns) = (begin.mono_ns, begin.mono_ns);
                // Nobody knows when there will be more.
                self.handoff.give(&mut self.rows());
            } else {
                last_stamp_ns = stamp(taken.wall_ns, interval_ns, last_stamp_ns);
                self.take_rows(&reading, due, taken, RowTimes::of(taken, last_stamp_ns, read_us));
                let mut rows = self.rows();
                // Rows that would be too old at the next tick are handed over now.
                let age_then_ns =
                    rows.since_ns().map_or(0, |since_ns| taken.mono_ns + interval_ns - since_ns);
                if rows.len() >= ROWS_MAX || age_then_ns >= nanos(self.terms.hand_on) {
                    self.handoff.give(&mut rows);
                }
            }
            let missed = schedule.advance(end);
            self.state.ticks_missed.fetch_add(missed, Ordering::Relaxed);
        }
        self.handoff.give(&mut self.rows());
    }

    fn rows(&self) -> MutexGuard<'_, RowList> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a monotonic instant; false if the worker must stop.
    fn wait(&self, until_ns: i64) -> bool {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return false;
            }
            let left_ns = until_ns - mono_ns();
            if left_ns <= EXACT_NS {
                if left_ns > 0 {
                    sleep_until(until_ns);
                }
                return true;
            }
            std::thread::park_timeout(Duration::from_nanos(left_ns.unsigned_abs()));
        }
    }

    fn take_rows(&mut self, reading: &Reading, due: Due, now: Moment, times: RowTimes) {
        if self.state.table == Table::GpuProcesses {
            self.owners.list_processes(self.state.driver, pids(reading));
        }
        let generation = self.owners.generation();
        if generation != self.generation {
            self.generation = generation;
            for entry in &mut self.entries {
                entry.attributed = self.owners.attribute(&entry.probed);
            }
        }
        // All are registered before the first is reported, so that nobody takes some for all.
        for row in reading.rows() {
            self.face_of(row.identity(), now);
        }
        for row in reading.rows() {
            let at = self.face_of(row.identity(), now);
            let Some(entry) = self.entries.get_mut(at) else { continue };
            let news = entry.news(row, now.mono_ns);
            let is_kept = news == News::Fresh || (news == News::Repeat && (due.slow || due.rare));
            if !is_kept {
                self.state.repeats.fetch_add(1, Ordering::Relaxed);
            }
            let stale = (news == News::Stale).then_some((AbsenceReason::Invalid, STALE));
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((reason, detail)) = row.is_down().or(stale) {
                self.state.failed(reason);
                entry.lose(&mut rows, reason, times);
                entry.target.becomes(Liveness::Down { reason, detail: detail.to_owned() }, now);
                continue;
            }
            let taken_ns = is_kept.then(|| row.taken_ns().unwrap_or(times.timestamp_ns));
            entry.target.gave(taken_ns, entry.update_ns, now);
            if let Some(taken_ns) = taken_ns {
                rows.add(&entry.attributed, row, RowTimes { timestamp_ns: taken_ns, ..times });
                self.state.rows.fetch_add(1 + row.details().len() as u64, Ordering::Relaxed);
                self.state.invalid.fetch_add(row.refused(), Ordering::Relaxed);
            }
        }
    }

    /// All its targets report nothing from now on, for this reason.
    fn lose_all(&mut self, reason: AbsenceReason, times: RowTimes) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in &mut self.entries {
            entry.lose(&mut rows, reason, times);
            if reason == AbsenceReason::Gone {
                // A driver that comes back may be another one.
                (entry.seen, entry.moves, entry.update_ns) = (None, false, None);
            }
        }
    }

    /// Index of the entry of an identity; a new one is registered.
    fn face_of(&mut self, identity: &Arc<Identity>, now: Moment) -> usize {
        let known = self.entries.iter().position(|entry| Arc::ptr_eq(&entry.probed, identity));
        known.unwrap_or_else(|| {
            let attributed = self.owners.attribute(identity);
            let target = self.state.know(identity, now);
            // A probe that renames a target (a driver update, a new partition layout) must not leave old
            // entries behind.
            self.entries.retain(|entry| entry.probed.key() != identity.key());
            self.entries.push(WorkerEntry {
                probed: Arc::clone(identity),
                attributed,
                target,
                seen: None,
                changed_ns: now.mono_ns,
                moves: false,
                update_ns: None,
            });
            self.entries.len() - 1
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Also if the probe panics: nobody waits for a worker that has ended.
        self.state.ends();
        if std::thread::panicking() {
            let detail = "a bug: its worker panicked".to_owned();
            let liveness = Liveness::Down { reason: AbsenceReason::Gone, detail };
            self.state.observe_all(&liveness, Moment::now());
        }
        // Rows from before a panic; otherwise there are none.
        self.handoff.give(&mut self.rows.lock().unwrap_or_else(PoisonError::into_inner));
        self.handoff.left();
    }
}

impl WorkerEntry {
    /// It gave rows and gives none from now on: one row without a value records this. So it is with one that is gone from the
    /// start, although its driver names it.
    fn lose(&self, rows: &mut RowList, reason: AbsenceReason, times: RowTimes) {
        if self.target.is_up() || (reason == AbsenceReason::Gone && self.target.is_starting()) {
            rows.add_blank(&self.attributed, reason, times);
        }
    }

    /// Whether the row says anything new. If the driver names its snapshots and they change, a repeated one
    /// does not; otherwise every row is new. Learns on the way how often values change.
    fn news(&mut self, row: &Row, now_ns: i64) -> News {
        let named = row.snapshot_id();
        let watched = || match row.get(WATCHED)? {
            Value::Int(v) => Some(v.cast_unsigned()),
            Value::Float32(v) => Some(u64::from(v.to_bits())),
            Value::Float(v) => Some(v.to_bits()),
        };
        let Some(seen) = named.or_else(watched) else { return News::Fresh };
        match self.seen.replace(seen) {
            Some(before) if before == seen => {
                let usual_ns = self.update_ns.unwrap_or(0).saturating_mul(STALE_UPDATES);
                match now_ns - self.changed_ns {
                    _ if named.is_none() || !self.moves => News::Fresh,
                    still_ns if still_ns > usual_ns.max(STALE_NS) => News::Stale,
                    _ => News::Repeat,
                }
            }
            Some(_) => {
                let since_ns = now_ns - self.changed_ns;
                // The shortest time counts, since a value may well stay the same; forgotten slowly, so that
                // one early change does not count for ever.
                let before = self.update_ns.map_or(since_ns, |ns| ns + ns / 64);
                self.update_ns = Some(since_ns.min(before));
                self.changed_ns = now_ns;
                self.moves |= named.is_some();
                News::Fresh
            }
            None => {
                self.changed_ns = now_ns;
                News::Fresh
            }
        }
    }
}

/// The pause before a device that is gone is tried again: doubled each time.
#[derive(Debug, Default)]
struct Pause {
    until_ns: i64,
    length_ns: i64,
}

impl Pause {
    fn after(&mut self, result: &Result<(), ProbeError>, now_ns: i64) {
        if matches!(result, Err(ProbeError::Gone(_) | ProbeError::Denied(_))) {
            let (shortest, longest) = GONE_PAUSE_NS;
            self.length_ns = (self.length_ns * 2).clamp(shortest, longest);
            self.until_ns = now_ns + self.length_ns;
        } else {
            self.length_ns = 0;
        }
    }
}

fn is_due(next_ns: &mut i64, every: Duration, now_ns: i64) -> bool {
    if now_ns < *next_ns {
        return false;
    }
    *next_ns = now_ns + nanos(every) - nanos(every) / 64;
    true
}
