//! Receiving from JetStream.

mod held;
mod seat;
mod settle;
mod watch;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::{Message, Subject, jetstream};
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::held::{Held, Loan, Standing};
use self::seat::{Came, Member, Seat};
use self::watch::Gone;
use super::error::NatsError;
use super::head;
use super::names::{self, Topic};
use super::session::Endpoint;
use crate::broker::{ConsumerOptions, Delivery, DeliveryId, Failure, Nack, ReceiveError, SettleError};
use crate::frame::{ContentType, Frame, Millis};
use crate::link::{Access, Away, Backoff, ConnectError, QueueUrl};
use crate::service::{Clock, Consumer};

/// Waits between two tries to get at the queue.
const RETRY: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(5) };

/// Part of a message's time after which it is given anew, while the message waits for credits.
const WAITS_PART: u32 = 4;

/// Most messages of one pull.
const PULL_MAX: u64 = 256;

/// A member of a group of a topic in NATS JetStream. It connects with the first [`Consumer::receive`], and again
/// whenever the connection is lost.
///
/// A group that is removed is told of. The next receive joins it anew; from then on nothing that was delivered before
/// is settled, as the same places belong to other messages. What is settled between the two is answered with
/// [`SettleError::ConnectionLost`], as it is while NATS is away.
#[derive(Debug)]
pub struct NatsConsumer {
    member: Arc<Member>,
    group: Arc<str>,
    clock: Clock,
    seat: Option<Seat>,
    /// The seat that is being taken: that goes on while nobody waits for it.
    taking: JoinSet<Result<Seat, NatsError>>,
    /// Fetched, and beyond the credits so far; since when.
    waiting: VecDeque<(Loan, Instant)>,
    /// Fetched, and to be moved to the dead letters.
    dying: VecDeque<(Loan, Failure)>,
    held: Mutex<Held>,
    /// Something was settled: there may be credits.
    freed: Notify,
    /// Messages (rows) in a frame, rather too many than too few; 0: none was seen yet.
    rows_per_frame: u64,
    failures: u32,
    away: channel::Sender<Away>,
    /// The connection is lost, and `away` says so.
    is_parted: bool,
    /// When it was seen last what has come.
    looked_at: Instant,
}

/// Why nothing is received now.
enum Trouble {
    Nats(NatsError),
    GroupGone,
}

impl From<NatsError> for Trouble {
    fn from(error: NatsError) -> Self {
        Self::Nats(error)
    }
}

