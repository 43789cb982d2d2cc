//! Packs batches as frames and publishes them, several at a time where an answer takes a while.

use std::sync::Arc;

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

/// Publishes batches, on a task of its own.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// Where publishing runs.
    runtime: Handle,
    /// None once nothing more comes.
    frames: Option<mpsc::Sender<Frame>>,
    task: Option<JoinHandle<Result<(), String>>>,
    give_up: CancellationToken,
}

impl Publisher {
    /// Publishes through this producer; `progress` is kept up to date.
    pub(crate) fn new(producer: AnyProducer, runtime: Handle, progress: Arc<Progress>) -> Self {
        let (frames, packed) = mpsc::channel(WAITING);
        let give_up = CancellationToken::new();
        let task = Some(runtime.spawn(publish(producer, packed, progress, give_up.clone())));
        Self { runtime, frames: Some(frames), task, give_up }
    }

    /// Waits until the queue has everything, until `give_up`.
    async fn end(&mut self, give_up: &CancellationToken) -> Result<(), End> {
        self.frames = None;
        let Some(mut task) = self.task.take() else { return Ok(()) };
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = give_up.cancelled() => {
                self.give_up.cancel();
                task.await
            }
        };
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(End::Failed(reason)),
            Err(error) => Err(End::Failed(causes(&error))),
        }
    }
}

impl Sink for Publisher {
    fn hand_over(&mut self, batch: Batch, stop: &CancellationToken) -> Result<(), End> {
        let count = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        let payload = wire::encode(&batch).map_err(|error| End::Failed(causes(&error)))?;
        let frame = Frame::new(ContentType::Batch, count, payload);
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            let Some(frames) = &self.frames else { return Err(End::Stopped) };
            let sent = tokio::select! {
                sent = frames.send(frame) => sent,
                () = stop.cancelled() => return Err(End::Stopped),
            };
            match sent {
                Ok(()) => Ok(()),
                Err(_ended) => Err(self.end(stop).await.err().unwrap_or(End::Stopped)),
            }
        })
    }

    fn finish(&mut self, give_up: &CancellationToken) -> Result<(), End> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.end(give_up))
    }
}

/// Publishes frames until nothing more comes or `give_up`.
///
/// # Errors
/// Why the queue will never take a frame.
async fn publish(
    producer: AnyProducer,
    mut frames: mpsc::Receiver<Frame>,
    progress: Arc<Progress>,
    give_up: CancellationToken,
) -> Result<(), String> {
    let mut sender = Sender::new(&producer, producer.window(), Patience::Passing);
    let mut more_comes = true;
    while more_comes || !sender.is_idle() {
        tokio::select! {
            () = give_up.cancelled() => return Ok(()),
            event = sender.event(), if !sender.is_idle() => match event {
                Event::Taken { tag: rows, .. } => {
                    progress.queue_is(Status::Healthy, String::new());
                    progress.published(rows);
                }
                Event::Failed(error) => progress.queue_is(Status::Degraded, causes(&error)),
                Event::Refused { error: PublishError::Closed, .. } => return Ok(()),
                Event::Refused { error, .. } => return Err(causes(&error)),
            },
            next = frames.recv(), if more_comes && sender.has_room() => match next {
                Some(frame) => sender.send(frame.count, frame),
                None => more_comes = false,
            },
        }
    }
    Ok(())
}
