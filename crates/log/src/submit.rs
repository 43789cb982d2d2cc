//! The bounded queue between callers and the writer thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::config::{Durability, LogConfig};
use crate::error::LogError;
use crate::format::record_size;

type Callback = Box<dyn FnOnce(Result<u64, LogError>) + Send>;

/// A callback that is called exactly once: with [`LogError::Closed`] if it is dropped.
pub(crate) struct Completion(Option<Callback>);

impl Completion {
    pub(crate) fn new(callback: Callback) -> Self {
        Self(Some(callback))
    }

    pub(crate) fn complete(mut self, result: Result<u64, LogError>) {
        if let Some(callback) = self.0.take() {
            callback(result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(LogError::Closed));
        }
    }
}

/// A record that waits to be written.
pub(crate) struct Append {
    pub(crate) kind: u8,
    pub(crate) payload: Bytes,
    pub(crate) durability: Durability,
    pub(crate) done: Completion,
}

/// What callers ask of the writer.
pub(crate) enum Command {
    Append(Append),
    /// Sync all that was written; completed with the next sequence.
    Sync(Completion),
    /// Drop segments below the sequence; completed with their number.
    TruncateBefore(u64, Completion),
}

impl Command {
    fn into_completion(self) -> Completion {
        match self {
            Self::Append(append) => append.done,
            Self::Sync(done) | Self::TruncateBefore(_, done) => done,
        }
    }
}

/// What the writer is to do next.
pub(crate) enum Work {
    Group(Group),
    TruncateBefore(u64, Completion),
    Close,
}

/// What is written with one call and synced with one, if anybody waits for that.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) appends: Vec<Append>,
    /// Those who wait for a sync of these and all before.
    pub(crate) barriers: Vec<Completion>,
}

/// Counts of a log, all since it was opened unless said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments on the disk now.
    pub segments: u64,
    /// Bytes of these up to their last record (zero-filled space is not counted).
    pub bytes: u64,
    /// Records in these.
    pub records: u64,
    /// The sequence that the next record gets.
    pub next_sequence: u64,
    /// Groups written.
    pub groups: u64,
    /// Syncs of record data.
    pub syncs: u64,
    /// Groups that could not be written, and were rolled back.
    pub write_failures: u64,
    /// Appends refused with [`LogError::Full`].
    pub refused: u64,
    /// Records that wait for the writer now.
    pub queued_records: u64,
    /// Bytes that wait for the writer now.
    pub queued_bytes: u64,
    /// Whether the log is poisoned.
    pub poisoned: bool,
}

/// What [`Shared::submit`] does when the queue is at its bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Refuse,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    bytes: usize,
    records: usize,
    refused: u64,
    closing: bool,
    /// Why nothing more is accepted.
    failure: Option<LogError>,
    stats: Stats,
}

/// The queue, shared by all callers and the writer.
pub(crate) struct Shared {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    records_max: usize,
    bytes_max: usize,
}

impl Shared {
    pub(crate) fn new(config: &LogConfig, stats: Stats) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { stats, ..State::default() }),
            work: Condvar::new(),
            room: Condvar::new(),
            records_max: config.queue_records_max as usize,
            bytes_max: config.queue_len_max as usize,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a command in the queue. What cannot be put there is completed with the reason.
    pub(crate) fn submit(&self, command: Command, when_full: WhenFull) {
        if let Err((error, command)) = self.try_submit(command, when_full) {
            command.into_completion().complete(Err(error));
        }
    }

    fn try_submit(&self, command: Command, when_full: WhenFull) -> Result<(), (LogError, Command)> {
        let size = match &command {
            Command::Append(append) => record_size(append.payload.len()),
            Command::Sync(_) | Command::TruncateBefore(..) => 0,
        };
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err((failure.clone(), command));
            }
            if state.closing {
                return Err((LogError::Closed, command));
            }
            let fits = state.records < self.records_max && state.bytes.saturating_add(size) <= self.bytes_max;
            if size == 0 || fits || state.records == 0 {
                break;
            }
            if when_full == WhenFull::Refuse {
                state.refused += 1;
                return Err((LogError::Full { records: state.records, bytes: state.bytes }, command));
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if size > 0 {
            state.bytes += size;
            state.records += 1;
        }
        state.commands.push_back(command);
        self.work.notify_one();
        Ok(())
    }

    /// Waits for work. A group has at most `group_max` bytes and fits the `room` left in the segment, or, if its first
    /// record does not, a new segment with room for `capacity`.
    pub(crate) fn take(&self, room: usize, capacity: usize, group_max: usize) -> Work {
        let mut state = self.lock();
        loop {
            if let Some(Command::TruncateBefore(sequence, done)) =
                state.commands.pop_front_if(|command| matches!(command, Command::TruncateBefore(..)))
            {
                return Work::TruncateBefore(sequence, done);
            }
            if !state.commands.is_empty() {
                let group = state.take_group(room, capacity, group_max);
                self.room.notify_all();
                return Work::Group(group);
            }
            if state.closing {
                return Work::Close;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets nobody in any more; what is queued is still done.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Why the log accepts nothing more, if something failed for good.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.lock().failure.clone()
    }

    /// Refuses everything from now on, and what is queued.
    pub(crate) fn fail(&self, error: &LogError) {
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| error.clone());
        state.stats.poisoned = matches!(state.failure, Some(LogError::Poisoned { .. }));
        state.bytes = 0;
        state.records = 0;
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        self.room.notify_all();
        for command in commands {
            command.into_completion().complete(Err(error.clone()));
        }
    }

    /// The writer's side of [`Stats`].
    pub(crate) fn publish(&self, stats: Stats) {
        let mut state = self.lock();
        let poisoned = state.stats.poisoned;
        state.stats = Stats { poisoned, ..stats };
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        Stats {
            queued_records: state.records as u64,
            queued_bytes: state.bytes as u64,
            refused: state.refused,
            ..state.stats
        }
    }
}

impl State {
    fn take_group(&mut self, room: usize, capacity: usize, group_max: usize) -> Group {
        let mut group = Group::default();
        let (mut taken, mut limit) = (0, None);
        let mut fits = |command: &mut Command| match command {
            Command::Append(append) => {
                let size = record_size(append.payload.len());
                let room = if size <= room { room } else { capacity };
                taken += size;
                taken <= *limit.get_or_insert(group_max.min(room).max(size))
            }
            Command::Sync(_) => true,
            Command::TruncateBefore(..) => false,
        };
        while let Some(command) = self.commands.pop_front_if(&mut fits) {
            match command {
                Command::Append(append) => {
                    self.bytes -= record_size(append.payload.len());
                    self.records -= 1;
                    group.appends.push(append);
                }
                Command::Sync(done) | Command::TruncateBefore(_, done) => group.barriers.push(done),
            }
        }
        group
    }
}
