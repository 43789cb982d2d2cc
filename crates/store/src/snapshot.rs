//! A reader's view: the files and the rows in memory at one version.

use std::sync::Arc;

use crate::grain::Grain;
use crate::manifest::{FileEntry, LostFile};
use crate::tail::Chunk;

/// Everything visible at one version. Its files stay on disk as long as a snapshot names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Live files, oldest arrival first ([`crate::manifest::FileRecord::order`]): if two files have the same key, the
    /// later one wins.
    pub(crate) files: Arc<[Arc<FileEntry>]>,
    /// Live files with rows that are put together.
    pub(crate) rollups: Arc<[Arc<FileEntry>]>,
    /// Files whose rows every answer lacks.
    pub(crate) lost: Arc<[LostFile]>,
    /// Flushes since the store was opened whose rows are in these files.
    pub(crate) flushes: u64,
    /// Rows not yet in files, oldest arrival first. They arrived later than all files.
    pub(crate) tail: Vec<Arc<Chunk>>,
}

impl Snapshot {
    /// Whether a rollup's rows are there: those that it was made of.
    pub(crate) fn has_rows_of(&self, rollup: &FileEntry) -> bool {
        self.files.iter().any(|file| (file.table, file.order) == (rollup.table, rollup.order))
    }

    /// The live files of a grain.
    pub(crate) fn files_of(&self, grain: Grain) -> impl Iterator<Item = &Arc<FileEntry>> {
        let files = if grain == Grain::Raw { &self.files } else { &self.rollups };
        files.iter().filter(move |file| file.grain == grain)
    }
}
