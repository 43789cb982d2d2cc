//! Looking at a store without changing it, also while another process has it open: what it holds, and whether its files
//! are whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::{Table, causes};
use serde::Serialize;

use crate::error::StoreError;
use crate::file::{self, FileError};
use crate::grain::Grain;
use crate::inventory::Inventory;
use crate::manifest::{FileEntry, LostFile, Manifest};
use crate::repair::{self, FileFault, RepairProgress};
use crate::stats::LevelStats;
use crate::step::FileSteps;

/// How often a list is looked for again that the writer has replaced meanwhile. A merging writer replaces it many times a second,
/// and a reader on a busy machine loses a try each time.
pub(crate) const TRIES: usize = 64;

/// Files of one table, grain and level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableFiles {
    /// Table of their rows.
    pub table: Table,
    /// How fine the rows are.
    pub grain: Grain,
    /// 0: as flushed; 1: merged, of an hour; 2: merged, of a day.
    pub level: u8,
    /// Their counts and size.
    #[serde(flatten)]
    pub size: LevelStats,
    /// Earliest time, nanoseconds UTC since 1970.
    pub min_timestamp_ns: i64,
    /// Latest time, inclusive.
    pub max_timestamp_ns: i64,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreContents {
    /// The list of files in force. None: it has none, as a copy that was made while the store was open; then its files are
    /// those in their places, and each was read.
    pub manifest: Option<PathBuf>,
    /// Its files by table, grain and level.
    pub tables: Vec<TableFiles>,
    /// Bytes of the log, which has the rows that are in no file yet.
    pub log_bytes: u64,
    /// Files that were listed and are missing or damaged, in words.
    pub lost: Vec<String>,
    /// Table files in `quarantine/`.
    pub quarantined: usize,
    /// Newer lists that do not verify, each with its fault.
    pub damaged_manifests: Vec<String>,
}

/// The outcome of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoreCheck {
    /// The listed files that are whole.
    pub whole: LevelStats,
    /// Listed files that are missing, damaged or cannot be read.
    pub faults: Vec<FileFault>,
}

/// What a store holds, by its list of files. If it has one, neither the files nor the log are read.
///
/// # Errors
/// If there is no store, no list of it verifies, or the disk refuses.
pub fn contents(dir: &Path) -> Result<StoreContents, StoreError> {
    let (manifest, inventory, damaged_manifests) = newest(dir)?;
    let mut tables: BTreeMap<(Table, Grain, u8), TableFiles> = BTreeMap::new();
    for file in manifest.all_files() {
        let of = tables.entry((file.table, file.grain, file.level)).or_insert_with(|| TableFiles {
            table: file.table,
            grain: file.grain,
            level: file.level,
            size: LevelStats::default(),
            min_timestamp_ns: file.min_timestamp_ns,
            max_timestamp_ns: file.max_timestamp_ns,
        });
        of.size.add(file);
        of.min_timestamp_ns = of.min_timestamp_ns.min(file.min_timestamp_ns);
        of.max_timestamp_ns = of.max_timestamp_ns.max(file.max_timestamp_ns);
    }
    Ok(StoreContents {
        manifest: manifest.is_listed().then(|| dir.join(manifest.name())),
        tables: tables.into_values().collect(),
        log_bytes: bytes_in(&dir.join("wal"))?,
        lost: manifest.lost.iter().map(ToString::to_string).collect(),
        quarantined: inventory.tables_aside(),
        damaged_manifests,
    })
}

/// Reads every listed file and compares it with its checksums.
///
/// # Errors
/// As [`contents`].
pub fn check(dir: &Path, mut progress: impl FnMut(RepairProgress)) -> Result<StoreCheck, StoreError> {
    let (mut manifest, _, _) = newest(dir)?;
    let mut files: Vec<_> = manifest.all_files().cloned().collect();
    let bytes_total = files.iter().map(|file| file.bytes).sum();
    let mut done = RepairProgress { files: 0, files_total: files.len(), bytes: 0, bytes_total };
    let mut outcome = StoreCheck::default();
    if !manifest.is_listed() {
        let fault =
            |lost: &LostFile| FileFault { path: dir.join(&lost.file.name), reason: lost.fault.clone() };
        outcome.faults.extend(manifest.lost.iter().map(fault));
    }
    while let Some(file) = files.pop() {
        progress(done);
        done = RepairProgress { files: done.files + 1, bytes: done.bytes + file.bytes, ..done };
        let Err(error) = verify(&file) else {
            outcome.whole.add(&file);
            continue;
        };
        if !file.path.exists() {
            // The writer may have merged or deleted it: then its rows are in a file of a later list.
            let (later, ..) = newest(dir)?;
            if !later.names().contains(&file.name) {
                let before = manifest.names();
                files.extend(later.all_files().filter(|file| !before.contains(&file.name)).cloned());
                manifest = later;
                continue;
            }
        }
        let reason = match error {
            FileError::Damaged { what, .. } => what.to_owned(),
            error => causes(&error),
        };
        outcome.faults.push(FileFault { path: file.path.clone(), reason });
    }
    progress(done);
    Ok(outcome)
}

fn verify(entry: &Arc<FileEntry>) -> Result<(), FileError> {
    let file = file::open(entry, &FileSteps::default())?;
    (0..file.row_groups.len()).try_for_each(|group| file.verify(group))
}

/// The list in force, the files beside it, and newer lists that do not verify. A writer may replace the list meanwhile. A
/// copy without a list gets one.
pub(crate) fn newest(dir: &Path) -> Result<(Manifest, Inventory, Vec<String>), StoreError> {
    fs::metadata(dir).map_err(|e| StoreError::io("open", dir, e))?;
    if !["raw", "wal"].iter().any(|name| dir.join(name).is_dir()) {
        return Err(StoreError::NoStore(dir.to_owned()));
    }
    for _try in 0..TRIES {
        let inventory = Inventory::take(dir)?;
        if !inventory.has_store() {
            break;
        }
        let mut damaged = Vec::new();
        match Manifest::newest(dir, &inventory, &mut damaged) {
            Ok(Some(manifest)) => return Ok((manifest, inventory, damaged)),
            Ok(None) if damaged.is_empty() => {
                return Ok((repair::unlisted(dir, &inventory)?, inventory, damaged));
            }
            Ok(None) => return Err(StoreError::NoManifest { tables: inventory.tables(), damaged }),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::NoStore(dir.to_owned()))
}

fn bytes_in(folder: &Path) -> Result<u64, StoreError> {
    let io = |e| StoreError::io("list", folder, e);
    if !folder.exists() {
        return Ok(0);
    }
    let mut bytes = 0;
    for file in fs::read_dir(folder).map_err(io)? {
        // A segment may go meanwhile.
        bytes += file.map_err(io)?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(bytes)
}
