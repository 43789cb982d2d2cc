//! What is written is read back as it was, what was written once is read for ever, and no bytes are a panic.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_rig::waiting::within;
use proptest::collection::vec;
use proptest::prelude::*;

use super::bytes::Malformed;
use super::checkpoint::{decode_state, encode_state};
use super::fact_record::{decode_facts, encode_facts};
use super::frame_record::{FrameRecord, encode_head, encode_reference};
use super::kinds::{CHECKPOINT, FACTS, FRAME, MOVED};
use super::recover;
use crate::broker::{Fact, GroupState, JournalRecord, Ranges, TakenSequences, TopicChange, TopicState};
use crate::config::QueueConfig;
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis};

/// A frame as version 3 writes it: topic `t`, id `0ap`, dead of `u`, payload `xyz`.
const FRAME_V3: &[u8] = b"\x03\x1b\x05\x07\xe8\x07\x01t\x09\x01\x0a\x01p\x01u\x01g\x80\x01\x04\x02no\x0axyz";
/// Frames 3 and 4 settled by `g`, frame 128 dropped, as version 4 writes it.
const FACTS_V4: &[u8] = b"\x04\x03\x01t\x01g\x03\x02\x05\x01t\x80\x01";

fn frame() -> Frame {
    let frame = Frame::new(ContentType::Json, 5, "xyz").encoded(Encoding::Zstd).stamped("0ap", 9);
    let dead = DeadFacts {
        topic: "u".into(),
        group: "g".into(),
        offset: 128,
        attempts: 4,
        reason: "no".into(),
        published_at: Millis(10),
    };
    Frame { dead: Some(Box::new(dead)), ..frame }
}

fn fact(what: TopicChange) -> Fact {
    Fact { topic: "t".into(), what, made: None }
}

fn facts() -> Vec<Fact> {
    [TopicChange::Settled { group: "g".into(), frames: 3..5 }, TopicChange::Dropped { offset: 128 }]
        .map(fact)
        .into()
}

/// A frame's record in one piece.
fn record(frame: &Frame, offset: u64, at: u64) -> Bytes {
    let mut record = encode_head("t", frame, offset, Millis(at));
    record.extend_from_slice(&frame.payload);
    record.into()
}

/// The records of some facts.
fn fact_records(facts: &[Fact], len_max: usize) -> Vec<Vec<u8>> {
    encode_facts(facts, len_max).into_iter().map(|(record, _)| record).collect()
}

#[test]
fn records_are_written_and_read_as_documented() {
    let written = record(&frame(), 7, 1_000);
    assert_eq!(written, FRAME_V3);
    let read = FrameRecord::decode(FRAME_V3, None).unwrap();
    assert_eq!(read.cost_bytes(FRAME_V3.len()), frame().cost_bytes());
    assert_eq!(
        (read.defined.topic, read.defined.offset, read.defined.at, read.frame(&written)),
        ("t", 7, Millis(1_000), frame())
    );
    assert_eq!(fact_records(&facts(), 1_000), [FACTS_V4]);
    assert_eq!(decode_facts(FACTS_V4), Ok(facts()));
    for later in [decode_facts(&[5]).unwrap_err(), FrameRecord::decode(&[5], None).unwrap_err()] {
        assert_eq!(later, Malformed::Version(5));
    }
}

#[test]
fn the_trace_of_a_frame_is_read_back() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for frame in [frame(), Frame::new(ContentType::Json, 5, "xyz")] {
        let frame = Frame { trace: Some(trace.into()), ..frame };
        let record = record(&frame, 7, 1_000);
        assert_eq!(FrameRecord::decode(&record, None).unwrap().frame(&record), frame);
    }
}

#[test]
fn the_id_of_a_producer_is_read_back_whatever_it_is() {
    let long = "0af7651916cd43dd8448eb211c80319c";
    for (id, saved) in
        [("", 0), ("p", 0), ("0", 0), ("0A", 0), ("0ap", 1), ("日本", 0), (long, 16), ("0af7651916cd43-3", 7)]
    {
        let named = |id: &str| record(&Frame::new(ContentType::Json, 5, "xyz").stamped(id, 300), 7, 1_000);
        let (written, none) = (named(id), named(""));
        let read = FrameRecord::decode(&written, None).unwrap().frame(&written);
        assert_eq!(&*read.producer.unwrap().id, id);
        assert_eq!(written.len(), none.len() + id.len() - saved, "{id}");
    }
}

#[test]
fn a_record_cut_anywhere_is_refused_or_says_less() {
    for len in 0..FRAME_V3.len() - 3 {
        assert!(FrameRecord::decode(&FRAME_V3[..len], None).is_err(), "{len}");
    }
    for len in 0..FACTS_V4.len() {
        assert!(decode_facts(&FACTS_V4[..len]).map_or(true, |some| some.len() < 2), "{len}");
    }
}

