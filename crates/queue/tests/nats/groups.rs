//! Groups and streams that end while they have a member.

use std::time::Duration;

use futures_util::StreamExt;
use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::{Stamps, publish_until};
use gpuvitals_queue::nats::NatsConsumer;
use gpuvitals_queue::{Consumer, ConsumerOptions, DeliveryId, NackKind, SettleError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, is_quiet, nack, receive_one};
use crate::server::Server;
use crate::slow::SlowLink;

const SOON: Duration = Duration::from_secs(20);

/// Long enough to be no reason that anything happens within a test.
const LATE: Duration = Duration::from_mins(10);

fn patient(max_in_flight: u32) -> ConsumerOptions {
    ConsumerOptions { ack_timeout: Some(LATE), ..credits(max_in_flight) }
}

/// Publishes one frame, as often as it takes: a stream may have to be created first.
async fn publish(place: &Nats, count: u32) {
    let backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(100) };
    let (cancel, stamps) = (CancellationToken::new(), Stamps::new());
    let producer = place.producer("t");
    let sent = publish_until(&producer, stamps.stamp(frame(count)), &cancel, &backoff);
    timeout(SOON, sent).await.expect("in time").unwrap();
}

/// A server with one frame of five messages, and a member that was given it. The group is old enough to differ from one
/// that is created anew.
async fn world_with_delivery() -> (Server, Nats, NatsConsumer, DeliveryId) {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    publish(&place, 5).await;
    let mut consumer = place.member("t", "g", &patient(100));
    let id = receive_one(&mut consumer).await.id;
    assert!(is_quiet(&mut consumer).await);
    (server, place, consumer, id)
}

/// Runs a member, to which nothing is delivered, until it pulls.
async fn until_pull(place: &Nats, consumer: &mut NatsConsumer) {
    let mut pulls = place.pulls("t", "g").await;
    tokio::select! {
        pull = timeout(SOON, pulls.next()) => drop(pull.expect("in time").unwrap()),
        received = consumer.receive() => panic!("{received:?}"),
    }
}

async fn in_flight(place: &Nats) -> u64 {
    place.admin().stats("t").await.unwrap().groups["g"].in_flight
}

/// A server answers for a stream that it still makes, and a group of such a stream would get nothing for ever.
#[tokio::test]
async fn members_that_all_come_first_leave_the_server_time_to_make_the_stream() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let mut asked = place.listen("$JS.API.>").await;
    let mut members: JoinSet<_> = (0..8)
        .map(|_| {
            let mut member = place.member("t", "g", &patient(10));
            async move { member.receive().await.unwrap().len() }
        })
        .collect();
    let mut made = None;
    let waited = loop {
        let asked = timeout(SOON, asked.next()).await.expect("in time").unwrap();
        match asked.subject.as_str() {
            "$JS.API.STREAM.CREATE.gpuvitals-t" => drop(made.get_or_insert_with(Instant::now)),
            "$JS.API.CONSUMER.DURABLE.CREATE.gpuvitals-t.g" => break made.expect("a stream").elapsed(),
            _ => {}
        }
    };
    assert!(waited > Duration::from_millis(900), "{waited:?}");
    publish(&place, 5).await;
    let came = timeout(SOON, members.join_next()).await.expect("somebody gets it");
    assert_eq!(came.unwrap().unwrap(), 1);
}

/// An id of a group that was created anew settles nothing.
async fn settles_nothing(consumer: &NatsConsumer, old: DeliveryId) {
    assert_eq!(consumer.ack(&[old]).await, Ok(0));
    assert_eq!(consumer.nack(&[nack(old, NackKind::Reject)]).await, Ok(0));
    let over = SettleError::LeaseOver { id: old, more: 0 };
    assert_eq!(consumer.extend(&[old], Duration::from_secs(1)).await, Err(over));
}

