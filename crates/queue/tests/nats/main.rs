//! NATS JetStream in place of the broker: the same behaviour, and what becomes of it when servers die.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod admission;
mod behaviour;
mod credentials;
mod letters;
mod lives;
mod outages;
mod server;
mod settings;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::link::{Access, Backoff, QueueUrl};
use gpuvitals_queue::nats::{NatsAdmin, NatsConsumer, NatsProducer, NatsSettings};
use gpuvitals_queue::{Consumer, ConsumerOptions, Start};
use tokio::time::timeout;

use self::behaviour::{ACK_TIMEOUT, InProcess, MAX_RETRIES, Place};
use self::server::Server;

/// NATS at a URL.
struct Nats {
    url: QueueUrl,
    access: Access,
}

impl Nats {
    fn at(url: QueueUrl) -> Self {
        let settings = NatsSettings {
            ack_timeout: ACK_TIMEOUT,
            max_retries: MAX_RETRIES,
            backoff: Backoff { base: Duration::from_millis(20), cap: Duration::from_secs(1) },
            max_bytes: Some(64 << 20),
            max_dead_bytes: Some(8 << 20),
            ..NatsSettings::default()
        };
        Self { url: QueueUrl { nats: Arc::new(settings), ..url }, access: Access::default() }
    }

    fn admin(&self) -> NatsAdmin {
        NatsAdmin::new(&self.url, &self.access)
    }

    fn member(&self, topic: &str, group: &str, options: &ConsumerOptions) -> NatsConsumer {
        NatsConsumer::new(&self.url, &self.access, topic, group, options).unwrap()
    }
}

impl Place for Nats {
    type Producer = NatsProducer;
    type Consumer = NatsConsumer;

    fn producer(&self, topic: &str) -> NatsProducer {
        NatsProducer::new(&self.url, &self.access, topic).unwrap()
    }

    async fn consumer(&self, topic: &str, group: &str, options: &ConsumerOptions) -> NatsConsumer {
        let mut consumer = self.member(topic, group, options);
        // It joins with the first receive, which matters to a group that begins with what comes next.
        if options.start == Start::Newest {
            let early = timeout(Duration::from_secs(1), consumer.receive()).await;
            assert!(early.is_err(), "{early:?}");
        }
        consumer
    }
}

/// Each behaviour, on each kind of queue, each time a new one.
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test] async fn $name() { super::behaviour::$name(&super::InProcess::new()).await; })*
        }
        mod nats {
            $(#[tokio::test] async fn $name() {
                let server = super::Server::start().await;
                super::behaviour::$name(&super::Nats::at(server.url())).await;
            })*
        }
    };
}

behaviours![
    a_frame_arrives_as_it_was_sent,
    a_repeat_is_recognised,
    every_group_sees_everything_and_one_member_each,
    credits_are_respected,
    what_is_not_acknowledged_comes_again,
    an_extended_lease_is_not_given_to_others,
    a_refused_message_is_tried_again_and_then_dead,
    who_leaves_gives_back_at_once,
    a_new_group_begins_where_it_says,
    what_was_never_delivered_cannot_be_settled,
];
