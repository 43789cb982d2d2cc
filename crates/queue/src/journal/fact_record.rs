//! Facts as a record: a version byte, then one fact after the other: what it is, the topic's name, its fields.

use std::sync::Arc;

use super::bytes::{Malformed, Reader, put_number, put_text, put_ttl};
use crate::broker::{Fact, TopicChange};

const VERSION: u8 = 4;

const GROUP_MADE: u8 = 1;
const GROUP_ENDED: u8 = 2;
const SETTLED: u8 = 3;
const DROPPED: u8 = 5;

/// Facts as records of about `len_max` bytes at most, and which facts each has; a single larger fact is a record of its own.
pub(super) fn encode_facts(mut facts: &[Fact], len_max: usize) -> Vec<(Vec<u8>, &[Fact])> {
    let mut records = Vec::new();
    while !facts.is_empty() {
        let (mut record, mut count) = (vec![VERSION], 0);
        for fact in facts {
            let end = record.len();
            put_fact(&mut record, fact);
            if count > 0 && record.len() > len_max {
                record.truncate(end);
                break;
            }
            count += 1;
        }
        let (these, rest) = facts.split_at(count);
        records.push((record, these));
        facts = rest;
    }
    records
}

fn put_fact(out: &mut Vec<u8>, Fact { topic, what, .. }: &Fact) {
    let mut begin = |tag: u8, group: Option<&str>| {
        out.push(tag);
        put_text(out, topic);
        if let Some(group) = group {
            put_text(out, group);
        }
    };
    match what {
        TopicChange::GroupMade { group, life, start, ttl } => {
            begin(GROUP_MADE, Some(group));
            put_number(out, u64::from(*life));
            put_number(out, *start);
            put_ttl(out, *ttl);
        }
        TopicChange::GroupEnded { group, end } => {
            begin(GROUP_ENDED, Some(group));
            put_number(out, *end);
        }
        TopicChange::Settled { group, frames } => {
            begin(SETTLED, Some(group));
            put_number(out, frames.start);
            put_number(out, frames.end.saturating_sub(frames.start));
        }
        TopicChange::Dropped { offset } => {
            begin(DROPPED, None);
            put_number(out, *offset);
        }
    }
}

/// Reads a record of facts.
///
/// # Errors
///
/// If it is not of this version, or not what this version writes.
pub(super) fn decode_facts(bytes: &[u8]) -> Result<Vec<Fact>, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.version(VERSION)?;
    let mut facts: Vec<Fact> = Vec::new();
    while !reader.is_empty() {
        let tag = reader.byte()?;
        let name_len = reader.len()?;
        let name = reader.text_of(name_len)?;
        let last = facts.last().filter(|last| &*last.topic == name);
        let topic = last.map_or_else(|| name.into(), |last| Arc::clone(&last.topic));
        facts.push(Fact { topic, what: what(tag, &mut reader)?, made: None });
    }
    Ok(facts)
}

fn what(tag: u8, reader: &mut Reader<'_>) -> Result<TopicChange, Malformed> {
    Ok(match tag {
        GROUP_MADE => {
            let (group, life) = (reader.text()?, reader.number_u32()?);
            TopicChange::GroupMade { group, life, start: reader.number()?, ttl: reader.ttl()? }
        }
        GROUP_ENDED => TopicChange::GroupEnded { group: reader.text()?, end: reader.number()? },
        SETTLED => {
            let (group, start, len) = (reader.text()?, reader.number()?, reader.number()?);
            TopicChange::Settled { group, frames: start..start.checked_add(len).ok_or(Malformed::Content)? }
        }
        DROPPED => TopicChange::Dropped { offset: reader.number()? },
        _ => return Err(Malformed::Content),
    })
}
