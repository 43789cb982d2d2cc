//! NATS JetStream in place of the broker: the same behaviour, and what happens to it when servers die.
//!
//! Tests begin in the order of their names. Those that wait longest have names that come soon, so that others run meanwhile.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod admission;
mod away;
mod behaviour;
mod credentials;
mod dead;
mod groups;
mod limits;
mod server;
mod settings;
mod slow;

use std::sync::Arc;

use futures_util::StreamExt;
use gpuvitals_queue::link::{Credentials, QueueUrl};
use gpuvitals_queue::nats::{NatsAdmin, NatsConsumer, NatsProducer, NatsSettings};
use gpuvitals_queue::{Consumer, ConsumerOptions, Start};

use self::behaviour::{ACK_TIMEOUT, InProcess, MAX_RETRIES, Place};
use self::server::Server;

/// NATS at a URL.
struct Nats {
    url: QueueUrl,
    access: Credentials,
}

impl Nats {
    fn at(url: QueueUrl) -> Self {
        let settings =
            NatsSettings { max_retries: MAX_RETRIES, max_bytes: 64 << 20, ..NatsSettings::default() };
        Self { url: QueueUrl { nats: Arc::new(settings), ..url }, access: Credentials::default() }
    }

    fn settings(&mut self) -> &mut NatsSettings {
        Arc::make_mut(&mut self.url.nats)
    }

    fn admin(&self) -> NatsAdmin {
        NatsAdmin::new(&self.url, &self.access)
    }

    fn member(&self, topic: &str, group: &str, options: &ConsumerOptions) -> NatsConsumer {
        let ack_timeout = options.ack_timeout.or(Some(ACK_TIMEOUT));
        let options = ConsumerOptions { ack_timeout, ..*options };
        NatsConsumer::new(&self.url, &self.access, topic, group, &options).unwrap()
    }

    /// Everything published on a subject, JetStream's own ones included.
    async fn listen(&self, subject: &str) -> async_nats::Subscriber {
        let client = async_nats::connect(self.url.to_string()).await.unwrap();
        let subscriber = client.subscribe(subject.to_owned()).await.unwrap();
        client.flush().await.unwrap();
        subscriber
    }

    /// The pulls of a group's members.
    async fn pulls(&self, topic: &str, group: &str) -> async_nats::Subscriber {
        self.listen(&format!("$JS.API.CONSUMER.MSG.NEXT.gpuvitals-{topic}.{group}")).await
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
            let mut pulls = self.pulls(topic, group).await;
            tokio::select! {
                _ = pulls.next() => {}
                received = consumer.receive() => panic!("{received:?}"),
            }
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
    a_lease_that_is_over_frees_its_credits_and_can_be_acknowledged,
    an_extended_lease_is_not_given_to_others,
    a_refused_message_is_tried_again_and_then_dead,
    who_leaves_gives_back_at_once,
    a_new_group_begins_where_it_says,
    what_was_never_delivered_cannot_be_settled,
];
