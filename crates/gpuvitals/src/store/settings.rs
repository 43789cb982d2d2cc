//! Section `store` of the configuration: how history is kept.

use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_settings::{Bytes, Refusal, settings};

settings! {
    /// History: tables in files
    pub(crate) struct Store = "store", check Self::check {
        /// Directory; one process writes it, any number read it
        pub dir: PathBuf = "data", flag "--data-dir DIR";
        /// Rows leave memory for a file after this time,
        pub flush_age: Duration = "60s", from "1ms";
        /// or this many rows,
        pub flush_rows: usize = 400_000, from 1;
        /// or this much memory, whichever is first
        pub flush_bytes: Bytes = "64MiB", from 1;
        /// Files are deleted when the newest row of the store is this much newer than theirs; 0: never
        pub keep: Duration = "400d";
        /// The same of the rollups: rows put together by ten seconds,
        pub keep_10s: Duration = "400d";
        /// by the minute
        pub keep_1m: Duration = "400d";
        /// by the hour
        pub keep_1h: Duration = "0";
        /// and by the day
        pub keep_1d: Duration = "0";
        /// The files take at most this much of the disk, a rollup a tenth of it: beyond it the oldest are deleted; 0: no bound
        pub max_bytes: Bytes = "0";
    }
}

impl Store {
    /// Refuses a directory without a name.
    fn check(&self) -> Result<(), Refusal> {
        if self.dir.as_os_str().is_empty() {
            return Err(Refusal::new("store.dir", "it is empty; name a directory, such as data"));
        }
        Ok(())
    }
}
