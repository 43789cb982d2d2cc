//! `gpuvitals store`: what a store holds, whether its files are whole, their repair and their merges, rows from files and other
//! stores, and rows into files.

mod compact;
mod export;
mod import;
mod output;
mod settings;

use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;

use clap::{Args, Subcommand};
use gpuvitals_core::time;
use gpuvitals_store::{Grain, RepairProgress, RepairReport, StoreCheck, StoreContents};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::files::Files;
use crate::record::{bytes, count};
use crate::table::with_numbers;
use crate::terminal;

use output::{StoreOutput, failed, files};

pub(crate) use output::exit;
pub(crate) use settings::Store;

/// `gpuvitals store`
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    what: StoreAction,
}

/// Subcommands of `store`.
#[derive(Debug, Subcommand)]
enum StoreAction {
    /// Show what a store holds: files, rows, bytes and times of each table
    ///
    /// Reads the list of files, not the files: rows that are in no file yet are in the log. The store may be open.
    #[command(after_help = "Examples:
  gpuvitals store stats                     the store in store.dir of the configuration, or ./data
  gpuvitals store stats --json | jq .tables")]
    Stats(StoreOutput),

    /// Read every file and compare it with its checksums
    ///
    /// Ends with code 65 if a file is missing, damaged or cannot be read, and changes nothing. The store may be open.
    #[command(after_help = "Examples:
  gpuvitals store check                     the store in store.dir of the configuration, or ./data
  gpuvitals store check --data-dir backup   another one")]
    Check(StoreOutput),

    /// Rebuild the manifest from the files themselves
    ///
    /// For a store that does not open because its manifest is missing or damaged, after a restore, and to
    /// list files in quarantine/ again. Every table file is read and checked. Whole ones are listed, damaged
    /// ones are moved to quarantine/; nothing is deleted. The store must be stopped.
    #[command(after_help = "Examples:
  gpuvitals store repair                    the store in store.dir of the configuration, or ./data
  gpuvitals store repair --data-dir copy    another one")]
    Repair(StoreOutput),

    /// Put rows of files, recordings and other stores into the store
    ///
    /// Rows are synced as they come, and merge by key: rows that the store has change nothing, and an import that was cut
    /// short is begun again. A path that cannot be read does not stop the others; the exit code is 65 then. The store must
    /// be stopped.
    #[command(after_help = "Examples:
  gpuvitals store import capture.csv        into the store in store.dir of the configuration, or ./data
  gpuvitals store import telemetry/ old/data --data-dir data      a recording and another store")]
    Import(import::Import),

    /// Write rows of the store into a Parquet or CSV file
    ///
    /// All rows that are acknowledged when it begins, by time. The store may be open. `store import`, `stream --replay` and
    /// `up --replay` take the file. If a file of the store is damaged, the file has the rest, and the exit code is 65.
    #[command(after_help = "Examples:
  gpuvitals store export -o rows.parquet    all GPUs of the store in store.dir of the configuration, or ./data
  gpuvitals store export -o night.csv --start 2026-11-20T22:00:00Z --end 2026-11-21T06:00:00Z --metrics power_w
  gpuvitals store export -o hosts.parquet --table system_events --data-dir data")]
    Export(export::Export),

    /// Merge all files that can be merged, now
    ///
    /// A running writer does this by itself when an hour or a day is over. Hours become one file each, days of up to 64 MiB
    /// one file, and their rollups are written. The store must be stopped.
    #[command(after_help = "Examples:
  gpuvitals store compact                   the store in store.dir of the configuration, or ./data
  gpuvitals store compact --data-dir old    another one")]
    Compact(StoreOutput),
}

