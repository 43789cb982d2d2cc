//! The two ends of every pipe.
//!
//! A source hands over batches and a sink takes them. `agent` = hardware → queue, `collect` = queue → store,
//! `stream` = CSV → queue; `up` is all of them in one process. Sinks are asynchronous and live with what they are built
//! on (queue producer, store).

use crate::Batch;

/// What a source has at this moment.
#[derive(Debug)]
pub enum Poll {
    /// Rows, to be passed on now.
    Ready(Batch),
    /// Nothing before this time (nanoseconds UTC since 1970); ask again then.
    NotBefore(i64),
    /// Nothing more will come.
    End,
}

/// Where batches come from. Blocking: whoever drives it gives it a thread.
pub trait Source: Send {
    /// What can end the source for good. Bad rows do not: they are skipped, counted and reported.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The next batch that is due at `now_ns` (nanoseconds UTC since 1970).
    ///
    /// # Errors
    /// When the source cannot go on: the file is gone, the device list cannot be read.
    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error>;
}
