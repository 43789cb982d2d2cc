//! What a log would keep of the broker under test.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_queue::broker::{Fact, JournalRecord, Restored, TakenSequences, TopicState};
use gpuvitals_queue::{Broker, Frame, Millis, QueueConfig};
use gpuvitals_rig::waiting::within;

/// A place in some log: nobody reads there.
fn place() -> Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
        let ticket = log.append(0, Bytes::new(), Durability::Written);
        within("the outcome of an append", move || ticket.wait()).unwrap().place
    })
}

#[derive(Clone)]
enum Kept {
    Frame { topic: String, offset: u64, frame: Frame, at: Millis },
    Fact(Fact),
    State(TopicState),
    Producers { topic: Arc<str>, seen: Vec<(Arc<str>, TakenSequences)> },
}

impl Kept {
    fn record(&self) -> JournalRecord<'_> {
        match self {
            Self::Frame { topic, offset, frame, at } => JournalRecord::Frame {
                topic,
                offset: *offset,
                place: place(),
                count: frame.count,
                cost: frame.cost_bytes(),
                at: *at,
                stamp: frame.producer.as_ref().map(|stamp| (&*stamp.id, stamp.sequence)),
            },
            Self::Fact(fact) => JournalRecord::Fact(fact.clone()),
            Self::State(state) => JournalRecord::State(state.clone()),
            Self::Producers { topic, seen } => {
                JournalRecord::Producers { topic: Arc::clone(topic), seen: seen.clone() }
            }
        }
    }
}

/// The records, and a broker to which they have been applied.
pub(crate) struct Memory {
    records: Vec<Kept>,
    follower: Broker,
}

impl Memory {
    pub(crate) fn new(config: QueueConfig) -> Self {
        Self { records: Vec::new(), follower: Broker::beside_log(config, Millis(0)) }
    }

    fn add(&mut self, kept: Kept) {
        self.follower.apply(kept.record());
        self.records.push(kept);
    }

    pub(crate) fn keep(&mut self, topic: &str, offset: u64, frame: &Frame, at: Millis) -> Place {
        self.add(Kept::Frame { topic: topic.to_owned(), offset, frame: frame.clone(), at });
        place()
    }

    pub(crate) fn compare(&mut self, broker: &mut Broker) {
        for fact in broker.take_facts() {
            self.add(Kept::Fact(fact));
        }
        assert_eq!(plain(&self.follower.state()), plain(&broker.state()));
    }

    /// A broker made of the records. If the state of the one before it is given, that stands behind them, and of the facts
    /// only the newer ones are left, as in a log that has lost its beginning: how many changes with the time.
    pub(crate) fn restart(
        &mut self,
        config: &QueueConfig,
        now: Millis,
        state: Option<Vec<TopicState>>,
    ) -> (Broker, Restored) {
        if let Some(state) = state {
            let lost = usize::try_from(now.0).unwrap() % (self.records.len() + 1);
            let mut behind = 0..;
            self.records.retain(|kept| behind.next() >= Some(lost) || matches!(kept, Kept::Frame { .. }));
            self.records.extend(checkpoint(state));
        }
        let replay = |records: &[Kept]| {
            let mut broker = Broker::beside_log(config.clone(), now);
            for kept in records {
                broker.apply(kept.record());
            }
            broker
        };
        let mut broker = replay(&self.records);
        let found = broker.begin();
        self.records.extend(checkpoint(broker.state()));
        self.follower = replay(&self.records);
        (broker, found)
    }
}

fn checkpoint(state: Vec<TopicState>) -> impl Iterator<Item = Kept> {
    state.into_iter().flat_map(|mut topic| {
        let (name, seen) = (Arc::clone(&topic.name), std::mem::take(&mut topic.producers));
        [Kept::State(topic), Kept::Producers { topic: name, seen }]
    })
}

/// States as what they mean: which frames each group has not settled.
fn plain(topics: &[TopicState]) -> BTreeMap<String, String> {
    let topics = topics.iter().map(|topic| {
        let held: Vec<u64> = topic.held.iter().flatten().collect();
        let groups = topic.groups.iter().map(|group| {
            let ahead = held.iter().copied().filter(|offset| *offset >= group.cursor);
            let before: Vec<_> =
                group.unsettled.iter().flatten().filter(|offset| held.contains(offset)).collect();
            let unsettled: Vec<_> = before.into_iter().chain(ahead).collect();
            (group.name.to_string(), group.life, group.start, group.ttl, unsettled)
        });
        let groups: Vec<_> = groups.collect();
        let producers = &topic.producers;
        let made = topic.groups_made;
        (topic.name.to_string(), format!("{} {made} {groups:?} {held:?} {producers:?}", topic.next_offset))
    });
    topics.collect()
}
