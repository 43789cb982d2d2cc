//! The API's answers, field by field. The OpenAPI document is generated from these types.
//!
//! Unknown values are `null`. Times are RFC 3339 in UTC, or milliseconds since 1970 on an axis.

mod analysis;
mod catalogue;
mod changes;
mod clusters;
mod course;
mod explain;
mod gpu;
mod health;
mod hints;
mod incidents;
mod jobs;
mod page;
mod prom;
mod query;
mod scalar;
mod stats;
mod telemetry;
mod topology;
mod usage;

pub(crate) use analysis::{
    EvidenceEntry, FindingEntry, FindingList, JobSpread, SilenceEntry, SilenceList, StragglerList,
};
pub(crate) use catalogue::{MetricList, metric_list};
pub(crate) use changes::{Change, ChangeKind, ChangeList};
pub(crate) use clusters::{ClusterInfo, ClusterNode};
pub(crate) use course::{AnomalyEntry, AnomalyList, TrendEntry, TrendList, UsualValues};
pub(crate) use explain::{Explanation, PeerGroup};
pub(crate) use gpu::{
    Gpu, GpuDetail, GpuList, Host, HostList, JudgementCounts, Labels, LatestColumns, State, StateCounts,
};
pub(crate) use health::{Component, HealthReport};
pub(crate) use hints::{HintList, HintTotals, NodeRoom};
pub(crate) use incidents::IncidentNote;
pub(crate) use jobs::{JobAdvice, JobCheck, JobDetail, JobGpu, JobList, JobStep, JobSums, JobUse};
pub(crate) use page::Pagination;
pub(crate) use prom::{PromBody, PromErrorBody};
pub(crate) use query::{GroupLabels, QueryAnswer, Series, Values};
pub(crate) use scalar::{Columns, LatestMetrics, Moment, RowMetrics, Scalar};
pub(crate) use stats::{GatewayStats, QueueStats, Stats};
pub(crate) use telemetry::{TelemetryEntry, TelemetryList};
pub(crate) use topology::{GpuLink, GpuPlace, Topology};
pub(crate) use usage::{EnergyGroup, EnergyList, FleetUse, FleetUseLine, IdleGroup, IdleList};
