//! The broker behind a mutex, beside its log: what all handles and the task that lets time pass share.
//!
//! The log answers on its own thread, or at once if it refuses. Answers are laid down first and then taken in by whoever
//! can have the lock; who has it looks again after letting it go. So no answer waits for the next call, the log's
//! thread never waits for the lock, and a call that is refused under the lock does not wait for itself.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_log::Durability as LogDurability;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::publishing::Publishing;
use crate::broker::{
    Broker, ConsumerId, Durability, GivenUp, Home, PublishError, Reserved, Snapshot, TopicId, Wake,
};
use crate::frame::{Frame, Millis};
use crate::journal::{Answer, Done, Draft, FRAME, Journal, Keeper, Unreadable, move_records};
use crate::trouble::{Trouble, TroubleLog};

/// Bytes by which a dead letter's record is longer than its frame's, at most: a frame that is taken can become one.
const DEAD_GROWTH_MAX: usize = 1_200;
/// Dead letters that are published at once: frames that are not in memory are read before.
const DEAD_AT_ONCE: usize = 16;
/// How often it is looked for troubles to be logged.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// The driver sleeps too long.
    rearm: Notify,
    journal: Option<Journal>,
    /// The log takes nothing more.
    failed: CancellationToken,
}

struct State {
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

/// The state, locked. When it is let go, the answers are taken in that the log gave meanwhile.
struct Held<'a> {
    state: MutexGuard<'a, State>,
    /// Dropped after the lock.
    _then: TakesAnswers<'a>,
}

struct TakesAnswers<'a>(&'a Arc<Shared>);

