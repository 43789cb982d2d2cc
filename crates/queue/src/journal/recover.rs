//! From a log to a broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_log::{Disk, Log, LogConfig, Record, Recovery};

use super::bytes::Malformed;
use super::checkpoint::{Completed, Pieces};
use super::fact_record::decode_facts;
use super::frame_record::FrameRecord;
use super::keeper::Keeper;
use super::{CHECKPOINT, FACTS, FRAME, MOVED, OpenError, Opened};
use crate::broker::{Bodies, Body, Broker, Event, HeldImage, Home, Image, Pin};
use crate::config::QueueConfig;
use crate::frame::{Millis, ProducerStamp};

/// What recovery found, and goes on with.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) log: Log,
    pub(crate) broker: Broker,
    pub(crate) opened: Opened,
    pub(crate) keeper: Keeper,
}

/// Opens a log and reads it once, from the start to the end. Blocks on the disk.
///
/// # Errors
///
/// If it cannot be opened or read, or was written by a later version. Damage is no error.
pub(crate) fn recover(disk: impl Disk, config: &QueueConfig, now: Millis) -> Result<Recovered, OpenError> {
    let log_config = LogConfig {
        segment_len: config.segment_len,
        fill_len: LogConfig::default().fill_len.min(config.segment_len),
        spares: config.spare_segments,
        queue_len_max: config.unwritten_max,
        ..LogConfig::default()
    };
    let (log, mut recovery) = Log::open(disk, log_config)?;
    let mut replay = Replay { sequences: recovery.next_sequence, ..Replay::default() };
    for record in recovery.by_ref() {
        replay.record(&record?, config)?;
    }
    let restored = Broker::restore(config.clone(), now, replay.image, &replay.bodies);
    let mut opened = report(&recovery, &replay.unreadable);
    opened.frames = restored.frames;
    opened.messages = restored.messages;
    opened.dead_letters = restored.dead_letters;
    if restored.missing > 0 {
        opened.damage.push(format!("{} frames were known and are gone", restored.missing));
    }
    let mut keeper = Keeper::new(config, replay.pins, replay.checkpoint, opened.damage.clone());
    keeper.first_checkpoint(&log, &restored.broker);
    Ok(Recovered { log, broker: restored.broker, opened, keeper })
}

#[derive(Default)]
struct Replay {
    image: Image,
    bodies: Bodies,
    pins: BTreeMap<u64, Arc<Pin>>,
    pieces: Pieces,
    /// What happened since the last checkpoint's head, and frames that were under way then: until its image is there.
    since: Option<Vec<Event>>,
    /// The first sequence of the newest checkpoint.
    checkpoint: Option<u64>,
    /// The last producer seen: its name is shared by its frames.
    producer: Option<Arc<str>>,
    /// More than the records that the log can hold.
    sequences: u64,
    /// Records that are whole and make no sense.
    unreadable: Vec<u64>,
}

impl Replay {
    fn record(&mut self, record: &Record, config: &QueueConfig) -> Result<(), OpenError> {
        let sequence = record.sequence;
        match self.understand(record, config) {
            Ok(()) => Ok(()),
            Err(Malformed::Version(version)) => Err(OpenError::Version { sequence, version }),
            Err(Malformed::Content) => {
                self.unreadable.push(sequence);
                Ok(())
            }
        }
    }

    fn understand(&mut self, record: &Record, config: &QueueConfig) -> Result<(), Malformed> {
        let bytes = &record.payload;
        match record.kind {
            FRAME => {
                let frame = FrameRecord::decode(bytes)?;
                let topic = self.body(record, &frame);
                let sent = frame
                    .stamp
                    .map(|(id, sequence)| (ProducerStamp { id: self.producer_id(id), sequence }, frame.at));
                let held = HeldImage { count: frame.count, sent };
                self.happen(Event::Published { topic, offset: frame.offset, frame: held }, config);
            }
            MOVED => {
                let frame = FrameRecord::decode(bytes)?;
                self.body(record, &frame);
            }
            FACTS => {
                for fact in decode_facts(bytes)? {
                    self.happen(Event::Noted(fact), config);
                }
            }
            CHECKPOINT => match self.pieces.add(record.sequence, bytes, self.sequences)? {
                Some(Completed::Head(decided)) => {
                    let under_way =
                        decided.iter().flat_map(|(topic, offset)| self.image.under_way(topic, *offset));
                    self.since = Some(under_way.collect());
                }
                Some(Completed::Image(first, image)) => {
                    self.checkpoint = Some(first);
                    self.image = image;
                    for event in self.since.take().into_iter().flatten() {
                        self.image.happen(event, config.max_producers);
                    }
                }
                None => {}
            },
            _ => return Err(Malformed::Content),
        }
        Ok(())
    }

    fn happen(&mut self, event: Event, config: &QueueConfig) {
        if let Some(since) = &mut self.since {
            since.push(event.clone());
        }
        self.image.happen(event, config.max_producers);
    }

    /// Notes where a frame's bytes are; answers its topic.
    fn body(&mut self, record: &Record, frame: &FrameRecord<'_>) -> Arc<str> {
        let pin = Arc::clone(self.pins.entry(record.place.segment()).or_default());
        let body = Body {
            home: Home { offset: frame.offset, place: record.place, pin },
            cost: frame.cost_bytes(record.payload.len()),
            published_at: frame.at,
        };
        if let Some((topic, _)) = self.bodies.get_key_value(frame.topic) {
            let topic = Arc::clone(topic);
            self.bodies.entry(Arc::clone(&topic)).or_default().insert(frame.offset, body);
            return topic;
        }
        let topic: Arc<str> = frame.topic.into();
        self.bodies.insert(Arc::clone(&topic), BTreeMap::from([(frame.offset, body)]));
        topic
    }

    fn producer_id(&mut self, id: &str) -> Arc<str> {
        let known = self.producer.take().filter(|known| &**known == id);
        Arc::clone(self.producer.insert(known.unwrap_or_else(|| id.into())))
    }
}

fn report(recovery: &Recovery, unreadable: &[u64]) -> Opened {
    let damage = recovery.damage.iter().map(ToString::to_string);
    let strange = unreadable.iter().map(|sequence| format!("record {sequence} of the log makes no sense"));
    Opened {
        records: recovery.records,
        bytes: recovery.bytes,
        torn: recovery.torn.as_ref().map(ToString::to_string),
        damage: damage.chain(strange).collect(),
        ..Opened::default()
    }
}
