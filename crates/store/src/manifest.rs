//! Which files are live, and up to which log record they reach.
//!
//! `MANIFEST-n` is a line of JSON and a line with its CRC32C in hexadecimal. It appears whole, by rename; the newest
//! one that verifies is in force. It also names the files that it made useless: these, and `.tmp` files, are all that
//! an opening ever removes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use gpuvitals_core::{Table, clock};
use serde::{Deserialize, Serialize};

use crate::directory::{self, Directory};
use crate::error::StoreError;
use crate::foreign::ForeignTypes;
use crate::grain::Grain;
use crate::inventory::{FileKind, Inventory};
use crate::step::FileStep;

/// Version of the directory's layout.
const FORMAT: u32 = 7;
/// Nanoseconds of an hour.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;
/// Level of files with the rows of a day.
const DAY_LEVEL: u8 = 2;

/// The UTC time that all rows of a file have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Span {
    /// A day, as days since 1970.
    Day(i64),
    /// An hour, as hours since 1970.
    Hour(i64),
}

impl Span {
    /// The hour of a time, nanoseconds UTC since 1970.
    pub(crate) fn hour_of(time_ns: i64) -> Self {
        Self::Hour(time_ns.div_euclid(HOUR_NS))
    }

    /// The day that it is in, or is.
    pub(crate) fn day(self) -> Self {
        match self {
            Self::Day(_) => self,
            Self::Hour(hour) => Self::Day(hour.div_euclid(24)),
        }
    }

    /// First time in it, nanoseconds UTC since 1970.
    pub(crate) fn start_ns(self) -> i64 {
        match self {
            Self::Day(day) => day.saturating_mul(DAY_NS),
            Self::Hour(hour) => hour.saturating_mul(HOUR_NS),
        }
    }

    /// First time after it.
    pub(crate) fn end_ns(self) -> i64 {
        let len = if matches!(self, Self::Day(_)) { DAY_NS } else { HOUR_NS };
        self.start_ns().saturating_add(len)
    }

    /// Level of a file that has been merged from all rows of it.
    pub(crate) fn level(self) -> u8 {
        if matches!(self, Self::Day(_)) { DAY_LEVEL } else { 1 }
    }
}

/// A live table file: its record says whether a query must open it, [`crate::file::open`] opens it.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Where it is on the disk.
    pub(crate) path: PathBuf,
    record: FileRecord,
    /// Why the file cannot be trusted; set by whichever thread finds out.
    damage: OnceLock<Arc<str>>,
    /// Whether the file is removed with the last snapshot that names it.
    doomed: AtomicBool,
    /// When this process learned of it.
    pub(crate) since: Instant,
}

impl Deref for FileEntry {
    type Target = FileRecord;

    fn deref(&self) -> &FileRecord {
        &self.record
    }
}

impl FileEntry {
    pub(crate) fn new(root: &Path, record: FileRecord) -> Self {
        let path = root.join(&record.name);
        let (damage, doomed, since) = (OnceLock::new(), AtomicBool::new(false), clock::instant());
        Self { path, record, damage, doomed, since }
    }

    /// For tests: a file of 1,000 bytes with one row at the start of an hour. It is not on the disk.
    #[cfg(test)]
    pub(crate) fn with_one_row(hour: i64, order: u64) -> Self {
        let at = Span::Hour(hour).start_ns();
        let record = FileRecord {
            name: format!("raw/{hour}-{order}"),
            table: Table::GpuEvents,
            grain: Grain::Raw,
            level: 0,
            order,
            first_sequence: 0,
            rows: 1,
            bytes: 1_000,
            min_timestamp_ns: at,
            max_timestamp_ns: at,
            min_key: "a".to_owned(),
            max_key: "a".to_owned(),
            footer_offset: 4,
            footer_crc32c: 0,
        };
        Self::new(Path::new("store"), record)
    }

    /// Marks the file as damaged: the store moves it to quarantine; until then every query leaves it out and
    /// reports this.
    pub(crate) fn condemn(&self, reason: impl Into<Arc<str>>) {
        let _first = self.damage.set(reason.into());
    }