#[tokio::test]
async fn a_slow_link_is_joined_by_a_member_that_stops_waiting_again_and_again() {
    let server = Server::start().await;
    publish(&Nats::at(server.url()), 3).await;
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
async fn a_removed_group_is_created_anew_by_its_member() {
    let (_server, place, mut consumer, mut old) = world_with_delivery().await;
    let admin = place.admin();
    // Once while it waits for messages, and once while it does not.
    for waits in [true, false] {
        let mut pulls = place.pulls("t", "g").await;
        let removed = async {
            if waits {
                pulls.next().await.unwrap();
            }
            admin.remove_group("t", "g").await.unwrap();
        };
        let anew = if waits {
            tokio::join!(receive_one(&mut consumer), removed).0
        } else {
            removed.await;
            receive_one(&mut consumer).await
        };
        assert_eq!((anew.frame.count, anew.attempt), (5, 1), "it begins with the oldest message held");
        settles_nothing(&consumer, old).await;
        assert_eq!(in_flight(&place).await, 1, "the new delivery is not settled");
        assert_eq!(consumer.ack(&[anew.id]).await, Ok(5));
        old = anew.id;
    }
    let missing = admin.remove_group("t", "stranger").await.unwrap_err().to_string();
    assert_eq!(missing, "cannot use group stranger in NATS: it does not exist");
}

#[tokio::test]
async fn a_server_that_lost_everything_is_joined_anew() {
    let (mut server, place, mut consumer, old) = world_with_delivery().await;
    server.kill();
    server.lose_all();
    server.run().await;
    publish(&place, 7).await;
    let new = receive_one(&mut consumer).await;
    assert_eq!((new.frame.count, new.id.to_string()), (7, old.to_string()), "another message, the same name");
    settles_nothing(&consumer, old).await;
    assert_eq!(in_flight(&place).await, 1, "the new one is not settled");
    assert_eq!(consumer.ack(&[new.id]).await, Ok(7));
}

#[tokio::test]
async fn a_member_that_finds_the_group_created_anew_by_another_one_joins_anew_too() {
    let (mut server, place, mut holder, old) = world_with_delivery().await;
    let mut other = place.member("t", "g", &patient(100));
    until_pull(&place, &mut other).await;
    server.kill();
    server.lose_all();
    server.run().await;
    publish(&place, 7).await;
    let new = receive_one(&mut other).await;
    assert_eq!((new.frame.count, new.id.offset), (7, old.offset), "another message, the same number");
    until_pull(&place, &mut holder).await;
    settles_nothing(&holder, old).await;
    assert_eq!(in_flight(&place).await, 1, "the new one is not settled");
    assert_eq!(other.ack(&[new.id]).await, Ok(7));
}

#[tokio::test]
async fn a_lease_outlives_a_restart_of_the_server() {
    for has_rejoined in [false, true] {
        let (mut server, place, mut consumer, id) = world_with_delivery().await;
        server.kill();
        server.run().await;
        if !has_rejoined {
            assert_eq!(consumer.ack(&[id]).await, Ok(5), "sent as soon as the connection is back");
        }
        publish(&place, 7).await;
        let next = receive_one(&mut consumer).await;
        assert_eq!((next.frame.count, next.attempt), (7, 1));
        if has_rejoined {
            assert_eq!(consumer.ack(&[id]).await, Ok(5), "the group is the same");
        }
        assert_eq!(consumer.ack(&[next.id]).await, Ok(7));
        assert!(is_quiet(&mut consumer).await);
        consumer.leave().await;
        assert_eq!(in_flight(&place).await, 0);
    }
}

#[tokio::test]
async fn an_abandoned_group_with_a_time_to_live_is_removed() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    publish(&place, 1).await;
    let mut removed = place.listen("$JS.EVENT.ADVISORY.CONSUMER.DELETED.gpuvitals-t.brief").await;
    let options = ConsumerOptions { group_ttl: Some(Duration::from_secs(1)), ..credits(10) };
    let mut brief = place.member("t", "brief", &options);
    receive_one(&mut brief).await;
    let admin = place.admin();
    assert!(admin.stats("t").await.unwrap().groups.contains_key("brief"));
    brief.leave().await;
    timeout(SOON, removed.next()).await.expect("in time").unwrap();
    assert!(!admin.stats("t").await.unwrap().groups.contains_key("brief"));
}
