//! What one topic holds: frames, dead letters, and the count of both.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::quantity::counted;

use super::blocks::Blocks;
use super::env::Env;
use super::facts::What;
use super::ledger::Ledger;
use super::stored::{Home, Lent, Stored};
use super::terms::{DeadLetter, DeadSelection, Durability, GroupId, TopicId, Wake};
use crate::frame::{Frame, Millis, ProducerStamp};
use crate::trouble::{Cause, Trouble};

/// A frame that is held.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) stored: Stored,
    /// Messages in it.
    pub(super) count: u32,
    pub(super) published_at: Millis,
    /// Groups that have not settled it.
    pub(super) waiting: usize,
    /// A replayed dead letter is for the group that gave up on it.
    pub(super) only: Option<GroupId>,
}

impl Entry {
    pub(super) fn is_for(&self, group: GroupId) -> bool {
        self.only.is_none_or(|only| only == group)
    }
}

/// A dead letter; the frame in `head` is blank if the letter lies on disk.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) head: DeadLetter,
    pub(super) home: Option<Home>,
    cost: u64,
}

impl Letter {
    /// A letter needs no memory for a frame that is on disk.
    pub(super) fn new(head: DeadLetter, entry: &Entry) -> Self {
        Self { head, home: entry.stored.home.clone(), cost: entry.stored.cost }
    }

    pub(super) fn stored(&self) -> Stored {
        match &self.home {
            Some(home) => Stored::on_disk(home.clone(), self.cost),
            None => Stored::here(Arc::clone(&self.head.frame), None),
        }
    }

    pub(super) fn lend(&self) -> Lent<DeadLetter> {
        Lent { item: self.head.clone(), home: self.home.clone() }
    }
}

/// A frame that is being made durable. It counts against the bound, and is not seen yet.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) frame: Arc<Frame>,
    pub(super) at: Millis,
}

/// Frames under way, by offset.
#[derive(Debug, Default)]
pub(super) struct Pending {
    frames: BTreeMap<u64, UnderWay>,
    stamps: HashMap<ProducerStamp, u64, foldhash::fast::RandomState>,
    messages: u64,
    bytes: u64,
}

impl Pending {
    pub(super) fn insert(&mut self, offset: u64, frame: UnderWay) {
        self.messages += u64::from(frame.frame.count);
        self.bytes += frame.frame.cost_bytes();
        self.stamps.extend(frame.frame.producer.clone().map(|stamp| (stamp, offset)));
        self.frames.insert(offset, frame);
    }

    pub(super) fn remove(&mut self, offset: u64) -> Option<UnderWay> {
        let frame = self.frames.remove(&offset)?;
        self.messages -= u64::from(frame.frame.count);
        self.bytes -= frame.frame.cost_bytes();
        if let Some(stamp) = &frame.frame.producer {
            self.stamps.remove(stamp);
        }
        Some(frame)
    }

    /// The offset of the frame under way with this stamp.
    pub(super) fn stamped(&self, stamp: &ProducerStamp) -> Option<u64> {
        self.stamps.get(stamp).copied()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.frames.keys().next().copied()
    }
}

#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) id: TopicId,
    pub(super) name: Arc<str>,
    /// What is promised of new frames.
    pub(super) durability: Durability,
    /// Whether a log keeps what is held.
    pub(super) is_kept: bool,
    pub(super) entries: Blocks<u64, Entry>,
    pub(super) pending: Pending,
    pub(super) next_offset: u64,
    /// Tokens of this life of a queue that is kept begin behind it, so that an id from an earlier life names nothing.
    pub(super) token_base: u32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) ledger: Ledger,
    /// By their ids.
    pub(super) letters: Blocks<u64, Letter>,
    pub(super) next_letter: u64,
    letter_messages: u64,
    letter_bytes: u64,
}

impl Shelf {
    pub(super) fn new(id: TopicId, name: Arc<str>, env: &Env) -> Self {
        let durability = env.durability(&name);
        Self {
            id,
            name,
            durability,
            is_kept: durability != Durability::Memory,
            entries: Blocks::default(),
            pending: Pending::default(),
            next_offset: 0,
            token_base: 0,
            messages: 0,
            bytes: 0,
            ledger: Ledger::new(env.now),
            letters: Blocks::default(),
            next_letter: 0,
            letter_messages: 0,
            letter_bytes: 0,
        }
    }

    /// Notes what a restart must know.
    pub(super) fn note(&self, env: &mut Env, what: What) {
        if self.is_kept {
            env.facts.note(&self.name, what);
        }
    }

    /// The offset that the next frame gets.
    pub(super) fn take_offset(&mut self) -> u64 {
        self.next_offset += 1;
        self.next_offset - 1
    }

    pub(super) fn put(&mut self, env: &mut Env, offset: u64, entry: Entry) {
        self.messages += u64::from(entry.count);
        self.bytes += entry.stored.cost;
        if entry.stored.is_cached() {
            env.cached.add(entry.stored.cost);
        }
        self.entries.insert(offset, entry);
    }

    /// Removes a frame, whoever waits for it.
    pub(super) fn take(&mut self, env: &mut Env, offset: u64) -> Option<Entry> {
        let mut entry = self.entries.remove(&offset)?;
        self.messages -= u64::from(entry.count);
        self.bytes -= entry.stored.cost;
        entry.stored.let_go(env);
        env.wake(Wake::Space(self.id));
        Some(entry)
    }