#[test]
fn many_facts_are_several_records() {
    let many: Vec<_> = facts().into_iter().cycle().take(100).collect();
    let records = encode_facts(&many, 64);
    assert!(records.len() >= 10 && records.iter().all(|(record, _)| record.len() <= 64));
    let read: Vec<_> = records.iter().flat_map(|(record, _)| decode_facts(record).unwrap()).collect();
    assert_eq!(read, many);
    assert_eq!(records.iter().flat_map(|(_, facts)| *facts).cloned().collect::<Vec<_>>(), many);
}

fn state() -> Vec<TopicState> {
    let seen = TakenSequences { highest: 77, taken: u128::MAX - 5, last_at: Millis(8) };
    let group = GroupState {
        name: "g".into(),
        life: 3,
        start: 1,
        ttl: Some(Duration::from_millis(1_500)),
        cursor: 5,
        unsettled: [0, 2].into_iter().collect(),
    };
    let topic = |name: &str| TopicState {
        name: name.into(),
        decided: 899,
        next_offset: 900,
        groups_made: 4,
        held: [0, 1, 2, 5, 6, 700].into_iter().collect(),
        groups: vec![group.clone(), GroupState { name: "h".into(), ..GroupState::default() }],
        producers: vec![("p".into(), seen), ("q".into(), seen)],
    };
    vec![topic("t"), topic("u")]
}

#[test]
fn a_checkpoint_is_read_as_it_was_written() {
    for len_max in [60, 10_000] {
        let records = encode_state(&state(), len_max);
        let mut read: Vec<TopicState> = Vec::new();
        for record in &records {
            match decode_state(record, 1_000).unwrap() {
                JournalRecord::State(topic) => read.push(topic),
                JournalRecord::Producers { topic, seen } => {
                    assert!(record.len() <= len_max);
                    let last = read.last_mut().filter(|last| last.name == topic).unwrap();
                    last.producers.extend(seen);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read, state());
        assert_eq!(records.len(), if len_max > 100 { 4 } else { 6 });
        assert_eq!(
            decode_state(&records[0], 5).unwrap_err(),
            Malformed::Content,
            "more than the log can hold"
        );
    }
}

fn ranges(offsets: &[u64]) -> Ranges {
    offsets.iter().copied().collect()
}

/// When the checkpoint was made, frame 0 was settled, 1 was held, and 2 was under way, though its record stood before.
#[test]
fn a_checkpoint_replaces_all_but_what_was_under_way() {
    let disk = FaultDisk::new();
    let (log, _) = Log::open(disk.clone(), LogConfig::default()).unwrap();
    let append = |kind, bytes: Bytes| {
        let ticket = log.append(kind, bytes, Durability::Synced);
        within("the outcome of an append", move || ticket.wait()).unwrap();
    };
    let frame =
        |offset| record(&Frame::new(ContentType::Json, 3, "xyz").stamped("p", offset), offset, offset);
    let note = |what| append(FACTS, fact_records(&[fact(what)], 1_000).remove(0).into());
    let group = GroupState { name: "g".into(), cursor: 2, unsettled: ranges(&[1]), ..GroupState::default() };
    let producer = TakenSequences { highest: 1, taken: 0b11, last_at: Millis(1) };
    let topic = TopicState {
        name: "t".into(),
        decided: 2,
        next_offset: 3,
        groups_made: 1,
        held: ranges(&[1]),
        groups: vec![group],
        producers: vec![("p".into(), producer)],
    };

    append(FRAME, frame(0));
    append(FRAME, frame(2));
    note(TopicChange::GroupMade { group: "old".into(), life: 0, start: 0, ttl: None });
    for record in encode_state(&[topic], 10_000) {
        append(CHECKPOINT, record.into());
    }
    append(MOVED, frame(1));
    note(TopicChange::GroupMade { group: "h".into(), life: 1, start: 1, ttl: None });
    append(FRAME, frame(3));
    note(TopicChange::Settled { group: "g".into(), frames: 2..4 });
    log.close().unwrap();

    let found = recover(disk, &QueueConfig::default(), Millis(5), 0).unwrap();
    assert_eq!((found.opened.frames, &found.opened.damage), (3, &Vec::new()));
    let state = &found.broker.state()[0];
    assert_eq!((&state.held, state.groups_made), (&ranges(&[1, 2, 3]), 2));
    let [g, h] = &state.groups[..] else { panic!("{state:?}") };
    assert_eq!((&*g.name, g.cursor, &g.unsettled), ("g", 4, &ranges(&[1])));
    assert_eq!((&*h.name, h.cursor, &h.unsettled), ("h", 1, &ranges(&[])));
    let (producer, seen) = &state.producers[0];
    assert_eq!((&**producer, seen.highest, seen.taken), ("p", 3, 0b1111));
}

fn what() -> impl Strategy<Value = TopicChange> {
    let group = "[a-z]{1,9}".prop_map(std::sync::Arc::<str>::from);
    let number = any::<u64>;
    prop_oneof![
        (group.clone(), any::<u32>(), number(), proptest::option::of(0_u64..u64::MAX - 1)).prop_map(
            |(group, life, start, ttl)| {
                TopicChange::GroupMade { group, life, start, ttl: ttl.map(Duration::from_millis) }
            }
        ),
        (group.clone(), number()).prop_map(|(group, end)| TopicChange::GroupEnded { group, end }),
        (group, number(), 0_u64..99)
            .prop_map(|(group, at, len)| TopicChange::Settled { group, frames: at..at.saturating_add(len) }),
        number().prop_map(|offset| TopicChange::Dropped { offset }),
    ]
}

/// A place in a log.
static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
    let ticket = log.append(FRAME, Bytes::new(), Durability::Written);
    within("the outcome of an append", move || ticket.wait()).unwrap().place
});

