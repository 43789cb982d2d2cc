//! What one topic holds: frames and their count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::quantity::counted;
use gpuvitals_log::Place;

use super::entries::{Entries, FrameEntry, HeldFrame};
use super::env::Env;
use super::ledger::Ledger;
use super::ranges::Ranges;
use super::terms::{FrameDurability, TopicId, Wake};
use crate::frame::{Frame, Millis, ProducerStamp};
use crate::name;
use crate::trouble::{Cause, Trouble};

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
    pub(super) durability: FrameDurability,
    /// Whether a log keeps what is held.
    pub(super) is_kept: bool,
    /// Whether it holds the dead letters of another topic.
    pub(super) is_dead: bool,
    pub(super) entries: Entries,
    /// The offsets of `entries`. While a log is read, what is known of its frames so far, whether they were found or not.
    pub(super) held: Ranges,
    pub(super) pending: Pending,
    pub(super) next_offset: u64,
    /// Tokens of this life of a queue that is kept begin behind it, so that an id from an earlier life names nothing.
    pub(super) token_base: u32,
    /// Groups that the topic has had, in all its time.
    pub(super) groups_made: u32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) ledger: Ledger,
}

impl Shelf {
    pub(super) fn new(id: TopicId, name: Arc<str>, env: &Env) -> Self {
        let durability = env.durability();
        Self {
            id,
            is_dead: name::origin_of(&name).is_some(),
            name,
            durability,
            is_kept: durability != FrameDurability::Memory,
            entries: Entries::default(),
            held: Ranges::default(),
            pending: Pending::default(),
            next_offset: 0,
            token_base: 0,
            groups_made: 0,
            messages: 0,
            bytes: 0,
            ledger: Ledger::new(env.now),
        }
    }

    /// The offset that the next frame gets.
    pub(super) fn take_offset(&mut self) -> u64 {
        self.next_offset += 1;
        self.next_offset - 1
    }

    /// Holds a frame. `id` is what the producer of its stamp is known by.
    pub(super) fn put(&mut self, env: &mut Env, offset: u64, entry: FrameEntry, id: Option<Arc<str>>) {
        self.entries.insert(offset, entry, id);
        let Some(held) = self.entries.get(offset) else { return };
        self.messages += u64::from(held.count);
        self.bytes += held.cost;
        if held.is_cached() {
            env.cached_frames += 1;
            env.cached_bytes += held.cost;
        }
        if let Some(place) = held.needed_place() {
            env.lies_at(place);
        }
        self.held.insert(offset..offset + 1);
    }

    /// Removes a frame, whoever waits for it. While a log is read the frame stays, held for nobody: a later record may
    /// hold it again.
    pub(super) fn take(&mut self, env: &mut Env, offset: u64) -> Option<HeldFrame> {
        self.held.remove(&(offset..offset + 1));
        if env.reads_log { None } else { self.remove(env, offset) }
    }

    /// Holds all frames from `start` on that were found while a log is read.
    pub(super) fn hold_all_from(&mut self, start: u64) {
        for (offset, _) in self.entries.from(start) {
            self.held.insert(offset..offset + 1);
        }
    }

    /// Removes what there is of a frame beside that it is held.
    pub(super) fn remove(&mut self, env: &mut Env, offset: u64) -> Option<HeldFrame> {
        let entry = self.entries.remove(offset)?;
        self.messages -= u64::from(entry.count);
        self.bytes -= entry.cost;
        env.uncached(&entry);
        if let Some(place) = entry.needed_place() {
            env.left(place);
        }
        env.wake(Wake::Space(self.id));
        Some(entry)
    }

    /// A frame's record has been written again elsewhere, or has been found to be damaged, if it still counts as what lies
    /// in the old place.
    pub(super) fn moved(&mut self, env: &mut Env, offset: u64, from: Place, to: Option<Place>) {
        let Some(entry) = self.entries.get(offset).filter(|entry| entry.place == Some(from)) else {
            return;
        };
        if let Some(place) = entry.needed_place() {
            env.left(place);
        }
        self.entries.moved(offset, to.unwrap_or(from), to.is_none());
        if let Some(to) = to {
            env.lies_at(to);
        }
    }

