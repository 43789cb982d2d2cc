//! Frames that the queue refuses for a reason of its own. Tokio's time is paused.

use std::time::Duration;

use gpuvitals_queue::spool::{Spool, SpoolConfig};

use crate::flaky::{Flaky, Way, frame, sized, until};

/// Hands frames over as a node does, one each five seconds.
async fn sample(spool: &Spool, numbers: std::ops::Range<u64>) {
    for number in numbers {
        spool.hand_over(frame(number));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn hand_over(spool: &Spool, numbers: std::ops::Range<u64>) {
    for number in numbers {
        spool.hand_over(frame(number));
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_the_queue_refuses_holds_up_none_behind_it_and_is_given_up_at_last() {
    for is_kept_before in [true, false] {
        let queue = Flaky::new(if is_kept_before { Way::Cut } else { Way::Open });
        queue.set_unwanted([3]);
        let spool = queue.spool(None);
        hand_over(&spool, 0..300).await;
        if is_kept_before {
            until(&spool, |stats| stats.kept.frames == 300).await;
            queue.set(Way::Open);
        }
        let stats = until(&spool, |stats| stats.taken.frames == 299).await;
        assert_eq!((stats.kept.frames, stats.refused.frames), (1, 0), "it is kept");
        sample(&spool, 300..400).await;
        let stats = spool.stats();
        assert_eq!((stats.kept.frames, stats.refused.frames, stats.taken.frames), (0, 1, 399));
        assert_eq!(queue.unwanted_tries(), 9, "the first one, and eight strikes");
        queue.assert_stored((0..400).filter(|number| *number != 3)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_everything_costs_no_frame_anything() {
    let directory = tempfile::tempdir().unwrap();
    for directory in [None, Some(directory.path())] {
        let queue = Flaky::new(Way::Open);
        let spool = queue.spool(directory);
        sample(&spool, 0..10).await;
        queue.set(Way::Refuses);
        sample(&spool, 10..400).await;
        let stats = spool.stats();
        assert!(stats.away.as_ref().unwrap().reason.contains("not wanted"), "{stats:?}");
        assert_eq!((stats.kept.frames, stats.refused.frames), (390, 0));
        let before = queue.tries();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(queue.tries() - before < 500, "it is tried ever more rarely: {}", queue.tries() - before);
        queue.set(Way::Open);
        let stats = until(&spool, |stats| stats.kept.frames == 0).await;
        assert_eq!((stats.taken.frames, stats.refused.frames, stats.away), (400, 0, None));
        queue.assert_stored(0..400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_wanted_later_is_stored_once_though_its_number_is_old() {
    let queue = Flaky::new(Way::Open);
    queue.set_unwanted([3]);
    let spool = queue.spool(None);
    // Far more than a queue remembers of one producer comes after it.
    hand_over(&spool, 0..30).await;
    hand_over(&spool, 30..300).await;
    until(&spool, |stats| stats.taken.frames == 299).await;
    queue.set_unwanted([]);
    queue.set(Way::AnswerLost);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(spool.stats().taken.frames, 299);
    queue.set(Way::Open);
    until(&spool, |stats| stats.taken.frames == 300).await;
    queue.assert_stored(0..300).await;
}

#[tokio::test(start_paused = true)]
async fn many_that_are_refused_are_given_up_together_while_what_is_new_is_sent() {
    let queue = Flaky::new(Way::Cut);
    queue.set_unwanted(0..100);
    let spool = queue.spool(None);
    hand_over(&spool, 0..120).await;
    until(&spool, |stats| stats.kept.frames == 120).await;
    queue.set(Way::Open);
    sample(&spool, 120..130).await;
    let stats = spool.stats();
    assert!(stats.taken.frames >= 28 && stats.kept.frames >= 100, "what is wanted is taken: {stats:?}");
    sample(&spool, 130..170).await;
    let stats = spool.stats();
    assert_eq!((stats.kept.frames, stats.refused.frames, stats.taken.frames), (0, 100, 70));
    queue.assert_stored(100..170).await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_never_gets_there_holds_up_none_behind_it_and_is_never_given_up() {
    for way in [Way::Cut, Way::Hangs] {
        for first_is_new in [true, false] {
            let queue = Flaky::new(if first_is_new { Way::Open } else { Way::Cut });
            queue.set_unlucky(0..20, way);
            let spool = queue.spool(None);
            hand_over(&spool, 0..300).await;
            if !first_is_new {
                until(&spool, |stats| stats.kept.frames == 300).await;
                queue.set(Way::Open);
            }
            sample(&spool, 300..500).await;
            let stats = spool.stats();
            assert_eq!((stats.kept.frames, stats.taken.frames), (20, 480), "{way:?} {first_is_new}");
            assert_eq!(stats.away, None, "{way:?} {first_is_new}");
            sample(&spool, 500..2_000).await;
            let stats = spool.stats();
            assert_eq!((stats.kept.frames, stats.refused.frames, stats.dropped.frames), (20, 0, 0));
            queue.set_unlucky([], way);
            until(&spool, |stats| stats.kept.frames == 0).await;
            queue.assert_stored(0..2_000).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_counts_against_the_limit_and_goes_first() {
    let queue = Flaky::new(Way::Refuses);
    let spool = queue.spool_with(&SpoolConfig { limit: 64 << 10, ..SpoolConfig::default() });
    for number in 0..200 {
        spool.hand_over(sized(number, 1000));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let stats = spool.stats();
    assert!(stats.kept_bytes <= 64 << 10 && stats.dropped.frames > 100, "{stats:?}");
    queue.set(Way::Open);
    let stats = until(&spool, |stats| stats.kept.frames == 0).await;
    let (order, _) = queue.stored().await;
    assert_eq!(order.len() as u64, 200 - stats.dropped.frames);
    assert!(order.iter().all(|number| number + 2 >= stats.dropped.frames), "{order:?}");
}
