//! What is kept, oldest first, within bounds: in memory, and on a shelf where there is a directory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::{Appended, Log, Place};
use tokio::time::{Instant, timeout_at};

use super::sending::SPAN;
use super::shelf::{Found, QUEUE_LEN_MAX, RECORD_OVERHEAD, Shelf};
use super::{Amount, MEMORY_MAX, SpoolError, SpoolStats, record};
use crate::frame::Frame;

/// Frames that are kept at most: their places are in memory, some 5 MB of it.
const FRAMES_MAX: u64 = 1 << 17;
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
    /// Numbers of what is in memory, and of some that are there no more.
    in_memory: VecDeque<u64>,
    memory_bytes: u64,
    bytes: u64,
    kept: Amount,
    dropped: Amount,
}

struct Entry {
    messages: u32,
    bytes: u64,
    state: State,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    UnderWay,
    Gone,
}

enum Body {
    Memory(Box<Frame>),
    /// Still in memory, on its way to the disk.
    Writing(Box<Frame>),
    Disk(Appended),
    None,
}

/// A frame, or where it is.
pub(super) enum Stored {
    Frame(Frame),
    Record(Arc<Log>, Place),
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
            in_memory: VecDeque::new(),
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
        for Found { order, messages, bytes, at } in found {
            // Whatever is missing of a producer's numbers keeps its distance, which is how far a frame is ahead of another.
            let missing = match before.replace(order) {
                Some((producer, number)) if producer == order.0 => order.1.saturating_sub(number + 1),
                _ => 0,
            };
            for _ in 0..missing.min(SPAN) {
                self.entries.push_back(Entry { messages: 0, bytes: 0, state: State::Gone, body: Body::None });
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

    /// Keeps a frame; the oldest make room.
    pub(super) fn push(&mut self, frame: Frame) {
        let number = self.first + self.entries.len() as u64;
        let messages = frame.count;
        let (bytes, body) = match &mut self.shelf {
            None => (frame.cost_bytes(), Body::Memory(Box::new(frame))),
            Some(shelf) => {
                let payload = record::encode(&frame);
                let bytes = payload.len() as u64 + RECORD_OVERHEAD;
                shelf.write(number, payload);
                (bytes, Body::Writing(Box::new(frame)))
            }
        };
        self.add(messages, bytes, body);
        self.hold_bounds();
    }

    fn add(&mut self, messages: u32, bytes: u64, body: Body) {
        if body.is_in_memory() {
            self.in_memory.push_back(self.first + self.entries.len() as u64);
            self.memory_bytes += bytes;
        }
        self.bytes += bytes;
        self.kept.add(messages);
        self.entries.push_back(Entry { messages, bytes, state: State::Waiting, body });
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// The oldest frame that waits; it is under way from now on. None if there is none, or it is too far ahead of one that is
    /// not settled.
    pub(super) fn take(&mut self) -> Option<(u64, Stored)> {
        let end = (self.first + SPAN).min(self.first + self.entries.len() as u64);
        for number in self.next.max(self.first)..end {
            self.next = number + 1;
            let log = self.shelf.as_ref().map(Shelf::log);
            let Some(entry) = self.entry(number).filter(|entry| entry.state == State::Waiting) else {
                continue;
            };
            let stored = match (&entry.body, log) {
                (Body::Memory(frame) | Body::Writing(frame), _) => Stored::Frame((**frame).clone()),
                (Body::Disk(at), Some(log)) => Stored::Record(log, at.place),
                _ => continue,
            };
            entry.state = State::UnderWay;
            return Some((number, stored));
        }
        None
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
        while self.entries.pop_front_if(|entry| entry.state == State::Gone).is_some() {
            self.first += 1;
        }
        let first = self.first;
        while self.in_memory.pop_front_if(|number| *number < first).is_some() {}
        let is_all = self.is_empty();
        if self.shelf.as_ref().is_some_and(|shelf| shelf.is_worth_a_note(is_all)) {
            self.note();
        }
    }

    /// Lets the oldest go that wait, until the bounds hold.
    fn hold_bounds(&mut self) {
        let mut number = self.first;
        let end = self.first + self.entries.len() as u64;
        while (self.bytes > self.limit || self.kept.frames > FRAMES_MAX) && number < end {
            self.drop_waiting(number);
            number += 1;
        }
        // Only while the disk takes less than comes: what is written leaves memory.
        while self.memory_bytes > self.memory_limit
            && let Some(number) = self.in_memory.pop_front()
        {
            if self.entry(number).is_some_and(|entry| entry.body.is_in_memory()) {
                self.drop_waiting(number);
            }
        }
        self.pop_gone();
    }

    fn drop_waiting(&mut self, number: u64) {
        if self.entry(number).is_some_and(|entry| entry.state == State::Waiting)
            && let Some(messages) = self.remove(number)
        {
            self.dropped.add(messages);
        }
    }

    /// Waits until a frame is on the disk, or cannot be. None if none is on its way there.
    pub(super) async fn written(&mut self) -> Option<()> {
        let (number, result) = self.shelf.as_mut()?.written().await?;
        let Some(entry) = self.entry(number).filter(|entry| entry.state != State::Gone) else {
            // It was sent from memory meanwhile, and only now there is something to note.
            if let Some(shelf) = &mut self.shelf {
                shelf.settle(0);
            }
            self.pop_gone();
            return Some(());
        };
        let bytes = entry.bytes;
        match (result, std::mem::replace(&mut entry.body, Body::None)) {
            (Ok(appended), _) => {
                entry.body = Body::Disk(appended);
                self.memory_bytes -= bytes;
                self.in_memory.pop_front_if(|front| *front == number);
            }
            (Err(_), Body::Writing(frame)) => entry.body = Body::Memory(frame),
            (Err(_), other) => entry.body = other,
        }
        Some(())
    }

    /// Syncs what is written, some time soon.
    pub(super) fn sync(&self) {
        if let Some(shelf) = &self.shelf {
            shelf.sync();
        }
    }

    /// Notes how far everything is settled.
    fn note(&mut self) {
        // All are looked at: what a failing disk did not take at first has a later sequence than what came after it.
        let oldest = self.entries.iter().filter_map(|entry| match entry.body {
            Body::Disk(at) => Some(at.sequence),
            _ => None,
        });
        let oldest = oldest.min();
        if let Some(shelf) = &mut self.shelf {
            shelf.note(oldest);
        }
    }

    /// Brings to the disk what can be within so long, and counts the rest as dropped.
    pub(super) async fn close(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        // What a disk that hangs has not taken by then counts as dropped, though it may lie there one day.
        let _late = timeout_at(deadline, self.write_rest()).await;
        self.note();
        for number in self.first..self.first + self.entries.len() as u64 {
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
        for number in self.first..self.first + self.entries.len() as u64 {
            let Some(entry) = self.entry(number) else { continue };
            let Body::Memory(frame) = &entry.body else { continue };
            let payload = record::encode(frame);
            (bytes, frames) = (bytes + entry.bytes, frames + 1);
            if let Some(shelf) = &mut self.shelf {
                shelf.write(number, payload);
            }
            if bytes >= u64::from(QUEUE_LEN_MAX) / 2 || frames >= LAST_TOGETHER {
                while self.written().await.is_some() {}
                (bytes, frames) = (0, 0);
            }
        }
        while self.written().await.is_some() {}
    }
}

impl Body {
    fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Writing(_))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use gpuvitals_log::fault::{FaultDisk, Op};

    use super::*;
    use crate::frame::ContentType;
    use crate::spool::LIMIT_MIN;

    const LONG: Duration = Duration::from_mins(1);

    fn on_disk(disk: FaultDisk, limit: u64) -> Backlog {
        Backlog::on_shelf(Shelf::open(disk, limit, None).unwrap(), limit)
    }

    fn frame(number: u32, len: usize) -> Frame {
        Frame::new(ContentType::Batch, number, vec![7; len])
    }

    /// The messages of the frames that are kept, read from wherever they are.
    fn read_all(backlog: &mut Backlog) -> Vec<u32> {
        let mut read = Vec::new();
        while let Some((number, stored)) = backlog.take() {
            let frame = match stored {
                Stored::Frame(frame) => frame,
                Stored::Record(log, place) => record::decode(log.read(place).unwrap().payload).unwrap(),
            };
            assert_eq!(backlog.settle(number), Some(frame.count));
            read.push(frame.count);
        }
        read
    }

    #[tokio::test]
    async fn a_disk_that_fails_leaves_frames_in_memory_within_its_bound() {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), 64 << 20);
        backlog.push(frame(1, 100));
        while backlog.written().await.is_some() {}
        assert_eq!((backlog.memory_bytes, backlog.kept.frames), (0, 1));
        disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
        for number in 2..=20 {
            backlog.push(frame(number, 500_000));
            while backlog.written().await.is_some() {}
        }
        assert!(backlog.memory_bytes <= MEMORY_MAX && backlog.memory_bytes > MEMORY_MAX / 2);
        assert!(backlog.dropped.frames > 0);
        disk.fail_all(Op::Write, None);
        backlog.push(frame(21, 100));
        while backlog.written().await.is_some() {}
        let oldest = 2 + u32::try_from(backlog.dropped.frames).unwrap();
        let expected: Vec<u32> = std::iter::once(1).chain(oldest..=21).collect();
        assert_eq!(read_all(&mut backlog), expected);
        assert_eq!((backlog.bytes, backlog.memory_bytes, backlog.entries.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn what_a_failing_disk_left_in_memory_goes_there_at_the_end_if_it_can() {
        for (works_again, kept, dropped) in [(true, 2, 0), (false, 0, 2)] {
            let disk = FaultDisk::new();
            let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
            disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
            backlog.push(frame(1, 100));
            backlog.push(frame(2, 100));
            while backlog.written().await.is_some() {}
            if works_again {
                disk.fail_all(Op::Write, None);
            }
            backlog.close(LONG).await;
            assert_eq!((backlog.kept.frames, backlog.dropped.frames), (kept, dropped));
            disk.fail_all(Op::Write, None);
            let next = on_disk(disk, LIMIT_MIN);
            assert_eq!(next.kept.frames, kept);
        }
    }

    #[tokio::test]
    async fn what_came_while_the_disk_failed_is_read_before_what_came_after_it() {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        let push = |backlog: &mut Backlog, numbers: std::ops::RangeInclusive<u32>| {
            for number in numbers {
                backlog.push(frame(number, 100).stamped("life", number.into()));
            }
        };
        disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
        push(&mut backlog, 1..=200);
        while backlog.written().await.is_some() {}
        disk.fail_all(Op::Write, None);
        push(&mut backlog, 201..=400);
        backlog.close(LONG).await;
        assert_eq!((backlog.kept.frames, backlog.dropped.frames), (400, 0));
        let mut next = on_disk(disk, LIMIT_MIN);
        assert_eq!(read_all(&mut next), (1..=400).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn all_that_memory_holds_goes_to_a_disk_that_works_again() {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), 64 << 20);
        disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
        for number in 1..=70 {
            backlog.push(frame(number, 100_000));
            while backlog.written().await.is_some() {}
        }
        disk.fail_all(Op::Write, None);
        backlog.close(LONG).await;
        assert_eq!((backlog.kept.frames, backlog.dropped.frames), (70, 0));
    }

    #[tokio::test]
    async fn a_frame_is_as_far_from_another_as_their_numbers_though_those_between_are_missing() {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        for number in (1..=10).chain(501..=510) {
            backlog.push(frame(number, 100).stamped("life", number.into()));
        }
        backlog.close(LONG).await;
        let mut next = on_disk(disk, LIMIT_MIN);
        let together: Vec<_> = std::iter::from_fn(|| next.take()).collect();
        assert_eq!(together.len(), 10);
        for (number, _) in together {
            next.settle(number);
        }
        assert_eq!(read_all(&mut next), (501..=510).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn nothing_is_known_to_be_on_the_disk_before_all_that_was_written_earlier() {
        for _ in 0..200 {
            let mut backlog = on_disk(FaultDisk::new(), LIMIT_MIN);
            backlog.push(frame(1, 1000));
            tokio::select! {
                biased;
                _ = backlog.written() => continue,
                () = std::future::ready(()) => {}
            }
            backlog.push(frame(2, 100));
            backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
            backlog.written().await;
            assert!(matches!(backlog.entries[0].body, Body::Disk(_)));
        }
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_waited_for_only_so_long_at_the_end() {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        backlog.push(frame(1, 100));
        backlog.written().await;
        disk.hold_syncs();
        backlog.sync();
        disk.wait_for_held_sync();
        backlog.push(frame(2, 100));
        let closed = tokio::time::timeout(LONG, backlog.close(Duration::from_millis(50))).await;
        // Not to be waited for by the test either.
        let log = backlog.shelf.as_ref().map(Shelf::log);
        disk.release_syncs();
        closed.unwrap();
        assert_eq!((backlog.kept.frames, backlog.dropped.frames), (1, 1));
        log.unwrap().close().unwrap();
    }

    #[tokio::test]
    async fn what_is_synced_outlives_a_power_cut() {
        for seed in 0..50 {
            let disk = FaultDisk::new();
            let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
            for number in 1..=100 {
                backlog.push(frame(number, 1000));
            }
            while backlog.written().await.is_some() {}
            let (log, half) = (backlog.shelf.as_ref().map(Shelf::log).unwrap(), 50);
            for expected in 1..=half {
                let (number, _) = backlog.take().unwrap();
                assert_eq!(backlog.settle(number), Some(expected));
            }
            log.sync().unwrap();
            for number in 101..=110 {
                backlog.push(frame(number, 1000));
            }
            while backlog.written().await.is_some() {}
            let mut next = on_disk(disk.crashed(seed), LIMIT_MIN);
            let read = read_all(&mut next);
            let (first, last) = (read[0], read[read.len() - 1]);
            assert_eq!(read, (first..=last).collect::<Vec<_>>(), "{seed}");
            assert!(first <= half + 1 && last >= 100, "{seed}: {first} to {last}");
        }
    }
}
