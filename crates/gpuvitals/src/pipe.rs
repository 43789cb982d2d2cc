//! From a source to a queue: one thread polls the source and gives its batches to workers in turn; each
//! worker packs them as frames and publishes them until the queue has taken them.
//!
//! In memory are the batch being read, and for each worker one waiting batch and the frames in flight.
//! Nothing that was read is lost unless the pipe must give up; then it is counted.

mod progress;
mod side;
mod sources;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_core::Batch;
use gpuvitals_core::clock;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_queue::PublishError;
use gpuvitals_queue::link::AnyProducer;
use gpuvitals_settings::words;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use progress::{Counts, Progress, SourceCounts};
pub(crate) use side::{FINDING_ROWS, SidePipe, worst};
pub(crate) use sources::{Sampled, open_replay};

/// Batches that wait for a worker: one, so that it never waits for the reader.
const WAITING: usize = 1;

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
    batch: Batch,
    /// The same rows as messages, if the source has names of its own for them.
    messages: Option<Vec<serde_json::Value>>,
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

/// Starts a source, with a worker for each producer. The task ends once everything that was read is sent or given up.
pub(crate) fn start(
    source: impl Counted + 'static,
    producers: Vec<AnyProducer>,
    progress: &Arc<Progress>,
    terms: Terms,
) -> JoinHandle<Result<(), PipeError>> {
    let (mut workers, mut lanes) = (JoinSet::new(), Vec::with_capacity(producers.len()));
    for producer in producers {
        let (lane, batches) = mpsc::channel(WAITING);
        lanes.push(lane);
        workers.spawn(worker::publish(batches, producer, terms.clone(), Arc::clone(progress)));
    }
    tokio::spawn(supervise(source, lanes, workers, Arc::clone(progress), terms))
}

async fn supervise(
    source: impl Counted + 'static,
    lanes: Vec<mpsc::Sender<Load>>,
    mut workers: JoinSet<Result<(), PipeError>>,
    progress: Arc<Progress>,
    terms: Terms,
) -> Result<(), PipeError> {
    let (tell, mut read) = oneshot::channel();
    let (runtime, stop, read_by) = (Handle::current(), terms.stop.clone(), Arc::clone(&progress));
    let reading = move || {
        let ended = deal(source, &lanes, &read_by, &runtime, &stop);
        // Before the lanes close, so that the outcome is there when the workers end.
        let _heard = tell.send(ended);
        drop(lanes);
    };
    // Reading blocks.
    std::thread::Builder::new().name("source".to_owned()).spawn(reading).map_err(PipeError::Thread)?;
    let mut outcome = Ok(());
    while let Some(ended) = workers.join_next().await {
        let ended = ended.unwrap_or(Err(PipeError::Panicked));
        if ended.is_err() {
            terms.stop.cancel();
            terms.give_up.cancel();
        }
        outcome = outcome.and(ended);
    }
    let read = if terms.stop.is_cancelled() {
        // A source that waits for standard input cannot be stopped.
        match read.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Closed) => Err(PipeError::Panicked),
            Ok(ended) => ended,
        }
    } else {
        read.await.unwrap_or(Err(PipeError::Panicked))
    };
    progress.ended();
    outcome.and(read)
}

/// Polls a source to its end, or until `stop`, and gives its batches to the workers in turn.
fn deal<S: Counted>(
    mut source: S,
    lanes: &[mpsc::Sender<Load>],
    progress: &Progress,
    runtime: &Handle,
    stop: &CancellationToken,
) -> Result<(), PipeError> {
    let mut lanes = lanes.iter().cycle();
    // A lane closes when its worker has ended; the worker has the reason.
    let mut hand_over = |load| lanes.next().is_some_and(|lane| lane.blocking_send(load).is_ok());
    let mut counted_ns = 0;
    let ended = loop {
        let now_ns = clock::now_ns();
        if now_ns - counted_ns > SECOND_NS {
            counted_ns = now_ns;
            progress.source_is(source.counts());
        }
        if stop.is_cancelled() {
            source.rest().into_iter().all(|batch| hand_over(Load { batch, messages: None }));
            break Ok(());
        }
        match source.poll(now_ns) {
            Ok(Poll::Ready(batch)) => {
                if !hand_over(Load { batch, messages: source.messages() }) {
                    break Ok(());
                }
            }
            Ok(Poll::NotBefore(at_ns)) => {
                let wait = Duration::from_nanos(u64::try_from(at_ns - clock::now_ns()).unwrap_or(0));
                // Whether it was stopped is seen at the next round.
                let _slept =
                    runtime.block_on(async { stop.run_until_cancelled(tokio::time::sleep(wait)).await });
            }
            Ok(Poll::End) => break Ok(()),
            Err(error) => break Err(PipeError::Source(Box::new(error))),
        }
    };
    progress.source_is(source.counts());
    ended
}
