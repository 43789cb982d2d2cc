//! Names that say more than a metric: the long form's, those with labels, and those that the user speaks of.

use std::collections::{HashMap, HashSet};

use gpuvitals_core::Table;
use gpuvitals_core::catalogue::{self, MetricId};
use gpuvitals_core::foreign::{self, ForeignColumn, Meaning, Topic};

use super::{Draft, Evidence, Fit, Sense, shortened};
use crate::csv::decimal::pointed;
use crate::csv::labels;
use crate::csv::part::Whose;
use crate::csv::plan::{Column, GpuSaid, Plan, Role};
use crate::csv::sample::Sample;
use crate::csv::series::{self, Series, SeriesMeaning};

/// `inspect` lists at most so many metrics of a long form.
const SERIES_MAX: usize = 400;

/// Names of the columns of a long form that elsewhere mean something else, by which their cells must be metrics.
const NAME_COLUMNS: [&str; 13] = [
    "variable",
    "field",
    "_field",
    "field_name",
    "measurement",
    "_measurement",
    "key",
    "series",
    "counter",
    "countername",
    "counter_name",
    "parameter",
    "sensor",
];
const VALUE_COLUMNS: [&str; 7] =
    ["_value", "val", "reading", "field_value", "values", "countervalue", "counter_value"];

/// Names of the column that has the unit of a row's value in a long form.
const UNIT_COLUMNS: [&str; 6] = ["unit", "units", "uom", "value_unit", "metric_unit", "unit_of_measurement"];

/// What `nvidia-smi --query-compute-apps` calls a process' memory.
const PROCESS_MEMORY: [&str; 2] = ["used_gpu_memory", "used_memory"];
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");

