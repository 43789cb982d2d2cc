//! Does each step to the broker and to the model, and compares.

#![expect(clippy::indexing_slicing, reason = "a run that goes astray fails its test")]
#![expect(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::broker::{Lent, Reserved};
use gpuvitals_queue::{
    Broker, ConsumerId, ConsumerOptions, ContentType, DeadFacts, DeadSelection, Delivery, DeliveryId, Frame,
    Millis, Nack, NackKind, PublishError, QueueConfig, Receipt, SettleError, Start, WhenFull, dead_topic,
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
    /// Dead letters that are held, by group and offset: two where a group was made anew and gave up on a frame again.
    letters: Vec<(&'static str, u64)>,
    /// The same of a broker beside a log, by id: it does not keep their facts in memory.
    kept_letters: BTreeMap<u64, (&'static str, u64)>,
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
        let mut broker = if is_kept {
            Broker::beside_log(config.clone(), Millis(0))
        } else {
            Broker::new(config.clone(), Millis(0))
        };
        broker.begin();
        let memory = is_kept.then(|| Memory::new(config.clone()));
        Self {
            broker,
            config,
            now: 0,
            sequence: 0,
            frames: BTreeMap::new(),
            held: BTreeMap::new(),
            groups: BTreeMap::new(),
            seats: Vec::new(),
            letters: Vec::new(),
            kept_letters: BTreeMap::new(),
            totals: Totals::default(),
            next_offset: 0,
            memory,
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
                let ids: Vec<_> = self.oldest_letters(limit).into_iter().map(|(id, _)| id).collect();
                self.purge(&ids);
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
        let answer = self.hand_over(TOPIC, &frame);
        if repeat {
            self.totals.duplicates += u64::from(count);
            assert!(answer.unwrap().duplicate);
            return;
        }
        if self.taken(count, sequence as u32, answer) {
            self.sequence = sequence;
        }
    }

    /// What the model makes of a frame that was handed over; whether it was taken.
    fn taken(&mut self, count: u32, number: u32, answer: Result<Receipt, PublishError>) -> bool {
        while self.held_messages() + u64::from(count) > MAX_MESSAGES {
            let (&oldest, held) = self.held.first_key_value().unwrap();
            let wanted = self.groups.values().any(|group| group.is_open(oldest));
            if self.config.when_full == WhenFull::Refuse && (wanted || self.groups.is_empty()) {
                self.totals.refused += u64::from(count);
                assert!(matches!(answer, Err(PublishError::Full { .. })), "{answer:?}");
                return false;
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
        self.totals.published += u64::from(count);
        self.frames.insert(offset, number);
        let count = u64::from(count);
        for group in self.groups.values_mut() {
            group.add(offset, count);
        }
        self.held.insert(offset, Held { count, wanted: !self.groups.is_empty() });
        true
    }

    fn hand_over(&mut self, topic_name: &str, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let Some(memory) = &mut self.memory else {
            return self.broker.publish(Millis(self.now), topic_name, frame);
        };
        match self.broker.reserve(Millis(self.now), topic_name, frame) {
            Ok(Reserved::New { topic, offset, at, .. }) => {
                let place = memory.keep(topic_name, offset, frame, at);
                Ok(self.broker.land(topic, offset, place).unwrap())
            }
            Ok(Reserved::Taken(receipt)) => Ok(receipt),
            Ok(Reserved::UnderWay { .. }) => panic!("nothing is under way"),
            Err(refused) => {
                if matches!(refused, PublishError::Full { .. }) {
                    self.broker.count_refused(topic_name, frame);
                }
                Err(refused)
            }
        }
    }

    /// The broker ends and begins again, from what was noted or from its own state.
    fn restart(&mut self, from_facts: bool) {
        let held = self.held_messages();
        let Some(memory) = &mut self.memory else { return };
        let own = self.broker.state();
        let (broker, found) = memory.restart(&self.config, Millis(self.now), (!from_facts).then_some(own));
        assert_eq!((found.missing, found.messages), (0, held));
        self.broker = broker;
        let state = self.broker.state().into_iter().find(|topic| &*topic.name == TOPIC).unwrap_or_default();
        self.next_offset = state.next_offset;
        let cursors: BTreeMap<_, _> =
            state.groups.iter().map(|group| (group.name.to_string(), group.cursor)).collect();
        self.seats.clear();
        for (name, group) in &mut self.groups {
            group.history.clear();
            for (offset, entry) in &mut group.frames {
                entry.id = None;
                (entry.failures, entry.losses) = (0, 0);
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
        self.totals = Totals { acked, ..Totals::default() };
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
            for (offset, held) in self.held.iter_mut().filter(|_| !newest) {
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
        let deliveries = self.broker.receive(Millis(self.now), seat.id).unwrap();
        let mut received = 0;
        for Lent { item: delivery, place } in &deliveries {
            let sequence = u64::from(self.frames[&delivery.id.offset]);
            assert!(place.is_some() || delivery.frame.payload[..] == sequence.to_le_bytes());
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
        let Some((consumer, name, id)) = self.choose(who, what) else { return };
        let group = self.groups.get_mut(name).unwrap();
        let leased = group.leased(id).map(|entry| entry.count);
        let nack = Nack { id, kind, reason: "no".into() };
        let answer = self.broker.nack(Millis(self.now), consumer, &[nack]);
        assert_eq!(answer, Ok(leased.unwrap_or(0)));
        if leased.is_some() {
            self.fail(name, id.offset, Fault::Nack(kind));
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

    fn fail_where(&mut self, name: &'static str, fault: Fault, which: impl Fn(&Entry) -> bool) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let failing = group.frames.iter().filter(|(_, entry)| which(entry)).map(|(offset, _)| *offset);
        for offset in failing.collect::<Vec<_>>() {
            self.fail(name, offset, fault);
        }
        self.free();
    }

    fn fail(&mut self, name: &'static str, offset: u64, fault: Fault) {
        let held = self.held.contains_key(&offset);
        let group = self.groups.get_mut(name).unwrap();
        let dead = group.fail(offset, held, fault, self.now, &self.config);
        if let Some(count) = dead {
            self.totals.dead += count;
            self.letters.push((name, offset));
        }
    }

    /// Frames that every group has settled go.
    fn free(&mut self) {
        let open = |offset| self.groups.values().any(|group| group.is_open(offset));
        self.held.retain(|offset, held| !held.wanted || open(*offset));
    }

    /// Publishes the dead letters that a broker beside a log leaves to its caller.
    fn publish_dead(&mut self) {
        for given_up in self.broker.take_given_up() {
            // Nobody reads frames from the disk here.
            let letter = Arc::new(given_up.letter(None));
            let outcome = self.hand_over(&dead_topic(TOPIC), &letter);
            if let Ok(Receipt { offset: Some(id), .. }) = outcome {
                self.kept_letters.insert(id, named(letter.dead.as_ref().unwrap()));
            }
            let outcome = outcome.map(drop);
            self.broker.dead_letter_published(Millis(self.now), &given_up, &outcome);
        }
    }

    /// The oldest dead letters: their ids, groups and offsets.
    fn oldest_letters(&self, limit: usize) -> Vec<(u64, (&'static str, u64))> {
        if self.memory.is_some() {
            let letters = self.broker.select_dead(TOPIC, &DeadSelection::Oldest(limit)).unwrap_or_default();
            return letters.into_iter().map(|(id, _)| (id, self.kept_letters[&id])).collect();
        }
        let letters = self.broker.dead_letters(TOPIC, 0, limit).unwrap_or_default();
        let letters: Vec<_> = letters.into_iter().map(|lent| lent.item).collect();
        for letter in &letters {
            let is_tried_out = letter.facts.attempts == self.config.max_retries + 1;
            assert!(is_tried_out || &*letter.facts.reason == "rejected by consumer: no", "{letter:?}");
        }
        letters.iter().map(|letter| (letter.id, named(&letter.facts))).collect()
    }

    fn purge(&mut self, ids: &[u64]) {
        for (id, letter) in self.oldest_letters(usize::MAX) {
            if ids.contains(&id) {
                let at = self.letters.iter().position(|known| *known == letter);
                self.letters.swap_remove(at.expect("a letter that is known"));
            }
        }
        let purged = self.broker.purge_dead(Millis(self.now), TOPIC, &DeadSelection::Ids(ids.to_vec()));
        assert_eq!(purged.unwrap_or_default(), ids.len());
    }

    /// Puts letters back as the service does: each is published again, and removed.
    fn replay(&mut self, limit: usize) {
        for (id, (_, offset)) in self.oldest_letters(limit) {
            let count = self.broker.select_dead(TOPIC, &DeadSelection::Ids(vec![id])).unwrap()[0].1;
            let number = self.frames[&offset];
            let payload = u64::from(number).to_le_bytes().to_vec();
            let frame = Arc::new(Frame::new(ContentType::Batch, count, payload));
            let answer = self.hand_over(TOPIC, &frame);
            if self.taken(count, number, answer) {
                self.purge(&[id]);
            }
        }
    }

    fn remove_group(&mut self, name: &'static str) {
        let answer = self.broker.remove_group(Millis(self.now), TOPIC, name);
        let Some(group) = self.groups.remove(name) else {
            assert!(answer.is_err());
            return;
        };
        assert_eq!(answer, Ok(()));
        self.seats.retain(|seat| seat.group != name);
        let settled = |places: &[Place]| group.count(|row| places.contains(&row.place));
        self.totals.acked = self.totals.acked.wrapping_add(settled(&[Place::Acked]));
        for held in self.held.values_mut() {
            // The last group's frames stay for the next one.
            held.wanted &= !self.groups.is_empty();
        }
        self.free();
    }

    fn held_messages(&self) -> u64 {
        self.held.values().map(|held| held.count).sum()
    }

    fn compare(&mut self) {
        self.publish_dead();
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
        assert_eq!(stats.dead, dead);
        for (name, rows) in &self.groups {
            let group = &stats.groups[*name];
            assert_eq!(group.lag, rows.count(Entry::is_open), "lag of {name}");
            assert_eq!(group.in_flight, rows.count(|row| matches!(row.place, Place::Out { .. })));
            assert_eq!(group.waiting, rows.count(|row| matches!(row.place, Place::Back { .. })));
        }
        let mut letters: Vec<_> =
            self.oldest_letters(usize::MAX).into_iter().map(|(_, letter)| letter).collect();
        letters.sort_unstable();
        self.letters.sort_unstable();
        assert_eq!(letters, self.letters);
    }
}

fn named(facts: &DeadFacts) -> (&'static str, u64) {
    let group = GROUPS.iter().find(|group| **group == &*facts.group).unwrap();
    (group, facts.offset)
}
