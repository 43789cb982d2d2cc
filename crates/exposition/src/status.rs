//! What a scrape needs beside the batches: how each device does.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{AbsenceReason, Identity};

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
