//! Bounds, groups that go, repeats, dead letters, the end.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::Status;
use gpuvitals_queue::{
    AdminError, Broker, ConsumerOptions, ContentType, DeadFacts, DeadSelection, Frame, Millis, NackKind,
    NameError, PublishError, QueueConfig, ReceiveError, Start, SubscribeError, WhenFull, dead_topic,
};

use super::story::{Story, TIMEOUT, TOPIC, credits, without_backoff};

#[test]
fn a_full_topic_refuses_and_counts_and_recovers() {
    let mut story = Story::new(|config| config.max_messages = 10);
    let who = story.join("g");
    story.publish(8).unwrap();
    assert_eq!(story.publish(3), Err(PublishError::full(TOPIC, None)));
    assert_eq!(story.publish(11), Err(PublishError::TooLarge { messages: 11, bytes: 74 }));
    assert_eq!(story.publish(2), Ok(Some(1)));
    let health = story.broker.health(Millis(0));
    assert_eq!((health.status, health.reasons.len()), (Status::Degraded, 1));
    let ids: Vec<_> = story.receive(who).iter().map(|delivery| delivery.id).collect();
    story.ack(who, &ids).unwrap();
    story.publish(10).unwrap();
    let stats = story.stats();
    assert_eq!((stats.refused, stats.dropped, stats.messages), (3, 0, 10));
    assert_eq!(story.broker.health(Millis(10_000)).status, Status::Healthy);
}

#[test]
fn the_bound_in_bytes_holds_too() {
    let frame = Frame::new(ContentType::Json, 1, vec![0; 1_000]);
    let cost = frame.cost_bytes();
    let mut broker = Broker::new(QueueConfig { max_bytes: 3 * cost, ..QueueConfig::default() }, Millis(0));
    let frame = Arc::new(frame);
    let taken = (0..5).filter(|_| broker.publish(Millis(0), TOPIC, &frame).is_ok()).count();
    assert_eq!(taken, 3);
    assert_eq!(broker.stats(Millis(0)).topics[TOPIC].bytes, 3 * cost);
}

#[test]
fn drop_oldest_makes_room_counts_it_and_leaves_leases_alone() {
    let mut story = Story::new(|config| {
        without_backoff(config);
        config.max_messages = 3;
        config.when_full = WhenFull::DropOldest;
    });
    let who = story.join_with("g", |o| o.max_in_flight = credits(1));
    for _ in 0..3 {
        story.publish(1).unwrap();
    }
    let first = story.only(who);
    story.publish(2).unwrap();
    let stats = story.stats();
    assert_eq!((stats.dropped, stats.messages), (2, 3));
    assert_eq!(story.ack(who, &[first.id]), Ok(1), "what was out can still be acknowledged");
    assert_eq!(story.offsets(who), [2]);
    assert_eq!(story.stats().groups["g"].lag, 3);
}

#[test]
fn what_was_dropped_while_it_was_out_is_not_delivered_again() {
    let mut story = Story::new(|config| {
        without_backoff(config);
        config.max_messages = 1;
        config.when_full = WhenFull::DropOldest;
    });
    let who = story.join("g");
    story.publish(1).unwrap();
    story.only(who);
    story.publish(1).unwrap();
    assert_eq!(story.at(TIMEOUT).offsets(who), [1]);
    assert_eq!(story.stats().groups["g"].lag, 1);
}

#[test]
fn a_topic_without_a_group_keeps_its_messages_for_the_first_one() {
    let mut story = Story::new(|config| config.max_messages = 4);
    for _ in 0..4 {
        story.publish(1).unwrap();
    }
    assert!(matches!(story.publish(1), Err(PublishError::Full { .. })));
    let newest = story.join_with("newest", |o| o.start = Start::Newest);
    assert_eq!(story.stats().messages, 4);
    let oldest = story.join("oldest");
    assert_eq!(story.offsets(oldest), [0, 1, 2, 3]);
    assert!(story.receive(newest).is_empty());
}

