//! The files: lines are appended, compared with what is there, and synced.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::time;
use gpuvitals_log::{Disk, DiskFile, read_full, write_all};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::JsonlError;
use crate::name;
use crate::pending::{Cells, GpuRows, LineRow, push_line};

/// Bytes at the end of a file with which a late row is compared at least.
pub const LOOK_BACK: usize = 64 << 10;
/// Files that are open at most; each is written and not synced yet.
const OPEN_FILES_MAX: usize = 512;

/// What was done, since the start.
#[derive(Debug, Default)]
pub(crate) struct FileCounts {
    pub(crate) lines: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Rows that were in their file already.
    pub(crate) repeats: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// GPUs that rows came from.
    pub(crate) gpus: AtomicU64,
}

/// The files of all GPUs.
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    file_len_max: u64,
    counts: Arc<FileCounts>,
    /// Those whose file is as this process left it.
    known: HashMap<Arc<str>, KnownFile>,
    /// Number of the last full file by the first part of its name.
    numbers: HashMap<String, u64>,
    /// Files with bytes that are not synced, by name.
    open: BTreeMap<String, Box<dyn DiskFile>>,
    /// Files were created and the directory is not synced.
    has_new: bool,
}

struct KnownFile {
    /// First part of the names of its files.
    stem: String,
    /// Bytes of its file.
    len: u64,
    /// The latest row, nanoseconds UTC since 1970.
    latest_ns: i64,
}

/// The last lines of a GPU: by instant, the values by column.
type SeenValues = HashMap<i64, BTreeMap<String, String>>;

#[derive(Deserialize)]
struct ParsedLine<'a> {
    #[serde(borrow)]
    metrics: BTreeMap<Cow<'a, str>, &'a RawValue>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
}

