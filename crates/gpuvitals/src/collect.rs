//! From queue to store: decode, validate, make durable, acknowledge.
//!
//! A frame is acknowledged after the store has synced its rows, never before. While the store cannot take rows (a
//! full disk) a worker keeps what it has, extends its leases and tries again; it takes nothing new, so the queue
//! fills and the source slows down. What can never be stored goes to the dead letters with its reason.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::time::FUTURE_MAX_NS;
use gpuvitals_core::{Batch, Health, Origin, Status, causes, message, wire};
use gpuvitals_queue::{
    Consumer, ContentType, Delivery, DeliveryId, InProcessConsumer, Nack, NackKind, SettleError,
};
use gpuvitals_store::{AppendError, Ingest, Store};
use tokio_util::sync::CancellationToken;

use crate::clock;

/// Refused messages of one document that are logged one by one; all are counted.
const REFUSALS_LOGGED: usize = 5;
/// First and longest pause between two tries to store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What the collector did so far, and how it is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Rows made durable.
    pub rows_stored: AtomicU64,
    /// Rows refused because their time lies in the future.
    pub rows_future: AtomicU64,
    /// Messages refused because they are no rows.
    pub messages_refused: AtomicU64,
    /// Tries to store that failed.
    pub store_failures: AtomicU64,
    health: Mutex<Health>,
    /// Since when and why no more rows will come.
    source_broken: OnceLock<Health>,
}

impl Progress {
    /// Nothing yet, and healthy.
    pub(crate) fn new() -> Self {
        Self {
            rows_stored: AtomicU64::new(0),
            rows_future: AtomicU64::new(0),
            messages_refused: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            health: Mutex::new(Health::healthy(clock::now_ns())),
            source_broken: OnceLock::new(),
        }
    }

    /// Notes that the source broke off; that does not pass.
    pub(crate) fn source_broke(&self, reason: &str) {
        let mut health = Health::healthy(0);
        health.observe(Status::Degraded, format!("the source broke off: {reason}"), clock::now_ns());
        self.source_broken.get_or_init(|| health);
    }

    /// How the collector is.
    pub(crate) fn health(&self) -> Health {
        let storing = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.source_broken.get() {
            Some(broken) if storing.status == Status::Healthy => broken.clone(),
            _ => storing,
        }
    }

    fn storing(&self) -> Status {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).status
    }

    fn observe(&self, status: Status, reason: String) {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).observe(status, reason, clock::now_ns());
    }
}

/// One worker, until the queue has nothing more or `abandon` fires. Its leases go back when it ends.
pub(crate) async fn work(
    mut consumer: InProcessConsumer,
    store: Store,
    progress: Arc<Progress>,
    ack_timeout: Duration,
    abandon: CancellationToken,
) {
    loop {
        let deliveries = tokio::select! {
            () = abandon.cancelled() => break,
            received = consumer.receive() => match received {
                Ok(deliveries) => deliveries,
                Err(_closed) => break,
            },
        };
        let taken = take(&deliveries, &progress);
        if !taken.rejected.is_empty() {
            settled(consumer.nack(&taken.rejected).await);
        }
        let ids: Vec<DeliveryId> = taken.items.iter().map(|(id, _)| *id).collect();
        let open = tokio::select! {
            () = abandon.cancelled() => break,
            open = store_and_settle(&consumer, &store, taken.items, &progress) => open,
            () = keep_leases(&consumer, &ids, ack_timeout) => false,
        };
        if !open {
            break;
        }
    }
    consumer.leave().await;
}

/// Makes the rows durable together and acknowledges them. If the store refuses them for good, one by one, so that
/// one bad frame costs only itself. `false` when the store is closed.
async fn store_and_settle(
    consumer: &InProcessConsumer,
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
        match open(delivery, latest, progress) {
            Ok(item) => taken.items.push((delivery.id, item)),
            Err(reason) => taken.rejected.push(reject(delivery.id, reason, progress)),
        }
    }
    taken
}

/// The rows of a frame as they go into the store; none if no row of it may.
fn open(delivery: &Delivery, latest_ns: i64, progress: &Progress) -> Result<Option<Ingest>, String> {
    let payload = &delivery.frame.payload;
    let (batch, encoded) = match delivery.frame.content_type {
        ContentType::Batch => {
            let batch = wire::decode(payload).map_err(|e| causes(&e))?;
            (batch, Some(payload.clone()))
        }
        ContentType::Json => {
            let origin = Origin { node: Arc::clone(&delivery.topic), started_ns: 0 };
            let parsed = message::parse(payload, origin, delivery.id.offset).map_err(|e| causes(&e))?;
            for (index, error) in parsed.refused.iter().take(REFUSALS_LOGGED) {
                tracing::warn!(offset = delivery.id.offset, index, %error, "message refused");
            }
            progress.messages_refused.fetch_add(parsed.refused.len() as u64, Ordering::Relaxed);
            match parsed.batch {
                Some(batch) => (batch, None),
                None => return Err("no message in it can be stored".to_owned()),
            }
        }
    };
    let Some(kept) = without_future(&batch, latest_ns, progress) else { return Ok(None) };
    let encoded = match encoded {
        Some(encoded) if kept.rows() == batch.rows() => encoded,
        _ => wire::encode(&kept).map_err(|e| causes(&e))?,
    };
    Ok(Some(Ingest { batch: kept, encoded }))
}

