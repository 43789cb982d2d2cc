//! State that outlives the process.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::{Client, Credentials, Stamps, publish_until};
use gpuvitals_queue::{Consumer, ContentType, Frame, FrameDurability, Nack, NackKind, Producer as _};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting;
use tokio_util::sync::CancellationToken;

use crate::process::{Broker, agent, consumer, message, outcome, receive};

fn over(folder: &Path, more: &[&str]) -> Broker {
    let mut arguments = vec!["--persistence-path", folder.to_str().unwrap()];
    arguments.extend(more);
    Broker::start(&arguments)
}

#[tokio::test]
async fn a_restart_keeps_what_was_not_acknowledged_and_what_groups_have_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let broker = over(folder.path(), &[]);
    for n in 0..4 {
        let frame = Frame::new(ContentType::Json, 1, message(n, 100)).stamped("me", n.into());
        assert_eq!(broker.publish("t", frame).await.durability, FrameDurability::Synced);
    }
    let mut reader = broker.consumer("t", "g");
    let mut delivered = Vec::new();
    while delivered.len() < 4 {
        delivered.extend(receive(&mut reader).await);
    }
    assert_eq!(reader.ack(&[delivered[0].id, delivered[1].id]).await.unwrap(), 2);
    let reject = Nack { id: delivered[2].id, kind: NackKind::Reject, reason: "unreadable".into() };
    assert_eq!(reader.nack(&[reject]).await.unwrap(), 1);
    reader.leave().await;
    assert_eq!(broker.terminate(), Some(0));

    let broker = over(folder.path(), &[]);
    let again = Frame::new(ContentType::Json, 1, message(3, 100)).stamped("me", 3);
    assert!(broker.publish("t", again).await.duplicate, "a repeat is known after a restart");
    let mut reader = broker.consumer("t", "g");
    let left = receive(&mut reader).await;
    let offsets: Vec<u64> = left.iter().map(|delivery| delivery.id.offset).collect();
    assert_eq!(offsets, [3]);
    let figures = agent().get(format!("{}/metrics", broker.http)).call().unwrap();
    let figures = figures.into_body().read_to_string().unwrap();
    let free = figures.lines().find_map(|line| line.strip_prefix("gpuvitals_queue_disk_free_bytes "));
    assert!(free.is_some_and(|bytes| bytes.parse::<f64>().unwrap() > 0.0), "{figures}");
    let (_, dead) = broker.get("/topics/t/dead");
    assert_eq!(dead["dead"][0]["reason"], "rejected by consumer: unreadable");
    let health = broker.get("/health").1;
    assert_eq!(health["status"], "degraded");
    assert!(health["reason"].as_str().unwrap().contains("topic t has dead letters: 1 message;"), "{health}");
}

#[tokio::test]
async fn a_directory_in_the_settings_file_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kept) = (folder.path().join("gpuvitals.yaml"), folder.path().join("mq"));
    let started = |settings: String| {
        std::fs::write(&file, settings).unwrap();
        Broker::start(&["--config", file.to_str().unwrap()])
    };
    let broker = started(format!("broker:\n  persistence_path: {}\n", kept.display()));
    let frame = || Frame::new(ContentType::Json, 1, message(0, 1));
    assert_eq!(broker.publish("t", frame()).await.durability, FrameDurability::Synced);
    assert!(broker.log().contains("the queue is open"));

    let broker = started("broker:\n  durability: written\n".to_owned());
    assert_eq!(broker.publish("t", frame()).await.durability, FrameDurability::Memory);
    let log = broker.log();
    assert!(
        log.contains("the queue keeps nothing on disk") && log.contains("the queue is in memory"),
        "{log}"
    );
}

#[tokio::test]
async fn a_receipt_says_how_safe_the_frame_is() {
    for (level, given) in [
        ("memory", FrameDurability::Memory),
        ("written", FrameDurability::Written),
        ("synced", FrameDurability::Synced),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let broker = over(folder.path(), &["--durability", level]);
        let frame = Frame::new(ContentType::Json, 1, message(0, 1));
        assert_eq!(broker.publish("t", frame).await.durability, given);
    }
}

