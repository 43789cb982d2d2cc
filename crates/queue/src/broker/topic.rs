//! One topic: its shelf, its groups, and the producers it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::env::Env;
use super::group::{Group, PartState};
use super::producers::Producers;
use super::shelf::{Entry, Shelf};
use super::terms::{
    ConsumerOptions, DeadSelection, Durability, GroupId, PublishError, Receipt, Replayed, Start, TopicId,
    Wake,
};
use crate::config::WhenFull;
use crate::frame::{Frame, Millis};
use crate::rows::Rows;
use crate::stats::{GroupStats, TopicStats};

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) shelf: Shelf,
    pub(super) groups: BTreeMap<GroupId, Group>,
    producers: Producers,
}

impl Topic {
    pub(super) fn new(id: TopicId, name: Arc<str>, now: Millis) -> Self {
        Self { shelf: Shelf::new(id, name, now), groups: BTreeMap::new(), producers: Producers::default() }
    }

    pub(super) fn publish(&mut self, env: &mut Env, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let messages = u64::from(frame.count);
        if let Some(stamp) = &frame.producer
            && self.producers.is_repeat(stamp)
        {
            self.shelf.ledger.duplicates += messages;
            return Ok(Receipt { offset: None, durability: Durability::Memory, duplicate: true });
        }
        self.make_room(env, messages, frame.cost_bytes());
        if !self.shelf.has_room(env, messages, frame.cost_bytes()) {
            return Err(PublishError::Full { topic: Arc::clone(&self.shelf.name), retry_after: None });
        }
        if let Some(stamp) = &frame.producer {
            self.producers.remember(stamp, env.now, env.config.max_producers);
        }
        let offset = self.shelf.put(Entry {
            frame: Arc::clone(frame),
            rows: Rows::all(frame.count),
            published_at: env.now,
            waiting: self.groups.len(),
            next_part: 1,
            only: None,
        });
        self.shelf.ledger.published += messages;
        self.shelf.ledger.published_rate.add(env.now, messages);
        for group in self.groups.values_mut() {
            group.lag += messages;
            env.wake(Wake::Group(group.id));
        }
        Ok(Receipt { offset: Some(offset), durability: Durability::Memory, duplicate: false })
    }

    /// Removes frames from the old end until so much fits, as far as the policy allows. Frames from a time
    /// without groups, that none of the groups of now waits for, give way under any policy.
    fn make_room(&mut self, env: &mut Env, messages: u64, bytes: u64) {
        while !self.shelf.has_room(env, messages, bytes) {
            let Some((&offset, entry)) = self.shelf.entries.first_key_value() else { return };
            let unwanted = entry.waiting == 0 && !self.groups.is_empty();
            if !unwanted && env.config.when_full == WhenFull::Refuse {
                return;
            }
            let Some(entry) = self.shelf.take(env, offset) else { return };
            let rows = entry.rows.len();
            self.shelf.ledger.dropped += rows;
            for group in self.groups.values_mut() {
                if entry.is_for(group.id) {
                    group.forget(env, &mut self.shelf, offset, rows);
                }
            }
        }
    }

    pub(super) fn group_named(&self, name: &str) -> Option<GroupId> {
        self.groups.values().find(|group| &*group.name == name).map(|group| group.id)
    }

    pub(super) fn add_group(&mut self, id: GroupId, name: &str, options: &ConsumerOptions) {
        let start = match options.start {
            Start::Oldest => self.shelf.entries.keys().next().copied().unwrap_or(self.shelf.next_offset),
            Start::Newest => self.shelf.next_offset,
        };
        let mut lag = 0;
        for (_, entry) in self.shelf.entries.range_mut(start..).filter(|(_, entry)| entry.is_for(id)) {
            entry.waiting += 1;
            lag += entry.rows.len();
        }
        self.groups.insert(id, Group::new(id, name.into(), options.group_ttl, start, lag));
    }

    /// Ends a group. What only it waited for goes, unless it was the last: a topic without a group keeps
    /// what it has.
    pub(super) fn remove_group(&mut self, env: &mut Env, id: GroupId) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        let begun = group.parts.keys().map(|(offset, _)| *offset);
        let ahead = self.shelf.entries.range(group.cursor..).map(|(offset, _)| *offset);
        let mut wanted: Vec<_> = begun.chain(ahead).collect();
        wanted.dedup();
        for offset in wanted {
            let Some(entry) = self.shelf.entries.get_mut(&offset).filter(|entry| entry.is_for(id)) else {
                continue;
            };
            entry.waiting = entry.waiting.saturating_sub(1);
            let own = entry.only == Some(id);
            if own || (entry.waiting == 0 && !self.groups.is_empty()) {
                let rows = entry.rows.len();
                self.shelf.take(env, offset);
                self.shelf.ledger.dropped += if own { rows } else { 0 };
            }
        }
        env.wake(Wake::Group(id));
        Some(group)
    }

    /// Puts dead letters back for the groups that gave up on them; the others stay where they are.
    pub(super) fn replay(&mut self, env: &mut Env, selection: &DeadSelection) -> Replayed {
        let mut done = Replayed::default();
        let mut kept = Vec::new();
        for letter in self.shelf.exhume(selection) {
            let id = self.group_named(&letter.group);
            let Some(group) = id.and_then(|id| self.groups.get_mut(&id)) else {
                done.without_group += 1;
                kept.push(letter);
                continue;
            };
            let rows = letter.rows.len();
            if !self.shelf.has_room(env, rows, letter.frame.cost_bytes()) {
                done.without_room += 1;
                kept.push(letter);
                continue;
            }
            self.shelf.put(Entry {
                frame: letter.frame,
                rows: letter.rows,
                published_at: letter.published_at,
                waiting: 1,
                next_part: 1,
                only: Some(group.id),
            });
            group.lag += rows;
            env.wake(Wake::Group(group.id));
            done.letters += 1;
        }
        self.shelf.rebury(kept);
        done
    }

    pub(super) fn advance(&mut self, env: &mut Env) {
        let mut ended = Vec::new();
        for group in self.groups.values_mut() {
            group.advance(env, &mut self.shelf);
            if group.ends_at().is_some_and(|end| end <= env.now) {
                ended.push(group.id);
            }
        }
        for id in ended {
            self.remove_group(env, id);
        }
    }

    pub(super) fn stats(&self, now: Millis) -> TopicStats {
        let ledger = &self.shelf.ledger;
        let groups: BTreeMap<_, _> =
            self.groups.values().map(|group| (group.name.to_string(), group_stats(group))).collect();
        TopicStats {
            messages: self.shelf.messages,
            subscribers: groups.values().map(|group| group.members).sum(),
            throughput_msg_per_sec: ledger.published_rate.per_second(now),
            acked_msg_per_sec: ledger.acked_rate.per_second(now),
            bytes: self.shelf.bytes,
            frames: number(self.shelf.entries.len()),
            published: ledger.published,
            acked: ledger.acked,
            redelivered: ledger.redelivered,
            dead: ledger.dead,
            dropped: ledger.dropped,
            refused: ledger.refused,
            duplicates: ledger.duplicates,
            dead_letters: self.shelf.letter_messages(),
            dead_dropped: ledger.dead_dropped,
            groups,
        }
    }
}

fn group_stats(group: &Group) -> GroupStats {
    let idle = group.parts.values().filter(|part| !matches!(part.state, PartState::Leased(_)));
    GroupStats {
        members: number(group.members.len()),
        lag: group.lag,
        in_flight: group.in_flight(),
        waiting: idle.map(|part| part.rows.len()).sum(),
        redeliveries: group.redeliveries,
        acked: group.acked,
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
