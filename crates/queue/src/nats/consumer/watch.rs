//! Looking after a member's group, also while nobody receives: whether it is still the one that was joined, and, now
//! and then, removing from its stream what all groups have acknowledged.
//!
//! Whatever hints at the group's end (an advisory, a pull that nobody answers, a new connection, time that went by)
//! leads to a look, and the look alone decides. The time of its creation tells a group from a later one of its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::consumer::Info;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::error::NatsError;
use super::super::session::{Found, Session};
use super::super::shelf::Shelf;
use super::super::trim::Trim;
use super::seat::Member;

/// Between two looks without a hint: where advisories are not permitted, a removed group is noticed by then.
const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// How long a pause is after a look that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// When a group was made, which is what tells it from another of its name. Nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Born(i128);

impl Born {
    /// A server outside a cluster says another time after a restart: not that of the order but that of the file.
    const SPREAD: i128 = Duration::from_millis(100).as_nanos().cast_signed();

    pub(super) fn of(info: &Info) -> Self {
        Self(info.created.unix_timestamp_nanos())
    }

    #[cfg(test)]
    pub(super) fn at(nanos: i128) -> Self {
        Self(nanos)
    }

    pub(super) fn is_same(self, other: Self) -> bool {
        (self.0 - other.0).abs() < Self::SPREAD
    }
}

/// How the group was at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// There, on the so-manieth connection.
    There(u64),
    Gone(Gone),
}

impl Sight {
    /// Whether it was there on the connection of now.
    fn is_there(self, session: &Session) -> bool {
        let Self::There(connection) = self else { return false };
        session.is_connected() && connection >= session.connections()
    }
}

/// How a group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// Somebody removed it.
    Removed,
    /// It was not there any more when the connection had been made again, so that the server may have lost what it had;
    /// or it was idle for longer than it may be.
    Lost,
}

/// Looks after a group until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    sight: watch::Receiver<Sight>,
    hint: Arc<Notify>,
    acknowledged: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl Watch {
    /// Looks after the group, which was made then and was there on the so-manieth connection. `deletions` are the advisories of its end.
    pub(super) fn over(
        session: &Session,
        connection: u64,
        shelf: &Shelf,
        member: &Member,
        born: Born,
        deletions: Subscriber,
    ) -> Self {
        let consumer = &member.consumer;
        let (sight, seen) = watch::channel(Sight::There(connection));
        let (hint, acknowledged) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let lookout = Lookout {
            session: session.clone(),
            what: format!("consumer {consumer} of stream {}", shelf.stream),
            info: format!("CONSUMER.INFO.{}.{consumer}", shelf.stream),
            stream: shelf.stream.clone(),
            born,
            may_expire: member.options.group_ttl.is_some(),
            sight,
            hint: Arc::clone(&hint),
            deletions,
            trim: shelf.is_trimmed.then(|| Trim::new(Arc::clone(&acknowledged))),
            is_troubled: false,
        };
        let mut task = JoinSet::new();
        task.spawn(lookout.run());
        Self { sight: seen, hint, acknowledged, _task: task }
    }

    /// Notes that something was acknowledged.
    pub(super) fn acknowledged(&self) {
        self.acknowledged.store(true, Ordering::Relaxed);
    }

    /// There is reason to look.
    pub(super) fn hint(&self) {
        self.hint.notify_one();
    }

    /// How the group ended, if it has.
    pub(super) fn gone(&self) -> Option<Gone> {
        match *self.sight.borrow() {
            Sight::Gone(gone) => Some(gone),
            Sight::There(_) => None,
        }
    }

    /// Waits until the group has ended.
    pub(super) fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut sight = self.sight.clone();
        async move {
            if sight.wait_for(|sight| matches!(sight, Sight::Gone(_))).await.is_err() {
                // Not looked after any more: the connection was given up.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until it is known whether the group is still there on the connection of now.
    pub(super) async fn is_there(&self, session: &Session) -> bool {
        let mut sight = self.sight.clone();
        let known = sight.wait_for(|sight| matches!(sight, Sight::Gone(_)) || sight.is_there(session)).await;
        known.is_ok_and(|sight| matches!(*sight, Sight::There(_)))
    }

    /// Whether it is known to be.
    pub(super) fn is_there_now(&self, session: &Session) -> bool {
        self.sight.borrow().is_there(session)
    }
}

struct Lookout {
    session: Session,
    what: String,
    info: String,
    stream: String,
    born: Born,
    /// The server removes it when it is idle, which nobody has to be told.
    may_expire: bool,
    sight: watch::Sender<Sight>,
    hint: Arc<Notify>,
    deletions: Subscriber,
    trim: Option<Trim>,
    is_troubled: bool,
}

impl Lookout {
    async fn run(mut self) {
        let mut due = Instant::now() + LOOKS_EVERY;
        while !self.session.is_over() {
            self.hinted(due).await;
            match self.look().await {
                Ok(sight @ Sight::There(_)) => {
                    self.is_troubled = false;
                    due = Instant::now() + LOOKS_EVERY;
                    // A purge that waits for a connection could hit what came with it.
                    if let Some(trim) = self.trim.as_mut().filter(|_| sight.is_there(&self.session)) {
                        trim.run(&self.session, &self.stream).await;
                    }
                }
                Ok(Sight::Gone(_)) => return,
                Err(error) => {
                    // A connection that was lost is told of by who receives.
                    if !self.session.is_lost() && !std::mem::replace(&mut self.is_troubled, true) {
                        tracing::warn!(%error, "the group cannot be looked after; trying again");
                    }
                    tokio::time::sleep(PAUSE).await;
                    due = Instant::now();
                }
            }
        }
    }

    /// Waits for a reason to look.
    async fn hinted(&mut self, due: Instant) {
        let looked_on = match *self.sight.borrow() {
            Sight::There(connection) => connection,
            Sight::Gone(_) => return,
        };
        tokio::select! {
            () = self.hint.notified() => {}
            Some(_) = self.deletions.next() => {}
            () = self.session.made_again(looked_on) => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }

    async fn look(&self) -> Result<Sight, NatsError> {
        let connection = self.session.connections();
        let found = self.session.find::<Info>(&self.what, &self.info, &Value::Null).await?;
        let is_it = matches!(&found, Found::It(info) if self.born.is_same(Born::of(info)));
        let here = Sight::There(connection);
        let sight = match *self.sight.borrow() {
            _ if is_it => here,
            before if before == here && !self.may_expire => Sight::Gone(Gone::Removed),
            _ => Sight::Gone(Gone::Lost),
        };
        self.sight.send_replace(sight);
        Ok(sight)
    }
}