impl Draft<'_> {
    /// Finds the names of a long form in a column that is called otherwise.
    pub(super) fn name_metrics(&self, senses: &mut [Sense]) {
        let find = |senses: &[Sense], meaning: Meaning| senses.iter().position(|it| it.meaning == meaning);
        let is_open = |sense: &Sense| sense.meaning == Meaning::Unknown && sense.evidence != Evidence::User;
        let named = |senses: &[Sense], known: &[&str], fits: &dyn Fn(usize) -> bool| {
            let mut names = self.names.iter().zip(senses).enumerate();
            let found = names.find(|(index, (name, sense))| {
                known.contains(&catalogue::folded(name.trim()).as_str()) && is_open(sense) && fits(*index)
            });
            found.map(|(index, _)| index)
        };
        let name = find(senses, Meaning::MetricName);
        let value = find(senses, Meaning::MetricValue);
        let is_number =
            |index| self.sample.cells(index).any(|text| crate::csv::cell::plain_number(text).is_some());
        let has_metrics = |index| self.has_metrics(index);
        let open_name = || named(senses, &NAME_COLUMNS, &has_metrics);
        let open_value = || named(senses, &VALUE_COLUMNS, &is_number);
        let found = match (name, value) {
            (Some(_), None) => (None, open_value()),
            (None, Some(_)) => (open_name(), None),
            // Neither alone means it: `_field` and `_value` of InfluxDB.
            (None, None) => open_name().zip(open_value()).unzip(),
            (Some(_), Some(_)) => (None, None),
        };
        for (found, meaning) in [(found.0, Meaning::MetricName), (found.1, Meaning::MetricValue)] {
            if let Some(sense) = found.and_then(|index| senses.get_mut(index)) {
                *sense = Sense { meaning, ..Sense::default() };
            }
        }
    }

    /// Whether the cells of a column are names, and one of them is a metric's.
    fn has_metrics(&self, index: usize) -> bool {
        let names: HashSet<&str> = self.sample.cells(index).take(SERIES_MAX).collect();
        names
            .iter()
            .any(|name| matches!(Series::of(name, "", GpuSaid::ByName).named, SeriesMeaning::Metric { .. }))
    }

    /// Whether labels say of which GPU a value is. They do not where none has a GPU, and each metric of a GPU comes with one list of
    /// labels: then it is the only one.
    pub(super) fn labels_name_gpus(&self, senses: &[Sense]) -> bool {
        let find = |meaning: Meaning| senses.iter().position(|sense| sense.meaning == meaning);
        let (Some(names), Some(lists)) = (find(Meaning::MetricName), find(Meaning::Labels)) else {
            return true;
        };
        let is_gpus = |name: &str| {
            let named = Series::of(name, "", GpuSaid::ByName).named;
            matches!(named, SeriesMeaning::Metric { scale, .. } if scale.id.metric().table == Table::GpuEvents)
        };
        let has_device = |list: &str| {
            let labels = labels::parse(list).unwrap_or_default();
            labels.iter().any(|(name, _)| foreign::names_device(name))
        };
        // Of each metric of a GPU the first list of labels; none of another metric.
        let mut known: HashMap<&str, Option<&str>> = HashMap::new();
        for (name, list) in self.sample.cells(names).zip(self.sample.cells(lists)) {
            let first = *known.entry(name).or_insert_with(|| is_gpus(name).then_some(list));
            // `device="0"` and `device="1"`, or what else tells several apart.
            let is_of_several = first.is_some_and(|first| first != list || has_device(list));
            if is_of_several || labels::gpu(list).is_some() {
                return true;
            }
        }
        !known.values().any(Option::is_some)
    }

    /// Columns that the user says to be one metric, and whose names have a GPU each: `GPU 0`, `GPU 1`.
    pub(super) fn place_hints(&self, senses: &mut [Sense]) {
        let gpu_in = |name: &str| {
            labels::braced(name).map(|(_, labels)| labels.to_owned()).or_else(|| foreign::gpu_in(name))
        };
        let gpus: Vec<Option<String>> = self.names.iter().map(|name| gpu_in(name)).collect();
        let metric = |sense: &Sense| match sense.meaning {
            Meaning::Metric(id, _) if sense.evidence == Evidence::User => Some(id),
            _ => None,
        };
        let places: Vec<usize> = (0..senses.len())
            .filter(|&index| {
                let (Some(sense), Some(Some(gpu))) = (senses.get(index), gpus.get(index)) else {
                    return false;
                };
                let is_other = |(other, its): (&Sense, &Option<String>)| {
                    metric(other) == metric(sense) && its.as_ref().is_some_and(|its| its != gpu)
                };
                metric(sense).is_some() && senses.iter().zip(&gpus).any(is_other)
            })
            .collect();
        for index in places {
            if let (Some(sense), Some(gpu)) = (senses.get_mut(index), gpus.get(index)) {
                sense.gpu.clone_from(gpu);
            }
        }
    }

    /// Columns that only say whose they are have what the file's name says: Grafana calls a panel's file after its title
    /// (`GPU Temperature-data-2026-01-31 12_00_00.csv`), and its columns `GPU 0` or `{gpu="0"}`. Returns what to note.
    pub(super) fn read_file_name(
        &self,
        senses: &mut [Sense],
        dropped: &HashMap<usize, String>,
    ) -> Option<String> {
        let stem = self.around.stem;
        let title = stem.split_once("-data-").map_or(stem, |(title, _)| title);
        let ForeignColumn { meaning, gpu: None, unit } = foreign::column(title, Topic::Gpu) else {
            return None;
        };
        let Meaning::Metric(id, _) = meaning else { return None };
        if id.metric().table != Table::GpuEvents {
            return None;
        }
        let mut is_any = false;
        for (index, (sense, name)) in senses.iter_mut().zip(self.names).enumerate() {
            let labels = labels::braced(name).filter(|(metric, _)| metric.is_empty());
            let gpu = labels.map(|(_, labels)| labels.to_owned()).or_else(|| foreign::gpu_alone(name));
            let is_open =
                sense.meaning == Meaning::Unknown && sense.why.is_none() && !dropped.contains_key(&index);
            if gpu.is_some() && is_open && sense.evidence != Evidence::User {
                *sense = Sense { meaning, gpu, unit: unit.clone(), ..Sense::default() };
                is_any = true;
            }
        }
        let column = id.metric().column;
        is_any.then(|| format!("columns that only name a GPU are taken for {column}, after the file's name"))
    }

    /// Names that are understood with the file's before them: `edge` of `gpu_temp.csv`, `total_bytes` of `vram.csv`. Returns what to
    /// note.
    pub(super) fn complete_names(
        &self,
        senses: &mut [Sense],
        dropped: &HashMap<usize, String>,
    ) -> Option<String> {
        let stem = self.around.stem;
        // Beside a CPU's columns a load may be its.
        let is_cpus = |name: &String| name.to_ascii_lowercase().contains("cpu");
        let is_gpus_alone = foreign::names_gpu(stem) && !self.names.iter().any(is_cpus);
        if !is_gpus_alone || self.dialect.is_some() || self.topic != Topic::Gpu {
            return None;
        }
        let mut completed: Vec<&str> = Vec::new();
        for (index, (sense, name)) in senses.iter_mut().zip(self.names).enumerate() {
            let name = name.trim();
            let is_open = sense.meaning == Meaning::Unknown
                && sense.why.is_none()
                && sense.evidence != Evidence::User
                && !dropped.contains_key(&index);
            let is_whose = foreign::names_device(name) || foreign::names_host(name);
            let column = foreign::column(&format!("{stem} {name}"), Topic::Gpu);
            if is_open && !is_whose && !name.is_empty() && column.meaning.is_of_gpus() && column.gpu.is_none()
            {
                *sense = Sense { meaning: column.meaning, unit: column.unit, ..Sense::default() };
                completed.push(name);
            }
        }
        let names = completed.join(", ");
        (!completed.is_empty()).then(|| format!("columns are understood after the file's name: {names}"))
    }

    /// Whether rows are of processes, whose memory is put together by GPU; what is only theirs is left out.
    pub(super) fn put_processes_together(&self, senses: &mut [Sense]) -> bool {
        let bare = |name: &str| {
            let name = name.split_once(['[', '(']).map_or(name, |(head, _)| head);
            catalogue::folded(name.trim())
        };
        let names: Vec<String> = self.names.iter().map(|name| bare(name)).collect();
        let is_memory = |(name, sense): (&String, &Sense)| {
            PROCESS_MEMORY.contains(&name.as_str())
                && matches!(sense.meaning, Meaning::Metric(id, _) if id == MEMORY_USED)
        };
        let has_model = names.iter().any(|name| name == "gpu_name");
        if !names.iter().any(|name| name == "pid") || !names.iter().zip(&*senses).any(is_memory) {
            return false;
        }
        for (name, sense) in names.iter().zip(senses) {
            if matches!(name.as_str(), "pid" | "process_name") || (name == "name" && has_model) {
                *sense = Sense { is_of_process: true, ..Sense::default() };
            }
        }
        true
    }
}

