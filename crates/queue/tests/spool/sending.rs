//! What is sent, when and how often. Tokio's time is paused.

use std::time::Duration;

use gpuvitals_queue::spool::{MEMORY_MAX, Spool, SpoolConfig};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::flaky::{Flaky, Way, frame, sized, until};

/// For a spool in memory and one on the disk.
fn kinds() -> [Option<TempDir>; 2] {
    [None, Some(tempfile::tempdir().unwrap())]
}

fn hand_over(spool: &Spool, numbers: std::ops::Range<u64>) {
    for number in numbers {
        spool.hand_over(frame(number));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_takes_is_not_kept() {
    for directory in kinds() {
        let queue = Flaky::new(Way::Open);
        let spool = queue.spool(directory.as_ref().map(TempDir::path));
        hand_over(&spool, 0..20);
        let stats = until(&spool, |stats| stats.taken.frames == 20).await;
        assert_eq!((stats.resent.frames, stats.kept.frames, &stats.away), (0, 0, &None));
        queue.assert_stored(0..20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_while_the_queue_was_away_is_sent_oldest_first_when_it_is_back() {
    for directory in kinds() {
        let queue = Flaky::new(Way::Cut);
        let spool = queue.spool(directory.as_ref().map(TempDir::path));
        hand_over(&spool, 0..200);
        let away = until(&spool, |stats| stats.kept.frames == 200).await.away.unwrap();
        assert!(away.reason.contains("connection refused"), "{away:?}");
        queue.set(Way::Open);
        let stats = until(&spool, |stats| stats.kept.frames == 0).await;
        assert_eq!((stats.taken.messages, stats.resent.messages, stats.away), (200, 200, None));
        let (order, _) = queue.stored().await;
        // Sixteen are under way together, and may overtake each other.
        assert!((0_u64..).zip(&order).all(|(place, number)| place.abs_diff(*number) < 32), "{order:?}");
        assert_eq!(order.len(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_whose_answer_was_lost_is_stored_once() {
    for directory in kinds() {
        let queue = Flaky::new(Way::AnswerLost);
        let spool = queue.spool(directory.as_ref().map(TempDir::path));
        hand_over(&spool, 0..100);
        until(&spool, |stats| stats.kept.frames == 100).await;
        // Far more than a queue remembers of one producer comes in between.
        hand_over(&spool, 100..240);
        queue.set(Way::Open);
        let stats = until(&spool, |stats| stats.taken.frames == 240).await;
        assert_eq!(stats.kept.frames, 0);
        queue.assert_stored(0..240).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_way_does_every_frame_is_stored_once() {
    let ways = [Way::Open, Way::Cut, Way::AnswerLost, Way::Hangs, Way::Slow(30), Way::Slow(3_000)];
    for seed in 1..=30_u64 {
        let directory = (seed % 2 == 0).then(|| tempfile::tempdir().unwrap());
        let queue = Flaky::new(Way::Open);
        let spool = queue.spool(directory.as_ref().map(TempDir::path));
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut roll = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut sent = 0;
        for _ in 0..40 {
            queue.set(ways[roll(6) as usize]);
            let next = sent + roll(60);
            hand_over(&spool, sent..next);
            sent = next;
            tokio::time::sleep(Duration::from_millis(roll(8_000))).await;
        }
        queue.set(Way::Open);
        let stats = until(&spool, |stats| stats.taken.frames == sent).await;
        assert_eq!((stats.kept.frames, stats.dropped.frames), (0, 0), "seed {seed}");
        let (_, times) = queue.stored().await;
        assert_eq!(times, (0..sent).map(|number| (number, 1)).collect(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_hangs_holds_up_nobody_and_is_away_once_the_patience_is_over() {
    let queue = Flaky::new(Way::Hangs);
    let spool = queue.spool(None);
    let start = Instant::now();
    hand_over(&spool, 0..100);
    assert_eq!(start.elapsed(), Duration::ZERO);
    let stats = until(&spool, |stats| stats.kept.frames > 0 && stats.away.is_none()).await;
    assert!(stats.kept.frames < 100, "some are under way: {stats:?}");
    let stats = until(&spool, |stats| stats.away.is_some()).await;
    assert_eq!(start.elapsed().as_secs(), SpoolConfig::default().patience.as_secs());
    assert!(stats.away.unwrap().reason.contains("no answer"));
    assert!(queue.under_way_max() <= 48, "{}", queue.under_way_max());
    queue.set(Way::Open);
    until(&spool, |stats| stats.taken.frames == 100).await;
    queue.assert_stored(0..100).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_away_is_tried_ever_more_rarely() {
    let queue = Flaky::new(Way::Cut);
    let spool = queue.spool(None);
    hand_over(&spool, 0..1);
    until(&spool, |stats| stats.away.is_some()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let before = queue.tries();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let tries = queue.tries() - before;
    assert!((25..=120).contains(&tries), "{tries} tries in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn frames_that_fail_together_put_off_the_next_try_as_one_does() {
    for _ in 0..20 {
        let queue = Flaky::new(Way::Cut);
        let spool = queue.spool(None);
        hand_over(&spool, 0..100);
        until(&spool, |stats| stats.kept.frames == 100).await;
        queue.set(Way::Slow(10));
        until(&spool, |stats| stats.taken.frames > 16).await;
        // Sixteen fail together.
        queue.set(Way::Cut);
        until(&spool, |stats| stats.away.is_some()).await;
        queue.set(Way::Open);
        let begun = Instant::now();
        until(&spool, |stats| stats.kept.frames == 0).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_new_does_not_wait_for_what_was_kept() {
    let queue = Flaky::new(Way::Cut);
    let spool = queue.spool(None);
    for part in 0..20 {
        hand_over(&spool, part * 100..(part + 1) * 100);
        until(&spool, |stats| stats.kept.frames == (part + 1) * 100).await;
    }
    queue.set(Way::Slow(100));
    until(&spool, |stats| stats.away.is_none()).await;
    spool.hand_over(frame(9_999));
    let stats = until(&spool, |stats| stats.taken.frames > stats.resent.frames).await;
    assert!(stats.kept.frames > 1_900, "{stats:?}");
    assert!(queue.stored().await.1.contains_key(&9_999));
}

#[tokio::test(start_paused = true)]
async fn memory_holds_so_much_and_the_oldest_go_counted() {
    for (limit, expected) in [(64 << 10, 64 << 10), (256 << 20, MEMORY_MAX)] {
        let queue = Flaky::new(Way::Cut);
        let spool = queue.spool_with(&SpoolConfig { limit, ..SpoolConfig::default() });
        let len = usize::try_from(expected / 100).unwrap();
        for number in 0..200 {
            spool.hand_over(sized(number, len));
        }
        let stats = until(&spool, |stats| stats.kept.frames + stats.dropped.frames == 200).await;
        assert!(stats.kept_bytes <= expected && stats.kept_bytes > expected * 9 / 10, "{stats:?}");
        queue.set(Way::Open);
        let stats = until(&spool, |stats| stats.kept.frames == 0).await;
        queue.assert_stored(stats.dropped.frames..200).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_the_queue_will_never_take_costs_only_itself() {
    let queue = Flaky::new(Way::TooLarge);
    let spool = queue.spool(None);
    hand_over(&spool, 0..1);
    let stats = until(&spool, |stats| stats.refused.frames == 1).await;
    assert_eq!(stats.away, None);
    queue.set(Way::Cut);
    hand_over(&spool, 1..3);
    until(&spool, |stats| stats.kept.frames == 2).await;
    queue.set(Way::TooLarge);
    until(&spool, |stats| stats.refused.frames == 3 && stats.away.is_none()).await;
    queue.set(Way::Open);
    hand_over(&spool, 3..4);
    until(&spool, |stats| stats.taken.frames == 1).await;
    queue.assert_stored(3..4).await;
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_is_left_in_memory_is_sent_or_counted_as_dropped() {
    for (way, taken, dropped) in [(Way::Slow(500), 80, 0), (Way::Cut, 0, 80), (Way::Hangs, 0, 80)] {
        let queue = Flaky::new(way);
        let spool = queue.spool(None);
        hand_over(&spool, 0..80);
        let stats = spool.finish(Duration::from_secs(5)).await;
        assert_eq!(
            (stats.taken.frames, stats.dropped.frames, stats.kept.frames),
            (taken, dropped, 0),
            "{way:?}"
        );
    }
}
