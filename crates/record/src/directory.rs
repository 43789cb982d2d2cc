//! The directory of a recording: its contents, its owner, and the completion of an unfinished one.
//!
//! ```text
//! DIR/gpu_events.parquet  DIR/system_events.parquet  DIR/marks.parquet      a whole recording
//! DIR/gpu_events.000001.parquet …                                           what a running or killed one has so far
//! DIR/unfinished/         lock, about.json, journals, marks.rows            running, or was killed
//! DIR/replaced/           an earlier one, until its replacement is whole
//! DIR/finished/           being removed
//! ```
//!
//! Ending a recording and repairing one that was killed are the same steps: seal the remaining journals, join
//! the parts beside their target, gather the parts in `unfinished`, rename, and only when all files have their names is
//! `unfinished` renamed and removed. If it is killed between any two of them, the next repair does the rest.

use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpuvitals_core::Table;
use gpuvitals_log::sync_directory;
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::journal::{Journal, Records};
use crate::run_facts::RunFacts;
use crate::table_file::fact;
use crate::{marks, part};

/// Both tables of a recording.
pub(crate) const TABLES: [Table; 2] = [Table::GpuEvents, Table::SystemEvents];
/// File of the marks of a whole recording.
pub(crate) const MARKS: &str = "marks.parquet";
/// Journal of the marks of an unfinished one.
const MARKS_JOURNAL: &str = "marks.rows";
/// What is known of an unfinished one beside its rows.
const ABOUT: &str = "about.json";

/// The files' metadata about their recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Version of the program that recorded.
    pub(crate) version: String,
    /// Name of the host that was recorded.
    pub(crate) node: String,
    /// When it began, nanoseconds UTC.
    pub(crate) started_ns: i64,
    /// How far the clock of the time since boot was ahead of the monotonic one when it began; none: of an earlier version.
    pub(crate) boot_ahead_ns: Option<i64>,
    /// Samples of a GPU a second, as configured.
    pub(crate) rate_hz: f64,
    /// Samples of the host a second, as configured.
    pub(crate) system_rate_hz: f64,
    /// What was recorded.
    pub(crate) run: RunFacts,
}

impl About {
    /// As pairs of a Parquet footer.
    pub(crate) fn facts(&self) -> Vec<KeyValue> {
        let mut facts = vec![
            fact("version", self.version.clone()),
            fact("node", self.node.clone()),
            fact("started_ns", self.started_ns.to_string()),
            fact("started", gpuvitals_core::time::format(self.started_ns)),
            fact("rate_hz", self.rate_hz.to_string()),
            fact("system_rate_hz", self.system_rate_hz.to_string()),
        ];
        facts.extend(self.boot_ahead_ns.map(|ns| fact("boot_ahead_ns", ns.to_string())));
        facts.extend(self.run.footer());
        facts
    }
}

/// An unfinished recording locked by this process.
#[derive(Debug)]
pub(crate) struct Unfinished {
    directory: PathBuf,
    /// Directories that did not exist before, the innermost first.
    created: Vec<PathBuf>,
    /// None if a power cut lost the file; the rows may still be there.
    about: Option<About>,
    _lock: File,
}

/// The result of ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ended {
    pub(crate) gpu_rows: u64,
    pub(crate) system_rows: u64,
    pub(crate) marks: u64,
    pub(crate) torn_bytes: u64,
}

/// Attempts to lock a file that was moved meanwhile.
const LOCK_TRIES: u32 = 8;

/// Whether a directory holds a whole or an unfinished recording.
pub(crate) fn state(directory: &Path) -> (bool, bool) {
    let whole = finals(directory).any(|path| path.exists());
    (whole, directory.join("unfinished").exists())
}

/// The files of a whole recording, whether or not they are there.
pub(crate) fn finals(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let directory = directory.to_owned();
    let tables = TABLES.into_iter().map(|table| format!("{}.parquet", table.name()));
    tables.chain([MARKS.to_owned()]).map(move |name| directory.join(name))
}

