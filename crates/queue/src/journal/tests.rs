//! What is written is read back as it was, what was written once is read for ever, and no bytes are a panic.

use std::time::Duration;

use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig};
use proptest::collection::vec;
use proptest::prelude::*;

use super::bytes::Malformed;
use super::checkpoint::{Completed, Decided, PieceMaker, Pieces};
use super::fact_record::{decode_facts, encode_facts};
use super::frame_record::{Draft, FrameRecord};
use super::{CHECKPOINT, FACTS, FRAME, recover};
use crate::broker::{Fact, GroupImage, HeldImage, Image, Seen, What};
use crate::config::QueueConfig;
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis};

/// A frame as version 2 writes it: topic `t`, id `p`, dead of `u`, payload `xyz`.
const FRAME_V2: &[u8] = b"\x02\x02\x01\x03\x05\0\0\0\x07\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x01\x01tp\x01u\x01g\x80\x01\x04\x02no\x0axyz";
/// Frames 3 and 4 settled by `g`, frame 128 failed four times, as version 2 writes it.
const FACTS_V2: &[u8] = b"\x02\x03\x01t\x01g\x03\x02\x04\x01t\x01g\x80\x01\x04";

fn frame() -> Frame {
    let frame = Frame::new(ContentType::Json, 5, "xyz").encoded(Encoding::Zstd).stamped("p", 9);
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

fn facts() -> Vec<Fact> {
    let fact = |what| Fact { topic: "t".into(), what };
    vec![
        fact(What::Settled { group: "g".into(), frames: 3..5 }),
        fact(What::Failed { group: "g".into(), offset: 128, failures: 4 }),
    ]
}

#[test]
fn records_are_written_and_read_as_documented() {
    let (record, payload) = Draft::new("t", &frame()).unwrap().finish(7, Millis(1_000));
    assert_eq!((&record[..], &payload[..]), (FRAME_V2, &b"xyz"[..]));
    let read = FrameRecord::decode(FRAME_V2).unwrap();
    assert_eq!((read.topic, read.offset, read.at, read.frame(&record)), ("t", 7, Millis(1_000), frame()));
    assert_eq!(read.cost_bytes(FRAME_V2.len()), frame().cost_bytes());
    assert_eq!(encode_facts(&facts(), 1_000), [FACTS_V2]);
    assert_eq!(decode_facts(FACTS_V2), Ok(facts()));
    for later in [decode_facts(&[3]).unwrap_err(), FrameRecord::decode(&[3]).unwrap_err()] {
        assert_eq!(later, Malformed::Version(3));
    }
}

#[test]
fn the_trace_of_a_frame_is_read_back() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for frame in [frame(), Frame::new(ContentType::Json, 5, "xyz")] {
        let frame = Frame { trace: Some(trace.into()), ..frame };
        let (record, _) = Draft::new("t", &frame).unwrap().finish(7, Millis(1_000));
        assert_eq!(FrameRecord::decode(&record).unwrap().frame(&record), frame);
    }
}

#[test]
fn a_record_cut_anywhere_is_refused_or_says_less() {
    for len in 0..FRAME_V2.len() - 3 {
        assert!(FrameRecord::decode(&FRAME_V2[..len]).is_err(), "{len}");
    }
    for len in 0..FACTS_V2.len() {
        assert!(decode_facts(&FACTS_V2[..len]).map_or(true, |some| some.len() < 2), "{len}");
    }
}

#[test]
fn many_facts_are_several_records() {
    let many: Vec<_> = facts().into_iter().cycle().take(100).collect();
    let records = encode_facts(&many, 64);
    assert!(records.len() > 10 && records.iter().all(|record| record.len() <= 64));
    let read: Vec<_> = records.iter().flat_map(|record| decode_facts(record).unwrap()).collect();
    assert_eq!(read, many);
}

