//! What a log would keep of the broker under test.

#![expect(clippy::unwrap_used, reason = "a run that goes astray fails its test")]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_queue::broker::{Bodies, Body, HeldImage, Home, Image, Pin};
use gpuvitals_queue::{Broker, Frame, Millis};

/// A place in some log: nobody reads there.
fn place() -> Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
        log.append(0, Bytes::new(), Durability::Written).wait().unwrap().place
    })
}

/// The image that follows from what was noted, and where the frames' bytes are.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) image: Image,
    pub(crate) bodies: Bodies,
}

impl Memory {
    pub(crate) fn keep(&mut self, topic: &str, offset: u64, frame: &Frame, at: Millis) -> Home {
        let sent = frame.producer.clone().map(|stamp| (stamp, at));
        let topic: Arc<str> = topic.into();
        self.image.publish(&topic, offset, HeldImage { count: frame.count, sent }, usize::MAX);
        let home = Home { offset, place: place(), pin: Arc::new(Pin) };
        let body = Body { home: home.clone(), cost: frame.cost_bytes(), published_at: at };
        self.bodies.entry(topic).or_default().insert(offset, body);
        home
    }

    pub(crate) fn compare(&mut self, broker: &mut Broker) {
        for fact in broker.take_facts() {
            self.image.apply(fact);
        }
        assert_eq!(plain(&self.image), plain(&broker.image()));
    }
}

/// An image as what it means: which frames each group has not settled, and how often they failed.
fn plain(image: &Image) -> BTreeMap<String, String> {
    let topics = image.topics.iter().map(|(name, topic)| {
        let groups = topic.groups.iter().map(|(name, group)| {
            let ahead = topic.held.range(group.cursor..);
            let mut unsettled: BTreeMap<u64, u32> = ahead.map(|(offset, _)| (*offset, 0)).collect();
            for (offset, failures) in &group.unsettled {
                assert!(topic.held.contains_key(offset), "frame {offset} is unsettled, which is not held");
                unsettled.insert(*offset, *failures);
            }
            (name.to_string(), group.start, group.ttl, unsettled)
        });
        let groups: Vec<_> = groups.collect();
        let held: Vec<_> = topic.held.iter().map(|(offset, held)| (offset, held.count)).collect();
        let producers = topic.producers.iter().collect::<Vec<_>>();
        (name.to_string(), format!("{} {groups:?} {held:?} {producers:?}", topic.next_offset))
    });
    topics.collect()
}
