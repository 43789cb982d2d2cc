//! A reader's view: the files and the rows in memory at one version.

use std::sync::Arc;

use crate::manifest::FileEntry;
use crate::recent::Recent;
use crate::tail::TailSnapshot;

/// Everything visible at one version. Its files stay on disk as long as a snapshot names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Live files, oldest arrival first ([`FileEntry::order`]): if two files have the same key, the later one
    /// wins.
    pub(crate) files: Arc<[Arc<FileEntry>]>,
    /// Rows not yet in files. They arrived later than all files.
    pub(crate) tail: TailSnapshot,
    /// Rows of these files that memory has as well.
    pub(crate) recent: Option<Arc<Recent>>,
}
