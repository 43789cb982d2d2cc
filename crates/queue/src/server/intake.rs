//! Documents of JSON messages → frames: every message is checked where it enters, the good ones are taken, and whoever
//! sent a bad one is told which and why.
//!
//! A message is stored as it was written; only the brackets and commas between messages are ours.

use std::fmt;

use bytes::Bytes;
use gpuvitals_core::batch::Origin;
use gpuvitals_core::message::{self, DOCUMENT_LEN_MAX, MessageError};
use gpuvitals_core::wire::{self, ROWS_MAX, WireError};
use serde::Serialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::frame::{ContentType, Encoding, Frame};

/// Most messages that are put in one frame, unless the request is to be one frame.
pub const FRAME_MESSAGES: usize = 256;
/// Bytes of messages after which a frame is closed, unless the request is to be one frame.
pub const FRAME_BYTES: usize = 256 << 10;
/// Most refused messages, and most values left out, that an answer names; the rest is counted.
pub const NAMED_MAX: usize = 20;
/// Longest reason of a refusal, in bytes.
const REASON_MAX: usize = 512;
/// Shorter payloads are not worth compressing.
const COMPRESS_FROM: usize = 512;
/// Cheap, and four to ten times smaller for messages that look alike.
const ZSTD_LEVEL: i32 = 1;

/// How messages stand in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One message, or an array of them.
    Json,
    /// One message a line; empty lines do not count.
    Lines,
}

/// How many frames the good messages of a document may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One: a producer's stamp stands for all of them.
    One,
    /// As many as they need.
    Several,
}

/// Where a message stands in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessagePlace {
    /// In an array, from 0; the only message has 0.
    Index(usize),
    /// In lines, from 1.
    Line(usize),
}

impl fmt::Display for MessagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "index {index}"),
            Self::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// A message, or a value of one, that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Refusal)]
pub struct Refused {
    /// Of which message.
    #[serde(flatten)]
    pub place: MessagePlace,
    /// Why; names the field.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// What is said about each of many, for the first few; the others are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// The first [`NAMED_MAX`].
    pub named: Vec<Refused>,
    /// How many there are, the named ones included.
    pub count: u64,
}

impl Complaints {
    fn add(&mut self, place: MessagePlace, reason: impl fmt::Display) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            let mut reason = reason.to_string();
            reason.truncate(reason.floor_char_boundary(REASON_MAX));
            self.named.push(Refused { place, reason });
        }
    }
}

/// A frame to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The frame, not stamped.
    pub frame: Frame,
    /// Where the first message behind this frame stands: where to go on if the next frame is not taken.
    pub next: MessagePlace,
}

/// What a document held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// The good messages, in the order of the document.
    pub pieces: Vec<Piece>,
    /// Messages that were refused.
    pub refused: Complaints,
    /// Values that cannot be true, in messages that were taken: the collector leaves them out.
    pub left_out: Complaints,
}

/// Why nothing of a document is taken.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The body is not UTF-8.
    #[error("the body is not UTF-8 from byte {0} on")]
    Text(usize),
    /// Not JSON, or not to its end.
    #[error("the body is not JSON of a message or an array of messages: {0}")]
    Json(#[source] serde_json::Error),
    /// Neither a message nor an array.
    #[error("the body is no message {{\"timestamp\": …, \"fields\": {{…}}}} and no array of them")]
    Shape,
    /// No message in it.
    #[error("there is no message in the body")]
    Empty,
    /// A stamped request has more than a frame may have.
    #[error(
        "a request with a producer's stamp is one frame of at most {ROWS_MAX} messages and {DOCUMENT_LEN_MAX} \
         bytes; send it in parts"
    )]
    TooLongForOneFrame,
    /// Not a binary batch.
    #[error("{0}")]
    Batch(#[from] WireError),
}

