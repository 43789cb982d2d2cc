//! What is to be written of an incident.

use std::path::PathBuf;

use crate::incident::FlightSpan;
use crate::tables::IncidentFiles;
use crate::trigger::FlightTrigger;

/// What an incident is to be.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Directory of the ring.
    pub(crate) directory: PathBuf,
    pub(crate) id: String,
    pub(crate) node: String,
    /// The boot of the host that its rows are of.
    pub(crate) boot_id: String,
    pub(crate) trigger: FlightTrigger,
    pub(crate) others: Vec<FlightTrigger>,
    pub(crate) triggers: u64,
    pub(crate) asked: FlightSpan,
    pub(crate) rows_lost: Option<u64>,
    /// Most incidents; the oldest go. None: those of the agent are not the writer's to remove.
    pub(crate) keep: Option<usize>,
    /// Where the kernel's lines are from, or why there are none.
    pub(crate) kernel_log: String,
    /// How its rows become files.
    pub(crate) files: IncidentFiles,
}
