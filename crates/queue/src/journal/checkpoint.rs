//! A whole image as records. It is encoded once and cut into pieces, so that no state is too large for a record; it
//! counts when all its pieces are there, one right after the other.
//!
//! A piece: version u8, the checkpoint's number u64, the piece's number u32 from 0, whether it is the last u8 (all
//! little-endian), then its part of the image.

use std::sync::Arc;

use super::bytes::{Malformed, Reader, put_len, put_number, put_rows, put_text, put_ttl};
use super::fact_record::{burial, put_burial};
use crate::broker::{GroupImage, HeldImage, Image, PartImage, Producers, ReplayImage, Seen, TopicImage};

const PIECE_VERSION: u8 = 1;
const IMAGE_VERSION: u8 = 1;
/// Bytes of a piece before its part of the image.
const PIECE_HEAD_LEN: usize = 14;

/// An image as records of at most `len_max` bytes.
pub(super) fn encode_checkpoint(number: u64, image: &Image, len_max: usize) -> Vec<Vec<u8>> {
    let bytes = encode_image(image);
    let part_len = len_max.saturating_sub(PIECE_HEAD_LEN).max(1);
    let last = bytes.len().div_ceil(part_len).saturating_sub(1);
    let pieces = bytes.chunks(part_len).enumerate().map(|(at, part)| {
        let mut piece = Vec::with_capacity(PIECE_HEAD_LEN + part.len());
        piece.push(PIECE_VERSION);
        piece.extend_from_slice(&number.to_le_bytes());
        piece.extend_from_slice(&u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
        piece.push(u8::from(at == last));
        piece.extend_from_slice(part);
        piece
    });
    pieces.collect()
}

/// Puts pieces together.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    number: u64,
    first_sequence: u64,
    next: u32,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Takes the next piece; answers the image, and the sequence of its first piece, with the last one. A piece that does not follow the one before begins
    /// anew, or is left if it is not a first one.
    ///
    /// # Errors
    ///
    /// If a piece or the image is not of this version, or not what this version writes.
    pub(super) fn add(
        &mut self,
        sequence: u64,
        piece: &[u8],
        frames_max: u64,
    ) -> Result<Option<(u64, Image)>, Malformed> {
        let mut reader = Reader::new(piece);
        reader.version(PIECE_VERSION)?;
        let number = u64::from_le_bytes(reader.fixed()?);
        let at = u32::from_le_bytes(reader.fixed()?);
        let is_last = reader.byte()? == 1;
        let part = piece.get(PIECE_HEAD_LEN..).unwrap_or_default();
        if at == 0 {
            *self = Self { number, first_sequence: sequence, next: 0, bytes: Vec::new() };
        }
        if (number, at) != (self.number, self.next) {
            *self = Self { number, next: u32::MAX, ..Self::default() };
            return Ok(None);
        }
        self.next = self.next.saturating_add(1);
        self.bytes.extend_from_slice(part);
        if !is_last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.next = u32::MAX;
        decode_image(&bytes, frames_max).map(|image| Some((self.first_sequence, image)))
    }
}

fn encode_image(image: &Image) -> Vec<u8> {
    let mut out = vec![IMAGE_VERSION];
    put_len(&mut out, image.topics.len());
    for (name, topic) in &image.topics {
        put_text(&mut out, name);
        for number in [topic.decided, topic.next_offset, topic.next_letter] {
            put_number(&mut out, number);
        }
        put_held(&mut out, topic);
        put_len(&mut out, topic.groups.len());
        for (name, group) in &topic.groups {
            put_text(&mut out, name);
            put_group(&mut out, group);
        }
        put_len(&mut out, topic.letters.len());
        topic.letters.values().for_each(|letter| put_burial(&mut out, letter));
        put_producers(&mut out, &topic.producers);
    }
    out
}

/// Frames as they were published, in runs of neighbours of equal count; then those put back, one by one.
fn put_held(out: &mut Vec<u8>, topic: &TopicImage) {
    let mut runs: Vec<(u64, u64, u32)> = Vec::new();
    for (offset, frame) in topic.held.iter().filter(|(_, frame)| frame.replay.is_none()) {
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
    let put_back = topic.held.iter().filter_map(|(offset, frame)| Some((offset, frame.replay.as_ref()?)));
    put_len(out, put_back.clone().count());
    for (offset, replay) in put_back {
        put_number(out, *offset);
        put_number(out, replay.source);
        put_rows(out, &replay.rows);
        put_text(out, &replay.only);
    }
}

fn put_group(out: &mut Vec<u8>, group: &GroupImage) {
    put_number(out, group.start);
    put_ttl(out, group.ttl);
    put_number(out, group.cursor);
    put_len(out, group.parts.len());
    for (offset, parts) in &group.parts {
        put_number(out, *offset);
        put_len(out, parts.len());
        for part in parts {
            put_rows(out, &part.rows);
            put_number(out, u64::from(part.failures));
            put_number(out, part.first_at.0);
        }
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
    let mut topic = TopicImage {
        decided: reader.number()?,
        next_offset: reader.number()?,
        next_letter: reader.number()?,
        ..TopicImage::default()
    };
    let mut end = 0_u64;
    for _ in 0..reader.len()? {
        let start = end.checked_add(reader.number()?).ok_or(Malformed::Content)?;
        let len = reader.number()?;
        let count = reader.number_u32()?;
        end = start.checked_add(len).ok_or(Malformed::Content)?;
        // A run takes no more bytes than one frame: what it claims is bounded by what the log can hold.
        *frames_left = frames_left.checked_sub(len).ok_or(Malformed::Content)?;
        topic.held.extend((start..end).map(|offset| (offset, HeldImage::published(count, None))));
    }
    for _ in 0..reader.len()? {
        let (offset, source, rows) = (reader.number()?, reader.number()?, reader.rows()?);
        let count = u32::try_from(rows.len()).map_err(|_| Malformed::Content)?;
        let replay = Some(Box::new(ReplayImage { source, rows, only: reader.text()? }));
        topic.held.insert(offset, HeldImage { count, replay, sent: None });
    }
    for _ in 0..reader.len()? {
        let name = reader.text()?;
        topic.groups.insert(name, group(reader)?);
    }
    for _ in 0..reader.len()? {
        let letter = burial(reader)?;
        topic.letters.insert(letter.id, letter);
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
        let mut parts = Vec::new();
        for _ in 0..reader.len()? {
            let (rows, failures, first_at) = (reader.rows()?, reader.number_u32()?, reader.millis()?);
            parts.push(PartImage { rows, failures, first_at });
        }
        group.parts.insert(offset, parts);
    }
    Ok(group)
}
