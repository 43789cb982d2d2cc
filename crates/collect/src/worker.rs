//! One worker: receives while it stores, acknowledges durable frames, extends the leases of the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{Batch, causes, clock};
use gpuvitals_queue::link::{AnyConsumer, Away, ConnectError};
use gpuvitals_queue::{Consumer, Delivery, DeliveryId, Nack, NackKind, ReceiveError, SettleError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::bad::BadRows;
use crate::opening::Opened;
use crate::{CollectorProgress, CollectorSettings, Member, defect, opening};

/// First and longest pause between two tries to store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a worker holds frames that the store does not take, before it gives them back. A lease may last
/// ten minutes; one that expires counts as a failed attempt, and a frame has few.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often it is looked whether the sink has failed.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// State shared by the workers of a collector.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The destination of rows.
    pub sink: Arc<dyn Sink>,
    /// Where what becomes of frames is counted.
    pub progress: Arc<CollectorProgress>,
    /// How long a delivery may take; extended for as long as the store needs.
    pub ack_timeout: Duration,
    /// Nothing more is received; held frames are finished.
    pub stop: CancellationToken,
    /// Held frames are given back.
    pub abandon: CancellationToken,
}

impl Terms {
    /// Nothing is stopped yet.
    pub(crate) fn new(
        sink: Arc<dyn Sink>,
        progress: Arc<CollectorProgress>,
        settings: &CollectorSettings,
    ) -> Self {
        Self {
            sink,
            progress,
            ack_timeout: settings.ack_timeout(),
            stop: CancellationToken::new(),
            abandon: CancellationToken::new(),
        }
    }
}

/// Why a worker ended.
#[derive(Debug)]
pub enum Ended {
    /// The collector stopped it.
    Stopped,
    /// The sink is closed.
    SinkClosed,
    /// The sink failed: nothing can be stored before the next start.
    SinkFailed(SinkError),
    /// The queue gives it nothing any more.
    Queue(ReceiveError),
    /// The queue does not let it in.
    Refused(ConnectError),
    /// A thread that works on a frame panicked, which is a bug.
    Panicked(JoinError),
}

/// One worker, until it is stopped or the queue has nothing more. Its leases go back when it ends.
pub(super) async fn work(mut consumer: AnyConsumer, member: Member, terms: Terms) -> Ended {
    let bad = match member.bad_rows() {
        Ok(bad) => Arc::new(bad),
        Err(error) => return Ended::Refused(error),
    };
    loop {
        terms.progress.goes(consumer.away());
        let mut holding = Holding::new(&bad);
        let ended = holding.serve(&mut consumer, &terms).await;
        consumer.leave().await;
        if let Some(ended) = ended {
            return ended;
        }
        tracing::warn!(
            "nothing could be stored or made a dead letter for minutes; received frames go back to the queue"
        );
        // It has left the group with the last attempt still running: rows stored now come again, and merge.
        tokio::select! {
            () = terms.stop.cancelled() => return Ended::Stopped,
            () = terms.abandon.cancelled() => return Ended::Stopped,
            _ = holding.storing.join_next() => {}
        }
        consumer = match member.join().await {
            Ok(consumer) => consumer,
            Err(error) => return Ended::Refused(error),
        };
    }
}

/// Asks the sink each second whether it has failed, so that it shows though no rows come.
pub(super) async fn watch(terms: Terms) -> Ended {
    let mut looks = tokio::time::interval(LOOK_PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A disk that does not answer holds up no end.
        let asked = async {
            looks.tick().await;
            terms.sink.accept(Vec::new()).await
        };
        let asked = tokio::select! {
            () = terms.stop.cancelled() => return Ended::Stopped,
            () = terms.abandon.cancelled() => return Ended::Stopped,
            asked = asked => asked,
        };
        if let Err(error @ SinkError::Failed(_)) = asked {
            return Ended::SinkFailed(error);
        }
    }
}

/// Frames that a worker has received and not settled.
struct Holding {
    bad: Arc<BadRows>,
    /// Received, and to be stored next.
    next: Vec<(DeliveryId, Opened)>,
    /// At most one attempt at a time; later frames go into the next one.
    storing: JoinSet<Stored>,
    /// The frames being stored, and since when.
    in_hand: Vec<DeliveryId>,
    since: Option<Instant>,
    /// Spans of the next frames and of those being stored, from the first frame to the acknowledgement.
    coming: Option<Span>,
    batch: Option<Span>,
}

/// Outcomes of deliveries.
struct Stored {
    durable: Vec<DeliveryId>,
    /// The sink will never take them.
    refused: Vec<(DeliveryId, String)>,
    /// The sink takes nothing more, for this reason; the rest is neither.
    ended: Option<Ended>,
}

