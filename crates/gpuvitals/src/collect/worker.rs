//! One worker: receives, stores, acknowledges.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_core::time::FUTURE_MAX_NS;
use gpuvitals_queue::{Consumer, Delivery, DeliveryId, Nack, NackKind, ReceiveError, SettleError};
use gpuvitals_store::{AppendError, Ingest, Store};
use tokio_util::sync::CancellationToken;

use super::{Progress, opening};
use crate::clock;

/// First and longest pause between two tries to store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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

/// Why a worker ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to.
    Stopped,
    /// The store is closed.
    StoreClosed,
    /// The queue gives it nothing any more.
    Queue(ReceiveError),
}

/// One worker, until it is told to stop or the queue has nothing more. Its leases go back when it ends.
pub(super) async fn work<C: Consumer + Sync>(mut consumer: C, terms: Terms) -> Ended {
    let ended = loop {
        let deliveries = tokio::select! {
            () = terms.stop.cancelled() => break Ended::Stopped,
            () = terms.abandon.cancelled() => break Ended::Stopped,
            received = consumer.receive() => match received {
                Ok(deliveries) => deliveries,
                Err(error) => break Ended::Queue(error),
            },
        };
        let taken = take(&deliveries, &terms.progress);
        if !taken.rejected.is_empty() {
            settled(consumer.nack(&taken.rejected).await);
        }
        let ids: Vec<DeliveryId> = taken.items.iter().map(|(id, _)| *id).collect();
        tokio::select! {
            () = terms.abandon.cancelled() => break Ended::Stopped,
            is_open = store_and_settle(&consumer, &terms.store, taken.items, &terms.progress) => {
                if !is_open {
                    break Ended::StoreClosed;
                }
            }
            error = keep_leases(&consumer, &ids, terms.ack_timeout) => break Ended::Queue(error),
        };
    };
    consumer.leave().await;
    ended
}

/// Makes the rows durable together and acknowledges them. If the store refuses them for good, one by one, so that
/// one bad frame costs only itself. `false` when the store is closed.
async fn store_and_settle<C: Consumer>(
    consumer: &C,
    store: &Store,
    items: Vec<(DeliveryId, Option<Ingest>)>,
    progress: &Progress,
) -> bool {
    let all: Vec<Ingest> = items.iter().filter_map(|(_, item)| item.clone()).collect();
    match persist(store, &all, progress).await {
        Persisted::Durable => {
            let ids: Vec<DeliveryId> = items.iter().map(|(id, _)| *id).collect();
            settled(consumer.ack(&ids).await);
        }
        Persisted::Closed => return false,
        Persisted::Refused(_) => {
            for (id, item) in items {
                match persist(store, &item.into_iter().collect::<Vec<_>>(), progress).await {
                    Persisted::Durable => settled(consumer.ack(&[id]).await),
                    Persisted::Closed => return false,
                    Persisted::Refused(reason) => {
                        settled(consumer.nack(&[reject(id, reason, progress)]).await);
                    }
                }
            }
        }
    }
    true
}

fn reject(id: DeliveryId, reason: String, progress: &Progress) -> Nack {
    progress.messages_refused.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(offset = id.offset, reason, "frame goes to the dead letters");
    Nack { id, rows: None, kind: NackKind::Reject, reason: Arc::from(reason) }
}

/// A delivery that is unknown by now was settled by a redelivery: the rows merged, nothing is wrong.
fn settled(outcome: Result<u64, SettleError>) {
    outcome.map_or_else(|error| tracing::debug!(%error, "settling deliveries"), drop);
}

struct Taken {
    /// What is to be acknowledged once its rows, if any, are durable.
    items: Vec<(DeliveryId, Option<Ingest>)>,
    rejected: Vec<Nack>,
}

fn take(deliveries: &[Delivery], progress: &Progress) -> Taken {
    let mut taken = Taken { items: Vec::with_capacity(deliveries.len()), rejected: Vec::new() };
    let latest = clock::now_ns().saturating_add(FUTURE_MAX_NS);
    for delivery in deliveries {
        match opening::open(delivery, latest, progress) {
            Ok(item) => taken.items.push((delivery.id, item)),
            Err(reason) => taken.rejected.push(reject(delivery.id, reason, progress)),
        }
    }
    taken
}

enum Persisted {
    Durable,
    /// The store will never take one of them.
    Refused(String),
    Closed,
}

/// Tries until the rows are durable, or can never be.
async fn persist(store: &Store, items: &[Ingest], progress: &Progress) -> Persisted {
    if items.is_empty() {
        return Persisted::Durable;
    }
    let rows: usize = items.iter().map(|item| item.batch.rows()).sum();
    let mut pause = BACKOFF.0;
    loop {
        let error = match store.append(items.to_vec()).await {
            Ok(_) => {
                progress.stored(rows);
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

/// Extends the leases for as long as it runs. Ends only if they cannot be extended any more.
async fn keep_leases<C: Consumer>(consumer: &C, ids: &[DeliveryId], ack_timeout: Duration) -> ReceiveError {
    loop {
        tokio::time::sleep(ack_timeout / 3).await;
        match consumer.extend(ids, ack_timeout).await {
            Ok(()) => {}
            Err(SettleError::NotSubscribed) => return ReceiveError::NotSubscribed,
            // Of a lease that is over the rows come again, and merge.
            Err(error) => tracing::debug!(%error, "extending leases"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use gpuvitals_queue::{Clock, ConsumerOptions, ContentType, Encoding, Frame, Queue, QueueConfig};
    use gpuvitals_store::StoreConfig;

    use super::*;

    /// What became of frames that one worker took until the queue was empty.
    async fn collected(frames: Vec<Frame>) -> (Store, Arc<Progress>, Vec<String>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
        let queue = Queue::in_process(QueueConfig::default(), Clock::system());
        let consumer = queue.subscribe("gpus", "store", &ConsumerOptions::default()).await.unwrap();
        let progress = Arc::new(Progress::new());
        let worker = tokio::spawn(work(
            consumer,
            Terms {
                store: store.clone(),
                progress: Arc::clone(&progress),
                ack_timeout: Duration::from_secs(5),
                stop: CancellationToken::new(),
                abandon: CancellationToken::new(),
            },
        ));
        for frame in frames {
            queue.publish("gpus", frame).await.unwrap();
        }
        let drained = queue.shutdown().await;
        assert!(matches!(worker.await.unwrap(), Ended::Queue(ReceiveError::Closed)));
        assert!(drained.left.is_empty(), "everything was settled: {drained:?}");
        let dead = queue.dead_letters("gpus", 0, 10).await.unwrap();
        (store, progress, dead.iter().map(|letter| letter.reason.to_string()).collect(), folder)
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
          {"timestamp": "yesterday", "fields": {"uuid": "GPU-1", "power_draw": 1}},
          {"timestamp": "2126-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "power_draw": 2}}
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
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons.iter().all(|reason| reason.starts_with("rejected by consumer: ")), "{reasons:?}");
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
}
