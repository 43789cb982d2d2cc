//! The message queue of gpuvitals.
//!
//! Telemetry travels in [`Frame`]s: opaque bytes with a counted number of messages (a message is one row).
//! The queue stores and forwards a frame unopened. Frames are delivered, acknowledged, refused and delivered
//! again; statistics, credits and bounds count messages.
//!
//! Two layers:
//!
//! - [`broker`]: topics, groups, leases, redelivery, dead letters and flow control as a state machine
//!   without I/O. Time is an argument, randomness comes from a seed, so every behaviour can be replayed.
//! - [`service`]: the interface to other parts of the program. [`Queue::in_process`] wraps a broker for one
//!   process, [`Queue::open`] one in a directory; [`Producer`] and [`Consumer`] are the interface of every
//!   transport.
//!
//! Promises:
//!
//! - *At least once.* A frame is held until every group that wants it has acknowledged it or given up on it.
//!   Equal rows merge downstream, so a repeat changes nothing.
//! - *Every group sees every message; within a group one consumer at a time holds a message.*
//! - *No order.* Redeliveries come out of order; rows carry their time.
//! - *Bounded.* Every topic has a bound in messages and bytes, and what exceeds it is counted.
//!
//! ```
//! use gpuvitals_queue::{QueueClock, Consumer, ConsumerOptions, ContentType, Frame, Queue, QueueConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
//! let mut collector = queue.subscribe("gpu-telemetry", "collector", &ConsumerOptions::default()).await?;
//! queue.publish("gpu-telemetry", Frame::new(ContentType::Json, 1, "{}")).await?;
//! for delivery in collector.receive().await? {
//!     // Store `delivery.frame.payload`, and only then:
//!     collector.ack(&[delivery.id]).await?;
//! }
//! queue.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! In memory it ends with its process; [`Queue::open`] keeps it in a directory. It never opens payloads.

pub mod broker;
mod config;
mod frame;
mod journal;
pub mod link;
mod name;
pub mod nats;
pub mod protocol;
pub mod server;
pub mod service;
mod settings;
mod stats;
mod trouble;

pub use broker::{
    AdminError, Broker, ConsumerId, ConsumerOptions, DeadLetter, DeadSelection, Delivery, DeliveryId,
    Failure, FrameDurability, GroupId, Nack, NackKind, PublishError, Receipt, ReceiveError, Replayed,
    SettleError, Start, SubscribeError, TopicId, Wake,
};
pub use config::{Drain, QueueConfig, WhenFull};
pub use frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp};
pub use journal::{OpenError, Opened};
pub use name::{DEAD_SUFFIX, NAME_LEN_MAX, NameError, PRODUCER_LEN_MAX, dead_topic};
pub use service::{
    Consumer, DrainReport, InProcessConsumer, InProcessProducer, Producer, Publishing, Queue, QueueClock,
};
pub use settings::BrokerSettings;
pub use stats::{GroupStats, QueueHealth, QueueStats, TopicStats};
