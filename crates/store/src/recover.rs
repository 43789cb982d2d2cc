//! Opening a store: what its directory holds.

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use arrow_array::RecordBatch;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::{FleetBounds, LiveFleet, Part, spelling};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, Origin, Table, causes, clock, wire};
use gpuvitals_log::{Record, Recovery};
use parquet::errors::ParquetError;

use crate::directory::{self, Directory, QUARANTINE};
use crate::error::StoreError;
use crate::file;
use crate::grain::Grain;
use crate::inventory::{FileKind, Inventory};
use crate::jobs::Arrival;
use crate::manifest::{FileEntry, FileRecord, Manifest};
use crate::shared::PERMIT_BYTES;
use crate::step::{FileStep, FileSteps};
use crate::tail::Tail;

/// Kind of a log record that holds rows, as [`wire::push_frame`] puts them.
pub(crate) const KIND_ROWS: u8 = 2;
/// Newest files whose footers are read when the store is opened; the others are checked when they are first read.
const FOOTERS: usize = 64;

/// Remedy for files missing from the list.
const REPAIR: &str = "with the store stopped run `gpuvitals store repair`";

/// The result of opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files of rows that the manifest lists, without rollups.
    pub files: usize,
    /// Rows in these.
    pub file_rows: u64,
    /// Log records that were not in files yet.
    pub records: u64,
    /// Rows in these.
    pub log_rows: u64,
    /// Bytes at the end of the log that the last crash left unfinished; nothing of them was acknowledged.
    pub torn_bytes: u64,
    /// GPUs that have a latest state.
    pub gpus: usize,
    /// Files that were removed: remains of unfinished writes, and files that the manifest names as replaced.
    pub removed: Vec<PathBuf>,
    /// Files of the store that the manifest does not name, in `quarantine/` now. [`crate::repair`] lists them again.
    pub unlisted: Vec<PathBuf>,
    /// Table files that were in `quarantine/` before. [`crate::repair`] lists the whole ones again.
    pub in_quarantine: usize,
    /// Files that are not the store's and were left alone.
    pub foreign: Vec<PathBuf>,
    /// Lost or set-aside data, in words; empty after an ordinary crash.
    pub damage: Vec<String>,
}

/// A manifest in force, its files checked.
pub(crate) struct CheckedManifest {
    pub(crate) manifest: Manifest,
    /// No newer manifest is damaged, and no file that this one lists is newly missing or damaged.
    is_whole: bool,
}

/// Reads the manifest in force and checks the files that it lists.
///
/// # Errors
/// As [`Manifest::load`], and when a file cannot be inspected or removed.
pub(crate) fn files(directory: &Directory, found: &mut Recovered) -> Result<CheckedManifest, StoreError> {
    let inventory = Inventory::take(directory.root())?;
    let mut damaged = Vec::new();
    let mut manifest = Manifest::load(directory, &inventory, &mut damaged)?;
    if !damaged.is_empty() {
        let (damaged, opened) = (damaged.join("; "), manifest.name());
        let text = format!("{damaged}; opened with {opened}, which may lack files: {REPAIR}");
        found.damage.push(text);
    }
    let listed = std::mem::take(&mut manifest.files);
    let skip_footers = listed.len().saturating_sub(FOOTERS);
    let rollups = std::mem::take(&mut manifest.rollups);
    for lost in std::mem::take(&mut manifest.lost) {
        let entry = Arc::new(FileEntry::new(directory.root(), lost.file.clone()));
        if is_back(&entry) {
            tracing::info!(name = entry.name, "a file that was lost is there again");
            manifest.add(directory.root(), [lost.file]);
        } else {
            manifest.lost.push(lost);
        }
    }
    let known = manifest.lost.len();
    for (position, entry) in listed.iter().enumerate() {
        let check = if position < skip_footers { FileCheck::Length } else { FileCheck::Footer };
        match fault(directory, entry, check)? {
            None => manifest.files.push(Arc::clone(entry)),
            Some(fault) => manifest.lose(entry, fault),
        }
    }
    manifest.files.sort_by_key(|file| file.order);
    let is_whole = damaged.is_empty() && manifest.lost.len() == known;
    for entry in rollups {
        match fault(directory, &entry, FileCheck::Length)? {
            None => manifest.rollups.push(entry),
            Some(fault) => manifest.lose(&entry, fault),
        }
    }
    found.files = manifest.files.len();
    found.file_rows = manifest.files.iter().map(|file| file.rows).sum();
    let checked = CheckedManifest { manifest, is_whole };
    sweep(directory, &inventory, &checked, found)?;
    Ok(checked)
}

