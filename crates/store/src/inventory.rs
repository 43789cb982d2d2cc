//! The files of a store's directory, by name.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::Table;

use crate::directory::{self, QUARANTINE};
use crate::error::StoreError;
use crate::grain::Grain;

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The list of all others, `MANIFEST-0000000042`.
    Manifest(u64),
    /// The latest values of the fleet, `fleet-0000000042`.
    Fleet(u64),
    /// `raw/gpu_events/2026-11-20/10h-L1-42.parquet`, or `1m/gpu_events/…`
    Table(TableFileName),
    /// One of these that was being written, under its `.tmp` name.
    Unfinished,
}

/// What the name of a table file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableFileName {
    /// Table of its rows.
    pub(crate) table: Table,
    /// How fine they are.
    pub(crate) grain: Grain,
    /// 0: as flushed; 1: merged, of an hour; 2: merged, of a day.
    pub(crate) level: u8,
    /// Number of the flush or merge.
    pub(crate) number: u64,
}

impl FileKind {
    /// The kind of a file by its name in the store's directory, with `/`; none if this program gives no such name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let finished = name.strip_suffix(".tmp");
        let kind = match name.split_once('/') {
            None => list(finished.unwrap_or(name)),
            Some((grain, rest)) => {
                let grain = Grain::by_name(grain)?;
                let (folder, rest) = rest.split_once('/')?;
                let (day, file) = rest.split_once('/')?;
                let is_day = !day.is_empty() && day.bytes().all(|b| b.is_ascii_digit() || b == b'-');
                let stem = file.strip_suffix(".parquet").or(file.strip_suffix(".tmp"))?;
                table(Table::by_name(folder)?, grain, stem).filter(|_| is_day)
            }
        }?;
        Some(if finished.is_some() { Self::Unfinished } else { kind })
    }
}

/// `MANIFEST-42` or `fleet-42`
fn list(stem: &str) -> Option<FileKind> {
    let manifest = stem.strip_prefix("MANIFEST-").map(|number| digits(number).map(FileKind::Manifest));
    let fleet = || stem.strip_prefix("fleet-").map(|number| digits(number).map(FileKind::Fleet));
    manifest.or_else(fleet).flatten()
}

/// `10h-L1-42` or `day-L2-42`
fn table(table: Table, grain: Grain, stem: &str) -> Option<FileKind> {
    let (span, rest) = stem.split_once("-L")?;
    let (level, number) = rest.split_once('-')?;
    if span != "day" {
        digits(span.strip_suffix('h')?)?;
    }
    let (level, number) = (u8::try_from(digits(level)?).ok()?, digits(number)?);
    Some(FileKind::Table(TableFileName { table, grain, level, number }))
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The files of a store's directory. The log's own are not among them.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Name in the directory and kind.
    pub(crate) files: Vec<(String, FileKind)>,
    /// The same for files in `quarantine/`, under the names they had before.
    pub(crate) aside: Vec<(String, FileKind)>,
    /// Files under names that this program does not give.
    pub(crate) foreign: Vec<PathBuf>,
    /// Whether the log has a file.
    has_log: bool,
}

impl Inventory {
    /// Lists the directory.
    ///
    /// # Errors
    /// When a folder cannot be listed.
    pub(crate) fn take(root: &Path) -> Result<Self, StoreError> {
        let wal = root.join("wal");
        let has_log = wal.exists() && !entries(&wal)?.is_empty();
        let mut found = Self { has_log, ..Self::default() };
        for entry in entries(root)? {
            let is_known = ["LOCK", "wal", QUARANTINE].contains(&entry.name.as_str());
            if !is_known && Grain::by_name(&entry.name).is_none() {
                found.add(entry);
            }
        }
        for grain in Grain::ALL.map(Grain::name) {
            let folder = root.join(grain);
            let tables = if folder.exists() { found.folders(&folder)? } else { Vec::new() };
            for table in tables {
                for day in found.folders(&table.path)? {
                    for file in entries(&day.path)? {
                        let name = format!("{grain}/{}/{}/{}", table.name, day.name, file.name);
                        found.add(FolderEntry { name, ..file });
                    }
                }
            }
        }
        // A copy of an open store has none.
        let aside = root.join(QUARANTINE);
        for FolderEntry { name, .. } in if aside.exists() { entries(&aside)? } else { Vec::new() } {
            let name = directory::before_aside(&name);
            found.aside.extend(FileKind::of(&name).map(|kind| (name, kind)));
        }
        Ok(found)
    }

    /// The folders in a folder; what else is in it is foreign.
    fn folders(&mut self, folder: &Path) -> Result<Vec<FolderEntry>, StoreError> {
        let (folders, others): (Vec<_>, Vec<_>) =
            entries(folder)?.into_iter().partition(|entry| entry.is_dir);
        self.foreign.extend(others.into_iter().map(|other| other.path));
        Ok(folders)
    }

