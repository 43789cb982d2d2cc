//! `gpuvitals store compact`: all files that can be merged are merged now.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_store::{Grain, LevelStats, Store, StoreContents, StoreError};
use serde::Serialize;
use serde_json::json;

use super::output::{StoreOutput, failed, files, overwritten_words};
use crate::failure::Failure;
use crate::record::{bytes, count};
use crate::terminal;

/// Between two drawings of the progress.
const DRAW_PAUSE: Duration = Duration::from_millis(100);

/// The files of a store.
#[derive(Debug, Default, Serialize)]
struct StoreSizes {
    /// Of rows as they came.
    rows: LevelStats,
    /// Of rollups, which hold figures of minutes and hours.
    rollups: LevelStats,
}

impl StoreSizes {
    fn of(found: &StoreContents) -> Self {
        let mut sizes = Self::default();
        for of in &found.tables {
            let sum = if of.grain == Grain::Raw { &mut sizes.rows } else { &mut sizes.rollups };
            sum.files += of.size.files;
            sum.rows += of.size.rows;
            sum.bytes += of.size.bytes;
        }
        sizes
    }

    fn text(&self) -> String {
        let number = |level: &LevelStats| files(usize::try_from(level.files).unwrap_or(usize::MAX));
        let Self { rows, rollups } = self;
        format!(
            "{} with {} rows ({}), rollups in {} ({})",
            number(rows),
            count(rows.rows),
            bytes(rows.bytes),
            number(rollups),
            bytes(rollups.bytes)
        )
    }
}

/// Compacts.
///
/// # Errors
/// If there is no store, it is open elsewhere, or the disk refuses; then all rows are there.
pub(super) fn run(
    output: &StoreOutput,
    dir: &Path,
    open: impl FnOnce() -> Result<Arc<Store>, Failure>,
) -> Result<(), Failure> {
    let before = StoreSizes::of(&gpuvitals_store::contents(dir).map_err(failed("read"))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::io("cannot start the runtime", e))?;
    let store = open()?;
    let compacted = runtime.block_on(merge(&store));
    terminal::leave();
    let closed = runtime.block_on(store.close());
    compacted.and(closed).map_err(failed("compact"))?;
    let now = StoreSizes::of(&gpuvitals_store::contents(dir).map_err(failed("read"))?);
    let overwritten = store.stats().rows_overwritten;
    output.print(&json!({ "before": before, "now": now, "rows_overwritten": overwritten }), || {
        let said = overwritten_words(overwritten).map(|said| format!("{said}\n")).unwrap_or_default();
        format!("before: {}\nnow:    {}\n{said}", before.text(), now.text())
    })
}

/// Merges, and shows how far it is.
async fn merge(store: &Store) -> Result<(), StoreError> {
    let shows = stderr().is_terminal();
    let mut pause = tokio::time::interval(DRAW_PAUSE);
    let mut merging = std::pin::pin!(store.compact());
    loop {
        tokio::select! {
            done = &mut merging => return done,
            _ = pause.tick() => {
                let stats = store.stats();
                if shows {
                    let files = files(usize::try_from(stats.flushed.files + stats.merged.files).unwrap_or(usize::MAX));
                    terminal::draw(&format!("{} merges done, {files} now", count(stats.merges)));
                }
            }
        }
    }
}
