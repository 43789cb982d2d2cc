//! The lives of a queue between crashes.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::time::Duration;

use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_log::{Disk, Log, LogConfig, TornTail};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, DeadLetter, DeadSelection, Delivery, FrameDurability, InProcessConsumer, Nack,
    NackKind, PublishError, Publishing, Queue, QueueClock, QueueConfig, Receipt,
};

use crate::dice::Dice;
use crate::known::{ABSENT, DEAD, GROUPS, Known, SETTLED, frame, number_of};
use crate::records::{CHECKPOINT, records, turn_a_bit};

/// A record that was written again, further on.
const MOVED: u8 = 2;
const TOPICS: [&str; 2] = ["busy", "quiet"];
/// A group of the first topic that comes and goes, and settles nothing.
const IDLE: &str = "idle";

pub(crate) fn config(dice: &mut Dice) -> QueueConfig {
    QueueConfig {
        segment_len: [4 << 10, 6 << 10, 16 << 10][usize::try_from(dice.below(3)).unwrap()],
        spare_segments: u32::from(dice.one_in(2)),
        unwritten_max: if dice.one_in(3) { 600 } else { 16 << 20 },
        memory_max: [0, 1_500, 1 << 20][usize::try_from(dice.below(3)).unwrap()],
        sync_every: Duration::from_millis(if dice.one_in(3) { 0 } else { 3_600_000 }),
        backoff_base: Duration::ZERO,
        ack_timeout: Duration::from_hours(1),
        max_lease: Duration::from_hours(2),
        max_retries: 2,
        // The consumers end with the queue.
        drain_timeout: Duration::ZERO,
        durability: if dice.one_in(4) { FrameDurability::Written } else { FrameDurability::Synced },
        ..QueueConfig::default()
    }
}

/// What was done to a disk beside a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    None,
    /// A bit of the newest checkpoint has turned.
    Checkpoint,
    /// Any bits have.
    Anywhere,
}

/// A queue, its consumers, and what is known.
pub(crate) struct Life {
    pub(crate) disk: FaultDisk,
    pub(crate) config: QueueConfig,
    pub(crate) known: Known,
    queue: Queue,
    consumers: Vec<(&'static str, usize, InProcessConsumer)>,
    deliveries: Vec<(usize, Delivery)>,
    /// Handed over, not awaited; and how much had been settled then.
    under_way: VecDeque<(u64, Publishing, u64)>,
    settled: u64,
    last_number: u64,
    /// Some writes failed: until the next life nobody knows which facts are on disk.
    is_faulty: bool,
    /// The idle group was joined, and not removed since.
    has_idle: bool,
    /// What it had before it at the crash.
    idle_before: Option<u64>,
    /// Checkpoints that were found in the log.
    pub(crate) checkpoints: usize,
    /// Records that were found to have been moved.
    pub(crate) moved: usize,
}

async fn join(queue: &Queue, topic: &str, group: &str, credits: u32) -> Option<InProcessConsumer> {
    let max_in_flight = NonZeroU32::new(credits).unwrap();
    let options = ConsumerOptions { max_in_flight, ..ConsumerOptions::default() };
    queue.subscribe(topic, group, &options).await.ok()
}

impl Life {
    /// The first life. `None` if the disk fails in it already.
    pub(crate) async fn begin(disk: FaultDisk, config: QueueConfig) -> Option<Self> {
        let (queue, _) = Queue::open_on(disk.clone(), config.clone(), QueueClock::system()).await.ok()?;
        let mut life = Self {
            disk,
            config,
            known: Known::default(),
            queue,
            consumers: Vec::new(),
            deliveries: Vec::new(),
            under_way: VecDeque::new(),
            settled: 0,
            last_number: 0,
            is_faulty: false,
            has_idle: false,
            idle_before: None,
            checkpoints: 0,
            moved: 0,
        };
        life.join_all().await.then_some(life)
    }

    async fn join_all(&mut self) -> bool {
        for topic in TOPICS {
            for (group, name) in GROUPS.iter().enumerate() {
                let Some(consumer) = join(&self.queue, topic, name, 12).await else { return false };
                self.consumers.push((topic, group, consumer));
            }
        }
        true
    }

