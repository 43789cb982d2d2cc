//! Does each step to the broker and to the model, and compares.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a run that goes astray fails its test")]
#![expect(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::broker::{Bodies, Image, Lent, Reserved};
use gpuvitals_queue::{
    Broker, ConsumerId, ConsumerOptions, ContentType, DeadLetter, DeadSelection, Delivery, DeliveryId,
    Failure, Frame, Millis, Nack, NackKind, PublishError, QueueConfig, Receipt, Replayed, SettleError, Start,
    WhenFull,
};

use super::frames::{Entry, Fault, GroupFrames, Held, Place, Totals};
use super::memory::Memory;
use super::program::Step;

const TOPIC: &str = "t";
const GROUPS: [&str; 3] = ["a", "b", "c"];
const MAX_MESSAGES: u64 = 60;

#[derive(Debug)]
struct Seat {
    id: ConsumerId,
    group: &'static str,
    credits: u64,
    batch: Option<u64>,
    timeout: u64,
}

pub(crate) struct Run {
    broker: Broker,
    config: QueueConfig,
    now: u64,
    sequence: u64,
    frames: BTreeMap<u64, u32>,
    held: BTreeMap<u64, Held>,
    groups: BTreeMap<&'static str, GroupFrames>,
    seats: Vec<Seat>,
    /// Groups that were removed once: their letters may be of an earlier life.
    removed: BTreeSet<&'static str>,
    totals: Totals,
    next_offset: u64,
    /// Of a broker beside a log.
    memory: Option<Memory>,
}

impl Run {
    pub(crate) fn new(when_full: WhenFull, is_kept: bool, seed: u64) -> Self {
        let config = QueueConfig {
            max_messages: MAX_MESSAGES,
            when_full,
            max_lease: Duration::from_secs(15),
            backoff_cap: Duration::from_secs(1),
            max_retries: 2,
            seed,
            ..QueueConfig::default()
        };
        let broker = if is_kept {
            Broker::restore(config.clone(), Millis(0), Image::default(), &Bodies::new()).broker
        } else {
            Broker::new(config.clone(), Millis(0))
        };
        Self {
            broker,
            config,
            now: 0,
            sequence: 0,
            frames: BTreeMap::new(),
            held: BTreeMap::new(),
            groups: BTreeMap::new(),
            seats: Vec::new(),
            removed: BTreeSet::new(),
            totals: Totals::default(),
            next_offset: 0,
            memory: is_kept.then(Memory::default),
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish { count, repeat } => self.publish(count, repeat),
            Step::Join { group, credits, batch, timeout_ms, newest } => {
                self.join(GROUPS[group], credits, batch, timeout_ms, newest);
            }
            Step::Leave { who } => self.end(who, Fault::Nack(NackKind::Release)),
            Step::Kill { who } => self.end(who, Fault::Gone),
            Step::Receive { who } => {
                if !self.seats.is_empty() {
                    self.receive(who % self.seats.len());
                }
            }
            Step::Ack { who, what } => self.ack(who, what),
            Step::AckUnknown { who, what, how } => self.ack_unknown(who, what, how),
            Step::Nack { who, what, kind } => self.nack(who, what, kind),
            Step::Extend { who, what, by_ms } => self.extend(who, what, by_ms),
            Step::Replay { limit } => self.replay(limit),
            Step::Purge { limit } => {
                let letters = self.broker.dead_letters(TOPIC, 0, limit).unwrap_or_default();
                let purged = self.broker.purge_dead(TOPIC, &DeadSelection::Oldest(limit));
                assert_eq!(purged.unwrap_or_default(), letters.len());
                for letter in &letters {
                    self.exhume(letter);
                }
            }
            Step::RemoveGroup { group } => {
                if let Some(group) = GROUPS.get(group) {
                    self.remove_group(group);
                }
            }
            Step::Pass { ms } => self.pass(ms),
            Step::Restart { from_facts } => self.restart(from_facts),
        }
        self.compare();
    }

    /// Acknowledges all that is left; whatever the program did, each frame ends once.
    pub(crate) fn finish(&mut self) {
        for name in self.groups.keys().copied().collect::<Vec<_>>() {
            self.join(name, 1_000, None, None, false);
        }
        for _ in 0..100 {
            for seat in (0..self.seats.len()).rev() {
                let (id, group) = (self.seats[seat].id, self.seats[seat].group);
                for delivery in self.receive(seat) {
                    let acked = self.broker.ack(Millis(self.now), id, &[delivery.id]).unwrap();
                    assert_eq!(acked, self.groups.get_mut(group).unwrap().ack(delivery.id));
                }
                self.free();
            }
            self.pass(5_000);
            self.compare();
            if self.groups.values().all(|group| group.count(Entry::is_open) == 0) {
                break;
            }
        }
        for (name, group) in &self.groups {
            let open: Vec<_> = group.frames.iter().filter(|(_, entry)| entry.is_open()).collect();
            assert!(open.is_empty(), "group {name} never settled {open:?}");
        }
        let left: Vec<_> = self.held.values().filter(|held| held.wanted).collect();
        assert!(left.is_empty(), "{left:?} held for nobody");
    }

