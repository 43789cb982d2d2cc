use std::path::Path;

use gpuvitals_log::fault::{FaultDisk, Op};
use gpuvitals_queue::link::{Client, Credentials};
use gpuvitals_queue::{Consumer as _, ContentType, PublishError, Receipt};
use gpuvitals_rig::waiting::{soon, watched};
use tempfile::TempDir;

use super::*;

const LIMIT: Duration = Duration::from_mins(1);

/// Why a frame is refused, by its number.
type Refuse = fn(u64) -> Option<PublishError>;

/// An upstream queue that refuses frames on demand; it counts the attempts.
#[derive(Clone)]
struct Upstream {
    queue: Queue,
    refuse: Arc<Mutex<Refuse>>,
    tries: Arc<AtomicU64>,
}

impl Upstream {
    fn new(refuse: Refuse) -> Self {
        let config = QueueConfig { max_bytes: 1 << 30, ..QueueConfig::default() };
        let queue = Queue::in_process(config, QueueClock::system());
        Self { queue, refuse: Arc::new(Mutex::new(refuse)), tries: Arc::default() }
    }

    fn refuses(&self, refuse: Refuse) {
        *lock(&self.refuse) = refuse;
    }

    /// The numbers that came, in their order, and how many frames came again.
    async fn came(&self) -> (Vec<u64>, u64) {
        let Ok(stats) = self.queue.topic_stats("t") else { return (Vec::new(), 0) };
        let mut reader = self.queue.subscribe("t", "reader", &ConsumerOptions::default()).await.unwrap();
        let mut numbers = Vec::new();
        while (numbers.len() as u64) < stats.frames {
            for delivery in soon("a frame that is held", reader.receive()).await.unwrap() {
                numbers.push(number(&delivery.frame));
                reader.ack(&[delivery.id]).await.unwrap();
            }
        }
        (numbers, stats.duplicates)
    }
}

impl Producer for Upstream {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let refusal = lock(&self.refuse)(number(&frame));
        match refusal {
            Some(error) => Err(error),
            None => self.queue.publish("t", frame).await,
        }
    }
}

fn takes(_: u64) -> Option<PublishError> {
    None
}

#[expect(clippy::unnecessary_wraps, reason = "it is a Refuse")]
fn away(_: u64) -> Option<PublishError> {
    Some(PublishError::Unavailable { reason: "away".into() })
}

fn number(frame: &Frame) -> u64 {
    u64::from_le_bytes(*frame.payload.first_chunk().unwrap())
}

/// A frame of one row.
fn frame(number: u64, bytes: usize) -> Frame {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(bytes.max(8), 7);
    Frame::new(ContentType::Batch, 1, payload)
}

/// Hands over frames of one row each, with this many bytes.
async fn hand_over(spool: &Spool, numbers: std::ops::Range<u64>, bytes: usize) {
    for number in numbers {
        spool.hand_over(frame(number, bytes));
        if number % 64 == 63 {
            // A node has far fewer at once.
            until(spool, |_| spool_has_taken(spool)).await;
        }
    }
}

fn spool_has_taken(spool: &Spool) -> bool {
    lock(&spool.arrivals).as_ref().is_none_or(|arrivals| arrivals.capacity() == ARRIVALS_MAX)
}

async fn until(spool: &Spool, is_so: impl Fn(&SpoolStats) -> bool) -> SpoolStats {
    let mut events = spool.shared.away.subscribe();
    let reached = async {
        while !is_so(&spool.stats()) {
            events.changed().await.unwrap();
        }
    };
    let in_time = timeout(LIMIT, reached).await;
    assert!(in_time.is_ok(), "{:?}", spool.stats());
    spool.stats()
}

async fn open(upstream: &Upstream, directory: Option<&Path>) -> Spool {
    Spool::open(upstream.clone(), directory.map(Path::to_path_buf), LIMIT_MIN).await.unwrap()
}

async fn open_on(upstream: &Upstream, disk: &FaultDisk, start: Millis) -> Spool {
    let clock = QueueClock::starting_at(start);
    let quick = QueueConfig { sync_every: Duration::from_millis(10), ..config(LIMIT_MIN) };
    let (queue, _) = Queue::open_on(disk.clone(), quick, clock).await.unwrap();
    Spool::around(upstream.clone(), queue, SpoolPlace::Disk, clock).await.unwrap()
}

