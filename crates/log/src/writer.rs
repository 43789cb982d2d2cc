//! The writer: after recovery only the holder of the turn works on the files. That is the writer's thread, or
//! a caller who would otherwise only wait for it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::board::{Board, WriterCounts};
use crate::config::{Durability, LogConfig};
use crate::disk::{Disk, DiskFile, write_all, write_zeros};
use crate::error::LogError;
use crate::format::{
    DAMAGED_EXTENSION, HEADER_LEN, Header, NEW_EXTENSION, RecordFacts, SEGMENT_EXTENSION, encode_record,
};
use crate::lock::displaced;
use crate::place::{Appended, Place};
use crate::read::Reader;
use crate::recovery::{Resume, Segment};
use crate::spare::{Spares, Stock};
use crate::submit::{Append, Group, Shared, Turn, Work};

/// A larger encode buffer is freed, so that one large record does not pin its memory.
const BUFFER_LEN_KEPT: usize = 8 << 20;

/// The segment being written.
struct CurrentSegment {
    file: Box<dyn DiskFile>,
    segment: Segment,
    seed: u32,
    /// Everything from the last record to here is already zero.
    filled: u64,
    /// Off after filling failed: the rest of the disk is for records.
    filling: bool,
    /// Its first records are noted as stored: without it, the next opening tells that they are gone.
    noted: bool,
}

pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    config: LogConfig,
    shared: Arc<Shared>,
    board: Arc<Board>,
    reader: Arc<Reader>,
    spares: Spares,
    sealed: VecDeque<Segment>,
    current: Option<CurrentSegment>,
    /// Sequence at which everything so far ended; differs from `next` only before the first segment is made.
    follows: u64,
    next: u64,
    /// Everything below is synced.
    durable: u64,
    buffer: Vec<u8>,
    /// Places of the records of the last written group.
    appended: Vec<Appended>,
    groups: u64,
    syncs: u64,
    write_failures: u64,
    looks: usize,
}

/// Refuses everything when the writer ends, in whatever way.
struct Exit(Arc<Shared>);

impl Drop for Exit {
    fn drop(&mut self) {
        self.0.fail(&LogError::Closed);
    }
}

/// Works until the log is closed and the queue is empty.
pub(crate) fn run(writer: &Mutex<Writer>) {
    let exit = Exit(lock(writer).shared());
    lock(writer).tend_spares();
    while let Some(turn) = exit.0.turn() {
        lock(writer).work(&turn);
    }
    lock(writer).end();
}

