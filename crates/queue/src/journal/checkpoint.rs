//! The state as records: one for each topic, and its producers in as many as they need. Each says what is so at its place
//! in the log, whether the others are there or not.

use std::sync::Arc;

use super::bytes::{Malformed, Reader, put_len, put_number, put_text, put_ttl};
use crate::broker::{GroupState, JournalRecord, Ranges, TakenSequences, TopicState};

const VERSION: u8 = 3;
const TOPIC: u8 = 1;
const PRODUCERS: u8 = 2;

/// The records of a checkpoint. Those of producers have at most `len_max` bytes.
pub(super) fn encode_state(state: &[TopicState], len_max: usize) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for topic in state {
        let mut record = vec![VERSION, TOPIC];
        put_topic(&mut record, topic);
        records.push(record);
        let begun = || {
            let mut record = vec![VERSION, PRODUCERS];
            put_text(&mut record, &topic.name);
            record
        };
        let mut record = begun();
        let empty_len = record.len();
        for (id, seen) in &topic.producers {
            if record.len() + id.len() + 40 > len_max && record.len() > empty_len {
                records.push(std::mem::replace(&mut record, begun()));
            }
            put_text(&mut record, id);
            put_number(&mut record, seen.highest);
            record.extend_from_slice(&seen.taken.to_le_bytes());
            put_number(&mut record, seen.last_at.0);
        }
        if record.len() > empty_len {
            records.push(record);
        }
    }
    records
}

/// Reads a record of a checkpoint, in a log that can hold `frames_max` frames.
///
/// # Errors
///
/// If it is not of this version, or not what this version writes.
pub(super) fn decode_state(bytes: &[u8], frames_max: u64) -> Result<JournalRecord<'static>, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    let record = match reader.byte()? {
        TOPIC => JournalRecord::State(topic(&mut reader, frames_max)?),
        PRODUCERS => JournalRecord::Producers { topic: reader.text()?, seen: producers(&mut reader)? },
        _ => return Err(Malformed::Content),
    };
    if reader.is_empty() { Ok(record) } else { Err(Malformed::Content) }
}

fn put_topic(out: &mut Vec<u8>, topic: &TopicState) {
    put_text(out, &topic.name);
    put_number(out, topic.decided);
    put_number(out, topic.next_offset);
    put_number(out, topic.groups_made.into());
    put_ranges(out, &topic.held);
    put_len(out, topic.groups.len());
    for group in &topic.groups {
        put_text(out, &group.name);
        put_number(out, group.life.into());
        put_number(out, group.start);
        put_ttl(out, group.ttl);
        put_number(out, group.cursor);
        put_ranges(out, &group.unsettled);
    }
}

/// Each range by the gap before it and its length.
fn put_ranges(out: &mut Vec<u8>, ranges: &Ranges) {
    let mut end = 0;
    put_len(out, ranges.iter().len());
    for range in ranges.iter() {
        put_number(out, range.start - end);
        put_number(out, range.end - range.start);
        end = range.end;
    }
}

fn topic(reader: &mut Reader<'_>, frames_max: u64) -> Result<TopicState, Malformed> {
    let mut topic = TopicState {
        name: reader.text()?,
        decided: reader.number()?,
        next_offset: reader.number()?,
        groups_made: reader.number_u32()?,
        held: ranges(reader, frames_max)?,
        ..TopicState::default()
    };
    for _ in 0..reader.len()? {
        topic.groups.push(GroupState {
            name: reader.text()?,
            life: reader.number_u32()?,
            start: reader.number()?,
            ttl: reader.ttl()?,
            cursor: reader.number()?,
            unsettled: ranges(reader, frames_max)?,
        });
    }
    Ok(topic)
}

fn producers(reader: &mut Reader<'_>) -> Result<Vec<(Arc<str>, TakenSequences)>, Malformed> {
    let mut producers = Vec::new();
    while !reader.is_empty() {
        let id = reader.text()?;
        let (highest, taken) = (reader.number()?, u128::from_le_bytes(reader.fixed()?));
        producers.push((id, TakenSequences { highest, taken, last_at: reader.millis()? }));
    }
    Ok(producers)
}

/// A range takes no more bytes than one offset: what they claim is bounded by what the log can hold.
fn ranges(reader: &mut Reader<'_>, frames_max: u64) -> Result<Ranges, Malformed> {
    let (mut ranges, mut end, mut frames_left) = (Ranges::default(), 0_u64, frames_max);
    for _ in 0..reader.len()? {
        let start = end.checked_add(reader.number()?).ok_or(Malformed::Content)?;
        let len = reader.number()?;
        frames_left = frames_left.checked_sub(len).ok_or(Malformed::Content)?;
        end = start.checked_add(len).ok_or(Malformed::Content)?;
        ranges.insert(start..end);
    }
    Ok(ranges)
}
