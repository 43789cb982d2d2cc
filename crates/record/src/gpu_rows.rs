//! The GPUs of a recording, told apart row by row, and the facts of each that stay the same while it runs.

use std::sync::Arc;

use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::identity::split_profile;
use gpuvitals_core::{Batch, Identity, IdentityColumn, MetricId};
use parquet::file::metadata::KeyValue;
use serde::Serialize;

/// Most GPUs of a recording; partitions count. No node has more.
const GPUS_MAX: usize = 1_024;

const POWER_LIMIT: MetricId = MetricId::of("power_limit_w");
const POWER_LIMIT_ENFORCED: MetricId = MetricId::of("power_limit_enforced_w");
const LOCKED: MetricId = MetricId::of("gpu_clock_locked");
const CLOCK_ASKED: MetricId = MetricId::of("gpu_clock_application_mhz");
const LEVEL: MetricId = MetricId::of("performance_level");
const PARTITIONS: MetricId = MetricId::of("partition_count");

/// Gives each GPU a number, in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct GpuRows {
    keys: Vec<Arc<str>>,
}

impl GpuRows {
    /// The number of each row's GPU: none without a name, and beyond the most. `known` gets each GPU of the batch once.
    pub(crate) fn of(
        &mut self,
        batch: &Batch,
        mut known: impl FnMut(usize, Arc<str>, &Identity),
    ) -> Vec<Option<usize>> {
        let [uuids, partitions] =
            [IdentityColumn::Uuid, IdentityColumn::Partition].map(|column| batch.identity_column(column));
        // The number of each pair of dictionary keys: an identity is built once a batch.
        let mut seen: Vec<(_, Option<usize>)> = Vec::new();
        let mut rows = Vec::with_capacity(batch.rows());
        for row in 0..batch.rows() {
            let keys = (uuids.and_then(|array| array.key(row)), partitions.and_then(|array| array.key(row)));
            if let Some((_, number)) = seen.iter().find(|(pair, _)| *pair == keys) {
                rows.push(*number);
                continue;
            }
            let identity = batch.identity(row);
            let key = identity.key();
            let number = key.as_ref().and_then(|key| self.number(key));
            if let (Some(number), Some(key)) = (number, key) {
                known(number, key, &identity);
            }
            seen.push((keys, number));
            rows.push(number);
        }
        rows
    }

    fn number(&mut self, key: &Arc<str>) -> Option<usize> {
        if let Some(at) = self.keys.iter().position(|known| known == key) {
            return Some(at);
        }
        if self.keys.len() >= GPUS_MAX {
            return None;
        }
        self.keys.push(Arc::clone(key));
        Some(self.keys.len() - 1)
    }
}

/// What stays the same of a GPU while it is recorded. None: not read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct GpuFacts {
    /// Its key: `uuid`, or `uuid:partition`.
    pub(crate) id: String,
    /// Index on the node.
    pub(crate) gpu: Option<i32>,
    pub(crate) node: Option<String>,
    /// Product name without the profile of an instance.
    pub(crate) model: Option<String>,
    /// The profile of an instance, `1g.10gb`; or the number of partitions that the package is split into.
    pub(crate) partition: Option<String>,
    pub(crate) driver: Option<String>,
    pub(crate) vbios: Option<String>,
    /// How its rows were obtained: `nvml`, `nvidia-smi`, `simulated` …
    #[serde(skip)]
    pub(crate) source: Option<String>,
    /// The limit that is set, W; where it is not read, the one in force.
    pub(crate) power_limit_w: Option<f64>,
    /// The one in force, W.
    #[serde(skip)]
    power_limit_enforced_w: Option<f64>,
    /// Whether the graphics clock is held.
    pub(crate) clock_locked: Option<bool>,
    /// The graphics clock that applications asked for, MHz.
    pub(crate) clock_asked_mhz: Option<f64>,
    /// AMD's performance level, by the number of the catalogue.
    pub(crate) performance_level: Option<i64>,
}

/// Gathers the facts of each GPU from its rows: the last value that was read counts.
#[derive(Debug, Default)]
pub(crate) struct FactsOfGpus {
    rows: GpuRows,
    facts: Vec<GpuFacts>,
}

