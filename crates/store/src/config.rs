//! Settings of the store.

use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_core::history::FleetBounds;

use crate::grain::Grain;

/// Settings of the store, with all of its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store's directory; made if it is not there.
    pub dir: PathBuf,
    /// Rows in memory that start a flush.
    pub flush_rows: usize,
    /// Bytes of columns in memory that start a flush. Three times as much is the most that waits in memory; then
    /// [`crate::Store::append`] waits.
    pub flush_bytes: usize,
    /// Age of the oldest row in memory that starts a flush.
    pub flush_age: Duration,
    /// GPUs per row group, more if these have less than a page of rows: read by a one-GPU query.
    pub row_group_gpus: usize,
    /// Rows after which a row group ends even within fewer GPUs.
    pub row_group_rows: usize,
    /// Rows per page: the smallest piece a query reads.
    pub page_rows: usize,
    /// Unmerged files of one hour that start a merge.
    pub merge_files: usize,
    /// An hour is merged when the newest row of the store is this much past its end, or when no row of it has come for as
    /// long; a day after twelve times as much.
    pub merge_after: Duration,
    /// Most bytes of files that are merged into those of a day, and no more than an eighth of `max_bytes` or half of what is
    /// free on the disk. Above it the files of its hours stay.
    pub day_bytes: u64,
    /// Bytes after which a merge goes on in another file, with the next GPU.
    pub file_bytes: u64,
    /// Fewest rows for each row of a rollup of metrics. A rollup that would have more rows is not made: it would take as much room.
    pub rollup_rows: usize,
    /// Size of a log segment in bytes.
    pub segment_bytes: u32,
    /// Appends a subscriber may fall behind before it loses the oldest; fewer if they are large.
    pub subscriber_lag: usize,
    /// Whether small files are merged in the background.
    pub merge: bool,
    /// Files all of whose rows are older than the newest row of the store by more than this are deleted; none: never.
    pub keep: Option<Duration>,
    /// The same of rollups by ten seconds, by the minute, by the hour and by the day.
    pub keep_rollups: [Option<Duration>; 4],
    /// Most bytes of files: the oldest beyond it are deleted. Each of the rollups may take a tenth of it,
    /// rows as they came the rest. The newest file of each stays; none: no bound.
    pub max_bytes: Option<u64>,
    /// Newest rows of a GPU that stay in memory when they are in files, for questions about an end of its history; 0: none.
    pub recent_rows: usize,
    /// Bytes that these rows take, of all GPUs; the GPUs asked for longest ago leave first. A flush adds its rows before they
    /// leave.
    pub recent_bytes: usize,
    /// What the latest state holds, and which rows count for it.
    pub fleet: FleetBounds,
    /// Whether the latest values are written with every flush. If not, opening reads them from all files.
    pub checkpoint: bool,
}

impl StoreConfig {
    /// Defaults for a store in that directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            flush_rows: 400_000,
            flush_bytes: 48 << 20,
            flush_age: Duration::from_mins(2),
            row_group_gpus: 64,
            row_group_rows: 1 << 18,
            page_rows: 3_600,
            merge_files: 16,
            merge_after: Duration::from_mins(5),
            day_bytes: u64::MAX,
            file_bytes: 256 << 20,
            rollup_rows: 32,
            segment_bytes: 32 << 20,
            subscriber_lag: 256,
            merge: true,
            keep: None,
            keep_rollups: [None; 4],
            max_bytes: None,
            recent_rows: 0,
            recent_bytes: 64 << 20,
            fleet: FleetBounds::default(),
            checkpoint: true,
        }
    }

    /// How long rows of a grain are kept.
    pub(crate) fn keep_of(&self, grain: Grain) -> Option<Duration> {
        let [ten_seconds, minute, hour, day] = self.keep_rollups;
        match grain {
            Grain::Raw => self.keep,
            Grain::TenSeconds => ten_seconds,
            Grain::Minute => minute,
            Grain::Hour => hour,
            Grain::Day => day,
        }
    }
}
