//! The series that show a column of the catalogue, for those who make them of kept rows in place of a scrape.

use std::borrow::Cow;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{Metric, Series};
use gpuvitals_core::figures::{Kind, Labels, Number};
use gpuvitals_core::{Identity, IdentityColumn, MetricId};

use crate::compat::Compat;
use crate::config::ExpositionConfig;
use crate::dcgm::{LINK_RATE, MEMORY_FREE};
use crate::family::{FamilyPlan, Line};
use crate::labels::LabelSet;
use crate::plan::Plan;
use crate::reading::Reading;
use crate::scale::Scale;

/// A series of every GPU, or of every host.
#[derive(Debug, Clone)]
pub struct ColumnSeries {
    /// Name of its family.
    pub name: Cow<'static, str>,
    /// Type of its family.
    pub kind: Kind,
    /// Base unit; empty: none.
    pub unit: &'static str,
    /// The sentence that explains it, for the line `# HELP`.
    pub help: Cow<'static, str>,
    /// The labels that tell it from others of its family.
    pub fixed: Vec<(&'static str, &'static str)>,
    /// The column; none: the series is 1 wherever the GPU has values.
    pub column: Option<MetricId>,
    scale: Scale,
    instead: Option<StandIn>,
    labels: LabelSet,
}

/// A column that stands in for a GPU that has no value in the first.
#[derive(Debug, Clone, Copy)]
struct StandIn {
    column: MetricId,
    scale: Scale,
    /// Whether it stands in for NVIDIA's GPUs, too.
    of_nvidia: bool,
}

impl ColumnSeries {
    /// Every such series, in our names and in both dialects of DCGM; and the names of the families that are made of more than a
    /// column, such as the states of an exporter.
    pub fn all() -> (Vec<Self>, Vec<Cow<'static, str>>) {
        let config = ExpositionConfig {
            set: Series::All,
            compat: Compat::Both,
            window: Duration::from_secs(30),
            interval: Duration::ZERO,
        };
        let plan = Plan::new(&config);
        let (mut series, mut others) = (Vec::new(), Vec::new());
        for family in plan.gpu.iter().chain(&plan.host) {
            let before = series.len();
            series.extend(family.lines().iter().filter_map(|line| Self::of(family, line)));
            if series.len() == before {
                others.push(family.family.name.clone());
            }
        }
        (series, others)
    }

    fn of(family: &FamilyPlan, line: &Line) -> Option<Self> {
        let (column, scale, instead) = match (line.reading, line.metric) {
            (Reading::Latest(column, instead, scale), _) => {
                (Some(column), scale, instead.map(|column| StandIn { column, scale, of_nvidia: true }))
            }
            (Reading::Active { counter, scale, load, load_scale }, _) => {
                (Some(counter), scale, Some(StandIn { column: load, scale: load_scale, of_nvidia: false }))
            }
            // A scrape computes them for a GPU whose driver does not report them; rows do not have them then.
            (Reading::LinkRate(scale), _) => (Some(LINK_RATE), scale, None),
            (Reading::MemoryFree(scale), _) => (Some(MEMORY_FREE), scale, None),
            (Reading::Total(_), Some(metric)) => (Some(id_of(metric)?), Scale::of(metric.factor), None),
            (Reading::Here | Reading::EnergyFrom(None), _) => (None, Scale::of(1.0), None),
            _ => return None,
        };
        Some(Self {
            name: family.family.name.clone(),
            kind: family.family.kind,
            unit: family.family.unit,
            help: family.family.help.clone(),
            fixed: line.fixed.clone(),
            column,
            scale,
            instead,
            labels: line.labels,
        })
    }

    /// The column that stands in for a GPU of this identity if it has no value in the first.
    pub fn instead(&self, identity: &Identity) -> Option<MetricId> {
        let is_nvidia = identity.get(IdentityColumn::Vendor) == Some("nvidia");
        self.instead.filter(|instead| instead.of_nvidia || !is_nvidia).map(|instead| instead.column)
    }

    /// A value of its column, or of the one that stands in, in the series' unit.
    pub fn value(&self, column: MetricId, value: Value) -> Number {
        let instead = self.instead.filter(|instead| instead.column == column);
        instead.map_or(self.scale, |instead| instead.scale).apply(value)
    }

    /// Whether its labels name the holder of the GPU, which changes with time.
    pub fn names_holder(&self) -> bool {
        matches!(self.labels, LabelSet::Attribution | LabelSet::Legacy | LabelSet::Modern | LabelSet::Both)
    }

    /// Whether a GPU's labels of another series are its labels, but for those that tell it from others of its family.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        self.labels == other.labels
    }

    /// Its labels for a GPU; none: it has no such series.
    pub fn labels(&self, identity: &Identity) -> Option<Labels> {
        let labels = self.labels.of(identity);
        let is_there = !labels.is_empty() || self.labels == LabelSet::Host;
        is_there.then(|| {
            self.fixed.iter().map(|(name, text)| (*name, (*text).to_owned())).chain(labels).collect()
        })
    }
}

fn id_of(metric: &Metric) -> Option<MetricId> {
    gpuvitals_core::catalogue::by_column(metric.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_with_a_series_has_one_and_states_have_none() {
        let (series, others) = ColumnSeries::all();
        let named = |name: &str| series.iter().filter(|series| series.name == name).count();
        assert_eq!((named("gpu_power_watts"), named("DCGM_FI_DEV_GPU_UTIL"), named("gpu_info")), (1, 1, 1));
        assert!(named("gpu_clock_hertz") > 1 && named("gpu_throttled_seconds_total") > 1);
        assert!(others.iter().any(|name| name == "gpu_up") && named("gpu_up") == 0);
        let energy = series.iter().find(|series| series.name == "gpu_energy_joules_total").unwrap();
        assert_eq!(energy.column, Some(MetricId::of("energy_mj")));
    }

    #[test]
    fn the_load_stands_in_for_a_counter_of_nvidia_on_the_gpus_of_others() {
        let (series, _) = ColumnSeries::all();
        let active = series.iter().find(|series| series.name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE").unwrap();
        let of = |vendor: &str| Identity::default().with(IdentityColumn::Vendor, vendor).unwrap();
        let (counter, load) = (active.column.unwrap(), MetricId::of("utilization_pct"));
        assert_eq!((active.instead(&of("amd")), active.instead(&of("nvidia"))), (Some(load), None));
        assert_eq!(active.value(counter, Value::Float32(0.5)).text(), "0.5");
        assert_eq!(active.value(load, Value::Float32(50.0)).text(), "0.5");
    }
}
