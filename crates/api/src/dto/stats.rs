//! Statistics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Counts of queue, gateway, collectors, store and source since they started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stats {
    /// The queue's own statistics.
    #[serde(flatten)]
    pub(crate) queue: QueueStats,
    /// The gateway's own statistics.
    pub(crate) gateway: GatewayStats,
    /// Each collector's own statistics by its name; `null` for one that is not reached.
    #[schema(value_type = BTreeMap<String, Option<BTreeMap<String, Value>>>)]
    pub(crate) collectors: BTreeMap<String, Value>,
    /// The store's own statistics.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub(crate) store: Value,
    /// The source of the rows, and its progress.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub(crate) source: Value,
}

/// The queue's statistics as the queue gives them; `null` if it is not reached.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct QueueStats {
    /// By topic: `messages` held, `subscribers`, `throughput_msg_per_sec` and more.
    #[schema(value_type = Option<BTreeMap<String, BTreeMap<String, Value>>>, example = json!({
        "gpu-telemetry": {"messages": 0, "subscribers": 1, "throughput_msg_per_sec": 64.0}
    }))]
    pub(crate) topics: Option<BTreeMap<String, Map<String, Value>>>,
    /// Messages processed since the queue started.
    #[schema(example = 230_400)]
    pub(crate) total_processed: Option<u64>,
    /// Seconds since the queue started.
    #[schema(example = 3600.0)]
    pub(crate) uptime_seconds: Option<f64>,
    /// The queue's other fields.
    #[serde(flatten)]
    #[schema(ignore)]
    pub(crate) rest: Map<String, Value>,
}

/// The gateway's statistics.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "cache_hit_rate": 0.94, "cache_hits": 9400, "cache_misses": 600, "cache_bytes": 1_048_576, "requests": 10_000,
    "uptime_seconds": 3600.0, "streams": 2, "connections": 9, "memory_bytes": 83_886_080
}))]
pub(crate) struct GatewayStats {
    /// Share of cacheable answers that came from the cache, 0 to 1; `null` before the first.
    pub(crate) cache_hit_rate: Option<f64>,
    /// Answers from the cache.
    pub(crate) cache_hits: u64,
    /// Answers that were computed.
    pub(crate) cache_misses: u64,
    /// Bytes of answers in the cache.
    pub(crate) cache_bytes: u64,
    /// Requests answered since the gateway started.
    pub(crate) requests: u64,
    /// Seconds since the gateway started.
    pub(crate) uptime_seconds: f64,
    /// Live streams that are open.
    pub(crate) streams: usize,
    /// Connections that are open.
    pub(crate) connections: u64,
    /// Resident memory of the process; `null` where the system does not say.
    pub(crate) memory_bytes: Option<u64>,
}
