//! What a queue refuses of a spool, and of one who publishes until a frame is taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gpuvitals_queue::link::{Backoff, GrpcProducer, publish_until};
use gpuvitals_queue::spool::{Spool, SpoolConfig, SpoolStats};
use gpuvitals_queue::{Clock, ContentType, Frame, Producer, ProducerStamp, PublishError, Receipt};
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, frame, in_time, receive};

/// A way to a server that can be closed, and what came there meanwhile.
#[derive(Clone)]
struct Gate {
    producer: Arc<GrpcProducer>,
    is_open: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<ProducerStamp>>>,
}

impl Producer for Gate {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        if self.is_open.load(Ordering::Relaxed) {
            return self.producer.publish(frame).await;
        }
        self.seen.lock().unwrap().extend(frame.producer);
        Err(PublishError::Unavailable { reason: "the gate is closed".into() })
    }
}

impl Gate {
    fn new(rig: &Rig, is_open: bool) -> Self {
        let is_open = Arc::new(AtomicBool::new(is_open));
        Self { producer: Arc::new(rig.producer()), is_open, seen: Arc::default() }
    }

    fn spool(&self) -> Spool {
        Spool::open(self.clone(), &SpoolConfig::default(), Clock::system()).unwrap()
    }
}

async fn until(spool: &Spool, done: impl FnMut(&SpoolStats) -> bool) -> SpoolStats {
    in_time(spool.watch().wait_for(done)).await.unwrap().clone()
}

/// Servers, each with a frame that is too large for it: for what it reads, and for what its topic holds.
fn too_large() -> [(Rig, Frame); 2] {
    let reads_less = Rig::with(|_| {}, |server| server.max_frame_bytes = 1_000);
    let holds_less = Rig::with(|queue| queue.max_messages = 10, |_| {});
    [(reads_less, Frame::new(ContentType::Batch, 1, vec![7; 1_001])), (holds_less, frame(11))]
}

#[tokio::test]
async fn a_frame_that_is_too_large_costs_a_spool_only_itself() {
    for (rig, too_large) in too_large() {
        for is_kept_before in [false, true] {
            let (before, gate) = (rig.held(), Gate::new(&rig, !is_kept_before));
            let spool = gate.spool();
            for frame in [frame(1), too_large.clone(), frame(1)] {
                spool.hand_over(frame);
            }
            if is_kept_before {
                until(&spool, |stats| stats.kept.frames == 3).await;
                gate.is_open.store(true, Ordering::Relaxed);
            }
            let stats = until(&spool, |stats| stats.taken.frames + stats.refused.frames == 3).await;
            assert_eq!((stats.refused.frames, stats.refused.messages), (1, too_large.count.into()));
            assert_eq!((stats.kept.frames, stats.away), (0, None));
            assert_eq!(rig.held() - before, 2);
        }
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
async fn a_frame_that_the_server_cannot_read_holds_up_no_other_of_a_spool() {
    let rig = Rig::new();
    for is_kept_before in [false, true] {
        let (before, gate) = (rig.held(), Gate::new(&rig, !is_kept_before));
        let spool = gate.spool();
        spool.hand_over(Frame::new(ContentType::Batch, 1, ""));
        for _ in 0..200 {
            spool.hand_over(frame(1));
        }
        if is_kept_before {
            until(&spool, |stats| stats.kept.frames == 201).await;
            gate.is_open.store(true, Ordering::Relaxed);
        }
        let stats = until(&spool, |stats| stats.taken.frames == 200).await;
        assert_eq!((stats.kept.frames, stats.refused.frames), (1, 0));
        assert_eq!(rig.held() - before, 200);
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_spool_sends_a_frame_whose_number_is_too_old_under_another_stamp() {
    let rig = Rig::new();
    let gate = Gate::new(&rig, false);
    let spool = gate.spool();
    spool.hand_over(frame(2));
    until(&spool, |stats| stats.kept.frames == 1).await;
    spool.hand_over(frame(3));
    until(&spool, |stats| stats.kept.frames == 2).await;
    let stamp = gate.seen.lock().unwrap().first().cloned().unwrap();
    let later = frame(1).stamped(Arc::clone(&stamp.id), stamp.sequence + 1_000);
    in_time(rig.producer().publish(later)).await.unwrap();
    gate.is_open.store(true, Ordering::Relaxed);
    let stats = until(&spool, |stats| stats.kept.frames == 0).await;
    assert_eq!((stats.taken.frames, stats.refused.frames), (2, 0));
    assert_eq!(rig.held(), 1 + 2 + 3);
    let mut consumer = rig.consumer("g");
    let mut stored = Vec::new();
    while stored.len() < 3 {
        stored.extend(receive(&mut consumer).await.into_iter().map(|delivery| delivery.frame));
    }
    let old = stored.iter().find(|frame| frame.count == 2).unwrap();
    assert_ne!(old.producer.as_ref().map(|stamp| &stamp.id), Some(&stamp.id));
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
