//! What changed on nodes.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Moment, Pagination};

/// What changed on nodes in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeList {
    /// The changes, the newest first.
    pub(crate) changes: Vec<Change>,
    /// How many there are in all.
    pub(crate) total: usize,
    /// First instant of the range that is answered.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: Vec<String>,
}

/// What a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// A job or pod has its first row on the node.
    JobStarted,
    /// It has its last row there.
    JobEnded,
    /// GPUs have another driver.
    DriverChanged,
    /// GPUs have another VBIOS.
    VbiosChanged,
}

impl ChangeKind {
    pub(crate) const ALL: [Self; 4] =
        [Self::JobStarted, Self::JobEnded, Self::DriverChanged, Self::VbiosChanged];

    /// Spelling in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::JobStarted => "job_started",
            Self::JobEnded => "job_ended",
            Self::DriverChanged => "driver_changed",
            Self::VbiosChanged => "vbios_changed",
        }
    }
}

/// A change on a node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Change {
    /// Time of the first row with it; of a job that ended, of its last row.
    pub(crate) at: Moment,
    /// What it is.
    pub(crate) kind: ChangeKind,
    /// The cluster; null: the rows name none.
    #[schema(value_type = Option<String>)]
    pub(crate) cluster: Option<String>,
    /// The host; null as well.
    #[schema(value_type = Option<String>)]
    pub(crate) hostname: Option<String>,
    /// Key of the first of its GPUs.
    pub(crate) gpu: String,
    /// How many GPUs of the host it concerns.
    pub(crate) gpus: usize,
    /// Of a job or pod.
    #[schema(value_type = Option<String>)]
    pub(crate) namespace: Option<String>,
    /// Of a pod.
    #[schema(value_type = Option<String>)]
    pub(crate) pod: Option<String>,
    /// Of a job.
    #[schema(value_type = Option<String>)]
    pub(crate) job: Option<String>,
    /// The version before; null of a job.
    #[schema(value_type = Option<String>)]
    pub(crate) from: Option<String>,
    /// The version since then; null of a job.
    #[schema(value_type = Option<String>)]
    pub(crate) to: Option<String>,
}
