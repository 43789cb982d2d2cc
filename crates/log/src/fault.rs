//! A disk in memory that forgets, tears, fails and fills up on command: the twin of [`FsDisk`](crate::FsDisk) for
//! tests, here and in the crates that build on the log.
//!
//! It keeps, per file, the durable contents and the page cache. A crash keeps everything that was synced, and
//! of the rest, sector by sector, any version since: the old bytes, the newest, or one in between. The length
//! and the directory's entries are forgotten in the same way. Equal seeds give equal crashes.
//!
//! Background work runs on no thread: before each call that changes something, the disk takes some of its
//! steps. So it interleaves with its callers' work, call by call, and always in the same way.

mod inode;
mod sector;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use self::inode::{Dice, Inode, Memory};
use crate::disk::{Disk, DiskFile, Join, Step};

pub use sector::SECTOR_LEN;

/// A call of [`Disk`] or [`DiskFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// [`Disk::list`]
    List,
    /// [`Disk::open`]
    Open,
    /// [`Disk::create`]
    Create,
    /// [`Disk::rename`]
    Rename,
    /// [`Disk::remove`]
    Remove,
    /// [`Disk::sync_dir`]
    SyncDir,
    /// [`DiskFile::size`]
    Size,
    /// [`DiskFile::read_at`]
    Read,
    /// [`DiskFile::write_at`]
    Write,
    /// [`DiskFile::set_len`]
    SetLen,
    /// [`DiskFile::sync_data`]
    SyncData,
}

/// The fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails. A write has then written its first half; a sync of data has lost the data it was to sync:
    /// later reads still show it and later syncs succeed, but the next crash loses it (as on Linux).
    Error(io::ErrorKind),
    /// A write writes half and reports so; other calls work.
    Short,
    /// A write writes its first half; then this and all later calls fail, until [`FaultDisk::crash`].
    PowerOff,
}

/// The disk. Clones are handles to the same disk.
#[derive(Debug, Clone, Default)]
pub struct FaultDisk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<DiskState>,
    gate: Condvar,
    background: Mutex<Background>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Queued background work. It is taken out of here while it runs, so that its own calls step nothing.
struct Background {
    works: Vec<(u64, Step)>,
    /// Works added so far.
    count: u64,
    /// Steps of each work before a call.
    pace: u64,
}

impl Default for Background {
    fn default() -> Self {
        Self { works: Vec::new(), count: 0, pace: 1 }
    }
}

#[derive(Debug, Clone, Default)]
struct DiskState {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Directory entries as calls see them.
    entries: BTreeMap<String, u64>,
    durable_entries: BTreeMap<String, u64>,
    unsynced_entries: Vec<EntryChange>,
    /// Counts crashes: a file that was open at one is dead.
    epoch: u64,
    powered_off: bool,
    calls: BTreeMap<Op, u64>,
    planned: Vec<Planned>,
    switched: BTreeMap<Op, io::ErrorKind>,
    capacity: Option<u64>,
    hold_syncs: bool,
    held_syncs: u64,
}

#[derive(Debug, Clone)]
struct Planned {
    op: Option<Op>,
    calls_before: u64,
    fault: Fault,
}

#[derive(Debug, Clone)]
enum EntryChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String, u64),
}

