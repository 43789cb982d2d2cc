//! The broker behind a mutex, beside its log: what all handles and the task that lets time pass share.
//!
//! The log answers on its own thread, or at once if it refuses. Answers are laid down first and then taken in by whoever
//! can have the lock; who has it looks again after letting it go. So no answer waits for the next call, the log's
//! thread never waits for the lock, and a call that is refused under the lock does not wait for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_log::{Appended, CommitOn, Durability, LogError, Place, Shorter};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::clock::QueueClock;
use super::publishing::Publishing;
use crate::broker::{
    Broker, ConsumerId, ConsumerOptions, FrameDurability, GivenUp, GroupId, PublishError, Reserved,
    SubscribeError, TopicId, Wake,
};
use crate::frame::{Frame, Millis};
use crate::journal::{
    Answer, FRAME, Handed, Journal, JournalReply, Keeper, LogAnswer, Unreadable, encode_head,
};
use crate::trouble::{Trouble, TroubleLog};

/// Bytes by which a dead letter's record is longer than its frame's, at most: a frame that is taken can become one.
const DEAD_GROWTH_MAX: usize = 1_200;
/// Dead letters that are published at once: frames that are not in memory are read before.
const DEAD_AT_ONCE: usize = 16;
/// How often it is looked for troubles to be logged, and whether the directory is in its place.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a publisher does at its topic's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtBound {
    /// It is refused, and that is counted.
    Refuse,
    /// It tries again once there is room.
    Wait,
}

pub(super) struct Shared {
    state: Mutex<SharedState>,
    clock: QueueClock,
    /// The driver sleeps too long.
    rearm: Notify,
    journal: Option<Journal>,
    /// The log takes nothing more.
    failed: CancellationToken,
}

/// A frame on its way to the log.
struct LoggedFrame<'a> {
    frame: &'a Frame,
    /// What stands before the payload.
    head: Vec<u8>,
    shorter: Option<Shorter>,
    durability: FrameDurability,
}

/// A consumer that has joined a group.
pub(super) struct Joined {
    pub(super) consumer: ConsumerId,
    pub(super) group: GroupId,
    /// How long its leases are.
    pub(super) lease: Duration,
    /// Whether the log has the group, if that is not known yet.
    pub(super) kept: Option<oneshot::Receiver<Result<(), Arc<str>>>>,
}

struct SharedState {
    broker: Broker,
    /// Until when the driver sleeps; `None` is for ever.
    armed: Option<Millis>,
    /// Who is waited for. At most one entry a group and topic.
    signals: HashMap<Wake, Arc<Notify>, foldhash::fast::RandomState>,
    /// What is known of the log, if there is one.
    keeper: Option<Keeper>,
}

impl std::fmt::Debug for Shared {
    /// Without what is held: that is not for logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("journal", &self.journal).finish_non_exhaustive()
    }
}

impl SharedState {
    fn notify(&mut self) {
        for wake in self.broker.take_wakes() {
            if let Some(signal) = self.signals.get(&wake) {
                signal.notify_waiters();
            }
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        let log = self.keeper.as_ref().and_then(Keeper::next_deadline);
        [self.broker.next_deadline(), log].into_iter().flatten().min()
    }
}

impl Shared {
    pub(super) fn in_memory(broker: Broker, clock: QueueClock) -> Arc<Self> {
        Arc::new(Self::new(broker, clock, None, None))
    }

    pub(super) fn beside(journal: Journal, keeper: Keeper, broker: Broker, clock: QueueClock) -> Arc<Self> {
        Arc::new(Self::new(broker, clock, Some(journal), Some(keeper)))
    }

    fn new(broker: Broker, clock: QueueClock, journal: Option<Journal>, keeper: Option<Keeper>) -> Self {
        let state = SharedState { broker, armed: None, signals: HashMap::default(), keeper };
        Self {
            state: Mutex::new(state),
            clock,
            rearm: Notify::new(),
            journal,
            failed: CancellationToken::new(),
        }
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Asks the broker something, then wakes whom that concerns.
    pub(super) fn with<T>(self: &Arc<Self>, ask: impl FnOnce(&mut Broker, Millis) -> T) -> T {
        self.change(|state, now| ask(&mut state.broker, now))
    }

    /// Changes the state, sees to what follows, and takes in what the log has answered meanwhile.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut SharedState, Millis) -> T) -> T {
        let mut state = lock(&self.state);
        let answer = change(&mut state, self.clock.now());
        self.settle(&mut state);
        drop(state);
        self.take_answers();
        answer
    }