impl Drop for TakesAnswers<'_> {
    fn drop(&mut self) {
        self.0.take_answers();
    }
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl State {
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
    pub(super) fn in_memory(broker: Broker, clock: Clock) -> Arc<Self> {
        Arc::new(Self::new(broker, clock, None, None))
    }

    pub(super) fn beside(journal: Journal, keeper: Keeper, broker: Broker, clock: Clock) -> Arc<Self> {
        Arc::new(Self::new(broker, clock, Some(journal), Some(keeper)))
    }

    fn new(broker: Broker, clock: Clock, journal: Option<Journal>, keeper: Option<Keeper>) -> Self {
        let state = State { broker, armed: None, signals: HashMap::default(), keeper };
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

    fn lock(self: &Arc<Self>) -> Held<'_> {
        Held { state: lock(&self.state), _then: TakesAnswers(self) }
    }

    /// Asks the broker something, then wakes whom that concerns.
    pub(super) fn with<T>(self: &Arc<Self>, ask: impl FnOnce(&mut Broker, Millis) -> T) -> T {
        let mut state = self.lock();
        let answer = ask(&mut state.broker, self.clock.now());
        self.finish(state);
        answer
    }

    /// What follows from a change: facts go to the log, who waits is woken, and the driver, if it sleeps too long.
    fn finish(self: &Arc<Self>, mut state: Held<'_>) {
        self.settle(&mut state);
    }

    fn settle(self: &Arc<Self>, state: &mut State) {
        let State { broker, keeper, .. } = &mut *state;
        if let (Some(journal), Some(keeper)) = (&self.journal, keeper) {
            keeper.keep_facts(journal, broker, self.clock.now(), None, &self.append());
            if let Some(before) = keeper.take_secured() {
                let shared = Arc::clone(self);
                let done = Box::new(move |outcome| shared.answered(Done::Truncated(outcome)));
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
                let State { broker, keeper, .. } = &mut *state;
                if let Some(keeper) = keeper {
                    keeper.take_in(broker, now, done, &mut replies);
                }
            }
            self.settle(&mut state);
            drop(state);
            replies.into_iter().for_each(crate::journal::Reply::send);
        }
    }

    /// Hands a record to the log, full or not: these are few, and to refuse them helps nobody.
    fn append(self: &Arc<Self>) -> impl Fn(u8, Bytes, LogDurability, Answer) {
        move |kind, payload, durability, done| {
            let shared = Arc::clone(self);
            if let Some(journal) = &self.journal {
                let answered = Box::new(move |outcome| shared.answered(done(outcome)));
                journal.log.append_exceeding_with(kind, payload, durability, answered);
            }
        }
    }

    fn answered(self: &Arc<Self>, done: Done) {
        if let Some(journal) = &self.journal {
            journal.note(done);
            self.take_answers();
        }
    }

    /// Hands over one frame. A refusal at the bound is counted, or not: then the publisher waits for room. The log is
    /// not told yet: [`Shared::commit`] is to follow.
    pub(super) fn publish(self: &Arc<Self>, topic: &str, frame: Frame, waits: bool) -> Publishing {
        let promised = self.journal.as_ref().map(|journal| journal.config.durability_of(topic));
        let durability = match promised {
            Some(Durability::Synced) => LogDurability::Synced,
            Some(Durability::Written) => LogDurability::Written,
            Some(Durability::Memory) | None => {
                let frame = Arc::new(frame);
                return Publishing::done(self.with(|broker, now| {
                    if waits { broker.offer(now, topic, &frame) } else { broker.publish(now, topic, &frame) }
                }));
            }
        };
        // What takes long is done before the lock.
        let growth = if frame.dead.is_some() { 0 } else { DEAD_GROWTH_MAX };
        let len_max = self.journal.as_ref().map_or(0, |journal| journal.log.record_len_max());
        let draft = Draft::new(topic, &frame).filter(|draft| draft.len().saturating_add(growth) <= len_max);
        let frame = Arc::new(frame);
        let mut state = self.lock();
        let now = self.clock.now();
        let reserved = state.broker.reserve(now, topic, &frame);
        let publishing = match (reserved, draft) {
            (Ok(Reserved::New { topic, offset, at, .. }), Some(draft)) => {
                self.submit(&mut state, now, topic, draft.finish(offset, at), offset, durability)
            }
            (Ok(Reserved::New { topic, offset, .. }), None) => {
                state.broker.give_up(topic, offset);
                let (messages, bytes) = (frame.count, frame.cost_bytes());
                Publishing::done(Err(PublishError::TooLarge { messages, bytes }))
            }
            (Ok(Reserved::Repeat(receipt)), _) => Publishing::done(Ok(receipt)),
            (Ok(Reserved::UnderWay { topic, offset }), _) => {
                let (publisher, outcome) = oneshot::channel();
                if let Some(keeper) = &mut state.keeper {
                    keeper.wait_for(topic, offset, publisher);
                }
                Publishing::under_way(outcome)
            }
            (Err(refused), _) => {
                if !waits && matches!(refused, PublishError::Full { .. }) {
                    state.broker.count_refused(topic, &frame);
                }
                Publishing::done(Err(refused))
            }
        };
        self.finish(state);
        publishing
    }

    fn submit(
        self: &Arc<Self>,
        state: &mut State,
        now: Millis,
        topic: TopicId,
        (record, payload): (Bytes, Bytes),
        offset: u64,
        durability: LogDurability,
    ) -> Publishing {
        let (publisher, publishing) = oneshot::channel();
        let shared = Arc::clone(self);
        let answered = move |outcome| {
            shared.answered(Done::Frame { topic, offset, payload, publisher, outcome });
        };
        if let Some(journal) = &self.journal {
            journal.log.enqueue_with(FRAME, record, durability, Box::new(answered));
        }
        if durability == LogDurability::Written
            && let Some(keeper) = &mut state.keeper
        {
            keeper.written(now);
        }
        Publishing::under_way(publishing)
    }

    /// Tells the log of what was published. If that is a lone frame, it may be stored within this call ([`Log::commit`]).
    pub(super) fn commit(&self, here: bool) {
        if let Some(journal) = &self.journal {
            journal.log.commit(here);
        }
    }

    /// Waits until the log has a consumer's group; without a log, or if it has it already, there is nothing to wait
    /// for.
    ///
    /// # Errors
    ///
    /// In words, why it does not have it. Then the consumer is no member any more.
    pub(super) async fn group_is_kept(self: &Arc<Self>, consumer: ConsumerId) -> Result<(), Arc<str>> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let outcome = {
            let mut state = self.lock();
            if !state.broker.group_is_unsafe(consumer) {
                return Ok(());
            }
            state.broker.note_group(consumer);
            let (joiner, outcome) = oneshot::channel();
            let State { broker, keeper, .. } = &mut *state;
            if let Some(keeper) = keeper {
                let joined = Some((consumer, joiner));
                keeper.keep_facts(journal, broker, self.clock.now(), joined, &self.append());
            }
            self.finish(state);
            outcome
        };
        outcome.await.unwrap_or_else(|_| Err("queue was closed".into()))
    }

    /// Reads frames back, away from the threads that must not wait. It goes on to its end, whoever awaits it.
    pub(super) fn read(self: &Arc<Self>, homes: Vec<Home>) -> JoinHandle<Vec<Result<Frame, Unreadable>>> {
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let read = |home: &Home| match &shared.journal {
                Some(journal) => journal.read(home),
                None => Err(Unreadable::Lost("there is no log".into())),
            };
            let frames = homes.iter().map(read).collect();
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
        Arc::clone(self.lock().signals.entry(wake).or_default())
    }

    /// Forgets the signal of `wake` once nobody but the caller holds it.
    pub(super) fn forget(self: &Arc<Self>, wake: Wake, signal: &Arc<Notify>) {
        let mut state = self.lock();
        if Arc::strong_count(signal) <= 2 {
            state.signals.remove(&wake);
        }
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
    pub(super) async fn failed(&self) -> Arc<str> {
        self.failed.cancelled().await;
        let state = lock(&self.state);
        state.keeper.as_ref().and_then(Keeper::poisoned).unwrap_or_default()
    }

    /// What is not well.
    pub(super) fn troubles(self: &Arc<Self>) -> Vec<Trouble> {
        let mut state = self.lock();
        let now = self.clock.now();
        let mut troubles = state.broker.troubles(now);
        troubles.extend(state.keeper.iter().flat_map(|keeper| keeper.troubles(now)));
        self.finish(state);
        troubles
    }

    /// Lets time pass until `stop`, logs what is not well, and looks after the log. What takes long is done beside it, and ended before it ends.
    pub(super) async fn drive(self: Arc<Self>, stop: CancellationToken) {
        let mut chores = JoinSet::new();
        let mut log = TroubleLog::default();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.tend(&mut chores);
            let wait = {
                let mut state = self.lock();
                let now = self.clock.now();
                state.broker.advance(now);
                self.settle(&mut state);
                state.armed = state.next_deadline();
                state.armed.map(|next| next.since(now))
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.rearm.notified() => {}
                _ = looks.tick() => log.look(self.clock.now(), &self.troubles()),
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                Some(_) = chores.join_next(), if !chores.is_empty() => {}
            }
        }
        while chores.join_next().await.is_some() {}
    }

    /// Syncs what is to be synced, makes a checkpoint if one is due, lets go of segments, moves what keeps them.
    fn tend(self: &Arc<Self>, chores: &mut JoinSet<()>) {
        let Some(journal) = &self.journal else { return };
        let mut state = self.lock();
        let now = self.clock.now();
        let State { broker, keeper: Some(keeper), .. } = &mut *state else { return };
        let is_time = keeper.take_sync(now);
        let draft = keeper.checkpoint(journal, broker, now, &self.append());
        let given_up = broker.take_given_up();
        if let Some(before) = keeper.truncation(journal) {
            let shared = Arc::clone(self);
            let done = Box::new(move |outcome| shared.answered(Done::Secured { before, outcome }));
            journal.log.sync_with(done);
        }
        let moves = if is_time { keeper.look_for_moves(journal, broker) } else { None };
        if is_time {
            let shared = Arc::clone(self);
            journal.log.sync_with(Box::new(move |outcome| shared.answered(Done::Synced(outcome))));
        }
        self.finish(state);
        if !given_up.is_empty() {
            chores.spawn(Arc::clone(self).publish_dead(given_up));
        }
        if let Some(draft) = draft {
            let shared = Arc::clone(self);
            chores.spawn_blocking(move || draft.finish(&shared.append()));
        }
        if let Some((segment, snapshot)) = moves {
            let shared = Arc::clone(self);
            chores.spawn_blocking(move || shared.move_out_of(segment, &snapshot));
        }
    }

    /// Publishes dead letters, and tells the broker what became of them.
    async fn publish_dead(self: Arc<Self>, given_up: Vec<GivenUp>) {
        for some in given_up.chunks(DEAD_AT_ONCE) {
            let homes = some.iter().filter_map(|one| one.home().cloned()).collect();
            let mut frames = self.read(homes).await.unwrap_or_default().into_iter();
            let mut publishing = Vec::with_capacity(some.len());
            for one in some {
                let read = one.home().map(|_| frames.next().unwrap_or(Err(Unreadable::ForNow)));
                let letter = match read.transpose() {
                    Ok(frame) => one.letter(frame),
                    Err(Unreadable::Lost(_)) => one.letter_without_payload(),
                    Err(Unreadable::ForNow) => {
                        let outcome = Err(PublishError::Storage {
                            reason: "its frame cannot be read".into(),
                            passes: true,
                        });
                        publishing.push((one, Publishing::done(outcome)));
                        continue;
                    }
                };
                publishing.push((one, self.publish(&one.dead_topic(), letter, true)));
            }
            self.commit(false);
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

    /// Writes what is held in a segment again, further on. Each record is answered for.
    fn move_out_of(self: &Arc<Self>, segment: u64, snapshot: &Snapshot) {
        let found = snapshot.homes_in(segment);
        let to_move = {
            let mut state = self.lock();
            let now = self.clock.now();
            state.keeper.as_mut().map(|keeper| keeper.begin_moving(now, found))
        };
        if let Some(journal) = &self.journal {
            move_records(journal, to_move.unwrap_or_default(), &self.append());
            self.take_answers();
        }
    }

    /// A last checkpoint, and the end of the log. Blocks until all is on disk.
    pub(super) fn close(self: &Arc<Self>) {
        let Some(journal) = &self.journal else { return };
        let mut state = self.lock();
        if let State { broker, keeper: Some(keeper), .. } = &mut *state {
            keeper.last_checkpoint(journal, broker, &self.append());
        }
        self.finish(state);
        if let Err(error) = journal.log.close() {
            tracing::error!(error = &*crate::journal::in_words(&error), "queue's log did not close well");
        }
        self.take_answers();
    }
}

/// A panic under the lock is a bug that ends the process elsewhere; the state is not made worse by going on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
