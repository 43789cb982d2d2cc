//! What a store finds when it is opened.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::{Batch, Origin, Table};
use gpuvitals_log::Recovery;

use crate::directory::Directory;
use crate::error::StoreError;
use crate::file;
use crate::fleet::{LiveFleet, checkpoint};
use crate::manifest::{FileEntry, Manifest};
use crate::merge::RowKeys;
use crate::port;
use crate::shared::PERMIT_BYTES;
use crate::tail::Tail;
use gpuvitals_core::causes;

/// Newest files whose footers are read when the store is opened; the others are checked when they are first read.
const FOOTERS: usize = 64;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Live files.
    pub files: usize,
    /// Rows in these.
    pub file_rows: u64,
    /// Log records that were not in files yet.
    pub records: u64,
    /// Rows in these.
    pub log_rows: u64,
    /// Bytes at the end of the log that the last crash left unfinished; nothing of them was acknowledged.
    pub torn_bytes: u64,
    /// GPUs known.
    pub gpus: usize,
    /// Remains of unfinished writes that were removed.
    pub removed: Vec<PathBuf>,
    /// Files that are not the store's and were left alone.
    pub foreign: Vec<PathBuf>,
    /// What is lost or set aside, in words; empty after an ordinary crash.
    pub damage: Vec<String>,
}

/// Checks the listed files and removes what is not listed.
pub(crate) fn files(
    directory: &Directory,
    manifest: &mut Manifest,
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let skip_footers = manifest.files.len().saturating_sub(FOOTERS);
    let mut good = Vec::with_capacity(manifest.files.len());
    let mut stayed = HashSet::new();
    for (position, entry) in manifest.files.iter().enumerate() {
        match check(entry, position >= skip_footers)? {
            None => good.push(Arc::clone(entry)),
            Some(reason) => {
                let place = match directory.quarantine(&entry.path) {
                    Ok(path) => format!("now in {}", path.display()),
                    Err(error) => {
                        stayed.insert(entry.path.clone());
                        format!("not set aside: {error}")
                    }
                };
                found.damage.push(format!("{reason}, {} rows, {place}", entry.rows));
            }
        }
    }
    manifest.files = good;
    found.files = manifest.files.len();
    found.file_rows = manifest.files.iter().map(|file| file.rows).sum();
    sweep(directory, manifest, stayed, found)
}

