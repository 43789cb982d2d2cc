//! The thread that changes the visible state.
//!
//! It takes the records that the log has made durable, in the log's order, adds them to tail and fleet,
//! publishes, and only then answers. When the tail is large or old enough it is frozen and handed to the
//! keeper; a new one is filled meanwhile. While files cannot be written the frozen one stays visible, the new
//! one grows to the bound of memory, and then appends wait or, once writing has failed, are refused.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvitals_core::history::LiveFleet;
use gpuvitals_core::{Batch, Table, causes, clock};
use tokio::sync::OwnedSemaphorePermit;

use crate::board::Part;
use crate::error::StoreError;
use crate::jobs::{AppendAnswer, Arrival, Compacted, Event, FlushReply, Job};
use crate::manifest::{FileEntry, LostFile, Manifest};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::tail::Tail;

/// Most events processed before their changes are published.
const EVENTS_PER_PUBLISH: usize = 256;

/// Shortest pause before rows of a clock ahead are looked at again.
const AHEAD_PAUSE_NS: i64 = 200_000_000;

/// The writer's own state.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    keeper: SyncSender<Job>,
    files: Arc<[Arc<FileEntry>]>,
    rollups: Arc<[Arc<FileEntry>]>,
    lost: Arc<[LostFile]>,
    flushes: u64,
    frozen: Option<Arc<Tail>>,
    /// Who waits for the frozen tail to be in files.
    frozen_waiting: Vec<FlushReply>,
    tail: Tail,
    /// When the oldest row of the tail came.
    filling_since: Instant,
    /// Who waits for everything to be in files.
    waiting: Vec<FlushReply>,
    /// Whose rows are in files, once that shows.
    flushed: Vec<FlushReply>,
    news: Vec<Arc<[Batch]>>,
    answers: Vec<AppendAnswer>,
    /// Whose files are merged, once that shows.
    compacted: Vec<(Compacted, Result<(), StoreError>)>,
    changed: bool,
    /// The earliest time that a row of a clock ahead waits for, nanoseconds UTC since 1970.
    next_ns: Option<i64>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, keeper: SyncSender<Job>, manifest: &Manifest, tail: Tail) -> Self {
        let mut writer = Self {
            shared,
            keeper,
            files: Arc::from(manifest.files.as_slice()),
            rollups: Arc::from(manifest.rollups.as_slice()),
            lost: Arc::from(manifest.lost.as_slice()),
            flushes: 0,
            frozen: None,
            frozen_waiting: Vec::new(),
            tail,
            filling_since: clock::instant(),
            waiting: Vec::new(),
            flushed: Vec::new(),
            news: Vec::new(),
            answers: Vec::new(),
            compacted: Vec::new(),
            changed: true,
            next_ns: None,
        };
        writer.next_ns = lock(&writer.shared).next_ns();
        writer.publish();
        writer
    }

    /// Works until closed, or until no sender is left.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        // The replayed rows may be more than enough for a flush.
        self.freeze_if_due();
        'work: loop {
            let first = match events.recv_timeout(self.patience()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for event in first.into_iter().chain(events.try_iter().take(EVENTS_PER_PUBLISH)) {
                if matches!(event, Event::Close) {
                    self.publish();
                    break 'work;
                }
                self.take(event);
            }
            self.advance();
            self.publish();
            for (answer, outcome) in self.compacted.drain(..) {
                let _gone = answer.send(outcome);
            }
            self.freeze_if_due();
        }
        // Sending fails only if the keeper has ended by a bug; then nobody needs the job.
        let _told = self.keeper.send(Job::Close);
    }

    fn patience(&self) -> Duration {
        let ahead = self.next_ns.map(|next_ns| next_ns.saturating_sub(clock::now_ns()).max(AHEAD_PAUSE_NS));
        let ahead = ahead.map_or(Duration::MAX, |ns| Duration::from_nanos(ns.unsigned_abs()));
        self.flush_patience().min(ahead)
    }

    /// Has rows of a clock ahead count when their time has come.
    fn advance(&mut self) {
        let now_ns = clock::now_ns();
        if self.next_ns.is_none_or(|next_ns| next_ns > now_ns) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut fleet = lock(&shared);
        self.changed |= fleet.advance(now_ns);
        self.next_ns = fleet.next_ns();
    }

    fn flush_patience(&self) -> Duration {
        if self.tail.is_empty() || self.frozen.is_some() {
            return Duration::from_hours(1);
        }
        let age = clock::instant().saturating_duration_since(self.filling_since);
        self.shared.config.flush_age.saturating_sub(age)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Durable { sequence, arrivals, room, answer } => {
                self.arrive(sequence, arrivals, room);
                self.answers.push(answer);
            }
            Event::Files { files, rollups, lost, flushed } => {
                (self.files, self.rollups, self.lost) = (files, rollups, lost);
                if let Some(frozen) = self.frozen.take_if(|_| flushed) {
                    self.shared.room.add_permits(frozen.permits);
                    self.flushes += 1;
                    self.flushed.append(&mut self.frozen_waiting);
                }
                self.changed = true;
            }
            Event::Stuck(error) => {
                for reply in self.frozen_waiting.drain(..).chain(self.waiting.drain(..)) {
                    let _gone = reply.send(Err(StoreError::Unflushed(Arc::clone(&error))));
                }
            }
            Event::Compacted { answer, outcome } => self.compacted.push((answer, outcome)),
            Event::Flush(reply) => self.waiting.push(reply),
            Event::Close => {}
        }
    }

    fn arrive(&mut self, sequence: u64, arrivals: Vec<Arrival>, room: OwnedSemaphorePermit) {
        if self.tail.is_empty() {
            self.filling_since = clock::instant();
        }
        self.tail.permits += room.num_permits();
        room.forget();
        let shared = Arc::clone(&self.shared);
        let mut batches = Vec::with_capacity(arrivals.len());
        for Arrival { batch, keys, chunk, overwritten } in arrivals {
            if batch.table() == Table::GpuEvents {
                let mut fleet = lock(&shared);
                fleet.arrive(&batch, &keys, clock::now_ns());
                self.next_ns = fleet.next_ns();
            }
            shared.overwritten(overwritten);
            match self.tail.push(chunk, sequence) {
                Ok(overwritten) => shared.overwritten(overwritten),
                // Columns of one name with incompatible types stay in chunks of their own; queries report
                // what they could not join.
                Err(error) => tracing::warn!(error = causes(&error), "rows in memory do not fold"),
            }
            batches.push(batch);
        }
        self.news.push(Arc::from(batches));
        self.changed = true;
    }

    /// Publishes the processed events, and answers.
    fn publish(&mut self) {
        if !self.changed {
            return;
        }
        self.changed = false;
        let frozen = self.frozen.iter().flat_map(|tail| tail.chunks());
        let tail = frozen.chain(self.tail.chunks()).cloned().collect();
        self.shared.snapshot.store(Arc::new(Snapshot {
            files: Arc::clone(&self.files),
            rollups: Arc::clone(&self.rollups),
            lost: Arc::clone(&self.lost),
            flushes: self.flushes,
            tail,
        }));
        let version = self.shared.version.load(Ordering::Relaxed) + 1;
        let (gpus, forgotten) = {
            let mut fleet = lock(&self.shared);
            fleet.set_version(version);
            (fleet.gpus(), fleet.forgotten())
        };
        self.shared.version.store(version, Ordering::Release);
        self.shared.counters.gpus.store(gpus as u64, Ordering::Relaxed);
        self.shared.counters.gpus_forgotten.store(forgotten, Ordering::Relaxed);
        let tails = || self.frozen.iter().map(AsRef::as_ref).chain([&self.tail]);
        let rows: usize = tails().map(|tail| tail.rows).sum();
        let bytes: usize = tails().map(|tail| tail.bytes).sum();
        self.shared.counters.tail_rows.store(rows as u64, Ordering::Relaxed);
        self.shared.counters.tail_bytes.store(bytes as u64, Ordering::Relaxed);
        for batches in self.news.drain(..) {
            self.shared.subscribers.send(batches);
        }
        for answer in self.answers.drain(..) {
            let _gone = answer.send(Ok(version));
        }
        for reply in self.flushed.drain(..) {
            let _gone = reply.send(Ok(()));
        }
    }

    fn freeze_if_due(&mut self) {
        if self.frozen.is_some() {
            return;
        }
        if self.tail.is_empty() {
            for reply in self.waiting.drain(..) {
                let _gone = reply.send(Ok(()));
            }
            return;
        }
        let config = &self.shared.config;
        let due = !self.waiting.is_empty()
            || self.tail.rows >= config.flush_rows
            || self.tail.bytes >= config.flush_bytes
            // Many small appends take room by the permit, not by the byte.
            || self.tail.permits >= self.shared.room_permits / 3
            || clock::instant().saturating_duration_since(self.filling_since) >= config.flush_age;
        if !due {
            return;
        }
        let frozen = Arc::new(std::mem::take(&mut self.tail));
        self.frozen = Some(Arc::clone(&frozen));
        self.frozen_waiting.append(&mut self.waiting);
        if self.keeper.send(Job::Flush(frozen)).is_err() {
            self.shared.board.set(Part::Flush, Some("the thread that writes files has ended".to_owned()));
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, LiveFleet> {
    shared.fleet.lock().unwrap_or_else(PoisonError::into_inner)
}