impl NatsConsumer {
    /// A member of `group` of `topic`.
    ///
    /// # Errors
    ///
    /// A name is refused.
    pub fn new(
        url: &QueueUrl,
        access: &Access,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<Self, ConnectError> {
        let member = Member {
            endpoint: Endpoint::new(url, access),
            topic: Topic::new(topic).map_err(|source| ConnectError::Name { what: "topic", source })?,
            consumer: names::consumer(group)
                .map_err(|source| ConnectError::Name { what: "group", source })?,
            settings: Arc::clone(&url.nats),
            options: *options,
        };
        Ok(Self {
            member: Arc::new(member),
            group: group.into(),
            clock: Clock::system(),
            seat: None,
            taking: JoinSet::new(),
            waiting: VecDeque::new(),
            dying: VecDeque::new(),
            held: Mutex::default(),
            freed: Notify::new(),
            rows_per_frame: 0,
            failures: 0,
            away: channel::Sender::default(),
            is_parted: false,
            looked_at: Instant::now(),
        })
    }

    /// Why the queue is not reached, while it is not.
    pub fn away(&self) -> channel::Receiver<Away> {
        self.away.subscribe()
    }

    /// Tells whether the queue is reached, after a step that did not fail.
    fn tell_whether_away(&mut self) {
        let is_parted = self.seat.as_ref().is_some_and(|seat| seat.session.is_lost());
        let topic = &*self.member.topic.name;
        match (self.is_parted, is_parted) {
            (false, true) => tracing::warn!(topic, "the connection to NATS was lost; it is being made again"),
            (true, false) => tracing::info!(topic, "NATS is reached again"),
            _ => {}
        }
        if is_parted != self.is_parted || self.failures > 0 {
            let why = is_parted.then(|| "the connection was lost and is being made again".into());
            self.away.send_replace(why);
        }
        (self.is_parted, self.failures) = (is_parted, 0);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, after a wait if that failed before.
    async fn sit(&mut self) -> Result<(), Trouble> {
        if self.taking.is_empty() {
            let wait = if self.failures == 0 { Duration::ZERO } else { RETRY.after(self.failures) };
            let member = Arc::clone(&self.member);
            self.taking.spawn(async move {
                tokio::time::sleep(wait).await;
                Seat::take(&member).await
            });
        }
        let Some(taken) = self.taking.join_next().await else { return Ok(()) };
        let seat = taken.map_err(NatsError::unavailable)??;
        if self.held().join(seat.born) {
            self.forget();
        }
        self.seat = Some(seat);
        self.looked_at = Instant::now();
        Ok(())
    }

    /// Forgets what was fetched: nobody has to be told.
    fn forget(&mut self) {
        self.waiting.clear();
        self.dying.clear();
    }

    /// Goes one step towards messages.
    async fn step(&mut self) -> Result<Vec<Delivery>, Trouble> {
        if self.seat.is_none() {
            self.sit().await?;
        }
        if self.seat.as_ref().is_some_and(|seat| seat.session.is_over()) {
            return Err(NatsError::unavailable("the connection was given up").into());
        }
        if let Some(gone) = self.seat.as_ref().and_then(|seat| seat.watch.gone()) {
            self.held().end_life();
            self.forget();
            return Err(match gone {
                Gone::Removed => Trouble::GroupGone,
                Gone::Lost => NatsError::unavailable("the group is not there any more").into(),
            });
        }
        while let Some(came) = self.seat.as_mut().and_then(Seat::come_already) {
            self.take_in(came?, self.looked_at).await?;
        }
        self.looked_at = Instant::now();
        while let Some((loan, failure)) = self.dying.front() {
            Box::pin(self.bury_at_delivery(loan, failure)).await;
            self.dying.pop_front();
        }
        self.keep_waiting().await;
        let deliveries = self.hand_out();
        if !deliveries.is_empty() {
            return Ok(deliveries);
        }
        let Some(seat) = &self.seat else { return Ok(Vec::new()) };
        let gone = seat.watch.end();
        let (in_flight, next_end) = self.held().in_flight(Instant::now());
        let credits = u64::from(self.member.options.max_in_flight.get()).saturating_sub(in_flight);
        if credits == 0 || !self.waiting.is_empty() {
            // Whatever is beyond the credits now: something is in flight. What waits for them needs more time before that.
            let needs_time =
                self.waiting.iter().map(|(loan, since)| *since + loan.patience / WAITS_PART).min();
            let next = next_end.into_iter().chain(needs_time).min();
            let end = tokio::time::sleep_until(next.unwrap_or(self.looked_at));
            let turned = seat.session.turned(self.is_parted);
            tokio::select! { () = self.freed.notified() => {}, () = end => {}, () = gone => {}, () = turned => {} }
            return Ok(Vec::new());
        }
        let frames = self.frames_for(credits);
        let Some(seat) = &mut self.seat else { return Ok(Vec::new()) };
        let turned = seat.session.turned(self.is_parted);
        let came = tokio::select! {
            came = seat.wait(frames) => came?,
            () = gone => Came::Nothing,
            () = turned => Came::Nothing,
        };
        self.looked_at = Instant::now();
        self.take_in(came, self.looked_at).await?;
        Ok(Vec::new())
    }

    /// How many frames to ask for: what is fetched counts as delivered, so not more than can be handed out at once.
    fn frames_for(&self, credits: u64) -> usize {
        let max_batch = self.member.options.max_batch.map_or(u64::MAX, |max| u64::from(max.get()));
        let frames = credits.min(max_batch).checked_div(self.rows_per_frame).unwrap_or(1);
        usize::try_from(frames.clamp(1, PULL_MAX)).unwrap_or(1)
    }

    /// Takes what came, not before `since`.
    async fn take_in(&mut self, came: Came, since: Instant) -> Result<(), Trouble> {
        let message = match came {
            Came::Message(message) => message,
            Came::Nothing => return Ok(()),
        };
        let Some(seat) = &self.seat else { return Ok(()) };
        let message = jetstream::Message { message, context: seat.session.jetstream.clone() };
        match self.read(&message, seat) {
            Some(Read::Loan(loan)) => {
                let count = u64::from(loan.frame.count);
                self.rows_per_frame = count.max((self.rows_per_frame * 3 + count).div_ceil(4));
                self.waiting.push_back((loan, since));
            }
            Some(Read::Settled(reply, kind)) => self.tell(&reply, kind).await,
            Some(Read::Dead(loan, reason)) => self.dying.push_back((loan, reason)),
            None => tracing::debug!(subject = %message.subject, "not a message of JetStream"),
        }
        Ok(())
    }

    /// Asks more time for what has been waiting for credits.
    async fn keep_waiting(&mut self) {
        let now = self.looked_at;
        let is_old = |(loan, since): &(Loan, Instant)| now >= *since + loan.patience / WAITS_PART;
        let old: Vec<_> =
            self.waiting.iter().filter(|one| is_old(one)).map(|(loan, _)| loan.reply.clone()).collect();
        for reply in old {
            self.tell(&reply, AckKind::Progress).await;
        }
        for one in self.waiting.iter_mut().filter(|one| is_old(one)) {
            one.1 = now;
        }
    }

    /// Lends what the credits allow.
    fn hand_out(&mut self) -> Vec<Delivery> {
        let now = Instant::now();
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        held.forget_over(now);
        let (mut in_flight, _) = held.in_flight(now);
        let max_in_flight = u64::from(self.member.options.max_in_flight.get());
        let max_batch = self.member.options.max_batch.map_or(u64::MAX, |max| u64::from(max.get()));
        let (mut deliveries, mut granted) = (Vec::new(), 0);
        while let Some((loan, _)) = self.waiting.front() {
            let count = u64::from(loan.frame.count);
            let has_credits = in_flight == 0 || in_flight + count <= max_in_flight;
            if !has_credits || (granted > 0 && granted + count > max_batch) {
                break;
            }
            let Some((loan, since)) = self.waiting.pop_front() else { break };
            (in_flight, granted) = (in_flight + count, granted + count);
            // The server's time runs since the message came.
            let until = (now + self.member.ack_timeout()).min(since + loan.patience);
            deliveries.push(Delivery {
                id: loan.id,
                topic: Arc::clone(&self.member.topic.name),
                frame: Arc::clone(&loan.frame),
                attempt: loan.attempt,
                published_at: loan.published_at,
                deadline: self.clock.now().after(until.saturating_duration_since(now)),
            });
            held.lend(Arc::new(loan), until);
        }
        deliveries
    }

    /// Reads a message; `None` if it is none of JetStream.
    fn read(&self, message: &jetstream::Message, seat: &Seat) -> Option<Read> {
        let reply = message.reply.clone()?;
        let info = message.info().ok()?;
        let token = u32::try_from(info.delivered).unwrap_or(u32::MAX);
        let stored_at = Millis(u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(0));
        let offset = info.stream_sequence;
        let mut loan = Loan {
            reply,
            id: self.held().id(offset, token),
            frame: Arc::new(Frame::new(ContentType::Json, 1, message.payload.clone())),
            attempt: token,
            origin: offset,
            published_at: stored_at,
            patience: seat.patience(token),
        };
        let headers = message.headers.as_ref();
        let understood = head::frame(headers, &message.payload)
            .and_then(|frame| head::again(headers).map(|again| (frame, again)));
        let (frame, again) = match understood {
            Ok(understood) => understood,
            Err(unreadable) => {
                return Some(Read::Dead(loan, Failure::Rejected(unreadable.to_string().into())));
            }
        };
        loan.frame = Arc::new(frame);
        if let Some((remnant, due)) = again {
            if remnant.group != self.group {
                return Some(Read::Settled(loan.reply, AckKind::Ack));
            }
            let early = due.since(self.clock.now()).min(self.member.settings.backoff.cap);
            if !early.is_zero() {
                return Some(Read::Settled(loan.reply, AckKind::Nak(Some(early))));
            }
            // The delivery before it was due was none.
            let tries = if due > stored_at { token.saturating_sub(1).max(1) } else { token };
            loan.attempt = remnant.attempts.saturating_add(tries);
            (loan.origin, loan.published_at) = (remnant.offset, remnant.published_at);
        }
        let tries_max = self.member.settings.max_retries.saturating_add(1);
        Some(if loan.attempt > tries_max { Read::Dead(loan, Failure::AckTimeout) } else { Read::Loan(loan) })
    }
}

/// What a message is for this group.
enum Read {
    /// Something to lend.
    Loan(Loan),
    /// Nothing, or nothing yet: this is the answer.
    Settled(Subject, AckKind),
    /// It was tried too often, or cannot be read.
    Dead(Loan, Failure),
}

impl Consumer for NatsConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        loop {
            match self.step().await {
                Ok(deliveries) => {
                    self.tell_whether_away();
                    if !deliveries.is_empty() {
                        return Ok(deliveries);
                    }
                }
                Err(Trouble::GroupGone) => {
                    self.seat = None;
                    return Err(ReceiveError::NotSubscribed);
                }
                Err(Trouble::Nats(error)) if error.is_lasting() => {
                    return Err(error.ends_receiving());
                }
                Err(Trouble::Nats(error)) => {
                    if self.failures == 0 {
                        tracing::warn!(%error, topic = &*self.member.topic.name, "cannot receive; trying again");
                    }
                    self.seat = None;
                    self.failures = self.failures.saturating_add(1);
                    self.away.send_replace(Some(error.to_string().into()));
                }
            }
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.sure().await?;
        let mut unknown = Strays::default();
        let mut acknowledged = Vec::new();
        {
            let (mut held, now) = (self.held(), Instant::now());
            for id in ids {
                if held.standing(*id, now) == Standing::Unknown {
                    unknown.add(*id);
                    continue;
                }
                acknowledged.extend(held.ack(*id));
            }
        }
        self.acknowledge(&acknowledged).await?;
        let count = acknowledged.iter().map(|loan| u64::from(loan.frame.count)).sum();
        unknown.into_unknown().map_or(Ok(count), Err)
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        self.sure().await?;
        let (mut unknown, mut lost, mut count) = (Strays::default(), None, 0);
        for nack in nacks {
            let refused = {
                let (mut held, now) = (self.held(), Instant::now());
                if held.standing(nack.id, now) == Standing::Unknown {
                    unknown.add(nack.id);
                    continue;
                }
                held.take(nack.id, now)
            };
            let Some(loan) = refused else { continue };
            match self.refuse(&loan, nack).await {
                Ok(()) => count += u64::from(loan.frame.count),
                Err(error) => lost = Some(error),
            }
        }
        match lost.or(unknown.into_unknown()) {
            Some(error) => Err(error),
            None => Ok(count),
        }
    }

    async fn extend(&self, ids: &[DeliveryId], _by: Duration) -> Result<(), SettleError> {
        self.sure().await?;
        let (mut unknown, mut over, mut extended) = (Strays::default(), Strays::default(), Vec::new());
        {
            let (mut held, now) = (self.held(), Instant::now());
            for id in ids {
                match held.standing(*id, now) {
                    Standing::Unknown => unknown.add(*id),
                    Standing::Over => over.add(*id),
                    Standing::Leased => extended.extend(held.extend(*id, now)),
                }
            }
        }
        for loan in extended {
            self.send(&loan.reply, AckKind::Progress).await?;
        }
        unknown.into_unknown().or(over.into_over()).map_or(Ok(()), Err)
    }

    async fn leave(mut self) {
        let left = match &mut self.seat {
            Some(seat) => seat.close().await,
            None => return,
        };
        let fetched = left.into_iter().filter_map(|message: Message| message.reply);
        let waiting = self.waiting.drain(..).map(|(loan, _)| loan.reply);
        let dying = self.dying.drain(..).map(|(loan, _)| loan.reply);
        let replies: Vec<_> = fetched.chain(waiting).chain(dying).collect();
        if self.sure().await.is_err() {
            return;
        }
        let leased = self.held().drain();
        for reply in replies.iter().chain(leased.iter().map(|loan| &loan.reply)) {
            self.tell(reply, AckKind::Nak(None)).await;
        }
        self.flush().await;
    }
}

/// Deliveries that a call could not apply to.
#[derive(Default)]
struct Strays {
    first: Option<DeliveryId>,
    count: usize,
}

impl Strays {
    fn add(&mut self, id: DeliveryId) {
        self.first.get_or_insert(id);
        self.count += 1;
    }

    fn into_unknown(self) -> Option<SettleError> {
        self.first.map(|id| SettleError::Unknown { id, more: self.count.saturating_sub(1) })
    }

    fn into_over(self) -> Option<SettleError> {
        self.first.map(|id| SettleError::LeaseOver { id, more: self.count.saturating_sub(1) })
    }
}
