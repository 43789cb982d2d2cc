//! Frames on their way to a queue elsewhere: several at a time, in the order in which they came.
//!
//! Over a network every frame takes a while, so the next ones are sent before the first is answered. What the queue
//! does not take is sent again in the same order, one frame at a time and before anything new: so the rows of a GPU
//! arrive in their order, but for frames that the queue took behind one that it refused for the moment. Every try
//! carries the same stamp.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use gpuvitals_core::{Status, causes};
use gpuvitals_queue::link::{AnyProducer, Backoff, Stamps, publish_until};
use gpuvitals_queue::{Frame, Producer, PublishError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{End, Overheard, Progress};

/// Frames under way at once where the queue answers in the order of asking.
const UNDER_WAY: usize = 8;
/// Frames that wait to be sent.
const WAITING: usize = 1;

/// A frame, and the number of its batch.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) frame: Frame,
    pub(super) sequence: u64,
}

/// The way to a queue elsewhere, with a task that sends.
#[derive(Debug)]
pub(super) struct Courier {
    /// None once nothing more comes.
    parcels: Option<mpsc::Sender<Parcel>>,
    task: Option<JoinHandle<Result<(), String>>>,
    settled: Arc<AtomicU64>,
    give_up: CancellationToken,
}

impl Courier {
    pub(super) fn new(producer: AnyProducer, runtime: &Handle, progress: Arc<Progress>) -> Self {
        // Requests by HTTP overtake each other.
        let under_way = if matches!(producer, AnyProducer::Http(_)) { 1 } else { UNDER_WAY };
        let (parcels, waiting) = mpsc::channel(WAITING);
        let (settled, give_up) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let trip =
            Trip { producer, under_way, progress, settled: Arc::clone(&settled), give_up: give_up.clone() };
        let task = Some(runtime.spawn(async move { trip.carry(waiting).await }));
        Self { parcels: Some(parcels), task, settled, give_up }
    }

    /// Takes a frame when there is room, until `stop`; then the number of the last batch that the queue has with all before it.
    pub(super) async fn take(&mut self, parcel: Parcel, stop: &CancellationToken) -> Result<u64, End> {
        let Some(parcels) = &self.parcels else { return Err(End::Stopped) };
        let sent = tokio::select! {
            sent = parcels.send(parcel) => sent,
            () = stop.cancelled() => return Err(End::Stopped),
        };
        match sent {
            Ok(()) => Ok(self.settled()),
            Err(_ended) => Err(self.finish(stop).await.err().unwrap_or(End::Stopped)),
        }
    }

    /// Waits until the queue has everything, until `give_up`.
    pub(super) async fn finish(&mut self, give_up: &CancellationToken) -> Result<u64, End> {
        self.parcels = None;
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

    fn settled(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }
}

/// What the task has.
struct Trip<P> {
    producer: P,
    under_way: usize,
    progress: Arc<Progress>,
    settled: Arc<AtomicU64>,
    give_up: CancellationToken,
}

impl<P: Producer> Trip<P> {
    /// Sends what comes until nothing more comes or `give_up`.
    ///
    /// # Errors
    /// Why the queue will never take a frame.
    async fn carry(self, mut waiting: mpsc::Receiver<Parcel>) -> Result<(), String> {
        let stamps = Stamps::new();
        let mut under_way = FuturesOrdered::new();
        let mut again: Vec<Frame> = Vec::new();
        let (mut more_comes, mut newest) = (true, 0);
        loop {
            if under_way.is_empty() {
                for frame in again.drain(..) {
                    if !self.resend(frame).await? {
                        return Ok(());
                    }
                }
            }
            if again.is_empty() {
                // Answers come in order: the queue has all before it as well.
                self.settled.store(newest, Ordering::Relaxed);
                if !more_comes && under_way.is_empty() {
                    return Ok(());
                }
            }
            let has_room = again.is_empty() && under_way.len() < self.under_way;
            tokio::select! {
                () = self.give_up.cancelled() => return Ok(()),
                Some((Parcel { frame, sequence }, outcome)) = under_way.next() => {
                    newest = sequence;
                    match outcome {
                        Ok(_) => self.taken(&frame),
                        Err(PublishError::Closed) => return Ok(()),
                        Err(error) if is_passing(&error) => {
                            self.progress.queue_is(Status::Degraded, causes(&error));
                            again.push(frame);
                        }
                        Err(error) => return Err(causes(&error)),
                    }
                }
                parcel = waiting.recv(), if more_comes && has_room => match parcel {
                    None => more_comes = false,
                    Some(Parcel { frame, sequence }) => {
                        let (frame, producer) = (stamps.stamp(frame), &self.producer);
                        under_way.push_back(async move {
                            let outcome = producer.publish(frame.clone()).await;
                            (Parcel { frame, sequence }, outcome)
                        });
                    }
                },
            }
        }
    }

