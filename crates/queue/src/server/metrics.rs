//! Figures of the queue.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpuvitals_core::Status;
use gpuvitals_core::figures::{Family, Histogram, Kind, Number};
use gpuvitals_listener::body::Budget;

use crate::service::Queue;
use crate::stats::{GroupStats, QueueHealth, QueueStats, TopicStats};

/// How a publisher speaks to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// By requests of HTTP.
    Http,
    /// By calls of gRPC.
    Grpc,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

/// What the server counts about its clients.
#[derive(Debug)]
pub struct ServerMeter {
    http: Histogram,
    grpc: Histogram,
    listener: Arc<gpuvitals_listener::Meter>,
    /// What all that is received may take, once it is served.
    bodies: OnceLock<Budget>,
    /// Families that are shown as well.
    beside: Option<fn() -> Vec<Family>>,
}

impl Default for ServerMeter {
    fn default() -> Self {
        Self {
            http: Histogram::default(),
            grpc: Histogram::default(),
            listener: Arc::new(gpuvitals_listener::Meter::new("queue")),
            bodies: OnceLock::new(),
            beside: None,
        }
    }
}

impl ServerMeter {
    /// Nothing yet, and families of the process that are shown as well.
    pub fn beside(families: fn() -> Vec<Family>) -> Self {
        Self { beside: Some(families), ..Self::default() }
    }

    /// A publish was answered, `took` after it had come.
    pub fn published(&self, protocol: Protocol, took: Duration) {
        self.latency(protocol).observe(took);
    }

    /// What the listener counts.
    pub(crate) fn listener(&self) -> &Arc<gpuvitals_listener::Meter> {
        &self.listener
    }

    /// What is received takes this budget.
    pub(crate) fn watch(&self, bodies: &Budget) {
        // One server has one.
        let _watched_before = self.bodies.set(bodies.clone());
    }

    fn latency(&self, protocol: Protocol) -> &Histogram {
        match protocol {
            Protocol::Http => &self.http,
            Protocol::Grpc => &self.grpc,
        }
    }
}

/// Name, type, help and value of a figure about each `T`.
type Figure<T> = (&'static str, Kind, &'static str, fn(&T) -> u64);

const TOPIC: &[Figure<TopicStats>] = &[
    ("gpuvitals_queue_messages", Kind::Gauge, "Messages held.", |t| t.messages),
    (
        "gpuvitals_queue_bytes",
        Kind::Gauge,
        "Bytes held, as they count against the bound of the topic.",
        |t| t.bytes,
    ),
    ("gpuvitals_queue_frames", Kind::Gauge, "Frames held.", |t| t.frames),
    ("gpuvitals_queue_consumers", Kind::Gauge, "Consumers connected.", |t| t.subscribers),
    ("gpuvitals_queue_dead_letter_messages", Kind::Gauge, "Messages kept as dead letters.", |t| {
        t.dead_letters
    }),
    ("gpuvitals_queue_published_messages_total", Kind::Counter, "Messages taken from publishers.", |t| {
        t.published
    }),
    ("gpuvitals_queue_acked_messages_total", Kind::Counter, "Messages acknowledged, over all groups.", |t| {
        t.acked
    }),
    ("gpuvitals_queue_redelivered_messages_total", Kind::Counter, "Messages delivered again.", |t| {
        t.redelivered
    }),
    ("gpuvitals_queue_dead_messages_total", Kind::Counter, "Messages that became dead letters.", |t| t.dead),
    (
        "gpuvitals_queue_dropped_messages_total",
        Kind::Counter,
        "Messages that made room at the bound, or lost the only group they were for.",
        |t| t.dropped,
    ),
    ("gpuvitals_queue_refused_messages_total", Kind::Counter, "Messages refused at the bound.", |t| {
        t.refused
    }),
    ("gpuvitals_queue_duplicate_messages_total", Kind::Counter, "Messages recognised as repeats.", |t| {
        t.duplicates
    }),
    (
        "gpuvitals_queue_dead_letter_dropped_messages_total",
        Kind::Counter,
        "Dead letters that made room at their own bound, in messages.",
        |t| t.dead_dropped,
    ),
];

