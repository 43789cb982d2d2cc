//! How a flight recorder works, and what it counts.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::SyncSender;

use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};

use crate::rule::FlightRule;
use crate::settings::FlightSettings;
use crate::tables::IncidentFiles;
use crate::trigger::FlightTrigger;

/// How a flight recorder works.
#[derive(Debug, Clone)]
pub struct FlightTerms {
    /// Name of the host.
    pub node: String,
    /// How far an incident goes back, nanoseconds.
    pub before_ns: i64,
    /// How far it goes on after its trigger.
    pub after_ns: i64,
    /// Most incidents that are kept.
    pub keep: usize,
    /// Thresholds that are triggers.
    pub rules: Vec<FlightRule>,
    /// Whether rows of GPUs come by [`FlightRecorder::take_faster`](crate::FlightRecorder::take_faster) alone, those that are looked at for triggers apart.
    pub is_faster: bool,
    /// Who is told the keys of GPUs of which something is a trigger and which can still be read.
    pub triggered: Option<SyncSender<String>>,
    /// Who is told of each incident that begins, or goes on after a start: its id, and its trigger. Of one that a gateway asked for, the
    /// first trigger of this node is told as well.
    pub begun: Option<SyncSender<(String, FlightTrigger)>>,
    /// How rows of incidents become files.
    pub files: IncidentFiles,
}

impl FlightTerms {
    /// As the settings say, for this host.
    pub fn new(settings: &FlightSettings, node: &str, files: IncidentFiles) -> Self {
        Self {
            node: node.to_owned(),
            before_ns: i64::from(settings.minutes) * MINUTE_NS,
            after_ns: i64::try_from(settings.after.as_nanos()).unwrap_or(60 * SECOND_NS),
            keep: settings.keep,
            rules: settings.rules(),
            is_faster: false,
            triggered: None,
            begun: None,
            files,
        }
    }
}

/// What a flight recorder counts since it started.
#[derive(Debug, Default)]
pub(crate) struct FlightCounts {
    /// Whether the ring took the last rows.
    pub(crate) is_up: AtomicBool,
    /// Rows that the ring has taken.
    pub(crate) rows: AtomicU64,
    /// Rows that it has not: its disk was full, or it did not keep up.
    pub(crate) rows_lost: AtomicU64,
    /// Triggers, also those that began no incident of their own.
    pub(crate) triggers: AtomicU64,
    /// Incidents that were written.
    pub(crate) incidents: AtomicU64,
    /// Incidents that could not be written.
    pub(crate) incidents_failed: AtomicU64,
}
