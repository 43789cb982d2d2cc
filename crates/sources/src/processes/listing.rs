//! Folders whose entries are numbers: processes, file descriptors.

use std::io;
use std::path::Path;

/// The numeric names in a folder, sorted, at most this many.
pub(super) fn numbers(folder: &Path, count_max: usize) -> io::Result<Vec<u32>> {
    let names = std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u32> =
        names.filter_map(|name| name.to_str()?.parse().ok()).take(count_max).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
