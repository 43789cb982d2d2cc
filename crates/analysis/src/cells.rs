//! The values of one GPU in steps of time, whoever held it.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::MetricId;
use gpuvitals_core::history::{Buckets, Cell};

/// Columns of which nearly every source has one: by these it is seen that a GPU reports.
pub(crate) const REPORTED: [MetricId; 6] = [
    MetricId::of("power_w"),
    MetricId::of("power_average_w"),
    MetricId::of("utilization_pct"),
    MetricId::of("temperature_c"),
    MetricId::of("memory_used_mb"),
    MetricId::of("gpu_clock_mhz"),
];

/// The values of a GPU: a group for each of its holders.
pub(crate) struct GpuCells<'a> {
    pub(crate) buckets: &'a Buckets,
    pub(crate) groups: Vec<usize>,
}

impl<'a> GpuCells<'a> {
    /// Those of each GPU, by key: the first column of the groups.
    pub(crate) fn by_gpu(buckets: &'a Buckets) -> HashMap<&'a Arc<str>, Self> {
        let mut gpus = HashMap::new();
        for (group, name) in buckets.groups().iter().enumerate() {
            if let Some(Some(gpu)) = name.first() {
                gpus.entry(gpu).or_insert_with(|| Self { buckets, groups: Vec::new() }).groups.push(group);
            }
        }
        gpus
    }

    /// The values of a holder in a step.
    pub(crate) fn cell(&self, metric: MetricId, group: usize, step: usize) -> Option<Cell> {
        let measured = self.buckets.metrics().iter().find(|measured| measured.metric == metric)?;
        let cell = measured.cells.get(self.buckets.place(group, step))?;
        (cell.count > 0).then_some(*cell)
    }

    /// The values of all holders in a step.
    pub(crate) fn whole(&self, metric: MetricId, step: usize) -> Option<Cell> {
        let mut sum = Cell::EMPTY;
        for cell in self.groups.iter().filter_map(|group| self.cell(metric, *group, step)) {
            sum.merge(&cell);
        }
        (sum.count > 0).then_some(sum)
    }

    /// The same of the first of these metrics that was measured.
    pub(crate) fn first(&self, metrics: &[MetricId], step: usize) -> Option<Cell> {
        metrics.iter().find_map(|metric| self.whole(*metric, step))
    }
}