    /// Why the file is not to be trusted, if it is not.
    pub(crate) fn damage(&self) -> Option<&Arc<str>> {
        self.damage.get()
    }

    /// The file is no longer live: removes it when the last snapshot releases it.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }
}

impl Drop for FileEntry {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // A file that stays is named as replaced: the next start removes it.
            let _removed = fs::remove_file(&self.path);
            // Only an empty folder goes.
            let _removed = self.path.parent().map(fs::remove_dir);
        }
    }
}

/// A table file as the manifest spells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    /// Where it is in the store's directory, with `/`.
    pub(crate) name: String,
    /// Table of its rows.
    pub(crate) table: Table,
    /// How fine they are. Those of a rollup were made of the rows of the file with the same order.
    #[serde(default)]
    pub(crate) grain: Grain,
    /// 0: as flushed; 1: merged, of an hour; 2: merged, of a day.
    pub(crate) level: u8,
    /// Number of the flush, or one of those of a merge: of two files with the same key, the one of the higher order wins. A
    /// merge takes all files of an hour or day, so its numbers are above theirs and below those of all later flushes.
    pub(crate) order: u64,
    /// First log record that its rows may come from; 0: not known.
    pub(crate) first_sequence: u64,
    pub(crate) rows: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Earliest time, nanoseconds UTC since 1970.
    pub(crate) min_timestamp_ns: i64,
    /// Latest time, inclusive.
    pub(crate) max_timestamp_ns: i64,
    /// Smallest key of a GPU or host.
    pub(crate) min_key: String,
    /// Largest key of a GPU or host, inclusive.
    pub(crate) max_key: String,
    /// Where the footer (everything after the last row group) begins.
    pub(crate) footer_offset: u64,
    /// CRC32C of the footer. The footer holds the checksums of the row groups.
    pub(crate) footer_crc32c: u32,
}

impl FileRecord {
    /// The time that all of its rows have.
    pub(crate) fn span(&self) -> Span {
        let hour = Span::hour_of(self.min_timestamp_ns);
        if self.level < DAY_LEVEL { hour } else { hour.day() }
    }
}

/// A table file that was live and is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostFile {
    pub(crate) file: FileRecord,
    /// The finding: `is missing`, or `is damaged` with the reason.
    pub(crate) fault: String,
}

impl LostFile {
    /// The fault of the file, and its present place if it was set aside.
    pub(crate) fn describe(&self, directory: &Directory) -> String {
        let name = &self.file.name;
        let aside = Some(directory.aside(name)).filter(|_| !directory.root().join(name).exists());
        let place = aside.filter(|path| path.exists()).map(|path| format!(", now in {}", path.display()));
        format!("{self}{}", place.unwrap_or_default())
    }
}

impl fmt::Display for LostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file: FileRecord { name, rows, .. }, fault } = self;
        // A file that no list describes may have any number.
        if *rows == 0 { write!(f, "{name} {fault}") } else { write!(f, "{name} with {rows} rows {fault}") }
    }
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
    /// Number in its name; the highest that verifies is in force.
    pub(crate) number: u64,
    /// Highest number that a manifest or a file of latest values ever had; the next one has the next.
    pub(crate) highest: u64,
    /// First number of the next flush or merge.
    pub(crate) next_order: u64,
    /// Log records up to and with this one are in the files. None: not known, since [`crate::repair`] made the list or
    /// a table is lost; then all records of the log are taken in again, which changes nothing for rows in files.
    pub(crate) flushed_through: Option<u64>,
    /// Latest values as of that record or later.
    pub(crate) fleet: Option<FleetRecord>,
    /// Live files with rows as they came, by order.
    pub(crate) files: Vec<Arc<FileEntry>>,
    /// Live files with rows that are put together. They hold nothing that the files do not, until these are deleted.
    pub(crate) rollups: Vec<Arc<FileEntry>>,
    /// Files that were live and are missing or damaged, until they are there again or [`crate::repair`] makes a new list.
    /// Answers that lack their rows name them.
    pub(crate) lost: Vec<LostFile>,
    /// Names of files that this list made useless and that may still be there.
    pub(crate) replaced: BTreeSet<String>,
    /// Types of the columns in its files that the catalogue does not know.
    pub(crate) foreign: ForeignTypes,
}

