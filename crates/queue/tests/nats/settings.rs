//! Streams and consumers with the settings of a URL.

use std::time::Duration;

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use gpuvitals_queue::link::Credentials;
use gpuvitals_queue::{Consumer, NackKind, Producer, PublishError};

use crate::Nats;
use crate::behaviour::{ACK_TIMEOUT, Place, credits, frame, nack, receive_one};
use crate::server::Server;

/// As an operator writes it.
fn place(server: &Server, query: &str) -> Nats {
    let url = format!("nats://127.0.0.1:{}?{query}", server.port).parse().unwrap();
    Nats { url, access: Credentials::default() }
}

async fn stream(server: &Server, name: &str) -> Config {
    let context = server.by_hand().await;
    let mut stream = context.get_stream(name).await.unwrap();
    stream.info().await.unwrap().config.clone()
}

#[tokio::test]
async fn streams_and_consumers_are_created_with_the_settings_of_the_url() {
    let server = Server::start().await;
    let query = "replicas=1&max_bytes=8MiB&max_age=2h&max_retries=0";
    let place = place(&server, query);
    place.producer("t").publish(frame(1)).await.unwrap();
    let mut consumer = place.member("t", "g", &credits(1));
    let id = receive_one(&mut consumer).await.id;
    assert_eq!(consumer.nack(&[nack(id, NackKind::Retry)]).await, Ok(1));
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "no retry, so it is dead");

    let made = stream(&server, "gpuvitals-t").await;
    assert_eq!((made.max_bytes, made.max_age, made.num_replicas), (8 << 20, Duration::from_hours(2), 1));
    assert_eq!((made.retention, made.discard), (RetentionPolicy::Limits, DiscardPolicy::New));
    assert_eq!((made.storage, made.duplicate_window), (StorageType::File, Duration::from_mins(2)));
    let dead = stream(&server, "gpuvitals-t+dead").await;
    assert_eq!((dead.max_bytes, dead.max_age, dead.discard), (64 << 20, Duration::ZERO, DiscardPolicy::Old));

    let stream = server.by_hand().await.get_stream("gpuvitals-t").await.unwrap();
    let group = stream.consumer_info("g").await.unwrap().config;
    assert_eq!((group.ack_policy, group.ack_wait), (AckPolicy::Explicit, ACK_TIMEOUT));
    assert_eq!((group.max_deliver, &group.backoff[..]), (-1, &[][..]));
}

#[tokio::test]
async fn an_existing_stream_is_used_as_it_is() {
    let server = Server::start().await;
    place(&server, "max_bytes=8MiB").producer("t").publish(frame(1)).await.unwrap();
    place(&server, "max_bytes=16MiB&replicas=3").producer("t").publish(frame(1)).await.unwrap();
    let kept = stream(&server, "gpuvitals-t").await;
    assert_eq!((kept.max_bytes, kept.num_replicas), (8 << 20, 1));

    let refused = place(&server, "replicas=3").producer("new").publish(frame(1)).await;
    let Err(PublishError::Refused { reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("3 replicas"), "{reason}");
}