    /// Adds what has that name in the store's directory.
    fn add(&mut self, entry: FolderEntry) {
        match FileKind::of(&entry.name).filter(|_| !entry.is_dir) {
            Some(kind) => self.files.push((entry.name, kind)),
            None => self.foreign.push(entry.path),
        }
    }

    /// Whether a store has ever been in this directory.
    pub(crate) fn has_store(&self) -> bool {
        self.has_log || self.files.iter().any(|(_, kind)| *kind != FileKind::Unfinished)
    }

    /// The numbers of the manifests with their names, newest first.
    pub(crate) fn manifests(&self) -> Vec<(u64, &str)> {
        let mut manifests: Vec<_> = self
            .files
            .iter()
            .filter_map(|(name, kind)| match kind {
                FileKind::Manifest(number) => Some((*number, name.as_str())),
                _ => None,
            })
            .collect();
        manifests.sort_unstable_by(|one, other| other.cmp(one));
        manifests
    }

    /// The tables in their places.
    pub(crate) fn tables(&self) -> usize {
        self.files.iter().filter(|(_, kind)| matches!(kind, FileKind::Table(_))).count()
    }

    /// The tables in quarantine.
    pub(crate) fn tables_aside(&self) -> usize {
        self.aside.iter().filter(|(_, kind)| matches!(kind, FileKind::Table(_))).count()
    }

    /// Highest number of a manifest or of a file of latest values; 0 without any.
    pub(crate) fn highest(&self) -> u64 {
        self.numbers(|kind| match kind {
            FileKind::Manifest(number) | FileKind::Fleet(number) => Some(number),
            _ => None,
        })
    }

    /// Highest number of a table; 0 without any.
    pub(crate) fn highest_table(&self) -> u64 {
        self.numbers(|kind| match kind {
            FileKind::Table(table) => Some(table.number),
            _ => None,
        })
    }

    fn numbers(&self, number: impl Fn(FileKind) -> Option<u64>) -> u64 {
        self.files.iter().chain(&self.aside).filter_map(|(_, kind)| number(*kind)).max().unwrap_or(0)
    }
}

struct FolderEntry {
    path: PathBuf,
    /// A name that is not text becomes one that this program does not give.
    name: String,
    is_dir: bool,
}

fn entries(folder: &Path) -> Result<Vec<FolderEntry>, StoreError> {
    let io = |e| StoreError::io("list", folder, e);
    fs::read_dir(folder)
        .map_err(io)?
        .map(|entry| {
            let entry = entry.map_err(io)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(io)?);
            let is_dir = kind.is_dir() || kind.is_symlink() && path.is_dir();
            Ok(FolderEntry { path, name: entry.file_name().to_string_lossy().into_owned(), is_dir })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_program_have_a_kind() {
        for (name, kind) in [
            ("MANIFEST-0000000042", Some(FileKind::Manifest(42))),
            ("fleet-0000000007", Some(FileKind::Fleet(7))),
            ("MANIFEST-0000000042.tmp", Some(FileKind::Unfinished)),
            (
                "raw/gpu_details/2026-11-20/10h-L1-42.parquet",
                Some(FileKind::Table(TableFileName {
                    table: Table::GpuDetails,
                    grain: Grain::Raw,
                    level: 1,
                    number: 42,
                })),
            ),
            (
                "raw/gpu_events/2026-11-20/day-L2-43.parquet",
                Some(FileKind::Table(TableFileName {
                    table: Table::GpuEvents,
                    grain: Grain::Raw,
                    level: 2,
                    number: 43,
                })),
            ),
            (
                "1m/gpu_events/2026-11-20/day-L2-43.parquet",
                Some(FileKind::Table(TableFileName {
                    table: Table::GpuEvents,
                    grain: Grain::Minute,
                    level: 2,
                    number: 43,
                })),
            ),
            ("2m/gpu_events/2026-11-20/day-L2-43.parquet", None),
            ("raw/gpu_events/2026-11-20/week-L2-43.parquet", None),
            ("raw/2026-11-20/10h-L1-42.parquet", None),
            ("raw/strange/2026-11-20/10h-L1-42.parquet", None),
            ("raw/gpu_events/2026-11-20/10h-L1-42.tmp", Some(FileKind::Unfinished)),
            ("raw/gpu_events/../10h-L1-42.parquet", None),
            ("raw/gpu_events/2026-11-20/notes.txt", None),
            ("raw/gpu_events/2026-11-20/10h-L1-42", None),
            ("raw/gpu_events/2026-11-20/10h-L1-.parquet", None),
            ("raw/gpu_events/2026-11-20/10h-L300-1.parquet", None),
            ("MANIFEST-", None),
            ("MANIFEST-12x", None),
            ("notes.tmp", None),
            ("wal/2026-11-20/10h-L1-42.parquet", None),
        ] {
            assert_eq!(FileKind::of(name), kind, "{name}");
        }
    }
}
