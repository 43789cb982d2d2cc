use std::io::ErrorKind;

use gpuvitals_log::fault::{FaultDisk, Op};

use super::*;
use crate::frame::ContentType;
use crate::spool::LIMIT_MIN;

const LONG: Duration = Duration::from_mins(1);

fn on_disk(disk: FaultDisk, limit: u64) -> Backlog {
    Backlog::on_shelf(Shelf::open(disk, limit, None).unwrap(), limit)
}

fn frame(number: u32, len: usize) -> Frame {
    Frame::new(ContentType::Batch, number, vec![7; len])
}

/// The messages of the frames that are kept, read from wherever they are.
fn read_all(backlog: &mut Backlog) -> Vec<u32> {
    let mut read = Vec::new();
    while let Some((number, stored)) = backlog.take() {
        let frame = match stored {
            Stored::Frame(frame) => frame,
            Stored::Record(log, place) => record::decode(log.read(place).unwrap().payload).unwrap(),
            Stored::Lost => {
                backlog.settle(number);
                continue;
            }
        };
        assert_eq!(backlog.settle(number), Some(frame.count));
        read.push(frame.count);
    }
    read
}

#[tokio::test]
async fn a_disk_that_fails_leaves_frames_in_memory_within_its_bound() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), 64 << 20);
    backlog.push(frame(1, 100));
    while backlog.written().await.is_some() {}
    assert_eq!((backlog.memory_bytes, backlog.kept.frames), (0, 1));
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    for number in 2..=20 {
        backlog.push(frame(number, 500_000));
        while backlog.written().await.is_some() {}
    }
    assert!(backlog.memory_bytes <= MEMORY_MAX && backlog.memory_bytes > MEMORY_MAX / 2);
    assert!(backlog.dropped.frames > 0);
    disk.fail_all(Op::Write, None);
    backlog.push(frame(21, 100));
    while backlog.written().await.is_some() {}
    let oldest = 2 + u32::try_from(backlog.dropped.frames).unwrap();
    let expected: Vec<u32> = std::iter::once(1).chain(oldest..=21).collect();
    assert_eq!(read_all(&mut backlog), expected);
    assert_eq!((backlog.bytes, backlog.memory_bytes, backlog.entries.len()), (0, 0, 0));
}

#[tokio::test]
async fn what_a_failing_disk_left_in_memory_goes_there_at_the_end_if_it_can() {
    for (works_again, kept, dropped) in [(true, 2, 0), (false, 0, 2)] {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
        backlog.push(frame(1, 100));
        backlog.push(frame(2, 100));
        while backlog.written().await.is_some() {}
        if works_again {
            disk.fail_all(Op::Write, None);
        }
        backlog.close(LONG).await;
        assert_eq!((backlog.kept.frames, backlog.dropped.frames), (kept, dropped));
        disk.fail_all(Op::Write, None);
        let next = on_disk(disk, LIMIT_MIN);
        assert_eq!(next.kept.frames, kept);
    }
}

#[tokio::test]
async fn what_came_while_the_disk_failed_is_read_before_what_came_after_it() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
    let push = |backlog: &mut Backlog, numbers: std::ops::RangeInclusive<u32>| {
        for number in numbers {
            backlog.push(frame(number, 100).stamped("life", number.into()));
        }
    };
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    push(&mut backlog, 1..=200);
    while backlog.written().await.is_some() {}
    disk.fail_all(Op::Write, None);
    push(&mut backlog, 201..=400);
    backlog.close(LONG).await;
    assert_eq!((backlog.kept.frames, backlog.dropped.frames), (400, 0));
    let mut next = on_disk(disk, LIMIT_MIN);
    assert_eq!(read_all(&mut next), (1..=400).collect::<Vec<_>>());
}

#[tokio::test]
async fn all_that_memory_holds_goes_to_a_disk_that_works_again() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), 64 << 20);
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    for number in 1..=70 {
        backlog.push(frame(number, 100_000));
        while backlog.written().await.is_some() {}
    }
    disk.fail_all(Op::Write, None);
    backlog.close(LONG).await;
    assert_eq!((backlog.kept.frames, backlog.dropped.frames), (70, 0));
}