    /// Ends this life as it is, and begins one on `disk`.
    pub(crate) async fn begin_again(&mut self, disk: FaultDisk, harm: Harm) {
        // What a failed write took of the facts is in the newest checkpoint alone.
        let is_certain = !(harm == Harm::Checkpoint && self.is_faulty);
        let idle = self.idle_before.filter(|_| is_certain);
        self.consumers.clear();
        self.deliveries.clear();
        self.under_way.clear();
        let records = records(&disk);
        let count = |kind| records.iter().filter(|record| record.kind == kind).count();
        self.checkpoints += count(CHECKPOINT);
        self.moved += count(MOVED);
        let opened = Queue::open_on(disk.clone(), self.config.clone(), QueueClock::system()).await;
        let (queue, opened) = opened.expect("a queue that opens after a crash");
        let is_damaged = harm == Harm::Anywhere;
        assert!(harm != Harm::None || opened.damage.is_empty(), "a crash is not damage: {:?}", opened.damage);
        self.queue = queue;
        self.disk = disk;
        self.is_faulty = false;
        self.look(is_damaged).await;
        assert!(self.join_all().await || is_damaged);
        let idle_now = self.idle_lag();
        let has_all = idle.is_none_or(|lag| idle_now.is_some_and(|now| now >= lag));
        assert!(has_all || is_damaged, "a group that was joined had {idle:?} messages, has {idle_now:?}");
        // One that was removed may be back.
        self.has_idle = idle.is_some();
    }

    /// The disk as it is after a crash now. What is under way may still land on the other one.
    pub(crate) fn crash(&mut self, seed: u64) -> FaultDisk {
        self.idle_before = self.idle_lag();
        self.disk.crashed(seed)
    }

    /// What the idle group has before it for certain, if it is known to be there.
    fn idle_lag(&self) -> Option<u64> {
        let stats = self.queue.topic_stats(TOPICS[0]).ok()?;
        let is_synced = self.config.durability == FrameDurability::Synced;
        let idle = stats.groups.get(IDLE).filter(|_| self.has_idle)?;
        Some(if is_synced { idle.lag } else { 0 })
    }

    /// Joins the idle group, or ends it.
    async fn join_or_remove_idle(&mut self) {
        if self.has_idle {
            self.has_idle = false;
            self.queue.remove_group(TOPICS[0], IDLE).unwrap();
            self.settled += 1;
        } else {
            self.has_idle = join(&self.queue, TOPICS[0], IDLE, 1).await.is_some();
        }
    }

    /// Receives all there is without settling it, and compares.
    pub(crate) async fn look(&mut self, is_damaged: bool) {
        let mut open = Vec::new();
        let mut dead: Vec<DeadLetter> = Vec::new();
        for topic in TOPICS {
            let stats = self.queue.topic_stats(topic);
            assert!(stats.is_ok() || is_damaged || self.known.sent.is_empty(), "no topic {topic}");
            let Ok(stats) = stats else { continue };
            for (group, name) in GROUPS.iter().enumerate() {
                let lag = stats.groups.get(*name).map_or(0, |group| group.lag);
                let mut consumer = join(&self.queue, topic, name, u32::MAX).await.expect("a group");
                let (mut rows, mut deliveries) = (0, Vec::new());
                while rows < lag {
                    let received = consumer.receive().await.unwrap();
                    rows += received.iter().map(|delivery| u64::from(delivery.frame.count)).sum::<u64>();
                    deliveries.extend(received);
                }
                consumer.leave().await;
                open.push((group, deliveries));
            }
            dead.extend(self.queue.dead_letters(topic, 0, usize::MAX).await.unwrap());
        }
        self.known.check(&open, &dead, is_damaged);
    }

    pub(crate) async fn publish(&mut self, topic: &'static str, counts: &[u32], awaits: bool) {
        for count in counts {
            self.last_number += 1;
            self.known.send(self.last_number, topic, *count);
            let publishing = self.queue.publish(topic, frame(self.last_number, *count));
            self.under_way.push_back((self.last_number, publishing, self.settled));
        }
        if awaits {
            while let Some((number, publishing, settled)) = self.under_way.pop_front() {
                self.answered(number, &publishing.await, settled);
            }
        }
    }

    fn answered(&mut self, number: u64, outcome: &Result<Receipt, PublishError>, settled: u64) {
        match outcome {
            Ok(receipt) if receipt.durability == FrameDurability::Synced => {
                self.known.taken(number);
                // What was settled after it was handed over lies behind it in the log.
                if !self.is_faulty && settled == self.settled {
                    let under_way: Vec<_> = self.under_way.iter().map(|(number, ..)| *number).collect();
                    self.known.synced(&under_way);
                }
            }
            // Written: still nobody knows of a crash. Poisoned or closed: nobody knows at all.
            Ok(_) | Err(PublishError::Storage { passes: false, .. } | PublishError::Closed) => {}
            Err(_) => self.known.refused(number),
        }
    }

