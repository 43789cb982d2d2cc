//! A queue for one process, in memory or in a directory: the handle that servers and others hold.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_log::{CommitOn, DirectoryLock, Disk, LogError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock::QueueClock;
use super::in_process::{InProcessConsumer, InProcessProducer};
use super::publishing::Publishing;
use super::shared::{AtBound, Joined, Shared, lock};
use crate::broker::{
    AdminError, Broker, ConsumerOptions, DeadLetter, DeadSelection, Lent, PublishError, Receipt, Replayed,
    SubscribeError, Wake,
};
use crate::config::{Drain, QueueConfig};
use crate::frame::{Frame, Millis};
use crate::journal::{Journal, OpenError, Opened, Recovered, recover, take_directory};
use crate::stats::{QueueHealth, QueueStats, TopicStats};

/// What a shutdown left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Messages that consumers still had at the deadline, over all groups.
    pub unacknowledged: u64,
    /// Messages still held, by topic; topics without any are not listed. Those of topics without a
    /// group are among them, dead letters are not.
    pub left: Vec<(String, u64)>,
}

/// The queue within this process. Clones are the same queue. Once all clones, producers and consumers are
/// gone, so is what it held; [`Queue::shutdown`] is the orderly way.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Arc<QueueInner>,
}

#[derive(Debug)]
struct QueueInner {
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// The task that lets time pass; aborted with the last clone.
    driver: Mutex<JoinSet<()>>,
}

