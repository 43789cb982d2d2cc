//! What is kept, oldest first, within bounds: in memory, and on a shelf where there is a directory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::{Appended, Durability, Log, LogError, Place};
use tokio::time::{Instant, timeout_at};

use super::sending::SPAN;
use super::shelf::{Found, News, Places, QUEUE_LEN_MAX, RECORD_OVERHEAD, Shelf};
use super::suspects::{Refusal, Suspects, Taken};
use super::{Amount, MEMORY_MAX, SpoolError, SpoolStats, record};
use crate::frame::Frame;

/// Frames that are kept at most: their places are in memory, some 10 MB of it.
const FRAMES_MAX: u64 = 1 << 17;
/// Misses after which a frame is set aside: a way that comes and goes hardly gets so far.
const MISSES_MAX: u32 = 4;
/// Frames that are written together at the end; fewer than may wait for the log.
const LAST_TOGETHER: usize = 256;

/// What is kept.
pub(super) struct Backlog {
    shelf: Option<Shelf>,
    /// Bytes in all, and of those in memory.
    limit: u64,
    memory_limit: u64,
    entries: VecDeque<Entry>,
    /// Number of the first of them; numbers grow by one.
    first: u64,
    /// Nothing before this number waits.
    next: u64,
    /// What the queue refused, by numbers that are gone from the entries.
    suspects: Suspects,
    /// Numbers of what is in memory, and of some that are there no more.
    in_memory: VecDeque<u64>,
    /// The disk did not take some of that.
    is_left: bool,
    memory_bytes: u64,
    bytes: u64,
    kept: Amount,
    dropped: Amount,
}

pub(super) struct Entry {
    messages: u32,
    pub(super) bytes: u64,
    pub(super) state: State,
    misses: Misses,
    pub(super) body: Body,
}

/// Tries of a frame that was not taken then, between any two of which the queue took others.
#[derive(Clone, Copy, Default)]
struct Misses {
    times: u32,
    /// Frames that the queue had taken at the last one.
    taken: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    UnderWay,
    Gone,
}

pub(super) enum Body {
    Memory(Box<Frame>),
    /// Still in memory, on its way to the disk.
    Writing(Box<Frame>),
    Disk(Appended),
    /// It was on the disk, which lost it when a sync failed.
    Lost,
    None,
}

/// A frame, or where it is.
pub(super) enum Stored {
    Frame(Frame),
    Record(Arc<Log>, Place),
    Lost,
}

impl Backlog {
    /// In memory only.
    pub(super) fn in_memory(limit: u64) -> Self {
        let limit = limit.min(MEMORY_MAX);
        Self {
            shelf: None,
            limit,
            memory_limit: limit,
            entries: VecDeque::new(),
            first: 0,
            next: 0,
            suspects: Suspects::default(),
            in_memory: VecDeque::new(),
            is_left: false,
            memory_bytes: 0,
            bytes: 0,
            kept: Amount::default(),
            dropped: Amount::default(),
        }
    }

    /// In a directory of its own, with what an earlier process left there.
    pub(super) fn in_directory(directory: &Path, limit: u64) -> Result<Self, SpoolError> {
        Ok(Self::on_shelf(Shelf::in_directory(directory, limit)?, limit))
    }

    fn on_shelf((shelf, found): (Shelf, Vec<Found>), limit: u64) -> Self {
        let limit = limit - shelf.slack();
        let mut backlog = Self { shelf: Some(shelf), limit, ..Self::in_memory(MEMORY_MAX) };
        backlog.recover(found);
        backlog
    }

    fn recover(&mut self, found: Vec<Found>) {
        let mut before = None;
        for Found { order, messages, bytes, at, .. } in found {
            // Whatever is missing of a producer's numbers keeps its distance, which is how far a frame is ahead of another.
            let missing = match before.replace(order) {
                Some((producer, number)) if producer == order.0 => order.1.saturating_sub(number + 1),
                _ => 0,
            };
            for _ in 0..missing.min(SPAN) {
                self.entries.push_back(Entry::GONE);
            }
            self.add(messages, bytes, Body::Disk(at));
        }
        self.hold_bounds();
        if self.kept.frames > 0 {
            let Amount { frames, messages } = self.kept;
            tracing::info!(frames, messages, "what was spooled before is sent again");
        }
    }