proptest! {
    #[test]
    fn a_frame_that_refers_to_another_is_read_as_it_was(
        id in proptest::option::of("[0-9a-f]{0,40}[a-z-]{0,3}"),
        trace in proptest::option::of("[0-9a-f-]{1,55}"),
        base in (any::<u32>(), any::<u32>(), any::<u32>()),
        beyond in (any::<u32>(), any::<u32>(), any::<u32>()),
        place in (any::<u32>(), any::<u32>()),
        cut in any::<prop::sample::Index>(),
    ) {
        let frame = |sequence: u64| {
            let frame = Frame::new(ContentType::Batch, 7, "xyz");
            let frame = Frame { trace: trace.as_deref().map(Into::into), ..frame };
            match &id {
                Some(id) => frame.stamped(id.as_str(), sequence),
                None => frame,
            }
        };
        let (offset, at, sequence) = (u64::from(base.0), u64::from(base.1), u64::from(base.2));
        let named = record(&frame(sequence), offset, at);
        let defined = FrameRecord::decode(&named, None).unwrap().defined.kept();
        let next = frame(sequence + u64::from(beyond.2));
        let (next_offset, next_at) = (offset + u64::from(beyond.0), Millis(at + u64::from(beyond.1)));
        let place = PLACE.beside(place.0, place.1);
        let mut record = encode_reference(&next, next_offset, next_at, (place, &defined)).unwrap();
        record.extend_from_slice(&next.payload);
        let record = Bytes::from(record);
        let refers = FrameRecord::refers_to(&record).unwrap().map(|(offset, len)| PLACE.beside(offset, len));
        prop_assert_eq!(refers, Some(place));
        prop_assert!(FrameRecord::decode(&record, None).is_err(), "it has no names");
        let read = FrameRecord::decode(&record, Some(&defined)).unwrap();
        prop_assert_eq!((read.defined.topic, read.defined.offset, read.defined.at), ("t", next_offset, next_at));
        prop_assert_eq!(read.frame(&record), next);
        let cut = &record[..cut.index(record.len())];
        FrameRecord::decode(cut, Some(&defined)).ok();
    }

    #[test]
    fn facts_are_read_as_they_were_written(
        facts in vec(("[a-z.]{1,20}", what()), 0..12),
        len_max in 1_usize..300,
    ) {
        let facts: Vec<_> =
            facts.into_iter().map(|(topic, what)| Fact { topic: topic.into(), ..fact(what) }).collect();
        let records = fact_records(&facts, len_max);
        let read: Vec<_> = records.iter().flat_map(|record| decode_facts(record).unwrap()).collect();
        prop_assert_eq!(read, facts);
    }

    #[test]
    fn no_bytes_are_a_panic(mut bytes in vec(any::<u8>(), 0..200), turned in 0_usize..400, mask in any::<u8>()) {
        let mut spoilt = encode_state(&state(), 10_000).remove(usize::from(mask) % 4);
        let at = turned % spoilt.len();
        spoilt[at] ^= mask;
        decode_state(&spoilt, 1_000).ok();
        if let Some(first) = bytes.first_mut() {
            *first = 2 + (mask & 1);
        }
        decode_facts(&bytes).ok();
        FrameRecord::decode(&bytes, None).ok();
        decode_state(&bytes, 1_000).ok();
    }
}