#[test]
fn a_directory_belongs_to_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let _first = over(folder.path(), &[]);
    let second = gpuvitals!()
        .args(["broker", "--port", "0", "--persistence-path"])
        .arg(folder.path())
        .finished()
        .unwrap();
    let (code, _, errors) = outcome(&second);
    assert_eq!(code, Some(69), "{errors}");
    assert!(errors.contains(folder.path().to_str().unwrap()), "{errors}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("mq");
    let output =
        gpuvitals!().args(["broker", "--port", "0", "--persistence-path"]).arg(&inside).finished().unwrap();
    let (code, _, errors) = outcome(&output);
    assert_eq!(code, Some(74), "{errors}");
    assert!(errors.contains(inside.to_str().unwrap()), "{errors}");
}

/// Publishes numbered frames, each until it is taken, and notes which were.
async fn publish(url: Arc<Mutex<String>>, taken: Arc<Mutex<BTreeSet<u64>>>, stop: CancellationToken) -> u64 {
    let stamps = Stamps::new();
    let mut next = 0;
    while !stop.is_cancelled() {
        let frame = stamps.stamp(Frame::new(ContentType::Json, 1, next.to_string()));
        loop {
            // A restarted broker of this test has other ports.
            let now = url.lock().unwrap().parse().unwrap();
            let producer = Client::new(now, Credentials::default()).producer("t").unwrap();
            let soon = CancellationToken::new();
            let quick = Backoff { base: Duration::from_millis(5), cap: Duration::from_millis(20) };
            let published = publish_until(&producer, frame.clone(), &soon, &quick);
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(2), published).await {
                taken.lock().unwrap().insert(next);
                break;
            }
        }
        next += 1;
    }
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = over(folder.path(), &[]);
    let url = Arc::new(Mutex::new(broker.grpc.clone()));
    let taken = Arc::new(Mutex::new(BTreeSet::new()));
    let stop = CancellationToken::new();
    let publishing = tokio::spawn(publish(Arc::clone(&url), Arc::clone(&taken), stop.clone()));
    for _ in 0..3 {
        let before = taken.lock().unwrap().len();
        tokio::task::block_in_place(|| {
            waiting::until("a frame", || taken.lock().unwrap().len(), |taken| *taken >= before + 20)
        });
        broker.process.kill();
        broker = over(folder.path(), &[]);
        url.lock().unwrap().clone_from(&broker.grpc);
    }
    stop.cancel();
    let sent = waiting::soon("the end of publishing", publishing).await.unwrap();
    let taken = taken.lock().unwrap().clone();
    let mut seen = BTreeSet::new();
    let mut reader = broker.consumer("t", "late");
    while seen.len() < taken.len() {
        let deliveries = receive(&mut reader).await;
        for delivery in &deliveries {
            let number = std::str::from_utf8(&delivery.frame.payload).unwrap().parse().unwrap();
            assert!(number < sent, "{number} was never sent");
            assert!(seen.insert(number), "{number} came twice: the repeat was not recognised");
        }
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        reader.ack(&ids).await.unwrap();
    }
    assert_eq!(seen, taken);
}

/// The file that contains some bytes, and their offset.
fn holding(folder: &Path, wanted: &[u8]) -> Option<(PathBuf, usize)> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
        let bytes = std::fs::read(&path).ok()?;
        let place = bytes.windows(wanted.len()).position(|window| window == wanted)?;
        Some((path, place))
    })
}

#[tokio::test]
async fn damage_in_the_middle_is_reported_and_the_rest_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let broker = over(folder.path(), &[]);
    for n in 0..50 {
        let payload = format!("{n}:{}", "needle".repeat(20));
        broker.publish("t", Frame::new(ContentType::Json, 1, payload)).await;
    }
    broker.process.kill();
    let (path, place) = holding(folder.path(), b"20:needle").unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[place + 30] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();

    let broker = over(folder.path(), &[]);
    let (status, health) = broker.get("/health");
    assert_eq!((status, &health["status"]), (200, &"degraded".into()), "{health}");
    assert!(health.to_string().contains("damage"), "{health}");
    assert!(broker.log().contains("damage"), "{}", broker.log());
    let mut reader = consumer(&broker.grpc, "t", "g");
    let mut seen = 0;
    while seen < 49 {
        let deliveries = receive(&mut reader).await;
        seen += deliveries.len();
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        reader.ack(&ids).await.unwrap();
    }
}