/// The directory as a process leaves it that is killed now.
fn as_killed(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn bytes_in(directory: &Path) -> u64 {
    // A segment may be renamed or removed meanwhile.
    let lengths = std::fs::read_dir(directory).unwrap().map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    lengths.flatten().sum()
}

#[tokio::test]
async fn what_came_while_the_queue_was_away_is_sent_oldest_first_and_before_new_rows() {
    let folder = tempfile::tempdir().unwrap();
    for directory in [None, Some(folder.path())] {
        let upstream = Upstream::new(away);
        let spool = open(&upstream, directory).await;
        hand_over(&spool, 0..100, 8).await;
        let stats = until(&spool, |stats| stats.kept == 100 && stats.away.is_some()).await;
        assert_eq!(&*stats.away.unwrap().reason, "queue is not available: away");
        assert_eq!((stats.taken, stats.dropped, stats.kept_bytes > 800), (0, 0, true));
        upstream.refuses(takes);
        hand_over(&spool, 100..110, 8).await;
        let stats = spool.finish(LIMIT).await;
        assert_eq!((stats.kept, stats.taken, stats.taken_frames, stats.dropped), (0, 110, 110, 0));
        assert_eq!(stats.away, None);
        assert_eq!(upstream.came().await, ((0..110).collect(), 0));
    }
}

#[tokio::test]
async fn a_killed_spool_is_sent_by_the_next_one_and_what_was_sent_before_the_kill_is_a_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::new(away);
    let spool = open(&upstream, Some(folder.path())).await;
    hand_over(&spool, 0..100, 8).await;
    until(&spool, |stats| stats.kept == 100).await;
    // Killed after it sent them all, and before anything of that was written.
    let killed = as_killed(folder.path());
    upstream.refuses(takes);
    assert_eq!(spool.finish(LIMIT).await.kept, 0);
    let next = open(&upstream, Some(killed.path())).await;
    until(&next, |stats| stats.taken == 100).await;
    assert_eq!(next.finish(LIMIT).await.kept, 0);
    assert_eq!(upstream.came().await, ((0..100).collect(), 100));
}

#[tokio::test]
async fn a_frame_whose_answer_was_lost_is_stored_once() {
    let upstream = Upstream::new(takes);
    let lossy = Lossy(upstream.clone(), AtomicU64::new(0));
    let spool = Spool::open(lossy, None, LIMIT_MIN).await.unwrap();
    hand_over(&spool, 0..20, 8).await;
    assert_eq!(spool.finish(LIMIT).await.taken, 20);
    let (mut numbers, duplicates) = upstream.came().await;
    numbers.sort_unstable();
    assert_eq!((numbers, duplicates), ((0..20).collect(), 7));
}

/// Loses every third answer.
struct Lossy(Upstream, AtomicU64);

impl Producer for Lossy {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let receipt = self.0.publish(frame).await?;
        let is_lost = !receipt.duplicate && self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
        if is_lost { Err(PublishError::Unavailable { reason: "no answer".into() }) } else { Ok(receipt) }
    }
}

#[tokio::test]
async fn the_disk_holds_at_most_the_limit_with_dead_letters_and_the_oldest_rows_go_counted() {
    let folder = tempfile::tempdir().unwrap();
    // Dead letters at the beginning of the log, and then nothing leaves it in order.
    let upstream = Upstream::new(|number| {
        (number < 80).then(|| PublishError::Malformed { reason: "no frame".into() }).or_else(|| away(number))
    });
    let clock = QueueClock::system();
    // The log lets go of segments whenever it syncs: more often here, since far more is written than by a node.
    let quick = QueueConfig { sync_every: SYNC_PAUSE / 100, ..config(LIMIT_MIN) };
    let (queue, _) = Queue::open(folder.path(), quick, clock).await.unwrap();
    let spool = Spool::around(upstream.clone(), queue, SpoolPlace::Disk, clock).await.unwrap();
    for batch in 0..60 {
        hand_over(&spool, batch * 64..(batch + 1) * 64, 8 << 10).await;
        watched("room on the disk", || bytes_in(folder.path()) <= LIMIT_MIN).await;
    }
    let stats = until(&spool, |stats| stats.kept + stats.dropped + stats.dead == 60 * 64).await;
    assert!(stats.dead == 80 && stats.dropped > 2_000 && stats.kept > 100, "{stats:?}");
    upstream.refuses(takes);
    let kept = spool.finish(LIMIT).await;
    assert_eq!(kept.kept, 0);
    let (numbers, duplicates) = upstream.came().await;
    assert_eq!((duplicates, numbers.last()), (0, Some(&(60 * 64 - 1))), "the newest are kept");
    assert!(numbers.len() as u64 >= stats.kept && numbers.is_sorted(), "{} rows", numbers.len());
}

