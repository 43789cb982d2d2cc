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
use super::suspects::{Refusal, Taken};
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
    /// Frames that were sent, of both ways and repeats among them.
    tries: u64,
    absence: Option<Absence>,
    /// Refusals since something was taken, of frames of which nothing else is known.
    refused: u32,
    sync_at: Option<Instant>,
    stats: SpoolStats,
    tell: watch::Sender<SpoolStats>,
}

struct Absence {
    away: Away,
    failures: u32,
    try_at: Instant,
    /// Frames that had been sent at the last failure: what becomes of these says nothing new.
    tries: u64,
    /// A kept frame was tried: so is the next one that comes, for that may be taken where this one is not.
    tries_new: bool,
}

/// A frame that was sent.
#[derive(Clone, Copy)]
struct Try {
    way: Way,
    /// Its number among all tries.
    number: u64,
    /// Frames that the queue had taken then.
    taken: u64,
}

/// What became of it.
struct Outcome {
    tried: Try,
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
    Away(Box<Frame>, String),
    /// It refused this frame, or everything: who knows.
    Refused(Box<Frame>, String),
    /// It will never take it.
    Never(String),
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
            tries: 0,
            absence: None,
            refused: 0,
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
        let try_at = match &self.absence {
            Some(absence) => Some(absence.try_at).filter(|_| self.kept_under_way == 0),
            None => self.backlog.suspect_at().filter(|_| self.kept_under_way < KEPT_MAX),
        };
        tokio::select! {
            Some(outcome) = self.under_way.next() => self.settle(outcome),
            Some(()) = self.backlog.news() => {}
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
        let is_crowded = self.direct.len() >= DIRECT_MAX || !is_near;
        let is_tried = |absence: &mut Absence| std::mem::take(&mut absence.tries_new);
        if is_crowded || !self.absence.as_mut().is_none_or(is_tried) {
            frame.producer = Some(self.kept_stamps.next());
            self.keep(frame);
            return;
        }
        frame.producer = Some(self.direct_stamps.next());
        self.sent += 1;
        self.direct.insert(self.sent, frame.clone());
        self.send(Way::Direct(self.sent), Stored::Frame(frame));
    }

    /// Keeps a frame, and gives its number among what is kept.
    fn keep(&mut self, frame: Frame) -> u64 {
        if self.backlog.is_on_disk() {
            self.sync_at.get_or_insert_with(|| Instant::now() + SYNC_PAUSE);
        }
        self.backlog.push(frame)
    }

    /// Sends of what is kept as much as may be under way: one frame while the queue is away.
    fn send_kept(&mut self) {
        let room = match &self.absence {
            None => KEPT_MAX,
            Some(absence) => usize::from(absence.try_at <= Instant::now()),
        };
        while self.kept_under_way < room
            && let Some((number, stored)) = self.next_kept()
        {
            self.kept_under_way += 1;
            self.send(Way::Kept(number), stored);
        }
        if self.backlog.is_empty() && self.absence.is_some() {
            // What was to be tried has been dropped: the next frame that comes is tried.
            self.is_back();
        }
    }

    /// What of that is sent next. While the queue is away it is a frame that was not refused, if there is one.
    fn next_kept(&mut self) -> Option<(u64, Stored)> {
        let is_due = self.backlog.suspect_at().is_some_and(|at| at <= Instant::now());
        match self.absence {
            None if is_due => self.backlog.take_suspect().or_else(|| self.backlog.take()),
            None => self.backlog.take(),
            Some(_) => self.backlog.take().or_else(|| self.backlog.take_suspect()),
        }
    }

    fn send(&mut self, way: Way, stored: Stored) {
        self.tries += 1;
        let tried = Try { way, number: self.tries, taken: self.stats.taken.frames };
        let (producer, patience) = (Arc::clone(&self.producer), self.patience);
        self.under_way.push(Box::pin(async move {
            let result = match read(stored).await {
                Ok(frame) => publish(&*producer, frame, patience).await,
                Err(reason) => Err(Trouble::Unreadable(reason)),
            };
            Outcome { tried, result }
        }));
    }

    fn settle(&mut self, Outcome { tried, result }: Outcome) {
        match tried.way {
            Way::Direct(number) => {
                if let Some(frame) = self.direct.remove(&number) {
                    self.settle_direct(tried, number, frame, result);
                }
            }
            Way::Kept(number) => {
                self.kept_under_way -= 1;
                self.settle_kept(tried, number, result);
            }
        }
    }