#[tokio::test]
async fn a_frame_is_as_far_from_another_as_their_numbers_though_those_between_are_missing() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
    for number in (1..=10).chain(501..=510) {
        backlog.push(frame(number, 100).stamped("life", number.into()));
    }
    backlog.close(LONG).await;
    let mut next = on_disk(disk, LIMIT_MIN);
    let together: Vec<_> = std::iter::from_fn(|| next.take()).collect();
    assert_eq!(together.len(), 10);
    for (number, _) in together {
        next.settle(number);
    }
    assert_eq!(read_all(&mut next), (501..=510).collect::<Vec<_>>());
}

#[tokio::test]
async fn nothing_is_known_to_be_on_the_disk_before_all_that_was_written_earlier() {
    for _ in 0..200 {
        let mut backlog = on_disk(FaultDisk::new(), LIMIT_MIN);
        backlog.push(frame(1, 1000));
        tokio::select! {
            biased;
            _ = backlog.written() => continue,
            () = std::future::ready(()) => {}
        }
        backlog.push(frame(2, 100));
        backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
        backlog.written().await;
        assert!(matches!(backlog.entries[0].body, Body::Disk(_)));
    }
}

#[tokio::test]
async fn a_disk_that_hangs_is_waited_for_only_so_long_at_the_end() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
    backlog.push(frame(1, 100));
    backlog.written().await;
    disk.hold_syncs();
    backlog.sync();
    disk.wait_for_held_sync();
    backlog.push(frame(2, 100));
    let closed = tokio::time::timeout(LONG, backlog.close(Duration::from_millis(50))).await;
    // Not to be waited for by the test either.
    let log = backlog.shelf.as_ref().map(Shelf::log);
    disk.release_syncs();
    closed.unwrap();
    assert_eq!((backlog.kept.frames, backlog.dropped.frames), (1, 1));
    log.unwrap().close().unwrap();
}

#[tokio::test]
async fn what_is_synced_outlives_a_power_cut() {
    for seed in 0..50 {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        for number in 1..=100 {
            backlog.push(frame(number, 1000));
        }
        while backlog.written().await.is_some() {}
        let (log, half) = (backlog.shelf.as_ref().map(Shelf::log).unwrap(), 50);
        for expected in 1..=half {
            let (number, _) = backlog.take().unwrap();
            assert_eq!(backlog.settle(number), Some(expected));
        }
        log.sync().unwrap();
        for number in 101..=110 {
            backlog.push(frame(number, 1000));
        }
        while backlog.written().await.is_some() {}
        let mut next = on_disk(disk.crashed(seed), LIMIT_MIN);
        let read = read_all(&mut next);
        let (first, last) = (read[0], read[read.len() - 1]);
        assert_eq!(read, (first..=last).collect::<Vec<_>>(), "{seed}");
        assert!(first <= half + 1 && last >= 100, "{seed}: {first} to {last}");
    }
}

#[tokio::test]
async fn a_suspect_that_is_written_anew_is_there_once_whenever_the_power_goes() {
    for seed in 0..60 {
        let disk = FaultDisk::new();
        let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
        let stamped = |number: u32| frame(number, 100).stamped("life", number.into());
        for number in 1..=10 {
            backlog.push(stamped(number));
        }
        while backlog.written().await.is_some() {}
        backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
        let (suspect, _) = backlog.take().unwrap();
        backlog.refuse(suspect, stamped(1), Taken { before: 0, now: 0 });
        for _ in 2..=8 {
            let (number, _) = backlog.take().unwrap();
            backlog.settle(number);
        }
        backlog.move_suspects();
        let is_noted = seed % 2 == 0;
        if is_noted {
            while backlog.written().await.is_some() {}
            backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
        }
        let mut next = on_disk(disk.crashed(seed), LIMIT_MIN);
        let read = read_all(&mut next);
        let expected = if is_noted { vec![1, 9, 10] } else { (1..=10).collect() };
        assert_eq!(read, expected, "{seed}");
    }
}