    fn publish(&mut self, count: u32, repeat: bool) {
        let repeat = repeat && self.sequence > 0;
        let sequence = if repeat { self.sequence } else { self.sequence + 1 };
        let payload = sequence.to_le_bytes().to_vec();
        let frame = Arc::new(Frame::new(ContentType::Batch, count, payload).stamped("p", sequence));
        let answer = self.hand_over(&frame);
        if repeat {
            self.totals.duplicates += u64::from(count);
            assert!(answer.unwrap().duplicate);
            return;
        }
        while self.held_messages() + u64::from(count) > MAX_MESSAGES {
            let (&oldest, held) = self.held.first_key_value().unwrap();
            let wanted = self.groups.values().any(|group| group.is_open(oldest));
            if self.config.when_full == WhenFull::Refuse && (wanted || self.groups.is_empty()) {
                self.totals.refused += u64::from(count);
                assert!(matches!(answer, Err(PublishError::Full { .. })), "{answer:?}");
                return;
            }
            self.totals.dropped += held.count;
            self.held.remove(&oldest);
            for group in self.groups.values_mut() {
                let idle = |entry: &&mut Entry| matches!(entry.place, Place::New | Place::Back { .. });
                if let Some(entry) = group.frames.get_mut(&oldest).filter(idle) {
                    entry.place = Place::Dropped;
                }
            }
        }
        let offset = answer.unwrap().offset.unwrap();
        assert_eq!(offset, self.next_offset, "offsets are dense");
        self.next_offset += 1;
        self.sequence = sequence;
        self.totals.published += u64::from(count);
        self.frames.insert(offset, sequence as u32);
        let count = u64::from(count);
        for group in self.groups.values_mut() {
            group.add(offset, count);
        }
        self.held.insert(offset, Held { count, only: None, wanted: !self.groups.is_empty() });
    }

    fn hand_over(&mut self, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let Some(memory) = &mut self.memory else {
            return self.broker.publish(Millis(self.now), TOPIC, frame);
        };
        match self.broker.reserve(Millis(self.now), TOPIC, frame) {
            Ok(Reserved::New { topic, offset, at, .. }) => {
                let home = memory.keep(TOPIC, offset, frame, at);
                Ok(self.broker.land(topic, offset, home, frame.payload.clone()).unwrap())
            }
            Ok(Reserved::Repeat(receipt)) => Ok(receipt),
            Ok(Reserved::UnderWay { .. }) => panic!("nothing is under way"),
            Err(refused) => {
                if matches!(refused, PublishError::Full { .. }) {
                    self.broker.count_refused(TOPIC, frame);
                }
                Err(refused)
            }
        }
    }

    /// The broker ends and begins again, from what was noted or from its own image.
    fn restart(&mut self, from_facts: bool) {
        let held = self.held_messages();
        let Some(memory) = &mut self.memory else { return };
        let own = self.broker.image();
        let image = if from_facts { memory.image.clone() } else { own };
        let cursors: BTreeMap<_, _> = image.topics.get(TOPIC).map_or_else(BTreeMap::new, |topic| {
            topic.groups.iter().map(|(name, group)| (name.to_string(), group.cursor)).collect()
        });
        let restored = Broker::restore(self.config.clone(), Millis(self.now), image, &memory.bodies);
        assert_eq!((restored.missing, restored.messages), (0, held));
        self.broker = restored.broker;
        memory.image = self.broker.image();
        self.next_offset = memory.image.topics.get(TOPIC).map_or(0, |topic| topic.next_offset);
        self.seats.clear();
        for (name, group) in &mut self.groups {
            group.history.clear();
            for (offset, entry) in &mut group.frames {
                entry.id = None;
                entry.losses = 0;
                if entry.is_open() {
                    entry.place = match self.held.contains_key(offset) {
                        false => Place::Dropped,
                        true if *offset < cursors[*name] => Place::Back { by: self.now },
                        true => Place::New,
                    };
                }
            }
        }
        let settled = |places: &[Place]| {
            let of = |group: &GroupFrames| group.count(|row| places.contains(&row.place));
            self.groups.values().map(of).sum::<u64>()
        };
        let acked = 0_u64.wrapping_sub(settled(&[Place::Acked]));
        let dead = 0_u64.wrapping_sub(settled(&[Place::Dead, Place::Exhumed]));
        self.totals = Totals { acked, dead, ..Totals::default() };
    }

