//! Servers that die in the middle: nothing acknowledged is lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::publish_until;
use gpuvitals_queue::nats::{NatsConsumer, NatsProducer};
use gpuvitals_queue::{Consumer, ConsumerOptions, Frame, Producer, PublishError, Receipt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, receive, receive_one};
use crate::server::{self, Server};

pub(crate) const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(500) };

/// How long servers may take to elect their leaders on a busy machine.
const ELECTED: Duration = Duration::from_secs(90);

/// A producer that says why it failed last.
struct Telling(NatsProducer, Arc<Mutex<String>>);

impl Producer for Telling {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let outcome = self.0.publish(frame).await;
        if let Err(error) = &outcome {
            *self.1.lock().unwrap() = error.to_string();
        }
        outcome
    }
}

/// How many frames were taken, and why one was not.
#[derive(Clone, Default)]
struct Taken(watch::Sender<usize>, Arc<Mutex<String>>);

/// Publishes numbered frames until all of them are taken, a few at a time.
fn publish(place: &Nats, topic: &str, numbers: std::ops::Range<u64>, taken: &Taken) -> JoinSet<()> {
    let mut publishers = JoinSet::new();
    let producer = Arc::new(Telling(place.producer(topic), Arc::clone(&taken.1)));
    let next = Arc::new(Mutex::new(numbers));
    for _ in 0..8 {
        let (producer, next, taken) = (Arc::clone(&producer), Arc::clone(&next), taken.0.clone());
        publishers.spawn(async move {
            loop {
                let Some(number) = next.lock().unwrap().next() else { return };
                let frame = frame(10).stamped("p", number);
                publish_until(&*producer, frame, &CancellationToken::new(), &BACKOFF).await.unwrap();
                taken.send_modify(|taken| *taken += 1);
            }
        });
    }
    publishers
}

/// Receives and acknowledges until it has seen all of `count` numbers.
async fn consume(consumer: &mut NatsConsumer, count: usize) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    let away = consumer.away();
    while seen.len() < count {
        let Ok(received) = timeout(ELECTED, consumer.receive()).await else {
            panic!("nothing comes after {} of {count}: {:?}", seen.len(), *away.borrow());
        };
        for delivery in received.unwrap() {
            seen.insert(delivery.frame.producer.clone().unwrap().sequence);
            // Where an acknowledgement is lost the message comes again.
            let _settled = consumer.ack(&[delivery.id]).await;
        }
    }
    seen
}