/// Reads a document of JSON messages.
///
/// # Errors
///
/// The document as a whole cannot be read; a bad message alone is no error.
pub fn messages(document: &[u8], form: Form, framing: Framing) -> Result<Intake, DocumentError> {
    let text = std::str::from_utf8(document).map_err(|error| DocumentError::Text(error.valid_up_to()))?;
    let mut framer = Framer::new(framing);
    match form {
        Form::Json => json(text, &mut framer)?,
        Form::Lines => lines(text, &mut framer)?,
    }
    let intake = framer.finish()?;
    if intake.pieces.is_empty() && intake.refused.count == 0 {
        return Err(DocumentError::Empty);
    }
    Ok(intake)
}

/// Reads a binary batch: only as far as its number of rows, the rest is the collector's.
///
/// # Errors
///
/// The bytes do not begin as a batch does.
pub fn batch(document: &Bytes) -> Result<Intake, DocumentError> {
    let count = wire::row_count(document)?;
    let piece = Piece {
        frame: Frame::new(ContentType::Batch, count, document.clone()),
        next: MessagePlace::Index(1),
    };
    Ok(Intake { pieces: vec![piece], ..Intake::default() })
}

fn json(text: &str, framer: &mut Framer) -> Result<(), DocumentError> {
    match text.trim_ascii_start().bytes().next() {
        Some(b'[') => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let outcome = reader.deserialize_seq(Elements(framer)).map_err(DocumentError::Json)?;
            reader.end().map_err(DocumentError::Json)?;
            outcome
        }
        Some(b'{') => {
            let message: &RawValue = serde_json::from_str(text).map_err(DocumentError::Json)?;
            framer.push(MessagePlace::Index(0), message.get())
        }
        Some(_) => Err(DocumentError::Shape),
        None => Err(DocumentError::Empty),
    }
}

/// Hands the elements of an array to a framer, one after the other.
struct Elements<'a>(&'a mut Framer);

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = Result<(), DocumentError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let (mut index, mut outcome) = (0, Ok(()));
        while let Some(message) = elements.next_element::<&'de RawValue>()? {
            outcome = outcome.and_then(|()| self.0.push(MessagePlace::Index(index), message.get()));
            index += 1;
        }
        Ok(outcome)
    }
}

