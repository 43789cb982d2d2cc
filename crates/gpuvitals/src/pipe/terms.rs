//! The terms of a pipe say how it publishes what a source counts.

use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_core::Batch;
use gpuvitals_core::ports::Source;
use gpuvitals_queue::PublishError;
use gpuvitals_settings::words;
use tokio_util::sync::CancellationToken;

use super::progress::SourceCounts;

/// A source that can say how far it is.
pub(crate) trait Counted: Source {
    /// Its counts so far. Logs new problems since the last call.
    fn counts(&mut self) -> SourceCounts;

    /// The rows of the batch that it gave last as messages under names of its own; none: the catalogue's.
    fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        None
    }

    /// The rows it still holds when it is stopped; a source that can read its input again holds nothing.
    fn rest(&mut self) -> Vec<Batch> {
        Vec::new()
    }
}

/// Rows on their way to a worker.
#[derive(Debug)]
pub(crate) struct Load {
    pub(super) batch: Batch,
    /// The same rows as messages, if the source has names of its own for them.
    pub(super) messages: Option<Vec<serde_json::Value>>,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns in binary, compressed: of 80 metrics some 110 bytes a row in frames of 100 rows, 500 in frames of 5
    Batch,
    /// JSON messages under the file's own names, compressed with zstd
    Json,
}

/// Which times replayed rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Times {
    /// Those of the file
    Recorded,
    /// Shifted, so that the first row is now
    Now,
}

words!(Format, Times);

/// Whether a replay should run faster or slower than recorded.
pub(crate) fn is_other_speed(speed: f64) -> bool {
    (speed - 1.0).abs() > f64::EPSILON
}

/// How a pipe publishes.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// How rows are written.
    pub format: Format,
    /// Messages a second of each worker; none: no bound.
    pub rate: Option<Rate>,
    /// The source stops; rows already read are still sent, without regard to the rate.
    pub stop: CancellationToken,
    /// Nothing more is sent.
    pub give_up: CancellationToken,
}

/// How fast a worker publishes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Messages a second.
    pub messages: f64,
    /// Messages that may come at once after a pause.
    pub burst: u32,
    /// Time from the start after which no message is due; none: never.
    pub end: Option<Duration>,
}

/// Why a pipe ended before its source did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipeError {
    /// The source cannot go on.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// Rows cannot be packed.
    #[error("cannot pack rows")]
    Pack(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The queue will never take a frame.
    #[error("the queue takes no rows")]
    Refused(#[source] PublishError),
    /// A thread for the source cannot be had.
    #[error("cannot start the thread source")]
    Thread(#[source] std::io::Error),
    /// A part of it panicked.
    #[error("the pipe panicked")]
    Panicked,
}