#[derive(Serialize, Deserialize)]
struct SpelledManifest {
    format: u32,
    number: u64,
    next_order: u64,
    flushed_through: Option<u64>,
    fleet: Option<FleetRecord>,
    files: Vec<FileRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LostFile>,
    replaced: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    foreign: ForeignTypes,
}

/// The part that every format has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Why a manifest is not taken.
enum Refused {
    Format(u32),
    Damaged(&'static str),
}

impl Manifest {
    /// Reads the newest manifest that verifies; creates the first one in a new directory. `damaged` gets
    /// newer ones that do not verify.
    ///
    /// # Errors
    /// If none verifies although there are files, or one has an unknown format, or the system refuses.
    pub(crate) fn load(
        directory: &Directory,
        inventory: &Inventory,
        damaged: &mut Vec<String>,
    ) -> Result<Self, StoreError> {
        if let Some(manifest) = Self::newest(directory.root(), inventory, damaged)? {
            let highest = inventory.highest();
            let next_order = manifest.next_order.max(inventory.highest_table() + 1);
            return Ok(Self { highest, next_order, ..manifest });
        }
        if inventory.has_store() {
            let damaged = std::mem::take(damaged);
            return Err(StoreError::NoManifest { tables: inventory.tables(), damaged });
        }
        let first =
            Self { number: 1, highest: 1, next_order: 1, flushed_through: Some(0), ..Self::default() };
        first.store(directory)?;
        Ok(first)
    }