/// What is wrong with a file, if anything is.
fn check(entry: &FileEntry, footer: bool) -> Result<Option<String>, StoreError> {
    match fs::metadata(&entry.path) {
        Ok(facts) if facts.len() == entry.bytes => {}
        Ok(facts) => {
            return Ok(Some(format!("{} has {} bytes, not {}", entry.name, facts.len(), entry.bytes)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(format!("{}: {error}", entry.name)));
        }
        // It may be whole: a store without it would be less than what was acknowledged.
        Err(error) => return Err(StoreError::io("inspecting", &entry.path, error)),
    }
    match footer.then(|| file::open(entry)) {
        Some(Err(error)) if error.is_damage() => Ok(Some(causes(&error))),
        _ => Ok(None),
    }
}

/// Removes leftovers of writes that did not come to be; names what is not the store's. What is `stayed` stays: it was
/// to be set aside and could not be.
fn sweep(
    directory: &Directory,
    manifest: &Manifest,
    stayed: HashSet<PathBuf>,
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let root = directory.root();
    let mut listed = stayed;
    listed.extend(manifest.files.iter().map(|file| file.path.clone()));
    let fleet = manifest.fleet.as_ref().map(|fleet| fleet.name.clone());
    listed.extend([root.join(manifest.name())]);
    listed.extend(fleet.map(|name| root.join(name)));
    listed.extend(["FORMAT", "LOCK", "CURRENT", "wal", "raw", "quarantine"].map(|name| root.join(name)));
    let mut days = vec![root.to_owned()];
    days.extend(entries(&root.join("raw"))?.into_iter().filter(|path| path.is_dir()));
    for folder in days {
        for path in entries(&folder)? {
            if listed.contains(&path) {
                continue;
            }
            if is_ours(&path) {
                fs::remove_file(&path).map_err(|e| StoreError::io("removing", &path, e))?;
                found.removed.push(path);
            } else {
                found.foreign.push(path);
            }
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let io = |e| StoreError::io("listing", folder, e);
    fs::read_dir(folder).map_err(io)?.map(|entry| entry.map(|entry| entry.path()).map_err(io)).collect()
}

/// Whether the name is one that this program gives.
fn is_ours(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str).filter(|_| path.is_file()) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let table = |stem: &str| {
        let mut parts = stem.split('-');
        let hour = parts.next().and_then(|hour| hour.strip_suffix('h')).is_some_and(digits);
        let level = parts.next().and_then(|level| level.strip_prefix('L')).is_some_and(digits);
        hour && level && parts.next().is_some_and(digits) && parts.next().is_none()
    };
    name.strip_prefix("MANIFEST-").is_some_and(digits)
        || name.strip_prefix("fleet-").is_some_and(digits)
        || matches!(name, "CURRENT.tmp" | "FORMAT.tmp")
        || name.strip_suffix(".parquet").or(name.strip_suffix(".tmp")).is_some_and(table)
}

/// Latest values as of the manifest; from all files if they have no file of their own, or it is damaged.
pub(crate) fn fleet(directory: &Directory, manifest: &Manifest, found: &mut Recovered) -> LiveFleet {
    let mut fleet = LiveFleet::default();
    let Some(record) = &manifest.fleet else { return fleet_of_files(manifest, found) };
    let path = directory.root().join(&record.name);
    let read = fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| {
        if crc32c::crc32c(&bytes) != record.crc32c {
            return Err("checksum".to_owned());
        }
        checkpoint::read(&bytes, &mut fleet).map_err(|error| causes(&error))
    });
    let Err(reason) = read else { return fleet };
    found
        .damage
        .push(format!("{} is damaged ({reason}); latest values are taken from the files", record.name));
    fleet_of_files(manifest, found)
}

fn fleet_of_files(manifest: &Manifest, found: &mut Recovered) -> LiveFleet {
    let mut fleet = LiveFleet::default();
    for entry in &manifest.files {
        if let Err(error) = apply_file(entry, &mut fleet) {
            found.damage.push(format!("latest values in {} are not known: {}", entry.name, causes(&error)));
            if error.is_damage() {
                entry.condemn(causes(&error));
            }
        }
    }
    fleet
}

fn apply_file(entry: &FileEntry, fleet: &mut LiveFleet) -> Result<(), file::FileError> {
    let table = file::open(entry)?;
    for group in 0..table.row_groups.len() {
        table.verify(group)?;
        for rows in table.read_group(group)? {
            if let (Ok(keys), Ok(batch)) =
                (RowKeys::of(&rows), Batch::new(Table::GpuEvents, rows.clone(), Origin::default(), 0))
            {
                fleet.apply(&batch, &keys);
            }
        }
    }
    Ok(())
}

/// Takes in the log's records that are not in files.
pub(crate) fn log(
    recovery: Recovery,
    directory: &Directory,
    manifest: &Manifest,
    fleet: &mut LiveFleet,
    found: &mut Recovered,
) -> Result<Tail, StoreError> {
    found.torn_bytes = recovery.torn.as_ref().map_or(0, |torn| torn.len);
    for damage in &recovery.damage {
        // What was in files before it was damaged is not lost.
        if damage.sequences.end > manifest.flushed_through.saturating_add(1) {
            let (from, to) = (damage.sequences.start, damage.sequences.end.saturating_sub(1));
            found.damage.push(format!("log {} lost records {from} to {to}", damage.segment));
        }
    }
    let mut tail = Tail::default();
    for record in recovery {
        let record = record?;
        if record.sequence <= manifest.flushed_through {
            continue;
        }
        tail.last_sequence = record.sequence;
        match port::replay(&record, directory) {
            Ok((_, arrival)) => {
                found.records += 1;
                found.log_rows += arrival.batch.rows() as u64;
                fleet.apply(&arrival.batch, &arrival.keys);
                if let Err(error) = tail.push(arrival.chunk) {
                    // As when they came: they stay apart.
                    tracing::warn!(error = causes(&error), "rows of the log do not fold");
                }
            }
            Err(reason) => found.damage.push(reason),
        }
    }
    tail.permits = tail.bytes / PERMIT_BYTES;
    Ok(tail)
}
