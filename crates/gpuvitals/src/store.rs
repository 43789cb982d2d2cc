//! `gpuvitals store`: work on a store that no process has open.

use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use gpuvitals_settings::{Bytes, settings};
use gpuvitals_store::{RepairProgress, RepairReport, StoreError, repair};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::record::{bytes, count};
use crate::terminal;

settings! {
    /// History: tables in files
    pub(crate) struct Store = "store" {
        /// Directory; one process writes it, any number read it
        pub dir: PathBuf = "data", flag "--data-dir DIR";
        /// Rows leave memory for a file after this time,
        pub flush_age: Duration = "60s", from "1ms";
        /// or this many rows,
        pub flush_rows: usize = 400_000, from 1;
        /// or this much memory, whichever is first
        pub flush_bytes: Bytes = "64MiB", from 1;
    }
}

/// `gpuvitals store`
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `store`.
#[derive(Debug, Subcommand)]
enum What {
    /// Rebuild the manifest from the files themselves
    ///
    /// For a store that does not open because its manifest is missing or damaged, after a restore, and to
    /// list files in quarantine/ again. Every table file is read and checked. Whole ones are listed, damaged
    /// ones are moved to quarantine/; nothing is deleted. The store must be stopped.
    #[command(after_help = "Examples:
  gpuvitals store repair                    the store in store.dir of the configuration, or ./data
  gpuvitals store repair --data-dir copy    another one")]
    Repair(Repair),
}

/// `gpuvitals store repair`
#[derive(Debug, Args)]
struct Repair {
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Executes the subcommand.
///
/// # Errors
/// If there is no store, another process has it open, or the disk refuses.
pub(crate) fn run(command: &StoreCommand, settings: &Store) -> Result<(), Failure> {
    let What::Repair(flags) = &command.what;
    let dir = &settings.dir;
    let shows = stderr().is_terminal();
    let outcome = repair(dir, |progress| {
        if shows {
            terminal::draw(&line(progress));
        }
    });
    terminal::leave();
    let repaired = outcome.map_err(|error| {
        let exit = if matches!(error, StoreError::NoStore(_)) { Exit::Data } else { exit(&error) };
        Failure::caused(exit, "cannot repair the store", error)
    })?;
    if flags.json {
        return crate::print(&format!("{:#}\n", as_json(&repaired)));
    }
    crate::print(&text(&repaired))
}

/// The exit code of a store's error.
pub(crate) fn exit(error: &StoreError) -> Exit {
    match error {
        StoreError::Locked(_) => Exit::Unavailable,
        StoreError::Io { source, .. } => Exit::of(source),
        _ => Exit::Io,
    }
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

fn files(number: usize) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{} files", count(number as u64)) }
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