impl Holding {
    fn new(bad: &Arc<BadRows>) -> Self {
        Self {
            bad: Arc::clone(bad),
            next: Vec::new(),
            storing: JoinSet::new(),
            in_hand: Vec::new(),
            since: None,
            coming: None,
            batch: None,
        }
    }

    /// Receives and stores until the worker must end, or until the store has taken nothing for so long that
    /// the frames must go back.
    async fn serve(&mut self, consumer: &mut AnyConsumer, terms: &Terms) -> Option<Ended> {
        let mut away = consumer.away();
        let mut leases = tokio::time::interval(terms.ack_timeout / 3);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_stopping = terms.stop.is_cancelled();
            if self.since.is_none() && !self.next.is_empty() {
                self.store(terms);
            } else if is_stopping && self.since.is_none() {
                return Some(Ended::Stopped);
            }
            let give_back = async {
                match self.since {
                    Some(since) => tokio::time::sleep_until(since + PATIENCE).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = terms.abandon.cancelled() => return Some(Ended::Stopped),
                () = terms.stop.cancelled(), if !is_stopping => {}
                // As much as the credits allow: nobody would extend the lease of a frame unknown here.
                received = consumer.receive(), if !is_stopping => match received {
                    Ok(deliveries) => self.take(&deliveries, consumer, terms).await,
                    Err(error) => return self.last(error, consumer, terms).await,
                },
                Some(stored) = self.storing.join_next() => {
                    if let Err(ended) = self.settle(stored, consumer, terms).await {
                        return Some(ended);
                    }
                }
                () = changed(&mut away) => drop(terms.progress.reach()),
                () = give_back => return None,
                _ = leases.tick() => self.extend(consumer, terms.ack_timeout).await,
            }
        }
    }

    /// Opens received frames. One that can never be stored is refused at once.
    async fn take(&mut self, deliveries: &[Delivery], consumer: &AnyConsumer, terms: &Terms) {
        let now_ns = clock::now_ns();
        let mut rejected = Vec::new();
        let mut traces = deliveries.iter().filter_map(|delivery| delivery.frame.trace.as_deref());
        let batch = self.coming.get_or_insert_with(|| {
            let span = tracing::info_span!(parent: None, "collect", otel.kind = "consumer", messaging.system = "gpuvitals");
            if let Some(first) = traces.next() {
                gpuvitals_listener::trace::follow_parent(&span, first);
            }
            span
        });
        traces.for_each(|other| gpuvitals_listener::trace::link(batch, other));
        tracing::info_span!(parent: batch.id(), "decode", frames = deliveries.len()).in_scope(|| {
            for delivery in deliveries {
                let open = || opening::open(delivery, &self.bad.group, now_ns, &terms.progress);
                match defect::caught("decoding", open) {
                    Ok(item) => self.next.push((delivery.id, item)),
                    Err(reason) => rejected.push(reject(delivery.id, reason, &terms.progress)),
                }
            }
        });
        if self.next.is_empty() {
            self.coming = None;
        }
        if !rejected.is_empty() {
            settled(consumer.nack(&rejected).await);
        }
    }

    fn store(&mut self, terms: &Terms) {
        let items = std::mem::take(&mut self.next);
        self.in_hand = items.iter().map(|(id, _)| *id).collect();
        self.since = Some(Instant::now());
        self.batch = self.coming.take();
        let span = tracing::info_span!(parent: self.batch_id(), "store", frames = items.len());
        let (sink, bad, progress) =
            (Arc::clone(&terms.sink), Arc::clone(&self.bad), Arc::clone(&terms.progress));
        let storing = async move { store_all(&*sink, &bad, items, &progress).await };
        self.storing.spawn(storing.instrument(span));
    }

    fn batch_id(&self) -> Option<tracing::Id> {
        self.batch.as_ref().and_then(Span::id)
    }

    async fn settle(
        &mut self,
        stored: Result<Stored, JoinError>,
        consumer: &AnyConsumer,
        terms: &Terms,
    ) -> Result<(), Ended> {
        self.since = None;
        let span = tracing::info_span!(parent: self.batch_id(), "ack");
        let settled = settle(stored, consumer, &terms.progress).instrument(span).await;
        self.batch = None;
        settled
    }

    /// Nothing more comes, but received frames are still stored, and acknowledged if possible.
    async fn last(&mut self, error: ReceiveError, consumer: &AnyConsumer, terms: &Terms) -> Option<Ended> {
        loop {
            if self.since.is_none() {
                if self.next.is_empty() {
                    return Some(Ended::Queue(error));
                }
                self.store(terms);
            }
            tokio::select! {
                () = terms.abandon.cancelled() => return Some(Ended::Stopped),
                Some(stored) = self.storing.join_next() => {
                    if let Err(ended) = self.settle(stored, consumer, terms).await {
                        return Some(ended);
                    }
                }
            }
        }
    }

