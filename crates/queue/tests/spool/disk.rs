//! What is kept on the disk, and outlives the process. In real time: the log has a thread of its own.

use std::path::Path;
use std::time::Duration;

use gpuvitals_queue::Clock;
use gpuvitals_queue::spool::{LIMIT_MIN, Spool, SpoolConfig, SpoolError, SpoolStats};

use crate::flaky::{self, Flaky, Way, frame, sized};

/// Waits until the stats are so, a minute at most.
async fn until(spool: &Spool, done: impl FnMut(&SpoolStats) -> bool) -> SpoolStats {
    let so = tokio::time::timeout(Duration::from_mins(1), flaky::until(spool, done)).await;
    so.unwrap_or_else(|_| panic!("it never came to that: {:?}", spool.stats()))
}

/// As the disk is when the process is killed: written, not closed.
fn as_killed(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// The same, once so many frames are kept there: the last note may still be on its way.
async fn killed_keeping(directory: &Path, frames: std::ops::Range<u64>) -> tempfile::TempDir {
    let hangs = Flaky::new(Way::Hangs);
    for _ in 0..1000 {
        let killed = as_killed(directory);
        let looked_at = hangs.spool(Some(as_killed(killed.path()).path()));
        let kept = looked_at.stats().kept.frames;
        looked_at.finish(Duration::ZERO).await;
        if frames.contains(&kept) {
            return killed;
        }
    }
    panic!("never {frames:?} frames were kept");
}

fn bytes_in(directory: &Path) -> u64 {
    // One that is freed meanwhile takes nothing.
    let bytes =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().map_or(0, |file| file.len());
    std::fs::read_dir(directory).unwrap().map(bytes).sum()
}

/// Keeps these frames, all of them on the disk.
async fn keep(spool: &Spool, numbers: std::ops::Range<u64>, len: usize) {
    for number in numbers {
        spool.hand_over(sized(number, len));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_kept_when_the_process_was_killed_is_sent_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::AnswerLost);
    let spool = queue.spool(Some(directory.path()));
    keep(&spool, 0..500, 64).await;
    until(&spool, |stats| stats.kept.frames == 500 && stats.memory_bytes == 0).await;
    let killed = as_killed(directory.path());
    drop(spool);
    queue.set(Way::Hangs);
    let next = queue.spool(Some(killed.path()));
    assert_eq!(next.stats().kept.frames, 500);
    queue.set(Way::Open);
    until(&next, |stats| stats.kept.frames == 0).await;
    // Those that had been stored before the kill are recognised by the stamps that lie on the disk.
    queue.assert_stored(0..500).await;
}

#[tokio::test]
async fn what_was_taken_is_not_sent_again_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    let spool = queue.spool(Some(directory.path()));
    keep(&spool, 0..1000, 64).await;
    until(&spool, |stats| stats.kept.frames == 1000).await;
    queue.set(Way::Slow(5));
    until(&spool, |stats| stats.resent.frames >= 500).await;
    queue.set(Way::Cut);
    // What was under way comes to its end first: only then nothing more is taken.
    until(&spool, |stats| stats.away.is_some() && stats.memory_bytes == 0 && queue.under_way() == 0).await;
    let left = 1000 - queue.stored().await.0.len() as u64;
    // A note leaves out fewer than 64, and those of the sixteen under way that overtook the oldest.
    let killed = killed_keeping(directory.path(), left..left + 64 + 16).await;
    let other = Flaky::new(Way::Open);
    let next = other.spool(Some(killed.path()));
    until(&next, |stats| stats.kept.frames == 0).await;
    let (order, _) = other.stored().await;
    assert!(order.contains(&999), "{left}: {order:?}");
}

#[tokio::test]
async fn a_frame_that_is_refused_outlives_a_kill_and_those_behind_it_are_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    queue.set_unwanted([3]);
    let spool = queue.spool(Some(directory.path()));
    keep(&spool, 0..1000, 64).await;
    until(&spool, |stats| stats.kept.frames == 1000).await;
    queue.set(Way::Open);
    until(&spool, |stats| stats.kept.frames == 1 && stats.memory_bytes == 0).await;
    let killed = killed_keeping(directory.path(), 1..1 + 64 + 16).await;
    drop(spool);
    queue.set_unwanted([]);
    let next = queue.spool(Some(killed.path()));
    until(&next, |stats| stats.kept.frames == 0).await;
    queue.assert_stored(0..1000).await;
}

#[tokio::test]
async fn a_frame_that_is_refused_keeps_no_room_on_the_disk_beside_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    queue.set_unwanted([0]);
    let config = SpoolConfig {
        directory: Some(directory.path().to_path_buf()),
        limit: LIMIT_MIN,
        ..SpoolConfig::default()
    };
    let spool = queue.spool_with(&config);
    for round in 0..8 {
        queue.set(Way::Cut);
        keep(&spool, round * 30..(round + 1) * 30, 60_000).await;
        until(&spool, |stats| stats.kept.frames >= 30 && stats.memory_bytes == 0).await;
        assert!(bytes_in(directory.path()) <= LIMIT_MIN, "round {round}");
        queue.set(Way::Open);
        until(&spool, |stats| stats.kept.frames == 1).await;
    }
    queue.assert_stored(1..240).await;
}

