//! What one topic holds: frames, dead letters, and the count of both.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::env::Env;
use super::ledger::Ledger;
use super::terms::{DeadLetter, DeadSelection, GroupId, TopicId, Wake};
use crate::frame::{Frame, Millis};
use crate::rows::Rows;

/// A frame that is held.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) frame: Arc<Frame>,
    pub(super) rows: Rows,
    pub(super) published_at: Millis,
    /// Groups that have not settled all of it.
    pub(super) waiting: usize,
    /// Number of the next part that is split off, in any group.
    pub(super) next_part: u32,
    /// A replayed dead letter is for the group that gave up on it.
    pub(super) only: Option<GroupId>,
}

impl Entry {
    pub(super) fn is_for(&self, group: GroupId) -> bool {
        self.only.is_none_or(|only| only == group)
    }
}

#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) id: TopicId,
    pub(super) name: Arc<str>,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) next_offset: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) ledger: Ledger,
    letters: VecDeque<DeadLetter>,
    next_letter: u64,
    letter_messages: u64,
    letter_bytes: u64,
}

impl Shelf {
    pub(super) fn new(id: TopicId, name: Arc<str>, now: Millis) -> Self {
        Self {
            id,
            name,
            entries: BTreeMap::new(),
            next_offset: 0,
            messages: 0,
            bytes: 0,
            ledger: Ledger::new(now),
            letters: VecDeque::new(),
            next_letter: 0,
            letter_messages: 0,
            letter_bytes: 0,
        }
    }

    pub(super) fn put(&mut self, entry: Entry) -> u64 {
        let offset = self.next_offset;
        self.next_offset += 1;
        self.messages += entry.rows.len();
        self.bytes += entry.frame.cost_bytes();
        self.entries.insert(offset, entry);
        offset
    }

    /// Removes a frame, whoever waits for it.
    pub(super) fn take(&mut self, env: &mut Env, offset: u64) -> Option<Entry> {
        let entry = self.entries.remove(&offset)?;
        self.messages -= entry.rows.len();
        self.bytes -= entry.frame.cost_bytes();
        env.wake(Wake::Space(self.id));
        Some(entry)
    }

    /// One group has settled all of a frame. After the last one the frame goes.
    pub(super) fn release(&mut self, env: &mut Env, offset: u64) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.waiting = entry.waiting.saturating_sub(1);
            if entry.waiting == 0 {
                self.take(env, offset);
            }
        }
    }

    /// The first frame from `cursor` on that is for `group`.
    pub(super) fn next_for(&self, group: GroupId, cursor: u64) -> Option<(u64, &Entry)> {
        self.entries
            .range(cursor..)
            .find(|(_, entry)| entry.is_for(group))
            .map(|(offset, entry)| (*offset, entry))
    }

    /// Whether `messages` and `bytes` more are within the bound.
    pub(super) fn has_room(&self, env: &Env, messages: u64, bytes: u64) -> bool {
        self.messages.saturating_add(messages) <= env.config.max_messages
            && self.bytes.saturating_add(bytes) <= env.config.max_bytes
    }

    /// Keeps a dead letter (its id is given here); at the bound the oldest go.
    pub(super) fn bury(&mut self, env: &Env, mut letter: DeadLetter) {
        letter.id = self.next_letter;
        self.next_letter += 1;
        self.ledger.dead += letter.rows.len();
        self.letter_messages += letter.rows.len();
        self.letter_bytes += letter.frame.cost_bytes();
        self.letters.push_back(letter);
        let over = |shelf: &Self| {
            shelf.letter_messages > env.config.max_dead_messages
                || shelf.letter_bytes > env.config.max_dead_bytes
        };
        while over(self) {
            let Some(oldest) = self.letters.pop_front() else { break };
            self.ledger.dead_dropped += oldest.rows.len();
            self.uncount_letter(&oldest);
        }
    }

    /// Dead letters from id `from` on, oldest first.
    pub(super) fn letters(&self, from: u64) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter().filter(move |letter| letter.id >= from)
    }

    pub(super) fn letter_messages(&self) -> u64 {
        self.letter_messages
    }

    /// Takes the selected dead letters out.
    pub(super) fn exhume(&mut self, selection: &DeadSelection) -> Vec<DeadLetter> {
        let taken: Vec<_> = match selection {
            DeadSelection::Oldest(count) => {
                let count = (*count).min(self.letters.len());
                self.letters.drain(..count).collect()
            }
            DeadSelection::Ids(ids) => {
                let (taken, kept) = std::mem::take(&mut self.letters)
                    .into_iter()
                    .partition(|letter| ids.contains(&letter.id));
                self.letters = kept;
                Vec::from(taken)
            }
        };
        for letter in &taken {
            self.uncount_letter(letter);
        }
        taken
    }

    /// Puts letters back that `exhume` took, in the order of their ids.
    pub(super) fn rebury(&mut self, letters: Vec<DeadLetter>) {
        for letter in letters {
            self.letter_messages += letter.rows.len();
            self.letter_bytes += letter.frame.cost_bytes();
            let at = self.letters.partition_point(|other| other.id < letter.id);
            self.letters.insert(at, letter);
        }
    }

    fn uncount_letter(&mut self, letter: &DeadLetter) {
        self.letter_messages -= letter.rows.len();
        self.letter_bytes -= letter.frame.cost_bytes();
    }
}