    /// The newest manifest that verifies, if one does. `damaged` gets newer ones that do not.
    ///
    /// # Errors
    /// If one has an unknown format, or the system refuses.
    pub(crate) fn newest(
        root: &Path,
        inventory: &Inventory,
        damaged: &mut Vec<String>,
    ) -> Result<Option<Self>, StoreError> {
        for (number, name) in inventory.manifests() {
            let path = root.join(name);
            let read = match directory::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    Err(Refused::Damaged("it is no regular file"))
                }
                read => Self::parse(root, number, &read.map_err(|e| StoreError::io("read", &path, e))?),
            };
            match read {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(Refused::Format(found)) => return Err(StoreError::Format { path, found, known: FORMAT }),
                Err(Refused::Damaged(fault)) => damaged.push(format!("{name}: {fault}")),
            }
        }
        Ok(None)
    }

    fn parse(root: &Path, number: u64, bytes: &[u8]) -> Result<Self, Refused> {
        let damaged = |fault| move |_| Refused::Damaged(fault);
        let text = std::str::from_utf8(bytes).map_err(|_| Refused::Damaged("it is not text"))?;
        let (json, crc) = text.split_once('\n').ok_or(Refused::Damaged("it is cut off"))?;
        if u32::from_str_radix(crc.trim_end(), 16).ok() != Some(crc32c::crc32c(json.as_bytes())) {
            return Err(Refused::Damaged("its checksum is wrong"));
        }
        let Version { format } = serde_json::from_str(json).map_err(damaged("it has no format"))?;
        if format != FORMAT {
            return Err(Refused::Format(format));
        }
        let spelled: SpelledManifest =
            serde_json::from_str(json).map_err(damaged("it is not a list of files"))?;
        let is_table = |record: &FileRecord| matches!(FileKind::of(&record.name), Some(FileKind::Table(name)) if (name.table, name.grain) == (record.table, record.grain));
        let is_fleet = |fleet: &FleetRecord| matches!(FileKind::of(&fleet.name), Some(FileKind::Fleet(_)));
        if !spelled.files.iter().all(is_table)
            || !spelled.lost.iter().map(|lost| &lost.file).all(is_table)
            || !spelled.fleet.iter().all(is_fleet)
            || !spelled.replaced.iter().all(|name| FileKind::of(name).is_some())
        {
            return Err(Refused::Damaged("it names a file that is not the store's"));
        }
        if spelled.number != number {
            return Err(Refused::Damaged("it is another manifest under this name"));
        }
        let mut manifest = Self {
            number,
            highest: number,
            next_order: spelled.next_order,
            flushed_through: spelled.flushed_through,
            fleet: spelled.fleet,
            lost: spelled.lost,
            replaced: spelled.replaced,
            foreign: spelled.foreign,
            ..Self::default()
        };
        manifest.add(root, spelled.files);
        Ok(manifest)
    }

    /// Lists files that are on the disk: rows among the files, the rest among the rollups.
    pub(crate) fn add(&mut self, root: &Path, records: impl IntoIterator<Item = FileRecord>) {
        for record in records {
            let list = if record.grain == Grain::Raw { &mut self.files } else { &mut self.rollups };
            list.push(Arc::new(FileEntry::new(root, record)));
        }
        self.files.sort_by_key(|file| file.order);
    }

    /// Whether the rows that a rollup was made of are there.
    fn has_source(&self, rollup: &FileRecord) -> bool {
        self.files.iter().any(|file| (file.table, file.order) == (rollup.table, rollup.order))
    }

    /// Notes that a file, which is listed no more, is missing or damaged. With a rollup nothing is lost, unless the rows
    /// that it was made of are gone.
    pub(crate) fn lose(&mut self, file: &FileRecord, fault: String) {
        if file.grain != Grain::Raw && self.has_source(file) {
            tracing::warn!(name = file.name, fault, "a rollup is read no more; its rows are");
        } else {
            self.lost.push(LostFile { file: file.clone(), fault });
        }
    }

    /// Lists the rollups that were made of a file no more: its rows are read anew, and count in the rollups of another file.
    pub(crate) fn drop_rollups(&mut self, rows: &FileRecord) {
        let (made, others) = std::mem::take(&mut self.rollups)
            .into_iter()
            .partition(|rollup| (rollup.table, rollup.order) == (rows.table, rows.order));
        self.rollups = others;
        let made: Vec<Arc<FileEntry>> = made;
        self.replaced.extend(made.iter().map(|rollup| rollup.name.clone()));
    }

    /// All live files.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = &Arc<FileEntry>> {
        self.files.iter().chain(&self.rollups)
    }

    /// Whether a file of the store is or was this list; else it was made for somebody who only reads.
    pub(crate) fn is_listed(&self) -> bool {
        self.number > 0
    }

    /// Name of the file of this list.
    pub(crate) fn name(&self) -> String {
        format!("MANIFEST-{:010}", self.number)
    }

    /// Names of the files that this manifest keeps: its own, that of the latest values, the tables.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let tables = self.all_files().map(|file| file.name.clone());
        let fleet = self.fleet.iter().map(|fleet| fleet.name.clone());
        tables.chain(fleet).chain([self.name()]).collect()
    }

    /// The list that follows this one, to be changed and stored.
    pub(crate) fn successor(&self, directory: &Directory) -> Self {
        let mut next = self.clone();
        next.number = self.highest + 1;
        next.highest = next.number;
        next.replaced.retain(|name| directory.root().join(name).exists());
        next.replaced.insert(self.name());
        next
    }

    /// Puts this manifest in force. The files it names must be synced, with their directories.
    ///
    /// # Errors
    /// The system's error; then the previous manifest may still be in force, or already this one.
    pub(crate) fn store(&self, directory: &Directory) -> Result<(), StoreError> {
        let path = directory.root().join(self.name());
        let io = |e| StoreError::io("write", &path, e);
        let spelled = SpelledManifest {
            format: FORMAT,
            number: self.number,
            next_order: self.next_order,
            flushed_through: self.flushed_through,
            fleet: self.fleet.clone(),
            files: self.all_files().map(|file| file.record.clone()).collect(),
            lost: self.lost.clone(),
            replaced: self.replaced.clone(),
            foreign: self.foreign.clone(),
        };
        let json = serde_json::to_string(&spelled).map_err(io::Error::other).map_err(io)?;
        let text = format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes()));
        directory::write(&path, text.as_bytes(), directory.steps(), FileStep::Switch).map_err(io)
    }
}
