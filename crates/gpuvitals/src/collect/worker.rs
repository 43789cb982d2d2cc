//! One worker: receives while it stores, acknowledges what is durable, keeps the leases of the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_core::clock;
use gpuvitals_core::time::FUTURE_MAX_NS;
use gpuvitals_queue::link::{AnyConsumer, Away};
use gpuvitals_queue::{Consumer, Delivery, DeliveryId, Nack, NackKind, ReceiveError, SettleError};
use gpuvitals_store::{AppendError, Ingest, Store};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::bad::BadRows;
use super::opening::Opened;
use super::{Collector, Member, Progress, defect, opening};
use crate::failure::Failure;

/// First and longest pause between two tries to store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a worker holds what the store does not take, before it gives it back. A lease may last ten minutes; one that
/// runs out counts as a failure of its rows, and they have few.
const PATIENCE: Duration = Duration::from_mins(3);

/// What the workers of a collector share.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Where rows go.
    pub store: Store,
    /// What they count.
    pub progress: Arc<Progress>,
    /// How long a delivery may take; extended for as long as the store needs.
    pub ack_timeout: Duration,
    /// Nothing more is received; what is held is finished.
    pub stop: CancellationToken,
    /// What is held is given back.
    pub abandon: CancellationToken,
}

impl Terms {
    /// Nothing is stopped yet.
    pub(crate) fn new(store: &Store, progress: Arc<Progress>, settings: &Collector) -> Self {
        Self {
            store: store.clone(),
            progress,
            ack_timeout: settings.ack_timeout(),
            stop: CancellationToken::new(),
            abandon: CancellationToken::new(),
        }
    }
}

/// Why a worker ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to.
    Stopped,
    /// The store is closed.
    StoreClosed,
    /// The queue gives it nothing any more.
    Queue(ReceiveError),
    /// The queue does not let it in.
    Refused(Failure),
    /// A bug.
    Panicked(JoinError),
}

/// One worker, until it is told to stop or the queue has nothing more. Its leases go back when it ends.
pub(super) async fn work(mut consumer: AnyConsumer, member: Member, terms: Terms) -> Ended {
    let bad = match member.bad_rows() {
        Ok(bad) => Arc::new(bad),
        Err(failure) => return Ended::Refused(failure),
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
            "nothing could be stored or made a dead letter for minutes; what was received goes back to the queue"
        );
        // Out of the group, with the last try still under way: what it stores comes again, and merges.
        tokio::select! {
            () = terms.stop.cancelled() => return Ended::Stopped,
            () = terms.abandon.cancelled() => return Ended::Stopped,
            _ = holding.storing.join_next() => {}
        }
        consumer = match member.join().await {
            Ok(consumer) => consumer,
            Err(failure) => return Ended::Refused(failure),
        };
    }
}

/// What a worker holds.
struct Holding {
    bad: Arc<BadRows>,
    /// Received, and to be stored next.
    next: Vec<(DeliveryId, Opened)>,
    /// At most one try at a time; what comes meanwhile goes into the next one.
    storing: JoinSet<Stored>,
    /// What is stored now, and since when.
    in_hand: Vec<DeliveryId>,
    since: Option<Instant>,
    /// Spans of what comes next and of what is stored, from the first frame to the acknowledgement.
    coming: Option<Span>,
    batch: Option<Span>,
}

/// What became of deliveries.
struct Stored {
    durable: Vec<DeliveryId>,
    /// The store will never take them.
    refused: Vec<(DeliveryId, String)>,
    /// The store is closed; the rest is neither.
    is_closed: bool,
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

    /// Receives and stores until the worker is to end, or until the store has taken nothing for so long that what is held
    /// is to go back.
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
                // As much as the credits allow: what came and is not known here has nobody to keep its lease.
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