    /// One group has settled a frame. After the last one the frame goes.
    pub(super) fn release(&mut self, env: &mut Env, offset: u64) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.waiting = entry.waiting.saturating_sub(1);
            if entry.waiting == 0 {
                self.take(env, offset);
            }
        }
    }

    /// Frames from here on are not to be seen yet: the first of them is under way.
    pub(super) fn end(&self) -> u64 {
        self.pending.first().unwrap_or(self.next_offset)
    }

    /// The first offset that is held or under way.
    pub(super) fn oldest(&self) -> u64 {
        self.entries.keys().next().copied().unwrap_or(self.next_offset).min(self.end())
    }

    /// The first frame from `cursor` on that is for `group`.
    pub(super) fn next_for(&self, group: GroupId, cursor: u64) -> Option<(u64, &Entry)> {
        self.entries
            .range(cursor..)
            .find(|(_, entry)| entry.is_for(group))
            .map(|(offset, entry)| (*offset, entry))
            .filter(|(offset, _)| *offset < self.end())
    }

    /// Whether `messages` and `bytes` more are within the bound.
    pub(super) fn has_room(&self, env: &Env, messages: u64, bytes: u64) -> bool {
        let held = self.messages.saturating_add(self.pending.messages);
        held.saturating_add(messages) <= env.config.max_messages
            && self.bytes.saturating_add(self.pending.bytes).saturating_add(bytes) <= env.config.max_bytes
    }

    /// Whether `messages` and `bytes` more would be within the bound, if nothing were held but what is under way.
    pub(super) fn pending_leave_room(&self, env: &Env, messages: u64, bytes: u64) -> bool {
        self.pending.messages.saturating_add(messages) <= env.config.max_messages
            && self.pending.bytes.saturating_add(bytes) <= env.config.max_bytes
    }

    /// The id that the next dead letter gets.
    pub(super) fn take_letter_id(&mut self) -> u64 {
        self.next_letter += 1;
        self.next_letter - 1
    }

    /// Keeps a dead letter; at the bound the oldest go.
    pub(super) fn bury(&mut self, env: &mut Env, letter: Letter) {
        self.ledger.dead += u64::from(letter.head.count);
        self.keep_letter(letter);
        let over = |shelf: &Self| {
            shelf.letter_messages > env.config.max_dead_messages
                || shelf.letter_bytes > env.config.max_dead_bytes
        };
        let mut ids = Vec::new();
        while over(self) {
            let Some((_, oldest)) = self.letters.pop_first() else { break };
            self.ledger.dead_dropped += u64::from(oldest.head.count);
            self.uncount_letter(&oldest);
            ids.push(oldest.head.id);
        }
        if !ids.is_empty() {
            self.note(env, What::LettersGone { ids });
        }
    }

    /// Puts a letter among the others.
    pub(super) fn keep_letter(&mut self, letter: Letter) {
        self.letter_messages += u64::from(letter.head.count);
        self.letter_bytes += letter.cost;
        self.letters.insert(letter.head.id, letter);
    }

    /// Dead letters from id `from` on, oldest first.
    pub(super) fn letters(&self, from: u64) -> impl Iterator<Item = &Letter> {
        self.letters.range(from..).map(|(_, letter)| letter)
    }

    pub(super) fn letter_bytes(&self) -> u64 {
        self.letter_bytes
    }

    pub(super) fn letter_messages(&self) -> u64 {
        self.letter_messages
    }

    /// Takes the selected dead letters out.
    pub(super) fn exhume(&mut self, selection: &DeadSelection) -> Vec<Letter> {
        let taken: Vec<_> = match selection {
            DeadSelection::Oldest(count) => {
                let oldest = std::iter::from_fn(|| self.letters.pop_first());
                oldest.take(*count).map(|(_, letter)| letter).collect()
            }
            DeadSelection::Ids(ids) => {
                let mut ids = ids.clone();
                ids.sort_unstable();
                ids.iter().filter_map(|id| self.letters.remove(id)).collect()
            }
        };
        for letter in &taken {
            self.uncount_letter(letter);
        }
        taken
    }

    fn uncount_letter(&mut self, letter: &Letter) {
        self.letter_messages -= u64::from(letter.head.count);
        self.letter_bytes -= letter.cost;
    }

    /// What is not well: the topic refused publishers at its bound lately, or has dead letters.
    pub(super) fn troubles(&self, now: Millis) -> impl Iterator<Item = Trouble> {
        let name = &self.name;
        let full = self.ledger.refused_lately.lately(now).map(|refused| {
            let (held, refused) = (counted(self.messages, "message"), counted(refused, "message"));
            (Cause::Full, format!("topic {name} is full ({held}) and refuses publishers: {refused} refused"))
        });
        let dead = Some(self.letter_messages).filter(|count| *count > 0).map(|count| {
            let dead = counted(count, "message");
            (
                Cause::DeadLetters,
                format!("topic {name} has dead letters: {dead}; gpuvitals queue dead {name} says why"),
            )
        });
        let of_topic = |(cause, words)| Trouble { cause, topic: Some(Arc::clone(name)), words };
        full.into_iter().chain(dead).map(of_topic)
    }
}