    /// What follows from a change: facts go to the log, who waits is woken, and the driver, if it sleeps too long.
    fn settle(self: &Arc<Self>, state: &mut SharedState) {
        let SharedState { broker, keeper, .. } = &mut *state;
        if let (Some(journal), Some(keeper)) = (&self.journal, keeper) {
            keeper.keep_facts(journal, broker, self.clock.now(), &self.append());
            if let Some(before) = keeper.take_truncation() {
                let shared = Arc::clone(self);
                let done = Box::new(move |outcome| shared.answered(LogAnswer::Truncated(outcome)));
                journal.log.truncate_before_with(before, done);
            }
            if keeper.poisoned().is_some() {
                self.failed.cancel();
            }
        }
        state.notify();
        if self.journal.is_some() && state.broker.has_given_up() {
            self.rearm.notify_one();
        }
        let next = state.next_deadline();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.rearm.notify_one();
        }
    }

    /// Takes in what the log has answered, unless somebody has the lock who will.
    fn take_answers(self: &Arc<Self>) {
        let Some(journal) = &self.journal else { return };
        while journal.has_done() {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let mut replies = Vec::new();
            let now = self.clock.now();
            for done in journal.take_done() {
                let SharedState { broker, keeper, .. } = &mut *state;
                if let Some(keeper) = keeper {
                    keeper.take_in(broker, now, done, &mut replies);
                }
            }
            self.settle(&mut state);
            drop(state);
            replies.into_iter().for_each(JournalReply::send);
        }
    }

    /// Hands a record to the log, full or not: these are few, and to refuse them helps nobody.
    fn append(self: &Arc<Self>) -> impl Fn(u8, Bytes, Durability, Answer) {
        move |kind, payload, durability, done| {
            let shared = Arc::clone(self);
            if let Some(journal) = &self.journal {
                let answered = Box::new(move |outcome| shared.answered(done(outcome)));
                journal.log.append_exceeding_with(kind, payload, durability, answered);
            }
        }
    }

    /// Looks whether the log's directory is in its place.
    fn check(self: &Arc<Self>) {
        if let Some(journal) = &self.journal {
            let shared = Arc::clone(self);
            journal.check(move |done| shared.answered(done));
        }
    }

    fn answered(self: &Arc<Self>, done: LogAnswer) {
        if let Some(journal) = &self.journal {
            journal.note(done);
            self.take_answers();
        }
    }

    /// Hands over one frame. The log is not told yet: [`Shared::commit`] is to follow.
    pub(super) fn publish(self: &Arc<Self>, topic: &str, frame: Frame, at_bound: AtBound) -> Publishing {
        let frame = Arc::new(frame);
        self.change(|state, now| match state.broker.reserve(now, topic, &frame) {
            Ok(Reserved::Taken(receipt)) => Publishing::done(Ok(receipt)),
            Ok(Reserved::New { topic: id, offset, at, durability }) => {
                let (publisher, outcome) = oneshot::channel();
                let shared = Arc::clone(self);
                let head = encode_head(topic, &frame, offset, at);
                let handed = Handed::new(&frame, offset, at, head.len());
                let keeper = state.keeper.as_mut();
                let shorter = keeper.and_then(|keeper| keeper.definers.shorter(id, &frame, offset, at));
                let record = LoggedFrame { frame: &frame, head, shorter, durability };
                let answered = Box::new(move |outcome| {
                    shared.answered(LogAnswer::Frame { topic: id, offset, handed, publisher, outcome });
                });
                self.store(state, now, record, answered);
                Publishing::under_way(outcome)
            }
            Ok(Reserved::UnderWay { topic, offset }) => {
                let (publisher, outcome) = oneshot::channel();
                if let Some(keeper) = &mut state.keeper {
                    keeper.wait_for(topic, offset, publisher);
                }
                Publishing::under_way(outcome)
            }
            Err(refused) => {
                if at_bound == AtBound::Refuse && matches!(refused, PublishError::Full { .. }) {
                    state.broker.count_refused(topic, &frame);
                }
                Publishing::done(Err(refused))
            }
        })
    }