    fn join(
        &mut self,
        group: &'static str,
        credits: u32,
        batch: Option<u32>,
        timeout: Option<u64>,
        newest: bool,
    ) {
        let options = ConsumerOptions {
            start: if newest { Start::Newest } else { Start::Oldest },
            group_ttl: None,
            max_in_flight: NonZeroU32::new(credits).unwrap(),
            max_batch: batch.and_then(NonZeroU32::new),
            consumer: None,
            ack_timeout: timeout.map(Duration::from_millis),
        };
        let id = self.broker.subscribe(Millis(self.now), TOPIC, group, &options).unwrap();
        let timeout = timeout.unwrap_or(5_000);
        self.seats.push(Seat { id, group, credits: credits.into(), batch: batch.map(u64::from), timeout });
        if !self.groups.contains_key(group) {
            let mut frames = GroupFrames::default();
            for (offset, held) in self.held.iter_mut().filter(|(_, held)| !newest && held.only.is_none()) {
                frames.add(*offset, held.count);
                held.wanted = true;
            }
            self.groups.insert(group, frames);
        }
    }

    fn end(&mut self, who: usize, fault: Fault) {
        if self.seats.is_empty() {
            return;
        }
        let seat = self.seats.remove(who % self.seats.len());
        match fault {
            Fault::Gone => self.broker.kill(Millis(self.now), seat.id),
            _ => self.broker.leave(Millis(self.now), seat.id),
        }
        self.fail_where(seat.group, fault, |row| row.is_with(seat.id));
    }

    fn receive(&mut self, seat: usize) -> Vec<Delivery> {
        let seat = &self.seats[seat];
        let group = self.groups.get_mut(seat.group).unwrap();
        let before = group.count(|row| row.is_with(seat.id));
        let due = group.count(|row| match row.place {
            Place::New => true,
            Place::Back { by } => by <= self.now,
            _ => false,
        });
        let may_come = due + group.count(|row| matches!(row.place, Place::Back { .. }));
        let deliveries = self.broker.lend(Millis(self.now), seat.id).unwrap();
        let mut received = 0;
        for Lent { item: delivery, home } in &deliveries {
            let source = home.as_ref().map_or(delivery.id.offset, |home| home.source);
            let sequence = u64::from(self.frames[&source]);
            assert!(home.is_some() || delivery.frame.payload[..] == sequence.to_le_bytes());
            assert_eq!(self.frames[&source], self.frames[&delivery.id.offset], "other bytes");
            received += group.frames[&delivery.id.offset].count;
            Self::check_delivery(delivery, group, seat, self.now);
        }
        let in_flight = group.count(|row| row.is_with(seat.id));
        let leases = |again_only: bool| {
            let with = group.frames.values().filter(|entry| entry.is_with(seat.id));
            let chosen: Vec<_> = with
                .filter(|entry| !again_only || matches!(entry.place, Place::Out { again: true, .. }))
                .collect();
            (chosen.iter().map(|entry| entry.count).sum::<u64>(), chosen.len())
        };
        assert!(in_flight <= seat.credits || leases(false).1 == 1, "{in_flight} of {} credits", seat.credits);
        let (again, again_leases) = leases(true);
        assert!(
            again * 2 <= seat.credits || again_leases == 1,
            "{again} redelivered of {} credits",
            seat.credits
        );
        if let Some(batch) = seat.batch {
            assert!(received <= batch || deliveries.len() == 1, "{received} in a batch of {batch}");
        }
        if before == 0 && due > 0 {
            assert!(!deliveries.is_empty(), "an idle consumer was given nothing of {due} messages");
        }
        if may_come == 0 {
            assert!(deliveries.is_empty());
        }
        if let Some((head, entry)) = group.frames.iter().find(|(_, entry)| entry.place == Place::New)
            && seat.batch.is_none()
        {
            let is_too_much = in_flight + entry.count > seat.credits && in_flight > 0;
            assert!(is_too_much, "frame {head} was held back");
        }
        deliveries.into_iter().map(|lent| lent.item).collect()
    }

