//! Spare segments: files of a segment's whole length, zero-filled and synced in the background.
//!
//! A log that rolls onto a spare writes to allocated blocks: neither the roll nor the appends after it extend
//! a file. Spares come from segments that were truncated away, or are created if there is none when half of
//! the current segment is written. A file is called `.zeroing` until its zeros are durable and `.spare` from
//! then on, so that its name is right at every power cut.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::LogConfig;
use crate::disk::{Disk, DiskFile, Join, write_zeros};
use crate::format::{SPARE_EXTENSION, ZEROING_EXTENSION};

/// Bytes zeroed between two checks of whether to continue. Synced one by one, so that a sync of records never
/// waits for more than this.
const PIECE_LEN: u64 = 128 << 10;

/// The spares, shared with the background.
#[derive(Default)]
pub(crate) struct Stock(Mutex<StockState>);

#[derive(Default)]
struct StockState {
    /// Names of the files.
    ready: VecDeque<String>,
    /// A file is being zeroed.
    is_zeroing: bool,
    /// Zeroing failed (a full disk): not tried again before something changes.
    failed: bool,
    /// The log ends: nothing new is started.
    closed: bool,
}

impl Stock {
    fn lock(&self) -> MutexGuard<'_, StockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ready(&self) -> usize {
        self.lock().ready.len()
    }
}

/// The writer's side.
pub(crate) struct Spares {
    disk: Arc<dyn Disk>,
    stock: Arc<Stock>,
    max: usize,
    len: u64,
    /// Files that hold old records and wait to be zeroed.
    used: VecDeque<String>,
    join: Option<Join>,
}

impl Spares {
    /// Takes over the spares found; those beyond the wanted number are removed.
    pub(crate) fn new(disk: Arc<dyn Disk>, config: &LogConfig, found: Vec<String>) -> Self {
        let max = config.spares as usize;
        for name in found.iter().skip(max) {
            disk.remove(name).ok(); // or the next opening does it
        }
        let ready = found.into_iter().take(max).collect();
        let stock = Arc::new(Stock(Mutex::new(StockState { ready, ..StockState::default() })));
        Self { disk, stock, max, len: u64::from(config.segment_len), used: VecDeque::new(), join: None }
    }

    pub(crate) fn stock(&self) -> Arc<Stock> {
        Arc::clone(&self.stock)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stock.ready() > 0
    }

    /// A spare, open, with its name.
    pub(crate) fn take(&mut self) -> Option<(String, Box<dyn DiskFile>)> {
        loop {
            let mut state = self.stock.lock();
            state.failed = false;
            let name = state.ready.pop_front()?;
            drop(state);
            match self.disk.open(&name) {
                Ok(file) if file.size().is_ok_and(|size| size == self.len) => return Some((name, file)),
                // Of another length of segments, or unreadable.
                _ => self.disk.remove(&name).ok(),
            };
        }
    }

    /// Whether a removed segment should become a spare.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_missing(&self.stock.lock())
    }

    fn is_missing(&self, state: &StockState) -> bool {
        state.ready.len() + usize::from(state.is_zeroing) + self.used.len() < self.max
    }

    /// Takes a segment instead of removing it. [`Spares::tend`] zeroes it, and must be called only when the
    /// directory is synced: until then a crash may give the segment its name back.
    pub(crate) fn recycle(&mut self, segment: &str) -> io::Result<()> {
        let name = new_name();
        self.disk.rename(segment, &name)?;
        self.used.push_back(name);
        self.stock.lock().failed = false;
        Ok(())
    }

    /// Starts making a spare if one is missing: from a used segment, or, if `needed_soon`, as a new file.
    pub(crate) fn tend(&mut self, needed_soon: bool) {
        let stock = Arc::clone(&self.stock);
        let mut state = stock.lock();
        if state.is_zeroing || state.failed || state.closed {
            return;
        }
        let (name, is_new) = match self.used.pop_front() {
            Some(name) => (name, false),
            None if needed_soon && self.is_missing(&state) => (new_name(), true),
            None => return,
        };
        state.is_zeroing = true;
        drop(state);
        if let Some(join) = self.join.take() {
            join(); // it has ended
        }
        let mut zeroing = Zeroing {
            disk: Arc::clone(&self.disk),
            stock: Arc::clone(&stock),
            name,
            is_new,
            len: self.len,
            zeroed: 0,
            file: None,
        };
        self.join = self.disk.in_background(Box::new(move || zeroing.step())).ok();
        if self.join.is_none() {
            let mut state = stock.lock();
            (state.is_zeroing, state.failed) = (false, true); // the next opening removes the file
        }
    }

    /// Starts nothing new; work in progress ends soon.
    pub(crate) fn close(&self) {
        self.stock.lock().closed = true;
    }

    /// [`Spares::close`] that waits for that end.
    pub(crate) fn end(&mut self) {
        self.close();
        if let Some(join) = self.join.take() {
            join();
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.end();
    }
}

/// A file that is becoming a spare.
struct Zeroing {
    disk: Arc<dyn Disk>,
    stock: Arc<Stock>,
    name: String,
    is_new: bool,
    len: u64,
    zeroed: u64,
    file: Option<Box<dyn DiskFile>>,
}

impl Zeroing {
    /// Zeroes a piece, and returns whether more is left.
    fn step(&mut self) -> bool {
        if self.stock.lock().closed {
            return false; // the next opening removes the file
        }
        let spare = match self.go_on() {
            Ok(None) => return true,
            Ok(Some(spare)) => Some(spare),
            Err(_) => {
                self.disk.remove(&self.name).ok(); // as above
                None
            }
        };
        let mut state = self.stock.lock();
        state.failed = spare.is_none();
        state.ready.extend(spare);
        state.is_zeroing = false;
        false
    }

    /// The spare's name when it is ready.
    fn go_on(&mut self) -> io::Result<Option<String>> {
        let Some(file) = &self.file else {
            let file =
                if self.is_new { self.disk.create(&self.name)? } else { self.disk.open(&self.name)? };
            if file.size()? > self.len {
                file.set_len(self.len)?;
            }
            self.file = Some(file);
            return Ok(None);
        };
        if self.zeroed < self.len {
            let until = (self.zeroed + PIECE_LEN.min(self.len.div_ceil(4))).min(self.len);
            write_zeros(&**file, self.zeroed, until)?;
            file.sync_data()?;
            self.zeroed = until;
            return Ok(None);
        }
        let spare = self.name.replace(ZEROING_EXTENSION, SPARE_EXTENSION);
        self.disk.rename(&self.name, &spare)?;
        Ok(Some(spare))
    }
}

/// Names are random: one that was used before may reappear on the disk after a crash.
fn new_name() -> String {
    format!("{:016x}{ZEROING_EXTENSION}", RandomState::new().build_hasher().finish())
}