    fn store(
        &self,
        state: &mut SharedState,
        now: Millis,
        record: LoggedFrame<'_>,
        answered: Box<dyn FnOnce(Result<Appended, LogError>) + Send>,
    ) {
        let (Some(journal), Some(keeper)) = (&self.journal, &mut state.keeper) else { return };
        let LoggedFrame { frame, head, shorter, durability } = record;
        let growth = if frame.dead.is_some() { 0 } else { DEAD_GROWTH_MAX };
        let (len, max) = (head.len() + frame.payload.len(), journal.log.record_len_max());
        if len.saturating_add(growth) > max {
            return answered(Err(LogError::TooLarge { len, max }));
        }
        let mut durable = Durability::Synced;
        if durability == FrameDurability::Written {
            durable = Durability::Written;
            keeper.written(now);
        }
        let payload = [head.into(), frame.payload.clone()];
        journal.log.enqueue_with(FRAME, payload, shorter, durable, answered);
    }

    /// Tells the log of what was published. If that is a lone frame, it may be stored within this call ([`Log::commit`]).
    pub(super) fn commit(&self, on: CommitOn) {
        if let Some(journal) = &self.journal {
            journal.log.commit(on);
        }
    }

    /// Joins a group. Where this makes the group, it also returns what to await: the log has it, or in words why not. If not,
    /// the consumer is no member any more.
    pub(super) fn join(
        self: &Arc<Self>,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<Joined, SubscribeError> {
        self.change(|SharedState { broker, keeper, .. }, now| {
            let consumer = broker.subscribe(now, topic, group, options)?;
            let group = broker.group_of(consumer).ok_or(SubscribeError::Closed)?;
            let lease = options.ack_timeout.unwrap_or(broker.config().ack_timeout);
            let lease = lease.min(broker.config().max_lease);
            let kept = keeper.as_mut().filter(|_| broker.is_unsafe(consumer)).map(|keeper| {
                let (joiner, kept) = oneshot::channel();
                keeper.wait_for_group(group, joiner);
                kept
            });
            Ok(Joined { consumer, group, lease, kept })
        })
    }

    /// Reads frames back, away from the threads that must not wait. It goes on to its end, whoever awaits it.
    pub(super) fn read(self: &Arc<Self>, places: Vec<Place>) -> JoinHandle<Vec<Result<Frame, Unreadable>>> {
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let read = |place: Place| match &shared.journal {
                Some(journal) => journal.read(place).map_err(|error| match error {
                    // It was moved after it was lent, and its old segment went: the next delivery has the new place.
                    Unreadable::Lost(_) if !shared.with(|broker, _| broker.holds_at(place)) => {
                        Unreadable::ForNow
                    }
                    error => error,
                }),
                None => Err(Unreadable::Lost("there is no log".into())),
            };
            let frames = places.into_iter().map(read).collect();
            shared.take_answers();
            frames
        })
    }

    /// What the clock shows.
    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// What is notified about `wake`.
    pub(super) fn signal(self: &Arc<Self>, wake: Wake) -> Arc<Notify> {
        self.change(|state, _| Arc::clone(state.signals.entry(wake).or_default()))
    }

    /// Forgets the signal of `wake` once nobody but the caller holds it.
    pub(super) fn forget(self: &Arc<Self>, wake: Wake, signal: &Arc<Notify>) {
        self.change(|state, _| {
            if Arc::strong_count(signal) <= 2 {
                state.signals.remove(&wake);
            }
        });
    }

    /// Waits until the broker answers; asks again whenever `signal` says so.
    pub(super) async fn wait<T>(
        self: &Arc<Self>,
        signal: &Notify,
        mut ask: impl FnMut(&mut Broker, Millis) -> Option<T>,
    ) -> T {
        loop {
            let mut notified = std::pin::pin!(signal.notified());
            // From here on a notification is not missed, also if it comes before the await.
            notified.as_mut().enable();
            if let Some(answer) = self.with(&mut ask) {
                return answer;
            }
            notified.await;
        }
    }

    /// Waits until the log takes nothing more; why.
    pub(super) async fn failed(self: &Arc<Self>) -> Arc<str> {
        self.failed.cancelled().await;
        self.change(|state, _| state.keeper.as_ref().and_then(Keeper::poisoned).unwrap_or_default())
    }

    /// What is not well.
    pub(super) fn troubles(self: &Arc<Self>) -> Vec<Trouble> {
        self.change(|state, now| {
            let mut troubles = state.broker.troubles(now);
            troubles.extend(state.keeper.iter().flat_map(|keeper| keeper.troubles(now)));
            troubles
        })
    }

    /// Lets time pass until `stop`, logs what is not well, and looks after the log. What takes long is done beside it, and ended before it ends.
    pub(super) async fn drive(self: Arc<Self>, stop: CancellationToken) {
        let mut chores = JoinSet::new();
        let mut log = TroubleLog::default();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.tend(&mut chores);
            let wait = self.change(|state, now| {
                state.broker.advance(now);
                self.settle(state);
                state.armed = state.next_deadline();
                state.armed.map(|next| next.since(now))
            });
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.rearm.notified() => {}
                _ = looks.tick() => {
                    self.check();
                    log.look(self.clock.now(), &self.troubles());
                }
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                Some(_) = chores.join_next(), if !chores.is_empty() => {}
            }
        }
        while chores.join_next().await.is_some() {}
    }

    /// Syncs what is to be synced, makes a checkpoint if one is due, lets go of segments, moves what keeps them.
    fn tend(self: &Arc<Self>, chores: &mut JoinSet<()>) {
        let Some(journal) = &self.journal else { return };
        let (given_up, moves) = self.change(|SharedState { broker, keeper, .. }, now| {
            let mut moves = Vec::new();
            if let Some(keeper) = keeper {
                keeper.checkpoint(broker, now, &self.append());
                if keeper.take_sync(now) {
                    let before = keeper.unneeded(journal, broker);
                    let shared = Arc::clone(self);
                    let done =
                        Box::new(move |outcome| shared.answered(LogAnswer::Synced { before, outcome }));
                    journal.log.sync_with(done);
                    moves = keeper.take_moves(journal, broker);
                }
            }
            (broker.take_given_up(), moves)
        });
        if !given_up.is_empty() {
            chores.spawn(Arc::clone(self).publish_dead(given_up));
        }
        if !moves.is_empty() {
            let shared = Arc::clone(self);
            chores.spawn_blocking(move || shared.move_records(moves));
        }
    }

    /// Publishes dead letters, and tells the broker what became of them.
    async fn publish_dead(self: Arc<Self>, given_up: Vec<GivenUp>) {
        for some in given_up.chunks(DEAD_AT_ONCE) {
            let places = some.iter().filter_map(GivenUp::place).collect();
            let mut frames = self.read(places).await.unwrap_or_default().into_iter();
            let mut publishing = Vec::with_capacity(some.len());
            for one in some {
                let read = one.place().map(|_| frames.next().unwrap_or(Err(Unreadable::ForNow)));
                let letter = match read.transpose() {
                    Ok(frame) => one.letter(frame),
                    Err(Unreadable::Lost(_)) => one.letter(None),
                    Err(Unreadable::ForNow) => {
                        let outcome = Err(PublishError::Storage {
                            reason: "its frame cannot be read".into(),
                            passes: true,
                        });
                        publishing.push((one, Publishing::done(outcome)));
                        continue;
                    }
                };
                publishing.push((one, self.publish(&one.dead_topic(), letter, AtBound::Wait)));
            }
            self.commit(CommitOn::Writer);
            for (one, publishing) in publishing {
                let outcome = publishing.await.map(drop);
                // A disk that takes nothing is in the health; the frame comes round each second until it does.
                if let Err(error) = &outcome
                    && !error.is_retryable()
                {
                    tracing::warn!(topic = one.dead_topic(), %error, "a dead letter is not stored");
                }
                self.with(|broker, now| broker.dead_letter_published(now, one, &outcome));
            }
        }
    }

    /// Writes frames' records again, further on, so that their segment can go.
    fn move_records(self: &Arc<Self>, moves: Vec<(TopicId, u64, Place)>) {
        let Some(journal) = &self.journal else { return };
        for moved in moves {
            let record = journal.read_whole(moved.2);
            self.change(|SharedState { broker, keeper, .. }, now| {
                if let Some(keeper) = keeper {
                    keeper.move_record(broker, now, moved, record, &self.append());
                }
            });
        }
    }

    /// A checkpoint if one is due, and the end of the log. Blocks until all is on disk.
    pub(super) fn close(self: &Arc<Self>) {
        let Some(journal) = &self.journal else { return };
        self.change(|SharedState { broker, keeper, .. }, _| {
            if let Some(keeper) = keeper {
                keeper.checkpoint(broker, Millis(u64::MAX), &self.append());
            }
        });
        if let Err(error) = journal.close() {
            tracing::error!(error = &*crate::journal::in_words(&error), "queue's log did not close well");
        }
        self.take_answers();
    }
}

/// A panic under the lock is a bug that ends the process elsewhere; the state is not made worse by going on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
