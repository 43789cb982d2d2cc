//! Counts and sizes of the store.

use gpuvitals_log::Log;
use serde::Serialize;

use crate::manifest::FileRecord;
use crate::recent::Recent;
use crate::shared::{Shared, read};

/// Files of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LevelStats {
    /// Number of the files.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl LevelStats {
    pub(crate) fn add(&mut self, file: &FileRecord) {
        self.files += 1;
        self.rows += file.rows;
        self.bytes += file.bytes;
    }
}

/// Counts and sizes. Counts are since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// GPUs that have a latest state.
    pub gpus: u64,
    /// GPUs that left the latest state to make room, the longest silent first. Their rows stay.
    pub gpus_forgotten: u64,
    /// Files as flushed.
    pub flushed: LevelStats,
    /// Files of an hour or a day that were merged.
    pub merged: LevelStats,
    /// Files of rollups.
    pub rollups: LevelStats,
    /// Rows that came and are not in files yet.
    pub tail_rows: u64,
    /// Bytes of columns of these.
    pub tail_bytes: u64,
    /// Rows in files that are in memory as well.
    pub recent_rows: u64,
    /// Bytes that these take.
    pub recent_bytes: u64,
    /// Questions for the rows at an end of a GPU's history.
    pub ends_asked: u64,
    /// Those of them that no file was read for.
    pub ends_from_memory: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Tails written to files.
    pub flushes: u64,
    /// Merges of small files.
    pub merges: u64,
    /// Files set aside: found damaged by a query, or not listed by the manifest at the start.
    pub quarantined: u64,
    /// Rows of files that were deleted for their age.
    pub rows_too_old: u64,
    /// Rows of files that were deleted for the room that all took.
    pub rows_too_many: u64,
    /// Rows that were put together although a column had two different values; the later stayed.
    pub rows_overwritten: u64,
    /// Values of foreign columns for which there was no room. Their rows were taken.
    pub values_left_out: u64,
    /// Bytes that are free on the disk of the files, for this user; none if the system does not say.
    pub disk_free_bytes: Option<u64>,
}

impl StoreStats {
    pub(crate) fn of(shared: &Shared, log: &Log) -> Self {
        let snapshot = shared.snapshot.load();
        let level = |wanted: bool| {
            let files = snapshot.files.iter().filter(|file| (file.level > 0) == wanted);
            let mut size = LevelStats::default();
            files.for_each(|file| size.add(file));
            size
        };
        let mut rollups = LevelStats::default();
        snapshot.rollups.iter().for_each(|file| rollups.add(file));
        let counters = &shared.counters;
        let (recent_rows, recent_bytes) = shared.recent.as_ref().map_or((0, 0), Recent::size);
        Self {
            gpus: read(&counters.gpus),
            gpus_forgotten: read(&counters.gpus_forgotten),
            flushed: level(false),
            merged: level(true),
            rollups,
            tail_rows: read(&counters.tail_rows),
            tail_bytes: read(&counters.tail_bytes),
            recent_rows: recent_rows as u64,
            recent_bytes: recent_bytes as u64,
            ends_asked: read(&counters.asked),
            ends_from_memory: read(&counters.from_memory),
            log_syncs: log.stats().syncs,
            flushes: read(&counters.flushes),
            merges: read(&counters.merges),
            quarantined: read(&counters.quarantined),
            rows_too_old: read(&counters.rows_too_old),
            rows_too_many: read(&counters.rows_too_many),
            rows_overwritten: read(&counters.rows_overwritten),
            values_left_out: read(&counters.left_out),
            disk_free_bytes: gpuvitals_log::free_bytes(&shared.config.dir),
        }
    }
}
