//! The one retry policy: which refusals are retried, after what delay, and in what order.
//!
//! | the queue's answer | what a [`Sender`] does |
//! |---|---|
//! | away, full, cannot store | sends the frame again with the same stamp |
//! | the stamp's number is too old | sends the frame again with another stamp: stored twice is better than lost |
//! | access denied, topic or anything else refused | ends the frame, or waits ([`Patience`]) |
//! | too large, malformed, without messages | ends the frame |
//!
//! Between two attempts it waits as [`Backoff`] says, and at least as long as the queue asks. While a frame
//! waits nothing new is sent; one frame alone is tried, and once it is taken the others follow.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use gpuvitals_core::backoff::{ASKED_MAX, Backoff, random};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::broker::{PublishError, Receipt};
use crate::frame::{Frame, ProducerStamp};
use crate::name::PRODUCER_LEN_MAX;
use crate::service::Producer;

/// The stamps of one run of one producer: a random id, and numbers that grow by one.
#[derive(Debug)]
pub struct Stamps {
    id: Arc<str>,
    next: AtomicU64,
}

impl Stamps {
    /// A new run.
    #[expect(clippy::new_without_default, reason = "every one is another")]
    pub fn new() -> Self {
        Self { id: format!("{:016x}{:016x}", random(), random()).into(), next: AtomicU64::new(0) }
    }

    /// The stamp of the next frame.
    pub fn next(&self) -> ProducerStamp {
        ProducerStamp { id: Arc::clone(&self.id), sequence: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// A replacement for a stamp that is too old to be checked: of a producer with this frame alone, and
    /// always the same for the same stamp.
    pub(crate) fn instead_of(old: &ProducerStamp) -> ProducerStamp {
        let id = format!("{}-{}", old.id, old.sequence);
        if id.len() > PRODUCER_LEN_MAX {
            Self::new().next()
        } else {
            ProducerStamp { id: id.into(), sequence: 1 }
        }
    }

    /// The frame with a stamp: its own if it has one.
    pub fn stamp(&self, mut frame: Frame) -> Frame {
        frame.producer.get_or_insert_with(|| self.next());
        frame
    }
}

/// The refusals that a [`Sender`] waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// Temporary ones: the queue is away, full, or cannot store.
    #[default]
    Passing,
    /// Also those that end when somebody changes a setting: access is denied, or the topic is refused.
    Settings,
}

/// The outcome of a frame of a [`Sender`].
#[derive(Debug)]
pub enum Event<T> {
    /// The queue has taken a frame.
    Taken {
        /// What the caller gave with the frame.
        tag: T,
        /// How safe it is, and where it stands.
        receipt: Receipt,
    },
    /// An attempt failed; the frame is sent again.
    Failed(PublishError),
    /// A frame will never be taken.
    Refused {
        /// What the caller gave with the frame.
        tag: T,
        /// Why no further attempt is made.
        error: PublishError,
    },
}

/// Sends frames, several at a time and in order, and sends refused ones again. The caller gives every frame a
/// tag, which comes back with its outcome.
///
/// Frames reach the queue in their order, except that one which was not taken follows those in flight with
/// it. Every attempt of a frame carries the same stamp, so one with an unknown outcome is recognised and the
/// frame is not stored twice. Dropping a sender leaves the outcome of the frames in flight unknown.
pub struct Sender<'p, P, T> {
    producer: &'p P,
    window: usize,
    patience: Patience,
    backoff: Backoff,
    stamps: Stamps,
    /// Number of the next new frame.
    next: u64,
    under_way: FuturesOrdered<BoxFuture<'p, Tried<T>>>,
    /// Frames that were not taken, by their numbers.
    again: VecDeque<Sent<T>>,
    /// Failed attempts since a frame was taken; those of frames in flight together count once.
    failures: u32,
    /// When the next attempt is due after a failure.
    try_at: Instant,
}

struct Sent<T> {
    number: u64,
    tag: T,
    frame: Frame,
    /// Failures of the sender when it was tried.
    failures: u32,
}

type Tried<T> = (Sent<T>, Result<Receipt, PublishError>);

