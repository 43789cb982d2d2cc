//! What is written is read back as it was, what was written once is read for ever, and no bytes are a panic.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::bytes::Malformed;
use super::checkpoint::{Pieces, encode_checkpoint};
use super::fact_record::{decode_facts, encode_facts};
use super::frame_record::{Draft, FrameRecord};
use crate::broker::{
    Burial, Fact, Failure, GroupImage, HeldImage, Image, PartImage, ReplayImage, Seen, What,
};
use crate::frame::{ContentType, Encoding, Frame, Millis};
use crate::rows::Rows;

/// A frame as version 1 wrote it: topic `t`, id `p`, key `k`, payload `xyz`.
const FRAME_V1: &[u8] = b"\x01\x02\x01\x03\x05\0\0\0\x07\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x01\0\0\0\x01\x01tpkxyz";
/// Frames 3 to 5 settled by `g`, one row buried, as version 1 wrote it.
const FACTS_V1: &[u8] =
    b"\x01\x03\x01t\x01g\x03\x02\x06\x01t\x80\x01\x01g\x07\x07\x01\x02\x01\x03\x02no\x04\x0a\x14";

fn frame() -> Frame {
    let frame = Frame::new(ContentType::Json, 5, "xyz").encoded(Encoding::Zstd).stamped("p", 9);
    Frame { key: Some("k".into()), ..frame }
}

fn facts() -> Vec<Fact> {
    let fact = |what| Fact { topic: "t".into(), what };
    vec![
        fact(What::Settled { group: "g".into(), frames: 3..5 }),
        fact(What::Buried(burial(128, Rows::one(2)))),
    ]
}

fn burial(id: u64, rows: Rows) -> Burial {
    Burial {
        id,
        group: "g".into(),
        offset: 7,
        source: 7,
        rows,
        reason: Failure::Rejected("no".into()),
        attempts: 4,
        first_at: Millis(10),
        died_at: Millis(20),
    }
}

#[test]
fn records_of_version_1_are_written_and_read_as_ever() {
    let (record, payload) = Draft::new("t", &frame()).unwrap().finish(7, Millis(1_000));
    assert_eq!((&record[..], &payload[..]), (FRAME_V1, &b"xyz"[..]));
    let read = FrameRecord::decode(FRAME_V1).unwrap();
    assert_eq!((read.topic, read.offset, read.at, read.frame(&record)), ("t", 7, Millis(1_000), frame()));
    assert_eq!(read.cost_bytes(FRAME_V1.len()), frame().cost_bytes());
    assert_eq!(encode_facts(&facts(), 1_000), [FACTS_V1]);
    assert_eq!(decode_facts(FACTS_V1), Ok(facts()));
    for later in [decode_facts(&[2]).unwrap_err(), FrameRecord::decode(&[2]).unwrap_err()] {
        assert_eq!(later, Malformed::Version(2));
    }
}

#[test]
fn a_record_cut_anywhere_is_refused_or_says_less() {
    for len in 0..FRAME_V1.len() - 3 {
        assert!(FrameRecord::decode(&FRAME_V1[..len]).is_err(), "{len}");
    }
    for len in 0..FACTS_V1.len() {
        assert!(decode_facts(&FACTS_V1[..len]).map_or(true, |some| some.len() < 2), "{len}");
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
        (topic.decided, topic.next_offset, topic.next_letter) = (4, 900, 3);
        for offset in [0, 1, 2, 5, 6, 700] {
            topic.held.insert(offset, HeldImage::published(if offset == 6 { 9 } else { 4 }, None));
        }
        let replay = ReplayImage { source: 1, rows: Rows::from_ranges([1..2, 3..9]), only: "g".into() };
        topic.held.insert(800, HeldImage { count: 7, replay: Some(Box::new(replay)), sent: None });
        let part = PartImage { rows: Rows::from_ranges([0..1, 2..3]), failures: 2, first_at: Millis(5) };
        let parts =
            [(0, vec![part.clone()]), (2, vec![part.clone(), PartImage { rows: Rows::one(3), ..part }])];
        let ttl = Some(Duration::from_millis(1_500));
        topic.groups.insert("g".into(), GroupImage { start: 0, ttl, cursor: 5, parts: parts.into() });
        topic.groups.insert("h".into(), GroupImage::default());
        topic.letters.insert(2, burial(2, Rows::all(3)));
        topic.producers.insert("p".into(), Seen { highest: 77, taken: u128::MAX - 5, last_at: Millis(8) });
    }
    image
}

#[test]
fn a_checkpoint_is_read_when_all_its_pieces_are_there() {
    for len_max in [16, 40, 10_000] {
        let pieces = encode_checkpoint(3, &image(), len_max);
        assert!(pieces.iter().all(|piece| piece.len() <= len_max));
        let read = |pieces: &mut dyn Iterator<Item = &Vec<u8>>| {
            let mut together = Pieces::default();
            let images = (5..).zip(pieces).map(|(at, piece)| together.add(at, piece, 1_000).unwrap());
            images.last().flatten()
        };
        assert_eq!(read(&mut pieces.iter()), Some((5, image())));
        let other = encode_checkpoint(4, &image(), len_max);
        let skipped = pieces.len() / 2;
        let begun_anew = read(&mut pieces[..skipped].iter().chain(&other)).unwrap();
        assert_eq!(begun_anew, (5 + skipped as u64, image()));
        if pieces.len() > 2 {
            assert_eq!(read(&mut pieces.iter().skip(1)), None);
            assert_eq!(read(&mut pieces[..1].iter().chain(&pieces[2..])), None);
        }
    }
    let whole = encode_checkpoint(3, &image(), 10_000);
    assert_eq!(
        Pieces::default().add(0, &whole[0], 5),
        Err(Malformed::Content),
        "more frames than the log can hold"
    );
}

fn rows() -> impl Strategy<Value = Rows> {
    vec((any::<u32>(), 0_u32..50), 0..5)
        .prop_map(|ranges| Rows::from_ranges(ranges.into_iter().map(|(at, len)| at..at.saturating_add(len))))
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
        (group.clone(), number(), rows()).prop_map(|(group, offset, rows)| What::SettledRows {
            group,
            offset,
            rows
        }),
        (group, number(), rows(), any::<u32>(), number()).prop_map(|(group, offset, rows, failures, at)| {
            What::Failed { group, offset, rows, failures, first_at: Millis(at) }
        }),
        (number(), rows()).prop_map(|(id, rows)| What::Buried(burial(id, rows))),
        vec(number(), 0..9).prop_map(|ids| What::LettersGone { ids }),
        (number(), number()).prop_map(|(letter, offset)| What::Replayed { letter, offset }),
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
        let mut spoilt = encode_checkpoint(1, &image(), 10_000).remove(0);
        let at = turned % spoilt.len();
        spoilt[at] ^= mask;
        Pieces::default().add(0, &spoilt, 1_000).ok();
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        decode_facts(&bytes).ok();
        FrameRecord::decode(&bytes).ok();
        Pieces::default().add(0, &bytes, 1_000).ok();
    }
}
