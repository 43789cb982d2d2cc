//! A pipe starts with a thread for its source and a task for each worker.

use crate::pipe::worker;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::ports::Poll;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_queue::link::AnyProducer;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::terms::{Counted, Load, PipeError, Terms};

/// Batches that wait for a worker: one, so that it never waits for the reader.
const WAITING: usize = 1;

/// Starts a source, with a worker for each producer. The task ends once everything that was read is sent or given up.
pub(crate) fn start(
    source: impl Counted + 'static,
    producers: Vec<AnyProducer>,
    progress: &Arc<Progress>,
    terms: Terms,
) -> JoinHandle<Result<(), PipeError>> {
    let mut crew = Crew { workers: JoinSet::new(), lanes: Vec::with_capacity(producers.len()) };
    for producer in producers {
        let (lane, batches) = mpsc::channel(WAITING);
        crew.lanes.push(lane);
        crew.workers.spawn(worker::publish(batches, producer, terms.clone(), Arc::clone(progress)));
    }
    tokio::spawn(supervise(source, crew, Arc::clone(progress), terms))
}

/// The workers of a pipe, and the lane to each.
struct Crew {
    workers: JoinSet<Result<(), PipeError>>,
    lanes: Vec<mpsc::Sender<Load>>,
}

async fn supervise(
    source: impl Counted + 'static,
    crew: Crew,
    progress: Arc<Progress>,
    terms: Terms,
) -> Result<(), PipeError> {
    let Crew { mut workers, lanes } = crew;
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
