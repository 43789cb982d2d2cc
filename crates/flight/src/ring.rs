//! The ring: a log whose oldest segments go.
//!
//! | kind | payload |
//! |---|---|
//! | 1 to 3 | rows of `gpu_events`, `system_events`, `gpu_processes`: `first_ns i64 \| last_ns i64`, then the batch (`gpuvitals_core::wire::pack`) |
//! | 16 | a trigger that begins an incident, as JSON: [`RingTrigger`] |
//! | 17 | the id of an incident that is written |
//! | 18 | nothing: the agent ended, and knew it |
//! | 19 | lines of the kernel: `first_ns i64 \| last_ns i64`, then a list of [`FlightLine`] as JSON |
//!
//! Integers are little-endian. Every record is synced before it counts, so that what [`Ring::append`] has taken outlives a power cut.

use std::collections::BTreeMap;

use bytes::Bytes;
use gpuvitals_core::wire::{pack, unpack};
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::{Disk, Durability, Log, LogConfig, Record, Recovery, SegmentStats};
use serde::{Deserialize, Serialize};

use crate::error::FlightError;
use crate::line::FlightLine;
use crate::trigger::FlightTrigger;

/// Bytes of a segment: at one sample a second the rows of 8 GPUs fill some in ten minutes.
const SEGMENT_LEN: u32 = 2 << 20;
/// Bytes of all segments, in whole ones: with the one that is being filled and the one that is made in advance the ring takes 64 MiB
/// at most. At high rates the oldest rows go before their time.
const WHOLE_SEGMENTS: u64 = 30;
/// Most segments: those of an agent that starts again and again are small.
const SEGMENTS_MAX: usize = 1_000;
/// The tables whose rows it holds. The place in this list is one less than the kind of their records.
pub(crate) const TABLES: [Table; 3] = [Table::GpuEvents, Table::SystemEvents, Table::GpuProcesses];
const TRIGGER: u8 = 16;
const WRITTEN: u8 = 17;
const ENDED: u8 = 18;
const LINES: u8 = 19;
/// Bytes of the times before the rows.
const TIMES_LEN: usize = 16;
/// Most lines in a record; one is at most 1 KiB, some more as JSON.
const LINES_MAX: usize = 64;
/// Tries to read a ring whose agent removes old rows meanwhile.
const TRIES: u32 = 3;

/// A trigger of the ring, with the id of the incident that it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RingTrigger {
    pub(crate) id: String,
    pub(crate) trigger: FlightTrigger,
}

/// What a ring holds of the time before it was opened.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Before {
    /// Triggers whose incident is not written.
    pub(crate) pending: Vec<RingTrigger>,
    /// The newest row of an agent that ended without noting it, nanoseconds UTC.
    pub(crate) cut_ns: Option<i64>,
}

/// An open ring.
#[derive(Debug)]
pub(crate) struct Ring {
    log: Log,
    keep_ns: i64,
    /// Bytes of a whole segment.
    segment_len: u64,
    /// By the base of a segment the time of its newest row or trigger, nanoseconds UTC.
    newest: BTreeMap<u64, i64>,
}

/// The limits of a ring's log.
pub(crate) fn config() -> LogConfig {
    LogConfig { segment_len: SEGMENT_LEN, ..LogConfig::default() }
}

impl Ring {
    /// Opens it, and gives what was before. It keeps rows for at least `keep_ns`, if they are not too many.
    ///
    /// # Errors
    /// If the disk cannot be read or synced.
    pub(crate) fn open(
        disk: impl Disk,
        keep_ns: i64,
        config: LogConfig,
    ) -> Result<(Self, Before), FlightError> {
        let segment_len = u64::from(config.segment_len);
        let (log, recovery) = Log::open(disk, config)?;
        for damage in &recovery.damage {
            tracing::warn!(%damage, "the ring of the flight recorder has lost rows");
        }
        let (mut newest, mut before) = (BTreeMap::new(), Before::default());
        for record in recovery {
            let record = record?;
            let segment = record.place.segment();
            match record.kind {
                TRIGGER => {
                    follow(&mut before.pending, &record);
                    let at_ns = before.pending.last().map_or(i64::MIN, |begun| begun.trigger.at_ns);
                    note(&mut newest, segment, at_ns);
                }
                WRITTEN => follow(&mut before.pending, &record),
                ENDED => before.cut_ns = None,
                _ => {
                    // Rows, and what lies beside them: they begin with their times.
                    let last_ns = times(&record.payload).map(|(_, last_ns)| last_ns);
                    note(&mut newest, segment, last_ns.unwrap_or(i64::MIN));
                    before.cut_ns = before.cut_ns.max(last_row(&record));
                }
            }
        }
        Ok((Self { log, keep_ns, segment_len, newest }, before))
    }

