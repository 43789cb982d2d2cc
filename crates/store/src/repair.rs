//! Rebuilding a manifest from the table files themselves.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::causes;
use serde::Serialize;

use crate::directory::{self, Directory};
use crate::error::StoreError;
use crate::file::{self, FileError};
use crate::inventory::{FileKind, Inventory, TableFileName};
use crate::manifest::{FileRecord, LostFile, Manifest};

/// How far a repair or a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// Table files that were checked.
    pub files: usize,
    /// All of them.
    pub files_total: usize,
    /// Bytes of the files that were checked.
    pub bytes: u64,
    /// Bytes of all.
    pub bytes_total: u64,
}

/// A table file that is not whole, or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFault {
    /// Where it is now: in its place, or in `quarantine/`.
    pub path: PathBuf,
    /// What is wrong with it, in words.
    pub reason: String,
}

/// The outcome of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairReport {
    /// Path of the manifest that is in force now.
    pub manifest: PathBuf,
    /// Table files that it lists.
    pub files: usize,
    /// Rows in them, but for those of rollups. A row may be in several files; queries show it once.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Those of them that were in `quarantine/`.
    pub brought_back: Vec<PathBuf>,
    /// Table files that are not listed.
    pub set_aside: Vec<FileFault>,
}

/// Rebuilds the manifest of a closed store from the footers of its table files, after reading and checking
/// all of them. Whole files in `quarantine/` are brought back, damaged ones go there; nothing is deleted. The
/// next opening reads the latest values from the files, and replays the whole log: rows that are in files
/// already stay single.
///
/// # Errors
/// If there is no store, it has a format that this program does not know, another process has it open, or the disk refuses.
pub fn repair(dir: &Path, mut progress: impl FnMut(RepairProgress)) -> Result<RepairReport, StoreError> {
    // Neither a directory nor a store is made.
    fs::metadata(dir).map_err(|e| StoreError::io("open", dir, e))?;
    if !["raw", "wal"].iter().any(|name| dir.join(name).exists()) {
        return Err(StoreError::NoStore(dir.to_owned()));
    }
    // Files of another format would all go to quarantine.
    let before = Manifest::newest(dir, &Inventory::take(dir)?, &mut Vec::new())?;
    let directory = Directory::open(dir)?;
    let inventory = Inventory::take(dir)?;
    let tables = tables(dir, &inventory)?;
    if !inventory.has_store() && tables.is_empty() {
        return Err(StoreError::NoStore(dir.to_owned()));
    }
    let bytes_total = tables.iter().map(|table| table.bytes).sum();
    let mut done = RepairProgress { files: 0, files_total: tables.len(), bytes: 0, bytes_total };
    let mut checked = Vec::with_capacity(tables.len());
    for table in tables {
        progress(done);
        done = RepairProgress { files: done.files + 1, bytes: done.bytes + table.bytes, ..done };
        let outcome = file::describe(&table.path, table.name, table.said);
        checked.push((table, outcome));
    }
    progress(done);
    let (records, brought_back, set_aside) = sort(&directory, checked);
    let number = inventory.highest() + 1;
    let mut manifest = Manifest {
        number,
        highest: number,
        next_order: inventory.highest_table() + 1,
        foreign: before.map(|before| before.foreign).unwrap_or_default(),
        ..Manifest::default()
    };
    manifest.add(dir, records);
    manifest.store(&directory)?;
    for (name, kind) in &inventory.files {
        if matches!(kind, FileKind::Manifest(_) | FileKind::Fleet(_))
            && let Err(error) = directory.quarantine(name)
        {
            tracing::debug!(name, %error, "an older list stays until the next start");
        }
    }
    Ok(RepairReport {
        manifest: dir.join(manifest.name()),
        files: manifest.all_files().count(),
        rows: manifest.files.iter().map(|file| file.rows).sum(),
        bytes: manifest.all_files().map(|file| file.bytes).sum(),
        brought_back,
        set_aside,
    })
}

