//! A whole image as records: a head, which says where the moment lies of which the image tells, and the image. Each is
//! encoded once and cut into pieces, so that no state is too large for a record. The head is written at that moment, the
//! image whenever it is ready, among other records; it counts when all pieces are there. Then it takes the place of all
//! before the head, and what was written since happens on top of it.
//!
//! A piece: version u8, the checkpoint's number u64, the piece's number u32 from 0, its [`Stage`] u8 (all little-endian),
//! then its part of the head or the image.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bytes::{Malformed, Reader, put_len, put_number, put_text, put_ttl};
use crate::broker::{GroupImage, HeldImage, Image, Producers, Seen, TopicImage};

const PIECE_VERSION: u8 = 2;
const IMAGE_VERSION: u8 = 3;
/// Bytes of a piece before its part of the head or the image.
const PIECE_HEAD_LEN: usize = 14;

/// Where in its checkpoint a piece stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head = 0,
    HeadEnd = 1,
    Image = 2,
    ImageEnd = 3,
}

/// Makes the pieces of one checkpoint, in their order.
#[derive(Debug)]
pub(super) struct PieceMaker {
    number: u64,
    len_max: usize,
    next: u32,
}

impl PieceMaker {
    /// Pieces of at most `len_max` bytes.
    pub(super) fn new(number: u64, len_max: usize) -> Self {
        Self { number, len_max, next: 0 }
    }

    /// The head. By topic: frames from there on may have been under way at its moment, and the image says nothing of them.
    pub(super) fn head<'a>(
        &mut self,
        decided: impl ExactSizeIterator<Item = (&'a Arc<str>, u64)>,
    ) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        put_len(&mut out, decided.len());
        for (topic, offset) in decided {
            put_text(&mut out, topic);
            put_number(&mut out, offset);
        }
        self.cut(&out, Stage::Head, Stage::HeadEnd)
    }

    /// The image.
    pub(super) fn image(&mut self, image: &Image) -> Vec<Vec<u8>> {
        self.cut(&encode_image(image), Stage::Image, Stage::ImageEnd)
    }

    fn cut(&mut self, bytes: &[u8], stage: Stage, end: Stage) -> Vec<Vec<u8>> {
        let part_len = self.len_max.saturating_sub(PIECE_HEAD_LEN).max(1);
        let last = bytes.len().div_ceil(part_len).saturating_sub(1);
        let pieces = bytes.chunks(part_len).enumerate().map(|(at, part)| {
            let stage = if at == last { end } else { stage };
            let mut piece = Vec::with_capacity(PIECE_HEAD_LEN + part.len());
            piece.push(PIECE_VERSION);
            piece.extend_from_slice(&self.number.to_le_bytes());
            piece.extend_from_slice(&self.next.to_le_bytes());
            piece.push(stage as u8);
            piece.extend_from_slice(part);
            self.next = self.next.saturating_add(1);
            piece
        });
        pieces.collect()
    }
}

/// By topic, where frames may be under way.
pub(super) type Decided = BTreeMap<Arc<str>, u64>;

/// What a piece completes.
#[derive(Debug, PartialEq)]
pub(super) enum Completed {
    /// The head: from here on, all that happens is to be kept until the image is there.
    Head(Decided),
    /// The image, and the sequence of its checkpoint's first piece.
    Image(u64, Image),
}

/// Puts pieces together.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    number: u64,
    first_sequence: u64,
    /// The piece that comes next, if the checkpoint can still become whole.
    next: Option<u32>,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Takes the next piece. A first one begins anew; one that does not follow the one before ends its checkpoint; one of
    /// another checkpoint is left.
    ///
    /// # Errors
    ///
    /// If a piece, head or image is not of this version, or not what this version writes.
    pub(super) fn add(
        &mut self,
        sequence: u64,
        piece: &[u8],
        frames_max: u64,
    ) -> Result<Option<Completed>, Malformed> {
        let mut reader = Reader::new(piece);
        reader.version(PIECE_VERSION)?;
        let number = u64::from_le_bytes(reader.fixed()?);
        let at = u32::from_le_bytes(reader.fixed()?);
        let stage = reader.byte()?;
        let part = piece.get(PIECE_HEAD_LEN..).unwrap_or_default();
        if at == 0 {
            *self = Self { number, first_sequence: sequence, next: Some(0), bytes: Vec::new() };
        }
        if number != self.number {
            return Ok(None);
        }
        let Some(next) = self.next.take().filter(|next| *next == at) else { return Ok(None) };
        self.bytes.extend_from_slice(part);
        if stage != Stage::ImageEnd as u8 {
            self.next = Some(next.saturating_add(1));
        }
        if stage == Stage::HeadEnd as u8 {
            decode_head(&std::mem::take(&mut self.bytes)).map(|decided| Some(Completed::Head(decided)))
        } else if stage == Stage::ImageEnd as u8 {
            let image = decode_image(&std::mem::take(&mut self.bytes), frames_max)?;
            Ok(Some(Completed::Image(self.first_sequence, image)))
        } else {
            Ok(None)
        }
    }
}

