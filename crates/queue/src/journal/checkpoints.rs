//! When a checkpoint is made, and which of them the log has.

use std::time::Duration;

use crate::frame::Millis;

/// How long after one that failed the next one is tried: it doubles with every further one. Each takes the whole image.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_DOUBLINGS_MAX: u32 = 5;

/// A piece of a checkpoint, as the log's answer names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The checkpoint's number.
    pub(super) number: u64,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Kept,
    Failed,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// The sequence of its first piece.
    first: Option<u64>,
    has_failed: bool,
}

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// When one is wanted.
    due: Option<Millis>,
    /// The number of the last one begun.
    number: u64,
    under_way: Option<UnderWay>,
    failures: u32,
    /// The number of the newest one that is on disk.
    kept: u64,
    /// The number of the first one that knows all facts that the log has lost.
    mends: u64,
    /// One that knows them could not be written.
    mending_has_failed: bool,
    /// The first sequences of the newest one on disk, and of the one before it.
    newest: Option<u64>,
    previous: Option<u64>,
}

impl Checkpoints {
    /// `newest` is the first sequence of the newest one that recovery found.
    pub(super) fn new(newest: Option<u64>) -> Self {
        Self {
            due: Some(Millis(0)),
            number: 0,
            under_way: None,
            failures: 0,
            kept: 0,
            mends: 0,
            mending_has_failed: false,
            newest,
            previous: None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.due.filter(|_| self.under_way.is_none())
    }

    /// One is wanted by then, if none was.
    pub(super) fn want(&mut self, by: Millis) {
        self.due.get_or_insert(by);
    }

    /// One is wanted at once.
    pub(super) fn hurry(&mut self, now: Millis) {
        self.due = Some(now);
    }

    /// The log has lost facts: the next checkpoint has what they said.
    pub(super) fn facts_were_lost(&mut self, now: Millis) {
        self.mends = self.number + 1;
        self.mending_has_failed = false;
        self.want(now.after(self.retry()));
    }

    /// Whether the log has all facts, in itself or in a checkpoint.
    pub(super) fn are_whole(&self) -> bool {
        self.kept >= self.mends
    }

    /// Whether what nothing needs may go. Facts that were lost are to be mended first: they may be why nothing needs it.
    /// If that fails, room is needed more: it is for want of room, as a rule.
    pub(super) fn may_let_go(&self) -> bool {
        self.are_whole() || self.mending_has_failed
    }

    /// The sequence from which the log is needed: with the checkpoint before the newest, so that one can be damaged.
    pub(super) fn needed_from(&self) -> Option<u64> {
        self.previous
    }

    /// One was made while the log was opened.
    pub(super) fn made_first(&mut self, first: Option<u64>) {
        self.due = None;
        self.previous = std::mem::replace(&mut self.newest, first);
    }

    /// The number of one to be made now, if one is due.
    pub(super) fn begin(&mut self, now: Millis) -> Option<u64> {
        if self.under_way.is_some() {
            return None;
        }
        self.due.take_if(|due| *due <= now)?;
        self.number += 1;
        self.under_way = Some(UnderWay::default());
        Some(self.number)
    }

    /// Forgets the one under way, and makes another.
    pub(super) fn begin_again(&mut self) {
        self.under_way = None;
        self.due = Some(Millis(0));
    }

    /// Takes in what became of a piece, its sequence if it was written; answers with what the checkpoint came to, once
    /// that is known. What was refused is answered before what was written.
    pub(super) fn piece(&mut self, now: Millis, piece: Piece, written: Option<u64>) -> Option<Ended> {
        let under_way = self.under_way.as_mut().filter(|_| piece.number == self.number)?;
        under_way.has_failed |= written.is_none();
        if piece.is_first {
            under_way.first = written;
        }
        if !piece.is_last {
            return None;
        }
        let first = self.under_way.take().filter(|ended| !ended.has_failed).and_then(|ended| ended.first);
        let Some(first) = first else {
            self.want(now.after(self.retry()));
            self.failures = (self.failures + 1).min(RETRY_DOUBLINGS_MAX);
            self.mending_has_failed = piece.number >= self.mends;
            return Some(Ended::Failed);
        };
        self.failures = 0;
        self.kept = piece.number;
        self.previous = self.newest.replace(first);
        Some(Ended::Kept)
    }

    fn retry(&self) -> Duration {
        RETRY_MIN * (1 << self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoints, Ended, Piece};
    use crate::frame::Millis;

    fn piece(number: u64, at: u64, last: u64) -> Piece {
        Piece { number, is_first: at == 0, is_last: at == last }
    }

    #[test]
    fn a_last_piece_that_is_refused_first_ends_that_checkpoint_and_no_other() {
        let mut checkpoints = Checkpoints::new(None);
        assert_eq!(checkpoints.begin(Millis(0)), Some(1));
        assert_eq!(checkpoints.begin(Millis(0)), None, "one is under way");
        assert_eq!(checkpoints.piece(Millis(5), piece(1, 1, 1), None), Some(Ended::Failed));
        assert_eq!(checkpoints.piece(Millis(5), piece(1, 0, 1), Some(7)), None);
        assert_eq!(checkpoints.next_deadline(), Some(Millis(1_005)));
        assert_eq!(checkpoints.begin(Millis(1_004)), None);
        assert_eq!(checkpoints.begin(Millis(1_005)), Some(2));
        assert_eq!(checkpoints.piece(Millis(1_006), piece(2, 0, 1), Some(8)), None);
        assert_eq!(checkpoints.piece(Millis(1_006), piece(2, 1, 1), Some(9)), Some(Ended::Kept));
        assert_eq!(checkpoints.needed_from(), None, "the only one");
    }

    #[test]
    fn attempts_that_fail_come_seldom() {
        let mut checkpoints = Checkpoints::new(None);
        let mut waits = Vec::new();
        let mut now = Millis(0);
        for number in 1..9 {
            assert_eq!(checkpoints.begin(now), Some(number));
            assert_eq!(checkpoints.piece(now, piece(number, 0, 0), None), Some(Ended::Failed));
            let next = checkpoints.next_deadline().unwrap_or(now);
            waits.push(next.since(now).as_secs());
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn the_log_is_kept_from_the_checkpoint_before_the_newest() {
        let mut checkpoints = Checkpoints::new(Some(3));
        checkpoints.made_first(Some(10));
        assert_eq!(checkpoints.needed_from(), Some(3));
        checkpoints.hurry(Millis(0));
        assert_eq!(checkpoints.begin(Millis(0)), Some(1));
        assert_eq!(checkpoints.piece(Millis(0), piece(1, 0, 0), Some(20)), Some(Ended::Kept));
        assert_eq!(checkpoints.needed_from(), Some(10));
    }

    #[test]
    fn lost_facts_are_mended_by_a_checkpoint_that_was_begun_after_the_loss() {
        let mut checkpoints = Checkpoints::new(None);
        assert_eq!(checkpoints.begin(Millis(0)), Some(1));
        checkpoints.facts_were_lost(Millis(0));
        checkpoints.piece(Millis(0), piece(1, 0, 0), Some(1));
        assert!(!checkpoints.are_whole(), "it was made before");
        checkpoints.hurry(Millis(0));
        assert_eq!(checkpoints.begin(Millis(0)), Some(2));
        checkpoints.piece(Millis(0), piece(2, 0, 0), Some(2));
        assert!(checkpoints.are_whole());
    }

    #[test]
    fn facts_that_were_lost_with_a_checkpoint_keep_the_log_until_their_mending_fails_too() {
        let mut checkpoints = Checkpoints::new(None);
        assert_eq!(checkpoints.begin(Millis(0)), Some(1));
        checkpoints.facts_were_lost(Millis(0));
        assert_eq!(checkpoints.piece(Millis(0), piece(1, 0, 0), None), Some(Ended::Failed));
        assert!(!checkpoints.may_let_go(), "nobody has tried to mend them");
        checkpoints.hurry(Millis(0));
        assert_eq!(checkpoints.begin(Millis(0)), Some(2));
        assert_eq!(checkpoints.piece(Millis(0), piece(2, 0, 0), None), Some(Ended::Failed));
        assert!(checkpoints.may_let_go() && !checkpoints.are_whole(), "room is needed more");
        checkpoints.facts_were_lost(Millis(0));
        assert!(!checkpoints.may_let_go(), "others than those that could not be mended");
    }
}
