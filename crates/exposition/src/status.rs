//! What a scrape is told beside the batches: how each device does, and the program's own figures.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{AbsenceReason, Identity};

use crate::text::Kind;

/// How a device does at the time of the scrape. The host is the device whose identity has no uuid.
#[derive(Debug, Clone)]
pub struct DeviceStatus {
    /// Who, with the present attribution.
    pub identity: Arc<Identity>,
    /// Whether its last reading gave a row.
    pub up: bool,
    /// Why not; none while its first reading has not come back.
    pub reason: Option<AbsenceReason>,
    /// Whether a reading is out past its deadline.
    pub stuck: bool,
    /// When `up` last changed, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// How often the driver's values really change, once that is known.
    pub update_interval: Option<Duration>,
}

/// Labels of a series, in the order they are to stand.
pub type Labels = Vec<(&'static str, String)>;

/// A family of the program's own figures.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its name, in base units; `_total` at the end of a counter's, `_info` of an info's.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its series; no two with the same labels. What is not finite is left out.
    pub samples: Vec<(Labels, f64)>,
}