/// Journal of the marks of an unfinished recording.
pub(crate) fn marks_journal(directory: &Path) -> PathBuf {
    part::unfinished(directory).join(MARKS_JOURNAL)
}

/// What is known of an unfinished recording; none if a power cut lost the file.
pub(crate) fn about(directory: &Path) -> Option<About> {
    let text = fs::read_to_string(part::unfinished(directory).join(ABOUT)).unwrap_or_default();
    serde_json::from_str(&text).ok()
}

/// File of a whole recording.
pub(crate) fn table_file(directory: &Path, table: Table) -> PathBuf {
    directory.join(format!("{}.parquet", table.name()))
}

impl Unfinished {
    /// Begins a recording. An existing one with a row or a mark is refused, or with `overwrite` moved aside and kept until
    /// this one is whole.
    pub(crate) fn begin(
        directory: &Path,
        about: About,
        overwrite: bool,
    ) -> Result<(Self, Journal), RecordError> {
        bring_back(directory)?;
        let path = directory.join("unfinished");
        let is_running = || lock(&path).is_err();
        if !overwrite && path.exists() && is_empty(directory)? && !is_running() {
            // It failed before its first row.
            discard(directory)?;
            bring_back(directory)?;
        }
        let (whole, unfinished) = state(directory);
        if (whole || unfinished) && !overwrite {
            return Err(RecordError::Exists { path: directory.to_owned(), unfinished });
        }
        if let Some(stray) = part::stray(directory, TABLES).filter(|_| !unfinished) {
            let what = "has the name of a part of a recording that is not there; move it away";
            return Err(RecordError::Directory { path: stray, what });
        }
        // Held until there is a new one: nobody's running recording is moved, and nobody restores this one.
        let _held = unfinished.then(|| lock(&path)).transpose()?;
        set_aside(directory, whole, unfinished)?;
        let created = create(directory)?;
        DirBuilder::new().create(&path).map_err(RecordError::io("create", &path))?;
        let lock = lock(&path)?;
        let about_path = path.join(ABOUT);
        write(&about_path, &about).map_err(RecordError::io("write", &about_path))?;
        let marks = Journal::create(path.join(MARKS_JOURNAL))?;
        sync(&path)?;
        sync(directory)?;
        Ok((Self { directory: directory.to_owned(), created, about: Some(about), _lock: lock }, marks))
    }

    /// Takes over a recording whose process was killed; none if there is none.
    pub(crate) fn take_over(directory: &Path) -> Result<Option<Self>, RecordError> {
        sweep(directory)?;
        bring_back(directory)?;
        let path = directory.join("unfinished");
        if !path.exists() {
            return Ok(None);
        }
        let lock = lock(&path)?;
        if let Some(path) = part::unlisted(directory, TABLES)? {
            let what = "is of an earlier version, which alone can repair this recording";
            return Err(RecordError::Directory { path, what });
        }
        let about = about(directory);
        if about.is_none() {
            let mut has_rows = false;
            for table in TABLES {
                has_rows |= !part::list(directory, table)?.is_empty();
            }
            if !has_rows {
                // Killed before it had begun.
                discard(directory)?;
                drop(lock);
                return Self::take_over(directory);
            }
        }
        Ok(Some(Self { directory: directory.to_owned(), created: Vec::new(), about, _lock: lock }))
    }

    /// Directory of the files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Directory of the journals.
    pub(crate) fn path(&self) -> PathBuf {
        part::unfinished(&self.directory)
    }

    /// Removes it, and the directories that it created, as far as they are empty: nothing was recorded. A recording that
    /// it was to replace stays unchanged.
    pub(crate) fn abandon(self) -> Result<(), RecordError> {
        discard(&self.directory)?;
        bring_back(&self.directory)?;
        // Where somebody else has put something, it stays. Why nothing was recorded matters more than an empty directory.
        self.created.iter().rev().map_while(|path| fs::remove_dir(path).ok()).for_each(drop);
        Ok(())
    }