    /// Appends rows of one table; when this returns they outlive a power cut. Rows of other tables are left out.
    ///
    /// # Errors
    /// If they cannot be written; the ring is as it was then.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), FlightError> {
        let Some(kind) = kind_of(batch.table()) else { return Ok(()) };
        let first_ns = batch.timestamps().iter().min().copied().unwrap_or_default();
        let last_ns = batch.timestamps().iter().max().copied().unwrap_or_default();
        let mut payload = begun(first_ns, last_ns, 8 * batch.rows());
        pack(batch, &mut payload)?;
        if payload.len() > self.log.record_len_max() && batch.rows() > 1 {
            // Seldom: thousands of rows at once.
            let half = batch.rows() / 2;
            let keep =
                |is_first: bool| (0..batch.rows()).map(|row| (row < half) == is_first).collect::<Vec<_>>();
            let halves = [batch.filter(&keep(true)), batch.filter(&keep(false))];
            return halves.iter().flatten().try_for_each(|half| self.append(half));
        }
        let appended = self.log.append(kind, payload.into(), Durability::Synced).wait()?;
        note(&mut self.newest, appended.place.segment(), last_ns);
        Ok(())
    }

    /// Appends lines of the kernel, as many as a record holds at once; when this returns they outlive a power cut.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn append_lines(&mut self, lines: &[FlightLine]) -> Result<(), FlightError> {
        for some in lines.chunks(LINES_MAX) {
            let first_ns = some.iter().map(|line| line.at_ns).min().unwrap_or_default();
            let last_ns = some.iter().map(|line| line.at_ns).max().unwrap_or_default();
            let mut payload = begun(first_ns, last_ns, 0);
            payload.extend(serde_json::to_vec(some).unwrap_or_default());
            let appended = self.log.append(LINES, payload.into(), Durability::Synced).wait()?;
            note(&mut self.newest, appended.place.segment(), last_ns);
        }
        Ok(())
    }

    /// Notes that an incident begins.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn begin(&mut self, trigger: &RingTrigger) -> Result<(), FlightError> {
        let payload = serde_json::to_vec(trigger).unwrap_or_default();
        let appended = self.log.append(TRIGGER, payload.into(), Durability::Synced).wait()?;
        note(&mut self.newest, appended.place.segment(), trigger.trigger.at_ns);
        Ok(())
    }

    /// Notes that an incident is written.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn end(&self, id: &str) -> Result<(), FlightError> {
        self.log.append(WRITTEN, Bytes::copy_from_slice(id.as_bytes()), Durability::Synced).wait()?;
        Ok(())
    }

    /// Notes that the agent ends: nothing has cut it off.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn note_end(&self) -> Result<(), FlightError> {
        self.log.append(ENDED, Bytes::new(), Durability::Synced).wait()?;
        Ok(())
    }

    /// Removes the segments whose rows are all older than the ring keeps them before this time, and those beyond the most.
    ///
    /// # Errors
    /// If a file cannot be removed; the next call tries again.
    pub(crate) fn trim(&mut self, now_ns: i64) -> Result<(), FlightError> {
        let segments = self.log.segments();
        let oldest_ns = now_ns.saturating_sub(self.keep_ns);
        // Behind the records of a full one there are zeros; a small one was cut behind them when the ring was opened.
        let len = |segment: &SegmentStats| match segment.bytes {
            bytes if bytes > self.segment_len / 2 => bytes.max(self.segment_len),
            bytes => bytes,
        };
        let (mut count, mut bytes) = (segments.len(), segments.iter().map(len).sum::<u64>());
        let bytes_max = WHOLE_SEGMENTS * self.segment_len;
        let mut kept = None;
        for segment in &segments {
            let is_old = self.newest.get(&segment.base).is_none_or(|newest_ns| *newest_ns < oldest_ns);
            let is_too_much = bytes > bytes_max || count > SEGMENTS_MAX;
            let goes = count > 1 && (is_old || is_too_much);
            if !goes {
                break;
            }
            (count, bytes) = (count - 1, bytes.saturating_sub(len(segment)));
            kept = Some(segment.end);
        }
        let Some(kept) = kept else { return Ok(()) };
        self.log.truncate_before(kept)?;
        self.newest.retain(|base, _| *base >= kept);
        Ok(())
    }

    /// Whether it takes nothing any more until it is opened anew.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.log.stats().poisoned
    }

    /// Ends its writing, before it is opened anew.
    pub(crate) fn close(&self) {
        // A poisoned log says no more than that it is one.
        let _poisoned = self.log.close();
    }
}

fn note(newest: &mut BTreeMap<u64, i64>, segment: u64, last_ns: i64) {
    let known = newest.entry(segment).or_insert(last_ns);
    *known = last_ns.max(*known);
}

/// Keeps the triggers whose incident is not written up to date with a record.
fn follow(pending: &mut Vec<RingTrigger>, record: &Record) {
    match record.kind {
        TRIGGER => pending.extend(serde_json::from_slice::<RingTrigger>(&record.payload).ok()),
        WRITTEN => pending.retain(|waiting| waiting.id.as_bytes() != &*record.payload),
        _ => {}
    }
}

/// The triggers of a ring whose incident is not written.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn pending(recovery: Recovery) -> Result<Vec<RingTrigger>, FlightError> {
    let mut pending = Vec::new();
    for record in recovery {
        follow(&mut pending, &record?);
    }
    Ok(pending)
}