impl Queue {
    /// A queue in memory, for this process. Spawns one task on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn in_process(config: QueueConfig, clock: QueueClock) -> Self {
        Self::around(Shared::in_memory(Broker::new(config, clock.now()), clock))
    }

    /// The queue that lies in a directory, which is made if it does not exist: what was published as
    /// [`QueueConfig::durability`] says and not settled is there again, with the groups and dead letters. Other processes
    /// are kept out of the directory until the queue and all its handles are gone.
    ///
    /// [`Opened`] says what was found; what it lists as damage is acknowledged messages that are gone, and shows in the
    /// health until the next opening. [`Queue::shutdown`] is the orderly end; without it nothing is lost but the last
    /// acknowledgements ([`QueueConfig::sync_every`]), whose messages come again.
    ///
    /// # Errors
    ///
    /// The directory cannot be used or is in use, or the log cannot be read or is of a later version.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn open(
        directory: impl Into<PathBuf>,
        config: QueueConfig,
        clock: QueueClock,
    ) -> Result<(Self, Opened), OpenError> {
        let directory = directory.into();
        Self::open_with(config, clock, move |config, now| {
            let (disk, lock) = take_directory(&directory)?;
            Ok((recover(disk, config, now, lock.noted_end())?, Some(lock)))
        })
        .await
    }

    /// The same on a disk of the caller's, which nobody else uses.
    ///
    /// # Errors
    ///
    /// The log cannot be read or is of a later version.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn open_on(
        disk: impl Disk,
        config: QueueConfig,
        clock: QueueClock,
    ) -> Result<(Self, Opened), OpenError> {
        Self::open_with(config, clock, |config, now| Ok((recover(disk, config, now, 0)?, None))).await
    }

    async fn open_with(
        config: QueueConfig,
        clock: QueueClock,
        recover: impl FnOnce(&QueueConfig, Millis) -> Result<(Recovered, Option<Arc<DirectoryLock>>), OpenError>
        + Send
        + 'static,
    ) -> Result<(Self, Opened), OpenError> {
        let now = clock.now();
        let opening = tokio::task::spawn_blocking(move || {
            let (recovered, directory) = recover(&config, now)?;
            let Recovered { log, broker, opened, keeper } = recovered;
            let shared = Shared::beside(Journal::new(log, config, directory), keeper, broker, clock);
            Ok::<_, OpenError>((shared, opened))
        });
        // The task panics only of a bug, and is never aborted.
        let (shared, opened) = opening.await.map_err(|_| OpenError::Log(LogError::Closed))??;
        Ok((Self::around(shared), opened))
    }

    fn around(shared: Arc<Shared>) -> Self {
        let stop = CancellationToken::new();
        let mut driver = JoinSet::new();
        driver.spawn(Arc::clone(&shared).drive(stop.clone()));
        Self { inner: Arc::new(QueueInner { shared, stop, driver: Mutex::new(driver) }) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Hands over one frame; the outcome is the frame's receipt once it is as durable as its topic promises, or why it
    /// was not taken. At the topic's bound it is refused, or older ones make room, as configured. Frames are
    /// taken in the order of these calls, whenever their outcomes are awaited.
    pub fn publish(&self, topic: &str, frame: Frame) -> Publishing {
        let publishing = self.hand_over(topic, frame);
        self.commit(CommitOn::Writer);
        publishing
    }

    /// [`Queue::publish`] that leaves the log asleep: [`Queue::commit`] is to follow.
    pub(crate) fn hand_over(&self, topic: &str, frame: Frame) -> Publishing {
        self.shared().publish(topic, frame, AtBound::Refuse)
    }

    /// Tells the log of all that was handed over.
    pub(crate) fn commit(&self, on: CommitOn) {
        self.shared().commit(on);
    }

    /// Hands over one frame; at the topic's bound it waits for room. Waiting publishers are not served in turn.
    ///
    /// # Errors
    ///
    /// The frame was not taken, but never for [`PublishError::Full`].
    pub async fn publish_wait(&self, topic: &str, frame: Frame) -> Result<Receipt, PublishError> {
        // A publisher that never has to wait still lets others of its thread run.
        tokio::task::consume_budget().await;
        let shared = self.shared();
        let first = shared.publish(topic, frame.clone(), AtBound::Wait);
        shared.commit(CommitOn::Writer);
        let first = first.await;
        if !matches!(first, Err(PublishError::Full { .. })) {
            return first;
        }
        let Some(topic_id) = shared.with(|broker, _| broker.topic_named(topic)) else {
            return Err(PublishError::Closed);
        };
        let signal = shared.signal(Wake::Space(topic_id));
        loop {
            let mut notified = std::pin::pin!(signal.notified());
            // From here on a notification is not missed, also if it comes before the await.
            notified.as_mut().enable();
            // Many may have been woken for room that one takes: the frame is made ready only where there is some.
            if shared.with(|broker, _| broker.may_take(topic_id, &frame)) {
                let again = shared.publish(topic, frame.clone(), AtBound::Wait);
                shared.commit(CommitOn::Writer);
                match again.await {
                    Err(PublishError::Full { .. }) => {}
                    answer => return answer,
                }
            }
            notified.await;
        }
    }

    /// A producer for `topic` that waits at the bound.
    pub fn producer(&self, topic: impl Into<Arc<str>>) -> InProcessProducer {
        InProcessProducer::new(self.clone(), topic.into())
    }

    /// Joins a group of a topic; both are created if they do not exist.
    ///
    /// # Errors
    ///
    /// A name is refused, a limit is reached, or the queue shuts down.
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<InProcessConsumer, SubscribeError> {
        let Joined { consumer, group, lease, kept } = self.shared().join(topic, group, options)?;
        // A caller that stops waiting leaves.
        let consumer = InProcessConsumer::new(self.clone(), consumer, Wake::Group(group), lease);
        if let Some(kept) = kept {
            let kept = kept.await.unwrap_or_else(|_| Err("queue was closed".into()));
            kept.map_err(|reason| SubscribeError::Storage { reason })?;
        }
        Ok(consumer)
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
    pub async fn dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, AdminError> {
        let letters = self.shared().with(|broker, _| broker.dead_letters(topic, from, limit))?;
        let places = letters.iter().filter_map(|lent| lent.place).collect();
        let mut frames = self.shared().read(places).await.unwrap_or_default().into_iter();
        let filled = letters.into_iter().map(|Lent { item: mut letter, place }| {
            match place.and_then(|_| frames.next()) {
                None => letter,
                Some(Ok(frame)) => DeadLetter::of(letter.id, letter.died_at, frame),
                Some(Err(error)) => {
                    letter.facts.topic = topic.into();
                    letter.facts.reason = error.to_string().into();
                    letter
                }
            }
        });
        Ok(filled.collect())
    }

    /// Ids of the selected dead letters and the number of their messages, oldest first.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn select_dead(&self, topic: &str, selection: &DeadSelection) -> Result<Vec<(u64, u32)>, AdminError> {
        self.shared().with(|broker, _| broker.select_dead(topic, selection))
    }

    /// Publishes dead letters to their topic again, for all of its groups, and removes them. Ids without a letter are
    /// passed over.
    ///
    /// # Errors
    ///
    /// One could not be published, for another reason than want of room. The others are put back.
    pub async fn replay_dead(&self, topic: &str, ids: &[u64]) -> Result<Replayed, PublishError> {
        let mut replayed = Replayed::default();
        let mut publishing = Vec::with_capacity(ids.len());
        for id in ids {
            let letters = self.dead_letters(topic, *id, 1).await.unwrap_or_default();
            let Some(letter) = letters.into_iter().find(|letter| letter.id == *id) else { continue };
            if letter.frame.payload.is_empty() {
                replayed.unreadable += 1;
            } else {
                publishing
                    .push((*id, self.shared().publish(topic, Frame::clone(&letter.frame), AtBound::Wait)));
            }
        }
        self.commit(CommitOn::Writer);
        let (mut published, mut failed) = (Vec::new(), None);
        for (id, publishing) in publishing {
            match publishing.await {
                Ok(_) => published.push(id),
                Err(PublishError::Full { .. }) => replayed.without_room += 1,
                Err(error) => failed = Some(error),
            }
        }
        replayed.letters = published.len();
        // Some of them may have been thrown away meanwhile.
        self.purge_dead(topic, &DeadSelection::Ids(published)).ok();
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(replayed)
    }

    /// Throws dead letters away. Answers how many.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn purge_dead(&self, topic: &str, selection: &DeadSelection) -> Result<usize, AdminError> {
        self.shared().with(|broker, now| broker.purge_dead(now, topic, selection))
    }

    /// What the queue's clock shows.
    pub fn now(&self) -> Millis {
        self.shared().now()
    }

    /// Names of all topics, sorted.
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.shared().with(|broker, _| broker.topics())
    }

    /// Numbers of everything.
    pub fn stats(&self) -> QueueStats {
        self.shared().with(Broker::stats)
    }

    /// Bytes that are free on the disk of its log, for this user; none in memory, or if the system does not say.
    pub fn disk_free_bytes(&self) -> Option<u64> {
        self.shared().journal()?.disk_free_bytes()
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
    pub fn health(&self) -> QueueHealth {
        crate::trouble::health(self.shared().troubles())
    }

    /// Waits until the queue can store nothing more until it is opened anew; why, in words. For ever in memory, and
    /// while all is well.
    pub async fn failed(&self) -> Arc<str> {
        self.shared().failed().await
    }

    /// Takes nothing more and ends the queue's task; from then on receivers and publishers are told that the queue is
    /// closed. A second call finds nothing left to do.
    ///
    /// In memory it drains as [`QueueConfig::drain`] says and for as long as it says, and then takes back what consumers
    /// still have. What lies in a directory is kept: there it waits for publishes under way only, takes back what
    /// consumers have, and closes the log.
    pub async fn shutdown(&self) -> DrainReport {
        let shared = self.shared();
        let drained = shared.signal(Wake::Drained);
        let (drain, limit) = shared.with(|broker, now| {
            broker.seal(now);
            (broker.config().drain, broker.config().drain_timeout)
        });
        let is_kept = shared.journal().is_some();
        let orderly = async {
            if is_kept {
                // What is not delivered any more is there at the next start.
                shared.wait(&drained, |broker, _| broker.is_idle().then_some(())).await;
            } else if drain == Drain::Deliver {
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
            let topics = topics.filter(|(name, _)| crate::name::origin_of(name).is_none());
            let left = topics.map(|(name, topic)| (name, topic.messages)).filter(|(_, held)| *held > 0);
            DrainReport { unacknowledged, left: left.collect() }
        });
        self.inner.stop.cancel();
        let mut driver = std::mem::take(&mut *lock(&self.inner.driver));
        while driver.join_next().await.is_some() {}
        if is_kept {
            let shared = Arc::clone(shared);
            // The task panics only of a bug, and is never aborted.
            tokio::task::spawn_blocking(move || shared.close()).await.ok();
        }
        report
    }
}

/// Whether `work` was done within `limit`.
async fn timeout(limit: Duration, work: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(limit, work).await.is_ok()
}