fn image() -> Image {
    let mut image = Image::default();
    for name in ["t", "u"] {
        let topic = image.topics.entry(name.into()).or_default();
        topic.next_offset = 900;
        for offset in [0, 1, 2, 5, 6, 700] {
            topic.held.insert(offset, HeldImage { count: if offset == 6 { 9 } else { 4 }, sent: None });
        }
        let unsettled = [(0, 2), (2, 3)];
        let ttl = Some(Duration::from_millis(1_500));
        topic.groups.insert("g".into(), GroupImage { start: 0, ttl, cursor: 5, unsettled: unsettled.into() });
        topic.groups.insert("h".into(), GroupImage::default());
        topic.producers.insert("p".into(), Seen { highest: 77, taken: u128::MAX - 5, last_at: Millis(8) });
    }
    image
}

fn decided() -> Decided {
    [("t", 4), ("u", 900)].map(|(topic, offset)| (topic.into(), offset)).into()
}

fn checkpoint(number: u64, image: &Image, decided: &Decided, len_max: usize) -> Vec<Vec<u8>> {
    let mut maker = PieceMaker::new(number, len_max);
    let head = maker.head(decided.iter().map(|(topic, offset)| (topic, *offset)));
    head.into_iter().chain(maker.image(image)).collect()
}

#[test]
fn a_checkpoint_is_read_when_all_its_pieces_are_there() {
    for len_max in [16, 40, 10_000] {
        let pieces = checkpoint(3, &image(), &decided(), len_max);
        assert!(pieces.iter().all(|piece| piece.len() <= len_max));
        let read = |pieces: &mut dyn Iterator<Item = &Vec<u8>>| {
            let mut together = Pieces::default();
            let completed = (5..).zip(pieces).map(|(at, piece)| together.add(at, piece, 1_000).unwrap());
            completed.flatten().collect::<Vec<_>>()
        };
        let whole = |first| [Completed::Head(decided()), Completed::Image(first, image())];
        assert_eq!(read(&mut pieces.iter()), whole(5));
        let other = checkpoint(4, &image(), &decided(), len_max);
        let straggler = other.iter().chain(&pieces[1..]);
        assert_eq!(read(&mut pieces[..1].iter().chain(straggler)).last(), Some(&whole(6)[1]), "{len_max}");
        let skipped = pieces.len() / 2;
        let begun_anew = read(&mut pieces[..skipped].iter().chain(&other));
        assert_eq!(begun_anew.last(), Some(&whole(5 + skipped as u64)[1]));
        assert_eq!(read(&mut pieces.iter().skip(1)), []);
        let holed = read(&mut pieces[..1].iter().chain(&pieces[2..]));
        assert!(!holed.iter().any(|completed| matches!(completed, Completed::Image(..))), "{len_max}");
    }
    let whole = checkpoint(3, &image(), &decided(), 10_000);
    let mut pieces = Pieces::default();
    pieces.add(0, &whole[0], 5).unwrap();
    assert_eq!(pieces.add(1, &whole[1], 5), Err(Malformed::Content), "more frames than the log can hold");
}

