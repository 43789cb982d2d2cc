//! `incident.json`: what is known of an incident. `docs/flight.md` specifies it; a change that an older reader cannot take is another
//! schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trigger::FlightTrigger;

/// The schema of `incident.json` that this version writes.
pub const INCIDENT_SCHEMA: u64 = 1;
/// Other triggers that an incident names; further ones are counted.
pub(crate) const OTHERS_MAX: usize = 32;

/// What `incident.json` says of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightIncident {
    /// [`INCIDENT_SCHEMA`] of the version that wrote it.
    pub schema: u64,
    /// Name of its folder.
    pub id: String,
    /// Name of the host.
    pub node: String,
    /// What the kernel calls this boot of the host; empty: it could not be read.
    pub boot_id: String,
    /// Version of gpuvitals.
    pub version: String,
    /// The first trigger.
    pub trigger: FlightTrigger,
    /// How many triggers came, the first among them.
    pub triggers: u64,
    /// The others, as many as there is room for.
    pub others: Vec<FlightTrigger>,
    /// The time that was to be in it, nanoseconds UTC.
    pub asked: FlightSpan,
    /// Time from its first row to its last; none: it has no row.
    pub had: Option<FlightSpan>,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Rows that the ring has lost since the agent started: its disk was full, or it did not keep up. None if the writer cannot know.
    pub rows_lost: Option<u64>,
    /// When it was written, on the wall clock and on the kernel's monotonic one, nanoseconds.
    pub written_ns: i64,
    /// The monotonic clock at that moment.
    pub written_monotonic_ns: i64,
    /// How far the clocks of other nodes are away.
    pub offset: String,
    /// The GPUs that have rows in it.
    pub gpus: Vec<FlightGpu>,
    /// Values that could not be read.
    pub read_errors: Vec<ReadError>,
    /// Lines of `kernel.log`.
    #[serde(default)]
    pub kernel_lines: u64,
    /// Where they are from, `kmsg` or `journal`, or why there are none.
    #[serde(default)]
    pub kernel_log: String,
}

/// A span of time, nanoseconds UTC, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlightSpan {
    /// Its first instant, nanoseconds UTC since 1970.
    pub from_ns: i64,
    /// Its last instant, nanoseconds UTC since 1970.
    pub to_ns: i64,
}

/// A GPU of an incident.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlightGpu {
    /// Key of the GPU.
    pub gpu: String,
    /// Its number on the node.
    pub index: Option<i32>,
    /// What identifies it and who held it in its last row, by the names of the columns.
    pub identity: BTreeMap<String, String>,
    /// When it last gave a value before the trigger, nanoseconds UTC.
    pub last_ns: Option<i64>,
    /// Its last values before the trigger, by column.
    pub last: BTreeMap<String, f64>,
}

/// Values of a metric of a GPU that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadError {
    /// Key of the GPU, or the host.
    pub gpu: String,
    /// Column of the metric.
    pub metric: String,
    /// The reason, as for absences.
    pub reason: String,
    /// How many rows lack it.
    pub count: u64,
}
