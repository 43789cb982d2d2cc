//! Giving the log's disk back: what was written is synced, what is held still is moved out of the oldest segment, and
//! segments that nobody needs go.

use std::time::Duration;

use gpuvitals_log::Place;

use super::answers::Journal;
use crate::broker::{Broker, TopicId};
use crate::frame::Millis;

/// Segments that the log may have beyond twice what is held, before records are moved.
const SLACK_SEGMENTS: u64 = 4;
/// Bytes that are moved at once.
const MOVED_LEN_MAX: usize = 4 << 20;

/// How far that is.
#[derive(Debug)]
pub(super) struct Reclaim {
    sync_every: Duration,
    /// When what was only written is to be synced.
    sync_at: Option<Millis>,
    /// Records that are being moved.
    moving: usize,
    /// Segments before it may go: what made them unneeded is on disk.
    truncates: Option<u64>,
}

impl Reclaim {
    pub(super) fn new(sync_every: Duration) -> Self {
        Self { sync_every, sync_at: None, moving: 0, truncates: None }
    }

    /// Something was written that nothing else syncs.
    pub(super) fn written(&mut self, now: Millis) {
        self.sync_at.get_or_insert(now.after(self.sync_every));
    }

    /// When the next sync is due.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.sync_at
    }

    /// Whether what was written is to be synced now.
    pub(super) fn take_sync(&mut self, now: Millis) -> bool {
        self.sync_at.take_if(|at| *at <= now).is_some()
    }

    /// A sync has made the segments before it unneeded.
    pub(super) fn let_go(&mut self, before: Option<u64>) {
        self.truncates = self.truncates.max(before);
    }

    /// The sequence before which segments are to go now.
    pub(super) fn take_truncation(&mut self) -> Option<u64> {
        self.truncates.take()
    }

    /// What is to be moved out of the oldest segment, if the log is far larger than what is held: as much as is moved at
    /// once.
    pub(super) fn take_moves(&mut self, journal: &Journal, broker: &Broker) -> Vec<(TopicId, u64, Place)> {
        let segments = journal.log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let slack = SLACK_SEGMENTS * u64::from(journal.config.segment_len);
        let bound = broker.kept_bytes().saturating_mul(2).saturating_add(slack);
        let oldest = segments.first().map(|segment| segment.base).filter(|_| bytes > bound);
        let is_idle = self.moving == 0;
        let held = oldest.filter(|oldest| is_idle && broker.oldest_segment() == Some(*oldest));
        let mut found = held.map_or_else(Vec::new, |segment| broker.frames_in(segment));
        let mut len = 0;
        let fits = found.iter().take_while(|(.., place)| {
            len += place.payload_len();
            len <= MOVED_LEN_MAX
        });
        let count = fits.count().max(1);
        found.truncate(count);
        self.moving = found.len();
        found
    }

    /// A record was moved, or is not to be. The last one may have emptied its segment, which a sync lets go. What the disk
    /// refused is tried again after a pause.
    pub(super) fn no_longer_moves(&mut self, now: Millis, is_well: bool) {
        self.moving = self.moving.saturating_sub(1);
        if self.moving == 0 && is_well {
            self.sync_at = Some(now);
        } else {
            self.written(now);
        }
    }
}