#[test]
fn frames_that_no_group_waits_for_give_way() {
    let mut story = Story::new(|config| config.max_messages = 2);
    story.publish(1).unwrap();
    story.publish(1).unwrap();
    let newest = story.join_with("newest", |o| o.start = Start::Newest);
    story.publish(1).unwrap();
    assert_eq!(story.offsets(newest), [2]);
    assert_eq!((story.stats().messages, story.stats().dropped), (2, 1));
}

#[test]
fn an_abandoned_group_goes_after_its_time_and_lets_its_messages_go() {
    let mut story = Story::new(|_| {});
    let ttl = Some(Duration::from_secs(30));
    let (guest, stays) = (story.join_with("guest", |o| o.group_ttl = ttl), story.join("stays"));
    story.publish(1).unwrap();
    let id = story.only(stays).id;
    story.ack(stays, &[id]).unwrap();
    story.broker.kill(Millis(1_000), guest);
    assert_eq!(story.at(30_999).stats().groups.len(), 2);
    let stats = story.at(31_000).stats();
    assert_eq!((stats.groups.len(), stats.messages), (1, 0));
}

#[test]
fn a_group_that_is_joined_again_in_time_stays() {
    let mut story = Story::new(|_| {});
    let guest = story.join_with("guest", |o| o.group_ttl = Some(Duration::from_secs(30)));
    story.broker.leave(Millis(0), guest);
    story.publish(1).unwrap();
    let guest = story.at(29_000).join("guest");
    assert_eq!(story.at(90_000).offsets(guest), [0]);
}

#[test]
fn a_repeated_publish_is_recognised() {
    let mut story = Story::new(|_| {});
    let who = story.join("g");
    let frame =
        |sequence| Arc::new(Frame::new(ContentType::Batch, 5, vec![1]).stamped("agent-1/77", sequence));
    let mut publish = |sequence| story.broker.publish(Millis(0), TOPIC, &frame(sequence)).unwrap();
    let duplicates = [7, 8, 7, 9, 8].map(|sequence| publish(sequence).duplicate);
    assert_eq!(duplicates, [false, false, true, false, true]);
    assert_eq!(story.receive(who).len(), 3);
    assert_eq!((story.stats().published, story.stats().duplicates), (15, 10));
}

#[test]
fn a_sequence_too_far_behind_is_refused_and_not_lost_silently() {
    let mut story = Story::new(|_| {});
    let mut publish = |sequence| {
        let frame = Arc::new(Frame::new(ContentType::Batch, 1, vec![1]).stamped("p", sequence));
        story.broker.publish(Millis(0), TOPIC, &frame)
    };
    publish(200).unwrap();
    let refused = publish(72).unwrap_err();
    assert!(matches!(refused, PublishError::SequenceTooOld { .. }) && !refused.is_retryable(), "{refused}");
    assert!(!publish(73).unwrap().duplicate);
    assert_eq!((story.stats().published, story.stats().duplicates), (2, 0));
}

#[test]
fn producers_are_remembered_within_one_bound_over_all_topics() {
    let mut story = Story::new(|config| config.max_producers = 3);
    let mut is_repeat = |topic, id: &str| {
        let frame = Arc::new(Frame::new(ContentType::Batch, 1, vec![1]).stamped(id, 1));
        story.broker.publish(Millis(0), topic, &frame).unwrap().duplicate
    };
    for (topic, id) in [("one", "a"), ("one", "b"), ("one", "c"), ("two", "a")] {
        assert!(!is_repeat(topic, id));
    }
    assert!(is_repeat("two", "a") && is_repeat("one", "b") && is_repeat("one", "c"));
    assert!(!is_repeat("one", "a"), "the longest silent of the topic with most was forgotten");
}

#[test]
fn a_refused_publish_is_no_repeat_when_it_is_tried_again() {
    let mut story = Story::new(|config| config.max_messages = 1);
    let who = story.join("g");
    story.publish(1).unwrap();
    let frame = Arc::new(Frame::new(ContentType::Batch, 1, vec![]).stamped("p", 1));
    assert!(story.broker.publish(Millis(0), TOPIC, &frame).is_err());
    let id = story.only(who).id;
    story.ack(who, &[id]).unwrap();
    assert!(!story.broker.publish(Millis(0), TOPIC, &frame).unwrap().duplicate);
}

