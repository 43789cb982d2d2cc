//! The two ends of every pipe.
//!
//! A source produces batches and a sink takes them. `agent` = hardware → queue, `collect` = queue → store,
//! `stream` = CSV → queue; `up` is all of them in one process. Sinks are asynchronous and defined beside
//! their implementation (queue producer, store).

use crate::Batch;

/// The state of a source at this moment.
#[derive(Debug)]
pub enum Poll {
    /// Rows, ready to be passed on.
    Ready(Batch),
    /// Nothing before this time (nanoseconds UTC since 1970); poll again then.
    NotBefore(i64),
    /// Nothing more will come.
    End,
}

/// A producer of batches. Blocking: its caller gives it a thread.
pub trait Source: Send {
    /// An error that ends the source for good. Bad rows do not: they are skipped, counted and reported.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The next batch that is due at `now_ns` (nanoseconds UTC since 1970).
    ///
    /// # Errors
    /// If the source cannot continue: the file is missing, the device list cannot be read.
    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error>;
}