/// The list of a store that has none, as a copy has that was made while the store was open: all table files in their
/// places, those that are not whole as lost. Reads and checks all of them, and changes nothing.
///
/// # Errors
/// If the disk refuses.
pub(crate) fn unlisted(root: &Path, inventory: &Inventory) -> Result<Manifest, StoreError> {
    let (mut manifest, mut records) = (Manifest::default(), Vec::new());
    for table in tables(root, inventory)?.into_iter().filter(|table| !table.is_aside) {
        match file::describe(&table.path, table.name, table.said) {
            Ok(record) => records.push(record),
            Err(error) => manifest.lost.push(LostFile { file: table.unknown(), fault: reason(error) }),
        }
    }
    manifest.add(root, records);
    Ok(manifest)
}

/// The fault of a file, without its path.
fn reason(error: FileError) -> String {
    match error {
        FileError::Damaged { what, .. } => what.to_owned(),
        error => causes(&error),
    }
}

/// A table file that may be listed again.
struct RepairCandidate<'a> {
    name: &'a str,
    /// What the name says.
    said: TableFileName,
    path: PathBuf,
    bytes: u64,
    is_aside: bool,
}

impl RepairCandidate<'_> {
    /// The entry of a file whose footer cannot be read: its rows may have any time and GPU.
    fn unknown(&self) -> FileRecord {
        let TableFileName { table, grain, level, number: order } = self.said;
        FileRecord {
            name: self.name.to_owned(),
            table,
            grain,
            level,
            order,
            first_sequence: 0,
            rows: 0,
            bytes: self.bytes,
            min_timestamp_ns: i64::MIN,
            max_timestamp_ns: i64::MAX,
            min_key: String::new(),
            max_key: char::MAX.to_string(),
            footer_offset: 0,
            footer_crc32c: 0,
        }
    }
}

/// The table files in their places and in quarantine, by number.
fn tables<'a>(root: &Path, inventory: &'a Inventory) -> Result<Vec<RepairCandidate<'a>>, StoreError> {
    let mut tables = Vec::new();
    for (files, is_aside) in [(&inventory.files, false), (&inventory.aside, true)] {
        for (name, kind) in files {
            let FileKind::Table(said) = *kind else { continue };
            let path = if is_aside { directory::aside(root, name) } else { root.join(name) };
            let bytes = fs::metadata(&path).map_err(|e| StoreError::io("inspect", &path, e))?.len();
            tables.push(RepairCandidate { name, said, path, bytes, is_aside });
        }
    }
    tables.sort_by(|one, other| (one.said.number, one.name).cmp(&(other.said.number, other.name)));
    Ok(tables)
}

/// Moves whole files to their places and damaged ones to quarantine.
fn sort(
    directory: &Directory,
    checked: Vec<(RepairCandidate<'_>, Result<FileRecord, FileError>)>,
) -> (Vec<FileRecord>, Vec<PathBuf>, Vec<FileFault>) {
    let (mut records, mut brought_back, mut set_aside) = (Vec::new(), Vec::new(), Vec::new());
    for (table, outcome) in checked {
        match (outcome, table.is_aside) {
            (Ok(record), false) => records.push(record),
            (Ok(record), true) => match directory.bring_back(table.name) {
                Ok(path) => {
                    brought_back.push(path);
                    records.push(record);
                }
                Err(error) => set_aside.push(FileFault { path: table.path, reason: error.to_string() }),
            },
            (Err(error), is_aside) => {
                // One that cannot be read now may be whole: it stays for another repair.
                let stays = is_aside || !error.is_damage();
                let moved = if stays { None } else { directory.quarantine(table.name).ok() };
                set_aside.push(FileFault { path: moved.unwrap_or(table.path), reason: reason(error) });
            }
        }
    }
    (records, brought_back, set_aside)
}
