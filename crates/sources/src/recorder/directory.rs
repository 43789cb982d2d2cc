//! The directory of a recording: what is in it, whose it is, and how an unfinished one becomes a whole one.
//!
//! ```text
//! DIR/gpu_events.parquet  DIR/system_events.parquet  DIR/marks.parquet      a whole recording
//! DIR/unfinished/         lock, about.json, parts, marks.rows               one that is under way, or was killed
//! DIR/finished/           the same on its way out
//! ```
//!
//! Ending a recording and repairing one that was killed are the same steps: seal what is still a journal, join the parts
//! beside their target, rename, and only when all files have their names is `unfinished` renamed and removed. Killed
//! between any two of them, the next repair does the rest.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::path::{Path, PathBuf};

use gpuvitals_core::Table;
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::{RecordError, marks, part};

/// Both tables of a recording.
pub(super) const TABLES: [Table; 2] = [Table::GpuEvents, Table::SystemEvents];
const MARKS: &str = "marks.parquet";

/// What stands in the files' metadata about how they came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct About {
    /// Version of the program that recorded.
    pub(super) version: String,
    /// Host.
    pub(super) node: String,
    /// When it began, nanoseconds UTC.
    pub(super) started_ns: i64,
    /// Samples of a GPU a second, as asked.
    pub(super) rate_hz: f64,
    /// Samples of the host a second, as asked.
    pub(super) system_rate_hz: f64,
}

impl About {
    /// As pairs of a Parquet footer. `ended` is `stopped` or `repaired`.
    fn facts(&self, ended: &str, more: &[KeyValue]) -> Vec<KeyValue> {
        let fact = |key: &str, value: String| KeyValue::new(format!("gpuvitals.{key}"), value);
        let own = [
            fact("schema", "recording 1".to_owned()),
            fact("version", self.version.clone()),
            fact("node", self.node.clone()),
            fact("started_ns", self.started_ns.to_string()),
            fact("started", gpuvitals_core::time::format(self.started_ns)),
            fact("rate_hz", self.rate_hz.to_string()),
            fact("system_rate_hz", self.system_rate_hz.to_string()),
            fact("ended", ended.to_owned()),
        ];
        own.into_iter().chain(more.iter().cloned()).collect()
    }
}

/// An unfinished recording that this process holds.
#[derive(Debug)]
pub(super) struct Unfinished {
    directory: PathBuf,
    about: About,
    _lock: File,
}

/// What ending gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ended {
    pub(super) gpu_rows: u64,
    pub(super) system_rows: u64,
    pub(super) marks: u64,
    pub(super) torn_bytes: u64,
}

/// Whether a directory holds a whole or an unfinished recording.
pub(super) fn state(directory: &Path) -> (bool, bool) {
    let whole = finals(directory).any(|path| path.exists());
    (whole, directory.join("unfinished").exists())
}

fn finals(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let directory = directory.to_owned();
    let tables = TABLES.into_iter().map(|table| format!("{}.parquet", part::stem(table)));
    tables.chain([MARKS.to_owned()]).map(move |name| directory.join(name))
}

/// File of a whole recording.
pub(super) fn table_file(directory: &Path, table: Table) -> PathBuf {
    directory.join(format!("{}.parquet", part::stem(table)))
}

impl Unfinished {
    /// Begins a recording. One that is there already is refused, or with `overwrite` removed: an unfinished one here, a whole
    /// one by [`Unfinished::replace`].
    pub(super) fn begin(
        directory: &Path,
        about: About,
        overwrite: bool,
    ) -> Result<(Self, Journal), RecordError> {
        let path = directory.join("unfinished");
        let (whole, unfinished) = state(directory);
        if (whole || unfinished) && !overwrite {
            return Err(RecordError::Exists { path: directory.to_owned(), unfinished });
        }
        if unfinished {
            // Held until it is gone: nobody's running recording is removed.
            let _held = lock(&path)?;
            discard(directory)?;
        }
        fs::create_dir_all(directory).map_err(RecordError::io("creating", directory))?;
        DirBuilder::new().create(&path).map_err(RecordError::io("creating", &path))?;
        let lock = lock(&path)?;
        let text = serde_json::to_string(&about).map_err(std::io::Error::other);
        let about_path = path.join("about.json");
        text.and_then(|text| fs::write(&about_path, text))
            .map_err(RecordError::io("writing", &about_path))?;
        let marks = Journal::create(path.join("marks.rows"))?;
        Ok((Self { directory: directory.to_owned(), about, _lock: lock }, marks))
    }

