//! Groups and streams that end while somebody is a member: he is told, and what is of one life settles nothing of the
//! next.

use std::time::Duration;

use gpuvitals_queue::link::{Backoff, Stamps, publish_until};
use gpuvitals_queue::nats::NatsConsumer;
use gpuvitals_queue::{Consumer, ConsumerOptions, DeliveryId, NackKind, Producer, ReceiveError, SettleError};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, is_quiet, nack, receive, receive_one};
use crate::server::Server;
use crate::slow::SlowLink;

const SOON: Duration = Duration::from_secs(20);

/// Long enough to be no reason that anything happens within a test.
const LATE: Duration = Duration::from_mins(10);

/// A server, and a topic there.
async fn world() -> (Server, Nats) {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    (server, place)
}

/// A server with one frame of five messages, and a member that was given it and has asked for more.
async fn world_with_delivery() -> (Server, Nats, NatsConsumer, DeliveryId) {
    let (server, place) = world().await;
    publish(&place, 5).await;
    let mut consumer = place.member("t", "g", &patient(100));
    let id = receive_one(&mut consumer).await.id;
    assert!(is_quiet(&mut consumer).await);
    (server, place, consumer, id)
}

async fn remove_group(server: &Server, group: &str) {
    let stream = server.by_hand().await.get_stream("gpuvitals-t").await.unwrap();
    stream.delete_consumer(group).await.unwrap();
}

async fn remove_stream(server: &Server) {
    server.by_hand().await.delete_stream("gpuvitals-t").await.unwrap();
}

async fn is_told(consumer: &mut NatsConsumer) {
    let told = timeout(SOON, consumer.receive()).await.expect("it is told in time");
    assert_eq!(told.unwrap_err(), ReceiveError::NotSubscribed);
}

fn patient(max_in_flight: u32) -> ConsumerOptions {
    ConsumerOptions { ack_timeout: Some(LATE), ..credits(max_in_flight) }
}

/// Publishes one frame, as often as it takes: a stream may have to be made first.
async fn publish(place: &Nats, count: u32) {
    let backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(100) };
    let (cancel, stamps) = (CancellationToken::new(), Stamps::new());
    let producer = place.producer("t");
    let sent = publish_until(&producer, stamps.stamp(frame(count)), &cancel, &backoff);
    timeout(SOON, sent).await.expect("in time").unwrap();
}

async fn in_flight(place: &Nats) -> u64 {
    place.admin().stats("t").await.unwrap().groups["g"].in_flight
}

/// Whatever is done with an id of a life that is over does nothing.
async fn settles_nothing(consumer: &NatsConsumer, old: DeliveryId) {
    assert_eq!(consumer.ack(&[old]).await, Ok(0));
    assert_eq!(consumer.nack(&[nack(old, NackKind::Reject)]).await, Ok(0));
    let over = SettleError::LeaseOver { id: old, more: 0 };
    assert_eq!(consumer.extend(&[old], Duration::from_secs(1)).await, Err(over));
}

#[tokio::test]
async fn a_slow_link_is_joined_by_who_stops_waiting_again_and_again() {
    let server = Server::start().await;
    Nats::at(server.url()).producer("t").publish(frame(3)).await.unwrap();
    let link = SlowLink::to(server.port, Duration::from_millis(200)).await;
    let place = Nats::at(format!("nats://127.0.0.1:{}", link.port).parse().unwrap());
    let mut consumer = place.member("t", "g", &patient(10));
    let deadline = Instant::now() + SOON;
    let delivery = loop {
        assert!(Instant::now() < deadline, "it never joins");
        if let Ok(received) = timeout(Duration::from_millis(150), consumer.receive()).await {
            break received.unwrap().remove(0);
        }
    };
    assert_eq!(consumer.ack(&[delivery.id]).await, Ok(3));
}

#[tokio::test]
async fn a_group_that_is_removed_is_told_to_who_waits_for_credits() {
    let (server, place) = world().await;
    publish(&place, 5).await;
    let mut consumer = place.member("t", "g", &patient(5));
    let old = receive_one(&mut consumer).await.id;
    let (told, ()) = tokio::join!(timeout(SOON, consumer.receive()), async {
        sleep(Duration::from_millis(300)).await;
        remove_group(&server, "g").await;
    });
    assert_eq!(told.expect("in time").unwrap_err(), ReceiveError::NotSubscribed);
    assert_eq!(consumer.ack(&[old]).await, Err(SettleError::ConnectionLost));
    let anew = receive_one(&mut consumer).await;
    assert_eq!((anew.frame.count, anew.attempt), (5, 1), "the next receive joins the group anew");
    settles_nothing(&consumer, old).await;
    assert_eq!(consumer.ack(&[anew.id]).await, Ok(5));
}