impl<P, T> fmt::Debug for Sender<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (under_way, waiting) = (self.under_way.len(), self.again.len());
        f.debug_struct("Sender")
            .field("under_way", &under_way)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Producer, T: Send + 'p> Sender<'p, P, T> {
    /// A sender of at most `window` frames at a time; above 127 a queue does not recognise every repeat.
    pub fn new(producer: &'p P, window: usize, patience: Patience) -> Self {
        Self {
            producer,
            window,
            patience,
            backoff: Backoff::default(),
            stamps: Stamps::new(),
            next: 0,
            under_way: FuturesOrdered::new(),
            again: VecDeque::new(),
            failures: 0,
            try_at: Instant::now(),
        }
    }

    /// The same with another back-off.
    #[must_use]
    pub fn backing_off(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Whether another frame may be sent: there is room, and no frame waits for a retry.
    pub fn has_room(&self) -> bool {
        self.again.is_empty() && self.under_way.len() < self.window
    }

    /// Whether no frame is in flight or waits for a retry.
    pub fn is_idle(&self) -> bool {
        self.again.is_empty() && self.under_way.is_empty()
    }

    /// Sends a frame, with a stamp unless it has one. It is sent only while [`Sender::event`] is awaited.
    pub fn send(&mut self, tag: T, frame: Frame) {
        let (number, frame) = (self.next, self.stamps.stamp(frame));
        self.next += 1;
        self.put(Sent { number, tag, frame, failures: 0 });
    }

    /// Waits for the next outcome; for ever if nothing is in flight. Dropping the future loses nothing.
    pub async fn event(&mut self) -> Event<T> {
        if self.under_way.is_empty() && !self.again.is_empty() {
            if self.failures > 0 {
                sleep_until(self.try_at).await;
            }
            let together = if self.failures > 0 { 1 } else { self.window };
            for sent in self.again.drain(..together.min(self.again.len())).collect::<Vec<_>>() {
                self.put(sent);
            }
        }
        let Some((sent, outcome)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        match outcome {
            Ok(receipt) => {
                self.failures = 0;
                Event::Taken { tag: sent.tag, receipt }
            }
            Err(error) if self.is_waited_for(&error) => {
                self.failed(sent, &error);
                Event::Failed(error)
            }
            Err(error) => Event::Refused { tag: sent.tag, error },
        }
    }

    fn put(&mut self, mut sent: Sent<T>) {
        sent.failures = self.failures;
        let producer = self.producer;
        self.under_way.push_back(Box::pin(async move {
            let outcome = producer.publish(sent.frame.clone()).await;
            (sent, outcome)
        }));
    }

    fn is_waited_for(&self, error: &PublishError) -> bool {
        let is_over = matches!(error, PublishError::Closed | PublishError::Cancelled) || error.names_frame();
        let passes = error.is_retryable() || matches!(error, PublishError::SequenceTooOld { .. });
        passes || (self.patience == Patience::Settings && !is_over)
    }

    fn failed(&mut self, mut sent: Sent<T>, error: &PublishError) {
        if sent.failures == self.failures {
            self.failures = self.failures.saturating_add(1);
            self.try_at = Instant::now() + self.backoff.after(self.failures);
        }
        match error {
            PublishError::Full { retry_after: Some(asked), .. } => {
                self.try_at = self.try_at.max(Instant::now() + (*asked).min(ASKED_MAX));
            }
            PublishError::SequenceTooOld { .. } => {
                sent.frame.producer = sent.frame.producer.as_ref().map(Stamps::instead_of);
            }
            _ => {}
        }
        let place = self.again.partition_point(|other| other.number < sent.number);
        self.again.insert(place, sent);
    }
}

/// Publishes one frame by a [`Sender`], until `cancel`. Stamp it before ([`Stamps`]) if it may be published
/// again later. At most 128 frames of one producer's stamps may be in flight at once, including those that
/// wait for a retry.
///
/// # Errors
///
/// The frame was refused for good, or [`PublishError::Cancelled`]: then it may have been taken.
pub async fn publish_until<P: Producer>(
    producer: &P,
    frame: Frame,
    cancel: &CancellationToken,
    backoff: &Backoff,
) -> Result<Receipt, PublishError> {
    let mut sender = Sender::new(producer, 1, Patience::Passing).backing_off(*backoff);
    sender.send((), frame);
    loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(PublishError::Cancelled),
            event = sender.event() => event,
        };
        match event {
            Event::Taken { receipt, .. } => return Ok(receipt),
            Event::Refused { error, .. } => return Err(error),
            Event::Failed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::broker::FrameDurability;
    use crate::frame::ContentType;

    /// Fails with the listed errors, then takes.
    struct Scripted(Mutex<(Vec<PublishError>, Vec<Frame>)>);

    impl Producer for Scripted {
        async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
            let mut state = self.0.lock().unwrap();
            state.1.push(frame);
            let taken = Receipt { offset: Some(0), durability: FrameDurability::Memory, duplicate: false };
            state.0.pop().map_or(Ok(taken), Err)
        }
    }

    fn away() -> PublishError {
        PublishError::Unavailable { reason: "away".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_is_sent_with_the_same_stamp_until_it_is_taken() {
        let full = PublishError::full("t", Some(Duration::from_mins(1)));
        let scripted = Scripted(Mutex::new((vec![away(), full, away()], Vec::new())));
        let frame = Stamps::new().stamp(Frame::new(ContentType::Json, 1, "{}"));
        let begun = tokio::time::Instant::now();
        let cancel = CancellationToken::new();
        publish_until(&scripted, frame.clone(), &cancel, &Backoff::default()).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_mins(1), "it asked to be left alone for that long");
        assert_eq!(scripted.0.into_inner().unwrap().1, vec![frame; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_or_cancelled_is_not_sent_again() {
        let refused = PublishError::Refused { reason: "no".into() };
        let scripted = Scripted(Mutex::new((vec![refused.clone()], Vec::new())));
        let frame = || Frame::new(ContentType::Json, 1, "{}");
        let cancel = CancellationToken::new();
        assert_eq!(publish_until(&scripted, frame(), &cancel, &Backoff::default()).await, Err(refused));
        cancel.cancel();
        let cancelled = publish_until(&scripted, frame(), &cancel, &Backoff::default()).await;
        assert_eq!(cancelled, Err(PublishError::Cancelled));
        assert_eq!(scripted.0.into_inner().unwrap().1.len(), 1);
    }

    const ROUND_TRIP: Duration = Duration::from_millis(1);

    /// A distant queue that refuses the listed attempts.
    #[derive(Default)]
    struct Distant {
        refusals: Mutex<VecDeque<Option<PublishError>>>,
        taken: Mutex<Vec<Frame>>,
    }

    impl Producer for Distant {
        async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
            let refusal = self.refusals.lock().unwrap().pop_front().flatten();
            if refusal.is_none() {
                self.taken.lock().unwrap().push(frame);
            }
            tokio::time::sleep(ROUND_TRIP).await;
            let receipt = Receipt { offset: Some(0), durability: FrameDurability::Memory, duplicate: false };
            refusal.map_or(Ok(receipt), Err)
        }
    }

    /// Sends `frames` frames, eight at a time; returns the tags in the order of their outcomes, refused ones
    /// negative, and the time it took.
    async fn sent(distant: &Distant, frames: i64, patience: Patience) -> (Vec<i64>, Duration) {
        let (mut sender, mut next, mut ended) = (Sender::new(distant, 8, patience), 1, Vec::new());
        let began = Instant::now();
        loop {
            while next <= frames && sender.has_room() {
                sender.send(next, Frame::new(ContentType::Batch, 10, next.to_le_bytes().to_vec()));
                next += 1;
            }
            if sender.is_idle() {
                return (ended, began.elapsed());
            }
            match sender.event().await {
                Event::Taken { tag, .. } => ended.push(tag),
                Event::Refused { tag, .. } => ended.push(-tag),
                Event::Failed(_) => {}
            }
        }
    }

    fn numbers(distant: &Distant) -> Vec<i64> {
        let taken = distant.taken.lock().unwrap();
        taken.iter().map(|frame| i64::from_le_bytes(frame.payload.as_ref().try_into().unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_under_way_together_and_arrive_in_order() {
        let distant = Distant::default();
        let (ended, took) = sent(&distant, 800, Patience::Passing).await;
        assert_eq!(ended, (1..=800).collect::<Vec<_>>());
        assert!(took <= ROUND_TRIP * 110, "{took:?}");
        assert_eq!(numbers(&distant), ended);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_goes_away_gets_everything_in_order_with_the_same_stamps() {
        let distant = Distant::default();
        // The fifth frame and all after it fail, and so do three more attempts.
        *distant.refusals.lock().unwrap() = [vec![None; 4], vec![Some(away()); 11]].concat().into();
        let (ended, took) = sent(&distant, 50, Patience::Passing).await;
        assert_eq!(ended, (1..=50).collect::<Vec<_>>());
        assert_eq!(numbers(&distant), ended);
        assert!(took < Duration::from_secs(3), "those that failed together count once: {took:?}");
        let taken = distant.taken.lock().unwrap();
        let stamps = taken.iter().map(|frame| frame.producer.clone().unwrap());
        assert!(stamps.zip(0..).all(|(stamp, number)| stamp.sequence == number));
    }

    #[tokio::test(start_paused = true)]
    async fn denied_access_is_waited_for_if_asked_and_a_malformed_frame_never() {
        let denied = PublishError::Denied { reason: "no such right".into() };
        let malformed = PublishError::Malformed { reason: "no frame".into() };
        for (refusal, patience, expected) in [
            (&denied, Patience::Passing, vec![1, -2, 3]),
            (&denied, Patience::Settings, vec![1, 3, 2]),
            (&malformed, Patience::Settings, vec![1, -2, 3]),
        ] {
            let distant = Distant::default();
            *distant.refusals.lock().unwrap() = vec![None, Some(refusal.clone())].into();
            assert_eq!(sent(&distant, 3, patience).await.0, expected, "{refusal} {patience:?}");
        }
    }

    #[test]
    fn every_life_has_another_id_and_counts_from_nothing() {
        let (one, other) = (Stamps::new(), Stamps::new());
        assert_ne!(one.next().id, other.next().id);
        assert_eq!((one.next().sequence, other.next().sequence), (1, 1));
    }
}
