//! The store as a [`Sink`].

use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{Batch, Health};

use crate::error::AppendError;
use crate::stats::StoreStats;
use crate::store::Store;

impl Sink for Store {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.append(batches).await?;
            Ok(())
        })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move { self.close().await.map_err(|error| SinkError::Failed(error.into())) })
    }

    fn health(&self) -> Health {
        self.health()
    }

    fn families(&self) -> Vec<Family> {
        families(&self.stats())
    }
}

impl From<AppendError> for SinkError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Closed => Self::Closed,
            AppendError::Failed(_) => Self::Failed(error.into()),
            AppendError::Log(_) | AppendError::MemoryFull(_) => Self::Busy(error.into()),
            AppendError::TooLarge { .. } | AppendError::Encode(_) | AppendError::Rows(_) => {
                Self::Refused(error.into())
            }
        }
    }
}

fn families(store: &StoreStats) -> Vec<Family> {
    let (hits, asked) = (store.ends_from_memory, store.ends_asked);
    let answers = [("memory", hits), ("files", asked.saturating_sub(hits))];
    let free = store.disk_free_bytes.map(|free| {
        let help = "Bytes that are free on the disk of the files, for this user.";
        Family::gauge("gpuvitals_store_disk_free_bytes", help, free)
    });
    let families = [
        Family::gauge("gpuvitals_store_gpus", "GPUs that are known.", store.gpus),
        Family::counter(
            "gpuvitals_store_gpus_forgotten_total",
            "GPUs that left the latest state because there were more than collector.gpus_max, the longest silent first. Their \
             rows stay.",
            store.gpus_forgotten,
        ),
        Family::gauge(
            "gpuvitals_store_memory_rows",
            "Rows that are in the log and in memory, and not in files yet.",
            store.tail_rows,
        ),
        Family::gauge(
            "gpuvitals_store_cache_rows",
            "Rows in files that are in memory as well.",
            store.recent_rows,
        ),
        Family::gauge("gpuvitals_store_cache_bytes", "Bytes that these take.", store.recent_bytes),
        Family::new(
            "gpuvitals_store_answers_total",
            Kind::Counter,
            "Questions for the rows of a GPU, by where the answer came from.",
        )
        .by("from", answers),
        Family::gauge("gpuvitals_store_file_rows", "Rows in files.", store.flushed.rows + store.merged.rows),
        Family::gauge(
            "gpuvitals_store_file_bytes",
            "Bytes of files.",
            store.flushed.bytes + store.merged.bytes,
        ),
        Family::gauge("gpuvitals_store_rollup_bytes", "Bytes of rollups.", store.rollups.bytes),
        Family::counter(
            "gpuvitals_store_rows_overwritten_total",
            "Rows that were put together with one of the same GPU and time although a column had another value: the later \
             stayed. Repeats are none. The log names the first.",
            store.rows_overwritten,
        ),
        Family::counter(
            "gpuvitals_store_left_out_total",
            "Values that were left out of rows that were taken: their columns, which the catalogue does not know, found no \
             room. The health says whose they are.",
            store.values_left_out,
        ),
        Family::new(
            "gpuvitals_store_deleted_rows_total",
            Kind::Counter,
            "Rows of files that were deleted, by why: for their age (store.keep) or for the room that all files took \
             (store.max_bytes).",
        )
        .by("reason", [("age", store.rows_too_old), ("room", store.rows_too_many)]),
    ];
    families.into_iter().chain(free).collect()
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::render;

    use super::*;
    use crate::stats::LevelStats;

    #[test]
    fn what_is_known_and_kept_is_shown_and_both_levels_of_files_add_up() {
        let level = LevelStats { files: 1, rows: 20, bytes: 300 };
        let stats = StoreStats {
            gpus: 5,
            flushed: level,
            merged: level,
            tail_rows: 9,
            recent_rows: 40,
            ends_asked: 10,
            ends_from_memory: 8,
            rows_too_many: 7,
            ..StoreStats::default()
        };
        let text = String::from_utf8(render(&families(&stats))).unwrap();
        for line in [
            "gpuvitals_store_gpus 5",
            "gpuvitals_store_memory_rows 9",
            "gpuvitals_store_cache_rows 40",
            "gpuvitals_store_answers_total{from=\"memory\"} 8",
            "gpuvitals_store_answers_total{from=\"files\"} 2",
            "gpuvitals_store_file_rows 40",
            "gpuvitals_store_file_bytes 600",
            "gpuvitals_store_deleted_rows_total{reason=\"age\"} 0",
            "gpuvitals_store_deleted_rows_total{reason=\"room\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