#[tokio::test]
async fn a_group_that_is_removed_is_told_to_who_waits_for_messages_or_for_nothing() {
    let (server, place) = world().await;
    let mut waits = place.member("t", "g", &patient(5));
    let (told, ()) = tokio::join!(timeout(SOON, waits.receive()), async {
        sleep(Duration::from_millis(300)).await;
        remove_group(&server, "g").await;
    });
    assert_eq!(told.expect("in time").unwrap_err(), ReceiveError::NotSubscribed);
    publish(&place, 5).await;
    let id = receive_one(&mut waits).await.id;
    assert_eq!(waits.ack(&[id]).await, Ok(5));
    remove_group(&server, "g").await;
    is_told(&mut waits).await;
}

#[tokio::test]
async fn a_delivery_of_a_stream_that_was_made_anew_settles_nothing() {
    let (server, place, mut consumer, old) = world_with_delivery().await;
    remove_stream(&server).await;
    publish(&place, 7).await;
    is_told(&mut consumer).await;
    let new = receive_one(&mut consumer).await;
    assert_eq!((new.frame.count, new.id.to_string()), (7, old.to_string()), "another message, the same name");
    settles_nothing(&consumer, old).await;
    assert_eq!(in_flight(&place).await, 1, "the new one is not settled");
    assert_eq!(consumer.ack(&[new.id]).await, Ok(7));
}

#[tokio::test]
async fn an_old_delivery_settles_nothing_of_others_before_its_member_was_told() {
    let (server, place, mut consumer, old) = world_with_delivery().await;
    remove_stream(&server).await;
    publish(&place, 7).await;
    let mut other = place.member("t", "g", &patient(100));
    let new = receive_one(&mut other).await.id;
    assert_eq!(old.offset, new.offset);
    assert_eq!(consumer.ack(&[old]).await, Err(SettleError::ConnectionLost));
    assert_eq!(in_flight(&place).await, 1, "it is the other's");
    assert_eq!(other.ack(&[new]).await, Ok(7));
    is_told(&mut consumer).await;
}

#[tokio::test]
async fn a_server_that_lost_all_it_had_is_joined_anew() {
    let (mut server, place, mut consumer, old) = world_with_delivery().await;
    server.kill();
    server.lose_all();
    server.run().await;
    publish(&place, 7).await;
    let new = receive_one(&mut consumer).await;
    assert_eq!((new.frame.count, new.id.to_string()), (7, old.to_string()));
    settles_nothing(&consumer, old).await;
    assert_eq!(in_flight(&place).await, 1);
    assert_eq!(consumer.ack(&[new.id]).await, Ok(7));
}

#[tokio::test]
async fn a_lease_outlives_a_restart_of_the_server() {
    let (mut server, _, consumer, id) = world_with_delivery().await;
    server.kill();
    server.run().await;
    let deadline = Instant::now() + SOON;
    let settled = loop {
        match consumer.ack(&[id]).await {
            Err(SettleError::ConnectionLost) if Instant::now() < deadline => {}
            settled => break settled,
        }
    };
    assert_eq!(settled, Ok(5));
}

#[tokio::test]
async fn a_stream_that_was_made_anew_is_trimmed_too() {
    let (server, place) = world().await;
    let mut consumer = place.member("t", "g", &patient(100));
    for frames in [5, 2] {
        for _ in 0..frames {
            publish(&place, 1).await;
        }
        let mut acked = 0;
        while acked < frames {
            let ids: Vec<_> = receive(&mut consumer).await.iter().map(|delivery| delivery.id).collect();
            acked += consumer.ack(&ids).await.unwrap();
        }
        let deadline = Instant::now() + SOON;
        while place.admin().stats("t").await.unwrap().frames > 0 {
            assert!(Instant::now() < deadline, "what all groups have acknowledged stays");
            assert!(timeout(Duration::from_millis(100), consumer.receive()).await.is_err());
        }
        remove_stream(&server).await;
        is_told(&mut consumer).await;
    }
}