    fn check_delivery(delivery: &Delivery, group: &mut GroupFrames, seat: &Seat, now: u64) {
        let id = delivery.id;
        assert!(!group.history.contains(&id), "{id} was given before");
        group.history.push(id);
        assert_eq!(delivery.deadline, Millis(now + seat.timeout));
        let entry = group.frames.get_mut(&id.offset).unwrap();
        let again = match entry.place {
            Place::New => false,
            Place::Back { .. } => true,
            other => panic!("{id} delivers a frame that is {other:?}"),
        };
        assert_eq!(delivery.attempt, entry.failures + 1);
        assert!(entry.id.is_none_or(|own| own.token < id.token), "{id} after {:?}", entry.id);
        entry.id = Some(id);
        entry.place = Place::Out { consumer: seat.id, granted: now, deadline: now + seat.timeout, again };
    }

    /// Any delivery the consumer's group has seen: current, over, or settled.
    fn choose(&self, who: usize, what: usize) -> Option<(ConsumerId, &'static str, DeliveryId)> {
        let seat = self.seats.get(who.checked_rem(self.seats.len())?)?;
        let history = &self.groups[seat.group].history;
        // The later ones more often: those are alive.
        let back = what.checked_rem(history.len())?.min(what % 7);
        Some((seat.id, seat.group, history[history.len() - 1 - back]))
    }

    fn ack(&mut self, who: usize, what: usize) {
        let Some((consumer, group, id)) = self.choose(who, what) else { return };
        let answer = self.broker.ack(Millis(self.now), consumer, &[id]);
        assert_eq!(answer, Ok(self.groups.get_mut(group).unwrap().ack(id)));
        self.free();
    }

    fn ack_unknown(&mut self, who: usize, what: usize, how: u8) {
        let Some((consumer, group, id)) = self.choose(who, what) else { return };
        let beyond = self.next_offset;
        let open = self.groups[group].open_as(id);
        let invented = match (how, open) {
            (0, _) => DeliveryId { offset: beyond + 3, ..id },
            (1, _) => DeliveryId { token: 0, ..id },
            (2, Some(open)) => DeliveryId { token: open.token + 1, ..open },
            _ => return,
        };
        let answer = self.broker.ack(Millis(self.now), consumer, &[invented]);
        assert_eq!(answer, Err(SettleError::Unknown { id: invented, more: 0 }));
    }

    fn nack(&mut self, who: usize, what: usize, kind: NackKind) {
        let Some((consumer, group, id)) = self.choose(who, what) else { return };
        let group = self.groups.get_mut(group).unwrap();
        let leased = group.leased(id).map(|entry| entry.count);
        let nack = Nack { id, kind, reason: "no".into() };
        let answer = self.broker.nack(Millis(self.now), consumer, &[nack]);
        assert_eq!(answer, Ok(leased.unwrap_or(0)));
        if leased.is_some() {
            let held = self.held.contains_key(&id.offset);
            group.fail(id.offset, held, Fault::Nack(kind), self.now, &self.config);
        }
        self.free();
    }

