//! A worker: takes batches in turn, keeps its rate, packs frames and publishes each until the queue has it.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::bucket::TokenBucket;
use gpuvitals_core::{Batch, causes, message, wire};
use gpuvitals_queue::link::{AnyProducer, Event, Patience, Sender};
use gpuvitals_queue::{ContentType, Encoding, Frame, PublishError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::settings::Format;
use crate::config::Config;
use crate::failure::{Exit, Failure};

/// Level 1: every higher level costs more time than the bytes it saves are worth on this path.
const ZSTD_LEVEL: i32 = 1;
/// How long batches are waited for after the stop: a reader may wait for standard input, and cannot be stopped then.
const READER_PATIENCE: Duration = Duration::from_millis(500);

/// What the workers share.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// How rows are written.
    pub format: Format,
    /// Messages a second of each; none: no bound.
    pub rate: Option<f64>,
    /// Rows that may come at once after a pause.
    pub burst: u32,
    /// Time from the start at which the rate gives no more rows; none: never.
    pub end: Option<Duration>,
    /// What to do where the queue denies access.
    pub way_in: Arc<str>,
    /// What they count.
    pub progress: Arc<Progress>,
    /// What was read is still sent, without regard to the rate.
    pub stop: CancellationToken,
    /// Nothing more is sent.
    pub give_up: CancellationToken,
}

impl Terms {
    /// Nothing is counted yet.
    pub(super) fn new(config: &Config, stop: &CancellationToken, give_up: &CancellationToken) -> Self {
        Self {
            format: config.stream.format,
            rate: config.stream.rate(),
            burst: config.stream.frame_rows(),
            end: config.stream.end(),
            way_in: config.message_queue.way_in().into(),
            progress: Arc::default(),
            stop: stop.clone(),
            give_up: give_up.clone(),
        }
    }
}

/// Publishes until there are no more batches, or `give_up`; then what is left is counted.
///
/// # Errors
/// When the queue will never take a frame.
pub(super) async fn publish(
    mut batches: mpsc::Receiver<Batch>,
    producer: AnyProducer,
    terms: Terms,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut sender = Sender::new(&producer, 1, Patience::Passing);
    let mut bucket = terms.rate.map(|rate| TokenBucket::new(rate, terms.burst, Duration::ZERO));
    while let Some(batch) = next(&mut batches, &terms.stop).await {
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        if let Some(bucket) = &mut bucket {
            let now = began.elapsed();
            let wait = bucket.take(rows, now);
            if terms.end.is_some_and(|end| now.saturating_add(wait) >= end) {
                // The file still has these rows: nothing is lost.
                terms.stop.cancelled().await;
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = terms.stop.cancelled() => {}
            }
        }
        let frame = pack(&batch, rows, terms.format)?;
        let (len, sent) = (frame.payload.len(), Instant::now());
        sender.send((), frame);
        match outcome(&mut sender, &terms).await {
            Some(Ok(())) => terms.progress.taken(rows, len, sent.elapsed()),
            None => {
                // Everything else that was read is left too.
                terms.progress.left(rows);
                while let Some(batch) = next(&mut batches, &terms.stop).await {
                    terms.progress.left(u32::try_from(batch.rows()).unwrap_or(u32::MAX));
                }
            }
            Some(Err(error)) => {
                terms.progress.left(rows);
                return Err(refused(&error, &terms.way_in));
            }
        }
    }
    Ok(())
}

/// Whether the queue took the frame under way; none if `give_up` came first.
async fn outcome(
    sender: &mut Sender<'_, AnyProducer, ()>,
    terms: &Terms,
) -> Option<Result<(), PublishError>> {
    loop {
        let event = tokio::select! {
            biased;
            () = terms.give_up.cancelled() => return None,
            event = sender.event() => event,
        };
        match event {
            Event::Taken { .. } => return Some(Ok(())),
            Event::Failed(error) => terms.progress.not_taken(causes(&error)),
            Event::Refused { error, .. } => return Some(Err(error)),
        }
    }
}

/// The next batch; after the stop those that were read before.
async fn next(batches: &mut mpsc::Receiver<Batch>, stop: &CancellationToken) -> Option<Batch> {
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(READER_PATIENCE).await;
    };
    tokio::select! {
        biased;
        batch = batches.recv() => return batch,
        () = overdue => {}
    }
    batches.close();
    batches.recv().await
}

fn pack(batch: &Batch, rows: u32, format: Format) -> Result<Frame, Failure> {
    let bug = |words: String| Failure::new(Exit::Bug, format!("cannot write rows: {words}"));
    match format {
        Format::Batch => {
            let payload = wire::encode(batch).map_err(|error| bug(causes(&error)))?;
            Ok(Frame::new(ContentType::Batch, rows, payload))
        }
        Format::Json => {
            let messages: Vec<_> = (0..batch.rows()).filter_map(|row| message::render(batch, row)).collect();
            let document = serde_json::to_vec(&messages).map_err(|error| bug(causes(&error)))?;
            let packed = zstd::bulk::compress(&document, ZSTD_LEVEL).map_err(|error| bug(causes(&error)))?;
            Ok(Frame::new(ContentType::Json, rows, packed).encoded(Encoding::Zstd))
        }
    }
}

fn refused(error: &PublishError, way_in: &str) -> Failure {
    let (exit, advice) = match error {
        PublishError::Denied { .. } => (Exit::Permission, way_in),
        PublishError::Topic(_) => (Exit::Config, "--topic names another"),
        PublishError::TooLarge { .. } => (Exit::Config, "a smaller --batch-size makes smaller frames"),
        _ => (Exit::Unavailable, ""),
    };
    let separator = if advice.is_empty() { "" } else { "; " };
    Failure::new(exit, format!("the queue takes no rows: {}{separator}{advice}", causes(error)))
}
