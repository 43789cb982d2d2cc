//! Which files are live, and up to which log record they reach.
//!
//! `MANIFEST-n` is a line of JSON and a line with its CRC32C in hexadecimal. A new one is written and synced before
//! `CURRENT`, a file with its name, is replaced by rename: at every instant one whole list is in force.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::directory::{self, Directory};
use crate::step::{Step, Steps};

/// Nanoseconds of an hour: what one table file spans at most.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// A live table file. Everything needed to decide whether a query must open it; [`crate::file::open`] opens it.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Where it is in the store's directory, with `/`.
    pub(crate) name: String,
    /// 0: as flushed; 1: merged.
    pub(crate) level: u8,
    /// Arrival: of two files with the same key, the one of the higher order wins.
    pub(crate) order: u64,
    /// Rows.
    pub(crate) rows: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Earliest time, nanoseconds UTC since 1970.
    pub(crate) min_timestamp_ns: i64,
    /// Latest time, inclusive.
    pub(crate) max_timestamp_ns: i64,
    /// Smallest GPU key.
    pub(crate) min_key: Arc<str>,
    /// Largest GPU key.
    pub(crate) max_key: Arc<str>,
    /// Where the footer (everything after the last row group) begins.
    pub(crate) footer_offset: u64,
    /// CRC32C of the footer. The footer holds the checksums of the row groups.
    pub(crate) footer_crc32c: u32,
    /// Why the file is not to be trusted; set by whoever finds out.
    damage: OnceLock<Arc<str>>,
    /// Whether the file goes when the last snapshot that names it does.
    doomed: AtomicBool,
}

impl FileEntry {
    pub(crate) fn new(root: &Path, record: FileRecord) -> Self {
        Self {
            path: root.join(&record.name),
            name: record.name,
            level: record.level,
            order: record.order,
            rows: record.rows,
            bytes: record.bytes,
            min_timestamp_ns: record.min_timestamp_ns,
            max_timestamp_ns: record.max_timestamp_ns,
            min_key: Arc::from(record.min_key),
            max_key: Arc::from(record.max_key),
            footer_offset: record.footer_offset,
            footer_crc32c: record.footer_crc32c,
            damage: OnceLock::new(),
            doomed: AtomicBool::new(false),
        }
    }

    fn record(&self) -> FileRecord {
        FileRecord {
            name: self.name.clone(),
            level: self.level,
            order: self.order,
            rows: self.rows,
            bytes: self.bytes,
            min_timestamp_ns: self.min_timestamp_ns,
            max_timestamp_ns: self.max_timestamp_ns,
            min_key: self.min_key.as_ref().to_owned(),
            max_key: self.max_key.as_ref().to_owned(),
            footer_offset: self.footer_offset,
            footer_crc32c: self.footer_crc32c,
        }
    }

    /// Hours since 1970 of its rows.
    pub(crate) fn hour(&self) -> i64 {
        self.min_timestamp_ns.div_euclid(HOUR_NS)
    }

    /// Marks the file as damaged: the store moves it to quarantine; until then every query leaves it out and says so.
    pub(crate) fn condemn(&self, reason: impl Into<Arc<str>>) {
        let _first = self.damage.set(reason.into());
    }

    /// Why the file is not to be trusted, if it is not.
    pub(crate) fn damage(&self) -> Option<&Arc<str>> {
        self.damage.get()
    }

    /// The file is no longer live: removes it when the last snapshot lets go of it.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }
}

impl Drop for FileEntry {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // A file that stays is unlisted: the next start removes it.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

/// A table file as the manifest spells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) name: String,
    pub(crate) level: u8,
    pub(crate) order: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) min_timestamp_ns: i64,
    pub(crate) max_timestamp_ns: i64,
    pub(crate) min_key: String,
    pub(crate) max_key: String,
    pub(crate) footer_offset: u64,
    pub(crate) footer_crc32c: u32,
}

