//! What the kernel said, beside the rows.

use gpuvitals_core::time;
use serde::{Deserialize, Serialize};

use crate::trigger::FlightTrigger;

/// A line of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightLine {
    /// When it came, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// The line, without control characters.
    pub text: String,
    /// What it is a trigger of, if it is one.
    #[serde(skip)]
    pub trigger: Option<FlightTrigger>,
}

impl FlightLine {
    /// As it stands in `kernel.log`.
    pub(crate) fn written(&self) -> String {
        format!("{} {}\n", time::format(self.at_ns), self.text)
    }
}