    /// Lets a frame's memory go, if the bytes are on disk too.
    pub(super) fn let_go(&mut self, env: &mut Env, offset: u64) {
        if let Some(entry) = self.entries.get(offset).filter(HeldFrame::is_cached) {
            self.entries.unload(offset);
            env.uncached(&entry);
        }
    }

    /// The frames that a log has.
    pub(super) fn kept(&self) -> Ranges {
        let mut kept = self.held.clone();
        if self.durability == FrameDurability::Memory {
            // A topic that promised more in an earlier life.
            for (offset, _) in self.entries.iter().filter(|(_, entry)| entry.place.is_none()) {
                kept.remove(&(offset..offset + 1));
            }
        }
        kept
    }

    /// Messages in the frames from `start` on.
    pub(super) fn messages_from(&self, start: u64) -> u64 {
        self.entries.from(start).map(|(_, entry)| u64::from(entry.count)).sum()
    }

    /// Frames from here on are not to be seen yet: the first of them is under way.
    pub(super) fn end(&self) -> u64 {
        self.pending.first().unwrap_or(self.next_offset)
    }

    /// The first offset that is held or under way.
    pub(super) fn oldest(&self) -> u64 {
        self.entries.iter().next().map_or(self.next_offset, |(oldest, _)| oldest).min(self.end())
    }

    /// The first frame from `cursor` on.
    pub(super) fn next_from(&self, cursor: u64) -> Option<(u64, HeldFrame)> {
        self.entries.from(cursor).next().filter(|(offset, _)| *offset < self.end())
    }

    /// Whether `messages` and `bytes` more are within the bound.
    pub(super) fn has_room(&self, env: &Env, messages: u64, bytes: u64) -> bool {
        let bound = env.bound(self.is_dead);
        let held = self.messages.saturating_add(self.pending.messages);
        held.saturating_add(messages) <= bound.messages
            && self.bytes.saturating_add(self.pending.bytes).saturating_add(bytes) <= bound.bytes
    }

    /// Whether `messages` and `bytes` more would be within the bound, if nothing were held but what is under way.
    pub(super) fn pending_leave_room(&self, env: &Env, messages: u64, bytes: u64) -> bool {
        let bound = env.bound(self.is_dead);
        self.pending.messages.saturating_add(messages) <= bound.messages
            && self.pending.bytes.saturating_add(bytes) <= bound.bytes
    }

    /// What is not well: the topic refused publishers at its bound lately, or holds dead letters.
    pub(super) fn troubles(&self, now: Millis) -> impl Iterator<Item = Trouble> {
        let origin = name::origin_of(&self.name).filter(|_| self.is_dead);
        let name = origin.unwrap_or(&self.name);
        let full = self.ledger.refused_lately.lately(now).map(|refused| {
            let (held, refused) = (counted(self.messages, "message"), counted(refused, "message"));
            let words = format!(
                "topic {name} is full ({held}) and refuses publishers: {refused} refused; gpuvitals queue stats names the \
                 group that is behind, broker.messages_max and broker.bytes_max raise the bound"
            );
            (Cause::Full, words)
        });
        let dead = Some(self.messages).filter(|count| *count > 0 && self.is_dead).map(|count| {
            let dropped = match self.ledger.dropped {
                0 => String::new(),
                dropped => format!(", {} dropped at their bound", counted(dropped, "older message")),
            };
            let dead = counted(count, "message");
            let words = format!(
                "topic {name} has dead letters: {dead}{dropped}; gpuvitals queue dead {name} says why"
            );
            (Cause::DeadLetters, words)
        });
        let topic: Arc<str> = name.into();
        let too_large = self.ledger.too_large_lately.lately(now).map(|lost| {
            let lost = counted(lost, "message");
            (
                Cause::DeadLetters,
                format!("topic {name} lost dead letters that are larger than their bound: {lost}"),
            )
        });
        let of_topic = move |(cause, words)| Trouble { cause, topic: Some(Arc::clone(&topic)), words };
        full.into_iter().chain(dead).chain(too_large).map(of_topic)
    }
}