    fn settle_direct(&mut self, tried: Try, number: u64, frame: Frame, result: Result<(), Trouble>) {
        let messages = frame.count;
        match result {
            Ok(()) => self.stats.taken.add(messages),
            Err(Trouble::Never(reason)) => self.give_up(messages, &reason),
            Err(Trouble::Refused(frame, reason)) => {
                let kept = self.keep(Frame::clone(&frame));
                return self.refused(tried, kept, *frame, &reason);
            }
            Err(Trouble::Away(_, reason) | Trouble::Unreadable(reason)) => {
                self.keep(frame);
                if number > self.stamps_after {
                    (self.direct_stamps, self.stamps_after) = (Stamps::new(), self.sent);
                    self.is_away(tried, &reason);
                }
                return;
            }
        }
        // Late answers do not say that it is back.
        if self.absence.as_ref().is_none_or(|absence| tried.number > absence.tries) {
            self.is_back();
        }
    }

    fn settle_kept(&mut self, tried: Try, number: u64, result: Result<(), Trouble>) {
        let trouble = match result {
            Err(Trouble::Away(frame, reason)) => return self.missed(tried, number, *frame, &reason),
            Err(Trouble::Refused(frame, reason)) => return self.refused(tried, number, *frame, &reason),
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
            Some(Trouble::Never(reason) | Trouble::Away(_, reason) | Trouble::Refused(_, reason)) => {
                self.give_up(messages, &reason);
            }
        }
        self.is_back();
    }

    fn give_up(&mut self, messages: u32, reason: &str) {
        tracing::warn!(reason, messages, "the queue will never take a frame; it is dropped");
        self.stats.refused.add(messages);
    }

    /// A frame that is kept was refused. One may be the frame's fault; two without one that is taken are the queue's.
    fn refused(&mut self, tried: Try, number: u64, frame: Frame, reason: &str) {
        let taken = Taken { before: tried.taken, now: self.stats.taken.frames };
        match self.backlog.refuse(number, frame, taken) {
            Refusal::Alone => self.refused += 1,
            Refusal::Despite => {}
            Refusal::GivenUp(messages) => self.give_up(messages, reason),
        }
        if self.refused > 1 || self.absence.is_some() {
            self.is_away(tried, reason);
        }
        if let (Some(absence), Way::Kept(_)) = (&mut self.absence, tried.way) {
            absence.tries_new = true;
        }
    }

    /// A frame that is kept was not taken: the queue's fault, unless it takes others.
    fn missed(&mut self, tried: Try, number: u64, frame: Frame, reason: &str) {
        let says_so = self.backlog.miss(number, frame, self.stats.taken.frames);
        if says_so || self.absence.is_some() {
            self.is_away(tried, reason);
        }
        if let Some(absence) = &mut self.absence {
            absence.tries_new = true;
        }
    }

    fn is_away(&mut self, tried: Try, reason: &str) {
        let absence = self.absence.get_or_insert_with(|| {
            tracing::warn!(reason, "the queue takes nothing; what comes is kept");
            let away = Away { since: self.clock.now(), reason: reason.into() };
            Absence { away, failures: 0, try_at: Instant::now(), tries: 0, tries_new: false }
        });
        absence.away.reason = reason.into();
        absence.tries_new = false;
        // Those that were sent together fail together, which is one failure.
        if tried.number > absence.tries {
            absence.failures += 1;
            absence.tries = self.tries;
            absence.try_at = Instant::now() + BACKOFF.after(absence.failures);
        }
    }

    fn is_back(&mut self) {
        self.refused = 0;
        if let Some(absence) = self.absence.take() {
            let (seconds, kept) = (self.clock.now().since(absence.away.since).as_secs(), self.backlog.kept());
            tracing::info!(
                away_seconds = seconds,
                messages_kept = kept.messages,
                "the queue takes frames again"
            );
            self.backlog.try_suspects();
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
        Stored::Lost => Err("the disk lost it when a sync failed".to_owned()),
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
                let stamp = frame.producer.as_ref().map(Stamps::instead_of);
                producer.publish(Frame { producer: stamp, ..frame.clone() }).await
            }
            outcome => outcome,
        }
    };
    let error = match timeout(patience, published).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error,
        Err(_) => {
            return Err(Trouble::Away(Box::new(frame), format!("no answer within {patience:?}")));
        }
    };
    let reason = causes(&error);
    Err(match error {
        PublishError::TooLarge { .. } | PublishError::NoMessages => Trouble::Never(reason),
        PublishError::Closed | PublishError::Cancelled => Trouble::Away(Box::new(frame), reason),
        error if error.is_retryable() => Trouble::Away(Box::new(frame), reason),
        // Perhaps a token or a topic: whoever runs the node puts it right, and nothing is lost until then.
        _ => Trouble::Refused(Box::new(frame), reason),
    })
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
