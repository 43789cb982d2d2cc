//! From a log to a broker.

use std::collections::HashMap;

use gpuvitals_core::quantity::counted;
use gpuvitals_log::{Disk, Log, LogConfig, Record, Recovery};

use super::bytes::Malformed;
use super::checkpoint::decode_state;
use super::fact_record::decode_facts;
use super::frame_record::{Defined, FrameRecord};
use super::keeper::Keeper;
use super::kinds::{CHECKPOINT, FACTS, FRAME, MOVED, OpenError, Opened};
use crate::broker::{Broker, JournalRecord};
use crate::config::QueueConfig;
use crate::frame::Millis;

/// What recovery found, and goes on with.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) log: Log,
    pub(crate) broker: Broker,
    pub(crate) opened: Opened,
    pub(crate) keeper: Keeper,
}

/// Opens a log and reads it once, from the start to the end. Blocks on the disk. Below `noted_end` every record was durable.
///
/// # Errors
///
/// If it cannot be opened or read, or was written by a later version. Damage is no error.
pub(crate) fn recover(
    disk: impl Disk,
    config: &QueueConfig,
    now: Millis,
    noted_end: u64,
) -> Result<Recovered, OpenError> {
    let log_config = LogConfig {
        segment_len: config.segment_len,
        fill_len: LogConfig::default().fill_len.min(config.segment_len),
        spares: config.spare_segments,
        queue_len_max: config.unwritten_max,
        ..LogConfig::default()
    };
    let (log, mut recovery) = Log::open(disk, log_config)?;
    let mut replay = Replay {
        broker: Broker::beside_log(config.clone(), now),
        sequences: recovery.next_sequence,
        newest_segment: 0,
        defined: HashMap::default(),
        unreadable: Vec::new(),
        dangling: 0,
    };
    for record in recovery.by_ref() {
        replay.record(&record?)?;
    }
    let Replay { mut broker, newest_segment, unreadable, dangling, .. } = replay;
    let found = broker.begin();
    let mut opened = report(&recovery, &unreadable);
    if dangling > 0 {
        opened.damage.push(format!(
            "the names of topic and producer of {} stood in one that cannot be read: those that were held are gone",
            counted(dangling, "record")
        ));
    }
    (opened.frames, opened.messages, opened.dead_letters) =
        (found.frames, found.messages, found.dead_letters);
    let beyond = noted_end.saturating_sub(recovery.next_sequence);
    if beyond > 0 {
        opened.damage.push(format!(
            "the end of the log is gone, with {} that were stored: its newest segment was removed, or the directory is \
             an older copy",
            counted(beyond, "record")
        ));
    }
    if found.missing > 0 {
        opened.damage.push(format!("{} frames were known and are gone", found.missing));
    }
    let mut keeper = Keeper::new(config, newest_segment, opened.damage.clone());
    keeper.first_checkpoint(&log, &broker);
    Ok(Recovered { log, broker, opened, keeper })
}

struct Replay {
    broker: Broker,
    /// More than the records that the log can hold.
    sequences: u64,
    newest_segment: u64,
    /// What the records of this segment define, with their length, by where they stand in it.
    defined: HashMap<u32, (u32, Defined), foldhash::fast::RandomState>,
    /// Records that are whole and make no sense.
    unreadable: Vec<u64>,
    /// Frames that refer to a record that cannot be read.
    dangling: u64,
}

impl Replay {
    fn record(&mut self, record: &Record) -> Result<(), OpenError> {
        let sequence = record.sequence;
        if self.newest_segment != record.place.segment() {
            self.newest_segment = record.place.segment();
            self.defined.clear();
        }
        match self.understand(record) {
            Ok(()) => Ok(()),
            Err(Malformed::Version(version)) => Err(OpenError::Version { sequence, version }),
            Err(Malformed::Content) => {
                self.unreadable.push(sequence);
                Ok(())
            }
        }
    }

    fn understand(&mut self, record: &Record) -> Result<(), Malformed> {
        let bytes = &record.payload;
        match record.kind {
            FRAME | MOVED => {
                let refers = FrameRecord::refers_to(bytes)?;
                let of = refers.and_then(|(offset, len)| {
                    let (found, defined) = self.defined.get(&offset)?;
                    (*found == len).then_some(defined)
                });
                if refers.is_some() && of.is_none() {
                    self.dangling += 1;
                    return Ok(());
                }
                let read = FrameRecord::decode(bytes, of)?;
                let kept = refers.is_none().then(|| read.defined.kept());
                let (count, cost) = (read.count, read.cost_bytes(bytes.len()));
                let frame = read.defined;
                let stamp = frame.stamp.as_ref().map(|stamp| (&*stamp.id, stamp.sequence));
                self.broker.apply(JournalRecord::Frame {
                    topic: frame.topic,
                    offset: frame.offset,
                    place: record.place,
                    count,
                    cost,
                    at: frame.at,
                    stamp: stamp.filter(|_| record.kind == FRAME),
                });
                let at = (u32::try_from(record.place.offset()), u32::try_from(record.place.payload_len()));
                if let (Some(kept), (Ok(offset), Ok(len))) = (kept, at) {
                    self.defined.insert(offset, (len, kept));
                }
            }
            FACTS => {
                for fact in decode_facts(bytes)? {
                    self.broker.apply(JournalRecord::Fact(fact));
                }
            }
            CHECKPOINT => self.broker.apply(decode_state(bytes, self.sequences)?),
            _ => return Err(Malformed::Content),
        }
        Ok(())
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
