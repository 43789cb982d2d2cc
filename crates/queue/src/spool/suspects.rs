//! Frames that the queue refuses, or never gets to take, though it takes others: they do not hold up those behind them.
//!
//! As long as the queue takes no other frame, a refusal says nothing of this one: a token is wrong, a topic not
//! wanted. It counts as a strike only if another was taken since the frame was tried last, and after [`STRIKES_MAX`]
//! of these the frame is given up. That it did not get there, or that the queue failed, is no strike however often it
//! happens.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::backlog::{Body, Entry, State};
use crate::frame::Frame;

/// Most suspects, and most bytes of them. What is kept waits once there are so many, until one is settled.
const SUSPECTS_MAX: usize = 128;
const SUSPECTS_BYTES_MAX: u64 = 4 << 20;
/// Suspects that are under way beside others: a way where each of them hangs is not full of them.
const UNDER_WAY_MAX: usize = 8;
/// Strikes after which a frame is given up.
const STRIKES_MAX: u32 = 8;
/// Between two tries of one: eight strikes outlast a queue that restarts with other settings.
const PAUSE: Duration = Duration::from_secs(15);

/// How many frames the queue had taken.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// When the frame was sent.
    pub(super) before: u64,
    pub(super) now: u64,
}

/// What a refusal says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The queue took nothing else either.
    Alone,
    /// It took others meanwhile.
    Despite,
    /// It was the last strike: the frame is gone, with so many messages.
    GivenUp(u32),
}

/// Those frames, by their number among what is kept.
#[derive(Default)]
pub(super) struct Suspects(BTreeMap<u64, Suspect>);

pub(super) struct Suspect {
    pub(super) entry: Entry,
    /// In memory even while it lies on the disk.
    pub(super) frame: Frame,
    /// On its way to a later place on the disk.
    pub(super) is_moving: bool,
    strikes: u32,
    /// Frames that the queue had taken at the last refusal.
    taken: u64,
    try_at: Instant,
}

impl Suspects {
    pub(super) fn is_full(&self) -> bool {
        let bytes: u64 = self.entries().map(|entry| entry.bytes).sum();
        self.0.len() >= SUSPECTS_MAX || bytes >= SUSPECTS_BYTES_MAX
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Suspect> {
        self.0.get_mut(&number)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Suspect)> {
        self.0.iter_mut().map(|(number, suspect)| (*number, suspect))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().map(|suspect| &suspect.entry)
    }

    /// The numbers of those before a number.
    pub(super) fn before(&self, number: u64) -> Vec<u64> {
        self.0.range(..number).map(|(number, _)| *number).collect()
    }

    /// One more, which was refused for the first time, or missed once too often.
    pub(super) fn add(&mut self, number: u64, mut entry: Entry, frame: Frame, taken: u64) {
        entry.state = State::Waiting;
        let try_at = Instant::now() + PAUSE;
        self.0.insert(number, Suspect { entry, frame, is_moving: false, strikes: 0, taken, try_at });
    }

    pub(super) fn forget_gone(&mut self) {
        self.0.retain(|_, suspect| suspect.entry.state != State::Gone);
    }

    /// When the next one is to be tried; none as long as so many are under way as may be.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let under_way = self.entries().filter(|entry| entry.state == State::UnderWay).count();
        if under_way >= UNDER_WAY_MAX {
            return None;
        }
        let waiting = self.0.values().filter(|suspect| suspect.entry.state == State::Waiting);
        waiting.map(|suspect| suspect.try_at).min()
    }

    /// Lets those be tried at once that have no strike.
    pub(super) fn try_innocent(&mut self) {
        let now = Instant::now();
        for suspect in self.0.values_mut().filter(|suspect| suspect.strikes == 0) {
            suspect.try_at = suspect.try_at.min(now);
        }
    }

    /// The one that was tried longest ago; it is under way from now on.
    pub(super) fn take(&mut self) -> Option<(u64, Frame)> {
        let waiting = self.0.iter_mut().filter(|(_, suspect)| suspect.entry.state == State::Waiting);
        let (number, suspect) = waiting.min_by_key(|(_, suspect)| suspect.try_at)?;
        suspect.entry.state = State::UnderWay;
        suspect.try_at = Instant::now() + PAUSE;
        Some((*number, suspect.frame.clone()))
    }
}

impl Suspect {
    /// It was refused again, after so many frames were taken. None if that was once too often.
    pub(super) fn refused(&mut self, taken: u64) -> Option<Refusal> {
        self.entry.state = State::Waiting;
        if taken <= std::mem::replace(&mut self.taken, taken) {
            return Some(Refusal::Alone);
        }
        self.strikes += 1;
        (self.strikes < STRIKES_MAX).then_some(Refusal::Despite)
    }

    /// Where it lies on the disk, if it does and stays there.
    pub(super) fn rests_at(&self) -> Option<u64> {
        match &self.entry.body {
            Body::Disk(at) if !self.is_moving => Some(at.sequence),
            _ => None,
        }
    }
}