/// What comes of reading a ring, again if its agent removes old rows meanwhile.
pub(crate) fn undisturbed<T>(mut read: impl FnMut() -> Result<T, FlightError>) -> Result<T, FlightError> {
    let mut tries = 1;
    loop {
        match read() {
            Err(error) if error.is_moved_on() && tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Whether it holds rows of a table.
pub(crate) fn holds(table: Table) -> bool {
    TABLES.contains(&table)
}

fn kind_of(table: Table) -> Option<u8> {
    let place = TABLES.iter().position(|held| *held == table)?;
    u8::try_from(place + 1).ok()
}

/// The time of the last row of a record, if it holds rows.
fn last_row(record: &Record) -> Option<i64> {
    let holds_rows = (1..=TABLES.len()).contains(&usize::from(record.kind));
    times(&record.payload).filter(|_| holds_rows).map(|(_, last_ns)| last_ns)
}

/// The time of the newest row that a ring has, and the node that it is of, if that is known.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn newest_row(recovery: Recovery) -> Result<Option<(i64, Option<String>)>, FlightError> {
    let mut newest: Option<(i64, Record)> = None;
    for record in recovery {
        let record = record?;
        let Some(at_ns) = last_row(&record) else { continue };
        if newest.as_ref().is_none_or(|(newest_ns, _)| at_ns > *newest_ns) {
            newest = Some((at_ns, record));
        }
    }
    let Some((at_ns, record)) = newest else { return Ok(None) };
    let batch = unpack(record.payload.get(TIMES_LEN..).unwrap_or_default())?;
    Ok(Some((at_ns, batch.identity(0).node().map(str::to_owned))))
}

/// The begin of a record with the times of its first and last row, and room for this many bytes more.
fn begun(first_ns: i64, last_ns: i64, room: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(TIMES_LEN + room);
    payload.extend_from_slice(&first_ns.to_le_bytes());
    payload.extend_from_slice(&last_ns.to_le_bytes());
    payload
}

/// The times of the first and the last row of a record.
fn times(payload: &[u8]) -> Option<(i64, i64)> {
    let (first, rest) = payload.split_first_chunk::<8>()?;
    let last = rest.first_chunk::<8>()?;
    Some((i64::from_le_bytes(*first), i64::from_le_bytes(*last)))
}

/// The rows of a table that a ring has within some time, ends included, in the order they were written.
pub(crate) fn rows(
    recovery: Recovery,
    table: Table,
    (from_ns, to_ns): (i64, i64),
) -> impl Iterator<Item = Result<Batch, FlightError>> {
    recovery.filter_map(move |record| match record {
        Ok(record) if kind_of(table) == Some(record.kind) => within(&record, (from_ns, to_ns)).transpose(),
        Ok(_) => None,
        Err(error) => Some(Err(error.into())),
    })
}

/// What a record holds of some time.
#[derive(Debug)]
pub(crate) enum RingItem {
    /// Rows of a table.
    Rows(Batch),
    /// Lines of the kernel.
    Lines(Vec<FlightLine>),
}

/// What a record holds of some time, ends included; none: nothing.
///
/// # Errors
/// If its rows cannot be read.
pub(crate) fn item(record: &Record, span: (i64, i64)) -> Result<Option<RingItem>, FlightError> {
    Ok(match record.kind {
        LINES => Some(RingItem::Lines(lines(record, span))),
        _ if last_row(record).is_some() => within(record, span)?.map(RingItem::Rows),
        _ => None,
    })
}

/// The lines of a record within some time.
fn lines(record: &Record, (from_ns, to_ns): (i64, i64)) -> Vec<FlightLine> {
    let is_apart = |(first_ns, last_ns): (i64, i64)| last_ns < from_ns || first_ns > to_ns;
    if times(&record.payload).is_none_or(is_apart) {
        return Vec::new();
    }
    let text = record.payload.get(TIMES_LEN..).unwrap_or_default();
    // A record that another version has written is no reason to lose the incident.
    let mut lines: Vec<FlightLine> = serde_json::from_slice(text).unwrap_or_default();
    lines.retain(|line| (from_ns..=to_ns).contains(&line.at_ns));
    lines
}

/// The rows of a record within some time; none if there is none.
fn within(record: &Record, (from_ns, to_ns): (i64, i64)) -> Result<Option<Batch>, FlightError> {
    let Some((first_ns, last_ns)) = times(&record.payload) else { return Ok(None) };
    if last_ns < from_ns || first_ns > to_ns {
        return Ok(None);
    }
    let batch = unpack(record.payload.get(TIMES_LEN..).unwrap_or_default())?;
    if first_ns >= from_ns && last_ns <= to_ns {
        return Ok(Some(batch));
    }
    let keep: Vec<bool> = batch.timestamps().iter().map(|at_ns| (from_ns..=to_ns).contains(at_ns)).collect();
    Ok(batch.filter(&keep))
}

#[cfg(test)]
mod tests;