fn without_future(batch: &Batch, latest_ns: i64, progress: &Progress) -> Option<Batch> {
    if batch.timestamps().iter().all(|&t| t <= latest_ns) {
        return Some(batch.clone());
    }
    let keep: Vec<bool> = batch.timestamps().iter().map(|&t| t <= latest_ns).collect();
    let refused = keep.iter().filter(|kept| !**kept).count();
    progress.rows_future.fetch_add(refused as u64, Ordering::Relaxed);
    tracing::warn!(
        rows = refused,
        "rows refused: their time is more than an hour ahead of this machine's clock"
    );
    batch.filter(&keep)
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
                progress.rows_stored.fetch_add(rows as u64, Ordering::Relaxed);
                if progress.storing() != Status::Healthy {
                    tracing::info!("the store takes rows again");
                    progress.observe(Status::Healthy, String::new());
                }
                return Persisted::Durable;
            }
            Err(AppendError::Closed) => return Persisted::Closed,
            Err(error) if !error.is_retryable() => return Persisted::Refused(causes(&error)),
            Err(error) => error,
        };
        progress.store_failures.fetch_add(1, Ordering::Relaxed);
        let reason = format!("rows cannot be stored: {}", causes(&error));
        if progress.health().reason != reason {
            tracing::error!(
                error = causes(&error),
                "rows cannot be stored; nothing is acknowledged, trying again"
            );
        }
        progress.observe(Status::Degraded, reason);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Extends the leases for as long as it runs. Ends only if they cannot be extended any more.
async fn keep_leases(consumer: &InProcessConsumer, ids: &[DeliveryId], ack_timeout: Duration) {
    loop {
        tokio::time::sleep(ack_timeout / 3).await;
        if let Err(error) = consumer.extend(ids, ack_timeout).await {
            tracing::debug!(%error, "extending leases");
            if matches!(error, SettleError::NotSubscribed) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_queue::{Clock, ConsumerOptions, Frame, Queue, QueueConfig};
    use gpuvitals_store::StoreConfig;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn json_is_stored_and_what_is_no_row_goes_to_the_dead_letters() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
        let queue = Queue::in_process(QueueConfig::default(), Clock::system());
        let consumer = queue.subscribe("gpus", "store", &ConsumerOptions::default()).await.unwrap();
        let progress = Arc::new(Progress::new());
        let worker = tokio::spawn(work(
            consumer,
            store.clone(),
            Arc::clone(&progress),
            Duration::from_secs(5),
            CancellationToken::new(),
        ));
        let document = br#"[
          {"timestamp": "2026-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "power_draw": 402.25}},
          {"timestamp": "yesterday", "fields": {"uuid": "GPU-1", "power_draw": 1}},
          {"timestamp": "2126-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "power_draw": 2}}
        ]"#;
        let frame = |kind, count, payload: &'static [u8]| Frame::new(kind, count, payload);
        queue.publish("gpus", frame(ContentType::Json, 3, document)).await.unwrap();
        queue.publish("gpus", frame(ContentType::Json, 1, b"not json")).await.unwrap();
        queue.publish("gpus", frame(ContentType::Batch, 1, b"GVB1 but no batch")).await.unwrap();
        let drained = queue.shutdown().await;
        worker.await.unwrap();

        assert!(drained.left.is_empty(), "everything was settled: {drained:?}");
        let fleet = store.fleet();
        let gpu = fleet.get("GPU-1").unwrap();
        let power = gpuvitals_core::catalogue::by_column("power_w").unwrap();
        let latest = gpu.latest.iter().find(|(id, _)| *id == power).map(|(_, latest)| latest.value.as_f64());
        assert_eq!(latest, Some(402.25));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((count(&progress.rows_stored), count(&progress.rows_future)), (1, 1));
        assert_eq!(count(&progress.messages_refused), 3);
        let reasons: Vec<String> = queue
            .dead_letters("gpus", 0, 10)
            .await
            .unwrap()
            .iter()
            .map(|letter| letter.reason.to_string())
            .collect();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons.iter().all(|reason| reason.starts_with("rejected by consumer: ")), "{reasons:?}");
        store.close().await.unwrap();
    }
}
