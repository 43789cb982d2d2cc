//! Conditions that the values of a GPU show: findings that a node can judge by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gpuvitals_analysis::condition::{self, CONDITIONS, Severity};
use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, MetricId};

/// Critical conditions that are triggers of other kinds.
const OTHERS: [&str; 4] = ["xid", "ecc_uncorrected", "ras_uncorrected", "hardware_thermal_slowdown"];
/// What shows within this time after the first row of a GPU was so before: values that are seldom read have all come by then.
const KNOWN_NS: i64 = 2 * MINUTE_NS;

/// Looks for critical conditions that begin.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    gpus: HashMap<Arc<str>, ConditionGpu>,
}

#[derive(Debug, Default)]
struct ConditionGpu {
    first_ns: Option<i64>,
    /// Values stand until they are read again.
    values: HashMap<MetricId, Value>,
    holds: BTreeSet<&'static str>,
}

/// The columns of a batch that conditions are judged by.
pub(crate) struct ConditionColumns<'a>(Vec<(MetricId, MetricColumn<'a>)>);

impl<'a> ConditionColumns<'a> {
    pub(crate) fn of(batch: &'a Batch) -> Self {
        let looked_at = CONDITIONS.iter().filter(|one| is_looked_at(one.id, one.severity));
        let metrics: BTreeSet<MetricId> = looked_at.flat_map(|one| one.metrics).copied().collect();
        Self(metrics.into_iter().filter_map(|metric| Some((metric, batch.metric(metric)?))).collect())
    }
}

fn is_looked_at(id: &str, severity: Severity) -> bool {
    severity == Severity::Critical && !OTHERS.contains(&id)
}

impl Conditions {
    /// The conditions that a row of a GPU is the first to show: name and sentence.
    pub(crate) fn look(
        &mut self,
        gpu: &Arc<str>,
        columns: &ConditionColumns<'_>,
        row: usize,
        at_ns: i64,
    ) -> Vec<(&'static str, String)> {
        let gpu = self.gpus.entry(Arc::clone(gpu)).or_default();
        for (metric, column) in &columns.0 {
            if let Some(value) = column.value(row) {
                gpu.values.insert(*metric, value);
            }
        }
        let is_known = at_ns.saturating_sub(*gpu.first_ns.get_or_insert(at_ns)) >= KNOWN_NS;
        let mut holds = BTreeSet::new();
        let mut begun = Vec::new();
        for found in condition::found(|metric| gpu.values.get(&metric).copied()) {
            let id = found.condition.id;
            if is_looked_at(id, found.condition.severity) {
                holds.insert(id);
                if is_known && !gpu.holds.contains(id) {
                    begun.push((id, found.sentence()));
                }
            }
        }
        gpu.holds = holds;
        begun
    }
}
