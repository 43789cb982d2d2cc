//! The two ends of every pipe.
//!
//! A source produces batches and a sink takes them. `agent` = hardware → queue, `collect` = queue → store,
//! `stream` = CSV → queue; `up` is all of them in one process. The queue's producer is the one end that is no [`Sink`]:
//! it numbers frames and answers them one by one.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use crate::figures::Family;
use crate::{Batch, Health};

/// A future in a box, for traits that are used as objects.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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

/// A place that keeps rows.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Takes rows; ends when they are durable. Rows with equal keys merge, so that rows sent again change nothing. Of
    /// rows that are refused any part may have been taken; the same goes for an answer that is dropped before it is there. No
    /// rows ask whether it has failed.
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>>;

    /// Takes nothing more, finishes its work and releases what it holds.
    fn close(&self) -> Answer<'_, Result<(), SinkError>>;

    /// How it does.
    fn health(&self) -> Health;

    /// Figures about itself.
    fn families(&self) -> Vec<Family>;
}

/// Why a sink does not take rows, with its own error.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// It may take them later: a full disk, a server that is away.
    #[error(transparent)]
    Busy(Box<dyn Error + Send + Sync>),
    /// It will never take these rows.
    #[error(transparent)]
    Refused(Box<dyn Error + Send + Sync>),
    /// It takes no rows until it is opened anew; everything it has taken is safe.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
    /// It has been closed.
    #[error("the sink is closed")]
    Closed,
}