impl Files {
    /// The files on that disk.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(crate) fn open(
        disk: impl Disk,
        file_len_max: u64,
        counts: Arc<FileCounts>,
    ) -> Result<Self, JsonlError> {
        let mut numbers = HashMap::new();
        for name in disk.list().map_err(|e| JsonlError::io("list", ".", e))? {
            if let Some((stem, number)) = name::full_file(&name) {
                let last = numbers.entry(stem.to_owned()).or_insert(number);
                *last = number.max(*last);
            }
        }
        Ok(Self {
            disk: Arc::new(disk),
            file_len_max,
            counts,
            known: HashMap::new(),
            numbers,
            open: BTreeMap::new(),
            has_new: false,
        })
    }

    /// Whether something is written and not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.has_new || !self.open.is_empty()
    }

    /// Appends the rows of a GPU that are not in its file yet. They are durable after [`Files::sync`].
    ///
    /// # Errors
    /// If a file cannot be read or written: the next call compares and goes on. [`JsonlError::Failed`] if one cannot be
    /// synced.
    pub(crate) fn write(&mut self, gpu: &Arc<str>, rows: &GpuRows) -> Result<(), JsonlError> {
        let Some((&first_ns, _)) = rows.rows.first_key_value() else { return Ok(()) };
        // An error leaves it unknown.
        let (mut known, seen) = match self.known.remove(gpu) {
            Some(known) if self.len(&known.stem)? == known.len => {
                let is_late = first_ns <= known.latest_ns;
                let seen = if is_late { self.look_back(&known, rows.lines_len)? } else { SeenValues::new() };
                (known, seen)
            }
            _ => self.find(gpu, rows.lines_len)?,
        };
        let (mut text, mut lines) = (Vec::new(), 0);
        for (&timestamp_ns, row) in &rows.rows {
            let Some(new) = unseen(&seen, timestamp_ns, row) else {
                self.counts.repeats.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            push_line(&mut text, gpu, timestamp_ns, &new);
            lines += 1;
            known.latest_ns = known.latest_ns.max(timestamp_ns);
            if known.len + text.len() as u64 >= self.file_len_max {
                self.append(&mut known, &text)?;
                text.clear();
                self.close_full(&mut known)?;
            }
        }
        self.append(&mut known, &text)?;
        self.counts.lines.fetch_add(lines, Ordering::Relaxed);
        self.known.insert(Arc::clone(gpu), known);
        self.counts.gpus.store(self.known.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes everything written durable, and closes the files.
    ///
    /// # Errors
    /// [`JsonlError::Failed`]: what is on the disk is unknown.
    pub(crate) fn sync(&mut self) -> Result<(), JsonlError> {
        for (name, file) in std::mem::take(&mut self.open) {
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
            file.sync_data().map_err(|e| failed(&name, e))?;
        }
        if self.has_new {
            self.disk.sync_dir().map_err(|e| failed(".", e))?;
            self.has_new = false;
        }
        Ok(())
    }

    /// Length of a GPU's file; 0 if there is none.
    fn len(&mut self, stem: &str) -> Result<u64, JsonlError> {
        let name = name::current(stem);
        if let Some(file) = self.open.get(&name) {
            return file.size().map_err(|e| JsonlError::io("measure", &name, e));
        }
        match self.disk.open(&name) {
            Ok(file) => {
                let len = file.size().map_err(|e| JsonlError::io("measure", &name, e))?;
                self.hold(name, file)?;
                Ok(len)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(JsonlError::io("open", &name, error)),
        }
    }

    /// Keeps a file open until it is synced.
    fn hold(&mut self, name: String, file: Box<dyn DiskFile>) -> Result<(), JsonlError> {
        if self.open.len() >= OPEN_FILES_MAX {
            self.sync()?;
        }
        self.open.insert(name, file);
        Ok(())
    }

    fn append(&mut self, known: &mut KnownFile, text: &[u8]) -> Result<(), JsonlError> {
        if text.is_empty() {
            return Ok(());
        }
        let name = name::current(&known.stem);
        if !self.open.contains_key(&name) {
            // After a sync, or there was none.
            let opened = match self.disk.open(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.has_new = true;
                    self.disk.create(&name).map_err(|e| JsonlError::io("create", &name, e))?
                }
                opened => opened.map_err(|e| JsonlError::io("open", &name, e))?,
            };
            self.hold(name.clone(), opened)?;
        }
        if let Some(file) = self.open.get(&name) {
            write_all(&**file, known.len, text).map_err(|e| JsonlError::io("write", &name, e))?;
        }
        known.len += text.len() as u64;
        self.counts.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the file that is long enough its number. It is durable first: nobody looks for the end of the last write in it.
    fn close_full(&mut self, known: &mut KnownFile) -> Result<(), JsonlError> {
        let name = name::current(&known.stem);
        if let Some(file) = self.open.remove(&name) {
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
            file.sync_data().map_err(|e| failed(&name, e))?;
        }
        let number = self.numbers.entry(known.stem.clone()).or_default();
        let full = name::full(&known.stem, *number + 1);
        self.disk.rename(&name, &full).map_err(|e| JsonlError::io("rename", &name, e))?;
        *number += 1;
        known.len = 0;
        // Before there is a new file of the old name.
        self.disk.sync_dir().map_err(|e| failed(".", e))?;
        Ok(())
    }

    /// The end of a file that this process has not written yet, or whose last write failed. Of at most its last `unsure` bytes
    /// nobody knows whether they are synced. What is left of lines is cut off: they are in the log. The others are written
    /// again, since a sync that failed may have dropped them from the disk and not from memory.
    fn find(&mut self, gpu: &str, unsure: usize) -> Result<(KnownFile, SeenValues), JsonlError> {
        let stem = name::stem(gpu)?;
        let name = name::current(&stem);
        let len = self.len(&stem)?;
        let mut known = KnownFile { stem, len, latest_ns: i64::MIN };
        if let Some(file) = self.open.get(&name) {
            let end = repair(&**file, len, unsure as u64).map_err(|e| JsonlError::io("repair", &name, e))?;
            if end < len {
                tracing::info!(file = name, bytes = len - end, "what a crash left of lines is cut off");
                known.len = end;
            }
        }
        let seen = self.look_back(&known, unsure)?;
        known.latest_ns = seen.keys().copied().max().unwrap_or(i64::MIN);
        Ok((known, seen))
    }

    /// The last lines of a GPU: `more` bytes of them and [`LOOK_BACK`], also from full files if its file is shorter.
    fn look_back(&self, known: &KnownFile, more: usize) -> Result<SeenValues, JsonlError> {
        let mut wanted = (more + LOOK_BACK) as u64;
        let mut pieces = Vec::new();
        let current = name::current(&known.stem);
        if let Some(file) = self.open.get(&current) {
            let start = known.len.saturating_sub(wanted);
            pieces.push(read(&**file, start, known.len).map_err(|e| JsonlError::io("read", &current, e))?);
            wanted = wanted.saturating_sub(known.len);
        }
        let mut number = self.numbers.get(&known.stem).copied().unwrap_or(0);
        while wanted > 0 && number > 0 {
            let name = name::full(&known.stem, number);
            let reading = |e| JsonlError::io("read", &name, e);
            let file = match self.disk.open(&name) {
                // It was moved away or packed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                opened => opened.map_err(reading)?,
            };
            let len = file.size().map_err(reading)?;
            pieces.push(read(&*file, len.saturating_sub(wanted), len).map_err(reading)?);
            wanted = wanted.saturating_sub(len);
            number -= 1;
        }
        let mut seen = SeenValues::new();
        for piece in pieces.iter().rev() {
            // The first is a part of one, or whatever: it does not parse.
            for line in piece.split(|byte| *byte == b'\n') {
                let Ok(line) = serde_json::from_slice::<ParsedLine<'_>>(line) else { continue };
                let Ok(timestamp_ns) = time::parse(&line.timestamp) else { continue };
                let values = seen.entry(timestamp_ns).or_default();
                values.extend(
                    line.metrics.into_iter().map(|(name, value)| (name.into(), value.get().to_owned())),
                );
            }
        }
        Ok(seen)
    }
}

/// The values of a row that no line has; none if there is a line with all of them.
fn unseen<'a>(seen: &SeenValues, timestamp_ns: i64, row: &'a LineRow) -> Option<Cow<'a, LineRow>> {
    let Some(values) = seen.get(&timestamp_ns) else { return Some(Cow::Borrowed(row)) };
    let is_old = |name: &str, value: &str| values.get(name).is_some_and(|old| old == value);
    let new = row.cells.iter().filter(|(name, value)| !is_old(name, value));
    let new: Cells = new.map(|(name, value)| (Arc::clone(name), value.clone())).collect();
    (!new.is_empty()).then_some(Cow::Owned(LineRow { cells: new, is_simulated: row.is_simulated }))
}

fn failed(name: &str, source: io::Error) -> JsonlError {
    JsonlError::Failed(Arc::new(JsonlError::io("sync", name, source)))
}

/// Bytes of a file from one place to another.
fn read(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX)];
    let len = read_full(file, from, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Cuts off what a crash left of the last `unsure` bytes, writes the lines among them again, and returns the new end.
fn repair(file: &dyn DiskFile, len: u64, unsure: u64) -> io::Result<u64> {
    // A page that was never written reads as zeros; no line has one. The file may be longer than all that was written.
    let written = rfind(file, len, |byte| byte != 0)?;
    let start = written.saturating_sub(unsure);
    let bytes = read(file, start, written)?;
    let torn = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let end = rfind(file, start + torn as u64, |byte| byte == b'\n')?;
    if end < len {
        file.set_len(end)?;
    }
    let lines = usize::try_from(end.saturating_sub(start)).ok().and_then(|len| bytes.get(..len));
    write_all(file, start, lines.unwrap_or_default())?;
    Ok(end)
}

/// The place after the last such byte before `before`; 0 if there is none.
fn rfind(file: &dyn DiskFile, before: u64, is_it: impl Fn(u8) -> bool) -> io::Result<u64> {
    let mut end = before;
    while end > 0 {
        let start = end.saturating_sub(LOOK_BACK as u64);
        if let Some(at) = read(file, start, end)?.iter().rposition(|byte| is_it(*byte)) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
