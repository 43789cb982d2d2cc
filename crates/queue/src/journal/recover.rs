//! From a log to a broker.

use gpuvitals_core::quantity::counted;
use gpuvitals_log::{Disk, Log, LogConfig, Record, Recovery};

use super::bytes::Malformed;
use super::checkpoint::decode_state;
use super::fact_record::decode_facts;
use super::frame_record::FrameRecord;
use super::keeper::Keeper;
use super::{CHECKPOINT, FACTS, FRAME, MOVED, OpenError, Opened};
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
        unreadable: Vec::new(),
    };
    for record in recovery.by_ref() {
        replay.record(&record?)?;
    }
    let Replay { mut broker, newest_segment, unreadable, .. } = replay;
    let found = broker.begin();
    let mut opened = report(&recovery, &unreadable);
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
    /// Records that are whole and make no sense.
    unreadable: Vec<u64>,
}

impl Replay {
    fn record(&mut self, record: &Record) -> Result<(), OpenError> {
        let sequence = record.sequence;
        self.newest_segment = record.place.segment();
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
                let frame = FrameRecord::decode(bytes)?;
                let stamp = frame.stamp.as_ref().map(|stamp| (&*stamp.id, stamp.sequence));
                self.broker.apply(JournalRecord::Frame {
                    topic: frame.topic,
                    offset: frame.offset,
                    place: record.place,
                    count: frame.count,
                    cost: frame.cost_bytes(bytes.len()),
                    at: frame.at,
                    stamp: stamp.filter(|_| record.kind == FRAME),
                });
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