pub(crate) fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(crate) fn new(disk: Arc<dyn Disk>, config: LogConfig, resume: Resume) -> Self {
        let counts = WriterCounts { next_sequence: resume.base, ..WriterCounts::default() };
        let board = Arc::new(Board::new(resume.segments.iter().map(Segment::stats), counts));
        Self {
            reader: Arc::new(Reader::new(Arc::clone(&disk), Arc::clone(&board))),
            spares: Spares::new(Arc::clone(&disk), &config, resume.spares),
            disk,
            shared: Shared::new(&config),
            board,
            config,
            sealed: resume.segments,
            current: None,
            follows: resume.follows,
            next: resume.base,
            durable: resume.base,
            buffer: Vec::new(),
            appended: Vec::new(),
            groups: 0,
            syncs: 0,
            write_failures: 0,
            looks: 0,
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    pub(crate) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    pub(crate) fn reader(&self) -> Arc<Reader> {
        Arc::clone(&self.reader)
    }

    pub(crate) fn stock(&self) -> Arc<Stock> {
        self.spares.stock()
    }

    /// Commits the waiting records, if they fit into the current segment.
    pub(crate) fn commit_within(&mut self, turn: &Turn<'_>, size: usize) {
        let room = self.room();
        // Slow work is not for callers.
        if size > room || self.current.as_ref().is_none_or(|current| current.is_beyond_zeros(size)) {
            return;
        }
        if let Some(Work::Group(group)) = turn.take(room, room, size) {
            self.commit(group);
        }
    }

    /// Does all waiting work.
    fn work(&mut self, turn: &Turn<'_>) {
        let capacity = self.config.segment_len as usize - HEADER_LEN;
        let group_max = self.config.group_len_max as usize;
        while let Some(work) = turn.take(self.room(), capacity, group_max) {
            match work {
                Work::Group(group) => self.commit(group),
                Work::TruncateBefore(sequence, done) => {
                    let removed = self.truncate_before(sequence);
                    self.show(removed.as_ref().err());
                    done.complete(removed);
                }
                Work::Check(done) => {
                    let checked = self.look();
                    self.show(checked.as_ref().err());
                    done.complete(checked.map(|()| self.durable));
                }
            }
        }
    }

    /// Records that were only written become durable on an orderly end. Nothing touches the files afterwards.
    fn end(&mut self) {
        if self.shared.failure().is_none() {
            let synced = self.sync();
            if synced.is_ok() {
                self.disk.note_end(self.durable);
            }
            self.show(synced.as_ref().err());
        }
        self.spares.end();
    }

    /// Starts making a spare if one is missing and half of the current segment is written.
    fn tend_spares(&mut self) {
        let is_half_full = self.room() <= self.config.segment_len as usize / 2;
        self.spares.tend(is_half_full);
    }

    /// Publishes the counts before any completion is called: a caller that got its answer is included.
    fn show(&mut self, failure: Option<&LogError>) {
        let counts = WriterCounts {
            next_sequence: self.next,
            groups: self.groups,
            syncs: self.syncs,
            write_failures: self.write_failures,
        };
        self.board.show(counts, self.current.as_ref().map(|current| current.segment.stats()));
        if let Some(error @ LogError::Poisoned { .. }) = failure {
            self.spares.close();
            self.shared.fail(error);
        }
        self.tend_spares();
    }

    /// Bytes left in the current segment.
    fn room(&self) -> usize {
        let len = self.current.as_ref().map_or(u64::MAX, |current| current.segment.len);
        usize::try_from(u64::from(self.config.segment_len).saturating_sub(len)).unwrap_or(0)
    }

    fn commit(&mut self, group: Group) {
        let written = self.write(&group.appends);
        self.write_failures += u64::from(written.is_err());
        if written.is_err() || group.appends.iter().any(|append| append.durability == Durability::Written) {
            self.show(written.as_ref().err());
        }
        let mut waiting = Vec::with_capacity(group.appends.len());
        for (at, append) in group.appends.into_iter().enumerate() {
            match (&written, self.appended.get(at)) {
                (Ok(()), Some(appended)) if append.durability == Durability::Synced => {
                    waiting.push((append.done, *appended));
                }
                (Ok(()), Some(appended)) => append.done.complete(Ok(*appended)),
                (Ok(()), None) => {} // one is noted for each that is written
                (Err(error), _) => append.done.complete(Err(error.clone())),
            }
        }
        if waiting.is_empty() && group.barriers.is_empty() {
            return;
        }
        // A group that was rolled back leaves nothing unsynced; a poisoned log cannot be synced any more.
        let synced = match written {
            Err(error @ LogError::Poisoned { .. }) => Err(error),
            _ => self.sync(),
        };
        self.show(synced.as_ref().err());
        for (done, appended) in waiting {
            done.complete(synced.clone().map(|()| appended));
        }
        for done in group.barriers {
            done.complete(synced.clone().map(|()| self.next));
        }
    }

    /// Writes a group's records after the last one, or leaves everything as it was.
    fn write(&mut self, appends: &[Append]) -> Result<(), LogError> {
        let size: usize = appends.iter().map(Append::size).sum();
        if size == 0 {
            return Ok(());
        }
        if size > self.room() || self.current.is_none() {
            self.roll()?;
        }
        let outcome = self.write_here(appends);
        let holds_records = self.current.as_ref().is_some_and(|current| current.segment.records > 0);
        match outcome {
            // If the disk is full, a spare has its space already.
            Err(LogError::Write { .. }) if holds_records && self.spares.is_ready() => {
                self.roll()?;
                self.write_here(appends)
            }
            outcome => outcome,
        }
    }

    /// Writes into the current segment, which has room.
    fn write_here(&mut self, appends: &[Append]) -> Result<(), LogError> {
        let Some(current) = &mut self.current else { return Err(LogError::Closed) };
        current.check()?; // the write would make a file that was cut as long as before
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_LEN_KEPT);
        self.appended.clear();
        let mut sequence = self.next;
        for append in appends {
            let offset = current.segment.len + self.buffer.len() as u64;
            let payload = append.payload_in(current.segment.base);
            let place = Place::new(current.segment.base, offset, payload.iter().map(|part| part.len()).sum());
            self.appended.push(Appended { sequence, place });
            let facts = RecordFacts { kind: append.kind, sequence, durable: self.durable };
            encode_record(&mut self.buffer, current.seed, facts, payload);
            sequence += 1;
        }
        let end = current.segment.len + self.buffer.len() as u64;
        current.fill_after(end, &self.config);
        if let Err(source) = write_all(&*current.file, current.segment.len, &self.buffer) {
            let error = LogError::write("write to", &current.segment.name, source);
            current.roll_back()?;
            self.durable = self.next;
            return Err(error);
        }
        current.segment.len = end;
        current.segment.records += sequence - self.next;
        current.segment.end = sequence;
        self.next = sequence;
        self.follows = sequence;
        self.groups += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogError> {
        if let Some(current) = &mut self.current
            && self.durable < self.next
        {
            let failed = |source| LogError::poisoned("sync", &current.segment.name, source);
            current.file.sync_data().map_err(failed)?;
            self.syncs += 1;
            self.durable = self.next;
            if !std::mem::replace(&mut current.noted, true) {
                self.disk.note_end(self.durable);
            }
        }
        self.check()
    }

    /// What is stored in a directory that is not in its place any more would not be found again.
    fn check(&self) -> Result<(), LogError> {
        self.disk.check().map_err(|source| LogError::poisoned("look for", "its directory", source))
    }

    /// [`Writer::check`], of the segments too, and a note of how far the log goes.
    fn look(&mut self) -> Result<(), LogError> {
        self.check()?;
        if let Some(current) = &self.current {
            current.check()?;
        }
        // A directory that cannot be listed now is no proof that a segment is gone.
        let names: HashSet<String> = self.disk.list().into_iter().flatten().collect();
        let mut segments = self.sealed.iter().chain(self.current.as_ref().map(|current| &current.segment));
        // Nor does a list that lacks a name of a file that can be opened.
        let is_gone = |name: &str| {
            !names.is_empty()
                && !names.contains(name)
                && self.disk.open(name).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        if let Some(gone) = segments.find(|segment| is_gone(&segment.name)) {
            return Err(LogError::poisoned("look for", &gone.name, displaced("its file")));
        }
        self.look_into()?;
        self.disk.note_end(self.durable);
        Ok(())
    }

    /// Looks whether the name of the current segment stands for the file that is written, and whether one of the sealed
    /// segments, another each time, is whole. A file that cannot be opened now proves nothing.
    fn look_into(&mut self) -> Result<(), LogError> {
        if let Some(current) = &self.current
            && let Ok(named) = self.disk.open(&current.segment.name)
            && let (Ok(named), Ok(written)) = (named.identity(), current.file.identity())
            && named != written
        {
            return Err(LogError::poisoned("look for", &current.segment.name, displaced("its file")));
        }
        self.looks = self.looks.wrapping_add(1);
        let turn = self.looks.checked_rem(self.sealed.len()).and_then(|turn| self.sealed.get(turn));
        let Some(sealed) = turn else { return Ok(()) };
        let Ok(file) = self.disk.open(&sealed.name) else { return Ok(()) };
        file.check(sealed.len).map_err(|source| LogError::poisoned("look for", &sealed.name, source))
    }

    /// Seals the current segment and creates the next one.
    fn roll(&mut self) -> Result<(), LogError> {
        self.sync()?;
        let header = Header::new(self.next, self.follows);
        let segment = Segment::new(self.next);
        let (fresh, file, filled) = if let Some((name, file)) = self.spares.take() {
            (name, file, u64::from(self.config.segment_len))
        } else {
            let name = segment.name.replace(SEGMENT_EXTENSION, NEW_EXTENSION);
            let file = self.disk.create(&name).map_err(|source| LogError::write("make", &name, source))?;
            (name, file, HEADER_LEN as u64)
        };
        let failed = |source| LogError::write("make", &fresh, source);
        if let Err(source) = write_all(&*file, 0, &header.encode()) {
            self.disk.remove(&fresh).ok(); // or the next opening does it
            return Err(failed(source));
        }
        file.sync_data().map_err(|source| LogError::poisoned("sync", &fresh, source))?;
        // If it succeeded nevertheless, the new segment hides whatever the old one gets from now on.
        let failed = |source| LogError::poisoned("rename", &fresh, source);
        self.disk.rename(&fresh, &segment.name).map_err(failed)?;
        self.sync_dir()?;
        let current =
            CurrentSegment { file, segment, seed: header.seed(), filled, filling: true, noted: false };
        self.sealed.extend(self.current.replace(current).map(|sealed| sealed.segment));
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), LogError> {
        self.disk.sync_dir().map_err(|source| LogError::poisoned("sync", ".", source))
    }

    /// Removes whole segments below `sequence`, oldest first and each durably before the next, so that a
    /// crash never leaves a hole. The last one stays: it holds the next sequence. Records appended before are
    /// synced first: they may be the reason why the segments are not needed.
    fn truncate_before(&mut self, sequence: u64) -> Result<u64, LogError> {
        let mut removed = 0;
        let goes = |segment: &Segment| segment.end <= sequence;
        if self.sealed.front().is_some_and(goes) {
            self.sync()?;
        }
        while let Some(segment) = self.sealed.front() {
            let is_last = self.sealed.len() == 1 && self.current.is_none();
            if is_last || segment.end > sequence {
                break;
            }
            if segment.keep {
                let aside = segment.name.replace(SEGMENT_EXTENSION, DAMAGED_EXTENSION);
                let failed = |source| LogError::write("set aside", &segment.name, source);
                self.disk.rename(&segment.name, &aside).map_err(failed)?;
            } else if self.spares.is_wanted() {
                let failed = |source| LogError::write("recycle", &segment.name, source);
                self.spares.recycle(&segment.name).map_err(failed)?;
            } else {
                let failed = |source| LogError::write("remove", &segment.name, source);
                self.disk.remove(&segment.name).map_err(failed)?;
            }
            self.board.drop_oldest();
            self.reader.forget(segment.base);
            self.sealed.pop_front();
            removed += 1;
            self.sync_dir()?;
        }
        Ok(removed)
    }
}

impl CurrentSegment {
    /// What is stored in a file that is not in its place, or not whole, would not be found again.
    fn check(&self) -> Result<(), LogError> {
        let failed = |source| LogError::poisoned("look for", &self.segment.name, source);
        self.file.check(self.segment.len).map_err(failed)
    }

    /// Whether `size` more bytes end beyond the zeros.
    fn is_beyond_zeros(&self, size: usize) -> bool {
        self.segment.len + size as u64 > self.filled
    }

    /// Keeps zeros ahead of `end`, the end of the next write. Allocated blocks make a sync cheap; if there is
    /// no room for zeros, records still get the rest.
    fn fill_after(&mut self, end: u64, config: &LogConfig) {
        if !self.filling || end <= self.filled {
            return;
        }
        let until = (end + u64::from(config.fill_len)).min(u64::from(config.segment_len)).max(end);
        match write_zeros(&*self.file, end, until) {
            Ok(()) => self.filled = until,
            Err(_) => self.filling = false,
        }
    }

    /// Removes what a failed write left after the last record, durably.
    fn roll_back(&mut self) -> Result<(), LogError> {
        let failed = |source| LogError::poisoned("roll back", &self.segment.name, source);
        self.file.set_len(self.segment.len).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.filled = self.segment.len;
        Ok(())
    }
}