/// Whether a file that was lost is there again, and whole.
fn is_back(entry: &FileEntry) -> bool {
    entry.path.exists()
        && file::open(entry, &FileSteps::default())
            .is_ok_and(|table| (0..table.row_groups.len()).all(|group| table.verify(group).is_ok()))
}

/// The fault of a listed file in words, if it has one. A damaged file is set aside.
fn fault(directory: &Directory, entry: &FileEntry, check: FileCheck) -> Result<Option<String>, StoreError> {
    Ok(match check.fault(entry)? {
        None => None,
        Some(TableFault::Missing) => Some("is missing".to_owned()),
        Some(TableFault::Damaged(reason)) => Some(match directory.quarantine(&entry.name) {
            Ok(_) => format!("is damaged ({reason})"),
            Err(error) => format!("is damaged ({reason}), not set aside: {error}"),
        }),
    })
}

enum TableFault {
    Missing,
    Damaged(String),
}

/// How closely a listed file is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileCheck {
    Length,
    /// The length, and that the footer parses.
    Footer,
}

impl FileCheck {
    /// The fault of a file, if any.
    fn fault(self, entry: &FileEntry) -> Result<Option<TableFault>, StoreError> {
        match fs::metadata(&entry.path) {
            Ok(facts) if facts.len() == entry.bytes => {}
            Ok(facts) => {
                let reason = format!("it has {} bytes, not {}", facts.len(), entry.bytes);
                return Ok(Some(TableFault::Damaged(reason)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(TableFault::Missing));
            }
            // It may be whole: a store without it would have less than what was acknowledged.
            Err(error) => return Err(StoreError::io("inspect", &entry.path, error)),
        }
        match (self == Self::Footer).then(|| file::open(entry, &FileSteps::default())) {
            Some(Err(error)) if error.is_damage() => Ok(Some(TableFault::Damaged(causes(&error)))),
            _ => Ok(None),
        }
    }
}

/// Removes files that are certainly useless, and sets aside every other file that the manifest does not list.
/// If the store is not whole, a replaced file may hold the rows of a lost one: then it is set aside, too.
fn sweep(
    directory: &Directory,
    inventory: &Inventory,
    checked: &CheckedManifest,
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let CheckedManifest { manifest, is_whole } = checked;
    let mut kept: HashSet<String> = manifest.names().into_iter().collect();
    // A copy that was put back waits for a repair.
    kept.extend(manifest.lost.iter().map(|lost| lost.file.name.clone()));
    for (name, kind) in inventory.files.iter().filter(|(name, _)| !kept.contains(name)) {
        let path = directory.root().join(name);
        if *kind == FileKind::Unfinished || *is_whole && manifest.replaced.contains(name) {
            match fs::remove_file(&path) {
                Ok(()) => found.removed.push(path),
                // The first manifest has just taken the place of an unfinished one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("remove", &path, error)),
            }
            continue;
        }
        match directory.quarantine(name) {
            Ok(place) => found.unlisted.push(place),
            Err(error) => tracing::warn!(name, %error, "a file that the manifest does not list stays"),
        }
    }
    found.in_quarantine = inventory.tables_aside();
    found.foreign.clone_from(&inventory.foreign);
    Ok(())
}

/// Latest values as of the manifest; from all files if they have no file of their own, or it is damaged. They lack those
/// of the files that are lost or cannot be read.
pub(crate) fn fleet(
    root: &Path,
    manifest: &Manifest,
    bounds: FleetBounds,
    found: &mut Recovered,
) -> Part<LiveFleet> {
    let mut fleet = LiveFleet::new(bounds);
    let Some(record) = &manifest.fleet else { return fleet_of_files(manifest, bounds, found) };
    let path = root.join(&record.name);
    let read = directory::read(&path).map_err(|error| error.to_string()).and_then(|bytes| {
        if crc32c::crc32c(&bytes) != record.crc32c {
            return Err("checksum".to_owned());
        }
        spelling::read(&bytes, &mut fleet).map_err(|error| causes(&error))
    });
    let Err(reason) = read else { return Part::whole(fleet) };
    found.damage.push(format!(
        "{} is damaged ({reason}); latest values are taken from the files, the next flush writes it anew",
        record.name
    ));
    fleet_of_files(manifest, bounds, found)
}

fn fleet_of_files(manifest: &Manifest, bounds: FleetBounds, found: &mut Recovered) -> Part<LiveFleet> {
    let mut fleet = LiveFleet::new(bounds);
    let lost = manifest.lost.iter();
    let lost = lost.filter(|lost| (lost.file.table, lost.file.grain) == (Table::GpuEvents, Grain::Raw));
    let mut missing: Vec<String> = lost.map(ToString::to_string).collect();
    for entry in manifest.files.iter().filter(|entry| entry.table == Table::GpuEvents) {
        if let Err(error) = apply_file(entry, &mut fleet) {
            let words = format!("latest values in {} are not known: {}", entry.name, causes(&error));
            missing.push(words.clone());
            found.damage.push(words);
            if error.is_damage() {
                entry.condemn(causes(&error));
            }
        }
    }
    Part { answer: fleet, missing }
}

/// Rows of a file that are in memory at once.
const READ_ROWS: usize = 1 << 14;

fn apply_file(entry: &FileEntry, fleet: &mut LiveFleet) -> Result<(), file::FileError> {
    let table = file::open(entry, &FileSteps::default())?;
    for group in 0..table.row_groups.len() {
        table.verify(group)?;
        for rows in table.read_group(group, READ_ROWS)? {
            apply(&rows?, fleet).map_err(|error| {
                file::FileError::parquet(
                    "take the latest values of",
                    &entry.path,
                    ParquetError::External(error),
                )
            })?;
        }
    }
    Ok(())
}

/// Takes in the latest values of rows of `gpu_events`.
///
/// # Errors
/// If a row is of no GPU, or a column has another type than today.
pub(crate) fn apply(rows: &RecordBatch, fleet: &mut LiveFleet) -> Result<(), Box<dyn Error + Send + Sync>> {
    let keys = RowKeys::of(rows, Table::GpuEvents)?;
    let batch = Batch::new(Table::GpuEvents, rows.clone(), Origin::default(), 0)?;
    fleet.arrive(&batch, &keys, clock::now_ns());
    Ok(())
}

/// Compares the range of the log with the records in files. If the files are not whole, the log is read from
/// its beginning: it may still have rows of a lost file, and would truncate them with the next flush.
///
/// # Errors
/// If a manifest must be written and cannot be.
pub(crate) fn align(
    recovery: &Recovery,
    directory: &Directory,
    checked: &mut CheckedManifest,
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let CheckedManifest { manifest, is_whole } = checked;
    let known =
        recovery.next_sequence.max(manifest.flushed_through.map_or(0, |flushed| flushed.saturating_add(1)));
    let beyond = directory.lock().noted_end().saturating_sub(known);
    if beyond > 0 {
        found.damage.push(format!(
            "the end of the log is gone, with {} that were stored: its newest segment was removed, or the directory is \
             an older copy",
            counted(beyond, "record")
        ));
    }
    let Some(flushed) = manifest.flushed_through else {
        say_lost(directory, manifest, found);
        return Ok(());
    };
    let lost = manifest.lost.len();
    let (back, gone) = std::mem::take(&mut manifest.lost)
        .into_iter()
        .partition(|lost| covers(recovery, &lost.file, flushed));
    manifest.lost = gone;
    for lost in back {
        let file = lost.describe(directory);
        tracing::warn!(file, "a file is lost; the log has all of its rows, and gives them back");
        manifest.drop_rollups(&lost.file);
    }
    let is_whole = *is_whole && manifest.lost.len() == lost;
    say_lost(directory, manifest, found);
    manifest.flushed_through = manifest.flushed_through.filter(|_| is_whole);
    if recovery.next_sequence <= flushed {
        let end = recovery.next_sequence.saturating_sub(1);
        found.damage.push(format!(
            "the log ends at record {end}, the files reach to record {flushed}: its end is gone, with all rows that \
             were not in files yet"
        ));
        // Records to come must not be taken for old ones.
        let mut next = manifest.successor(directory);
        next.flushed_through = Some(end).filter(|_| is_whole);
        next.store(directory)?;
        *manifest = next;
    } else if recovery.follows > flushed.saturating_add(1) {
        let (from, to, name) = (flushed + 1, recovery.follows - 1, manifest.name());
        found.damage.push(format!(
            "records {from} to {to} are neither in the log nor in files that {name} lists; if it is an older copy, {REPAIR}"
        ));
    }
    Ok(())
}

/// Whether the log has every record that the rows of a file may come from.
fn covers(recovery: &Recovery, file: &FileRecord, flushed: u64) -> bool {
    let first = file.first_sequence;
    first > 0
        && recovery.follows <= first
        && recovery.next_sequence > flushed
        && recovery.damage.iter().all(|damage| damage.sequences.end <= first)
}

fn say_lost(directory: &Directory, manifest: &Manifest, found: &mut Recovered) {
    let lost = manifest.lost.iter().map(|lost| lost.describe(directory));
    found
        .damage
        .extend(lost.map(|text| format!("{text}; put a good copy back and start again, or {REPAIR}")));
}

/// Takes in the log's records that are not in files.
pub(crate) fn log(
    recovery: Recovery,
    directory: &Directory,
    manifest: &Manifest,
    fleet: &mut LiveFleet,
    found: &mut Recovered,
) -> Result<Tail, StoreError> {
    let flushed = manifest.flushed_through.unwrap_or(0);
    found.torn_bytes = recovery.torn.as_ref().map_or(0, |torn| torn.len);
    for damage in &recovery.damage {
        // Rows that were in files before the damage are not lost.
        if damage.sequences.end > flushed.saturating_add(1) {
            found.damage.push(format!("log {damage}"));
        }
    }
    let mut tail = Tail::default();
    for record in recovery {
        let record = record?;
        if record.sequence <= flushed {
            continue;
        }
        tail.last_sequence = record.sequence;
        let arrivals = match rows(&record) {
            Ok(arrivals) => arrivals,
            Err(reason) => {
                found.damage.push(set_aside(&record, &reason, directory));
                continue;
            }
        };
        found.records += 1;
        for Arrival { batch, keys, chunk, .. } in arrivals {
            found.log_rows += batch.rows() as u64;
            if batch.table() == Table::GpuEvents {
                fleet.arrive(&batch, &keys, clock::now_ns());
            }
            if let Err(error) = tail.push(chunk, record.sequence) {
                // As when they came: they stay apart.
                tracing::warn!(error = causes(&error), "rows of the log do not fold");
            }
        }
    }
    tail.permits = tail.bytes / PERMIT_BYTES;
    Ok(tail)
}

/// The rows of a log record: of one append.
///
/// # Errors
/// Why it holds no rows, in words.
pub(crate) fn rows(record: &Record) -> Result<Vec<Arrival>, String> {
    if record.kind != KIND_ROWS {
        return Err(format!("kind {} is not known", record.kind));
    }
    let arrival = |batch| Arrival::new(batch).map_err(|error| causes(&error));
    wire::decode_frames(&record.payload)
        .map(|batch| arrival(batch.map_err(|error| causes(&error))?))
        .collect()
}

/// Keeps a record that holds no rows, and says where.
fn set_aside(record: &Record, reason: &str, directory: &Directory) -> String {
    let path = directory.root().join(QUARANTINE).join(format!("record-{}.bin", record.sequence));
    let kept = directory::write(&path, &record.payload, &FileSteps::default(), FileStep::Rename);
    let place = kept.map_or_else(|error| error.to_string(), |()| path.display().to_string());
    format!("log record {} holds no rows ({reason}), kept in {place}", record.sequence)
}