impl FactsOfGpus {
    pub(crate) fn add(&mut self, batch: &Batch) {
        let facts = &mut self.facts;
        let numbers = self.rows.of(batch, |number, key, identity| {
            if facts.len() <= number {
                facts.resize_with(number + 1, GpuFacts::default);
            }
            if let Some(facts) = facts.get_mut(number) {
                facts.name(&key, identity);
            }
        });
        let [limit, enforced, locked, asked, level, partitions] =
            [POWER_LIMIT, POWER_LIMIT_ENFORCED, LOCKED, CLOCK_ASKED, LEVEL, PARTITIONS]
                .map(|id| batch.metric(id));
        if [limit, enforced, locked, asked, level, partitions].iter().all(Option::is_none) {
            return;
        }
        for (row, number) in numbers.into_iter().enumerate() {
            let Some(facts) = number.and_then(|number| self.facts.get_mut(number)) else { continue };
            let value = |column: Option<MetricColumn<'_>>| column?.value(row).map(Value::as_f64);
            facts.power_limit_w = value(limit).or(facts.power_limit_w);
            facts.power_limit_enforced_w = value(enforced).or(facts.power_limit_enforced_w);
            facts.clock_locked = value(locked).map(|held| held > 0.5).or(facts.clock_locked);
            facts.clock_asked_mhz = value(asked).or(facts.clock_asked_mhz);
            facts.performance_level = gpuvitals_core::throttle::whole(level, row).or(facts.performance_level);
            if let Some(count) = value(partitions).filter(|count| *count > 1.0) {
                facts.partition = Some(format!("1 of {count:.0}"));
            }
        }
    }

    /// The facts so far, by index and key.
    pub(crate) fn sorted(mut self) -> Vec<GpuFacts> {
        for facts in &mut self.facts {
            facts.power_limit_w = facts.power_limit_w.or(facts.power_limit_enforced_w);
        }
        self.facts.sort_by(|a, b| (a.gpu.is_none(), a.gpu, &a.id).cmp(&(b.gpu.is_none(), b.gpu, &b.id)));
        self.facts
    }

    /// As a pair of a Parquet footer.
    pub(crate) fn footer(self) -> KeyValue {
        // Names and numbers: nothing in it can fail.
        let json = serde_json::to_string(&self.sorted()).unwrap_or_default();
        KeyValue::new("gpuvitals.gpus".to_owned(), json)
    }
}

impl GpuFacts {
    /// Takes what the identity says: a driver's version or a model's name may come late.
    fn name(&mut self, key: &str, identity: &Identity) {
        key.clone_into(&mut self.id);
        self.gpu = identity.index.or(self.gpu);
        let told = |column| identity.get(column).map(str::to_owned);
        self.node = told(IdentityColumn::Node).or_else(|| self.node.take());
        self.driver = told(IdentityColumn::Driver).or_else(|| self.driver.take());
        self.vbios = told(IdentityColumn::Vbios).or_else(|| self.vbios.take());
        self.source = told(IdentityColumn::Source).or_else(|| self.source.take());
        if let Some((model, profile)) = identity.get(IdentityColumn::Model).map(split_profile) {
            self.model = Some(model.to_owned());
            self.partition = profile.map(str::to_owned).or_else(|| self.partition.take());
        }
    }

    /// What holds its clock, in words; none: the driver says nothing of it.
    pub(crate) fn clock_lock(&self) -> Option<String> {
        let asked = self.clock_asked_mhz.map(|mhz| format!("asked for {mhz:.0} MHz"));
        let level = self.performance_level.map(|level| format!("performance level {level}"));
        let locked = self.clock_locked.map(|held| if held { "locked" } else { "free" }.to_owned());
        let words: Vec<String> = [locked, level, asked].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{BatchBuilder, Origin, Table};

    use super::*;

    #[test]
    fn the_limit_that_is_set_counts_whenever_it_was_read() {
        let limit_of = |rows: &[(MetricId, f64)]| {
            let mut builder = BatchBuilder::new(Table::GpuEvents);
            let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-0").unwrap());
            for (time_ns, (metric, watts)) in (0..).zip(rows) {
                let row = builder.row_at(time_ns, time_ns, id);
                builder.set(row, *metric, Value::Float(*watts)).unwrap();
            }
            let mut facts = FactsOfGpus::default();
            facts.add(&builder.finish(Origin::default(), 0).unwrap());
            facts.sorted()[0].power_limit_w
        };
        assert_eq!(limit_of(&[(POWER_LIMIT, 700.0), (POWER_LIMIT_ENFORCED, 600.0)]), Some(700.0));
        assert_eq!(limit_of(&[(POWER_LIMIT_ENFORCED, 600.0), (POWER_LIMIT, 700.0)]), Some(700.0));
        assert_eq!(limit_of(&[(POWER_LIMIT_ENFORCED, 600.0)]), Some(600.0));
    }
}