    /// Takes over a recording whose process was killed; none when there is none.
    pub(super) fn take_over(directory: &Path) -> Result<Option<Self>, RecordError> {
        sweep(directory)?;
        let path = directory.join("unfinished");
        if !path.exists() {
            return Ok(None);
        }
        let lock = lock(&path)?;
        let about_path = path.join("about.json");
        let about = fs::read_to_string(&about_path)
            .and_then(|text| serde_json::from_str(&text).map_err(std::io::Error::other));
        let about = match about {
            Ok(about) => about,
            // Killed before it was written: then no row was either.
            Err(_)
                if TABLES
                    .iter()
                    .all(|&table| part::list(&path, table).is_ok_and(|parts| parts.is_empty())) =>
            {
                discard(directory)?;
                return Ok(None);
            }
            Err(source) => return Err(RecordError::Io { action: "reading", path: about_path, source }),
        };
        Ok(Some(Self { directory: directory.to_owned(), about, _lock: lock }))
    }

    /// Where the files will be.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the parts lie.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join("unfinished")
    }

    /// Removes the whole recording that was there before.
    pub(super) fn replace(&self) -> Result<(), RecordError> {
        for old in finals(&self.directory).filter(|old| old.exists()) {
            fs::remove_file(&old).map_err(RecordError::io("removing", &old))?;
        }
        Ok(())
    }

    /// Removes it: nothing was recorded.
    pub(super) fn abandon(self) -> Result<(), RecordError> {
        discard(&self.directory)
    }

    /// Makes it a whole recording.
    pub(super) fn end(self, ended: &str, more: &[KeyValue]) -> Result<Ended, RecordError> {
        let unfinished = self.path();
        let facts = || self.about.facts(ended, more);
        let mut result = Ended::default();
        for table in TABLES {
            let mut parts = part::list(&unfinished, table)?;
            for part in parts.iter_mut().filter(|part| !part.sealed) {
                result.torn_bytes += part::seal(table, &part.path)?;
                part.path.set_extension("parquet");
            }
            let rows = part::join(table, &parts, &table_file(&self.directory, table), facts())?;
            match table {
                Table::GpuEvents => result.gpu_rows = rows,
                Table::SystemEvents => result.system_rows = rows,
            }
        }
        let marks = unfinished.join("marks.rows");
        if marks.exists() {
            let (count, torn) = marks::finish(&marks, &self.directory.join(MARKS), facts())?;
            result.marks = count;
            result.torn_bytes += torn;
        }
        sync(&self.directory)?;
        discard(&self.directory)?;
        Ok(result)
    }
}

/// Removes `unfinished` in one step as far as anybody can see.
fn discard(directory: &Path) -> Result<(), RecordError> {
    sweep(directory)?;
    let (from, to) = (directory.join("unfinished"), directory.join("finished"));
    fs::rename(&from, &to).map_err(RecordError::io("renaming", &from))?;
    sweep(directory)
}

/// Removes what an earlier process was about to remove.
fn sweep(directory: &Path) -> Result<(), RecordError> {
    let path = directory.join("finished");
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RecordError::Io { action: "removing", path, source: error })
        }
        _ => Ok(()),
    }
}

fn lock(unfinished: &Path) -> Result<File, RecordError> {
    let path = unfinished.join("lock");
    let file = File::create(&path).map_err(RecordError::io("creating", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RecordError::Busy { path: unfinished.to_owned() }),
        Err(TryLockError::Error(source)) => Err(RecordError::Io { action: "locking", path, source }),
    }
}

fn sync(directory: &Path) -> Result<(), RecordError> {
    File::open(directory).and_then(|dir| dir.sync_all()).map_err(RecordError::io("syncing", directory))
}