/// Frame 0 was there when the checkpoint was begun, 1 was under way, and 0 was settled and 2 published before its image
/// was written; if ever it was.
#[test]
fn what_happens_while_a_checkpoint_is_made_counts_on_top_of_it() {
    for has_image in [true, false] {
        let disk = FaultDisk::new();
        let (log, _) = Log::open(disk.clone(), LogConfig::default()).unwrap();
        let append = |kind, bytes: Vec<u8>| {
            log.append(kind, bytes.into(), Durability::Synced).wait().unwrap();
        };
        let publish = |offset| {
            let frame = Frame::new(ContentType::Json, 3, "xyz").stamped("p", offset);
            append(FRAME, Draft::new("t", &frame).unwrap().finish(offset, Millis(1)).0.to_vec());
        };
        let note = |what| append(FACTS, encode_facts(&[Fact { topic: "t".into(), what }], 1_000).remove(0));
        let mut image = Image::default();
        let topic = image.topics.entry("t".into()).or_default();
        topic.next_offset = 2;
        topic.held.insert(0, HeldImage { count: 3, sent: None });
        topic.groups.insert("g".into(), GroupImage::default());
        let mut maker = PieceMaker::new(1, 10_000);

        note(What::GroupMade { group: "g".into(), is_new: true, start: 0, ttl: None });
        publish(0);
        publish(1);
        maker.head([(&"t".into(), 1)].into_iter()).into_iter().for_each(|piece| append(CHECKPOINT, piece));
        note(What::Settled { group: "g".into(), frames: 0..1 });
        note(What::GroupMade { group: "h".into(), is_new: true, start: 1, ttl: None });
        publish(2);
        note(What::Failed { group: "h".into(), offset: 1, failures: 2 });
        if has_image {
            maker.image(&image).into_iter().for_each(|piece| append(CHECKPOINT, piece));
        }
        log.close().unwrap();

        let found = recover(disk, &QueueConfig::default(), Millis(5)).unwrap();
        assert_eq!((found.opened.frames, &found.opened.damage), (2, &Vec::new()), "{has_image}");
        let image = found.broker.image();
        let topic = &image.topics["t"];
        assert_eq!(topic.held.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(topic.groups["g"], GroupImage { cursor: 1, ..GroupImage::default() });
        assert_eq!(topic.groups["h"].unsettled[&1], 2);
        let (producer, seen) = topic.producers.iter().next().unwrap();
        // What the image has not said of frame 0 nobody knows.
        let taken = if has_image { 0b11 } else { 0b111 };
        assert_eq!((&**producer, seen.highest, seen.taken), ("p", 2, taken));
    }
}

fn what() -> impl Strategy<Value = What> {
    let group = "[a-z]{1,9}".prop_map(std::sync::Arc::<str>::from);
    let number = any::<u64>;
    prop_oneof![
        (group.clone(), any::<bool>(), number(), proptest::option::of(0_u64..u64::MAX - 1)).prop_map(
            |(group, is_new, start, ttl)| {
                What::GroupMade { group, is_new, start, ttl: ttl.map(Duration::from_millis) }
            }
        ),
        group.clone().prop_map(|group| What::GroupEnded { group }),
        (group.clone(), number(), 0_u64..99)
            .prop_map(|(group, at, len)| What::Settled { group, frames: at..at.saturating_add(len) }),
        (group, number(), any::<u32>()).prop_map(|(group, offset, failures)| What::Failed {
            group,
            offset,
            failures
        }),
        number().prop_map(|offset| What::Dropped { offset }),
    ]
}

proptest! {
    #[test]
    fn facts_are_read_as_they_were_written(
        facts in vec(("[a-z.]{1,20}", what()), 0..12),
        len_max in 1_usize..300,
    ) {
        let facts: Vec<_> =
            facts.into_iter().map(|(topic, what)| Fact { topic: topic.into(), what }).collect();
        let records = encode_facts(&facts, len_max);
        let read: Vec<_> = records.iter().flat_map(|record| decode_facts(record).unwrap()).collect();
        prop_assert_eq!(read, facts);
    }

    #[test]
    fn no_bytes_are_a_panic(mut bytes in vec(any::<u8>(), 0..200), turned in 0_usize..400, mask in any::<u8>()) {
        let mut spoilt = checkpoint(1, &image(), &decided(), 10_000);
        let mut spoilt = spoilt.remove(usize::from(mask) % 2);
        let at = turned % spoilt.len();
        spoilt[at] ^= mask;
        let mut pieces = Pieces::default();
        pieces.add(0, &checkpoint(1, &image(), &decided(), 10_000)[0], 1_000).ok();
        pieces.add(0, &spoilt, 1_000).ok();
        if let Some(first) = bytes.first_mut() {
            *first = 2;
        }
        decode_facts(&bytes).ok();
        FrameRecord::decode(&bytes).ok();
        Pieces::default().add(0, &bytes, 1_000).ok();
    }
}
