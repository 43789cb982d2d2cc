//! Facts as a record: a version byte, then one fact after the other: what it is, the topic's name, its fields.

use std::sync::Arc;

use super::bytes::{Malformed, Reader, put_number, put_text, put_ttl};
use crate::broker::{Fact, What};

const VERSION: u8 = 2;

const GROUP_MADE: u8 = 1;
const GROUP_ENDED: u8 = 2;
const SETTLED: u8 = 3;
const FAILED: u8 = 4;
const DROPPED: u8 = 5;

/// Facts as records of about `len_max` bytes at most; a single larger fact is a record of its own.
pub(super) fn encode_facts(facts: &[Fact], len_max: usize) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut record = vec![VERSION];
    let mut fact_bytes = Vec::new();
    for fact in facts {
        fact_bytes.clear();
        put_fact(&mut fact_bytes, fact);
        if record.len() > 1 && record.len() + fact_bytes.len() > len_max {
            records.push(std::mem::replace(&mut record, vec![VERSION]));
        }
        record.extend_from_slice(&fact_bytes);
    }
    records.push(record);
    records
}

fn put_fact(out: &mut Vec<u8>, Fact { topic, what }: &Fact) {
    let mut begin = |tag: u8, group: Option<&str>| {
        out.push(tag);
        put_text(out, topic);
        if let Some(group) = group {
            put_text(out, group);
        }
    };
    match what {
        What::GroupMade { group, is_new, start, ttl } => {
            begin(GROUP_MADE, Some(group));
            out.push(u8::from(*is_new));
            put_number(out, *start);
            put_ttl(out, *ttl);
        }
        What::GroupEnded { group } => begin(GROUP_ENDED, Some(group)),
        What::Settled { group, frames } => {
            begin(SETTLED, Some(group));
            put_number(out, frames.start);
            put_number(out, frames.end.saturating_sub(frames.start));
        }
        What::Failed { group, offset, failures } => {
            begin(FAILED, Some(group));
            put_number(out, *offset);
            put_number(out, u64::from(*failures));
        }
        What::Dropped { offset } => {
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
        facts.push(Fact { topic, what: what(tag, &mut reader)? });
    }
    Ok(facts)
}

fn what(tag: u8, reader: &mut Reader<'_>) -> Result<What, Malformed> {
    Ok(match tag {
        GROUP_MADE => {
            let (group, is_new) = (reader.text()?, reader.byte()? == 1);
            What::GroupMade { group, is_new, start: reader.number()?, ttl: reader.ttl()? }
        }
        GROUP_ENDED => What::GroupEnded { group: reader.text()? },
        SETTLED => {
            let (group, start, len) = (reader.text()?, reader.number()?, reader.number()?);
            What::Settled { group, frames: start..start.checked_add(len).ok_or(Malformed::Content)? }
        }
        FAILED => {
            What::Failed { group: reader.text()?, offset: reader.number()?, failures: reader.number_u32()? }
        }
        DROPPED => What::Dropped { offset: reader.number()? },
        _ => return Err(Malformed::Content),
    })
}