/// The file with the fleet's latest values ([`crate::fleet`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FleetRecord {
    /// Name in the store's directory.
    pub(crate) name: String,
    /// CRC32C of its bytes.
    pub(crate) crc32c: u32,
}

/// A list of live files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    /// Its number; the next one has the next.
    pub(crate) number: u64,
    /// Number of the next flush or merge.
    pub(crate) next_order: u64,
    /// Log records up to and with this one are in the files.
    pub(crate) flushed_through: u64,
    /// Latest values as of that record or later.
    pub(crate) fleet: Option<FleetRecord>,
    /// Live files by order.
    pub(crate) files: Vec<Arc<FileEntry>>,
}

#[derive(Serialize, Deserialize)]
struct Spelled {
    number: u64,
    next_order: u64,
    flushed_through: u64,
    fleet: Option<FleetRecord>,
    files: Vec<FileRecord>,
}

/// Why the manifest cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A system call failed.
    #[error("{action} {path}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// It is cut off or changed.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In what way.
        what: &'static str,
    },
}

impl Manifest {
    /// Reads the list in force; an empty one where there has never been any.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub(crate) fn load(directory: &Directory) -> Result<Self, ManifestError> {
        let current = directory.root().join("CURRENT");
        let name = match fs::read_to_string(&current) {
            Ok(name) => name,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { number: 0, next_order: 1, ..Self::default() });
            }
            Err(source) => return Err(ManifestError::Io { action: "reading", path: current, source }),
        };
        let name = name.trim_end();
        let digits =
            name.strip_prefix("MANIFEST-").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        if digits.is_none_or(str::is_empty) {
            return Err(ManifestError::Damaged { path: current, what: "it names no manifest" });
        }
        let path = directory.root().join(name);
        let bytes = fs::read(&path).map_err(|source| ManifestError::Io {
            action: "reading",
            path: path.clone(),
            source,
        })?;
        Self::parse(directory.root(), &bytes).map_err(|what| ManifestError::Damaged { path, what })
    }

    fn parse(root: &Path, bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (json, crc) = text.split_once('\n').ok_or("it is cut off")?;
        if u32::from_str_radix(crc.trim_end(), 16).ok() != Some(crc32c::crc32c(json.as_bytes())) {
            return Err("its checksum");
        }
        let spelled: Spelled = serde_json::from_str(json).map_err(|_| "it is not a list of files")?;
        let plain =
            |name: &str| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !spelled.files.iter().all(|file| plain(&file.name) && file.name.starts_with("raw/")) {
            return Err("it names a file outside the store");
        }
        let files = spelled.files.into_iter().map(|record| Arc::new(FileEntry::new(root, record))).collect();
        Ok(Self {
            number: spelled.number,
            next_order: spelled.next_order,
            flushed_through: spelled.flushed_through,
            fleet: spelled.fleet.filter(|fleet| plain(&fleet.name)),
            files,
        })
    }

    /// Name of the file of this list.
    pub(crate) fn name(&self) -> String {
        format!("MANIFEST-{:010}", self.number)
    }

    /// Puts this list in force. The files it names must be synced, with their directories.
    ///
    /// # Errors
    /// What the system says; then the list before it may still be in force, or already this one.
    pub(crate) fn store(&self, directory: &Directory, steps: &Steps) -> Result<(), ManifestError> {
        let path = directory.root().join(self.name());
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| ManifestError::Io { action: "writing", path, source }
        };
        let spelled = Spelled {
            number: self.number,
            next_order: self.next_order,
            flushed_through: self.flushed_through,
            fleet: self.fleet.clone(),
            files: self.files.iter().map(|file| file.record()).collect(),
        };
        let json = serde_json::to_string(&spelled).map_err(io::Error::other).map_err(io(&path))?;
        let text = format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes()));
        directory::create(&path, text.as_bytes(), steps).map_err(io(&path))?;
        let current = directory.root().join("CURRENT");
        steps.take(Step::Switch, &current).map_err(io(&current))?;
        directory::replace(&current, format!("{}\n", self.name()).as_bytes()).map_err(io(&current))
    }
}
