//! What streams and consumers are made with, and become, when the URL says so.

use std::time::Duration;

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use gpuvitals_queue::link::{Access, Stamps, publish_until};
use gpuvitals_queue::{Consumer, ContentType, Frame, NackKind, Producer, PublishError};
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, nack, receive_one};
use crate::server::{self, Server};

/// As an operator writes it.
fn place(server: &Server, query: &str) -> Nats {
    let url = format!("nats://127.0.0.1:{}?{query}", server.port).parse().unwrap();
    Nats { url, access: Access::default() }
}

async fn stream(server: &Server, name: &str) -> Config {
    let context = server.by_hand().await;
    let mut stream = context.get_stream(name).await.unwrap();
    stream.info().await.unwrap().config.clone()
}

#[tokio::test]
async fn streams_and_consumers_are_made_with_what_the_url_names() {
    let server = Server::start().await;
    let query =
        "replicas=1&max_bytes=8MiB&max_dead_bytes=2MiB&duplicate_window=5m&max_retries=0&backoff_base=1s";
    let place = place(&server, query);
    place.producer("t").publish(frame(1)).await.unwrap();
    let mut consumer = place.member("t", "g", &credits(1));
    let id = receive_one(&mut consumer).await.id;
    assert_eq!(consumer.nack(&[nack(id, NackKind::Retry)]).await, Ok(1));
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "no retry, so it is dead");

    let made = stream(&server, "gpuvitals-t").await;
    assert_eq!((made.max_bytes, made.num_replicas, made.discard), (8 << 20, 1, DiscardPolicy::New));
    assert_eq!((made.storage, made.duplicate_window), (StorageType::File, Duration::from_mins(5)));
    let dead = stream(&server, "gpuvitals-t+dead").await;
    assert_eq!(
        (dead.max_bytes, dead.discard, dead.storage),
        (2 << 20, DiscardPolicy::Old, StorageType::File)
    );

    let waits = self::place(&server, "max_retries=2&backoff_base=1s&backoff_cap=1s");
    let mut other = waits.member("t", "other", &credits(1));
    receive_one(&mut other).await;
    let stream = server.by_hand().await.get_stream("gpuvitals-t").await.unwrap();
    let group = stream.consumer_info("other").await.unwrap().config;
    assert_eq!(group.ack_policy, AckPolicy::Explicit);
    assert_eq!(group.backoff, [Duration::from_secs(6); 2], "the time to acknowledge and the wait");
}

#[tokio::test]
async fn a_stream_of_ours_becomes_what_the_url_names_and_keeps_its_messages() {
    let server = Server::start().await;
    let first = place(&server, "max_bytes=8MiB");
    let large = || Frame::new(ContentType::Batch, 1, vec![7; 300 << 10]);
    for _ in 0..5 {
        first.producer("t").publish(large()).await.unwrap();
    }
    let unsaid = place(&server, "");
    unsaid.producer("t").publish(large()).await.unwrap();
    assert_eq!(stream(&server, "gpuvitals-t").await.max_bytes, 8 << 20, "who says nothing changes nothing");

    let more = place(&server, "max_bytes=16MiB&duplicate_window=5m");
    more.producer("t").publish(large()).await.unwrap();
    let changed = stream(&server, "gpuvitals-t").await;
    assert_eq!((changed.max_bytes, changed.duplicate_window), (16 << 20, Duration::from_mins(5)));
    assert_eq!((changed.discard, changed.subjects), (DiscardPolicy::New, vec!["gpuvitals.t".to_owned()]));

    let less = place(&server, "max_bytes=1MiB&when_full=drop_oldest");
    less.producer("t").publish(large()).await.unwrap();
    let changed = stream(&server, "gpuvitals-t").await;
    assert_eq!((changed.max_bytes, changed.discard), (16 << 20, DiscardPolicy::Old));
    assert_eq!(
        less.admin().stats("t").await.unwrap().frames,
        8,
        "the server would have dropped what it holds"
    );
}

#[tokio::test]
async fn what_cannot_be_changed_is_used_as_it_is() {
    let server = Server::start().await;
    let config =
        Config { name: "gpuvitals-t".into(), subjects: vec!["gpuvitals.t".into()], ..Config::default() };
    server.by_hand().await.create_stream(config).await.unwrap();
    place(&server, "max_bytes=8MiB").producer("t").publish(frame(1)).await.unwrap();
    assert_eq!(stream(&server, "gpuvitals-t").await.max_bytes, -1, "it is somebody else's");

    place(&server, "").producer("ours").publish(frame(1)).await.unwrap();
    place(&server, "replicas=3").producer("ours").publish(frame(1)).await.unwrap();
    assert_eq!(stream(&server, "gpuvitals-ours").await.num_replicas, 1, "there is no cluster");

    let refused = place(&server, "replicas=3").producer("new").publish(frame(1)).await;
    let Err(PublishError::Refused { reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("3 replicas"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_as_many_copies_as_the_url_says_from_then_on() {
    let cluster = server::cluster().await;
    let server = &cluster.servers[0];
    for replicas in [1, 3] {
        let place = place(server, &format!("replicas={replicas}"));
        let frame = Stamps::new().stamp(frame(1));
        let backoff = crate::outages::BACKOFF;
        publish_until(&place.producer("t"), frame, &CancellationToken::new(), &backoff).await.unwrap();
        assert_eq!(place.admin().stats("t").await.unwrap().replicas, replicas);
    }
    let mut consumer = place(server, "").member("t", "g", &credits(10));
    for _ in 0..2 {
        let id = receive_one(&mut consumer).await.id;
        assert_eq!(consumer.ack(&[id]).await, Ok(1));
    }
}
