//! Input of a scrape besides the batches: the state of each device.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{AbsenceReason, Identity};

/// The state of a device at the time of the scrape. The host is the device whose identity has no uuid.
#[derive(Debug, Clone)]
pub struct DeviceStatus {
    /// Its identity, with the present attribution.
    pub identity: Arc<Identity>,
    /// The same under each pod that holds it, if several share it.
    pub sharers: Vec<Arc<Identity>>,
    /// Whether its last reading gave a row.
    pub up: bool,
    /// Why not; none while its first reading has not finished.
    pub reason: Option<AbsenceReason>,
    /// Whether a reading is past its deadline.
    pub stuck: bool,
    /// When `up` last changed, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// How often the driver's values really change, once known.
    pub update_interval: Option<Duration>,
}
