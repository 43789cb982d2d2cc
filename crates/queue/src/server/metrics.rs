//! Figures of the queue as Prometheus reads them.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gpuvitals_core::Histogram;

use super::body::Budget;
use crate::service::Queue;
use crate::stats::{GroupStats, Health, HealthStatus, QueueStats, TopicStats};

/// Statuses with a line of their own; anything else is `other`.
const STATUSES: [u16; 12] = [200, 204, 400, 404, 405, 408, 409, 413, 415, 429, 500, 503];

/// How a publisher speaks to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP.
    Http,
    /// gRPC.
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

/// What the servers count about their clients.
#[derive(Debug, Default)]
pub struct Meter {
    http: Histogram,
    grpc: Histogram,
    connections: AtomicU64,
    /// What all that is received may take, once it is served.
    bodies: OnceLock<Budget>,
    /// Series that are shown as well.
    beside: Option<fn() -> String>,
    statuses: [AtomicU64; STATUSES.len() + 1],
}

impl Meter {
    /// Nothing yet, and series of the process that are shown as well: Prometheus text.
    pub fn beside(series: fn() -> String) -> Self {
        Self { beside: Some(series), ..Self::default() }
    }

    /// A publish was answered, `took` after it had come.
    pub fn published(&self, protocol: Protocol, took: Duration) {
        self.latency(protocol).observe(took);
    }

    /// A request by HTTP was answered with this status.
    pub fn answered(&self, status: u16) {
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len());
        if let Some(count) = self.statuses.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client connected.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A client that had connected is gone.
    pub fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
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

/// Name behind `gpuvitals_queue_`, type, help and value of a figure about each `T`.
type Figure<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

const TOPIC: &[Figure<TopicStats>] = &[
    ("messages", "gauge", "Messages held.", |t| t.messages),
    ("bytes", "gauge", "Bytes held, as they count against the bound of the topic.", |t| t.bytes),
    ("frames", "gauge", "Frames held.", |t| t.frames),
    ("consumers", "gauge", "Consumers connected.", |t| t.subscribers),
    ("dead_letter_messages", "gauge", "Messages kept as dead letters.", |t| t.dead_letters),
    ("published_messages_total", "counter", "Messages taken from publishers.", |t| t.published),
    ("acked_messages_total", "counter", "Messages acknowledged, over all groups.", |t| t.acked),
    ("redelivered_messages_total", "counter", "Messages delivered again.", |t| t.redelivered),
    ("dead_messages_total", "counter", "Messages that became dead letters.", |t| t.dead),
    (
        "dropped_messages_total",
        "counter",
        "Messages that made room at the bound, or lost the only group they were for.",
        |t| t.dropped,
    ),
    ("refused_messages_total", "counter", "Messages refused at the bound.", |t| t.refused),
    ("duplicate_messages_total", "counter", "Messages recognised as repeats.", |t| t.duplicates),
    (
        "dead_letter_dropped_messages_total",
        "counter",
        "Dead letters that made room at their own bound, in messages.",
        |t| t.dead_dropped,
    ),
];

const GROUP: &[Figure<GroupStats>] = &[
    ("group_members", "gauge", "Consumers of the group.", |g| g.members),
    ("group_lag_messages", "gauge", "Messages the group has not acknowledged.", |g| g.lag),
    ("group_in_flight_messages", "gauge", "Messages that consumers of the group have.", |g| g.in_flight),
    ("group_waiting_messages", "gauge", "Messages that failed and wait to be delivered again.", |g| {
        g.waiting
    }),
    ("group_redelivered_messages_total", "counter", "Messages delivered again to the group.", |g| {
        g.redeliveries
    }),
    ("group_acked_messages_total", "counter", "Messages the group acknowledged.", |g| g.acked),
];

/// Figures of a queue and of the servers that count here, as Prometheus text 0.0.4.
pub fn exposition(queue: &Queue, meter: &Meter) -> String {
    let bodies = meter.bodies.get().map_or(0, Budget::taken);
    let text = render(&queue.stats(), &queue.health(), meter, bodies);
    text + &meter.beside.map_or_else(String::new, |series| series())
}

/// The text; `bodies` is how many bytes are being received.
fn render(stats: &QueueStats, health: &Health, meter: &Meter, bodies: usize) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing to a string does not fail.
    let _written = write_queue(&mut text, stats, health, meter, bodies)
        .and_then(|()| write_topics(&mut text, stats))
        .and_then(|()| write_statuses(&mut text, meter))
        .and_then(|()| write_latency(&mut text, meter));
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP gpuvitals_queue_{name} {help}\n# TYPE gpuvitals_queue_{name} {kind}")
}

fn write_queue(
    text: &mut String,
    stats: &QueueStats,
    health: &Health,
    meter: &Meter,
    bodies: usize,
) -> std::fmt::Result {
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        head(text, name, kind, help)?;
        writeln!(text, "gpuvitals_queue_{name} {value}")
    };
    let status = match health.status {
        HealthStatus::Healthy => 0,
        HealthStatus::Degraded => 1,
        HealthStatus::Unhealthy => 2,
    };
    one("status", "gauge", "0: healthy, 1: losses or refusals are near, 2: it takes nothing.", &status)?;
    one("uptime_seconds", "gauge", "Time since the queue started.", &stats.uptime_seconds)?;
    one("topics", "gauge", "Topics there are.", &stats.topics.len())?;
    one(
        "processed_messages_total",
        "counter",
        "Messages acknowledged, over all topics and groups.",
        &stats.total_processed,
    )?;
    let connections = meter.connections.load(Ordering::Relaxed);
    one("connections", "gauge", "Connections of clients that are open.", &connections)?;
    one("receiving_bytes", "gauge", "Bytes of bodies and long messages that are being received.", &bodies)
}

fn write_topics(text: &mut String, stats: &QueueStats) -> std::fmt::Result {
    // Names of topics and groups have no character that would need escaping.
    for (name, kind, help, value) in TOPIC {
        head(text, name, kind, help)?;
        for (topic, of_topic) in &stats.topics {
            writeln!(text, "gpuvitals_queue_{name}{{topic=\"{topic}\"}} {}", value(of_topic))?;
        }
    }
    for (name, kind, help, value) in GROUP {
        head(text, name, kind, help)?;
        for (topic, of_topic) in &stats.topics {
            for (group, of_group) in &of_topic.groups {
                let labels = format_args!("topic=\"{topic}\",group=\"{group}\"");
                writeln!(text, "gpuvitals_queue_{name}{{{labels}}} {}", value(of_group))?;
            }
        }
    }
    Ok(())
}

fn write_statuses(text: &mut String, meter: &Meter) -> std::fmt::Result {
    const NAME: &str = "http_requests_total";
    head(text, NAME, "counter", "Requests by HTTP that were answered, by status.")?;
    let spelled = STATUSES.iter().map(ToString::to_string).chain(["other".to_owned()]);
    for (status, count) in spelled.zip(&meter.statuses) {
        let count = count.load(Ordering::Relaxed);
        writeln!(text, "gpuvitals_queue_{NAME}{{status=\"{status}\"}} {count}")?;
    }
    Ok(())
}

fn write_latency(text: &mut String, meter: &Meter) -> std::fmt::Result {
    const NAME: &str = "publish_duration_seconds";
    head(text, NAME, "histogram", "From the request of a publisher to its answer, refusals included.")?;
    for protocol in Protocol::ALL {
        let label = format!("protocol=\"{}\"", protocol.name());
        meter.latency(protocol).write(text, &format!("gpuvitals_queue_{NAME}"), &label)?;
    }
    Ok(())
}
