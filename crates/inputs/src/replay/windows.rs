//! Division of the rows of table files into windows of time that fit into memory.

use super::ReplayError;
use super::file::TableFile;

/// Most rows of a window. More have room only if they have the same time.
pub const WINDOW_ROWS: u64 = 1 << 17;

/// Slices of time in which rows are counted.
const SLICES: usize = 4_096;

/// The first and last time of each window, in order: together they hold all rows of the files that can be replayed. Times
/// are read once, and once more for each range that has too many rows.
pub(super) fn plan(files: &[TableFile]) -> Result<Vec<(i64, i64)>, ReplayError> {
    let rows = files.iter().map(TableFile::rows).sum();
    let times = files.iter().filter_map(TableFile::times);
    let Some(all) = times.reduce(|(min, max), (from, to)| (min.min(from), max.max(to))) else {
        return Ok(Vec::new());
    };
    let mut windows = Vec::new();
    divide(files, all, rows, &mut windows)?;
    Ok(windows)
}

/// Adds the windows of a range of time with this many rows.
fn divide(
    files: &[TableFile],
    (from, to): (i64, i64),
    rows: u64,
    windows: &mut Vec<(i64, i64)>,
) -> Result<(), ReplayError> {
    if rows <= WINDOW_ROWS || from == to {
        windows.push((from, to));
        return Ok(());
    }
    // At least 1, so that the slices cover the range and each is shorter than it.
    let slice_ns = to.saturating_sub(from) / i64::try_from(SLICES).unwrap_or(i64::MAX) + 1;
    let mut counts = vec![0_u64; SLICES];
    let slice_of = |time_ns: i64| usize::try_from(time_ns.saturating_sub(from) / slice_ns).ok();
    for file in files {
        file.read_times((from, to), |_, time_ns| {
            if let Some(count) = slice_of(time_ns).and_then(|slice| counts.get_mut(slice)) {
                *count += 1;
            }
        })?;
    }
    // Slices without rows are in no window, so that each is shorter than this range, or has few enough rows.
    let (mut begin, mut end, mut held) = (from, from, 0);
    for (slice_from, count) in
        (0..).map(|slice| from.saturating_add(slice_ns.saturating_mul(slice))).zip(counts)
    {
        if count == 0 {
            continue;
        }
        if held + count > WINDOW_ROWS && held > 0 {
            divide(files, (begin, end), held, windows)?;
            held = 0;
        }
        if held == 0 {
            begin = slice_from;
        }
        held += count;
        end = slice_from.saturating_add(slice_ns - 1).min(to);
    }
    if held > 0 { divide(files, (begin, end), held, windows) } else { Ok(()) }
}
