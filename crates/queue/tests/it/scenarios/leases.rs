//! Delivery, acknowledgement, redelivery, credits.

use std::time::Duration;

use gpuvitals_queue::{DeadFacts, DeliveryId, Millis, NackKind, ReceiveError, SettleError, Start};

use super::story::{Story, TIMEOUT, TOPIC, credits, without_backoff};

#[test]
fn every_group_gets_every_message_and_one_consumer_of_a_group_each() {
    let mut story = Story::new(|_| {});
    let (a1, a2) = (story.join_with("a", |o| o.max_in_flight = credits(2)), story.join("a"));
    let b = story.join("b");
    for _ in 0..4 {
        story.publish(1).unwrap();
    }
    assert_eq!(story.offsets(a1), [0, 1]);
    assert_eq!(story.offsets(a2), [2, 3]);
    assert_eq!(story.offsets(b), [0, 1, 2, 3]);
}

#[test]
fn a_new_group_starts_where_it_says() {
    let mut story = Story::new(|_| {});
    story.publish(1).unwrap();
    let old = story.join_with("old", |o| o.start = Start::Oldest);
    let new = story.join_with("new", |o| o.start = Start::Newest);
    story.publish(1).unwrap();
    assert_eq!(story.offsets(old), [0, 1]);
    assert_eq!(story.offsets(new), [1]);
}

#[test]
fn a_message_not_acknowledged_in_time_is_delivered_again() {
    let mut story = Story::new(without_backoff);
    let who = story.join("g");
    story.publish(3).unwrap();
    let first = story.only(who);
    assert_eq!((first.attempt, first.deadline), (1, Millis(TIMEOUT)));
    assert!(story.at(TIMEOUT - 1).receive(who).is_empty());
    let again = story.at(TIMEOUT).only(who);
    assert_eq!((again.attempt, again.id.token, again.frame.count), (2, 2, 3));
    assert_eq!(story.stats().redelivered, 3);
}

#[test]
fn a_consumer_may_ask_for_another_timeout() {
    let mut story = Story::new(without_backoff);
    let who = story.join_with("g", |o| o.ack_timeout = Some(Duration::from_mins(1)));
    story.publish(1).unwrap();
    assert_eq!(story.only(who).deadline, Millis(60_000));
    assert!(story.at(59_999).receive(who).is_empty());
    assert_eq!(story.at(60_000).receive(who).len(), 1);
}

#[test]
fn after_its_retries_a_message_is_a_dead_letter_with_its_story() {
    let mut story = Story::new(without_backoff);
    let who = story.join("g");
    story.at(10).publish(2).unwrap();
    for attempt in 1..=4 {
        let now = 1_000 * u64::from(attempt);
        let delivery = story.at(now).only(who);
        assert_eq!(delivery.attempt, attempt);
        story.nack(who, delivery.id, NackKind::Retry);
    }
    assert!(story.at(60_000).receive(who).is_empty());
    let letters = story.dead_letters(0);
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    let expected = DeadFacts {
        topic: TOPIC.into(),
        group: "g".into(),
        offset: 0,
        attempts: 4,
        reason: "refused by consumer: bad row".into(),
        published_at: Millis(10),
    };
    assert_eq!((&letter.facts, letter.died_at), (&expected, Millis(4_000)));
    let stats = story.stats();
    assert_eq!((stats.messages, stats.dead, stats.dead_letters, stats.groups["g"].lag), (0, 2, 2, 0));
}

#[test]
fn a_lost_consumer_is_no_attempt_and_its_rows_come_again_after_the_backoff() {
    let mut story = Story::new(|_| {});
    let (dying, other) = (story.join("g"), story.join("g"));
    story.publish(1).unwrap();
    story.only(dying);
    story.broker.kill(Millis(1), dying);
    assert!(story.at(1).receive(other).is_empty(), "not at once");
    assert_eq!(story.at(501).only(other).attempt, 1);
    assert_eq!(story.broker.receive(Millis(1), dying).unwrap_err(), ReceiveError::NotSubscribed);
}