    /// Makes it a whole recording. `ended` is `stopped` or `repaired`.
    pub(crate) fn end(self, ended: &str, more: &[KeyValue]) -> Result<Ended, RecordError> {
        let unfinished = self.path();
        let about = self.about.iter().flat_map(About::facts);
        let ends = std::iter::once(fact("ended", ended.to_owned()));
        let known: Vec<_> = ends.chain(about).chain(more.iter().cloned()).collect();
        let facts = |rows_of: &str| [vec![fact("schema", format!("{rows_of} 1"))], known.clone()].concat();
        let (mut result, mut files) = (Ended::default(), Vec::new());
        for table in TABLES {
            let mut parts = part::list(&self.directory, table)?;
            for part in parts.iter_mut().filter(|part| !part.sealed) {
                let target = part::sealed(&self.directory, table, part.number);
                result.torn_bytes += part::seal(table, &part.path, &target)?;
                part.path = target;
            }
            let target = table_file(&self.directory, table);
            let (file, rows) = part::join(table, &parts, &target, facts(table.name()))?;
            files.push((file, target));
            match table {
                Table::GpuEvents => result.gpu_rows = rows,
                _ => result.system_rows = rows,
            }
        }
        let marks = unfinished.join(MARKS_JOURNAL);
        if marks.exists() {
            let target = self.directory.join(MARKS);
            let (file, count, torn) = marks::finish(&marks, &target, facts("marks"))?;
            files.push((file, target));
            result.marks = count;
            result.torn_bytes += torn;
        }
        part::gather(&self.directory, TABLES)?;
        for (file, target) in files {
            file.put().map_err(RecordError::io("write", &target))?;
        }
        // Before this one leaves its place: alone it would be restored.
        remove(&self.directory.join("replaced"))?;
        discard(&self.directory)?;
        Ok(result)
    }
}

/// Moves the recordings of a directory to `replaced`.
fn set_aside(directory: &Path, whole: bool, unfinished: bool) -> Result<(), RecordError> {
    let aside = directory.join("replaced");
    let path = part::unfinished(directory);
    if unfinished && aside.exists() {
        // The one that this was to replace is replaced by what comes now, and not before that is whole.
        let within = path.join("replaced");
        remove(&within)?;
        fs::rename(&aside, &within).map_err(RecordError::io("rename", &aside))?;
    } else if whole || unfinished {
        remove(&aside)?;
    }
    if unfinished {
        part::gather(directory, TABLES)?;
        fs::rename(&path, &aside).map_err(RecordError::io("rename", &path))?;
    } else if whole {
        DirBuilder::new().create(&aside).map_err(RecordError::io("create", &aside))?;
    }
    for file in finals(directory).filter(|file| file.exists()) {
        // Beside an unfinished one they are what an end of it had made before it was killed.
        let target = aside.join(file.file_name().unwrap_or_default());
        fs::rename(&file, target).map_err(RecordError::io("rename", &file))?;
    }
    Ok(())
}

