//! What has become visible, on its way to those who follow it.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::{Change, Changes};
use crate::Batch;
use crate::ports::Answer;

/// Most bytes of columns that wait for readers which are behind. The newest change stays, however large it is.
const BYTES_MAX: usize = 32 << 20;

/// The changes of a history, for any number of readers. A change is held until all have taken it; those who are too far behind
/// lose the oldest. When this is dropped, readers take what is left and have reached the end.
#[derive(Debug)]
pub struct ChangeFeed(Arc<Mutex<WaitingChanges>>);

#[derive(Debug)]
struct WaitingChanges {
    changes: VecDeque<(Arc<[Batch]>, usize)>,
    /// Changes that came before the first of them.
    before: u64,
    bytes: usize,
    most: usize,
    readers: BTreeMap<u64, ChangeReader>,
    /// Readers so far.
    opened: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct ChangeReader {
    /// How many changes are passed.
    next: u64,
    waker: Option<Waker>,
}

impl ChangeFeed {
    /// For readers that may be `most` changes behind.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(WaitingChanges {
            changes: VecDeque::new(),
            before: 0,
            bytes: 0,
            most: most.max(1),
            readers: BTreeMap::new(),
            opened: 0,
            has_ended: false,
        })))
    }

    /// Hands rows to all readers. Without one nothing is held.
    pub fn send(&self, rows: Arc<[Batch]>) {
        let mut waiting = lock(&self.0);
        if waiting.readers.is_empty() {
            return;
        }
        let bytes = rows.iter().map(|batch| batch.records().get_array_memory_size()).sum();
        waiting.changes.push_back((rows, bytes));
        waiting.bytes += bytes;
        while waiting.changes.len() > 1 && (waiting.changes.len() > waiting.most || waiting.bytes > BYTES_MAX)
        {
            waiting.drop_first();
        }
        waiting.wake();
    }

    /// The changes from now on.
    pub fn follow(&self) -> Box<dyn Changes> {
        let mut waiting = lock(&self.0);
        let number = waiting.opened;
        waiting.opened += 1;
        let next = waiting.end();
        waiting.readers.insert(number, ChangeReader { next, waker: None });
        Box::new(FeedReader { waiting: Arc::clone(&self.0), number })
    }
}

impl Drop for ChangeFeed {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0);
        waiting.has_ended = true;
        waiting.wake();
    }
}

impl WaitingChanges {
    fn end(&self) -> u64 {
        self.before + u64::try_from(self.changes.len()).unwrap_or(u64::MAX)
    }

    fn drop_first(&mut self) {
        if let Some((_, bytes)) = self.changes.pop_front() {
            self.before += 1;
            self.bytes -= bytes;
        }
    }

    /// Drops what all readers have taken.
    fn drop_taken(&mut self) {
        let taken = self.readers.values().map(|reader| reader.next).min().unwrap_or_else(|| self.end());
        while self.before < taken && !self.changes.is_empty() {
            self.drop_first();
        }
    }

    fn wake(&mut self) {
        self.readers.values_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }

    /// What comes next for a reader; it is woken when there is more.
    fn next(&mut self, number: u64, waker: &Waker) -> Poll<Option<Change>> {
        let before = self.before;
        let Some(reader) = self.readers.get_mut(&number) else { return Poll::Ready(None) };
        if let Some(missed) = before.checked_sub(reader.next).filter(|missed| *missed > 0) {
            reader.next = before;
            return Poll::Ready(Some(Change::Missed(missed)));
        }
        let at = usize::try_from(reader.next - before).unwrap_or(usize::MAX);
        if let Some((rows, _)) = self.changes.get(at) {
            let rows = Arc::clone(rows);
            reader.next += 1;
            self.drop_taken();
            return Poll::Ready(Some(Change::Rows(rows)));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        reader.waker = Some(waker.clone());
        Poll::Pending
    }
}

struct FeedReader {
    waiting: Arc<Mutex<WaitingChanges>>,
    number: u64,
}

impl Changes for FeedReader {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(poll_fn(|context| lock(&self.waiting).next(self.number, context.waker())))
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.readers.remove(&self.number);
        waiting.drop_taken();
    }
}

fn lock(waiting: &Mutex<WaitingChanges>) -> MutexGuard<'_, WaitingChanges> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::batch::Value;
    use crate::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

    fn rows(count: i64) -> Arc<[Batch]> {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        for time in 0..count {
            let row = builder.row(time, gpu);
            builder.set(row, MetricId::of("energy_mj"), Value::Float(1.5)).unwrap();
        }
        Arc::new([builder.finish(Origin::default(), 0).unwrap()])
    }

    /// Rows of the next change, or how many were missed, negative; none if there is none yet; 0 at the end.
    fn next(reader: &mut dyn Changes) -> Option<i64> {
        match pin!(reader.next()).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => None,
            Poll::Ready(None) => Some(0),
            Poll::Ready(Some(Change::Rows(rows))) => Some(i64::try_from(rows[0].rows()).unwrap()),
            Poll::Ready(Some(Change::Missed(missed))) => Some(-i64::try_from(missed).unwrap()),
        }
    }

    #[test]
    fn a_change_is_held_until_all_readers_have_it_and_no_longer() {
        let feed = ChangeFeed::new(3);
        feed.send(rows(1));
        assert_eq!(lock(&feed.0).changes.len(), 0, "nobody reads");
        let (mut one, mut deaf) = (feed.follow(), feed.follow());
        for count in 2..7 {
            feed.send(rows(count));
            assert_eq!(next(&mut *one), Some(count));
        }
        assert_eq!(next(&mut *one), None);
        assert_eq!(lock(&feed.0).changes.len(), 3);
        assert_eq!((next(&mut *deaf), next(&mut *deaf)), (Some(-2), Some(4)));
        assert_eq!(lock(&feed.0).changes.len(), 2);
        drop(deaf);
        assert_eq!(lock(&feed.0).changes.len(), 0);
        assert_eq!(lock(&feed.0).bytes, 0);
        feed.send(rows(7));
        drop(feed);
        assert_eq!((next(&mut *one), next(&mut *one)), (Some(7), Some(0)));
    }

    #[test]
    fn what_waits_for_a_reader_that_reads_nothing_is_bounded_in_bytes() {
        let feed = ChangeFeed::new(1_000);
        let mut deaf = feed.follow();
        let change = rows(200_000);
        for _ in 0..40 {
            feed.send(Arc::clone(&change));
        }
        let waiting = lock(&feed.0);
        assert!(waiting.bytes <= BYTES_MAX && waiting.changes.len() > 1, "{} bytes", waiting.bytes);
        let missed = waiting.before;
        drop(waiting);
        assert_eq!(next(&mut *deaf), Some(-i64::try_from(missed).unwrap()));
    }
}