fn decode_head(bytes: &[u8]) -> Result<Decided, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut decided = Decided::new();
    for _ in 0..reader.len()? {
        decided.insert(reader.text()?, reader.number()?);
    }
    if reader.is_empty() { Ok(decided) } else { Err(Malformed::Content) }
}

fn encode_image(image: &Image) -> Vec<u8> {
    let mut out = vec![IMAGE_VERSION];
    put_len(&mut out, image.topics.len());
    for (name, topic) in &image.topics {
        put_text(&mut out, name);
        put_number(&mut out, topic.next_offset);
        put_held(&mut out, topic);
        put_len(&mut out, topic.groups.len());
        for (name, group) in &topic.groups {
            put_text(&mut out, name);
            put_group(&mut out, group);
        }
        put_producers(&mut out, &topic.producers);
    }
    out
}

/// Frames, in runs of neighbours of equal count.
fn put_held(out: &mut Vec<u8>, topic: &TopicImage) {
    let mut runs: Vec<(u64, u64, u32)> = Vec::new();
    for (offset, frame) in &topic.held {
        match runs.last_mut() {
            Some((start, len, count)) if *start + *len == *offset && *count == frame.count => *len += 1,
            _ => runs.push((*offset, 1, frame.count)),
        }
    }
    put_len(out, runs.len());
    let mut end = 0;
    for (start, len, count) in runs {
        put_number(out, start - end);
        put_number(out, len);
        put_number(out, u64::from(count));
        end = start + len;
    }
}

fn put_group(out: &mut Vec<u8>, group: &GroupImage) {
    put_number(out, group.start);
    put_ttl(out, group.ttl);
    put_number(out, group.cursor);
    put_len(out, group.unsettled.len());
    for (offset, failures) in &group.unsettled {
        put_number(out, *offset);
        put_number(out, u64::from(*failures));
    }
}

fn put_producers(out: &mut Vec<u8>, producers: &Producers) {
    put_len(out, producers.len());
    for (id, seen) in producers.iter() {
        put_text(out, id);
        put_number(out, seen.highest);
        out.extend_from_slice(&seen.taken.to_le_bytes());
        put_number(out, seen.last_at.0);
    }
}

fn decode_image(bytes: &[u8], frames_max: u64) -> Result<Image, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.version(IMAGE_VERSION)?;
    let mut image = Image::default();
    let mut frames_left = frames_max;
    for _ in 0..reader.len()? {
        let name = reader.text()?;
        image.topics.insert(name, topic(&mut reader, &mut frames_left)?);
    }
    if reader.is_empty() { Ok(image) } else { Err(Malformed::Content) }
}

fn topic(reader: &mut Reader<'_>, frames_left: &mut u64) -> Result<TopicImage, Malformed> {
    let mut topic = TopicImage { next_offset: reader.number()?, ..TopicImage::default() };
    let mut end = 0_u64;
    for _ in 0..reader.len()? {
        let start = end.checked_add(reader.number()?).ok_or(Malformed::Content)?;
        let len = reader.number()?;
        let count = reader.number_u32()?;
        end = start.checked_add(len).ok_or(Malformed::Content)?;
        // A run takes no more bytes than one frame: what it claims is bounded by what the log can hold.
        *frames_left = frames_left.checked_sub(len).ok_or(Malformed::Content)?;
        topic.held.extend((start..end).map(|offset| (offset, HeldImage { count, sent: None })));
    }
    for _ in 0..reader.len()? {
        let name = reader.text()?;
        topic.groups.insert(name, group(reader)?);
    }
    for _ in 0..reader.len()? {
        let id: Arc<str> = reader.text()?;
        let highest = reader.number()?;
        let taken = u128::from_le_bytes(reader.fixed()?);
        topic.producers.insert(id, Seen { highest, taken, last_at: reader.millis()? });
    }
    Ok(topic)
}

fn group(reader: &mut Reader<'_>) -> Result<GroupImage, Malformed> {
    let (start, ttl, cursor) = (reader.number()?, reader.ttl()?, reader.number()?);
    let mut group = GroupImage { start, ttl, cursor, ..GroupImage::default() };
    for _ in 0..reader.len()? {
        let offset = reader.number()?;
        group.unsettled.insert(offset, reader.number_u32()?);
    }
    Ok(group)
}
