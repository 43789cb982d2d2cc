//! Reading the parts of a snapshot: row groups of table files, and chunks of the tail.
//!
//! A query has a [`Scope`] (GPUs and time). Unneeded data is skipped at every level: files by the manifest,
//! row groups by the facts in the footer, pages by the page index, columns by projection (and by statistics
//! if a column is all null), tail rows by the tail's index. The rows read are then filtered exactly.
//!
//! The bytes of a row group are checked against their checksum at their first reading. A file found damaged
//! is condemned; the answer continues without it and reports this.

mod contest;
mod files;
mod pages;
mod parallel;
mod part;
mod scope;
mod section;
mod unreadable;

use std::sync::Arc;

use gpuvitals_core::history::QueryError;
use tokio_util::sync::CancellationToken;

use crate::grain::Grain;
use crate::manifest::FileEntry;
use crate::snapshot::Snapshot;
use crate::step::FileSteps;

use files::Files;

pub(crate) use contest::{contested, joined};
pub(crate) use parallel::parallel;
pub(crate) use part::{Columns, Part};
pub(crate) use scope::{Scope, in_time};
pub(crate) use unreadable::unreadable;

/// Reads snapshots. Keeps footers of files parsed and files open, within a bound.
#[derive(Debug)]
pub(crate) struct Reader {
    files: Files,
}

impl Reader {
    /// A reader for a store.
    pub(crate) fn of_store(steps: FileSteps) -> Self {
        Self { files: Files::of_store(steps) }
    }

    /// A reader for a view, which holds on to the files of its snapshot.
    pub(crate) fn of_view() -> Self {
        Self { files: Files::of_view() }
    }

    /// Opens the files of a snapshot: they can be read even if the writer removes them meanwhile.
    /// Whether none of them was gone already. The query that reads a file names it if it does not open.
    pub(crate) fn keep_open(&self, snapshot: &Snapshot) -> bool {
        let files = snapshot.files.iter().chain(snapshot.rollups.iter());
        let gone = files.filter(|entry| self.files.open(entry).is_err() && !entry.path.exists());
        gone.count() == 0
    }
}

/// What one query reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) snapshot: &'a Snapshot,
    /// Cancelled when nobody waits for the answer any more.
    pub(crate) abandoned: &'a CancellationToken,
}

/// The question was taken back; nobody sees this.
#[derive(Debug, thiserror::Error)]
#[error("nobody waits for the answer any more")]
struct Abandoned;

impl Reading<'_> {
    /// Fails once nobody waits for the answer: to be asked before each part.
    pub(crate) fn go_on(&self) -> Result<(), QueryError> {
        if self.abandoned.is_cancelled() { Err(QueryError::failed(Abandoned)) } else { Ok(()) }
    }

    /// The parts of a snapshot that may hold rows in scope, oldest arrival first. Files that cannot be read are
    /// condemned if they are at fault, left out, and named in `partial`.
    ///
    /// # Errors
    /// As [`Reading::go_on`].
    pub(crate) fn parts(&self, scope: &Scope, partial: &mut Vec<String>) -> Result<Vec<Part>, QueryError> {
        self.go_on()?;
        let Self { reader, snapshot, .. } = self;
        reader.files.release();
        let mut parts = Vec::new();
        let met: Vec<&Arc<FileEntry>> =
            snapshot.files_of(scope.grain).filter(|entry| scope.meets_file(entry)).collect();
        // A footer takes milliseconds to parse.
        let closed = met.iter().filter(|entry| !reader.files.has(entry)).count();
        let opened = parallel(&met, closed > 1, |_, entry| {
            self.go_on()?;
            Ok::<_, QueryError>(match entry.damage() {
                Some(reason) => Err(format!("{}: {reason}", entry.path.display())),
                None => reader.files.open(entry).map_err(|error| unreadable(entry, &error)),
            })
        });
        for (entry, file) in met.iter().zip(opened) {
            match file? {
                Ok(file) => parts.extend(Part::of_file(entry, &file, scope)),
                Err(words) => partial.push(words),
            }
        }
        let chunks =
            snapshot.tail.iter().filter(|chunk| chunk.table == scope.table && scope.grain == Grain::Raw);
        parts.extend(chunks.filter_map(|chunk| Part::of_chunk(chunk, scope)));
        Ok(parts)
    }

    /// The lost files that had rows in scope, in words.
    pub(crate) fn lost(&self, scope: &Scope) -> impl Iterator<Item = String> {
        let lost = self.snapshot.lost.iter().filter(|lost| scope.meets_rows(&lost.file));
        lost.map(ToString::to_string)
    }
}