/// Whether an unfinished recording has neither a row nor a mark.
fn is_empty(directory: &Path) -> Result<bool, RecordError> {
    if part::unlisted(directory, TABLES)?.is_some() {
        return Ok(false);
    }
    let mut journals = vec![marks_journal(directory)];
    for table in TABLES {
        for part in part::list(directory, table)? {
            if part.sealed {
                return Ok(false);
            }
            journals.push(part.path);
        }
    }
    for journal in journals.iter().filter(|journal| journal.exists()) {
        if Records::open(journal)?.next()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates a directory and those above it. Answers those that were not there, the outermost first.
fn create(directory: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let mut created = Vec::new();
    let mut paths: Vec<_> = directory.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
    while let Some(path) = paths.pop() {
        match fs::create_dir(path) {
            Ok(()) => created.push(path.to_owned()),
            Err(_) if path.is_dir() => {}
            Err(source) => return Err(RecordError::Io { action: "create", path: path.to_owned(), source }),
        }
    }
    Ok(created)
}

/// Removes `unfinished` and its parts in one step.
fn discard(directory: &Path) -> Result<(), RecordError> {
    sweep(directory)?;
    part::gather(directory, TABLES)?;
    let (from, to) = (part::unfinished(directory), directory.join("finished"));
    fs::rename(&from, &to).map_err(RecordError::io("rename", &from))?;
    for file in finals(directory) {
        let half = file.with_extension("parquet.tmp");
        if half.exists() {
            fs::remove_file(&half).map_err(RecordError::io("remove", &half))?;
        }
    }
    sweep(directory)
}

/// Restores a recording that was moved aside for one that never began.
fn bring_back(directory: &Path) -> Result<(), RecordError> {
    let (from, to) = (directory.join("replaced"), part::unfinished(directory));
    if to.exists() || !from.exists() {
        return Ok(());
    }
    if !from.join("lock").exists() {
        // A whole one.
        for file in finals(&from).filter(|file| file.exists()) {
            let target = directory.join(file.file_name().unwrap_or_default());
            fs::rename(&file, target).map_err(RecordError::io("rename", &file))?;
        }
        return remove(&from);
    }
    // Fails while another recording is about to begin.
    let _held = lock(&from)?;
    fs::rename(&from, &to).map_err(RecordError::io("rename", &from))?;
    let within = to.join("replaced");
    if within.exists() {
        fs::rename(&within, &from).map_err(RecordError::io("rename", &within))?;
    }
    Ok(())
}

/// Removes the files that an earlier process was about to remove.
fn sweep(directory: &Path) -> Result<(), RecordError> {
    remove(&directory.join("finished"))
}

fn remove(path: &Path) -> Result<(), RecordError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RecordError::Io { action: "remove", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn lock(unfinished: &Path) -> Result<File, RecordError> {
    let path = unfinished.join("lock");
    for _ in 0..LOCK_TRIES {
        let file = File::create(&path).map_err(RecordError::io("create", &path))?;
        match holds(&file, &path) {
            Ok(true) => return Ok(file),
            Ok(false) => {}
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => {
                return Err(RecordError::Io { action: "lock", path, source });
            }
        }
    }
    Err(RecordError::Busy { path: unfinished.to_owned() })
}

/// Locks an open file. Returns whether it is still the file at that path: another process may have ended,
/// removed or replaced the recording since it was opened.
fn holds(file: &File, path: &Path) -> Result<bool, TryLockError> {
    file.try_lock()?;
    let name = |meta: Metadata| (meta.dev(), meta.ino());
    let held = file.metadata().map(name).map_err(TryLockError::Error)?;
    Ok(fs::metadata(path).is_ok_and(|meta| name(meta) == held))
}

/// On the disk when this returns: without it the rows' origin is unknown.
fn write(path: &Path, about: &About) -> std::io::Result<()> {
    let text = serde_json::to_string(about).map_err(std::io::Error::other)?;
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn sync(directory: &Path) -> Result<(), RecordError> {
    sync_directory(directory).map_err(RecordError::io("sync", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_on_a_recording_that_has_left_its_place_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (place, away) = (dir.path().join("unfinished"), dir.path().join("finished"));
        fs::create_dir(&place).unwrap();
        let path = place.join("lock");
        let opened = File::create(&path).unwrap();
        fs::rename(&place, &away).unwrap();
        assert!(!holds(&opened, &path).unwrap(), "nobody's");
        fs::create_dir(&place).unwrap();
        let new = lock(&place).unwrap();
        assert!(!holds(&opened, &path).unwrap(), "another's");
        assert!(matches!(lock(&place), Err(RecordError::Busy { .. })));
        drop(new);
        assert!(lock(&place).is_ok());
    }
}