impl Sense {
    /// Whether a column of a long form of which nothing else is known has the units of its values.
    pub(super) fn is_of_units(&self, name: &str) -> bool {
        self.evidence != Evidence::User && UNIT_COLUMNS.contains(&catalogue::folded(name).as_str())
    }

    /// What a column is whose name has labels, as Grafana writes series: `DCGM_FI_DEV_POWER_USAGE{gpu="0"}`.
    pub(super) fn labelled(name: &str) -> Option<Self> {
        let (metric, labels) = labels::braced(name)?;
        let series = Series::of(metric, labels, GpuSaid::ByRecord);
        let meaning = match series.named {
            SeriesMeaning::Metric { scale, .. } => Meaning::Metric(scale.id, scale.factor()),
            SeriesMeaning::Extra(_) => return None,
        };
        Some(Self { meaning, gpu: Some(labels.to_owned()), unit: series.unit, ..Self::default() })
    }
}

impl Plan {
    /// The names of a long form, each with how its values fit and one of them, in their order.
    pub(super) fn series_in(&self, sample: &Sample) -> Vec<(Series, Fit, String)> {
        let find = |is: fn(&Role) -> bool| self.find(is);
        let (Some(name), Some(value)) =
            (find(|role| matches!(role, Role::MetricName)), find(|role| matches!(role, Role::MetricValue)))
        else {
            return Vec::new();
        };
        let labels = find(|role| matches!(role, Role::Labels));
        let mut labels = labels.map(|column| sample.cells(column));
        let mut units = find(|role| matches!(role, Role::Unit)).map(|column| sample.cells(column));
        let decimal = self.decimals.of_column(value);
        let gpu_said = self.gpu_said();
        let (mut all, mut places): (Vec<(Series, Fit, String)>, _) = (Vec::new(), HashMap::new());
        let mut known: HashMap<String, usize> = HashMap::new();
        for (name, text) in sample.cells(name).zip(sample.cells(value)) {
            let labels = labels.as_mut().and_then(Iterator::next).unwrap_or_default();
            let unit = units.as_mut().and_then(Iterator::next).unwrap_or_default();
            let by_labels = if foreign::depends_on_labels(name) { labels } else { "" };
            let at = *places.entry((name, by_labels)).or_insert_with(|| {
                let series = Series::of(name, by_labels, gpu_said).in_unit(unit);
                *known.entry(series.name.clone()).or_insert_with(|| {
                    all.push((series, Fit::default(), String::new()));
                    all.len() - 1
                })
            });
            let Some((series, fit, example)) = all.get_mut(at) else { continue };
            if let SeriesMeaning::Metric { scale, .. } = &series.named {
                let written = pointed(text.as_bytes(), decimal);
                fit.take_pointed(&series::united(name, &written, unit), scale);
            }
            if example.is_empty() && foreign::absence(text).is_none() {
                *example = shortened(text);
            }
        }
        all
    }

    /// Settles what each name of a long form is, for those who list its metrics.
    pub(super) fn settle_series(&mut self, sample: &Sample) {
        let series = self.series_in(sample).into_iter().take(SERIES_MAX).map(|(series, _, example)| {
            let why = self.misfits.get(&series.name).cloned();
            let (role, gpu) = match series.named {
                _ if why.is_some() => (Role::Extra(series.name.as_str().into()), None),
                SeriesMeaning::Metric { scale, whose: Some(Whose::Gpu(gpu)), .. } => {
                    (Role::Metric(scale), Some(gpu))
                }
                SeriesMeaning::Metric { scale, .. } => (Role::Metric(scale), None),
                SeriesMeaning::Extra(name) => (Role::Extra(name), None),
            };
            let example = Some(example).filter(|text| !text.is_empty());
            Column { name: series.name, role, gpu, unit: series.unit, choice: None, why, lost: None, example }
        });
        self.series = series.collect();
    }
}
