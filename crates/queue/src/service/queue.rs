//! A broker for one process: the state machine behind a mutex, a task that lets time pass, and
//! notifications for those who wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::in_process::{InProcessConsumer, InProcessProducer};
use super::publishing::Publishing;
use crate::broker::{
    AdminError, Broker, ConsumerOptions, DeadLetter, DeadSelection, PublishError, Receipt, Replayed,
    SubscribeError, TopicId, Wake,
};
use crate::config::{Drain, QueueConfig};
use crate::frame::{Frame, Millis};
use crate::stats::{Health, QueueStats, TopicStats};

/// What a shutdown left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Messages that consumers still had at the deadline, over all groups.
    pub unacknowledged: u64,
    /// Messages still held, by topic; topics without any are not listed. Those of topics without a
    /// group are among them.
    pub left: Vec<(String, u64)>,
}

/// The queue within this process. Clones are the same queue. Once all clones, producers and consumers are
/// gone, so is what it held; [`Queue::shutdown`] is the orderly way.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// The task that lets time pass; aborted with the last clone.
    driver: Mutex<JoinSet<()>>,
}

/// What the handles and the driver share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// The driver sleeps too long.
    rearm: Notify,
}

#[derive(Debug)]
struct State {
    broker: Broker,
    /// Until when the driver sleeps; `None` is for ever.
    armed: Option<Millis>,
    /// Who is waited for. At most one entry a group and topic.
    signals: HashMap<Wake, Arc<Notify>, foldhash::fast::RandomState>,
}

impl State {
    fn notify(&mut self) {
        for wake in self.broker.take_wakes() {
            if let Some(signal) = self.signals.get(&wake) {
                signal.notify_waiters();
            }
        }
    }
}

