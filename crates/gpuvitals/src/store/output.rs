//! The output of a command is JSON or text.

use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_store::StoreError;

use crate::failure::{Exit, Failure};
use crate::record::count;
use crate::terminal;

/// Flags of each of them.
#[derive(Debug, Args)]
pub(super) struct StoreOutput {
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// The failure of one of them.
pub(super) fn failed(doing: &str) -> impl FnOnce(StoreError) -> Failure + use<> {
    let doing = format!("cannot {doing} the store");
    move |error| {
        terminal::leave();
        let exit = if matches!(error, StoreError::NoStore(_)) { Exit::Data } else { exit(&error) };
        Failure::caused(exit, doing, error)
    }
}

impl StoreOutput {
    pub(super) fn print(
        &self,
        json: &serde_json::Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        terminal::print(&if self.json { format!("{json:#}\n") } else { text() })
    }
}

/// Says how many rows lost a value to a later row. Empty: none did.
pub(super) fn overwritten_words(rows: u64) -> Option<String> {
    let rows = (rows > 0).then(|| counted(rows, "row"))?;
    Some(format!("{rows} had other values than a row of the same GPU and time; the later ones stayed"))
}

pub(super) fn files(number: usize) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{} files", count(number as u64)) }
}

/// The exit code of a store's error.
pub(crate) fn exit(error: &StoreError) -> Exit {
    match error {
        StoreError::Locked(_) => Exit::Unavailable,
        StoreError::Io { source, .. } => Exit::of(source),
        _ => Exit::Io,
    }
}
