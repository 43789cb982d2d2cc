//! The task that sends: it owns all there is, and waits for whatever comes next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use gpuvitals_core::causes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::backlog::{Backlog, Stored};
use super::{Away, SpoolStats, record};
use crate::broker::PublishError;
use crate::frame::Frame;
use crate::link::{Backoff, Stamps};
use crate::service::{Clock, Producer};

/// Frames under way that were sent as they came.
const DIRECT_MAX: usize = 32;
/// Frames under way that were kept before.
const KEPT_MAX: usize = 16;
/// How far a frame may be ahead of one that is not settled: half of what a queue remembers of a producer.
pub(super) const SPAN: u64 = 64;
/// Between two tries while the queue is away.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(400), cap: Duration::from_secs(30) };
/// Between two syncs of what is kept.
const SYNC_PAUSE: Duration = Duration::from_secs(5);
/// How long the disk is waited for at the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// What sends.
pub(super) struct Sending<P> {
    producer: Arc<P>,
    patience: Duration,
    clock: Clock,
    backlog: Backlog,
    /// Of frames that are sent as they come.
    direct_stamps: Stamps,
    /// The last number whose frame has other ones, of before a failure.
    stamps_after: u64,
    /// Of frames that are kept before they are sent.
    kept_stamps: Stamps,
    /// Frames that were sent as they came.
    sent: u64,
    /// Those of them that are not settled, by their number.
    direct: BTreeMap<u64, Frame>,
    kept_under_way: usize,
    under_way: FuturesUnordered<BoxFuture<'static, Outcome>>,
    absence: Option<Absence>,
    sync_at: Option<Instant>,
    stats: SpoolStats,
    tell: watch::Sender<SpoolStats>,
}

struct Absence {
    away: Away,
    tries: u32,
    try_at: Instant,
}

/// What became of a frame.
struct Outcome {
    way: Way,
    result: Result<(), Trouble>,
}

/// Which frame: its number among those sent directly, or among those kept.
#[derive(Clone, Copy)]
enum Way {
    Direct(u64),
    Kept(u64),
}

enum Trouble {
    /// The queue did not take it now.
    Away(String),
    /// It will never take it.
    Refused(String),
    /// What was kept is gone.
    Unreadable(String),
}

