//! A file that cannot be read is named.

use std::sync::Arc;

use gpuvitals_core::causes;

use crate::file::FileError;
use crate::manifest::FileEntry;

/// The answer's message about an unreadable file. If the file is at fault it is condemned.
pub(crate) fn unreadable(entry: &Arc<FileEntry>, error: &FileError) -> String {
    let words = causes(error);
    if error.is_damage() {
        tracing::error!(file = %entry.path.display(), reason = %words, "table file is damaged");
        entry.condemn(words.as_str());
    }
    words
}