#[test]
fn dead_letters_are_a_topic_without_groups_that_counts_against_no_limit() {
    let mut story = Story::new(|config| config.max_topics = 1);
    let who = story.join("g");
    for _ in 0..2 {
        story.publish(2).unwrap();
    }
    for delivery in story.receive(who) {
        story.nack(who, delivery.id, NackKind::Reject);
    }
    let topics = story.broker.topics();
    assert_eq!(topics.iter().map(|topic| &**topic).collect::<Vec<_>>(), [TOPIC, &dead_topic(TOPIC)]);
    let dead = story.broker.topic_stats(Millis(0), &dead_topic(TOPIC)).unwrap();
    assert_eq!((dead.messages, dead.frames, dead.groups.len()), (4, 2, 0));
    assert_eq!((story.stats().messages, story.stats().dead_letters, story.stats().dead), (0, 4, 4));
    let joined = story.broker.subscribe(Millis(0), &dead_topic(TOPIC), "g", &ConsumerOptions::default());
    assert_eq!(joined, Err(SubscribeError::Topic(NameError::Reserved)));
    let health = story.broker.health(Millis(0));
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reasons[0].contains("has dead letters: 4 messages;"), "{health:?}");
}

#[test]
fn a_group_that_is_made_anew_has_letters_of_its_own() {
    let mut story = Story::new(|_| {});
    let keeper = story.join("keeper");
    story.publish(1).unwrap();
    for _ in 0..2 {
        let who = story.join("g");
        let id = story.only(who).id;
        story.nack(who, id, NackKind::Reject);
        story.broker.remove_group(Millis(0), TOPIC, "g").unwrap();
    }
    assert_eq!((story.stats().dead, story.stats().dead_letters), (2, 2));
    assert_eq!(story.receive(keeper).len(), 1);
}

#[test]
fn others_may_publish_dead_letters_with_their_facts_and_only_with_them() {
    let mut story = Story::new(|config| config.max_topics = 1);
    let plain = Frame::new(ContentType::Batch, 1, vec![]);
    let facts = DeadFacts { topic: TOPIC.into(), reason: "no such GPU".into(), ..DeadFacts::default() };
    let dead = Arc::new(Frame { dead: Some(Box::new(facts.clone())), ..plain.clone() });
    let topic = dead_topic(TOPIC);
    let refused = story.broker.publish(Millis(0), &topic, &Arc::new(plain));
    assert_eq!(refused, Err(PublishError::Topic(NameError::Reserved)));
    story.broker.publish(Millis(5), &topic, &dead).unwrap();
    let letters = story.dead_letters(0);
    assert_eq!((&letters[0].facts, letters[0].died_at), (&facts, Millis(5)));
    let elsewhere = story.broker.publish(Millis(5), "other.dead", &dead);
    assert_eq!(elsewhere, Err(PublishError::TooManyTopics { limit: 1 }), "beside no topic");
}

#[test]
fn dead_letters_are_thrown_away_by_id_or_the_oldest_first() {
    let mut story = Story::new(|_| {});
    let who = story.join("g");
    for _ in 0..3 {
        story.publish(1).unwrap();
        let id = story.only(who).id;
        story.nack(who, id, NackKind::Reject);
    }
    let mut purge = |selection| story.broker.purge_dead(Millis(0), TOPIC, &selection);
    assert_eq!(purge(DeadSelection::Ids(vec![1, 5])), Ok(1));
    assert_eq!(purge(DeadSelection::Oldest(1)), Ok(1));
    assert_eq!(story.dead_letters(0)[0].facts.offset, 2);
    assert_eq!((story.stats().dead_letters, story.stats().dead_dropped), (1, 0));
    assert_eq!(story.broker.remove_group(Millis(0), TOPIC, "other"), Err(AdminError::UnknownGroup));
    let other = story.broker.purge_dead(Millis(0), "other", &DeadSelection::Oldest(5));
    assert_eq!(other, Err(AdminError::UnknownTopic));
}

