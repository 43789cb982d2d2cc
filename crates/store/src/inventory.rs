//! The files of a store's directory, by name.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::Table;

use crate::directory::{self, QUARANTINE};
use crate::error::StoreError;
use crate::grain::Grain;

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `MANIFEST-0000000042`
    Manifest(u64),
    /// `fleet-0000000042`
    Fleet(u64),
    /// `raw/gpu_events/2026-11-20/10h-L1-42.parquet`, or `1m/gpu_events/…`
    Table {
        /// Table of its rows.
        table: Table,
        /// How fine they are.
        grain: Grain,
        /// 0: as flushed; 1: merged, of an hour; 2: merged, of a day.
        level: u8,
        /// Number of the flush or merge.
        number: u64,
    },
    /// One of these that was being written, under its `.tmp` name.
    Unfinished,
}

impl Kind {
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
fn list(stem: &str) -> Option<Kind> {
    let manifest = stem.strip_prefix("MANIFEST-").map(|number| digits(number).map(Kind::Manifest));
    let fleet = || stem.strip_prefix("fleet-").map(|number| digits(number).map(Kind::Fleet));
    manifest.or_else(fleet).flatten()
}

/// `10h-L1-42` or `day-L2-42`
fn table(table: Table, grain: Grain, stem: &str) -> Option<Kind> {
    let (span, rest) = stem.split_once("-L")?;
    let (level, number) = rest.split_once('-')?;
    if span != "day" {
        digits(span.strip_suffix('h')?)?;
    }
    Some(Kind::Table { table, grain, level: u8::try_from(digits(level)?).ok()?, number: digits(number)? })
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The files of a store's directory. The log's own are not among them.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Name in the directory and kind.
    pub(crate) files: Vec<(String, Kind)>,
    /// The same for files in `quarantine/`, under the names they had before.
    pub(crate) aside: Vec<(String, Kind)>,
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
        for Entry { path, name, is_dir } in entries(root)? {
            let is_known = ["LOCK", "wal", QUARANTINE].contains(&name.as_str());
            if !is_known && Grain::by_name(&name).is_none() {
                found.add(path, name, is_dir);
            }
        }
        for grain in Grain::ALL.map(Grain::name) {
            let folder = root.join(grain);
            let tables = if folder.exists() { found.folders(&folder)? } else { Vec::new() };
            for table in tables {
                for day in found.folders(&table.path)? {
                    for file in entries(&day.path)? {
                        let name = format!("{grain}/{}/{}/{}", table.name, day.name, file.name);
                        found.add(file.path, name, file.is_dir);
                    }
                }
            }
        }
        // A copy of an open store has none.
        let aside = root.join(QUARANTINE);
        for Entry { name, .. } in if aside.exists() { entries(&aside)? } else { Vec::new() } {
            let name = directory::before_aside(&name);
            found.aside.extend(Kind::of(&name).map(|kind| (name, kind)));
        }
        Ok(found)
    }

    /// The folders in a folder; what else is in it is foreign.
    fn folders(&mut self, folder: &Path) -> Result<Vec<Entry>, StoreError> {
        let (folders, others): (Vec<_>, Vec<_>) =
            entries(folder)?.into_iter().partition(|entry| entry.is_dir);
        self.foreign.extend(others.into_iter().map(|other| other.path));
        Ok(folders)
    }

    fn add(&mut self, path: PathBuf, name: String, is_dir: bool) {
        match Kind::of(&name).filter(|_| !is_dir) {
            Some(kind) => self.files.push((name, kind)),
            None => self.foreign.push(path),
        }
    }

    /// Whether a store has ever been in this directory.
    pub(crate) fn has_store(&self) -> bool {
        self.has_log || self.files.iter().any(|(_, kind)| *kind != Kind::Unfinished)
    }

    /// The numbers of the manifests with their names, newest first.
    pub(crate) fn manifests(&self) -> Vec<(u64, &str)> {
        let mut manifests: Vec<_> = self
            .files
            .iter()
            .filter_map(|(name, kind)| match kind {
                Kind::Manifest(number) => Some((*number, name.as_str())),
                _ => None,
            })
            .collect();
        manifests.sort_unstable_by(|one, other| other.cmp(one));
        manifests
    }

    /// The tables in their places.
    pub(crate) fn tables(&self) -> usize {
        self.files.iter().filter(|(_, kind)| matches!(kind, Kind::Table { .. })).count()
    }

    /// The tables in quarantine.
    pub(crate) fn tables_aside(&self) -> usize {
        self.aside.iter().filter(|(_, kind)| matches!(kind, Kind::Table { .. })).count()
    }

    /// Highest number of a manifest or of a file of latest values; 0 without any.
    pub(crate) fn highest(&self) -> u64 {
        self.numbers(|kind| match kind {
            Kind::Manifest(number) | Kind::Fleet(number) => Some(number),
            _ => None,
        })
    }

    /// Highest number of a table; 0 without any.
    pub(crate) fn highest_table(&self) -> u64 {
        self.numbers(|kind| match kind {
            Kind::Table { number, .. } => Some(number),
            _ => None,
        })
    }

    fn numbers(&self, number: impl Fn(Kind) -> Option<u64>) -> u64 {
        self.files.iter().chain(&self.aside).filter_map(|(_, kind)| number(*kind)).max().unwrap_or(0)
    }
}

struct Entry {
    path: PathBuf,
    /// A name that is not text becomes one that this program does not give.
    name: String,
    is_dir: bool,
}

fn entries(folder: &Path) -> Result<Vec<Entry>, StoreError> {
    let io = |e| StoreError::io("list", folder, e);
    fs::read_dir(folder)
        .map_err(io)?
        .map(|entry| {
            let entry = entry.map_err(io)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(io)?);
            let is_dir = kind.is_dir() || kind.is_symlink() && path.is_dir();
            Ok(Entry { path, name: entry.file_name().to_string_lossy().into_owned(), is_dir })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_program_have_a_kind() {
        for (name, kind) in [
            ("MANIFEST-0000000042", Some(Kind::Manifest(42))),
            ("fleet-0000000007", Some(Kind::Fleet(7))),
            ("MANIFEST-0000000042.tmp", Some(Kind::Unfinished)),
            (
                "raw/gpu_details/2026-11-20/10h-L1-42.parquet",
                Some(Kind::Table { table: Table::GpuDetails, grain: Grain::Raw, level: 1, number: 42 }),
            ),
            (
                "raw/gpu_events/2026-11-20/day-L2-43.parquet",
                Some(Kind::Table { table: Table::GpuEvents, grain: Grain::Raw, level: 2, number: 43 }),
            ),
            (
                "1m/gpu_events/2026-11-20/day-L2-43.parquet",
                Some(Kind::Table { table: Table::GpuEvents, grain: Grain::Minute, level: 2, number: 43 }),
            ),
            ("2m/gpu_events/2026-11-20/day-L2-43.parquet", None),
            ("raw/gpu_events/2026-11-20/week-L2-43.parquet", None),
            ("raw/2026-11-20/10h-L1-42.parquet", None),
            ("raw/strange/2026-11-20/10h-L1-42.parquet", None),
            ("raw/gpu_events/2026-11-20/10h-L1-42.tmp", Some(Kind::Unfinished)),
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
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }
}
