//! A queue and its HTTP port.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::server::{HttpLimits, ServerConfig, ServerMeter, serve};
use gpuvitals_queue::{Consumer as _, ConsumerOptions, Delivery, Encoding, Queue, QueueClock, QueueConfig};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) struct World {
    pub(crate) queue: Queue,
    pub(crate) at: SocketAddr,
    pub(crate) meter: Arc<ServerMeter>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(QueueConfig::default(), HttpLimits::default())
    }

    pub(crate) fn with(config: QueueConfig, http: HttpLimits) -> Self {
        Self::serving(
            config,
            "127.0.0.1:0".parse().unwrap(),
            ServerConfig { http, ..ServerConfig::default() },
        )
    }

    pub(crate) fn serving(config: QueueConfig, at: SocketAddr, server: ServerConfig) -> Self {
        Self::over(Queue::in_process(config, QueueClock::system()), at, server)
    }

    /// Serves a queue at an address; one that was just left is free again.
    pub(crate) fn over(queue: Queue, at: SocketAddr, server: ServerConfig) -> Self {
        let listener = gpuvitals_listener::bind(at).unwrap();
        let at = listener.local_addr().unwrap();
        let meter = Arc::clone(&server.meter);
        tokio::spawn(serve(listener, queue.clone(), server, CancellationToken::new()));
        Self { queue, at, meter }
    }

    /// Everything that a topic holds, as the messages that collectors see, by frame.
    pub(crate) async fn frames(&self, topic: &str) -> Vec<(Delivery, Vec<Value>)> {
        let options = ConsumerOptions { max_in_flight: 10_000_000.try_into().unwrap(), ..Default::default() };
        let mut consumer = self.queue.subscribe(topic, "reader", &options).await.unwrap();
        let mut frames = Vec::new();
        let held = self.queue.topic_stats(topic).unwrap().messages;
        let mut seen = 0;
        while seen < held {
            let wait = tokio::time::timeout(Duration::from_secs(10), consumer.receive());
            for delivery in wait.await.expect("messages come").unwrap() {
                seen += u64::from(delivery.frame.count);
                let messages = opened(&delivery);
                frames.push((delivery, messages));
            }
        }
        consumer.leave().await;
        self.queue.remove_group(topic, "reader").unwrap();
        frames
    }
}

/// The JSON messages of a frame.
fn opened(delivery: &Delivery) -> Vec<Value> {
    let frame = &delivery.frame;
    let document = match frame.encoding {
        Encoding::Identity => frame.payload.to_vec(),
        Encoding::Zstd => zstd::stream::decode_all(frame.payload.as_ref()).unwrap(),
    };
    let messages = match serde_json::from_slice(&document) {
        Ok(Value::Array(messages)) => messages,
        Ok(message) => vec![message],
        Err(_) => return Vec::new(),
    };
    assert_eq!(messages.len(), frame.count as usize);
    messages
}

/// A message of a GPU; `number` tells it from others.
pub(crate) fn message(number: u32) -> String {
    format!(
        r#"{{"timestamp":"2026-01-01T00:00:00Z","fields":{{"gpu_id":"gpu_0","temperature":61,"number":{number}}}}}"#
    )
}

/// So many messages with something between them.
pub(crate) fn messages(count: u32, between: &str) -> String {
    (0..count).map(message).collect::<Vec<_>>().join(between)
}

pub(crate) fn array(count: u32) -> String {
    format!("[{}]", messages(count, ","))
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packing = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packing.write_all(bytes).unwrap();
    packing.finish().unwrap()
}