impl Shared {
    /// Asks the broker something, then wakes whom that concerns.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Broker, Millis) -> T) -> T {
        let mut state = lock(&self.state);
        let answer = ask(&mut state.broker, self.clock.now());
        state.notify();
        let next = state.broker.next_deadline();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.rearm.notify_one();
        }
        answer
    }

    /// What is notified about `wake`.
    pub(super) fn signal(&self, wake: Wake) -> Arc<Notify> {
        Arc::clone(lock(&self.state).signals.entry(wake).or_default())
    }

    /// Forgets the signal of `wake` once nobody but the caller holds it.
    pub(super) fn forget(&self, wake: Wake, signal: &Arc<Notify>) {
        let mut state = lock(&self.state);
        if Arc::strong_count(signal) <= 2 {
            state.signals.remove(&wake);
        }
    }

    /// Waits until the broker answers; asks again whenever `signal` says so.
    pub(super) async fn wait<T>(
        &self,
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

    /// Lets time pass until `stop`.
    async fn drive(&self, stop: CancellationToken) {
        loop {
            let wait = {
                let mut state = lock(&self.state);
                let now = self.clock.now();
                state.broker.advance(now);
                state.notify();
                state.armed = state.broker.next_deadline();
                state.armed.map(|next| next.since(now))
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.rearm.notified() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }
}

/// A panic under the lock is a bug that ends the process elsewhere; the state is not made worse by going on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// A queue in memory, for this process. Spawns one task on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn in_process(config: QueueConfig, clock: Clock) -> Self {
        let broker = Broker::new(config, clock.now());
        let state = State { broker, armed: None, signals: HashMap::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), clock, rearm: Notify::new() });
        let stop = CancellationToken::new();
        let mut driver = JoinSet::new();
        let (driven, stopped) = (Arc::clone(&shared), stop.clone());
        driver.spawn(async move { driven.drive(stopped).await });
        Self { inner: Arc::new(Inner { shared, stop, driver: Mutex::new(driver) }) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Hands over one frame; the outcome is the frame's receipt once it is as durable as its topic promises, or why it
    /// was not taken. At the topic's bound it is refused, or older ones make room, as configured. Frames are
    /// taken in the order of these calls, whenever their outcomes are awaited.
    pub fn publish(&self, topic: &str, frame: Frame) -> Publishing {
        let frame = Arc::new(frame);
        Publishing::done(self.shared().with(|broker, now| broker.publish(now, topic, &frame)))
    }

    /// Hands over one frame; at the topic's bound it waits for room, until `cancel`. Waiting publishers are
    /// not served in turn.
    ///
    /// # Errors
    ///
    /// The frame was not taken: [`PublishError::Cancelled`], or another reason, but never
    /// [`PublishError::Full`].
    pub async fn publish_wait(
        &self,
        topic: &str,
        frame: Frame,
        cancel: &CancellationToken,
    ) -> Result<Receipt, PublishError> {
        // A publisher that never has to wait still lets others of its thread run.
        tokio::task::consume_budget().await;
        let frame = Arc::new(frame);
        let shared = self.shared();
        let offer = |broker: &mut Broker, now: Millis| match broker.offer(now, topic, &frame) {
            Err(PublishError::Full { .. }) => Err(broker.topic_named(topic)),
            answer => Ok(answer),
        };
        let full = match shared.with(offer) {
            Ok(answer) => return answer,
            Err(full) => full,
        };
        let Some(signal) = full.map(|topic: TopicId| shared.signal(Wake::Space(topic))) else {
            return Err(PublishError::Closed);
        };
        tokio::select! {
            answer = shared.wait(&signal, |broker, now| offer(broker, now).ok()) => answer,
            () = cancel.cancelled() => Err(PublishError::Cancelled),
        }
    }

    /// A producer for `topic` that is refused at the bound.
    pub fn producer(&self, topic: impl Into<Arc<str>>) -> InProcessProducer {
        InProcessProducer::new(self.clone(), topic.into(), None)
    }

    /// A producer for `topic` that waits at the bound, until `cancel`.
    pub fn waiting_producer(
        &self,
        topic: impl Into<Arc<str>>,
        cancel: CancellationToken,
    ) -> InProcessProducer {
        InProcessProducer::new(self.clone(), topic.into(), Some(cancel))
    }

    /// Joins a group of a topic; both are created if they do not exist.
    ///
    /// # Errors
    ///
    /// A name is refused, a limit is reached, or the queue shuts down.
    #[expect(clippy::unused_async, reason = "a durable group is answered when it is on disk")]
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<InProcessConsumer, SubscribeError> {
        let joined = self.shared().with(|broker, now| {
            let id = broker.subscribe(now, topic, group, options)?;
            Ok((id, broker.group_of(id)))
        })?;
        let (id, Some(group)) = joined else { return Err(SubscribeError::Closed) };
        Ok(InProcessConsumer::new(self.clone(), id, Wake::Group(group)))
    }

    /// Ends a group and its members. What only it waited for goes, unless it was the topic's last.
    ///
    /// # Errors
    ///
    /// No such topic or group.
    pub fn remove_group(&self, topic: &str, group: &str) -> Result<(), AdminError> {
        self.shared().with(|broker, now| broker.remove_group(now, topic, group))
    }

    /// Dead letters of a topic with ids from `from` on, oldest first, at most `limit`.
    ///
    /// # Errors
    ///
    /// No such topic.
    #[expect(clippy::unused_async, reason = "letters of a durable queue are read from disk")]
    pub async fn dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, AdminError> {
        let letters = self.shared().with(|broker, _| broker.lend_letters(topic, from, limit))?;
        Ok(letters.into_iter().map(|lent| lent.item).collect())
    }

    /// Gives dead letters back to the groups that gave up on them, as if new.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn replay_dead(&self, topic: &str, selection: &DeadSelection) -> Result<Replayed, AdminError> {
        self.shared().with(|broker, now| broker.replay_dead(now, topic, selection))
    }

    /// Throws dead letters away. Answers how many letters.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn purge_dead(&self, topic: &str, selection: &DeadSelection) -> Result<usize, AdminError> {
        self.shared().with(|broker, _| broker.purge_dead(topic, selection))
    }

    /// What the queue's clock shows.
    pub fn now(&self) -> Millis {
        self.shared().with(|_, now| now)
    }

    /// Names of all topics, sorted.
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.shared().with(|broker, _| broker.topics())
    }

    /// Numbers of everything.
    pub fn stats(&self) -> QueueStats {
        self.shared().with(Broker::stats)
    }

    /// Numbers of one topic.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn topic_stats(&self, topic: &str) -> Result<TopicStats, AdminError> {
        self.shared().with(|broker, now| broker.topic_stats(now, topic))
    }

    /// How the queue is, and why.
    pub fn health(&self) -> Health {
        self.shared().with(Broker::health)
    }

    /// Takes nothing more, drains as [`QueueConfig::drain`] says and for as long as it says, takes back what
    /// consumers still have, and ends the queue's task. From then on receivers and publishers are told
    /// that the queue is closed. A second call finds nothing left to do.
    pub async fn shutdown(&self) -> DrainReport {
        let shared = self.shared();
        let drained = shared.signal(Wake::Drained);
        let (drain, limit) = shared.with(|broker, now| {
            broker.seal(now);
            (broker.config().drain, broker.config().drain_timeout)
        });
        let orderly = async {
            if drain == Drain::Deliver {
                shared.wait(&drained, |broker, _| broker.is_drained().then_some(())).await;
            }
            shared.with(Broker::stop);
            shared.wait(&drained, |broker, _| broker.is_drained().then_some(())).await;
        };
        let in_time = timeout(limit, orderly).await;
        let report = shared.with(|broker, now| {
            broker.stop(now);
            let unacknowledged = if in_time { 0 } else { broker.recall(now) };
            let topics = broker.stats(now).topics.into_iter();
            let left = topics.map(|(name, topic)| (name, topic.messages)).filter(|(_, held)| *held > 0);
            DrainReport { unacknowledged, left: left.collect() }
        });
        self.inner.stop.cancel();
        let mut driver = std::mem::take(&mut *lock(&self.inner.driver));
        while driver.join_next().await.is_some() {}
        report
    }
}

/// Whether `work` was done within `limit`.
async fn timeout(limit: Duration, work: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(limit, work).await.is_ok()
}
