//! Statistics and health of the queue. The serialised names are those of the admin API.

use std::collections::BTreeMap;

use gpuvitals_core::Status;
use serde::Serialize;
use utoipa::ToSchema;

/// The whole queue.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Stats)]
pub struct QueueStats {
    /// Every topic by name.
    pub topics: BTreeMap<String, TopicStats>,
    /// Messages acknowledged since the start, over all topics and groups.
    pub total_processed: u64,
    /// Whole seconds since the start.
    pub uptime_seconds: u64,
}

/// One topic. All counts are messages (rows) unless the name says otherwise; totals count from the start.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TopicStats {
    /// Messages that the topic holds now.
    pub messages: u64,
    /// Consumers connected now, over all groups. A consumer with several connections counts once, if it says so.
    pub subscribers: u64,
    /// Published a second, over the last ten seconds.
    pub throughput_msg_per_sec: f64,
    /// Acknowledged a second over all groups, over the last ten seconds.
    pub acked_msg_per_sec: f64,
    /// Held now, in bytes, as they count against the bound.
    pub bytes: u64,
    /// Frames held now.
    pub frames: u64,
    /// Total accepted from publishers (duplicates not among them).
    pub published: u64,
    /// Total acknowledged, over all groups.
    pub acked: u64,
    /// Total delivered again.
    pub redelivered: u64,
    /// Total that became dead letters.
    pub dead: u64,
    /// Total that made room at the bound, or lost the only group they were for.
    pub dropped: u64,
    /// Total refused at the bound.
    pub refused: u64,
    /// Total recognised as repeats.
    pub duplicates: u64,
    /// Dead letters kept now.
    pub dead_letters: u64,
    /// Total of dead letters that went at their own bound.
    pub dead_dropped: u64,
    /// Every group by name.
    pub groups: BTreeMap<String, GroupStats>,
}

/// One group of a topic. Counts are messages (rows).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct GroupStats {
    /// Connections of consumers now.
    pub members: u64,
    /// Not yet acknowledged (in flight included).
    pub lag: u64,
    /// With a consumer now.
    pub in_flight: u64,
    /// Failed and waiting to be delivered again.
    pub waiting: u64,
    /// Total delivered again.
    #[serde(rename = "redelivered")]
    pub redeliveries: u64,
    /// Total acknowledged by the group.
    pub acked: u64,
    /// How long ago the oldest message that is not acknowledged was published, in whole seconds; none if all are.
    #[serde(rename = "oldest_unacked_seconds", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub oldest_age_s: Option<u64>,
}

/// How the queue is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueHealth {
    /// The worst of what is found.
    pub status: Status,
    /// One sentence for each thing that is not well.
    pub reasons: Vec<String>,
}
