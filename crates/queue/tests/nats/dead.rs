//! Dead letters, and messages of other publishers.

use futures_util::StreamExt;
use gpuvitals_queue::nats::{NatsDeadLetter, NatsError, NatsRedriven};
use gpuvitals_queue::{Consumer, ContentType, DeadFacts, Frame, Millis, NackKind, Producer};

use crate::Nats;
use crate::behaviour::{MAX_RETRIES, Place, credits, frame, is_quiet, nack, receive, receive_one};
use crate::server::Server;

fn ids(letters: &[NatsDeadLetter]) -> Vec<u64> {
    letters.iter().map(|letter| letter.id).collect()
}

fn facts(letter: &NatsDeadLetter) -> &DeadFacts {
    letter.frame.dead.as_ref().unwrap()
}

#[tokio::test]
async fn dead_letters_are_kept_with_their_reason_put_back_and_purged() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let (producer, admin) = (place.producer("t"), place.admin());
    let mut consumer = place.member("t", "g", &credits(100));
    let unknown = NatsError::UnknownTopic("none".into());
    assert_eq!(admin.purge_dead("none", &[]).await, Err(unknown.clone()));
    assert_eq!(admin.dead_letters("none", 0, 1).await, Err(unknown.clone()));
    assert_eq!(admin.redrive("none", &[]).await, Err(unknown));
    for number in 0..4 {
        producer.publish(frame(10).stamped("p", number)).await.unwrap();
        if number == 0 {
            assert_eq!(admin.purge_dead("t", &[]).await, Ok(0), "there never was one");
        }
        let delivery = receive_one(&mut consumer).await;
        assert_eq!(consumer.nack(&[nack(delivery.id, NackKind::Reject)]).await, Ok(10));
    }
    let letters = admin.dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(ids(&letters), [1, 2, 3, 4]);
    let letter = &letters[1];
    // The server's clock and the one of this process differ.
    assert!(facts(letter).published_at.0.abs_diff(letter.died_at.0) < 60_000);
    let expected = DeadFacts {
        topic: "t".into(),
        group: "g".into(),
        offset: 2,
        attempts: 1,
        reason: "rejected by consumer: because".into(),
        published_at: facts(letter).published_at,
    };
    assert_eq!(letter.frame, Frame { dead: Some(Box::new(expected)), ..frame(10).stamped("p", 1) });
    assert_eq!(ids(&admin.dead_letters("t", 2, 2).await.unwrap()), [2, 3]);
    assert_eq!(admin.stats("t").await.unwrap().dead_letters, 4);
    assert_eq!(admin.topics().await.unwrap(), ["t"]);

    assert_eq!(admin.purge_dead("t", &[1, 77]).await, Ok(1));
    let redriven = admin.redrive("t", &[2, 1]).await.unwrap();
    assert_eq!(redriven, NatsRedriven { letters: 1, without_room: 0 });
    let again = receive_one(&mut consumer).await;
    assert_eq!((again.attempt, &*again.frame), (1, &frame(10).stamped("p", 1)));
    assert_eq!(consumer.ack(&[again.id]).await, Ok(10));
    let mut other = place.member("t", "other", &credits(1_000));
    let mut received = 0;
    while received < 5 {
        received += receive(&mut other).await.len();
    }
    assert_eq!(received, 5, "a letter that is put back comes to all groups");
    assert_eq!(ids(&admin.dead_letters("t", 0, 10).await.unwrap()), [3, 4]);
    assert_eq!(admin.purge_dead("t", &[]).await, Ok(2));
    assert_eq!(admin.dead_letters("t", 0, 10).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_letter_that_is_refused_again_after_it_was_put_back_is_a_letter_again() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let admin = place.admin();
    place.producer("t").publish(frame(5)).await.unwrap();
    let mut consumer = place.member("t", "g", &credits(100));
    for round in 1..=3 {
        let delivery = receive_one(&mut consumer).await;
        assert_eq!(consumer.nack(&[nack(delivery.id, NackKind::Reject)]).await, Ok(5));
        assert_eq!(ids(&admin.dead_letters("t", 0, 10).await.unwrap()), [round]);
        assert_eq!(admin.redrive("t", &[]).await.unwrap().letters, 1);
    }
}

