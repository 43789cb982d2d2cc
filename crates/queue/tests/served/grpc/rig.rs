//! A server on a free port, and clients for it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use gpuvitals_listener::{AcceptError, ListenerLimits};
use gpuvitals_queue::link::{Credentials, GrpcConsumer, GrpcProducer, QueueUrl};
use gpuvitals_queue::protocol::v1::queue_client::QueueClient;
use gpuvitals_queue::server::{self, ServerConfig};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, Delivery, Frame, Queue, QueueClock, QueueConfig, TopicStats,
};
use gpuvitals_rig::waiting::retried;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

pub(crate) const TOPIC: &str = "gpu-telemetry";
/// How long anything may take before a test counts as failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A server with its queue.
pub(crate) struct Rig {
    pub(crate) queue: Queue,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<Result<(), AcceptError>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    pub(crate) fn with(queue: impl FnOnce(&mut QueueConfig), server: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = QueueConfig { backoff_base: Duration::ZERO, ..QueueConfig::default() };
        queue(&mut config);
        Self::over(Queue::in_process(config, QueueClock::system()), "127.0.0.1:0".parse().unwrap(), server)
    }

    /// Serves a queue at an address; one that was just left is free again.
    pub(crate) fn over(queue: Queue, address: SocketAddr, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let listener = gpuvitals_listener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let limits = ListenerLimits { drain: Duration::from_secs(1), ..ListenerLimits::default() };
        let mut config = ServerConfig { limits, ..ServerConfig::default() };
        change(&mut config);
        let stop = CancellationToken::new();
        let serving = server::serve(listener, queue.clone(), config, stop.clone());
        Self { queue, address, stop, served: tokio::spawn(serving) }
    }

    /// A client that says what it likes.
    pub(crate) async fn raw(&self) -> QueueClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        QueueClient::new(endpoint.connect().await.unwrap())
    }

    /// Messages that the topic holds.
    pub(crate) fn held(&self) -> u64 {
        self.queue.topic_stats(TOPIC).map_or(0, |stats| stats.messages)
    }

    /// Waits until the numbers of the topic are as they should be.
    pub(crate) async fn until(&self, holds: impl Fn(&TopicStats) -> bool) {
        let look = async || self.queue.topic_stats(TOPIC).is_ok_and(|stats| holds(&stats)).then_some(());
        retried("the numbers", look).await;
    }

    pub(crate) fn url(&self) -> QueueUrl {
        format!("grpc://{}", self.address).parse().unwrap()
    }

    pub(crate) fn producer(&self) -> GrpcProducer {
        GrpcProducer::new(&self.url(), &Credentials::default(), TOPIC).unwrap()
    }

    pub(crate) fn consumer(&self, group: &str) -> GrpcConsumer {
        self.consumer_with(group, &ConsumerOptions::default())
    }

    pub(crate) fn consumer_with(&self, group: &str, options: &ConsumerOptions) -> GrpcConsumer {
        GrpcConsumer::new(&self.url(), &Credentials::default(), TOPIC, group, options).unwrap()
    }

    /// Stops the server, and waits for its end.
    pub(crate) async fn stop(self) -> (Queue, SocketAddr) {
        self.stop.cancel();
        in_time(self.served).await.unwrap().unwrap();
        (self.queue, self.address)
    }
}

/// What comes of it, which must not take long.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("takes too long")
}

pub(crate) fn frame(count: u32) -> Frame {
    Frame::new(ContentType::Batch, count, vec![7; 100])
}

/// Options with so many credits.
pub(crate) fn credits(max_in_flight: u32) -> ConsumerOptions {
    let max_in_flight = NonZeroU32::new(max_in_flight).unwrap();
    ConsumerOptions { max_in_flight, ..ConsumerOptions::default() }
}

/// The next deliveries.
pub(crate) async fn receive(consumer: &mut impl Consumer) -> Vec<Delivery> {
    in_time(consumer.receive()).await.unwrap()
}