    async fn extend(&self, consumer: &AnyConsumer, by: Duration) {
        let stored = self.in_hand.iter().filter(|_| self.since.is_some());
        let ids: Vec<DeliveryId> = stored.copied().chain(self.next.iter().map(|(id, _)| *id)).collect();
        if let Err(error) = consumer.extend(&ids, by).await {
            // Of a lease that is over the rows come again, and merge.
            tracing::debug!(%error, "extending leases");
        }
    }
}

/// Waits until the queue is reached or lost; for ever if it is in this process.
async fn changed(away: &mut watch::Receiver<Away>) {
    if away.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Acknowledges and refuses.
///
/// # Errors
/// When nothing more can be stored.
async fn settle(
    stored: Result<Stored, JoinError>,
    consumer: &AnyConsumer,
    progress: &CollectorProgress,
) -> Result<(), Ended> {
    let stored = stored.map_err(Ended::Panicked)?;
    settled(consumer.ack(&stored.durable).await);
    if !stored.refused.is_empty() {
        let refused = stored.refused.into_iter().map(|(id, reason)| reject(id, reason, progress));
        settled(consumer.nack(&refused.collect::<Vec<_>>()).await);
    }
    stored.ended.map_or(Ok(()), Err)
}

fn reject(id: DeliveryId, reason: String, progress: &CollectorProgress) -> Nack {
    progress.messages_refused.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(offset = id.offset, reason, "frame goes to the dead letters");
    Nack { id, kind: NackKind::Reject, reason: Arc::from(reason) }
}

/// A delivery that is unknown by now was settled by a redelivery: the rows merged, nothing is wrong.
fn settled(outcome: Result<u64, SettleError>) {
    outcome.map_or_else(|error| tracing::debug!(%error, "settling deliveries"), drop);
}

/// Makes the rows durable together. If the sink refuses them for good, one by one, so that one bad frame
/// costs only itself. Then publishes bad rows; a frame whose bad rows cannot be published is refused as a
/// whole.
async fn store_all(
    sink: &dyn Sink,
    bad: &BadRows,
    items: Vec<(DeliveryId, Opened)>,
    progress: &CollectorProgress,
) -> Stored {
    let all: Vec<Batch> = items.iter().filter_map(|(_, opened)| opened.rows.clone()).collect();
    let mut stored = Stored { durable: Vec::with_capacity(items.len()), refused: Vec::new(), ended: None };
    match persist(sink, &all, progress).await {
        Persisted::Durable => stored.durable.extend(items.iter().map(|(id, _)| *id)),
        Persisted::Ended(ended) => stored.ended = Some(ended),
        Persisted::Refused(_) => {
            for (id, opened) in &items {
                match persist(sink, &Vec::from_iter(opened.rows.clone()), progress).await {
                    Persisted::Durable => stored.durable.push(*id),
                    Persisted::Refused(reason) => stored.refused.push((*id, reason)),
                    Persisted::Ended(ended) => {
                        stored.ended = Some(ended);
                        break;
                    }
                }
            }
        }
    }
    let letters = items.into_iter().filter(|(id, _)| stored.durable.contains(id));
    let letters = letters.flat_map(|(id, opened)| opened.bad.into_iter().map(move |letter| (id, letter)));
    for (id, error) in bad.publish(letters.collect(), progress).await {
        stored.durable.retain(|durable| *durable != id);
        let reason = format!("its bad rows cannot be published as dead letters: {}", causes(&error));
        stored.refused.push((id, reason));
    }
    stored
}

enum Persisted {
    Durable,
    /// The sink will never take one of them.
    Refused(String),
    /// The sink takes nothing more.
    Ended(Ended),
}

/// Tries until the rows are durable, or can never be: that they panic is for ever.
async fn persist(sink: &dyn Sink, items: &[Batch], progress: &CollectorProgress) -> Persisted {
    let persisted = defect::caught_later("storing", try_to_persist(sink, items, progress)).await;
    persisted.unwrap_or_else(Persisted::Refused)
}

async fn try_to_persist(sink: &dyn Sink, items: &[Batch], progress: &CollectorProgress) -> Persisted {
    if items.is_empty() {
        return Persisted::Durable;
    }
    let rows: usize = items.iter().map(Batch::rows).sum();
    let began = Instant::now();
    let mut pause = BACKOFF.0;
    loop {
        let error = match sink.accept(items.to_vec()).await {
            Ok(()) => {
                progress.stored(rows, began.elapsed());
                return Persisted::Durable;
            }
            Err(SinkError::Closed) => return Persisted::Ended(Ended::SinkClosed),
            Err(error @ SinkError::Failed(_)) => return Persisted::Ended(Ended::SinkFailed(error)),
            Err(SinkError::Refused(error)) => return Persisted::Refused(causes(&*error)),
            Err(SinkError::Busy(error)) => error,
        };
        progress.not_stored(&causes(&*error));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

#[cfg(test)]
mod tests;
