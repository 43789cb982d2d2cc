//! A worker of a pipe: packs batches as frames, keeps its rate, and publishes each frame until the queue has
//! taken it.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::bucket::TokenBucket;
use gpuvitals_core::{causes, message, wire};
use gpuvitals_queue::link::{AnyProducer, Event, Patience, Sender};
use gpuvitals_queue::{ContentType, Encoding, Frame, PublishError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::terms::{Format, Load, PipeError, Terms};

/// Level 1: every higher level costs more time than the bytes it saves are worth on this path.
const ZSTD_LEVEL: i32 = 1;
/// How long to wait for batches after the stop. A source hands over its rows within that time; one that waits
/// for standard input cannot be stopped.
const SOURCE_PATIENCE: Duration = Duration::from_secs(1);

/// A frame that is under way.
struct SentFrame {
    rows: u32,
    bytes: usize,
    /// The instant of its newest row, nanoseconds UTC since 1970.
    newest_ns: Option<i64>,
    at: Instant,
}

/// Publishes until there are no more batches, or until it must give up; then the rest is counted.
///
/// # Errors
/// The rows cannot be packed, or the queue will never take a frame.
pub(super) async fn publish(
    mut loads: mpsc::Receiver<Load>,
    producer: AnyProducer,
    terms: Terms,
    progress: Arc<Progress>,
) -> Result<(), PipeError> {
    let began = Instant::now();
    let mut sender = Sender::new(&producer, producer.window(), Patience::Passing);
    let mut bucket = terms.rate.map(|rate| TokenBucket::new(rate.messages, rate.burst, Duration::ZERO));
    let (mut more_comes, mut under_way) = (true, 0);
    let outcome = loop {
        if !more_comes && sender.is_idle() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = terms.give_up.cancelled() => break Ok(()),
            event = sender.event(), if !sender.is_idle() => match event {
                Event::Taken { tag: SentFrame { rows, bytes, newest_ns, at }, .. } => {
                    under_way -= u64::from(rows);
                    progress.taken(rows, bytes, at.elapsed());
                    if let Some(newest_ns) = newest_ns {
                        progress.reached(newest_ns);
                    }
                }
                Event::Failed(error) => progress.not_taken(&causes(&error)),
                Event::Refused { error: PublishError::Closed, .. } => break Ok(()),
                Event::Refused { error, .. } => break Err(PipeError::Refused(error)),
            },
            load = next(&mut loads, &terms.stop), if more_comes && sender.has_room() => {
                let Some(load) = load else { more_comes = false; continue };
                let rows = rows_of(&load);
                if let (Some(bucket), Some(rate)) = (&mut bucket, terms.rate) {
                    let now = began.elapsed();
                    let wait = bucket.take(rows, now);
                    if rate.end.is_some_and(|end| now.saturating_add(wait) >= end) {
                        // The file still has these rows: nothing is lost.
                        terms.stop.cancelled().await;
                        return Ok(());
                    }
                    let _stopped = terms.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
                }
                under_way += u64::from(rows);
                let newest_ns = load.batch.timestamps().iter().max().copied();
                let frame = match pack(load, rows, terms.format) {
                    Ok(frame) => frame,
                    Err(error) => break Err(error),
                };
                let bytes = frame.payload.len();
                sender.send(SentFrame { rows, bytes, newest_ns, at: Instant::now() }, frame);
            }
        }
    };
    progress.left(under_way);
    // Everything else that was read is left too.
    while let Some(load) = next(&mut loads, &terms.give_up).await {
        progress.left(rows_of(&load).into());
    }
    outcome
}

fn rows_of(load: &Load) -> u32 {
    u32::try_from(load.batch.rows()).unwrap_or(u32::MAX)
}

/// The next rows; after the stop those that were read before.
async fn next(loads: &mut mpsc::Receiver<Load>, stop: &CancellationToken) -> Option<Load> {
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(SOURCE_PATIENCE).await;
    };
    tokio::select! {
        biased;
        load = loads.recv() => return load,
        () = overdue => {}
    }
    loads.close();
    loads.recv().await
}

fn pack(Load { batch, messages }: Load, rows: u32, format: Format) -> Result<Frame, PipeError> {
    match format {
        Format::Batch => {
            let payload = wire::encode(&batch).map_err(|error| PipeError::Pack(Box::new(error)))?;
            Ok(Frame::new(ContentType::Batch, rows, payload))
        }
        Format::Json => {
            let of_catalogue = || (0..batch.rows()).filter_map(|row| message::render(&batch, row)).collect();
            let messages: Vec<_> = messages.unwrap_or_else(of_catalogue);
            let document = serde_json::to_vec(&messages).map_err(|error| PipeError::Pack(Box::new(error)))?;
            let packed = zstd::bulk::compress(&document, ZSTD_LEVEL);
            let packed = packed.map_err(|error| PipeError::Pack(Box::new(error)))?;
            Ok(Frame::new(ContentType::Json, rows, packed).encoded(Encoding::Zstd))
        }
    }
}
