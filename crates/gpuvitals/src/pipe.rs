//! From source to queue: a thread polls the source, packs its batches and publishes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, causes, wire};
use gpuvitals_queue::{ContentType, Frame, PublishError, Queue};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// A source that can say how far it is, for people.
pub(crate) trait Described: Source {
    /// What stands in `/stats` under `source` and in the log, beside the counts of the pipe.
    fn describe(&mut self) -> serde_json::Value;

    /// A line for people while it works, for sources that have an end.
    fn progress_line(&self) -> Option<String>;

    /// What it holds already when it is told to stop; a source that can read its input again holds nothing.
    fn rest(&mut self) -> Vec<Batch> {
        Vec::new()
    }
}

/// Between two lines of progress.
const PROGRESS_NS: i64 = 5 * SECOND_NS;

/// How far the source is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Rows handed to the queue.
    pub rows_published: AtomicU64,
    /// Batches handed to the queue.
    pub batches_published: AtomicU64,
    description: Mutex<serde_json::Value>,
}

impl Progress {
    /// As JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut json = self.description.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if json.is_null() {
            json = serde_json::json!({});
        }
        if let Some(object) = json.as_object_mut() {
            object.insert("rows_published".to_owned(), self.rows_published.load(Ordering::Relaxed).into());
        }
        json
    }

    fn describe(&self, description: serde_json::Value) {
        *self.description.lock().unwrap_or_else(PoisonError::into_inner) = description;
    }
}

/// Why the source ended.
#[derive(Debug)]
pub(crate) enum End {
    /// It has nothing more.
    Finished,
    /// It was told to stop.
    Stopped,
    /// It cannot go on.
    Failed(String),
}

/// Runs a source to its end on the current (blocking) thread.
pub(crate) fn run<S: Described>(
    mut source: S,
    queue: &Queue,
    topic: &str,
    progress: &Arc<Progress>,
    runtime: &Handle,
    stop: &CancellationToken,
) -> End {
    let mut described_ns = 0;
    let mut told_ns = clock::now_ns();
    let end = loop {
        if stop.is_cancelled() {
            break End::Stopped;
        }
        let now_ns = clock::now_ns();
        if now_ns - described_ns > SECOND_NS {
            described_ns = now_ns;
            progress.describe(source.describe());
        }
        if now_ns - told_ns > PROGRESS_NS {
            told_ns = now_ns;
            if let Some(line) = source.progress_line() {
                tracing::info!("{line}");
            }
        }
        match source.poll(now_ns) {
            Ok(Poll::Ready(batch)) => {
                if let Err(end) = hand_over(&mut source, &batch, queue, topic, progress, runtime, stop) {
                    break end;
                }
            }
            Ok(Poll::NotBefore(at_ns)) => {
                let wait = Duration::from_nanos(u64::try_from(at_ns - clock::now_ns()).unwrap_or(0));
                let stopped = runtime.block_on(async {
                    tokio::select! {
                        () = stop.cancelled() => true,
                        () = tokio::time::sleep(wait) => false,
                    }
                });
                if stopped {
                    break End::Stopped;
                }
            }
            Ok(Poll::End) => break End::Finished,
            Err(error) => break End::Failed(causes(&error)),
        }
    };
    if matches!(end, End::Stopped) {
        // The workers behind the queue outlive the source, so there is room soon; whoever waits for this thread has a deadline.
        let never = CancellationToken::new();
        for batch in source.rest() {
            if hand_over(&mut source, &batch, queue, topic, progress, runtime, &never).is_err() {
                break;
            }
        }
    }
    progress.describe(source.describe());
    end
}

/// Packs a batch and publishes it; the source may move on when the queue has it.
fn hand_over<S: Described>(
    source: &mut S,
    batch: &Batch,
    queue: &Queue,
    topic: &str,
    progress: &Progress,
    runtime: &Handle,
    stop: &CancellationToken,
) -> Result<(), End> {
    let count = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
    let payload = wire::encode(batch).map_err(|error| End::Failed(causes(&error)))?;
    let frame = Frame::new(ContentType::Batch, count, payload);
    match runtime.block_on(queue.publish_wait(topic, frame, stop)) {
        Ok(_) => {
            progress.rows_published.fetch_add(count.into(), Ordering::Relaxed);
            progress.batches_published.fetch_add(1, Ordering::Relaxed);
            source.settle(batch.sequence);
            Ok(())
        }
        Err(PublishError::Closed | PublishError::Cancelled) => Err(End::Stopped),
        Err(error) => Err(End::Failed(causes(&error))),
    }
}