impl<P: Producer + 'static> Sending<P> {
    /// Sends through a producer, and what is kept already first.
    pub(super) fn new(
        producer: P,
        backlog: Backlog,
        patience: Duration,
        clock: Clock,
    ) -> (Self, watch::Receiver<SpoolStats>) {
        let (tell, told) = watch::channel(SpoolStats::default());
        let sending = Self {
            producer: Arc::new(producer),
            patience,
            clock,
            backlog,
            direct_stamps: Stamps::new(),
            stamps_after: 0,
            kept_stamps: Stamps::new(),
            sent: 0,
            direct: BTreeMap::new(),
            kept_under_way: 0,
            under_way: FuturesUnordered::new(),
            absence: None,
            sync_at: None,
            stats: SpoolStats::default(),
            tell,
        };
        sending.tell();
        (sending, told)
    }

    /// Sends until told to stop, and then what is left for as long as that allows.
    pub(super) async fn run(
        mut self,
        mut arriving: mpsc::Receiver<Frame>,
        mut stopped: oneshot::Receiver<Duration>,
    ) {
        let grace = loop {
            self.send_kept();
            self.tell();
            tokio::select! {
                grace = &mut stopped => break grace.unwrap_or_default(),
                Some(frame) = arriving.recv() => self.accept(frame),
                () = self.turn() => {}
            }
        };
        arriving.close();
        while let Some(frame) = arriving.recv().await {
            self.accept(frame);
        }
        let settling = async {
            while !self.is_settled() {
                if !self.backlog.is_on_disk() {
                    self.send_kept();
                }
                self.turn().await;
                self.tell();
            }
        };
        let _late = timeout(grace, settling).await;
        for frame in std::mem::take(&mut self.direct).into_values() {
            self.keep(frame);
        }
        self.backlog.close(CLOSE_LIMIT).await;
        self.tell();
    }

    /// Waits for whatever comes next, and does what follows from it.
    async fn turn(&mut self) {
        let try_at = self.absence.as_ref().map(|absence| absence.try_at).filter(|_| self.kept_under_way == 0);
        tokio::select! {
            Some(outcome) = self.under_way.next() => self.settle(outcome),
            Some(()) = self.backlog.written() => {}
            () = until(try_at) => {}
            () = until(self.sync_at) => {
                self.sync_at = None;
                self.backlog.sync();
            }
        }
    }

    /// Whether nothing is gained by waiting: all is sent, or is safe on the disk while the queue is away.
    fn is_settled(&self) -> bool {
        let is_lost_labour = self.absence.is_some() && self.backlog.is_on_disk();
        let is_sent = self.direct.is_empty() && self.kept_under_way == 0;
        (is_sent || is_lost_labour) && self.backlog.is_safe()
    }

    /// Sends a frame that came, or keeps it.
    fn accept(&mut self, mut frame: Frame) {
        let oldest = self.direct.first_key_value().map(|(number, _)| *number);
        let is_near = oldest.is_none_or(|oldest| self.sent < oldest + SPAN);
        if self.absence.is_some() || self.direct.len() >= DIRECT_MAX || !is_near {
            frame.producer = Some(self.kept_stamps.next());
            return self.keep(frame);
        }
        frame.producer = Some(self.direct_stamps.next());
        self.sent += 1;
        self.direct.insert(self.sent, frame.clone());
        self.send(Way::Direct(self.sent), Stored::Frame(frame));
    }

    fn keep(&mut self, frame: Frame) {
        self.backlog.push(frame);
        if self.backlog.is_on_disk() {
            self.sync_at.get_or_insert_with(|| Instant::now() + SYNC_PAUSE);
        }
    }

    /// Sends of what is kept as much as may be under way: one frame while the queue is away.
    fn send_kept(&mut self) {
        let room = match &self.absence {
            None => KEPT_MAX,
            Some(absence) => usize::from(absence.try_at <= Instant::now()),
        };
        while self.kept_under_way < room
            && let Some((number, stored)) = self.backlog.take()
        {
            self.kept_under_way += 1;
            self.send(Way::Kept(number), stored);
        }
        if self.backlog.is_empty() && self.absence.is_some() {
            // What was to be tried has been dropped: the next frame that comes is tried.
            self.is_back();
        }
    }

    fn send(&self, way: Way, stored: Stored) {
        let (producer, patience) = (Arc::clone(&self.producer), self.patience);
        self.under_way.push(Box::pin(async move {
            let result = match read(stored).await {
                Ok(frame) => publish(&*producer, frame, patience).await,
                Err(reason) => Err(Trouble::Unreadable(reason)),
            };
            Outcome { way, result }
        }));
    }

    fn settle(&mut self, Outcome { way, result }: Outcome) {
        match way {
            Way::Direct(number) => {
                if let Some(frame) = self.direct.remove(&number) {
                    self.settle_direct(number, frame, result);
                }
            }
            Way::Kept(number) => {
                self.kept_under_way -= 1;
                self.settle_kept(number, result);
            }
        }
    }

    fn settle_direct(&mut self, number: u64, frame: Frame, result: Result<(), Trouble>) {
        match result {
            Ok(()) => self.stats.taken.add(frame.count),
            Err(Trouble::Refused(reason)) => {
                tracing::warn!(
                    reason,
                    messages = frame.count,
                    "the queue will never take a frame; it is dropped"
                );
                self.stats.refused.add(frame.count);
            }
            Err(Trouble::Away(reason) | Trouble::Unreadable(reason)) => {
                self.keep(frame);
                if number > self.stamps_after {
                    (self.direct_stamps, self.stamps_after) = (Stamps::new(), self.sent);
                    self.is_away(&reason);
                }
            }
        }
    }

    fn settle_kept(&mut self, number: u64, result: Result<(), Trouble>) {
        let trouble = match result {
            Err(Trouble::Away(reason)) => {
                self.backlog.give_back(number);
                return self.is_away(&reason);
            }
            Err(trouble) => Some(trouble),
            Ok(()) => None,
        };
        let Some(messages) = self.backlog.settle(number) else { return };
        match trouble {
            None => {
                self.stats.taken.add(messages);
                self.stats.resent.add(messages);
            }
            Some(Trouble::Unreadable(reason)) => {
                tracing::error!(reason, messages, "a kept frame cannot be read; it is lost");
                self.stats.unreadable.add(messages);
                return;
            }
            Some(Trouble::Refused(reason) | Trouble::Away(reason)) => {
                tracing::warn!(reason, messages, "the queue will never take a kept frame; it is dropped");
                self.stats.refused.add(messages);
            }
        }
        self.is_back();
    }

    fn is_away(&mut self, reason: &str) {
        let absence = self.absence.get_or_insert_with(|| {
            tracing::warn!(reason, "the queue takes nothing; what comes is kept");
            let away = Away { since: self.clock.now(), reason: reason.into() };
            Absence { away, tries: 0, try_at: Instant::now() }
        });
        absence.away.reason = reason.into();
        absence.try_at = Instant::now() + BACKOFF.after(absence.tries + 1);
        absence.tries += 1;
    }

    fn is_back(&mut self) {
        if let Some(absence) = self.absence.take() {
            let (seconds, kept) = (self.clock.now().since(absence.away.since).as_secs(), self.backlog.kept());
            tracing::info!(
                away_seconds = seconds,
                messages_kept = kept.messages,
                "the queue takes frames again"
            );
        }
    }

    fn present(&self) -> SpoolStats {
        let mut stats = self.stats.clone();
        stats.away = self.absence.as_ref().map(|absence| absence.away.clone());
        self.backlog.add_to(&mut stats);
        stats
    }

    fn tell(&self) {
        self.tell.send_replace(self.present());
    }
}

async fn read(stored: Stored) -> Result<Frame, String> {
    match stored {
        Stored::Frame(frame) => Ok(frame),
        Stored::Record(log, place) => {
            let read = tokio::task::spawn_blocking(move || log.read(place)).await.map_err(|e| causes(&e))?;
            let record = read.map_err(|e| causes(&e))?;
            record::decode(record.payload).ok_or_else(|| "it is no frame of this version".to_owned())
        }
    }
}

async fn publish<P: Producer>(producer: &P, frame: Frame, patience: Duration) -> Result<(), Trouble> {
    let published = async {
        match producer.publish(frame.clone()).await {
            // Stored twice is better than lost.
            Err(PublishError::SequenceTooOld { .. }) => {
                producer.publish(Frame { producer: Some(Stamps::new().next()), ..frame }).await
            }
            outcome => outcome,
        }
    };
    match timeout(patience, published).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error @ (PublishError::TooLarge { .. } | PublishError::NoMessages))) => {
            Err(Trouble::Refused(causes(&error)))
        }
        // A wrong token or topic as well: whoever runs the node puts it right, and nothing is lost until then.
        Ok(Err(error)) => Err(Trouble::Away(causes(&error))),
        Err(_) => Err(Trouble::Away(format!("no answer within {patience:?}"))),
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