impl FaultDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power and turns it on again: unsynced data is partly forgotten, open files are dead, and
    /// planned faults are cleared. One seed in four forgets everything it may, one in four nothing. Stop the
    /// users of the disk first (their calls fail after [`Fault::PowerOff`]), or they continue on the disk
    /// after the crash.
    pub fn crash(&self, seed: u64) {
        self.background().works.clear();
        self.lock().crash(seed);
        self.0.gate.notify_all();
    }

    /// A second disk: this one as it would be after a crash now. This one is unchanged.
    pub fn crashed(&self, seed: u64) -> Self {
        let mut state = self.lock().clone();
        state.crash(seed);
        Self(Arc::new(Shared { state: Mutex::new(state), ..Shared::default() }))
    }

    fn background(&self) -> MutexGuard<'_, Background> {
        self.0.background.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many steps of work in the background are taken before each call that changes something; 0 holds it.
    /// At first it is 1.
    pub fn set_background_pace(&self, steps: u64) {
        self.background().pace = steps;
    }

    /// Takes steps until there is no work in the background.
    pub fn finish_background(&self) {
        let works = std::mem::take(&mut self.background().works);
        for (_, mut step) in works {
            while step() {}
        }
    }

    fn step_background(&self) {
        let mut background = self.background();
        let (mut works, pace) = (std::mem::take(&mut background.works), background.pace);
        drop(background);
        works.retain_mut(|(_, step)| (0..pace).all(|_| step()));
        self.background().works.append(&mut works);
    }

    /// Plans a fault for the call after the next `calls_before` calls of `op`, or of any kind.
    pub fn fail_call(&self, op: Option<Op>, calls_before: u64, fault: Fault) {
        self.lock().planned.push(Planned { op, calls_before, fault });
    }

    /// Makes all calls of `op` fail, until reset with `None`.
    pub fn fail_all(&self, op: Op, error: Option<io::ErrorKind>) {
        let mut state = self.lock();
        match error {
            Some(error) => state.switched.insert(op, error),
            None => state.switched.remove(&op),
        };
    }

    /// Bounds the sum of all files' lengths; a write beyond it fails with `StorageFull`, after writing what
    /// fits.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Holds all syncs of data from now on, until [`FaultDisk::release_syncs`].
    pub fn hold_syncs(&self) {
        self.lock().hold_syncs = true;
    }

    /// Waits until a sync is held.
    pub fn wait_for_held_sync(&self) {
        let mut state = self.lock();
        while state.held_syncs == 0 {
            state = self.0.gate.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Releases the held syncs.
    pub fn release_syncs(&self) {
        self.lock().hold_syncs = false;
        self.0.gate.notify_all();
    }

    /// Calls of one kind so far, failed ones included.
    pub fn calls(&self, op: Op) -> u64 {
        self.lock().calls.get(&op).copied().unwrap_or(0)
    }

    /// Calls of all kinds so far, failed ones included.
    pub fn calls_all(&self) -> u64 {
        self.lock().calls.values().sum()
    }

    /// Makes reads of one byte return it with the bits of `mask` flipped; 0 ends it. The byte itself is
    /// unchanged.
    pub fn flip_on_read(&self, name: &str, offset: usize, mask: u8) {
        if let Some(inode) = self.lock().inode_named(name) {
            inode.flips.insert(offset, mask);
        }
    }

    /// Makes reads that touch these bytes fail, for good.
    pub fn spoil(&self, name: &str, bytes: Range<usize>) {
        if let Some(inode) = self.lock().inode_named(name) {
            inode.spoilt = bytes;
        }
    }

    /// Overwrites a sector with zeros, for good.
    pub fn zero_sector(&self, name: &str, sector: usize) {
        if let Some(inode) = self.lock().inode_named(name) {
            for bytes in [&mut inode.durable, &mut inode.view] {
                let end = bytes.len().min((sector + 1) * SECTOR_LEN);
                bytes.get_mut(sector * SECTOR_LEN..end).unwrap_or_default().fill(0);
            }
        }
    }

    /// Names of the files. Not a call: it does not fail, and is not counted.
    pub fn names(&self) -> Vec<String> {
        self.lock().entries.keys().cloned().collect()
    }

    /// The whole file as a read sees it, without flips.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().inode_named(name).map(|inode| inode.view.clone())
    }

    /// Puts a file there, durably.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let id = state.add_inode();
        state.inodes.insert(id, Inode { durable: bytes.to_vec(), view: bytes.to_vec(), ..Inode::default() });
        state.entries.insert(name.to_owned(), id);
        state.durable_entries.insert(name.to_owned(), id);
    }

    /// Counts the call, and returns its fault unless that is a plain error.
    fn begin(&self, op: Op) -> io::Result<(MutexGuard<'_, DiskState>, Option<Fault>)> {
        if !matches!(op, Op::List | Op::Open | Op::Size | Op::Read) {
            self.step_background();
        }
        let mut state = self.lock();
        *state.calls.entry(op).or_default() += 1;
        if state.powered_off {
            return Err(io::Error::other("power is off"));
        }
        let fault = state.due(op);
        if fault == Some(Fault::PowerOff) {
            state.powered_off = true;
        }
        match fault {
            Some(_) if matches!(op, Op::Write | Op::SyncData | Op::SyncDir) => Ok((state, fault)),
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::PowerOff) => Err(io::Error::other("power went off")),
            Some(Fault::Short) | None => Ok((state, None)),
        }
    }

    fn handle(&self, state: &DiskState, inode: u64) -> Box<dyn DiskFile> {
        Box::new(FaultFile { disk: self.clone(), inode, epoch: state.epoch })
    }
}