/// Every connection of a process ends when it does, one after the other.
#[test]
fn a_process_that_dies_with_many_connections_buries_nothing() {
    for workers in [1, 4, 8, 16] {
        let mut story = Story::new(|_| {});
        for round in 0..50 {
            let dying: Vec<_> = (0..workers).map(|_| story.join("g")).collect();
            for _ in 0..20 {
                story.publish(1).unwrap();
            }
            for who in &dying {
                story.receive(*who);
            }
            for (at, who) in dying.iter().enumerate() {
                story.broker.kill(Millis(story.now), *who);
                dying[at + 1..].iter().for_each(|who| drop(story.receive(*who)));
            }
            let survivor = story.join_with("g", |options| options.max_in_flight = credits(1_000));
            let mut received = 0;
            while received < 20 {
                story.now += 500;
                let ids: Vec<_> = story.receive(survivor).iter().map(|delivery| delivery.id).collect();
                received += story.ack(survivor, &ids).unwrap();
            }
            story.broker.leave(Millis(story.now), survivor);
            let stats = story.stats();
            assert_eq!((stats.dead, stats.messages), (0, 0), "{workers} workers, round {round}");
        }
    }
}

#[test]
fn a_message_whose_consumer_is_lost_a_hundred_times_ends_as_a_dead_letter() {
    let mut story = Story::new(|_| {});
    story.publish(1).unwrap();
    for loss in 1..=100 {
        assert_eq!(story.stats().dead, 0, "after {} losses", loss - 1);
        let victim = story.join("g");
        story.now += 30_000;
        assert_eq!(story.only(victim).attempt, 1);
        story.broker.kill(Millis(story.now), victim);
    }
    let letters = story.dead_letters(0);
    assert_eq!(letters.len(), 1);
    assert_eq!((&*letters[0].facts.reason, letters[0].facts.attempts), ("consumer went away", 100));
}

#[test]
fn a_consumer_that_leaves_blames_no_message() {
    let mut story = Story::new(|_| {});
    story.publish(1).unwrap();
    for _ in 0..10 {
        let who = story.join("g");
        assert_eq!(story.only(who).attempt, 1);
        story.broker.leave(Millis(story.now), who);
    }
}

#[test]
fn what_is_released_does_not_count_and_comes_at_once() {
    let mut story = Story::new(|_| {});
    let who = story.join("g");
    story.publish(1).unwrap();
    for token in 1..=9 {
        let delivery = story.only(who);
        assert_eq!((delivery.attempt, delivery.id.token), (1, token));
        story.nack(who, delivery.id, NackKind::Release);
    }
}

#[test]
fn a_late_acknowledgement_counts_while_nobody_else_has_given_one() {
    let mut story = Story::new(without_backoff);
    let (slow, quick) = (story.join("g"), story.join("g"));
    story.publish(2).unwrap();
    let late = story.only(slow).id;
    let current = story.at(TIMEOUT).only(quick).id;
    assert_eq!(story.ack(slow, &[late]), Ok(2));
    assert_eq!(story.ack(quick, &[current]), Ok(0));
    assert_eq!((story.stats().messages, story.stats().acked), (0, 2));
}

#[test]
fn a_late_refusal_or_extension_does_not_touch_another_ones_lease() {
    let mut story = Story::new(without_backoff);
    let (slow, quick) = (story.join("g"), story.join("g"));
    story.publish(1).unwrap();
    let late = story.only(slow).id;
    let current = story.at(TIMEOUT).only(quick);
    assert_eq!(story.nack(slow, late, NackKind::Reject), 0);
    let extended = story.broker.extend(Millis(TIMEOUT), slow, &[late], Duration::from_mins(1));
    assert_eq!(extended, Err(SettleError::LeaseOver { id: late, more: 0 }));
    assert!(story.at(current.deadline.0 - 1).receive(slow).is_empty());
    assert_eq!(story.at(current.deadline.0).receive(slow).len(), 1);
}

#[test]
fn an_acknowledgement_can_be_repeated_and_an_unknown_one_is_an_error() {
    let mut story = Story::new(|_| {});
    let who = story.join("g");
    story.publish(1).unwrap();
    story.publish(1).unwrap();
    let ids: Vec<_> = story.receive(who).iter().map(|delivery| delivery.id).collect();
    assert_eq!(story.ack(who, &ids[..1]), Ok(1));
    assert_eq!(story.ack(who, &ids[..1]), Ok(0));
    story.publish(1).unwrap();
    let table = [
        DeliveryId { offset: 2, token: 1 },  // published, not delivered
        DeliveryId { offset: 99, token: 1 }, // never published
        DeliveryId { offset: 1, token: 2 },  // a later time than any
        DeliveryId { offset: 1, token: 0 },
    ];
    for id in table {
        assert_eq!(story.ack(who, &[id]), Err(SettleError::Unknown { id, more: 0 }));
    }
    let mixed = [table[0], ids[1], table[1]];
    assert_eq!(story.ack(who, &mixed), Err(SettleError::Unknown { id: table[0], more: 1 }));
    assert_eq!(story.stats().acked, 2, "what was known is acknowledged");
}

