//! Any bytes as a document of JSON messages that somebody publishes by HTTP.
#![no_main]

use std::borrow::Cow;

use gpuvitals_core::Origin;
use gpuvitals_core::message;
use gpuvitals_queue::Encoding;
use gpuvitals_queue::server::intake::{FRAME_BYTES, FRAME_MESSAGES, Form, Framing, NAMED_MAX, messages};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let Some((how, document)) = input.split_first() else { return };
    let form = if how & 1 == 0 { Form::Json } else { Form::Lines };
    let one_frame = how & 2 != 0;
    let framing = if one_frame { Framing::One } else { Framing::Several };
    let Ok(intake) = messages(document, form, framing) else { return };

    let mut accepted = 0;
    for piece in &intake.pieces {
        let frame = &piece.frame;
        let payload: Cow<'_, [u8]> = match frame.encoding {
            Encoding::Identity => Cow::Borrowed(&frame.payload),
            Encoding::Zstd => zstd::stream::decode_all(frame.payload.as_ref()).unwrap().into(),
        };
        assert!(one_frame || (frame.count as usize <= FRAME_MESSAGES && payload.len() <= 2 * FRAME_BYTES));
        let parsed =
            message::parse(&payload, Origin::default(), 0).expect("a collector reads what was taken");
        assert!(parsed.refused.is_empty(), "what was taken is good");
        assert_eq!(parsed.batch.expect("a frame has rows").rows(), frame.count as usize);
        accepted += u64::from(frame.count);
    }
    assert!(!one_frame || intake.pieces.len() <= 1);
    assert!(intake.refused.named.len() <= NAMED_MAX && intake.left_out.named.len() <= NAMED_MAX);

    let found = match form {
        Form::Lines => {
            document.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
        }
        Form::Json => match serde_json::from_slice(document) {
            Ok(Value::Array(messages)) => messages.len(),
            Ok(_) => 1,
            // Deeper or larger numbers than a value can have: counted by nobody else.
            Err(_) => return,
        },
    };
    assert_eq!(accepted + intake.refused.count, found as u64, "every message is taken or refused");
});
