//! Trying again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::broker::{PublishError, Receipt};
use crate::frame::{Frame, ProducerStamp};
use crate::name::NAME_LEN_MAX;
use crate::service::Producer;

/// How long to wait between tries: at most `base`, doubled with every failure up to `cap`. The actual wait is drawn
/// between nothing and that (full jitter), so that many who failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub base: Duration,
    /// Where the doubling ends.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(100), cap: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The longest wait after so many failures in a row, from 1.
    pub fn longest_after(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.saturating_mul(doubled).min(self.cap)
    }

    /// The wait after so many failures in a row, from 1.
    pub fn after(&self, failures: u32) -> Duration {
        let nanos = u64::try_from(self.longest_after(failures).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(random() % nanos.saturating_add(1).max(1))
    }
}

/// A number that nobody guesses and nobody draws twice: the hash of nothing under a key of the system.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The stamps of one life of one producer: a random id, and numbers that grow by one.
#[derive(Debug)]
pub struct Stamps {
    id: Arc<str>,
    next: AtomicU64,
}

impl Stamps {
    /// A new life.
    #[expect(clippy::new_without_default, reason = "every one is another")]
    pub fn new() -> Self {
        Self { id: format!("{:016x}{:016x}", random(), random()).into(), next: AtomicU64::new(0) }
    }

    /// The stamp of the next frame.
    pub fn next(&self) -> ProducerStamp {
        ProducerStamp { id: Arc::clone(&self.id), sequence: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// A stamp instead of one that is too old to be told from others: of a producer that has this frame alone, and the same
    /// whenever it is asked for.
    pub(crate) fn instead_of(old: &ProducerStamp) -> ProducerStamp {
        let id = format!("{}-{}", old.id, old.sequence);
        if id.len() > NAME_LEN_MAX {
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

/// Publishes a frame until it is taken, refused for good, or `cancel`. Every try carries the same stamp, so that a try
/// whose outcome stayed unknown is recognised and the frame is not stored twice: stamp it before ([`Stamps`]). At most
/// 128 frames of one producer's stamps may be under way at once, those that wait for their next try among them.
///
/// Nothing is logged: several producers may meet the same trouble, and a caller knows whether it is new.
///
/// # Errors
///
/// The frame was refused for good, or [`PublishError::Cancelled`]: then it may have been taken.
pub async fn publish_until<P: Producer>(
    producer: &P,
    mut frame: Frame,
    cancel: &CancellationToken,
    backoff: &Backoff,
) -> Result<Receipt, PublishError> {
    let mut failures = 0;
    loop {
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(PublishError::Cancelled),
            outcome = producer.publish(frame.clone()) => outcome,
        };
        let error = match outcome {
            Err(error) if error.is_retryable() => error,
            // Stored twice is better than lost.
            Err(error @ PublishError::SequenceTooOld { .. }) => {
                frame.producer = frame.producer.as_ref().map(Stamps::instead_of);
                error
            }
            outcome => return outcome,
        };
        failures += 1;
        let asked = match error {
            PublishError::Full { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let wait = backoff.after(failures).max(asked);
        tokio::select! {
            () = cancel.cancelled() => return Err(PublishError::Cancelled),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::broker::Durability;
    use crate::frame::ContentType;

    /// Fails as told, then takes.
    struct Moody(Mutex<(Vec<PublishError>, Vec<Frame>)>);

    impl Producer for Moody {
        async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
            let mut state = self.0.lock().unwrap();
            state.1.push(frame);
            let taken = Receipt { offset: Some(0), durability: Durability::Memory, duplicate: false };
            state.0.pop().map_or(Ok(taken), Err)
        }
    }

    fn away() -> PublishError {
        PublishError::Unavailable { reason: "away".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_is_sent_with_the_same_stamp_until_it_is_taken() {
        let full = PublishError::Full { topic: "t".into(), retry_after: Some(Duration::from_mins(1)) };
        let moody = Moody(Mutex::new((vec![away(), full, away()], Vec::new())));
        let frame = Stamps::new().stamp(Frame::new(ContentType::Json, 1, "{}"));
        let begun = tokio::time::Instant::now();
        let cancel = CancellationToken::new();
        publish_until(&moody, frame.clone(), &cancel, &Backoff::default()).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_mins(1), "it asked to be left alone for that long");
        assert_eq!(moody.0.into_inner().unwrap().1, vec![frame; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_or_cancelled_is_not_sent_again() {
        let refused = PublishError::Refused { reason: "no".into() };
        let moody = Moody(Mutex::new((vec![refused.clone()], Vec::new())));
        let frame = || Frame::new(ContentType::Json, 1, "{}");
        let cancel = CancellationToken::new();
        assert_eq!(publish_until(&moody, frame(), &cancel, &Backoff::default()).await, Err(refused));
        cancel.cancel();
        let cancelled = publish_until(&moody, frame(), &cancel, &Backoff::default()).await;
        assert_eq!(cancelled, Err(PublishError::Cancelled));
        assert_eq!(moody.0.into_inner().unwrap().1.len(), 1);
    }

    #[test]
    fn the_wait_doubles_up_to_its_cap_and_is_drawn_anew() {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        for (failures, longest_ms) in [(1, 100), (2, 200), (4, 800), (5, 1_000), (4_000, 1_000)] {
            let waits: Vec<_> = (0..64).map(|_| backoff.after(failures)).collect();
            assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(longest_ms)));
            assert!(waits.iter().any(|wait| *wait > Duration::from_millis(longest_ms / 2)), "{waits:?}");
        }
    }

    #[test]
    fn every_life_has_another_id_and_counts_from_nothing() {
        let (one, other) = (Stamps::new(), Stamps::new());
        assert_ne!(one.next().id, other.next().id);
        assert_eq!((one.next().sequence, other.next().sequence), (1, 1));
    }
}