#[tokio::test]
async fn a_message_that_kills_its_consumers_becomes_a_dead_letter() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let producer = place.producer("t");
    producer.publish(frame(5)).await.unwrap();
    for _ in 0..=MAX_RETRIES {
        let mut consumer = place.member("t", "g", &credits(100));
        receive_one(&mut consumer).await;
        drop(consumer);
    }
    let mut dead = place.listen("gpuvitals.t+dead").await;
    let mut last = place.member("t", "g", &credits(100));
    let (next, ()) = tokio::join!(receive_one(&mut last), async {
        dead.next().await.unwrap();
        producer.publish(frame(1)).await.unwrap();
    });
    assert_eq!(next.frame.count, 1, "nobody is to try the other one again");
    last.ack(&[next.id]).await.unwrap();
    last.leave().await;
    let admin = place.admin();
    let letters = admin.dead_letters("t", 0, 10).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    let DeadFacts { attempts, reason, .. } = facts(letter);
    assert_eq!((*attempts, &**reason), (MAX_RETRIES + 1, "not acknowledged in time"));
    assert_eq!(admin.stats("t").await.unwrap().groups["g"].lag, 0);
}

#[tokio::test]
async fn foreign_messages_are_json_or_dead_letters() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let mut consumer = place.member("t", "g", &credits(100));
    place.producer("t").publish(frame(1)).await.unwrap();
    let first = receive_one(&mut consumer).await;
    consumer.ack(&[first.id]).await.unwrap();
    let foreign = async_nats::connect(server.url().to_string()).await.unwrap();
    foreign.publish("gpuvitals.t", "{\"fields\":{}}".into()).await.unwrap();
    let one = receive_one(&mut consumer).await;
    assert_eq!((one.frame.content_type, one.frame.count), (ContentType::Json, 1));
    consumer.ack(&[one.id]).await.unwrap();
    foreign.publish("gpuvitals.t", "[{},{}]".into()).await.unwrap();
    let two = receive_one(&mut consumer).await;
    assert_eq!(consumer.ack(&[two.id]).await, Ok(2));
    let mut odd = async_nats::HeaderMap::new();
    odd.insert("Gpuvitals-Count", "many");
    foreign.publish_with_headers("gpuvitals.t", odd, "what?".into()).await.unwrap();
    assert!(is_quiet(&mut consumer).await);
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(&letter.frame.payload[..], b"what?");
    let reason = &facts(letter).reason;
    assert!(reason.contains("Gpuvitals-Count: \"many\" is not a number"), "{reason}");
}

#[tokio::test]
async fn a_foreign_message_too_large_for_a_dead_letter_leaves_one_without_it() {
    let server = Server::start_with("max_payload: 65536\n").await;
    let place = Nats::at(server.url());
    let mut consumer = place.member("t", "g", &credits(100));
    place.producer("t").publish(frame(1)).await.unwrap();
    let first = receive_one(&mut consumer).await;
    consumer.ack(&[first.id]).await.unwrap();
    let foreign = async_nats::connect(server.url().to_string()).await.unwrap();
    foreign.publish("gpuvitals.t", vec![b' '; 65_500].into()).await.unwrap();
    let large = receive_one(&mut consumer).await;
    assert_eq!(consumer.nack(&[nack(large.id, NackKind::Reject)]).await, Ok(1));
    assert!(is_quiet(&mut consumer).await, "it does not come again");
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert!(letter.frame.payload.is_empty());
    let DeadFacts { offset, reason, .. } = facts(letter);
    let wanted = "the message of 65500 bytes is too large for a dead letter: rejected by consumer: because";
    assert_eq!((*offset, &**reason), (large.id.offset, wanted));
    assert_eq!(place.admin().stats("t").await.unwrap().groups["g"].in_flight, 0);
}

#[tokio::test]
async fn a_producer_publishes_dead_letters_of_its_own() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let facts = DeadFacts {
        topic: "t".into(),
        group: "g".into(),
        offset: 7,
        attempts: 1,
        reason: "row 3: an hour ahead".into(),
        published_at: Millis(1),
    };
    let sent = Frame { dead: Some(Box::new(facts)), ..frame(1).stamped("p", 1) };
    place.producer("t.dead").publish(sent.clone()).await.unwrap();
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| &letter.frame).collect::<Vec<_>>(), [&sent]);
}
