//! The writer's published state: counts and segments, for any reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::place::SegmentStats;

/// The writer's counts, all since the log was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriterCounts {
    pub(crate) next_sequence: u64,
    pub(crate) groups: u64,
    pub(crate) syncs: u64,
    pub(crate) write_failures: u64,
}

/// The log's contents. Only the writer updates it, and never on the callers' path into the queue.
#[derive(Default)]
pub(crate) struct Board(Mutex<View>);

#[derive(Default)]
struct View {
    segments: VecDeque<SegmentStats>,
    counts: WriterCounts,
}

impl Board {
    pub(crate) fn new(segments: impl IntoIterator<Item = SegmentStats>, counts: WriterCounts) -> Self {
        Self(Mutex::new(View { segments: segments.into_iter().collect(), counts }))
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the counts and the current segment: replaces its previous entry, or adds a new one.
    pub(crate) fn show(&self, counts: WriterCounts, current: Option<SegmentStats>) {
        let mut view = self.lock();
        view.counts = counts;
        let Some(current) = current else { return };
        match view.segments.back_mut() {
            Some(last) if last.base == current.base => *last = current,
            _ => view.segments.push_back(current),
        }
    }

    /// Removes the oldest segment.
    pub(crate) fn drop_oldest(&self) {
        self.lock().segments.pop_front();
    }

    pub(crate) fn holds(&self, base: u64) -> bool {
        self.lock().segments.binary_search_by_key(&base, |segment| segment.base).is_ok()
    }

    pub(crate) fn segments(&self) -> Vec<SegmentStats> {
        self.lock().segments.iter().copied().collect()
    }

    pub(crate) fn counts(&self) -> WriterCounts {
        self.lock().counts
    }
}