/// A queue of thirty acknowledged frames whose process was killed, and the file they are in.
async fn killed_with_thirty_frames(folder: &Path) -> PathBuf {
    let broker = over(folder, &[]);
    for n in 0..30 {
        broker.publish("t", Frame::new(ContentType::Json, 1, format!("{n}:needle"))).await;
    }
    broker.process.kill();
    holding(folder, b"29:needle").unwrap().0
}

#[tokio::test]
async fn damage_at_the_end_is_a_warning_that_does_not_play_it_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_with_thirty_frames(folder.path()).await;
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    let broker = over(folder.path(), &[]);
    let line = broker.logged("the end of the log", |lines| {
        lines
            .iter()
            .find(|line| line["message"].as_str().is_some_and(|text| text.contains("no whole record")))
            .cloned()
    });
    assert_eq!(line["level"], "warn");
    assert!(line["message"].as_str().unwrap().contains("or damage to acknowledged records"), "{line}");
    assert!(!broker.log().contains("nobody was told"));
}

#[tokio::test]
async fn of_an_empty_file_nobody_says_how_much_it_held() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_with_thirty_frames(folder.path()).await;
    std::fs::write(&path, []).unwrap();
    let broker = over(folder.path(), &[]);
    let (_, health) = broker.get("/health");
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.ends_with("records are gone, and nothing tells how many"), "{health}");
}

/// Whether something is published meanwhile, and what happens to the directory.
type Damage = (bool, fn(&Path));

#[tokio::test]
async fn a_broker_whose_directory_is_not_in_its_place_ends_with_74_and_says_why() {
    let cases: [Damage; 3] = [
        (true, |path| std::fs::rename(path, path.with_extension("moved")).unwrap()),
        (false, |path| std::fs::remove_dir_all(path).unwrap()),
        (false, |path| std::fs::remove_file(path.join("LOCK")).unwrap()),
    ];
    for (publishes, displace) in cases {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("mq");
        let broker = over(&folder, &[]);
        let frame = || Frame::new(ContentType::Json, 1, message(0, 1));
        assert_eq!(broker.publish("t", frame()).await.durability, FrameDurability::Synced);
        displace(&folder);
        if publishes {
            let client = Client::new(broker.grpc.parse().unwrap(), Credentials::default());
            assert!(client.producer("t").unwrap().publish(frame()).await.is_err());
        }
        let (code, said) = broker.process.ended();
        assert_eq!(code, Some(74), "{said}");
        assert!(!folder.join("LOCK").exists(), "it makes nothing anew");
    }
}

#[tokio::test]
async fn a_removed_end_of_the_log_is_counted_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let broker = over(folder.path(), &[]);
    let frame = || Frame::new(ContentType::Json, 1, message(0, 1));
    for _ in 0..3 {
        broker.publish("t", frame()).await;
    }
    assert_eq!(broker.terminate(), Some(0));
    let broker = over(folder.path(), &[]);
    assert_eq!(broker.get("/health").1["status"], "healthy");
    assert_eq!(broker.terminate(), Some(0));
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let newest = files.filter(|path| path.extension().is_some_and(|kind| kind == "wal")).max().unwrap();
    std::fs::remove_file(newest).unwrap();
    let broker = over(folder.path(), &[]);
    let health = broker.get("/health").1;
    assert_eq!(health["status"], "degraded", "{health}");
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("the end of the log is gone, with ") && reason.contains(" records"), "{reason}");
}

#[tokio::test]
async fn what_a_broker_keeps_is_nobody_elses_to_read() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("mq");
    let broker = over(&folder, &[]);
    broker.publish("t", Frame::new(ContentType::Json, 1, message(0, 1))).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let files = std::fs::read_dir(&folder).unwrap().map(|file| mode(&file.unwrap().path()));
    assert!(files.collect::<Vec<_>>().iter().all(|mode| *mode == 0o600));
}