impl Fault {
    fn into_error(self) -> io::Error {
        match self {
            Self::Error(kind) => kind.into(),
            Self::Short | Self::PowerOff => io::Error::other("power went off"),
        }
    }
}

impl DiskState {
    /// The fault planned or switched on for this call.
    fn due(&mut self, op: Op) -> Option<Fault> {
        let mut due = self.switched.get(&op).map(|kind| Fault::Error(*kind));
        self.planned.retain_mut(|planned| {
            if planned.op.is_some_and(|wanted| wanted != op) {
                return true;
            }
            if planned.calls_before == 0 {
                due = Some(planned.fault);
                return false;
            }
            planned.calls_before -= 1;
            true
        });
        due
    }

    fn add_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, Inode::default());
        self.next_inode
    }

    fn inode_named(&mut self, name: &str) -> Option<&mut Inode> {
        self.inodes.get_mut(self.entries.get(name)?)
    }

    /// Bytes left on the disk.
    fn room(&self) -> u64 {
        let used: usize =
            self.entries.values().filter_map(|id| self.inodes.get(id)).map(|inode| inode.view.len()).sum();
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used as u64))
    }

    fn change(&mut self, change: EntryChange) {
        change.apply(&mut self.entries);
        self.unsynced_entries.push(change);
    }

    fn crash(&mut self, seed: u64) {
        let mut dice = Dice(seed);
        let mode = match seed % 4 {
            0 => Memory::Nothing,
            1 => Memory::Everything,
            _ => Memory::Some(dice.below(101)),
        };
        let keeps_prefix = dice.below(2) == 0;
        for change in std::mem::take(&mut self.unsynced_entries) {
            if mode.keeps(&mut dice) {
                change.apply(&mut self.durable_entries);
            } else if keeps_prefix {
                break;
            }
        }
        self.entries = self.durable_entries.clone();
        let linked: Vec<u64> = self.entries.values().copied().collect();
        self.inodes.retain(|id, _| linked.contains(id));
        for inode in self.inodes.values_mut() {
            inode.crash(mode, &mut dice);
        }
        self.epoch += 1;
        self.powered_off = false;
        self.planned.clear();
        self.switched.clear();
        self.hold_syncs = false;
    }
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<String, u64>) {
        match self {
            Self::Link(name, inode) => {
                entries.insert(name.clone(), *inode);
            }
            Self::Unlink(name) => {
                entries.remove(name);
            }
            Self::Rename(from, to, inode) => {
                entries.remove(from);
                entries.insert(to.clone(), *inode);
            }
        }
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name.to_owned())
}