    fn extend(&mut self, who: usize, what: usize, by: u64) {
        let Some((consumer, group, id)) = self.choose(who, what) else { return };
        let answer = self.broker.extend(Millis(self.now), consumer, &[id], Duration::from_millis(by));
        let Some(entry) = self.groups.get_mut(group).unwrap().leased(id) else {
            assert_eq!(answer, Err(SettleError::LeaseOver { id, more: 0 }));
            return;
        };
        assert_eq!(answer, Ok(()));
        if let Place::Out { granted, deadline, .. } = &mut entry.place {
            *deadline = (self.now + by).min(*granted + 15_000).max(*deadline);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        for name in GROUPS {
            self.fail_where(
                name,
                Fault::Timeout,
                |row| matches!(row.place, Place::Out { deadline, .. } if deadline <= now),
            );
        }
        self.broker.advance(Millis(now));
        assert!(self.broker.next_deadline().is_none_or(|next| next.0 > now), "nothing due is left");
    }

    fn fail_where(&mut self, group: &'static str, fault: Fault, which: impl Fn(&Entry) -> bool) {
        let Some(group) = self.groups.get_mut(group) else { return };
        let failing = group.frames.iter().filter(|(_, entry)| which(entry)).map(|(offset, _)| *offset);
        for offset in failing.collect::<Vec<_>>() {
            group.fail(offset, self.held.contains_key(&offset), fault, self.now, &self.config);
        }
        self.free();
    }

    /// Frames that every group has settled go.
    fn free(&mut self) {
        let open = |offset| self.groups.values().any(|group| group.is_open(offset));
        self.held.retain(|offset, held| !held.wanted || open(*offset));
    }

    fn replay(&mut self, limit: usize) {
        let letters = self.broker.dead_letters(TOPIC, 0, limit).unwrap_or_default();
        let mut expected = Replayed::default();
        for letter in &letters {
            let Some((&name, _)) = self.groups.get_key_value(&*letter.group) else {
                expected.without_group += 1;
                continue;
            };
            if self.held_messages() + u64::from(letter.count) > MAX_MESSAGES {
                expected.without_room += 1;
                continue;
            }
            expected.letters += 1;
            let offset = self.next_offset;
            self.next_offset += 1;
            self.frames.insert(offset, self.frames[&letter.offset]);
            self.exhume(letter);
            let count = u64::from(letter.count);
            self.groups.get_mut(name).unwrap().add(offset, count);
            self.held.insert(offset, Held { count, only: Some(name), wanted: true });
        }
        let done = self.broker.replay_dead(Millis(self.now), TOPIC, &DeadSelection::Oldest(limit));
        assert_eq!(done.unwrap_or_default(), expected);
    }

    fn exhume(&mut self, letter: &DeadLetter) {
        let Some(group) = self.groups.get_mut(&*letter.group) else { return };
        let dead = group.frames.get_mut(&letter.offset).filter(|entry| entry.place == Place::Dead);
        if let Some(entry) = dead {
            entry.place = Place::Exhumed;
        }
    }

    fn remove_group(&mut self, name: &'static str) {
        let answer = self.broker.remove_group(Millis(self.now), TOPIC, name);
        let Some(group) = self.groups.remove(name) else {
            assert!(answer.is_err());
            return;
        };
        assert_eq!(answer, Ok(()));
        self.removed.insert(name);
        self.seats.retain(|seat| seat.group != name);
        let settled = |places: &[Place]| group.count(|row| places.contains(&row.place));
        self.totals.acked = self.totals.acked.wrapping_add(settled(&[Place::Acked]));
        self.totals.dead = self.totals.dead.wrapping_add(settled(&[Place::Dead, Place::Exhumed]));
        for (offset, held) in &mut self.held {
            // The last group's frames stay for the next one, but for those that were its own.
            held.wanted &= held.only.is_some() || !self.groups.is_empty();
            self.totals.dropped += if held.only == Some(name) { held.count } else { 0 };
            assert!(held.only != Some(name) || group.is_open(*offset));
        }
        self.free();
    }

    fn held_messages(&self) -> u64 {
        self.held.values().map(|held| held.count).sum()
    }

    fn compare(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.compare(&mut self.broker);
        }
        let Ok(stats) = self.broker.topic_stats(Millis(self.now), TOPIC) else { return };
        assert_eq!(stats.messages, self.held_messages());
        assert_eq!(stats.frames, self.held.len() as u64);
        assert!(stats.messages <= MAX_MESSAGES);
        assert_eq!(stats.subscribers, self.seats.len() as u64);
        let totals = (stats.published, stats.refused, stats.dropped, stats.duplicates);
        let Totals { published, refused, dropped, duplicates, acked, dead } = self.totals;
        assert_eq!(totals, (published, refused, dropped, duplicates));
        let over_all = |places: &[Place]| {
            self.groups.values().map(|group| group.count(|row| places.contains(&row.place))).sum::<u64>()
        };
        assert_eq!(stats.acked, acked.wrapping_add(over_all(&[Place::Acked])));
        assert_eq!(stats.dead, dead.wrapping_add(over_all(&[Place::Dead, Place::Exhumed])));
        for (name, rows) in &self.groups {
            let group = &stats.groups[*name];
            assert_eq!(group.lag, rows.count(Entry::is_open), "lag of {name}");
            assert_eq!(group.in_flight, rows.count(|row| matches!(row.place, Place::Out { .. })));
            assert_eq!(group.waiting, rows.count(|row| matches!(row.place, Place::Back { .. })));
        }
        let letters = self.broker.dead_letters(TOPIC, 0, usize::MAX).unwrap();
        assert_eq!(letters.iter().map(|letter| u64::from(letter.count)).sum::<u64>(), stats.dead_letters);
        if self.removed.is_empty() {
            assert_eq!(stats.dead_letters, over_all(&[Place::Dead]));
        }
        for letter in letters.iter().filter(|letter| !self.removed.contains(&*letter.group)) {
            let group = &self.groups[&*letter.group];
            assert_eq!(group.frames[&letter.offset].place, Place::Dead);
            let retried = letter.attempts == self.config.max_retries + 1;
            assert!(retried || matches!(letter.reason, Failure::Rejected(_)), "{letter:?}");
        }
    }
}
