//! The API's answers, field by field. The OpenAPI document is generated from these types.
//!
//! Unknown values are `null`. Times are RFC 3339 in UTC, or milliseconds since 1970 on an axis.

mod analysis;
mod catalogue;
mod clusters;
mod course;
mod explain;
mod gpu;
mod health;
mod hints;
mod prom;
mod query;
mod scalar;
mod stats;
mod telemetry;
mod usage;

pub(crate) use analysis::{FindingEntry, FindingList, JobSpread, StragglerList};
pub(crate) use catalogue::{MetricList, metric_list};
pub(crate) use clusters::{ClusterInfo, ClusterNode};
pub(crate) use course::{AnomalyEntry, AnomalyList, TrendEntry, TrendList, UsualValues};
pub(crate) use explain::{Explanation, PeerGroup};
pub(crate) use gpu::{Gpu, GpuDetail, GpuList, Host, HostList, Labels, LatestColumns, State, StateCounts};
pub(crate) use health::{Component, HealthReport};
pub(crate) use hints::{HintList, HintTotals, NodeRoom};
pub(crate) use prom::{PromBody, PromErrorBody};
pub(crate) use query::{GroupLabels, QueryAnswer, Series, Values};
pub(crate) use scalar::{Columns, LatestMetrics, Moment, RowMetrics, Scalar};
pub(crate) use stats::{GatewayStats, QueueStats, Stats};
pub(crate) use telemetry::{TelemetryEntry, TelemetryList};
pub(crate) use usage::{EnergyGroup, EnergyList, IdleGroup, IdleList};

use serde::Serialize;
use utoipa::ToSchema;

/// Which part of a list this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Pagination {
    /// Most entries asked for.
    #[schema(example = 100)]
    pub(crate) limit: usize,
    /// Entries passed over.
    #[schema(example = 0)]
    pub(crate) offset: usize,
    /// Whether there are entries after these.
    #[schema(example = false)]
    pub(crate) has_next: bool,
}

impl Pagination {
    /// The page at `offset` of a list of `total` entries.
    pub(crate) fn of(limit: usize, offset: usize, total: usize) -> Self {
        Self { limit, offset, has_next: offset.saturating_add(limit) < total }
    }
}

#[cfg(test)]
mod tests {
    use super::Pagination;

    #[test]
    fn has_next_only_when_something_follows() {
        let check = |limit, offset, total, next| {
            assert_eq!(Pagination::of(limit, offset, total).has_next, next, "{limit} {offset} {total}");
        };
        check(10, 0, 0, false);
        check(10, 0, 10, false);
        check(10, 0, 11, true);
        check(10, 10, 11, false);
        check(10, 5000, 11, false);
        check(10, usize::MAX, 11, false);
    }
}
