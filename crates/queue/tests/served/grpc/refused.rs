//! Frames that a queue refuses, for a forwarder and for a publisher that sends again.

use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::{Forwarded, forward, publish_until};
use gpuvitals_queue::{
    ConsumerOptions, ContentType, Frame, Producer, PublishError, Queue, QueueClock, QueueConfig,
};
use tokio_util::sync::CancellationToken;

use super::rig::{Rig, frame, in_time};

/// Forwards frames from a queue of this process to the server, until each is taken or refused: how many are.
async fn forwarded(rig: &Rig, frames: Vec<Frame>) -> (usize, usize) {
    let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
    let consumer = queue.subscribe("spool", "upstream", &ConsumerOptions::default()).await.unwrap();
    let all = frames.len();
    for frame in frames {
        queue.publish("spool", frame).await.unwrap();
    }
    let (producer, stop) = (rig.producer(), CancellationToken::new());
    let (mut taken, mut refused) = (0, 0);
    let observe = |event: &Forwarded<'_>| {
        match event {
            Forwarded::Taken(_) => taken += 1,
            Forwarded::Refused(..) => refused += 1,
            Forwarded::Failed(_) => {}
        }
        if taken + refused == all {
            stop.cancel();
        }
    };
    in_time(forward(consumer, &producer, 8, &stop, observe)).await.unwrap();
    let stats = queue.topic_stats("spool").unwrap();
    assert_eq!((stats.frames, stats.dead > 0), (0, refused > 0), "a refused frame is a dead letter");
    (taken, refused)
}

/// Servers, each with a frame that is too large for it: for what it reads, and for what its topic holds.
fn too_large() -> [(Rig, Frame); 2] {
    let reads_less = Rig::with(|_| {}, |server| server.max_frame_bytes = 1_000);
    let holds_less = Rig::with(|queue| queue.max_messages = 10, |_| {});
    [(reads_less, Frame::new(ContentType::Batch, 1, vec![7; 1_001])), (holds_less, frame(11))]
}

#[tokio::test]
async fn a_frame_that_is_too_large_costs_a_forwarder_only_itself() {
    for (rig, too_large) in too_large() {
        assert_eq!(forwarded(&rig, vec![frame(1), too_large, frame(1)]).await, (2, 1));
        assert_eq!(rig.held(), 2);
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_not_published_again_and_again() {
    for (rig, too_large) in too_large() {
        let (producer, cancel) = (rig.producer(), CancellationToken::new());
        let (backoff, count) = (Backoff::default(), too_large.count);
        let refused = in_time(publish_until(&producer, too_large, &cancel, &backoff)).await.unwrap_err();
        assert!(matches!(refused, PublishError::TooLarge { messages, .. } if messages == count));
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_frame_that_the_server_cannot_read_costs_a_forwarder_only_itself() {
    let rig = Rig::new();
    let unreadable = Frame::new(ContentType::Batch, 1, "");
    let frames = std::iter::once(unreadable).chain((0..200).map(|_| frame(1)));
    assert_eq!(forwarded(&rig, frames.collect()).await, (200, 1));
    assert_eq!(rig.held(), 200);
    rig.stop().await;
}

#[tokio::test]
async fn a_forwarder_sends_a_frame_whose_number_is_too_old_under_another_stamp() {
    let rig = Rig::new();
    in_time(rig.producer().publish(frame(1).stamped("life", 1_000))).await.unwrap();
    assert_eq!(forwarded(&rig, vec![frame(2).stamped("life", 1)]).await, (1, 0));
    assert_eq!(rig.held(), 1 + 2);
    rig.stop().await;
}

#[tokio::test]
async fn who_publishes_until_a_frame_is_taken_gives_one_whose_number_is_too_old_another_stamp() {
    let rig = Rig::new();
    let (producer, cancel) = (rig.producer(), CancellationToken::new());
    for id in ["life".to_owned(), "l".repeat(128)] {
        let before = rig.held();
        in_time(producer.publish(frame(1).stamped(id.clone(), 1_000))).await.unwrap();
        let old = frame(1).stamped(id.clone(), 1);
        let refused = in_time(producer.publish(old.clone())).await.unwrap_err();
        assert!(matches!(refused, PublishError::SequenceTooOld { .. }), "{refused}");
        let receipt = in_time(publish_until(&producer, old, &cancel, &Backoff::default())).await.unwrap();
        assert!(!receipt.duplicate);
        assert_eq!(rig.held() - before, 2);
    }
    rig.stop().await;
}