impl Disk for FaultDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let (state, _) = self.begin(Op::List)?;
        Ok(state.entries.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (state, _) = self.begin(Op::Open)?;
        let inode = *state.entries.get(name).ok_or_else(|| not_found(name))?;
        Ok(self.handle(&state, inode))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (mut state, _) = self.begin(Op::Create)?;
        let id = if let Some(id) = state.entries.get(name) {
            *id
        } else {
            let id = state.add_inode();
            state.change(EntryChange::Link(name.to_owned(), id));
            id
        };
        if let Some(inode) = state.inodes.get_mut(&id) {
            inode.set_len(0);
        }
        Ok(self.handle(&state, id))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, _) = self.begin(Op::Rename)?;
        let inode = *state.entries.get(from).ok_or_else(|| not_found(from))?;
        state.change(EntryChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, _) = self.begin(Op::Remove)?;
        if !state.entries.contains_key(name) {
            return Err(not_found(name));
        }
        state.change(EntryChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let (mut state, fault) = self.begin(Op::SyncDir)?;
        if let Some(fault) = fault.filter(|fault| *fault != Fault::Short) {
            return Err(fault.into_error());
        }
        let mut durable = std::mem::take(&mut state.durable_entries);
        for change in state.unsynced_entries.drain(..) {
            change.apply(&mut durable);
        }
        state.durable_entries = durable;
        Ok(())
    }

    fn in_background(&self, step: Step) -> io::Result<Join> {
        let mut background = self.background();
        background.count += 1;
        let work = background.count;
        background.works.push((work, step));
        let disk = self.clone();
        Ok(Box::new(move || {
            let found = disk.background().works.extract_if(.., |(found, _)| *found == work).next();
            if let Some((_, mut step)) = found {
                while step() {}
            }
        }))
    }
}

#[derive(Debug)]
struct FaultFile {
    disk: FaultDisk,
    inode: u64,
    epoch: u64,
}

impl FaultFile {
    fn inode<'a>(&self, state: &'a mut DiskState) -> io::Result<&'a mut Inode> {
        if state.epoch != self.epoch {
            return Err(io::Error::other("file was opened before a crash"));
        }
        state.inodes.get_mut(&self.inode).ok_or_else(|| not_found("removed before a crash"))
    }
}

impl DiskFile for FaultFile {
    fn size(&self) -> io::Result<u64> {
        let (mut state, _) = self.disk.begin(Op::Size)?;
        Ok(self.inode(&mut state)?.view.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut state, _) = self.disk.begin(Op::Read)?;
        let inode = self.inode(&mut state)?;
        let start = to_usize(offset)?.min(inode.view.len());
        let count = buffer.len().min(inode.view.len() - start);
        if start < inode.spoilt.end && inode.spoilt.start < start + count {
            return Err(io::Error::other("bad sector"));
        }
        if let (Some(target), Some(source)) = (buffer.get_mut(..count), inode.view.get(start..start + count))
        {
            target.copy_from_slice(source);
        }
        for (at, mask) in inode.flips.range(start..start + count) {
            buffer.get_mut(at - start).into_iter().for_each(|byte| *byte ^= mask);
        }
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let (mut state, fault) = self.disk.begin(Op::Write)?;
        let room = state.room();
        let inode = self.inode(&mut state)?;
        let offset = to_usize(offset)?;
        let mut count = if fault.is_some() { bytes.len().div_ceil(2) } else { bytes.len() };
        let fits = inode
            .view
            .len()
            .saturating_add(usize::try_from(room).unwrap_or(usize::MAX))
            .saturating_sub(offset);
        count = count.min(fits);
        if count == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inode.write(offset, bytes.get(..count).unwrap_or(bytes));
        match fault {
            Some(fault @ (Fault::Error(_) | Fault::PowerOff)) => Err(fault.into_error()),
            Some(Fault::Short) | None => Ok(count),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut state, _) = self.disk.begin(Op::SetLen)?;
        self.inode(&mut state)?.set_len(to_usize(len)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(Op::SyncData)?;
        while state.hold_syncs {
            state.held_syncs += 1;
            self.disk.0.gate.notify_all();
            state = self.disk.0.gate.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.held_syncs -= 1;
        }
        let inode = self.inode(&mut state)?;
        match fault {
            Some(Fault::Error(kind)) => {
                inode.versions.clear();
                inode.lens.clear();
                Err(kind.into())
            }
            Some(Fault::PowerOff) => Err(Fault::PowerOff.into_error()),
            Some(Fault::Short) | None => {
                inode.sync();
                Ok(())
            }
        }
    }
}

fn to_usize(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}
