//! A queue in this process behind a way that fails on command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_queue::spool::{Spool, SpoolConfig, SpoolStats};
use gpuvitals_queue::{
    Clock, Consumer, ConsumerOptions, ContentType, Frame, Producer, PublishError, Queue, QueueConfig, Receipt,
};

const TOPIC: &str = "gpu-telemetry";

/// What becomes of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// It does not get there.
    Cut,
    /// It gets there, but the answer does not come back.
    AnswerLost,
    /// Nothing ever comes back, and nobody knows.
    Hangs,
    /// It is too large for it.
    TooLarge,
    /// It refuses all, as one does for a wrong token.
    Refuses,
    /// It takes so many milliseconds.
    Slow(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Flaky {
    pub queue: Queue,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    way: Way,
    under_way: usize,
    under_way_max: usize,
    tries: u64,
    /// What it refuses whatever else it takes, and how often it did.
    unwanted: BTreeSet<u64>,
    unwanted_tries: u64,
    /// What fares otherwise than the others, and how.
    unlucky: BTreeMap<u64, Way>,
}

/// Under way as long as it lives.
struct Try(Arc<Mutex<State>>);

impl Drop for Try {
    fn drop(&mut self) {
        self.0.lock().unwrap().under_way -= 1;
    }
}

impl Producer for Flaky {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let way = {
            let mut state = self.state.lock().unwrap();
            state.tries += 1;
            state.under_way += 1;
            state.under_way_max = state.under_way_max.max(state.under_way);
            let is_unwanted = state.unwanted.contains(&number_of(&frame));
            state.unwanted_tries += u64::from(is_unwanted);
            match (state.way, state.unlucky.get(&number_of(&frame))) {
                (Way::Open, Some(way)) => *way,
                (Way::Open, None) if is_unwanted => Way::Refuses,
                (way, _) => way,
            }
        };
        let _trying = Try(Arc::clone(&self.state));
        let unavailable = |reason: &str| Err(PublishError::Unavailable { reason: reason.into() });
        match way {
            Way::Open => self.queue.publish(TOPIC, frame).await,
            Way::Slow(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.queue.publish(TOPIC, frame).await
            }
            Way::Cut => unavailable("connection refused"),
            Way::AnswerLost => {
                self.queue.publish(TOPIC, frame).await?;
                unavailable("connection reset")
            }
            Way::Hangs => std::future::pending().await,
            Way::TooLarge => Err(PublishError::TooLarge { messages: frame.count, bytes: 1 }),
            Way::Refuses => Err(PublishError::Refused { reason: "not wanted".into() }),
        }
    }
}

impl Flaky {
    pub(crate) fn new(way: Way) -> Self {
        let queue = Queue::in_process(QueueConfig::default(), Clock::system());
        let state = State {
            way,
            under_way: 0,
            under_way_max: 0,
            tries: 0,
            unwanted: BTreeSet::new(),
            unwanted_tries: 0,
            unlucky: BTreeMap::new(),
        };
        Self { queue, state: Arc::new(Mutex::new(state)) }
    }

    /// Frames that it refuses from now on even while it takes others.
    pub(crate) fn set_unwanted(&self, numbers: impl IntoIterator<Item = u64>) {
        self.state.lock().unwrap().unwanted = numbers.into_iter().collect();
    }

    /// Frames that fare so from now on even while it takes others.
    pub(crate) fn set_unlucky(&self, numbers: impl IntoIterator<Item = u64>, way: Way) {
        self.state.lock().unwrap().unlucky = numbers.into_iter().map(|number| (number, way)).collect();
    }

    pub(crate) fn unwanted_tries(&self) -> u64 {
        self.state.lock().unwrap().unwanted_tries
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().unwrap().under_way
    }

    pub(crate) fn set(&self, way: Way) {
        self.state.lock().unwrap().way = way;
    }

    pub(crate) fn tries(&self) -> u64 {
        self.state.lock().unwrap().tries
    }

    pub(crate) fn under_way_max(&self) -> usize {
        self.state.lock().unwrap().under_way_max
    }

    /// A spool before it, on the disk or not.
    pub(crate) fn spool(&self, directory: Option<&Path>) -> Spool {
        let directory = directory.map(Path::to_path_buf);
        self.spool_with(&SpoolConfig { directory, ..SpoolConfig::default() })
    }

    pub(crate) fn spool_with(&self, config: &SpoolConfig) -> Spool {
        Spool::open(self.clone(), config, Clock::system()).unwrap()
    }

    /// How often each frame was stored, by its number, in the order in which they came.
    pub(crate) async fn stored(&self) -> (Vec<u64>, BTreeMap<u64, u32>) {
        let mut options = ConsumerOptions::default();
        options.max_in_flight = options.max_in_flight.saturating_add(1_000_000);
        let (mut order, mut times) = (Vec::new(), BTreeMap::new());
        let mut consumer = self.queue.subscribe(TOPIC, "reader", &options).await.unwrap();
        // Time stands still as long as there is something to do.
        while let Ok(deliveries) = tokio::time::timeout(Duration::from_millis(1), consumer.receive()).await {
            for delivery in deliveries.unwrap() {
                let number = number_of(&delivery.frame);
                order.push(number);
                *times.entry(number).or_insert(0) += 1;
                consumer.ack(&[delivery.id]).await.unwrap();
            }
        }
        (order, times)
    }

    /// Asserts that these frames are stored, each once.
    pub(crate) async fn assert_stored(&self, numbers: impl Iterator<Item = u64>) {
        let (_, times) = self.stored().await;
        assert_eq!(times, numbers.map(|number| (number, 1)).collect());
    }
}

/// A frame of one message that carries its number.
pub(crate) fn frame(number: u64) -> Frame {
    sized(number, 64)
}

pub(crate) fn sized(number: u64, len: usize) -> Frame {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(len, 0xa5);
    Frame::new(ContentType::Batch, 1, payload)
}

fn number_of(frame: &Frame) -> u64 {
    u64::from_le_bytes(frame.payload[..8].try_into().unwrap())
}

/// Waits until the stats are so.
pub(crate) async fn until(spool: &Spool, done: impl FnMut(&SpoolStats) -> bool) -> SpoolStats {
    spool.watch().wait_for(done).await.unwrap().clone()
}