    /// What is kept.
    pub(super) fn kept(&self) -> Amount {
        self.kept
    }

    /// Fills in what the stats say of it.
    pub(super) fn add_to(&self, stats: &mut SpoolStats) {
        (stats.kept, stats.kept_bytes, stats.memory_bytes) = (self.kept, self.bytes, self.memory_bytes);
        stats.dropped = self.dropped;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.frames == 0
    }

    /// Whether there is a directory.
    pub(super) fn is_on_disk(&self) -> bool {
        self.shelf.is_some()
    }

    /// Whether nothing would be safer by waiting: all is gone, or written, or cannot be.
    pub(super) fn is_safe(&self) -> bool {
        match &self.shelf {
            Some(shelf) => !shelf.is_writing(),
            None => self.is_empty(),
        }
    }

    /// Keeps a frame, and gives its number; the oldest make room.
    pub(super) fn push(&mut self, frame: Frame) -> u64 {
        let number = self.first + self.entries.len() as u64;
        let messages = frame.count;
        let (bytes, body) = match &mut self.shelf {
            None => (frame.cost_bytes(), Body::Memory(Box::new(frame))),
            Some(shelf) => {
                let payload = record::encode(&frame);
                let bytes = payload.len() as u64 + RECORD_OVERHEAD;
                let frame = Box::new(frame);
                if shelf.is_open() {
                    shelf.write(number, payload, Durability::Written);
                    (bytes, Body::Writing(frame))
                } else {
                    (bytes, Body::Memory(frame))
                }
            }
        };
        self.add(messages, bytes, body);
        self.hold_bounds();
        number
    }

