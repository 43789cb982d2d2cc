//! When a checkpoint is made, and which of them the log has.

use std::time::Duration;

use crate::frame::Millis;

/// How long after one that failed the next one is tried.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct UnderWay {
    /// Its records that are not answered yet.
    left: usize,
    /// The sequence of its first record.
    first: Option<u64>,
    has_failed: bool,
    /// It knows facts that the log has lost.
    mends: bool,
}

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// When one is wanted.
    due: Option<Millis>,
    under_way: Option<UnderWay>,
    /// The log has lost facts, and no checkpoint has been begun since.
    has_lost_facts: bool,
    /// The first sequences of the newest one on disk, and of the one before it.
    newest: Option<u64>,
    previous: Option<u64>,
}

impl Checkpoints {
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.due.filter(|_| self.under_way.is_none())
    }

    /// One is wanted by then, if none was.
    fn want(&mut self, by: Millis) {
        self.due.get_or_insert(by);
    }

    /// One is wanted at once.
    pub(super) fn hurry(&mut self, now: Millis) {
        self.due = Some(now);
    }

    /// The log has lost facts: the next checkpoint has what they said.
    pub(super) fn facts_were_lost(&mut self, now: Millis) {
        self.has_lost_facts = true;
        self.want(now.after(RETRY));
    }

    /// Whether segments may go that hold nothing. Facts that were lost are to be mended first: they may be why. If mending
    /// fails, the segments may go all the same: the usual cause is a full disk.
    pub(super) fn may_let_go(&self) -> bool {
        !self.has_lost_facts && !self.under_way.as_ref().is_some_and(|under_way| under_way.mends)
    }

    /// The sequence from which the log is needed: with the checkpoint before the newest, so that one can be damaged.
    pub(super) fn needed_from(&self) -> Option<u64> {
        self.previous
    }

    /// One was made whose first record has this sequence.
    pub(super) fn made(&mut self, first: Option<u64>) {
        self.previous = std::mem::replace(&mut self.newest, first);
    }

    /// Whether one is to be made now.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        self.next_deadline().is_some_and(|due| due <= now)
    }

    /// One of so many records is being written.
    pub(super) fn begin(&mut self, records: usize) {
        self.due = None;
        let mends = std::mem::take(&mut self.has_lost_facts);
        let under_way = UnderWay { left: records, first: None, has_failed: false, mends };
        self.under_way = Some(under_way).filter(|_| records > 0);
    }

    /// Takes in what became of the next record, its sequence if it was written; answers whether that was the last.
    pub(super) fn answered(&mut self, now: Millis, written: Option<u64>) -> bool {
        let Some(under_way) = &mut self.under_way else { return false };
        under_way.left -= 1;
        under_way.first = under_way.first.or(written);
        under_way.has_failed |= written.is_none();
        let Some(ended) = self.under_way.take_if(|under_way| under_way.left == 0) else { return false };
        if ended.has_failed {
            self.want(now.after(RETRY));
        } else {
            self.made(ended.first);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Checkpoints;
    use crate::frame::Millis;

    #[test]
    fn the_log_is_kept_from_the_checkpoint_before_the_newest_that_is_whole() {
        let mut checkpoints = Checkpoints::default();
        checkpoints.made(Some(10));
        for (records, needed) in
            [([Some(20), Some(21)], 10), ([Some(30), None], 10), ([Some(40), Some(41)], 20)]
        {
            checkpoints.hurry(Millis(0));
            assert!(checkpoints.is_due(Millis(0)));
            checkpoints.begin(2);
            assert!(!checkpoints.is_due(Millis(9_000)), "one at a time");
            assert_eq!(records.map(|written| checkpoints.answered(Millis(0), written)), [false, true]);
            assert_eq!(checkpoints.needed_from(), Some(needed));
            let again = checkpoints.next_deadline();
            assert_eq!(
                again,
                records[1].is_none().then_some(Millis(1_000)),
                "one that failed is tried again"
            );
        }
    }

    #[test]
    fn facts_that_were_lost_keep_the_log_until_they_are_mended_or_that_fails() {
        for written in [Some(1), None] {
            let mut checkpoints = Checkpoints::default();
            checkpoints.begin(1);
            checkpoints.facts_were_lost(Millis(0));
            checkpoints.answered(Millis(0), written);
            assert!(!checkpoints.may_let_go(), "that one was made before");
            checkpoints.begin(1);
            assert!(!checkpoints.may_let_go(), "under way");
            checkpoints.answered(Millis(0), written);
            assert!(checkpoints.may_let_go(), "room is needed more");
            checkpoints.facts_were_lost(Millis(0));
            assert!(!checkpoints.may_let_go(), "others than those that could not be mended");
        }
    }
}
