//! Records that the next frames of their producers refer to, instead of saying topic and id again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_log::{Place, Shorter};

use super::frame_record::{Defined, encode_reference};
use crate::broker::TopicId;
use crate::frame::{Frame, Millis, ProducerStamp};

/// After so many references a frame is written with all its names, for the next ones. Those that are under way meanwhile still
/// refer to the old one, up to twice as many: so many frames are unreadable if one record is damaged.
const REFERENCES: u32 = 256;

/// Most producers that are remembered.
const DEFINERS_MAX: usize = 4_096;

/// A frame that was handed to the log with all its names.
#[derive(Debug, Clone)]
pub(crate) struct Handed {
    offset: u64,
    at: Millis,
    stamp: Option<ProducerStamp>,
    /// Bytes of its record with all its names.
    len: usize,
}

impl Handed {
    /// None for a dead letter: they are rare, and each comes from another producer.
    pub(crate) fn new(frame: &Frame, offset: u64, at: Millis, head_len: usize) -> Option<Self> {
        frame.dead.is_none().then(|| Self {
            offset,
            at,
            stamp: frame.producer.clone(),
            len: head_len + frame.payload.len(),
        })
    }
}

#[derive(Debug)]
struct Definer {
    place: Place,
    /// The topic is known by its number.
    defined: Defined<()>,
    references: u32,
}

/// For each topic and producer the record to refer to.
#[derive(Debug, Default)]
pub(crate) struct Definers(HashMap<(TopicId, Option<Arc<str>>), Definer, foldhash::fast::RandomState>);

impl Definers {
    /// The shorter head of a frame's record, where it stands in the segment of a record that it can refer to.
    pub(crate) fn shorter(
        &mut self,
        topic: TopicId,
        frame: &Frame,
        offset: u64,
        at: Millis,
    ) -> Option<Shorter> {
        if frame.dead.is_some() {
            return None;
        }
        let key = (topic, frame.producer.as_ref().map(|stamp| Arc::clone(&stamp.id)));
        let definer = self.0.get_mut(&key)?;
        definer.references += 1;
        if definer.references == REFERENCES || definer.references > 2 * REFERENCES {
            return None;
        }
        let part = encode_reference(frame, offset, at, (definer.place, &definer.defined))?;
        Some(Shorter { segment: definer.place.segment(), part: Bytes::from(part) })
    }

    /// The record stands there: if it has its names, the next ones may refer to it.
    pub(super) fn landed(&mut self, topic: TopicId, handed: Handed, place: Place) {
        if place.payload_len() != handed.len {
            return;
        }
        let key = (topic, handed.stamp.as_ref().map(|stamp| Arc::clone(&stamp.id)));
        if self.0.get(&key).is_some_and(|known| known.place > place) {
            return;
        }
        if self.0.len() >= DEFINERS_MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, definer| definer.place.segment() == place.segment());
            if self.0.len() >= DEFINERS_MAX {
                return;
            }
        }
        let defined = Defined { topic: (), offset: handed.offset, at: handed.at, stamp: handed.stamp };
        self.0.insert(key, Definer { place, defined, references: 0 });
    }
}
