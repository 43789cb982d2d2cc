//! A broker beside a log: what is on disk gives its memory back, what is under way counts.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_queue::broker::{Fact, GroupState, JournalRecord, Reserved, TopicChange, TopicState};
use gpuvitals_queue::{
    Broker, ConsumerOptions, ContentType, Frame, Millis, PublishError, QueueConfig, Start, WhenFull,
};
use gpuvitals_rig::waiting::within;

use super::story::TOPIC;

/// A broker whose log was empty, and a place in some log.
fn broker(change: impl FnOnce(&mut QueueConfig)) -> (Broker, Place) {
    let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
    let ticket = log.append(1, Bytes::new(), Durability::Written);
    let place = within("the outcome of an append", move || ticket.wait()).unwrap().place;
    let mut config = QueueConfig::default();
    change(&mut config);
    let mut broker = Broker::beside_log(config, Millis(0));
    broker.begin();
    (broker, place)
}

fn frame(number: u32) -> Frame {
    Frame::new(ContentType::Batch, 1, number.to_le_bytes().repeat(50))
}

#[test]
fn memory_for_frames_that_are_on_disk_is_bounded_and_the_newest_have_it() {
    let cost = frame(0).cost_bytes();
    let (mut broker, place) = broker(|config| config.memory_max = 3 * cost);
    for number in 0..5_000 {
        let frame = Arc::new(frame(number));
        let Ok(Reserved::New { topic, offset, .. }) = broker.reserve(Millis(0), TOPIC, &frame) else {
            panic!("there is room")
        };
        broker.land(topic, offset, place).unwrap();
        assert_eq!(broker.cached_bytes(), cost * u64::from(number + 1).min(3));
    }
    let options = ConsumerOptions { max_in_flight: NonZeroU32::MAX, ..ConsumerOptions::default() };
    let who = broker.subscribe(Millis(0), TOPIC, "g", &options).unwrap();
    let lent = broker.receive(Millis(0), who).unwrap();
    let in_memory = lent.iter().filter(|lent| lent.place.is_none());
    assert_eq!(in_memory.map(|lent| lent.item.id.offset).collect::<Vec<_>>(), [4_997, 4_998, 4_999]);
    let ids: Vec<_> = lent.iter().map(|lent| lent.item.id).collect();
    broker.ack(Millis(0), who, &ids).unwrap();
    assert_eq!((broker.cached_bytes(), broker.kept_bytes()), (0, 0));
}

#[test]
fn what_is_under_way_alone_fills_a_topic_and_costs_no_frame() {
    let (mut broker, place) =
        broker(|config| (config.max_messages, config.when_full) = (10, WhenFull::DropOldest));
    let reserve = |broker: &mut Broker, count| {
        let frame = Arc::new(Frame::new(ContentType::Batch, count, vec![7; 10]));
        broker.reserve(Millis(0), TOPIC, &frame)
    };
    for _ in 0..4 {
        let Ok(Reserved::New { topic, offset, .. }) = reserve(&mut broker, 1) else {
            panic!("there is room")
        };
        broker.land(topic, offset, place).unwrap();
    }
    assert!(matches!(reserve(&mut broker, 5), Ok(Reserved::New { .. })));
    assert!(matches!(reserve(&mut broker, 6), Err(PublishError::Full { .. })));
    let stats = broker.topic_stats(Millis(0), TOPIC).unwrap();
    assert_eq!((stats.messages, stats.dropped), (4, 0));
}

#[test]
fn a_group_that_the_log_cannot_keep_takes_no_frame_with_it() {
    let (mut broker, place) = broker(|_| {});
    for number in 0..5 {
        let Ok(Reserved::New { topic, offset, .. }) =
            broker.reserve(Millis(0), TOPIC, &Arc::new(frame(number)))
        else {
            panic!("there is room")
        };
        broker.land(topic, offset, place).unwrap();
    }
    let newest = ConsumerOptions { start: Start::Newest, ..ConsumerOptions::default() };
    broker.subscribe(Millis(0), TOPIC, "new", &newest).unwrap();
    for kept in [false, true] {
        let who = broker.subscribe(Millis(0), TOPIC, "old", &ConsumerOptions::default()).unwrap();
        let group = broker.group_of(who).unwrap();
        broker.group_is_kept(group, kept);
    }
    assert_eq!(broker.topic_stats(Millis(0), TOPIC).unwrap().groups["old"].lag, 5);
}

/// What each group has before it, in a broker to which these records were applied. Frames have one message.
fn lags(records: impl IntoIterator<Item = Kept>) -> Vec<(String, u64)> {
    let (_, place) = broker(|_| {});
    let mut broker = Broker::beside_log(QueueConfig::default(), Millis(0));
    for kept in records {
        broker.apply(match kept {
            Kept::Frame(offset) => {
                let (count, cost, at) = (1, 100, Millis(0));
                JournalRecord::Frame { topic: TOPIC, offset, place, count, cost, at, stamp: None }
            }
            Kept::Fact(what) => JournalRecord::Fact(Fact { topic: TOPIC.into(), what, made: None }),
            Kept::State(state) => JournalRecord::State(state),
        });
    }
    assert_eq!(broker.begin().missing, 0);
    let groups = broker.topic_stats(Millis(0), TOPIC).unwrap().groups;
    groups.into_iter().map(|(name, group)| (name, group.lag)).collect()
}

enum Kept {
    Frame(u64),
    Fact(TopicChange),
    State(TopicState),
}

fn made(group: &str, start: u64) -> Kept {
    Kept::Fact(TopicChange::GroupMade { group: group.into(), life: 0, start, ttl: None })
}

fn ended(group: &str, end: u64) -> Kept {
    Kept::Fact(TopicChange::GroupEnded { group: group.into(), end })
}

fn settled(group: &str, frames: std::ops::Range<u64>) -> Kept {
    Kept::Fact(TopicChange::Settled { group: group.into(), frames })
}

#[test]
fn a_group_whose_making_was_lost_gets_all_that_was_found() {
    let frames = (0..10).map(Kept::Frame);
    let records = [made("a", 0)].into_iter().chain(frames).chain([settled("a", 0..10), settled("b", 3..4)]);
    assert_eq!(lags(records), [("a".to_owned(), 0), ("b".to_owned(), 9)]);
}

#[test]
fn a_frame_that_was_under_way_goes_with_no_group_that_ended() {
    // In the log it stands before the end of the group, which did not know of it.
    let records = [made("a", 0), Kept::Frame(0), made("new", 1), ended("a", 0), made("old", 0)];
    assert_eq!(lags(records), [("new".to_owned(), 0), ("old".to_owned(), 1)]);
    // The same where the log has lost its beginning, and with it that group "old" was made.
    let group = |name: &str, cursor| GroupState { name: name.into(), cursor, ..GroupState::default() };
    let state = TopicState {
        name: TOPIC.into(),
        next_offset: 1,
        groups: vec![group("new", 1), group("old", 0)],
        ..TopicState::default()
    };
    let records = [Kept::Frame(0), made("new", 1), settled("a", 0..1), Kept::State(state)];
    assert_eq!(lags(records), [("new".to_owned(), 0), ("old".to_owned(), 1)]);
}

#[test]
fn a_group_made_again_gets_what_it_had_before_though_its_end_was_lost() {
    let records = [made("x", 0), Kept::Frame(0), Kept::Frame(1), made("y", 2), made("x", 0)];
    assert_eq!(lags(records), [("x".to_owned(), 2), ("y".to_owned(), 0)]);
}