#[tokio::test]
async fn a_process_that_is_killed_before_it_sent_anything_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    let spool = queue.spool(Some(directory.path()));
    keep(&spool, 0..100, 64).await;
    until(&spool, |stats| stats.kept.frames == 100 && stats.memory_bytes == 0).await;
    queue.set(Way::Open);
    until(&spool, |stats| stats.taken.frames == 100).await;
    queue.set(Way::Cut);
    keep(&spool, 100..200, 64).await;
    until(&spool, |stats| stats.kept.frames == 100 && stats.memory_bytes == 0).await;
    let killed = as_killed(directory.path());
    drop(spool);
    let second = queue.spool(Some(killed.path()));
    assert_eq!(second.stats().kept.frames, 100);
    until(&second, |stats| stats.away.is_some()).await;
    let killed_again = as_killed(killed.path());
    drop(second);
    queue.set(Way::Open);
    let third = queue.spool(Some(killed_again.path()));
    until(&third, |stats| stats.taken.frames == 100).await;
    queue.assert_stored(0..200).await;
}

#[tokio::test]
async fn at_the_end_what_is_left_goes_to_the_disk() {
    for way in [Way::Cut, Way::Hangs] {
        let directory = tempfile::tempdir().unwrap();
        let queue = Flaky::new(way);
        let spool = queue.spool(Some(directory.path()));
        keep(&spool, 0..100, 64).await;
        let stats = spool.finish(Duration::from_millis(500)).await;
        assert_eq!((stats.kept.frames, stats.dropped.frames), (100, 0), "{way:?}");
        queue.set(Way::Open);
        let next = queue.spool(Some(directory.path()));
        until(&next, |stats| stats.taken.frames == 100).await;
        queue.assert_stored(0..100).await;
        assert_eq!(next.finish(Duration::from_secs(5)).await.kept.frames, 0);
        let again = queue.spool(Some(directory.path()));
        assert_eq!(again.stats().kept.frames, 0, "nothing is sent a third time");
    }
}

#[tokio::test]
async fn the_disk_holds_so_much_and_the_oldest_go_counted() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    let config = SpoolConfig {
        directory: Some(directory.path().to_path_buf()),
        limit: LIMIT_MIN,
        ..SpoolConfig::default()
    };
    let spool = queue.spool_with(&config);
    for number in 0..400 {
        spool.hand_over(sized(number, 60_000));
        until(&spool, |stats| stats.kept.frames + stats.dropped.frames > number && stats.memory_bytes == 0)
            .await;
        assert!(bytes_in(directory.path()) <= LIMIT_MIN, "{number}");
    }
    let stats = spool.stats();
    assert!(stats.kept_bytes > LIMIT_MIN / 2, "{stats:?}");
    queue.set(Way::Open);
    let stats = until(&spool, |stats| stats.kept.frames == 0).await;
    // One that was being tried when its turn to go came has stayed.
    let (_, times) = queue.stored().await;
    let newest = times.keys().rev().zip((0..400).rev()).take_while(|(number, expected)| *number == expected);
    assert!(newest.count() as u64 >= 400 - stats.dropped.frames - 1, "{stats:?} {times:?}");
    assert_eq!(times.len() as u64, 400 - stats.dropped.frames);
}

#[tokio::test]
async fn a_directory_is_used_by_one_process_and_needs_some_room() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Open);
    let open = |limit| {
        let directory = Some(directory.path().to_path_buf());
        let config = SpoolConfig { directory, limit, ..SpoolConfig::default() };
        Spool::open(queue.clone(), &config, Clock::system())
    };
    assert!(matches!(open(1 << 20), Err(SpoolError::Limit { .. })));
    let spool = open(256 << 20).unwrap();
    assert!(matches!(open(256 << 20), Err(SpoolError::InUse(_))));
    spool.hand_over(frame(1));
    until(&spool, |stats| stats.taken.frames == 1).await;
    spool.finish(Duration::from_secs(1)).await;
    assert!(open(256 << 20).is_ok());
}

#[tokio::test]
async fn a_kept_frame_that_is_damaged_is_counted_and_costs_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Flaky::new(Way::Cut);
    let spool = queue.spool(Some(directory.path()));
    keep(&spool, 0..50, 4096).await;
    until(&spool, |stats| stats.kept.frames == 50 && stats.memory_bytes == 0).await;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let twentieth = 20_u64.to_le_bytes();
        if let Some(at) =
            bytes.windows(24).position(|w| w[..8] == twentieth && w[8..].iter().all(|b| *b == 0xa5))
        {
            bytes[at + 100] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    queue.set(Way::Open);
    let stats = until(&spool, |stats| stats.kept.frames == 0).await;
    assert_eq!((stats.taken.frames, stats.unreadable.frames), (49, 1));
    queue.assert_stored((0..50).filter(|number| *number != 20)).await;
}