#[tokio::test]
async fn what_a_failing_disk_left_in_memory_goes_there_as_soon_as_it_works_again() {
    let disk = FaultDisk::new();
    let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    for number in 1..=50 {
        // One never fits.
        let len = if number == 20 { LIMIT_MIN / 8 } else { 100 };
        backlog.push(frame(number, usize::try_from(len).unwrap()).stamped("life", number.into()));
    }
    while backlog.written().await.is_some() {}
    assert_eq!(backlog.memory_bytes, backlog.bytes);
    disk.fail_all(Op::Write, None);
    backlog.push(frame(51, 100).stamped("life", 51));
    while backlog.written().await.is_some() {}
    let in_memory = backlog.entries.iter().filter(|entry| entry.body.is_in_memory());
    assert_eq!(in_memory.map(|entry| entry.messages).collect::<Vec<_>>(), [20]);
    backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
    let mut next = on_disk(disk.crashed(1), LIMIT_MIN);
    assert_eq!(read_all(&mut next), (1..=51).filter(|number| *number != 20).collect::<Vec<_>>());
}

/// A backlog whose log a failed sync has poisoned; 1 to 50 were written before, 51 to 60 could not be.
async fn poisoned(disk: &FaultDisk) -> Backlog {
    let mut backlog = on_disk(disk.clone(), LIMIT_MIN);
    let push = |backlog: &mut Backlog, number: u32| {
        backlog.push(frame(number, 100).stamped("life", number.into()));
    };
    for number in 1..=50 {
        push(&mut backlog, number);
    }
    while backlog.written().await.is_some() {}
    assert_eq!(backlog.memory_bytes, 0);
    disk.fail_all(Op::SyncData, Some(ErrorKind::Other));
    backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap_err();
    for number in 51..=60 {
        push(&mut backlog, number);
        while backlog.written().await.is_some() {}
    }
    assert!(backlog.memory_bytes > 0);
    backlog
}

#[tokio::test(start_paused = true)]
async fn a_log_that_a_failed_sync_poisoned_is_opened_anew_and_takes_what_memory_holds() {
    let disk = FaultDisk::new();
    let mut backlog = poisoned(&disk).await;
    let before = disk.calls(Op::List);
    let still_fails =
        tokio::time::timeout(10 * LONG, async { while backlog.news().await.is_some() {} }).await;
    assert!(still_fails.is_err() && backlog.memory_bytes > 0);
    let tries = disk.calls(Op::List) - before;
    assert!((3..=40).contains(&tries), "{tries} tries in ten minutes");
    disk.fail_all(Op::SyncData, None);
    while backlog.memory_bytes > 0 {
        backlog.news().await.unwrap();
    }
    backlog.push(frame(61, 100).stamped("life", 61));
    while backlog.written().await.is_some() {}
    backlog.shelf.as_ref().map(Shelf::log).unwrap().sync().unwrap();
    let mut next = on_disk(disk.crashed(1), LIMIT_MIN);
    for backlog in [&mut backlog, &mut next] {
        assert_eq!(read_all(backlog), (1..=61).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_poisoned_log_is_opened_anew_at_the_end_too() {
    for (works_again, limit, dropped) in [(true, LONG, 0), (false, Duration::from_millis(50), 10)] {
        let disk = FaultDisk::new();
        let mut backlog = poisoned(&disk).await;
        if works_again {
            disk.fail_all(Op::SyncData, None);
        }
        backlog.close(limit).await;
        assert_eq!(backlog.dropped.frames, dropped);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_disk_lost_with_a_failed_sync_is_known_to_be_lost_and_the_rest_is_not() {
    for seed in 0..30 {
        let disk = FaultDisk::new();
        let mut backlog = poisoned(&disk).await;
        disk.crash(seed);
        disk.fail_all(Op::SyncData, None);
        while backlog.memory_bytes > 0 {
            backlog.news().await.unwrap();
        }
        let read = read_all(&mut backlog);
        assert!(read.ends_with(&(51..=60).collect::<Vec<_>>()), "{seed}: {read:?}");
        assert!(read.is_sorted() && read.iter().all(|number| (1..=60).contains(number)), "{seed}: {read:?}");
        assert_eq!((backlog.kept.frames, backlog.bytes), (0, 0), "{seed}");
    }
}