#[tokio::test(start_paused = true)]
async fn memory_holds_at_most_its_bound_and_what_is_left_at_the_end_is_counted() {
    for (limit, comes) in [(MEMORY_MAX / 4, false), (MEMORY_MAX, false), (MEMORY_MAX * 2, true)] {
        let upstream = Upstream::new(away);
        let spool = Spool::open(upstream.clone(), None, limit).await.unwrap();
        hand_over(&spool, 0..1_280, 16 << 10).await;
        let stats = until(&spool, |stats| stats.kept + stats.dropped == 1_280).await;
        let bound = limit.min(MEMORY_MAX);
        assert!((bound * 3 / 4..=bound).contains(&stats.kept_bytes), "{limit}: {stats:?}");
        if comes {
            upstream.refuses(takes);
        }
        let end = spool.finish(Duration::from_secs(1)).await;
        let lost = if comes { stats.dropped } else { 1_280 };
        assert_eq!((end.kept, end.dropped), (0, lost));
        let (numbers, _) = upstream.came().await;
        let newest: Vec<_> = (lost..1_280).collect();
        assert!(numbers.ends_with(&newest) && numbers.is_sorted(), "the oldest went: {numbers:?}");
    }
}

#[tokio::test]
async fn a_frame_that_the_queue_will_never_take_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::new(|number| match number {
        3 => Some(PublishError::TooLarge { messages: 1, bytes: 8 }),
        5 => Some(PublishError::Malformed { reason: "no frame".into() }),
        _ => None,
    });
    let spool = open(&upstream, Some(folder.path())).await;
    hand_over(&spool, 0..20, 8).await;
    let stats = spool.finish(LIMIT).await;
    assert_eq!((stats.taken, stats.dead, stats.kept, stats.dropped), (18, 2, 0, 0));
    let expected: Vec<u64> = (0..20).filter(|number| ![3, 5].contains(number)).collect();
    assert_eq!(upstream.came().await, (expected, 0));
    drop(spool);
    // A broker that is given the directory has what was refused.
    let (queue, _) = Queue::open(folder.path(), QueueConfig::default(), QueueClock::system()).await.unwrap();
    let letters = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    let mut refused: Vec<_> = letters.iter().map(|letter| number(&letter.frame)).collect();
    refused.sort_unstable();
    assert_eq!(refused, [3, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_token_or_topic_is_waited_for_and_tried_with_one_frame() {
    for refusal in [
        (|_| Some(PublishError::Denied { reason: "unknown token".into() })) as Refuse,
        |_| Some(PublishError::Refused { reason: "queue has its 3 topics already".into() }),
        |_| Some(PublishError::full("t", None)),
    ] {
        let upstream = Upstream::new(refusal);
        let spool = open(&upstream, None).await;
        hand_over(&spool, 0..64, 8).await;
        until(&spool, |stats| stats.kept == 64 && stats.away.is_some()).await;
        tokio::time::advance(Duration::from_millis(1)).await;
        timeout(Duration::from_hours(24), std::future::pending::<()>()).await.unwrap_err();
        let tries = upstream.tries.load(Ordering::Relaxed);
        assert!((8_640..40_000).contains(&tries), "{tries} tries in a day");
        let stats = spool.stats();
        assert_eq!((stats.kept, stats.dead, stats.dropped), (64, 0, 0));
        upstream.refuses(takes);
        assert_eq!(spool.finish(LIMIT).await.taken, 64);
        assert_eq!(upstream.came().await, ((0..64).collect(), 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_holds_rows_up_and_loses_none_before_too_many_wait() {
    let (upstream, disk) = (Upstream::new(away), FaultDisk::new());
    let spool = open_on(&upstream, &disk, Millis(1_000_000)).await;
    let length: usize = disk.names().iter().filter_map(|name| Some(disk.contents(name)?.len())).sum();
    disk.set_capacity(Some(length as u64 + (300 << 10)));
    // More than fits into the segments that there are and the rest of the disk.
    hand_over(&spool, 0..63, 16 << 10).await;
    let is_full = || spool.shared.queue().health().reasons.iter().any(|why| why.contains("cannot store"));
    until(&spool, |_| is_full()).await;
    assert!(spool.stats().kept < 63);
    for number in 63..400 {
        spool.hand_over(frame(number, 8));
    }
    let stats = spool.stats();
    let waiting = 400 - stats.kept - stats.dropped;
    assert!(stats.kept < 63 && (250..=ARRIVALS_MAX as u64 + 1).contains(&waiting), "{stats:?}");
    disk.set_capacity(None);
    let arrived = 400 - stats.dropped;
    until(&spool, |stats| stats.kept == arrived).await;
    upstream.refuses(takes);
    let stats = spool.finish(LIMIT).await;
    assert_eq!((stats.taken, stats.taken + stats.dropped, stats.failed), (arrived, 400, None));
    assert_eq!(upstream.came().await.0, (0..arrived).collect::<Vec<_>>());
}

#[tokio::test]
async fn after_a_failed_sync_it_goes_on_in_memory_and_the_next_start_sends_the_backlog() {
    goes_on_in_memory(async |spool, disk| {
        disk.fail_all(Op::SyncData, Some(std::io::ErrorKind::Other));
        hand_over(spool, 40..41, 8).await;
        let stats = until(spool, |stats| stats.failed.is_some()).await;
        assert!(!stats.failed.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn where_the_disk_does_not_answer_it_goes_on_in_memory_too() {
    goes_on_in_memory(async |spool, disk| {
        disk.hold_syncs();
        hand_over(spool, 40..41, 8).await;
        let held = disk.clone();
        tokio::task::spawn_blocking(move || held.wait_for_held_sync()).await.unwrap();
        spool.hand_over(frame(41, 8));
        tokio::time::pause();
        let stats = until(spool, |stats| stats.failed.is_some()).await;
        tokio::time::resume();
        assert_eq!(stats.failed.as_deref(), Some("no answer from the disk within 30s"));
    })
    .await;
}

/// Makes the log of a spool fail, with frames 40 and 41, and looks at what becomes of the others.
async fn goes_on_in_memory(fail: impl AsyncFnOnce(&Spool, &FaultDisk)) {
    let (upstream, disk) = (Upstream::new(away), FaultDisk::new());
    let spool = open_on(&upstream, &disk, Millis(1_000_000)).await;
    hand_over(&spool, 0..40, 8).await;
    until(&spool, |stats| stats.kept == 40).await;
    spool.finish(Duration::ZERO).await;
    let spool = open_on(&upstream, &disk, Millis(1_000_000)).await;
    fail(&spool, &disk).await;
    hand_over(&spool, 42..51, 8).await;
    until(&spool, |stats| stats.kept >= 9).await;
    upstream.refuses(takes);
    assert_eq!(spool.finish(LIMIT).await.kept, 0);
    let (numbers, _) = upstream.came().await;
    assert!((42..51).all(|number| numbers.contains(&number)), "{numbers:?}");
    disk.fail_all(Op::SyncData, None);
    let next = open_on(&upstream, &disk.crashed(1), Millis(1_000_000)).await;
    let sent = next.finish(LIMIT).await;
    assert!((40..=42).contains(&sent.taken) && sent.kept == 0, "{sent:?}");
    let (backlog, _) = upstream.came().await;
    assert!((0..40).all(|number| backlog.contains(&number)), "{backlog:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_does_not_answer_is_waited_for_only_so_long_at_the_end() {
    let (upstream, disk) = (Upstream::new(away), FaultDisk::new());
    let spool = open_on(&upstream, &disk, Millis(1_000_000)).await;
    hand_over(&spool, 0..5, 8).await;
    until(&spool, |stats| stats.kept == 5).await;
    disk.hold_syncs();
    let end = timeout(CLOSE_LIMIT * 3, spool.finish(Duration::from_millis(10))).await;
    assert!(end.is_ok(), "the end waits for the disk");
    disk.release_syncs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_between_two_starts_loses_nothing() {
    let (upstream, disk) = (Upstream::new(away), FaultDisk::new());
    let now = 1_800_000_000_000;
    let hour = 3_600_000;
    for (start, numbers) in [(now, 0..20), (now - hour, 20..40), (now + 9_000 * hour, 40..60)] {
        let spool = open_on(&upstream, &disk, Millis(start)).await;
        let end = numbers.end;
        hand_over(&spool, numbers, 8).await;
        until(&spool, |stats| stats.kept == end).await;
        spool.finish(Duration::ZERO).await;
    }
    upstream.refuses(takes);
    let spool = open_on(&upstream, &disk, Millis(now)).await;
    assert_eq!(spool.finish(LIMIT).await.taken, 60);
    assert_eq!(upstream.came().await, ((0..60).collect(), 0));
}

#[tokio::test]
async fn a_directory_is_used_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::new(takes);
    let spool = open(&upstream, Some(folder.path())).await;
    let second = Spool::open(upstream.clone(), Some(folder.path().to_path_buf()), LIMIT_MIN).await;
    assert!(matches!(second, Err(SpoolError::Open(OpenError::Locked { .. }))), "{second:?}");
    spool.finish(LIMIT).await;
}

/// Fills a spool to its limit, and sends it over the network to a broker that syncs. With `GPUVITALS_TEST_LONG` the limit is the
/// default one, and the time that it takes is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_drains_over_the_network_before_new_rows() {
    let limit = if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 256 << 20 } else { LIMIT_MIN };
    let folder = tempfile::tempdir().unwrap();
    let clock = QueueClock::system();
    let (queue, _) = Queue::open(folder.path().join("spool"), config(limit), clock).await.unwrap();
    let stamps = Stamps::new();
    // 500 rows in 8.5 KB, as a batch has them.
    let frame = |number: u64| {
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(8_500, 7);
        stamps.stamp(Frame::new(ContentType::Batch, 500, payload))
    };
    // One frame less than the room: the new one.
    let frames = config(limit).max_bytes / frame(0).cost_bytes() - 1;
    for number in 0..frames {
        queue.publish(TOPIC, frame(number)).await.unwrap();
    }
    let config = QueueConfig { max_messages: 1 << 40, max_bytes: 1 << 30, ..QueueConfig::default() };
    let (broker, _) = Queue::open(folder.path().join("broker"), config, clock).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string().parse().unwrap();
    let stop = CancellationToken::new();
    let server = gpuvitals_queue::server::ServerConfig::default();
    let serving =
        tokio::spawn(gpuvitals_queue::server::serve(listener, broker.clone(), server, stop.clone()));
    let producer = Client::new(url, Credentials::default()).producer("t").unwrap();
    let began = tokio::time::Instant::now();
    let spool = Spool::around(producer, queue, SpoolPlace::Disk, clock).await.unwrap();
    spool.hand_over(frame(frames));
    let stats = spool.finish(LIMIT * 10).await;
    let took = began.elapsed();
    assert_eq!((stats.taken_frames, stats.kept, stats.dropped), (frames + 1, 0, 0));
    let mut reader = broker.subscribe("t", "reader", &ConsumerOptions::default()).await.unwrap();
    let mut next = 0;
    while next <= frames {
        for delivery in soon("a frame that is held", reader.receive()).await.unwrap() {
            assert_eq!(number(&delivery.frame), next, "oldest first");
            next += 1;
            reader.ack(&[delivery.id]).await.unwrap();
        }
    }
    eprintln!("{} rows in {frames} frames drained in {took:?}", frames * 500);
    stop.cancel();
    serving.await.unwrap().unwrap();
}