#[test]
fn dead_letters_have_a_bound_of_their_own() {
    let mut story = Story::new(|config| config.max_dead_messages = 3);
    let who = story.join("g");
    for _ in 0..5 {
        story.publish(1).unwrap();
        let id = story.only(who).id;
        story.nack(who, id, NackKind::Reject);
    }
    let letters = story.dead_letters(3);
    assert_eq!(letters.iter().map(|letter| letter.facts.offset).collect::<Vec<_>>(), [3, 4]);
    let stats = story.stats();
    assert_eq!((stats.dead, stats.dead_letters, stats.dead_dropped), (5, 3, 2));
    let reason = story.broker.health(Millis(0)).reasons.remove(0);
    assert!(reason.contains("3 messages, 2 older messages dropped at their bound"), "{reason}");
    story.publish(4).unwrap();
    let id = story.only(who).id;
    story.nack(who, id, NackKind::Reject);
    let stats = story.stats();
    assert_eq!((stats.messages, stats.dead_letters, stats.dead_dropped), (0, 3, 6), "it never fits");
}

#[test]
fn a_dead_letter_that_never_fits_is_told_while_none_is_held() {
    let mut story = Story::new(|config| config.max_dead_messages = 3);
    let who = story.join("g");
    story.publish(4).unwrap();
    let id = story.only(who).id;
    story.nack(who, id, NackKind::Reject);
    let stats = story.stats();
    assert_eq!((stats.dead_letters, stats.dead_dropped), (0, 4));
    let health = story.broker.health(Millis(0));
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reasons[0].contains("larger than their bound: 4 messages"), "{:?}", health.reasons);
}

#[test]
fn a_drain_delivers_what_is_left_or_takes_back_what_is_out() {
    let mut story = Story::new(|_| {});
    let who = story.join_with("g", |o| o.max_in_flight = credits(1));
    story.publish(1).unwrap();
    story.publish(1).unwrap();
    story.broker.seal(Millis(0));
    assert_eq!(story.publish(1), Err(PublishError::Closed));
    let joined = story.broker.subscribe(Millis(0), TOPIC, "g", &ConsumerOptions::default());
    assert_eq!(joined, Err(SubscribeError::Closed));
    let id = story.only(who).id;
    story.ack(who, &[id]).unwrap();
    story.only(who);
    assert!(!story.broker.is_drained());
    story.broker.stop(Millis(0));
    assert_eq!(story.broker.receive(Millis(0), who).unwrap_err(), ReceiveError::Closed);
    assert_eq!(story.broker.recall(Millis(0)), 1);
    assert!(story.broker.is_drained());
    assert_eq!(story.stats().groups["g"].waiting, 1);
    assert_eq!(story.broker.health(Millis(0)).status, Status::Unhealthy);
}

#[test]
fn what_cannot_be_published_or_subscribed_to_is_refused() {
    let mut story = Story::new(|config| (config.max_topics, config.max_groups) = (1, 1));
    assert_eq!(story.publish(0), Err(PublishError::NoMessages));
    let frame = Arc::new(Frame::new(ContentType::Batch, 1, vec![]));
    let publish = |story: &mut Story, topic: &str| story.broker.publish(Millis(0), topic, &frame);
    assert!(matches!(publish(&mut story, "../../x"), Err(PublishError::Topic(_))));
    assert!(matches!(publish(&mut story, "a.dead"), Err(PublishError::Topic(_))));
    story.join("g");
    assert_eq!(publish(&mut story, "other"), Err(PublishError::TooManyTopics { limit: 1 }));
    let mut subscribe =
        |group: &str| story.broker.subscribe(Millis(0), TOPIC, group, &ConsumerOptions::default());
    assert_eq!(subscribe("h"), Err(SubscribeError::TooManyGroups { limit: 1 }));
    assert!(matches!(subscribe("a b"), Err(SubscribeError::Group(_))));
    let anonymous = Arc::new(Frame::new(ContentType::Batch, 1, vec![]).stamped("", 1));
    let refused = story.broker.publish(Millis(0), TOPIC, &anonymous);
    assert_eq!(refused, Err(PublishError::ProducerId { len: 0 }));
}

#[test]
fn time_does_not_go_back() {
    let mut story = Story::new(without_backoff);
    let who = story.join("g");
    story.publish(1).unwrap();
    story.at(10_000).only(who);
    assert!(story.at(0).receive(who).is_empty());
    story.publish(1).unwrap();
    assert_eq!(story.only(who).deadline, Millis(15_000));
}