    fn add(&mut self, messages: u32, bytes: u64, body: Body) {
        if body.is_in_memory() {
            self.in_memory.push_back(self.first + self.entries.len() as u64);
            self.memory_bytes += bytes;
        }
        self.bytes += bytes;
        self.kept.add(messages);
        let (state, misses) = (State::Waiting, Misses::default());
        self.entries.push_back(Entry { messages, bytes, state, misses, body });
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        match self.suspects.get_mut(number) {
            Some(suspect) => Some(&mut suspect.entry),
            None => self.entries.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?),
        }
    }

    /// The numbers of what is kept, and of some that is gone.
    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let end = self.first + self.entries.len() as u64;
        self.suspects.before(self.first).into_iter().chain(self.first..end)
    }

    /// The oldest frame that waits, no suspect; it is under way from now on. None if there is none, or it is too far ahead of
    /// one that is not settled, or there are as many suspects as may be.
    pub(super) fn take(&mut self) -> Option<(u64, Stored)> {
        if self.suspects.is_full() {
            return None;
        }
        let end = (self.first + SPAN).min(self.first + self.entries.len() as u64);
        for number in self.next.max(self.first)..end {
            self.next = number + 1;
            let log = self.shelf.as_ref().map(Shelf::log);
            let index = usize::try_from(number - self.first).ok()?;
            let Some(entry) = self.entries.get_mut(index).filter(|entry| entry.state == State::Waiting)
            else {
                continue;
            };
            let stored = match (&entry.body, log) {
                (Body::Memory(frame) | Body::Writing(frame), _) => Stored::Frame((**frame).clone()),
                (Body::Disk(at), Some(log)) => Stored::Record(log, at.place),
                (Body::Lost, _) => Stored::Lost,
                _ => continue,
            };
            entry.state = State::UnderWay;
            return Some((number, stored));
        }
        None
    }

    /// The suspect that was tried longest ago; it is under way from now on.
    pub(super) fn take_suspect(&mut self) -> Option<(u64, Stored)> {
        let (number, frame) = self.suspects.take()?;
        Some((number, Stored::Frame(frame)))
    }

    /// When a suspect is to be tried again beside the others, if one may be.
    pub(super) fn suspect_at(&self) -> Option<Instant> {
        self.suspects.next_at()
    }

    /// The queue is back: those suspects are tried at once that may have been refused as all others were.
    pub(super) fn try_suspects(&mut self) {
        self.suspects.try_innocent();
    }

    /// A frame that was under way was refused, for whatever reason: it becomes a suspect, unless it is one or there are as
    /// many as may be.
    pub(super) fn refuse(&mut self, number: u64, frame: Frame, taken: Taken) -> Refusal {
        if let Some(suspect) = self.suspects.get_mut(number) {
            return suspect
                .refused(taken.now)
                .unwrap_or_else(|| Refusal::GivenUp(self.settle(number).unwrap_or_default()));
        }
        self.set_aside(number, frame, taken.now);
        if taken.now > taken.before { Refusal::Despite } else { Refusal::Alone }
    }

    /// A frame that was under way was not taken, for a reason that need not be its own: it waits again. It becomes a suspect
    /// if that happens again and again while the queue takes others, and says nothing of the queue then; answers whether it
    /// does.
    pub(super) fn miss(&mut self, number: u64, frame: Frame, taken: u64) -> bool {
        let is_suspect = self.suspects.get_mut(number).is_some();
        self.give_back(number);
        let Some(entry) = self.entry(number).filter(|_| !is_suspect) else { return false };
        let Misses { times, taken: before } = entry.misses;
        let times = if times == 0 || taken > before { times + 1 } else { times };
        entry.misses = Misses { times, taken };
        if times >= MISSES_MAX {
            self.set_aside(number, frame, taken);
        }
        times < MISSES_MAX
    }

    /// Makes a suspect of a frame, if there are not as many as may be; otherwise it waits again.
    fn set_aside(&mut self, number: u64, frame: Frame, taken: u64) {
        if self.suspects.is_full() {
            self.give_back(number);
        } else if let Some(entry) = self.entry(number).filter(|entry| entry.state != State::Gone) {
            let entry = std::mem::replace(entry, Entry::GONE);
            self.suspects.add(number, entry, frame, taken);
            self.pop_gone();
        }
    }

    /// A frame that was under way waits again.
    pub(super) fn give_back(&mut self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.state = State::Waiting;
            self.next = self.next.min(number);
        }
    }

    /// A frame that was under way is needed no more. Gives its messages.
    pub(super) fn settle(&mut self, number: u64) -> Option<u32> {
        let messages = self.remove(number)?;
        self.pop_gone();
        Some(messages)
    }

    fn remove(&mut self, number: u64) -> Option<u32> {
        let entry = self.entry(number).filter(|entry| entry.state != State::Gone)?;
        let (messages, bytes) = (entry.messages, entry.bytes);
        let body = std::mem::replace(&mut entry.body, Body::None);
        entry.state = State::Gone;
        if body.is_in_memory() {
            self.memory_bytes -= bytes;
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.settle(bytes);
        }
        self.bytes -= bytes;
        self.kept.remove(messages);
        Some(messages)
    }

    /// Takes off the front what is gone, and notes it if it has become much or all.
    fn pop_gone(&mut self) {
        self.suspects.forget_gone();
        while self.entries.pop_front_if(|entry| entry.state == State::Gone).is_some() {
            self.first += 1;
        }
        let first = self.first;
        while self.in_memory.pop_front_if(|number| *number < first).is_some() {}
        let is_all = self.is_empty();
        if self.shelf.as_ref().is_some_and(|shelf| shelf.is_worth_a_note(is_all)) {
            self.note();
            self.move_suspects();
        }
    }

    /// Lets the oldest go that wait, until the bounds hold.
    fn hold_bounds(&mut self) {
        if self.is_beyond() {
            for number in self.numbers() {
                self.drop_waiting(number);
                if !self.is_beyond() {
                    break;
                }
            }
        }
        // Only while the disk takes less than comes: what is written leaves memory.
        let mut suspects = self.suspects.before(self.first).into_iter();
        while self.memory_bytes > self.memory_limit
            && let Some(number) = suspects.next().or_else(|| self.in_memory.pop_front())
        {
            if self.entry(number).is_some_and(|entry| entry.body.is_in_memory()) {
                self.drop_waiting(number);
            }
        }
        self.pop_gone();
    }

    fn is_beyond(&self) -> bool {
        self.bytes > self.limit || self.kept.frames > FRAMES_MAX
    }

    fn drop_waiting(&mut self, number: u64) {
        if self.entry(number).is_some_and(|entry| entry.state == State::Waiting)
            && let Some(messages) = self.remove(number)
        {
            self.dropped.add(messages);
        }
    }

    /// Waits until the disk has something to say: a frame is there or cannot be, or its log was opened anew. None if nothing
    /// is to come.
    pub(super) async fn news(&mut self) -> Option<()> {
        match self.shelf.as_mut()?.news().await? {
            News::Written(number, result) => self.note_written(number, result),
            News::Reopened(places) => self.find_again(&places),
        }
        Some(())
    }

    /// Waits until a frame is on the disk, or cannot be. None if none is on its way there.
    pub(super) async fn written(&mut self) -> Option<()> {
        let (number, result) = self.shelf.as_mut()?.written().await?;
        self.note_written(number, result);
        Some(())
    }

    /// What was on the disk is where its log has it now, or lost; what is in memory goes there.
    fn find_again(&mut self, places: &Places) {
        let place = |at: Appended| places.get(&at.sequence).map(|place| Appended { place: *place, ..at });
        for (number, suspect) in self.suspects.iter_mut() {
            suspect.is_moving = false;
            let Body::Disk(at) = suspect.entry.body else { continue };
            suspect.entry.body = if let Some(at) = place(at) {
                Body::Disk(at)
            } else {
                self.in_memory.push_back(number);
                self.memory_bytes += suspect.entry.bytes;
                Body::Memory(Box::new(suspect.frame.clone()))
            };
        }
        for entry in &mut self.entries {
            if let Body::Disk(at) = entry.body {
                entry.body = place(at).map_or(Body::Lost, Body::Disk);
            }
        }
        self.write_left();
    }

    fn note_written(&mut self, number: u64, result: Result<Appended, LogError>) {
        let Some(entry) = self.entry(number).filter(|entry| entry.state != State::Gone) else {
            // It was sent from memory meanwhile, and only now there is something to note.
            if let Some(shelf) = &mut self.shelf {
                shelf.settle(0);
            }
            self.pop_gone();
            return;
        };
        let bytes = entry.bytes;
        let is_written = result.is_ok();
        match (result, std::mem::replace(&mut entry.body, Body::None)) {
            (Ok(appended), before) => {
                entry.body = Body::Disk(appended);
                if before.is_in_memory() {
                    self.memory_bytes -= bytes;
                    self.in_memory.pop_front_if(|front| *front == number);
                }
            }
            (Err(_), Body::Writing(frame)) => entry.body = Body::Memory(frame),
            (Err(_), other) => entry.body = other,
        }
        if let Some(suspect) = self.suspects.get_mut(number).filter(|suspect| suspect.is_moving) {
            suspect.is_moving = false;
            self.note();
        }
        self.is_left |= !is_written;
        if self.is_left && is_written {
            self.write_left();
        }
    }

    /// Writes the oldest of what the disk did not take before: it works again.
    fn write_left(&mut self) {
        let suspects = self.suspects.before(self.first);
        let numbers: Vec<u64> = suspects.into_iter().chain(self.in_memory.iter().copied()).collect();
        self.is_left = numbers.into_iter().any(|number| self.write_again(number).is_some());
    }

    /// Writes a frame that the disk did not take before, if it is one and the disk can have it. Gives its bytes. It stays in
    /// memory until it is synced: the disk has failed once.
    fn write_again(&mut self, number: u64) -> Option<u64> {
        let mut shelf = self.shelf.take()?;
        let entry = self.entry(number).filter(|entry| shelf.is_open() && shelf.fits(entry.bytes));
        let written = entry.and_then(|entry| {
            let Body::Memory(frame) = &entry.body else { return None };
            shelf.write(number, record::encode(frame), Durability::Synced);
            entry.body = Body::Writing(frame.clone());
            Some(entry.bytes)
        });
        self.shelf = Some(shelf);
        written
    }

    /// Syncs what is written, some time soon.
    pub(super) fn sync(&self) {
        if let Some(shelf) = &self.shelf {
            shelf.sync();
        }
    }

    /// Notes how far everything is settled.
    fn note(&mut self) {
        let oldest = Self::first_on_disk(self.entries.iter().chain(self.suspects.entries()));
        if let Some(shelf) = self.shelf.as_mut().filter(|shelf| shelf.is_open()) {
            shelf.note(oldest);
        }
    }

    /// The first sequence on the disk of some entries.
    fn first_on_disk<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<u64> {
        // All are looked at: what a failing disk did not take at first has a later sequence than what came after it.
        let sequences = entries.filter_map(|entry| match entry.body {
            Body::Disk(at) => Some(at.sequence),
            _ => None,
        });
        sequences.min()
    }

    /// Writes suspects anew that lie before all others: what is settled behind them can neither be noted nor freed as long as
    /// they do. Synced, since their old place may go then.
    fn move_suspects(&mut self) {
        let Some(shelf) = self.shelf.as_mut().filter(|shelf| shelf.is_open()) else { return };
        let others = Self::first_on_disk(self.entries.iter()).unwrap_or(u64::MAX);
        for (number, suspect) in self.suspects.iter_mut() {
            if suspect.rests_at().is_some_and(|at| at < others) {
                suspect.is_moving = true;
                shelf.write(number, record::encode(&suspect.frame), Durability::Synced);
            }
        }
    }

    /// Brings to the disk what can be within so long, and counts the rest as dropped.
    pub(super) async fn close(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        if let Some(shelf) = &mut self.shelf {
            shelf.hurry();
        }
        while self.shelf.as_ref().is_some_and(|shelf| !shelf.is_open())
            && let Ok(Some(())) = timeout_at(deadline, self.news()).await
        {}
        self.move_suspects();
        // What a disk that hangs has not taken by then counts as dropped, though it may lie there one day.
        let _late = timeout_at(deadline, self.write_rest()).await;
        self.note();
        for number in self.numbers() {
            if self.entry(number).is_some_and(|entry| entry.body.is_in_memory())
                && let Some(messages) = self.remove(number)
            {
                self.dropped.add(messages);
            }
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.close(deadline).await;
        }
    }

    /// Writes what is in memory, a part at a time: all together is more than may wait for the log.
    async fn write_rest(&mut self) {
        while self.written().await.is_some() {}
        let (mut bytes, mut frames) = (0, 0);
        for number in self.numbers() {
            let Some(written) = self.write_again(number) else { continue };
            (bytes, frames) = (bytes + written, frames + 1);
            if bytes >= u64::from(QUEUE_LEN_MAX) / 2 || frames >= LAST_TOGETHER {
                while self.written().await.is_some() {}
                (bytes, frames) = (0, 0);
            }
        }
        while self.written().await.is_some() {}
    }
}

impl Entry {
    const GONE: Self = Self {
        messages: 0,
        bytes: 0,
        state: State::Gone,
        misses: Misses { times: 0, taken: 0 },
        body: Body::None,
    };
}

impl Body {
    fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Writing(_))
    }
}

#[cfg(test)]
mod tests;