    pub(crate) async fn receive(&mut self, who: usize) {
        let count = self.consumers.len();
        let Some((topic, group, consumer)) = self.consumers.get_mut(who % count) else { return };
        let stats = self.queue.topic_stats(topic).unwrap();
        let (credits, of_group) = (12, stats.groups.get(GROUPS[*group]).unwrap());
        // What is out is with this consumer: there is one of each group.
        if of_group.lag == of_group.in_flight || of_group.in_flight + 6 > credits / 2 {
            return;
        }
        // What is given up on is neither settled nor to be received, until its dead letter is stored.
        let received = tokio::time::timeout(Duration::from_millis(20), consumer.receive()).await;
        let Ok(received) = received.map(Result::unwrap) else { return };
        self.deliveries.extend(received.into_iter().map(|delivery| (who % count, delivery)));
    }

    /// Each consumer of the topic receives, if there is something for it; whether there was.
    async fn receive_all(&mut self, topic: &str) -> bool {
        for who in 0..self.consumers.len() {
            if self.consumers.get(who).is_some_and(|(of, ..)| *of == topic) {
                self.receive(who).await;
            }
        }
        !self.deliveries.is_empty()
    }

    /// Settles or refuses the newest delivery.
    pub(crate) async fn answer(&mut self, how: u64) {
        let Some((who, delivery)) = self.deliveries.pop() else { return };
        let Some((_, group, consumer)) = self.consumers.get(who) else { return };
        let nack = |kind| Nack { id: delivery.id, kind, reason: "because".into() };
        let state = match how {
            0..5 => {
                consumer.ack(&[delivery.id]).await.unwrap();
                Some(SETTLED)
            }
            5 => {
                consumer.nack(&[nack(NackKind::Reject)]).await.unwrap();
                Some(DEAD)
            }
            6 => {
                consumer.nack(&[nack(NackKind::Release)]).await.unwrap();
                None
            }
            _ => {
                consumer.nack(&[nack(NackKind::Retry)]).await.unwrap();
                (delivery.attempt == self.config.max_retries + 1).then_some(DEAD)
            }
        };
        let (number, group) = (number_of(&delivery.frame), *group);
        self.settled += 1;
        match state {
            Some(DEAD) => self.known.frame(number, group).dies(),
            Some(state) => self.known.frame(number, group).becomes(state),
            None => {}
        }
    }

    /// Puts the oldest dead letter of a topic back, or throws it away.
    pub(crate) async fn take_dead(&mut self, topic: &'static str, replays: bool) {
        let letters = self.queue.dead_letters(topic, 0, 1).await.unwrap();
        // Without power, its frame cannot be read.
        let Some(letter) = letters.first().filter(|letter| !letter.frame.payload.is_empty()) else { return };
        let number = number_of(&letter.frame);
        self.settled += 1;
        if replays {
            // All groups get it, if it was published; where the disk fails nobody knows.
            let replayed = self.queue.replay_dead(topic, &[letter.id]).await;
            if replayed.is_ok_and(|replayed| replayed.letters == 0) {
                return;
            }
            for group in 0..GROUPS.len() {
                self.known.frame(number, group).comes_again();
            }
        } else {
            assert_eq!(self.queue.purge_dead(topic, &DeadSelection::Ids(vec![letter.id])).unwrap(), 1);
            let group = GROUPS.iter().position(|group| *group == &*letter.facts.group).unwrap();
            self.known.frame(number, group).is_thrown_away();
        }
    }

    /// Sends a frame again that is known to have been taken.
    async fn repeat(&mut self, dice: &mut Dice) {
        let number = self.last_number.saturating_sub(dice.below(20));
        let is_under_way = self.under_way.iter().any(|(under_way, ..)| *under_way == number);
        let Some(sent) = self.known.sent.get(&number).filter(|_| !is_under_way).cloned() else { return };
        let state = *self.known.frame(number, 0);
        if self.config.durability == FrameDurability::Synced && state.is_certain() {
            let receipt = self.queue.publish(sent.topic, frame(number, sent.count)).await;
            match (state.now, receipt) {
                (ABSENT, outcome) => {
                    self.known.send(number, sent.topic, sent.count);
                    self.answered(number, &outcome, self.settled);
                }
                (_, Ok(receipt)) => assert!(receipt.duplicate, "frame {number} was taken twice"),
                (_, Err(refused)) => {
                    let is_full = matches!(refused, PublishError::Full { .. });
                    assert!(self.is_faulty || is_full, "{refused}");
                }
            }
        }
    }