#[test]
fn a_lease_can_be_extended_up_to_the_longest() {
    let mut story = Story::new(|config| {
        without_backoff(config);
        config.max_lease = Duration::from_secs(12);
    });
    let who = story.join("g");
    story.publish(1).unwrap();
    let id = story.only(who).id;
    for now in [4_000, 8_000] {
        story.broker.extend(Millis(now), who, &[id], Duration::from_secs(5)).unwrap();
    }
    assert!(story.at(11_999).receive(who).is_empty());
    assert_eq!(story.at(12_000).receive(who).len(), 1);
}

#[test]
fn backoff_doubles_is_capped_and_is_drawn_from_the_seed() {
    let waits = |seed| {
        let mut story = Story::new(|config| {
            config.max_retries = 1_000;
            config.backoff_cap = Duration::from_secs(8);
            config.seed = seed;
        });
        let who = story.join("g");
        story.publish(1).unwrap();
        let mut waits = Vec::new();
        for _ in 0..200 {
            let id = story.only(who).id;
            story.nack(who, id, NackKind::Retry);
            let failed = story.now;
            while story.broker.topic_stats(Millis(story.now), TOPIC).unwrap().groups["g"].waiting > 0 {
                let Some(next) = story.broker.next_deadline().filter(|next| next.0 > story.now) else {
                    break;
                };
                story.now = next.0;
            }
            waits.push(story.now - failed);
        }
        waits
    };
    let drawn = waits(1);
    for (failures, wait) in drawn.iter().enumerate() {
        let longest = 500 << failures.min(4);
        assert!(*wait <= longest, "wait {wait} ms after failure {}", failures + 1);
    }
    let (early, late) = (drawn[0], drawn[4..].iter().max().unwrap());
    assert!(early <= 500 && *late > 7_000, "{drawn:?}");
    assert!(drawn[4..].iter().any(|wait| *wait < 1_000), "full jitter reaches down");
    assert_eq!(drawn, waits(1));
    assert_ne!(drawn, waits(2));
}

#[test]
fn redeliveries_take_at_most_half_of_the_credits() {
    let mut story = Story::new(without_backoff);
    let who = story.join_with("g", |o| o.max_in_flight = credits(10));
    for _ in 0..10 {
        story.publish(1).unwrap();
    }
    story.receive(who);
    for _ in 0..20 {
        story.publish(1).unwrap();
    }
    let delivered = story.at(TIMEOUT).receive(who);
    let again = delivered.iter().filter(|delivery| delivery.attempt > 1).count();
    assert_eq!((again, delivered.len()), (5, 10));
    assert!(delivered[..5].iter().all(|delivery| delivery.attempt == 2), "redeliveries come first");
}

#[test]
fn a_redelivery_larger_than_half_of_the_credits_takes_turns_with_new_frames() {
    let mut story = Story::new(|config| {
        without_backoff(config);
        config.max_retries = 100;
    });
    let who = story.join_with("g", |o| o.max_in_flight = credits(10));
    for _ in 0..4 {
        story.publish(10).unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let delivery = story.only(who);
        order.push(delivery.id.offset);
        story.nack(who, delivery.id, NackKind::Retry);
    }
    assert_eq!(order, [0, 0, 1, 0, 2, 0], "the poisoned frame does not block the others");
}

#[test]
fn a_frame_beyond_all_credits_is_delivered_alone() {
    let mut story = Story::new(|_| {});
    let who = story.join_with("g", |o| o.max_in_flight = credits(5));
    story.publish(50).unwrap();
    story.publish(1).unwrap();
    let big = story.only(who);
    assert!(story.receive(who).is_empty());
    story.ack(who, &[big.id]).unwrap();
    assert_eq!(story.only(who).id.offset, 1);
}

#[test]
fn a_batch_size_limits_one_receive() {
    let mut story = Story::new(|_| {});
    let who = story.join_with("g", |o| o.max_batch = Some(credits(25)));
    for _ in 0..4 {
        story.publish(10).unwrap();
    }
    assert_eq!(story.offsets(who), [0, 1]);
    assert_eq!(story.offsets(who), [2, 3]);
}