const GROUP: &[Figure<GroupStats>] = &[
    ("gpuvitals_queue_group_members", Kind::Gauge, "Consumers of the group.", |g| g.members),
    ("gpuvitals_queue_group_lag_messages", Kind::Gauge, "Messages the group has not acknowledged.", |g| {
        g.lag
    }),
    (
        "gpuvitals_queue_group_in_flight_messages",
        Kind::Gauge,
        "Messages that consumers of the group have.",
        |g| g.in_flight,
    ),
    (
        "gpuvitals_queue_group_waiting_messages",
        Kind::Gauge,
        "Messages that failed and wait to be delivered again.",
        |g| g.waiting,
    ),
    (
        "gpuvitals_queue_group_redelivered_messages_total",
        Kind::Counter,
        "Messages delivered again to the group.",
        |g| g.redeliveries,
    ),
    ("gpuvitals_queue_group_acked_messages_total", Kind::Counter, "Messages the group acknowledged.", |g| {
        g.acked
    }),
];

/// Figures of a queue and of the servers that count in `meter`.
pub fn families(queue: &Queue, meter: &ServerMeter) -> Vec<Family> {
    let stats = queue.stats();
    let mut families = of_queue(&stats, &queue.health(), meter);
    families.extend(queue.disk_free_bytes().map(|free| {
        let help = "Bytes that are free on the disk of the queue's log, for this user.";
        Family::gauge("gpuvitals_queue_disk_free_bytes", help, free)
    }));
    families.extend(of_topics(&stats));
    families.extend(of_groups(&stats));
    families.push(of_publishes(meter));
    families.extend(meter.listener.families());
    families.extend(meter.beside.map(|families| families()).unwrap_or_default());
    families
}

fn of_queue(stats: &QueueStats, health: &QueueHealth, meter: &ServerMeter) -> Vec<Family> {
    let status: u64 = match health.status {
        Status::Healthy => 0,
        Status::Degraded => 1,
        Status::Unhealthy => 2,
    };
    vec![
        Family::gauge(
            "gpuvitals_queue_status",
            "0: healthy, 1: losses or refusals are near, 2: it takes nothing.",
            status,
        ),
        Family::gauge(
            "gpuvitals_queue_uptime_seconds",
            "Time since the queue started.",
            stats.uptime_seconds,
        ),
        Family::gauge("gpuvitals_queue_topics", "Topics there are.", stats.topics.len()),
        Family::counter(
            "gpuvitals_queue_processed_messages_total",
            "Messages acknowledged, over all topics and groups.",
            stats.total_processed,
        ),
        Family::gauge(
            "gpuvitals_queue_receiving_bytes",
            "Bytes of bodies and long messages that are being received.",
            meter.bodies.get().map_or(0, Budget::taken),
        ),
    ]
}

fn of_topics(stats: &QueueStats) -> impl Iterator<Item = Family> {
    TOPIC.iter().map(|(name, kind, help, value)| {
        let topics = stats.topics.iter().map(|(topic, of_topic)| (topic.clone(), value(of_topic)));
        Family::new(*name, *kind, *help).by("topic", topics)
    })
}

fn of_groups(stats: &QueueStats) -> impl Iterator<Item = Family> {
    GROUP.iter().map(|(name, kind, help, value)| {
        let mut family = Family::new(*name, *kind, *help);
        for (topic, of_topic) in &stats.topics {
            for (group, of_group) in &of_topic.groups {
                let labels = vec![("topic", topic.clone()), ("group", group.clone())];
                family = family.with(labels, Number::from(value(of_group)));
            }
        }
        family
    })
}

fn of_publishes(meter: &ServerMeter) -> Family {
    let latency = Family::new(
        "gpuvitals_queue_publish_duration_seconds",
        Kind::Histogram,
        "From the request of a publisher to its answer, refusals included.",
    );
    Protocol::ALL.into_iter().fold(latency, |latency, protocol| {
        latency.with(vec![("protocol", protocol.name().to_owned())], meter.latency(protocol).read())
    })
}