    /// Opens what came. What can never be stored is refused at once.
    async fn take(&mut self, deliveries: &[Delivery], consumer: &AnyConsumer, terms: &Terms) {
        let latest_ns = clock::now_ns().saturating_add(FUTURE_MAX_NS);
        let mut rejected = Vec::new();
        let mut traces = deliveries.iter().filter_map(|delivery| delivery.frame.trace.as_deref());
        let batch = self.coming.get_or_insert_with(|| {
            let span = tracing::info_span!(parent: None, "collect", otel.kind = "consumer", messaging.system = "gpuvitals");
            if let Some(first) = traces.next() {
                gpuvitals_trace::follow_parent(&span, first);
            }
            span
        });
        traces.for_each(|other| gpuvitals_trace::link(batch, other));
        tracing::info_span!(parent: batch.id(), "decode", frames = deliveries.len()).in_scope(|| {
            for delivery in deliveries {
                let open = || opening::open(delivery, &self.bad.group, latest_ns, &terms.progress);
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
        let (store, bad, progress) =
            (terms.store.clone(), Arc::clone(&self.bad), Arc::clone(&terms.progress));
        let storing = async move { store_all(&store, &bad, items, &progress).await };
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

    /// Nothing more comes, but what was received is still stored, and acknowledged if that is still possible.
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
    progress: &Progress,
) -> Result<(), Ended> {
    let stored = stored.map_err(Ended::Panicked)?;
    settled(consumer.ack(&stored.durable).await);
    if !stored.refused.is_empty() {
        let refused = stored.refused.into_iter().map(|(id, reason)| reject(id, reason, progress));
        settled(consumer.nack(&refused.collect::<Vec<_>>()).await);
    }
    if stored.is_closed { Err(Ended::StoreClosed) } else { Ok(()) }
}

fn reject(id: DeliveryId, reason: String, progress: &Progress) -> Nack {
    progress.messages_refused.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(offset = id.offset, reason, "frame goes to the dead letters");
    Nack { id, kind: NackKind::Reject, reason: Arc::from(reason) }
}

/// A delivery that is unknown by now was settled by a redelivery: the rows merged, nothing is wrong.
fn settled(outcome: Result<u64, SettleError>) {
    outcome.map_or_else(|error| tracing::debug!(%error, "settling deliveries"), drop);
}

/// Makes the rows durable together. If the store refuses them for good, one by one, so that one bad frame costs only
/// itself. Then publishes bad rows; a frame whose bad rows cannot be is refused as a whole.
async fn store_all(
    store: &Store,
    bad: &BadRows,
    items: Vec<(DeliveryId, Opened)>,
    progress: &Progress,
) -> Stored {
    let all: Vec<Ingest> = items.iter().filter_map(|(_, opened)| opened.rows.clone()).collect();
    let mut stored =
        Stored { durable: Vec::with_capacity(items.len()), refused: Vec::new(), is_closed: false };
    match persist(store, &all, progress).await {
        Persisted::Durable => stored.durable.extend(items.iter().map(|(id, _)| *id)),
        Persisted::Closed => stored.is_closed = true,
        Persisted::Refused(_) => {
            for (id, opened) in &items {
                match persist(store, &Vec::from_iter(opened.rows.clone()), progress).await {
                    Persisted::Durable => stored.durable.push(*id),
                    Persisted::Refused(reason) => stored.refused.push((*id, reason)),
                    Persisted::Closed => {
                        stored.is_closed = true;
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
        let reason = format!("rows of it cannot be published as dead letters: {}", causes(&error));
        stored.refused.push((id, reason));
    }
    stored
}

enum Persisted {
    Durable,
    /// The store will never take one of them.
    Refused(String),
    Closed,
}

/// Tries until the rows are durable, or can never be: that they panic is for ever.
async fn persist(store: &Store, items: &[Ingest], progress: &Progress) -> Persisted {
    let persisted = defect::caught_later("storing", try_to_persist(store, items, progress)).await;
    persisted.unwrap_or_else(Persisted::Refused)
}

async fn try_to_persist(store: &Store, items: &[Ingest], progress: &Progress) -> Persisted {
    if items.is_empty() {
        return Persisted::Durable;
    }
    let rows: usize = items.iter().map(|item| item.batch.rows()).sum();
    let began = Instant::now();
    let mut pause = BACKOFF.0;
    loop {
        let error = match store.append(items.to_vec()).await {
            Ok(_) => {
                progress.stored(rows, began.elapsed());
                return Persisted::Durable;
            }
            Err(AppendError::Closed) => return Persisted::Closed,
            Err(error) if !error.is_retryable() => return Persisted::Refused(causes(&error)),
            Err(error) => error,
        };
        progress.not_stored(&causes(&error));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use gpuvitals_queue::link::Client;
    use gpuvitals_queue::{Clock, ConsumerOptions, ContentType, Encoding, Frame, Queue, QueueConfig};
    use gpuvitals_store::StoreConfig;

    use super::*;

    /// A queue with these frames in it, before anybody takes from it.
    async fn queue_with(frames: Vec<Frame>) -> Queue {
        let queue = Queue::in_process(QueueConfig::default(), Clock::system());
        for frame in frames {
            queue.publish("gpus", frame).await.unwrap();
        }
        queue
    }

    /// What became of a queue's frames that one worker took until the queue was empty.
    async fn collected_from(queue: &Queue, store: &Store, progress: Arc<Progress>) -> Vec<String> {
        let member = Member {
            client: Client::in_process(queue.clone()),
            topic: "gpus".into(),
            group: "store".into(),
            options: ConsumerOptions::default(),
        };
        let consumer = member.join().await.unwrap();
        let terms = Terms {
            store: store.clone(),
            progress,
            ack_timeout: Duration::from_secs(5),
            stop: CancellationToken::new(),
            abandon: CancellationToken::new(),
        };
        let worker = tokio::spawn(work(consumer, member, terms));
        while queue.topic_stats("gpus").unwrap().messages > 0 {
            assert!(!worker.is_finished(), "the worker ended before the queue was empty");
            tokio::task::yield_now().await;
        }
        let drained = queue.shutdown().await;
        assert!(matches!(worker.await.unwrap(), Ended::Queue(ReceiveError::Closed)));
        assert!(drained.left.is_empty(), "everything was settled: {drained:?}");
        let dead = queue.dead_letters("gpus", 0, 10).await.unwrap();
        dead.iter().map(|letter| letter.facts.reason.to_string()).collect()
    }

    async fn collected(frames: Vec<Frame>) -> (Store, Arc<Progress>, Vec<String>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
        let progress = Arc::new(Progress::new());
        let reasons = collected_from(&queue_with(frames).await, &store, Arc::clone(&progress)).await;
        (store, progress, reasons, folder)
    }

    fn power(store: &Store, gpu: &str) -> Option<f64> {
        let fleet = store.fleet();
        let power = gpuvitals_core::catalogue::by_column("power_w").unwrap();
        let gpu = fleet.get(gpu)?;
        gpu.latest.iter().find(|(id, _)| *id == power).map(|(_, latest)| latest.value.as_f64())
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn json_is_stored_and_what_is_no_row_goes_to_the_dead_letters() {
        let document = br#"[
          {"timestamp": "2026-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "power_draw": 402.25}},
          {"timestamp": "yesterday", "fields": {"uuid": "GPU-1", "hostname": "n1", "power_draw": 1}},
          {"timestamp": "2126-01-01T00:00:00Z", "fields": {"uuid": "GPU-2", "hostname": "n2", "power_draw": 2}}
        ]"#;
        let frame = |kind, count, payload: &'static [u8]| Frame::new(kind, count, payload);
        let (store, progress, reasons, _folder) = collected(vec![
            frame(ContentType::Json, 3, document),
            frame(ContentType::Json, 1, b"not json"),
            frame(ContentType::Batch, 1, b"GVB1 but no batch"),
        ])
        .await;

        assert_eq!(power(&store, "GPU-1"), Some(402.25));
        assert_eq!((count(&progress.rows_stored), count(&progress.rows_future)), (1, 1));
        assert_eq!(count(&progress.messages_refused), 3);
        let (rejected, published): (Vec<_>, Vec<_>) =
            reasons.into_iter().partition(|reason| reason.starts_with("rejected by consumer: "));
        assert_eq!(rejected.len(), 2, "{rejected:?}");
        let [no_row, ahead] = &published[..] else { panic!("{published:?}") };
        assert!(
            no_row.starts_with("1 of 3 messages are no rows; the first of GPU GPU-1 on host n1: timestamp: "),
            "{no_row}"
        );
        assert_eq!(
            ahead,
            "1 rows are more than an hour ahead of the collector's clock; the first of GPU GPU-2 on host n2 at \
             2126-01-01T00:00:00Z"
        );
        store.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn compressed_frames_are_opened_and_a_bomb_is_refused() {
        let packed = |text: &[u8]| {
            let payload = zstd::bulk::compress(text, 3).unwrap();
            Frame::new(ContentType::Json, 1, payload).encoded(Encoding::Zstd)
        };
        let message = br#"{"timestamp": "2026-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "power_w": 5}}"#;
        let bomb = vec![b' '; 1 << 30];
        let mut cut = packed(message);
        cut.payload.truncate(20);
        let (store, _, reasons, _folder) = collected(vec![packed(message), packed(&bomb), cut]).await;

        assert_eq!(power(&store, "GPU-1"), Some(5.0));
        assert!(reasons[0].contains("unpacks to more than 4194304 bytes"), "{reasons:?}");
        assert!(reasons[1].contains("does not unpack"), "{reasons:?}");
        assert_eq!(reasons.len(), 2);
        store.close().await.unwrap();
    }

    /// Makes the code that logs these words panic, so many times: a defect at that place.
    struct Trap(&'static str, AtomicU64);

    impl tracing::field::Visit for Trap {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            let is_here = field.name() == "message" && format!("{value:?}") == self.0;
            if is_here
                && self
                    .1
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
            {
                panic!("index out of bounds");
            }
        }
    }

    struct Trapped(std::sync::Mutex<Trap>);

    impl tracing::Subscriber for Trapped {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
            tracing::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
        fn enter(&self, _: &tracing::Id) {}
        fn exit(&self, _: &tracing::Id) {}
    }

    /// A defect where these words are logged, on this thread.
    fn trap(words: &'static str, times: u64) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(Trapped(std::sync::Mutex::new(Trap(words, AtomicU64::new(times)))))
    }

    fn row(uuid: &str) -> Frame {
        let text = format!(
            r#"{{"timestamp": "2026-01-01T00:00:00Z", "fields": {{"uuid": "{uuid}", "power_w": 7}}}}"#
        );
        Frame::new(ContentType::Json, 1, text)
    }

    /// A row, and one that is refused with a line in the log.
    fn poison() -> Frame {
        let text = r#"[{"timestamp": "2026-01-01T00:00:00Z", "fields": {"uuid": "GPU-2", "power_w": 7}},
                       {"timestamp": "yesterday", "fields": {"uuid": "GPU-2", "power_w": 1}}]"#;
        Frame::new(ContentType::Json, 2, text)
    }

    #[tokio::test]
    async fn a_frame_that_makes_decoding_panic_is_a_dead_letter_at_once_and_after_a_restart_gone() {
        let folder = tempfile::tempdir().unwrap();
        let [mq, data] = ["mq", "data"].map(|name| folder.path().join(name));
        let open = async || {
            let (queue, opened) = Queue::open(&mq, QueueConfig::default(), Clock::system()).await.unwrap();
            (queue, opened, Store::open(StoreConfig::new(&data)).unwrap().0)
        };
        let (queue, _, store) = open().await;
        for frame in [row("GPU-1"), poison(), row("GPU-3")] {
            queue.publish("gpus", frame).await.unwrap();
        }
        queue.shutdown().await;
        store.close().await.unwrap();
        drop((queue, store));

        for life in 0..2 {
            let _defect = trap("message refused", u64::MAX);
            let (queue, opened, store) = open().await;
            assert_eq!((opened.messages, opened.dead_letters), if life == 0 { (4, 0) } else { (0, 1) });
            let progress = Arc::new(Progress::new());
            let reasons = collected_from(&queue, &store, Arc::clone(&progress)).await;
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert!(
                reasons[0].contains("panicked while decoding the frame: index out of bounds"),
                "{reasons:?}"
            );
            assert_eq!(queue.topic_stats("gpus").unwrap().redelivered, 0, "at once");
            let powers = ["GPU-1", "GPU-2", "GPU-3"].map(|gpu| power(&store, gpu));
            assert_eq!(powers, [Some(7.0), None, Some(7.0)]);
            assert_eq!(count(&progress.rows_stored), if life == 0 { 2 } else { 0 });
            store.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_frame_that_makes_storing_panic_is_a_dead_letter_and_the_others_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
        let progress = Arc::new(Progress::new());
        // Where storing goes on after a failure it says so. It panics with both frames, and then with the first alone.
        progress.not_stored("a full disk");
        let _defect = trap("the store takes rows again", 2);
        let queue = queue_with(vec![row("GPU-1"), row("GPU-2")]).await;
        let reasons = collected_from(&queue, &store, Arc::clone(&progress)).await;
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("panicked while storing the frame: index out of bounds"), "{reasons:?}");
        assert_eq!(power(&store, "GPU-2"), Some(7.0));
        store.close().await.unwrap();
    }
}
