//! Documents of messages → frames: every message is taken as it was written or refused at its place, whatever its
//! neighbours are.

use gpuvitals_queue::Encoding;
use gpuvitals_queue::server::intake::{
    FRAME_BYTES, FRAME_MESSAGES, Form, Framing, Intake, MessagePlace, messages,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

/// A message, and whether it is good.
fn one() -> impl Strategy<Value = (String, bool)> {
    let good = (any::<u32>(), 0_usize..3_000).prop_map(|(number, len)| {
        let note = "x, ]\\\" ".repeat(len / 100);
        let fields = format!(r#"{{ "gpu_id":"gpu_0","temperature":61,"n":{number},"note":"{note}"}}"#);
        (format!(r#"{{"timestamp":"2026-01-01T00:00:00Z","fields":{fields}}}"#), true)
    });
    let bad = prop::sample::select(vec![
        "3".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        r#"{"timestamp":1,"fields":{}}"#.to_owned(),
        r#"{"timestamp":"never","fields":{"gpu_id":"gpu_0","temperature":61}}"#.to_owned(),
        r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","n":1e999}}"#.to_owned(),
        r#"[{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","temperature":61}}]"#.to_owned(),
        format!("{}{}", "[".repeat(300), "]".repeat(300)),
    ]);
    prop_oneof![20 => good, 1 => bad.prop_map(|text| (text, false))]
}

fn taken(intake: &Intake) -> Vec<String> {
    let mut all = Vec::new();
    for piece in &intake.pieces {
        let document = match piece.frame.encoding {
            Encoding::Identity => piece.frame.payload.to_vec(),
            Encoding::Zstd => zstd::stream::decode_all(piece.frame.payload.as_ref()).unwrap(),
        };
        let of_frame: Vec<Box<RawValue>> = serde_json::from_slice(&document)
            .unwrap_or_else(|_| vec![serde_json::from_slice(&document).unwrap()]);
        assert_eq!(of_frame.len(), piece.frame.count as usize);
        all.extend(of_frame.iter().map(|message| message.get().to_owned()));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_message_is_taken_as_written_or_refused_at_its_place(
        sent in prop::collection::vec(one(), 1..700),
        framing in prop::sample::select(vec![Framing::One, Framing::Several]),
    ) {
        let one_frame = framing == Framing::One;
        let good: Vec<&String> = sent.iter().filter(|(_, good)| *good).map(|(text, _)| text).collect();
        let bad: Vec<usize> = (0..).zip(&sent).filter(|(_, (_, good))| !good).map(|(at, _)| at).collect();
        let texts: Vec<&str> = sent.iter().map(|(text, _)| text.as_str()).collect();
        let array = format!(" [{} ]\n", texts.join(" ,\n"));
        let lines = texts.join("\r\n");
        for (document, form) in [(array, Form::Json), (lines, Form::Lines)] {
            let place = |at: usize| match form {
                Form::Json => MessagePlace::Index(at),
                Form::Lines => MessagePlace::Line(at + 1),
            };
            let intake = messages(document.as_bytes(), form, framing).unwrap();
            let taken = taken(&intake);
            prop_assert_eq!(taken.iter().collect::<Vec<_>>(), good.clone());
            prop_assert_eq!(intake.refused.count, bad.len() as u64);
            for refused in &intake.refused.named {
                prop_assert!(bad.iter().any(|at| place(*at) == refused.place), "{refused}");
            }
            for piece in &intake.pieces {
                prop_assert!(one_frame || piece.frame.count as usize <= FRAME_MESSAGES);
                prop_assert!(one_frame || piece.frame.payload.len() <= FRAME_BYTES + 4_096);
            }
            prop_assert!(!one_frame || intake.pieces.len() <= 1);
            // Where one goes on lies behind the last message of each frame, and before the first of the next.
            let mut so_far = 0;
            for piece in &intake.pieces {
                so_far += piece.frame.count as usize;
                let last = sent.iter().enumerate().filter(|(_, (_, good))| *good).nth(so_far - 1).unwrap().0;
                prop_assert_eq!(piece.next, place(last + 1));
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm(document in prop::collection::vec(any::<u8>(), 0..200), lines in any::<bool>()) {
        let form = if lines { Form::Lines } else { Form::Json };
        if let Ok(intake) = messages(&document, form, Framing::Several) {
            prop_assert!(intake.pieces.is_empty(), "no message comes about by chance");
        }
    }
}
