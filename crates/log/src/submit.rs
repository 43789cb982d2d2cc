//! The bounded queue between callers and the writer thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::config::{Durability, LogConfig};
use crate::error::LogError;
use crate::format::record_size;
use crate::place::Appended;

/// One-shot completion callback.
pub(crate) type Callback<T> = Box<dyn FnOnce(Result<T, LogError>) + Send>;

/// A callback that is called exactly once: with [`LogError::Closed`] if it is dropped.
pub(crate) struct Completion<T>(Option<Callback<T>>);

impl<T> Completion<T> {
    pub(crate) fn new(callback: Callback<T>) -> Self {
        Self(Some(callback))
    }

    pub(crate) fn complete(mut self, result: Result<T, LogError>) {
        if let Some(callback) = self.0.take() {
            callback(result);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(LogError::Closed));
        }
    }
}

/// Another first part of a record, shorter than its own, which means the same only in one segment: it refers to a record
/// there. One that is not shorter is never taken.
#[derive(Debug, Clone)]
pub struct Shorter {
    /// The base of the segment.
    pub segment: u64,
    /// The first part, if the record is written there.
    pub part: Bytes,
}

/// A record that waits to be written.
pub(crate) struct Append {
    pub(crate) kind: u8,
    /// In two parts, of which one may be empty.
    pub(crate) payload: [Bytes; 2],
    pub(crate) shorter: Option<Shorter>,
    pub(crate) durability: Durability,
    pub(crate) done: Completion<Appended>,
}

impl Append {
    /// One whose payload is in one part.
    pub(crate) fn of(kind: u8, payload: Bytes, durability: Durability, done: Completion<Appended>) -> Self {
        Self { kind, payload: [payload, Bytes::new()], shorter: None, durability, done }
    }

    pub(crate) fn payload_len(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }

    /// Bytes that it will take in a segment, at most.
    pub(crate) fn size(&self) -> usize {
        record_size(self.payload_len())
    }

    /// Its payload in the segment with this base.
    pub(crate) fn payload_in(&self, segment: u64) -> [&[u8]; 2] {
        let [first, second] = &self.payload;
        match &self.shorter {
            Some(shorter) if shorter.segment == segment => [&shorter.part, second],
            _ => [first, second],
        }
    }
}

/// The callers' commands to the writer.
pub(crate) enum Command {
    Append(Append),
    /// Sync everything written; completed with the next sequence.
    Sync(Completion<u64>),
    /// Drop segments below the sequence; completed with their number.
    TruncateBefore(u64, Completion<u64>),
    /// Look whether the directory is in its place; completed with the sequence below which all is durable.
    Check(Completion<u64>),
}

impl Command {
    /// Bytes that it will take in a segment.
    fn size(&self) -> usize {
        match self {
            Self::Append(append) => append.size(),
            Self::Sync(_) | Self::TruncateBefore(..) | Self::Check(_) => 0,
        }
    }

    fn refuse(self, error: LogError) {
        match self {
            Self::Append(append) => append.done.complete(Err(error)),
            Self::Sync(done) | Self::TruncateBefore(_, done) | Self::Check(done) => done.complete(Err(error)),
        }
    }
}

/// The writer's next work.
pub(crate) enum Work {
    Group(Group),
    TruncateBefore(u64, Completion<u64>),
    Check(Completion<u64>),
}

/// Records written with one call and synced with one, if anyone waits for a sync.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) appends: Vec<Append>,
    /// Waiters for a sync of these records and all before.
    pub(crate) barriers: Vec<Completion<u64>>,
}

/// What [`Shared::submit`] does when the queue is at its bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Refuse,
    /// It is taken, and the bound is exceeded.
    Exceed,
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<Command>,
    /// Bytes that the appends among them will take.
    bytes: usize,
    refused: u64,
    /// The writer's thread sleeps, and nobody has woken it yet. Waking a thread that is awake still costs a
    /// system call.
    writer_waits: bool,
    /// The turn is taken, by the writer's thread or a caller.
    is_taken: bool,
    /// Callers that sleep until there is room.
    callers_wait: usize,
    closing: bool,
    /// Why nothing more is accepted.
    failure: Option<LogError>,
}

/// How full the queue is.
pub(crate) struct Load {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
    pub(crate) poisoned: bool,
}

/// The queue, shared by all callers and the writer.
pub(crate) struct Shared {
    state: Mutex<QueueState>,
    work: Condvar,
    room: Condvar,
    commands_max: usize,
    bytes_max: usize,
}