fn lines(text: &str, framer: &mut Framer) -> Result<(), DocumentError> {
    for (number, line) in (1..).zip(text.split('\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let place = MessagePlace::Line(number);
        match serde_json::from_str::<&RawValue>(line) {
            Ok(message) => framer.push(place, message.get())?,
            Err(error) => framer.refused.add(place, format_args!("not JSON: {error}")),
        }
    }
    Ok(())
}

/// Checks messages some at a time and gathers the good ones in frames.
struct Framer {
    framing: Framing,
    /// Not checked yet: `[a,b`, and where each message stands in it and in the document.
    unchecked: String,
    waiting: Vec<(std::ops::Range<usize>, MessagePlace)>,
    /// Checked: `[a,b`, how many, and where the last one stands.
    frame: String,
    count: usize,
    last: MessagePlace,
    intake: Intake,
    refused: Complaints,
}

impl Framer {
    fn new(framing: Framing) -> Self {
        Self {
            framing,
            unchecked: "[".to_owned(),
            waiting: Vec::new(),
            frame: "[".to_owned(),
            count: 0,
            last: MessagePlace::Index(0),
            intake: Intake::default(),
            refused: Complaints::default(),
        }
    }

    fn push(&mut self, place: MessagePlace, message: &str) -> Result<(), DocumentError> {
        let full = self.waiting.len() >= FRAME_MESSAGES || self.unchecked.len() + message.len() > FRAME_BYTES;
        if full {
            self.check()?;
        }
        if !self.waiting.is_empty() {
            self.unchecked.push(',');
        }
        let start = self.unchecked.len();
        self.unchecked.push_str(message);
        self.waiting.push((start..self.unchecked.len(), place));
        Ok(())
    }

    /// Checks what waits; what is good goes to the frame.
    fn check(&mut self) -> Result<(), DocumentError> {
        let mut unchecked = std::mem::replace(&mut self.unchecked, "[".to_owned());
        let waiting = std::mem::take(&mut self.waiting);
        unchecked.push(']');
        let places: Vec<MessagePlace> = waiting.iter().map(|(_, place)| *place).collect();
        let all = self.judge(&unchecked, &places);
        for (index, (span, place)) in waiting.into_iter().enumerate() {
            let message = unchecked.get(span).unwrap_or_default();
            let good = match &all {
                Ok(good) => good.get(index).copied(),
                // One of them cannot be read at all; which, each alone says.
                Err(_) => match self.judge(&format!("[{message}]"), &[place]) {
                    Ok(good) => good.first().copied(),
                    Err(error) => {
                        self.refused.add(place, why(&error));
                        None
                    }
                },
            };
            if good == Some(true) {
                self.take(place, message)?;
            }
        }
        Ok(())
    }

    /// Which messages of an array are good. Says of the others why not.
    fn judge(&mut self, document: &str, places: &[MessagePlace]) -> Result<Vec<bool>, MessageError> {
        let parsed = message::parse(document.as_bytes(), Origin::default(), 0)?;
        let mut good = vec![true; places.len()];
        for (index, error) in &parsed.refused {
            let (Some(place), Some(good)) = (places.get(*index), good.get_mut(*index)) else { continue };
            *good = false;
            let value = parsed.invalid.iter().find(|(of, _)| of == index);
            match value {
                Some((_, value)) => self.refused.add(*place, format_args!("{}: {value}", why(error))),
                None => self.refused.add(*place, why(error)),
            }
        }
        for (index, error) in &parsed.invalid {
            if good.get(*index) == Some(&true)
                && let Some(place) = places.get(*index)
            {
                self.intake.left_out.add(*place, error);
            }
        }
        Ok(good)
    }

    fn take(&mut self, place: MessagePlace, message: &str) -> Result<(), DocumentError> {
        if self.framing == Framing::One {
            if self.count >= ROWS_MAX || self.frame.len() + message.len() + 2 > DOCUMENT_LEN_MAX {
                return Err(DocumentError::TooLongForOneFrame);
            }
        } else if self.count >= FRAME_MESSAGES || self.frame.len() + message.len() > FRAME_BYTES {
            self.close();
        }
        if self.count > 0 {
            self.frame.push(',');
        }
        self.frame.push_str(message);
        self.count += 1;
        self.last = place;
        Ok(())
    }

    fn close(&mut self) {
        let mut document = std::mem::replace(&mut self.frame, "[".to_owned());
        let count = std::mem::take(&mut self.count);
        let Some(count) = u32::try_from(count).ok().filter(|count| *count > 0) else { return };
        if count == 1 {
            document.remove(0);
        } else {
            document.push(']');
        }
        let (encoding, payload) = squeeze(document.into_bytes());
        let next = match self.last {
            MessagePlace::Index(index) => MessagePlace::Index(index + 1),
            MessagePlace::Line(line) => MessagePlace::Line(line + 1),
        };
        let frame = Frame::new(ContentType::Json, count, payload).encoded(encoding);
        self.intake.pieces.push(Piece { frame, next });
    }

    fn finish(mut self) -> Result<Intake, DocumentError> {
        if !self.waiting.is_empty() {
            self.check()?;
        }
        self.close();
        let mut intake = self.intake;
        intake.refused = self.refused;
        intake.refused.named.sort_by_key(|refused| match refused.place {
            MessagePlace::Index(number) | MessagePlace::Line(number) => number,
        });
        Ok(intake)
    }
}

/// An error and its cause, as one sentence.
fn why(error: &MessageError) -> String {
    match std::error::Error::source(error) {
        Some(cause) if matches!(error, MessageError::Shape(_)) => format!("{error}: {cause}"),
        _ => error.to_string(),
    }
}

/// The payload, compressed where that pays.
fn squeeze(payload: Vec<u8>) -> (Encoding, Bytes) {
    if payload.len() >= COMPRESS_FROM
        && let Ok(packed) = zstd::bulk::compress(&payload, ZSTD_LEVEL)
        && packed.len() < payload.len() / 4 * 3
    {
        return (Encoding::Zstd, packed.into());
    }
    (Encoding::Identity, payload.into())
}
