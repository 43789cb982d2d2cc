//! Servers that die in the middle: nothing acknowledged is lost.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_queue::link::{Backoff, publish_until};
use gpuvitals_queue::nats::{NatsConsumer, NatsProducer};
use gpuvitals_queue::{Consumer, ConsumerOptions, Frame, Producer, PublishError, Receipt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, is_quiet, receive};
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
struct Taken(Arc<AtomicUsize>, Arc<Mutex<String>>);

/// Publishes numbered frames until all of them are taken, a few at a time.
fn publish(place: &Nats, topic: &str, numbers: std::ops::Range<u64>, taken: &Taken) -> JoinSet<()> {
    let mut publishers = JoinSet::new();
    let producer = Arc::new(Telling(place.producer(topic), Arc::clone(&taken.1)));
    let next = Arc::new(Mutex::new(numbers));
    for _ in 0..8 {
        let (producer, next, taken) = (Arc::clone(&producer), Arc::clone(&next), Arc::clone(&taken.0));
        publishers.spawn(async move {
            loop {
                let Some(number) = next.lock().unwrap().next() else { return };
                let frame = frame(10).stamped("p", number);
                publish_until(&*producer, frame, &CancellationToken::new(), &BACKOFF).await.unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
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
    let deadline = Instant::now() + ELECTED;
    while taken.load(Ordering::Relaxed) < count {
        let so_far = taken.load(Ordering::Relaxed);
        assert!(Instant::now() < deadline, "{so_far} of {count} are taken: {}", why.lock().unwrap());
        sleep(Duration::from_millis(2)).await;
    }
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
    let mut place = Nats::at(server.url());
    Arc::make_mut(&mut place.url.nats).ack_timeout = Duration::from_mins(5);
    // One waits for messages, one for credits.
    let (mut idle, mut busy) =
        (place.consumer("t", "g", &credits(1)).await, place.consumer("t", "h", &credits(1)).await);
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
    assert!(timeout(Duration::from_millis(500), consumer.receive()).await.is_err());
    server.run().await;
    let delivery = receive(&mut consumer).await.remove(0);
    assert_eq!((delivery.frame.count, consumer.ack(&[delivery.id]).await), (3, Ok(3)));
}

#[tokio::test]
async fn what_is_fetched_stays_within_the_credits_from_the_first_time_on() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let producer = place.producer("t");
    for _ in 0..40 {
        producer.publish(frame(100)).await.unwrap();
    }
    let admin = place.admin();
    for (group, max_batch, fetched) in [("all", None, 10), ("batches", NonZeroU32::new(300), 10)] {
        let options = ConsumerOptions { max_batch, ..credits(1_000) };
        let mut consumer = place.consumer("t", group, &options).await;
        let mut handed_out = receive(&mut consumer).await.len();
        let in_flight = async || admin.stats("t").await.unwrap().groups[group].in_flight;
        assert!(in_flight().await <= max_batch.map_or(fetched, |rows| u64::from(rows.get()) / 100 + 1));
        while handed_out < 10 {
            handed_out += receive(&mut consumer).await.len();
        }
        assert!(is_quiet(&mut consumer).await);
        assert_eq!(in_flight().await, fetched, "as much as the credits allow, and no more");
    }
}

#[tokio::test]
async fn what_waits_for_credits_is_not_given_to_others_meanwhile() {
    let server = Server::start().await;
    let mut place = Nats::at(server.url());
    Arc::make_mut(&mut place.url.nats).ack_timeout = Duration::from_secs(3);
    let producer = place.producer("t");
    producer.publish(frame(1)).await.unwrap();
    let mut consumer = place.consumer("t", "g", &credits(10)).await;
    let small = receive(&mut consumer).await.remove(0);
    consumer.ack(&[small.id]).await.unwrap();
    // It asks for ten such frames, and its credits are for one of these.
    for _ in 0..2 {
        producer.publish(frame(8)).await.unwrap();
    }
    let first = receive(&mut consumer).await.remove(0);
    let mut other = place.consumer("t", "g", &credits(10)).await;
    let works = async {
        sleep(Duration::from_millis(500)).await;
        consumer.extend(&[first.id], Duration::from_secs(3)).await.unwrap();
        assert!(timeout(Duration::from_millis(2_900), consumer.receive()).await.is_err());
    };
    tokio::select! {
        () = works => {}
        received = other.receive() => panic!("{received:?}"),
    }
    assert_eq!(consumer.ack(&[first.id]).await, Ok(8));
    let second = receive(&mut consumer).await.remove(0);
    assert_eq!((second.attempt, consumer.ack(&[second.id]).await), (1, Ok(8)));
}