/// Executes the subcommand.
///
/// # Errors
/// If there is no store, a command that changes it finds it open, one that reads it finds a fault, or the disk refuses.
pub(crate) fn run(
    command: &StoreCommand,
    (settings, csv): (&Store, &Files),
    open: impl FnOnce() -> Result<Arc<gpuvitals_store::Store>, Failure>,
) -> Result<(), Failure> {
    let dir = &settings.dir;
    let shows = stderr().is_terminal();
    let draw = |progress| {
        if shows {
            terminal::draw(&line(progress));
        }
    };
    match &command.what {
        StoreAction::Stats(output) => {
            let found = gpuvitals_store::contents(dir).map_err(failed("read"))?;
            output.print(&json!(found), || contents_text(&found))
        }
        StoreAction::Check(output) => {
            let found = gpuvitals_store::check(dir, draw).map_err(failed("check"))?;
            terminal::leave();
            output.print(&json!(found), || check_text(&found))?;
            if found.faults.is_empty() {
                return Ok(());
            }
            let faults = files(found.faults.len());
            Err(Failure::new(Exit::Data, format!("{}: {faults} cannot be read whole", dir.display())))
        }
        StoreAction::Repair(output) => {
            let repaired = gpuvitals_store::repair(dir, draw).map_err(failed("repair"))?;
            terminal::leave();
            output.print(&as_json(&repaired), || text(&repaired))
        }
        StoreAction::Import(flags) => import::run(flags, csv.hints()?, settings, open),
        StoreAction::Export(flags) => export::run(flags, dir),
        StoreAction::Compact(output) => compact::run(output, dir, open),
    }
}

fn contents_text(found: &StoreContents) -> String {
    let mut text = match &found.manifest {
        Some(manifest) => format!("{}\n", manifest.display()),
        None => "no list of files, as in a copy of an open store: these are all that are there\n".to_owned(),
    };
    let heads = ["TABLE", "ROLLUP", "FILES OF", "FIRST", "LAST", "FILES", "ROWS", "SIZE"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for of in &found.tables {
        let level = ["a flush", "an hour", "a day"].get(usize::from(of.level)).copied().unwrap_or_default();
        lines.push(vec![
            of.table.to_string(),
            if of.grain == Grain::Raw { "-" } else { of.grain.name() }.to_owned(),
            level.to_owned(),
            time::format(of.min_timestamp_ns),
            time::format(of.max_timestamp_ns),
            count(of.size.files),
            count(of.size.rows),
            bytes(of.size.bytes),
        ]);
    }
    text.push_str(&with_numbers(&lines, 5));
    let _written = writeln!(text, "log: {}", bytes(found.log_bytes));
    if found.quarantined > 0 {
        let _written = writeln!(text, "in quarantine: {}", files(found.quarantined));
    }
    for fault in &found.damaged_manifests {
        let _written = writeln!(text, "not used: {fault}");
    }
    for lost in &found.lost {
        let _written = writeln!(text, "lost: {lost}");
    }
    text
}

fn check_text(found: &StoreCheck) -> String {
    let whole = &found.whole;
    let size = bytes(whole.bytes);
    let number = usize::try_from(whole.files).unwrap_or(usize::MAX);
    let mut text = format!("whole: {} with {} rows ({size})\n", files(number), count(whole.rows));
    for fault in &found.faults {
        let _written = writeln!(text, "not whole: {}: {}", fault.path.display(), fault.reason);
    }
    text
}

fn line(progress: RepairProgress) -> String {
    let RepairProgress { files, files_total, bytes: done, bytes_total } = progress;
    format!("checked {files} of {files_total} files, {} of {}", bytes(done), bytes(bytes_total))
}

fn text(repaired: &RepairReport) -> String {
    let mut text = format!(
        "{} lists {} with {} rows ({})\n",
        repaired.manifest.display(),
        files(repaired.files),
        count(repaired.rows),
        bytes(repaired.bytes)
    );
    if !repaired.brought_back.is_empty() {
        let _written = writeln!(text, "brought back from quarantine: {}", files(repaired.brought_back.len()));
    }
    for aside in &repaired.set_aside {
        let _written = writeln!(text, "not listed: {}: {}", aside.path.display(), aside.reason);
    }
    text.push_str(
        "nothing was deleted; a row in two files shows once, and rows that only the log has come back at the next \
         start\n",
    );
    text
}

fn as_json(repaired: &RepairReport) -> serde_json::Value {
    let text = |path: &std::path::PathBuf| path.display().to_string();
    json!({
        "manifest": text(&repaired.manifest),
        "files": repaired.files,
        "rows": repaired.rows,
        "bytes": repaired.bytes,
        "brought_back": repaired.brought_back.iter().map(text).collect::<Vec<_>>(),
        "set_aside": repaired
            .set_aside
            .iter()
            .map(|aside| json!({ "path": text(&aside.path), "reason": aside.reason }))
            .collect::<Vec<_>>(),
    })
}
