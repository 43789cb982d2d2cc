//! Packs batches as frames and publishes them, several at a time where an answer takes a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::{Batch, Status, causes, wire};
use gpuvitals_queue::link::{AnyProducer, Event, Patience, Sender};
use gpuvitals_queue::{ContentType, Frame, PublishError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{End, Progress, Sink};

/// Frames that wait to be sent.
const WAITING: usize = 1;

/// A batch as a frame.
#[derive(Debug)]
struct Packed {
    frame: Frame,
    /// Number of the batch.
    sequence: u64,
}

/// Publishes batches, on a task of its own.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// Where publishing runs.
    runtime: Handle,
    /// None once nothing more comes.
    frames: Option<mpsc::Sender<Packed>>,
    task: Option<JoinHandle<Result<(), String>>>,
    settled: Arc<AtomicU64>,
    give_up: CancellationToken,
}

impl Publisher {
    /// Publishes through this producer; `progress` is kept up to date.
    pub(crate) fn new(producer: AnyProducer, runtime: Handle, progress: Arc<Progress>) -> Self {
        let (frames, packed) = mpsc::channel(WAITING);
        let (settled, give_up) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let publishing = publish(producer, packed, progress, Arc::clone(&settled), give_up.clone());
        let task = Some(runtime.spawn(publishing));
        Self { runtime, frames: Some(frames), task, settled, give_up }
    }

    fn settled(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }

    /// Waits until the queue has everything, until `give_up`.
    async fn end(&mut self, give_up: &CancellationToken) -> Result<u64, End> {
        self.frames = None;
        let Some(mut task) = self.task.take() else { return Ok(self.settled()) };
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = give_up.cancelled() => {
                self.give_up.cancel();
                task.await
            }
        };
        match ended {
            Ok(Ok(())) => Ok(self.settled()),
            Ok(Err(reason)) => Err(End::Failed(reason)),
            Err(error) => Err(End::Failed(causes(&error))),
        }
    }
}

impl Sink for Publisher {
    fn hand_over(&mut self, batch: Batch, stop: &CancellationToken) -> Result<u64, End> {
        let (count, sequence) = (u32::try_from(batch.rows()).unwrap_or(u32::MAX), batch.sequence);
        let payload = wire::encode(&batch).map_err(|error| End::Failed(causes(&error)))?;
        let packed = Packed { frame: Frame::new(ContentType::Batch, count, payload), sequence };
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            let Some(frames) = &self.frames else { return Err(End::Stopped) };
            let sent = tokio::select! {
                sent = frames.send(packed) => sent,
                () = stop.cancelled() => return Err(End::Stopped),
            };
            match sent {
                Ok(()) => Ok(self.settled()),
                Err(_ended) => Err(self.end(stop).await.err().unwrap_or(End::Stopped)),
            }
        })
    }

    fn finish(&mut self, give_up: &CancellationToken) -> Result<Option<u64>, End> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.end(give_up)).map(Some)
    }
}

/// Publishes frames until nothing more comes or `give_up`. `settled` is the number of the last batch that the queue has with
/// all before it.
///
/// # Errors
/// Why the queue will never take a frame.
async fn publish(
    producer: AnyProducer,
    mut packed: mpsc::Receiver<Packed>,
    progress: Arc<Progress>,
    settled: Arc<AtomicU64>,
    give_up: CancellationToken,
) -> Result<(), String> {
    let mut sender = Sender::new(&producer, producer.window(), Patience::Passing);
    let mut more_comes = true;
    while more_comes || !sender.is_idle() {
        tokio::select! {
            () = give_up.cancelled() => return Ok(()),
            event = sender.event(), if !sender.is_idle() => match event {
                Event::Taken { tag: (sequence, rows), .. } => {
                    progress.queue_is(Status::Healthy, String::new());
                    progress.published(rows);
                    if !sender.is_behind() {
                        settled.store(sequence, Ordering::Relaxed);
                    }
                }
                Event::Failed(error) => progress.queue_is(Status::Degraded, causes(&error)),
                Event::Refused { error: PublishError::Closed, .. } => return Ok(()),
                Event::Refused { error, .. } => return Err(causes(&error)),
            },
            next = packed.recv(), if more_comes && sender.has_room() => match next {
                Some(Packed { frame, sequence }) => sender.send((sequence, frame.count), frame),
                None => more_comes = false,
            },
        }
    }
    Ok(())
}
