use std::sync::atomic::AtomicU64;

use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_queue::link::Client;
use gpuvitals_queue::{ConsumerOptions, ContentType, Encoding, Frame, Queue, QueueClock, QueueConfig};
use gpuvitals_rig::waiting::{soon, watched};
use gpuvitals_store::{FileSteps, Store, StoreConfig};

use super::*;

/// A queue with these frames in it, before anybody takes from it.
async fn queue_with(frames: Vec<Frame>) -> Queue {
    let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
    for frame in frames {
        queue.publish("gpus", frame).await.unwrap();
    }
    queue
}

/// A worker of a queue, once it has joined.
async fn at_work(
    queue: &Queue,
    store: &Store,
    progress: Arc<CollectorProgress>,
) -> impl Future<Output = Ended> + use<> {
    let member = Member {
        client: Client::in_process(queue.clone()),
        topic: "gpus".into(),
        group: "store".into(),
        options: ConsumerOptions::default(),
    };
    let consumer = member.join().await.unwrap();
    let terms = Terms {
        sink: Arc::new(store.clone()),
        progress,
        ack_timeout: Duration::from_secs(5),
        stop: CancellationToken::new(),
        abandon: CancellationToken::new(),
    };
    work(consumer, member, terms)
}

/// What became of a queue's frames that one worker took until the queue was empty.
async fn collected_from(queue: &Queue, store: &Store, progress: Arc<CollectorProgress>) -> Vec<String> {
    let worker = tokio::spawn(at_work(queue, store, progress).await);
    let is_empty = || {
        assert!(!worker.is_finished(), "the worker ended before the queue was empty");
        queue.topic_stats("gpus").unwrap().messages == 0
    };
    watched("an empty queue", is_empty).await;
    let drained = queue.shutdown().await;
    assert!(matches!(soon("the worker's end", worker).await.unwrap(), Ended::Queue(ReceiveError::Closed)));
    assert!(drained.left.is_empty(), "everything was settled: {drained:?}");
    let dead = queue.dead_letters("gpus", 0, 10).await.unwrap();
    dead.iter().map(|letter| letter.facts.reason.to_string()).collect()
}

async fn collected(frames: Vec<Frame>) -> (Store, Arc<CollectorProgress>, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
    let progress = Arc::new(CollectorProgress::new());
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
        "1 row with a time more than an hour ahead of the collector's clock; the first of GPU GPU-2 on host n2 at \
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
            && self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
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
    let text =
        format!(r#"{{"timestamp": "2026-01-01T00:00:00Z", "fields": {{"uuid": "{uuid}", "power_w": 7}}}}"#);
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
        let (queue, opened) = Queue::open(&mq, QueueConfig::default(), QueueClock::system()).await.unwrap();
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
        let progress = Arc::new(CollectorProgress::new());
        let reasons = collected_from(&queue, &store, Arc::clone(&progress)).await;
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("panicked while decoding the frame: index out of bounds"), "{reasons:?}");
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
    let progress = Arc::new(CollectorProgress::new());
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

#[tokio::test]
async fn a_worker_whose_store_failed_ends_and_the_next_one_has_its_frames() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let open = || {
        let config = StoreConfig::new(folder.path());
        Store::open_on(config, disk.clone(), FileSteps::default()).unwrap().0
    };
    let store = open();
    let queue = queue_with(vec![row("GPU-1"), row("GPU-2")]).await;
    disk.fail_call(Some(Op::SyncData), 0, Fault::Error(std::io::ErrorKind::Other));
    let ended = at_work(&queue, &store, Arc::new(CollectorProgress::new())).await.await;
    assert!(matches!(ended, Ended::SinkFailed(SinkError::Failed(_))), "{ended:?}");
    assert_eq!(queue.topic_stats("gpus").unwrap().messages, 2, "nothing was acknowledged");
    store.close().await.unwrap_err();
    drop(store);

    let store = open();
    assert_eq!(
        collected_from(&queue, &store, Arc::new(CollectorProgress::new())).await,
        Vec::<String>::new()
    );
    assert_eq!(["GPU-1", "GPU-2"].map(|gpu| power(&store, gpu)), [Some(7.0), Some(7.0)]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_with_bad_rows_waits_while_the_queue_takes_no_dead_letters() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), FaultDisk::new());
    let (store, _) = Store::open(StoreConfig::new(folder.path())).unwrap();
    let (queue, _) =
        Queue::open_on(disk.clone(), QueueConfig::default(), QueueClock::system()).await.unwrap();
    let progress = Arc::new(CollectorProgress::new());
    let worker = at_work(&queue, &store, Arc::clone(&progress)).await;
    queue.publish("gpus", poison()).await.unwrap();
    let length: usize = disk.names().iter().filter_map(|name| Some(disk.contents(name)?.len())).sum();
    disk.set_capacity(Some(length as u64 + (1 << 20)));
    for size in [64 << 10, 1 << 10, 1] {
        while queue.publish("filler", Frame::new(ContentType::Json, 1, vec![b' '; size])).await.is_ok() {}
    }
    let worker = tokio::spawn(worker);
    let is_not_well = || {
        assert!(!worker.is_finished());
        progress.health().status != gpuvitals_core::Status::Healthy
    };
    watched("a word of the full disk", is_not_well).await;
    let reason = progress.health().reason;
    assert!(reason.starts_with("the queue takes no dead letters: "), "{reason}");
    assert_eq!(power(&store, "GPU-2"), Some(7.0), "its good row is stored");
    assert_eq!(queue.topic_stats("gpus").unwrap().messages, 2, "it is not acknowledged");
    disk.set_capacity(None);
    watched("an empty queue", || queue.topic_stats("gpus").unwrap().messages == 0).await;
    assert_eq!(queue.dead_letters("gpus", 0, 10).await.unwrap().len(), 1);
    assert_eq!(progress.health().status, gpuvitals_core::Status::Healthy);
    queue.shutdown().await;
    assert!(matches!(soon("the worker's end", worker).await.unwrap(), Ended::Queue(ReceiveError::Closed)));
    store.close().await.unwrap();
}