impl Shared {
    pub(crate) fn new(config: &LogConfig) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            commands_max: config.queue_records_max as usize,
            bytes_max: config.queue_len_max as usize,
        })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a command in the queue, and wakes the writer. A refused command is completed with the reason.
    pub(crate) fn submit(&self, command: Command, when_full: WhenFull) {
        self.submit_quietly(command, when_full);
        self.wake();
    }

    /// [`Shared::submit`] that wakes nobody.
    pub(crate) fn submit_quietly(&self, command: Command, when_full: WhenFull) {
        let size = command.size();
        match self.room_for(size, when_full) {
            Ok(mut state) => {
                state.bytes += size;
                state.commands.push_back(command);
            }
            Err(error) => command.refuse(error),
        }
    }

    /// The queue, with room for so many bytes.
    fn room_for(&self, size: usize, when_full: WhenFull) -> Result<MutexGuard<'_, QueueState>, LogError> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.closing {
                return Err(LogError::Closed);
            }
            let fits = state.bytes == 0 || state.bytes.saturating_add(size) <= self.bytes_max;
            let has_room = fits && state.commands.len() < self.commands_max;
            if has_room || when_full == WhenFull::Exceed {
                return Ok(state);
            }
            if when_full == WhenFull::Refuse {
                state.refused += 1;
                return Err(LogError::Full { records: state.commands.len(), bytes: state.bytes });
            }
            state.callers_wait += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.callers_wait -= 1;
        }
    }

    /// Wakes the writer if work is waiting and nobody holds the turn.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        let is_due = !state.is_taken && (state.closing || !state.commands.is_empty());
        if is_due && std::mem::take(&mut state.writer_waits) {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Waits for work and takes the turn for the writer. `None`: the log is closed and nothing is left.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        loop {
            if !state.is_taken {
                if !state.commands.is_empty() {
                    state.is_taken = true;
                    return Some(Turn(self));
                }
                if state.closing {
                    return None;
                }
            }
            state.writer_waits = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.writer_waits = false;
        }
    }

    /// Takes the turn for a caller, if exactly one append waits and the turn is free. Also returns the
    /// append's bytes.
    pub(crate) fn turn_of_lone(&self) -> Option<(Turn<'_>, usize)> {
        let mut state = self.lock();
        if state.is_taken || state.closing || state.commands.len() != 1 {
            return None;
        }
        let size = state.commands.front().filter(|command| matches!(command, Command::Append(_)))?.size();
        state.is_taken = true;
        Some((Turn(self), size))
    }

    /// Accepts nothing more; queued work is still done.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Why the log accepts nothing more, if something failed for good.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.lock().failure.clone()
    }

    /// Refuses everything from now on, queued work included.
    pub(crate) fn fail(&self, error: &LogError) {
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| error.clone());
        state.bytes = 0;
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        self.room.notify_all();
        for command in commands {
            command.refuse(error.clone());
        }
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        Load {
            commands: state.commands.len() as u64,
            bytes: state.bytes as u64,
            refused: state.refused,
            poisoned: matches!(state.failure, Some(LogError::Poisoned { .. })),
        }
    }
}

/// The exclusive right to work on the files.
pub(crate) struct Turn<'a>(&'a Shared);

impl Turn<'_> {
    /// Takes the waiting work. A group has at most `group_max` bytes and fits the `room` left in the segment,
    /// or, if its first record does not, a new segment with room for `capacity`.
    pub(crate) fn take(&self, room: usize, capacity: usize, group_max: usize) -> Option<Work> {
        let mut state = self.0.lock();
        let work = state.take_work(room, capacity, group_max)?;
        let callers_wait = state.callers_wait > 0;
        drop(state);
        if callers_wait {
            self.0.room.notify_all();
        }
        Some(work)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&LogError::Closed);
        }
        self.0.lock().is_taken = false;
        // Commands that arrived meanwhile.
        self.0.wake();
    }
}

impl QueueState {
    fn take_work(&mut self, room: usize, capacity: usize, group_max: usize) -> Option<Work> {
        let is_alone =
            |command: &mut Command| matches!(command, Command::TruncateBefore(..) | Command::Check(_));
        match self.commands.pop_front_if(is_alone) {
            Some(Command::TruncateBefore(sequence, done)) => {
                return Some(Work::TruncateBefore(sequence, done));
            }
            Some(Command::Check(done)) => return Some(Work::Check(done)),
            _ => {}
        }
        let is_empty = self.commands.is_empty();
        (!is_empty).then(|| Work::Group(self.take_group(room, capacity, group_max)))
    }

    fn take_group(&mut self, room: usize, capacity: usize, group_max: usize) -> Group {
        let mut group = Group::default();
        let (mut taken, mut limit) = (0, None);
        let mut fits = |command: &mut Command| match command {
            Command::Append(append) => {
                let size = append.size();
                let room = if size <= room { room } else { capacity };
                taken += size;
                taken <= *limit.get_or_insert(group_max.min(room).max(size))
            }
            Command::Sync(_) => true,
            Command::TruncateBefore(..) | Command::Check(_) => false,
        };
        while let Some(command) = self.commands.pop_front_if(&mut fits) {
            match command {
                Command::Append(append) => {
                    self.bytes -= append.size();
                    group.appends.push(append);
                }
                Command::Sync(done) | Command::TruncateBefore(_, done) | Command::Check(done) => {
                    group.barriers.push(done);
                }
            }
        }
        group
    }
}
