//! Series of the host's CPUs.

use std::collections::BTreeMap;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::{Batch, MetricId};

use crate::values::Latest;

/// The metric with a series for each CPU.
pub(crate) const CORE: MetricId = MetricId::of("cpu_core_pct");
/// Most CPUs remembered.
const CORES_MAX: usize = 4_096;

/// The latest share of each CPU, by its number.
#[derive(Debug, Default)]
pub(crate) struct Cores(BTreeMap<u32, Option<Latest>>);

impl Cores {
    /// Takes the rows that are about one CPU; returns the others.
    pub(crate) fn take(&mut self, batch: &Batch) -> Vec<usize> {
        let shares = batch.metric(CORE);
        let mut others = Vec::new();
        for (row, &at_ns) in batch.timestamps().iter().enumerate() {
            let Some(core) = batch.instance(Scope::CpuCore, row) else {
                others.push(row);
                continue;
            };
            let share = shares.and_then(|shares| shares.value(row));
            if let (Ok(core), Some(share)) = (core.parse(), share)
                && (self.0.len() < CORES_MAX || self.0.contains_key(&core))
            {
                Latest::renew(self.0.entry(core).or_default(), CORE, share, at_ns);
            }
        }
        others
    }

    /// CPUs with a current share. One that went offline is included until its last share is old.
    pub(crate) fn fresh(&self, now_ns: i64) -> impl Iterator<Item = (u32, Value)> {
        self.0.iter().filter_map(move |(core, latest)| Some((*core, latest.as_ref()?.fresh(now_ns)?)))
    }
}