    async fn step(&mut self, dice: &mut Dice) {
        let topic = TOPICS[usize::from(dice.one_in(3))];
        match dice.below(20) {
            0..6 => {
                let counts: Vec<_> =
                    (0..=dice.below(4)).map(|_| u32::try_from(1 + dice.below(6)).unwrap()).collect();
                self.publish(topic, &counts, !dice.one_in(4)).await;
            }
            6..10 => self.receive(usize::try_from(dice.below(4)).unwrap()).await,
            10..16 => self.answer(dice.below(8)).await,
            16 => self.take_dead(topic, dice.one_in(2)).await,
            17 => self.repeat(dice).await,
            18 if dice.one_in(3) => {
                self.is_faulty = true;
                let (op, error) = if dice.one_in(5) {
                    (Op::SyncData, ErrorKind::Other)
                } else {
                    (Op::Write, ErrorKind::StorageFull)
                };
                self.disk.fail_call(Some(op), dice.below(3), Fault::Error(error));
            }
            18 => self.join_or_remove_idle().await,
            19 if dice.one_in(3) => {
                self.publish(topic, &[], true).await;
                self.queue.shutdown().await;
                if !self.is_faulty {
                    self.known.synced(&[]);
                }
                // An orderly end leaves nothing to forget.
                let ended = self.crash(dice.roll());
                self.begin_again(ended, Harm::None).await;
            }
            _ => self.publish(topic, &[], true).await,
        }
    }
}

/// Three lives, each with an end of its own.
pub(crate) async fn program(seed: u64) -> Life {
    let mut dice = Dice(seed);
    let config = config(&mut dice);
    let mut life = Life::begin(FaultDisk::new(), config).await.expect("a disk without faults");
    for _ in 0..3 {
        for _ in 0..5 + dice.below(40) {
            life.step(&mut dice).await;
        }
        let crashed = life.crash(dice.roll());
        life.begin_again(crashed, Harm::None).await;
    }
    life
}

/// Lives in which little is held and much goes by: what is held of old is written again, so that its segment can go.
pub(crate) async fn moving(seed: u64) -> Life {
    let mut dice = Dice(seed ^ 0x0360_71f6);
    let config = QueueConfig { segment_len: 4 << 10, sync_every: Duration::ZERO, ..config(&mut dice) };
    let mut life = Life::begin(FaultDisk::new(), config).await.expect("a disk without faults");
    let [busy, quiet] = TOPICS;
    for _ in 0..2 {
        life.publish(quiet, &[2, 3], true).await;
        for burst in 0..10 + dice.below(40) {
            life.publish(busy, &[6, 5, 6, 4], true).await;
            // Some die, the others are settled.
            let how = if burst == 0 { 5 } else { 0 };
            while life.receive_all(busy).await {
                while !life.deliveries.is_empty() {
                    life.answer(how).await;
                }
            }
            if dice.one_in(8) {
                life.take_dead(busy, dice.one_in(2)).await;
            }
        }
        let crashed = life.crash(dice.roll());
        life.begin_again(crashed, Harm::None).await;
    }
    life
}

/// A life, and then a bit that turns in the newest checkpoint, or in each of some files.
pub(crate) async fn damaged(seed: u64) -> Life {
    let mut dice = Dice(seed ^ 0xda3a_6ed0);
    let config = config(&mut dice);
    let mut life = Life::begin(FaultDisk::new(), config).await.expect("a disk without faults");
    for _ in 0..60 {
        life.step(&mut dice).await;
    }
    let crashed = life.crash(dice.roll());
    if dice.one_in(2) {
        let newest = records(&crashed).into_iter().rev().find(|record| record.kind == CHECKPOINT);
        let Some(checkpoint) = newest else {
            // An empty queue has nothing to say in one, and then no sync of its log succeeded.
            life.begin_again(crashed, Harm::None).await;
            return life;
        };
        let torn_before = torn(&crashed);
        turn_a_bit(&crashed, &checkpoint, dice.roll());
        // Where nothing behind it shows that it was synced, it looks like the torn end of the log.
        let is_seen = torn(&crashed) == torn_before;
        let harm = if is_seen { Harm::Checkpoint } else { Harm::Anywhere };
        life.begin_again(crashed, harm).await;
        return life;
    }
    for name in crashed.list().unwrap() {
        let len = crashed.contents(&name).map_or(0, |bytes| bytes.len() as u64);
        if len > 0 && dice.one_in(2) {
            crashed.flip_on_read(&name, usize::try_from(dice.below(len)).unwrap(), 1 << dice.below(8));
        }
    }
    life.begin_again(crashed, Harm::Anywhere).await;
    life
}

/// What a crash seems to have left unfinished at the log's end.
fn torn(disk: &FaultDisk) -> Option<TornTail> {
    let (_log, recovery) = Log::open(disk.clone(), LogConfig { spares: 0, ..LogConfig::default() }).unwrap();
    recovery.torn
}
