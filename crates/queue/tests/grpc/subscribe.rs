//! Publishing, subscribing and settling.

use gpuvitals_queue::{Consumer, Durability, Encoding, Producer, Rows};

use crate::rig::{Rig, TOPIC, frame, in_time, receive};

#[tokio::test]
async fn what_is_published_is_delivered_once_and_acknowledged() {
    let rig = Rig::new();
    let (producer, mut consumer) = (rig.producer(), rig.consumer("g"));
    let mut sent = frame(5).encoded(Encoding::Zstd).stamped("life", 3);
    sent.key = Some("gpu-0".into());
    let receipt = in_time(producer.publish(sent.clone())).await.unwrap();
    assert_eq!((receipt.offset, receipt.durability), (Some(0), Durability::Memory));
    let deliveries = receive(&mut consumer).await;
    let [delivery] = &deliveries[..] else { panic!("one delivery: {deliveries:?}") };
    assert_eq!((&*delivery.frame, &*delivery.topic, delivery.attempt), (&sent, TOPIC, 1));
    assert_eq!(delivery.rows, Rows::all(5));
    assert_eq!(in_time(consumer.ack(&[delivery.id])).await, Ok(5));
    assert_eq!(in_time(consumer.ack(&[delivery.id])).await, Ok(0), "a repeat is fine");
    assert_eq!(rig.queue.topic_stats(TOPIC).unwrap().messages, 0);
    let repeat = in_time(producer.publish(sent)).await.unwrap();
    assert_eq!((repeat.offset, repeat.duplicate), (None, true));
    rig.stop().await;
}