    /// Sends a frame again until it is taken; whether it was.
    async fn resend(&self, frame: Frame) -> Result<bool, String> {
        let failed = |error: &PublishError| self.progress.queue_is(Status::Degraded, causes(error));
        let producer = Overheard { producer: &self.producer, failed };
        match publish_until(&producer, frame.clone(), &self.give_up, &Backoff::default()).await {
            Ok(_) => {
                self.taken(&frame);
                Ok(true)
            }
            Err(PublishError::Closed | PublishError::Cancelled) => Ok(false),
            Err(error) => Err(causes(&error)),
        }
    }

    fn taken(&self, frame: &Frame) {
        self.progress.queue_is(Status::Healthy, String::new());
        self.progress.published(frame.count);
    }
}

/// Whether another try may succeed.
fn is_passing(error: &PublishError) -> bool {
    error.is_retryable() || matches!(error, PublishError::SequenceTooOld { .. })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::Duration;

    use gpuvitals_queue::{ContentType, Durability, Receipt};
    use tokio::time::Instant;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(1);

    /// A queue that is far away, and takes frames or does not as told; those that it took.
    #[derive(Default)]
    struct Far {
        refusals: Mutex<VecDeque<Option<PublishError>>>,
        taken: Mutex<Vec<Frame>>,
    }

    impl Producer for &Far {
        async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
            let refusal = self.refusals.lock().unwrap().pop_front().flatten();
            if refusal.is_none() {
                self.taken.lock().unwrap().push(frame);
            }
            tokio::time::sleep(ROUND_TRIP).await;
            let receipt = Receipt { offset: Some(0), durability: Durability::Memory, duplicate: false };
            refusal.map_or(Ok(receipt), Err)
        }
    }

    /// Sends so many frames; how it ended, how long it took, what is settled, and rows published.
    async fn sent(far: &'static Far, frames: u64) -> (Result<(), String>, Duration, u64, u64) {
        let (progress, settled) = (Arc::new(Progress::new()), Arc::new(AtomicU64::new(0)));
        let trip = Trip {
            producer: far,
            under_way: UNDER_WAY,
            progress: Arc::clone(&progress),
            settled: Arc::clone(&settled),
            give_up: CancellationToken::new(),
        };
        let (parcels, waiting) = mpsc::channel(WAITING);
        let began = Instant::now();
        let carried = tokio::spawn(trip.carry(waiting));
        for sequence in 1..=frames {
            let frame = Frame::new(ContentType::Batch, 10, sequence.to_le_bytes().to_vec());
            if parcels.send(Parcel { frame, sequence }).await.is_err() {
                break;
            }
        }
        drop(parcels);
        let ended = carried.await.unwrap();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (ended, began.elapsed(), count(&settled), count(&progress.rows_published))
    }

    fn numbers(far: &Far) -> Vec<u64> {
        let taken = far.taken.lock().unwrap();
        let number = |frame: &Frame| u64::from_le_bytes(frame.payload.as_ref().try_into().unwrap());
        taken.iter().map(number).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_under_way_together_and_arrive_in_order() {
        let far: &Far = Box::leak(Box::default());
        let (ended, took, settled, rows) = sent(far, 800).await;
        assert_eq!((ended, settled, rows), (Ok(()), 800, 8_000));
        assert!(took <= ROUND_TRIP * 110, "{took:?}");
        assert_eq!(numbers(far), (1..=800).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_goes_away_gets_everything_in_order_with_the_same_stamps() {
        let far: &Far = Box::leak(Box::default());
        // The fifth frame and all behind it fail, and so do three more tries.
        let away = Some(PublishError::Unavailable { reason: "away".into() });
        *far.refusals.lock().unwrap() = [vec![None; 4], vec![away; 11]].concat().into();
        let (ended, _, settled, rows) = sent(far, 50).await;
        assert_eq!((ended, settled, rows), (Ok(()), 50, 500));
        assert_eq!(numbers(far), (1..=50).collect::<Vec<_>>());
        let taken = far.taken.lock().unwrap();
        let stamps = taken.iter().map(|frame| frame.producer.clone().unwrap());
        assert!(stamps.zip(0..).all(|(stamp, number)| stamp.sequence == number));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_ends_it_with_the_reason() {
        let far: &Far = Box::leak(Box::default());
        let refused = PublishError::Refused { reason: "no such right".into() };
        *far.refusals.lock().unwrap() = vec![None, Some(refused)].into();
        let (ended, _, settled, _) = sent(far, 50).await;
        assert!(ended.unwrap_err().contains("no such right"));
        assert_eq!(settled, 1);
    }
}