async fn wait_until(Taken(taken, why): &Taken, count: usize) {
    let mut seen = taken.subscribe();
    let is_reached = timeout(ELECTED, seen.wait_for(|taken| *taken >= count)).await.is_ok();
    assert!(is_reached, "{} of {count} are taken: {}", *taken.borrow(), why.lock().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_has_all_it_acknowledged() {
    let mut server = Server::start().await;
    let place = Nats::at(server.url());
    let mut consumer = place.consumer("t", "g", &credits(200)).await;
    let taken = Taken::default();
    let publishers = publish(&place, "t", 0..3_000, &taken);
    let consumes = async {
        let seen = consume(&mut consumer, 3_000).await;
        assert!(seen.into_iter().eq(0..3_000), "each of them, and none that was not published");
    };
    let kills = async {
        for at in [500, 1_500] {
            wait_until(&taken, at).await;
            server.kill();
            server.run().await;
        }
    };
    tokio::join!(consumes, kills);
    publishers.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_lose_nothing_when_one_of_them_is_killed() {
    let mut cluster = server::cluster().await;
    let servers = &mut cluster.servers;
    let mut place = Nats::at(servers[0].url());
    place.settings().replicas = Some(1);
    let taken = Taken::default();
    publish(&place, "single", 0..1, &taken).join_all().await;
    assert_eq!(place.admin().stats("single").await.unwrap().replicas, 1);
    let place = Nats::at(servers[0].url());
    let taken = Taken::default();
    let publishers = publish(&place, "t", 0..1_500, &taken);
    wait_until(&taken, 400).await;
    // The one that the producer is connected to: it finds the others by itself.
    servers[0].kill();
    publishers.join_all().await;
    let survivor = Nats::at(servers[2].url());
    let mut consumer = survivor.member("t", "g", &credits(1_000));
    let seen = consume(&mut consumer, 1_500).await;
    assert!(seen.into_iter().eq(0..1_500));
    let stats = survivor.admin().stats("t").await.unwrap();
    assert_eq!((stats.replicas, stats.groups["g"].lag), (3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_goes_on_when_one_of_three_servers_is_killed() {
    let mut cluster = server::cluster().await;
    let servers = &mut cluster.servers;
    let place = Nats::at(servers[0].url());
    let taken = Taken::default();
    let publishers = publish(&Nats::at(servers[2].url()), "t", 0..1_500, &taken);
    let mut consumer = place.member("t", "g", &credits(200));
    let consumes = async {
        let seen = consume(&mut consumer, 1_500).await;
        assert!(seen.into_iter().eq(0..1_500));
    };
    let kills = async {
        wait_until(&taken, 400).await;
        // The one that the consumer is connected to.
        servers[0].kill();
        publishers.join_all().await;
    };
    tokio::join!(consumes, kills);
}

#[tokio::test]
async fn a_publish_without_a_server_fails_in_time_and_goes_on_with_the_same_stamp() {
    let mut server = Server::start().await;
    let place = Nats::at(server.url());
    let producer = place.producer("t");
    producer.publish(frame(1).stamped("p", 1)).await.unwrap();
    server.kill();
    for _ in 0..3 {
        let outcome =
            timeout(Duration::from_secs(15), producer.publish(frame(1).stamped("p", 2))).await.unwrap();
        assert!(matches!(outcome, Err(PublishError::Unavailable { .. })), "{outcome:?}");
    }
    server.run().await;
    let frame = frame(1).stamped("p", 2);
    let receipt = publish_until(&producer, frame.clone(), &CancellationToken::new(), &BACKOFF).await.unwrap();
    assert_eq!(receipt.offset, Some(2), "what could not be sent was not sent late");
    assert!(producer.publish(frame).await.unwrap().duplicate, "the server's memory of ids outlives it");
}

#[tokio::test]
async fn a_consumer_that_waits_says_that_its_server_went_away_and_came_back() {
    let mut server = Server::start().await;
    let place = Nats::at(server.url());
    // One waits for messages, one for credits.
    let options = ConsumerOptions { ack_timeout: Some(Duration::from_mins(5)), ..credits(1) };
    let (mut idle, mut busy) = (place.member("t", "g", &options), place.member("t", "h", &options));
    place.producer("t").publish(frame(1)).await.unwrap();
    let held = receive(&mut busy).await;
    let got = receive(&mut idle).await;
    idle.ack(&[got[0].id]).await.unwrap();
    let mut ways = [idle.away(), busy.away()];
    let outage = async {
        server.kill();
        for way in &mut ways {
            let told = timeout(Duration::from_secs(4), way.wait_for(Option::is_some)).await;
            assert!(told.unwrap().unwrap().as_ref().unwrap().contains("connection was lost"));
        }
        server.run().await;
        for way in &mut ways {
            timeout(ELECTED, way.wait_for(Option::is_none)).await.unwrap().unwrap();
        }
    };
    tokio::select! {
        () = outage => {}
        received = idle.receive() => panic!("{received:?}"),
        received = async { busy.receive().await } => panic!("{received:?} beside {held:?}"),
    }
}

#[tokio::test]
async fn a_consumer_waits_for_a_server_that_is_away() {
    let mut server = Server::start().await;
    let place = Nats::at(server.url());
    place.producer("t").publish(frame(3)).await.unwrap();
    server.kill();
    let mut consumer = place.member("t", "g", &ConsumerOptions::default());
    let mut away = consumer.away();
    let (delivery, ()) = tokio::join!(receive_one(&mut consumer), async {
        away.wait_for(Option::is_some).await.unwrap();
        server.run().await;
    });
    assert_eq!((delivery.frame.count, consumer.ack(&[delivery.id]).await), (3, Ok(3)));
}
