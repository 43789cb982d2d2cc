//! The parts of a record: what it says of the GPU that it names, of GPUs that its columns name, and of the host.

use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{self, Choice, Meaning};

use super::cell::{PairSide, Scale};
use super::plan::{CsvForm, Plan, Role};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const EDGE: MetricId = MetricId::of("temperature_edge_c");
const JUNCTION: MetricId = MetricId::of("temperature_junction_c");

/// What the second of two in a cell is: `60W / 350W`.
const LIMITS: [(MetricId, MetricId); 3] = [
    (MetricId::of("power_w"), MetricId::of("power_limit_w")),
    (MetricId::of("power_average_w"), MetricId::of("power_limit_w")),
    (MetricId::of("memory_used_mb"), MetricId::of("memory_total_mb")),
];

/// Whose values they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// The GPU's that the record names, or the only one's of the file.
    Row,
    /// That GPU's, which the columns name.
    Gpu(Arc<str>),
    /// That of the GPU that labels in the columns' names name.
    Labels(Arc<str>),
    /// The host's that the record names, or the file's.
    Host,
}

/// Cells of one metric.
#[derive(Debug, Clone)]
pub(super) struct MetricCells {
    /// The metric, and what the first of the cells is.
    pub(super) scale: Scale,
    pub(super) all: Vec<MetricCell>,
    /// Which of several counts.
    pub(super) choice: Choice,
    /// Name in messages, with the value in its unit, if the name in the file does not say what it is.
    pub(super) message: Option<&'static str>,
}

/// A cell of a metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetricCell {
    pub(super) column: usize,
    pub(super) scale: Scale,
    /// It is another metric's, too, of which is said what is missing.
    pub(super) is_derived: bool,
}

/// A part of every record.
#[derive(Debug, Clone)]
pub(super) struct RecordPart {
    pub(super) whose: Whose,
    pub(super) metrics: Vec<MetricCells>,
    pub(super) extras: Vec<(usize, Arc<str>)>,
}

impl RecordPart {
    fn of(whose: Whose) -> Self {
        Self { whose, metrics: Vec::new(), extras: Vec::new() }
    }

    /// The parts of a file's records. Messages are about GPUs: in them the host's values stand in the GPU's row.
    pub(super) fn all(plan: &Plan, with_messages: bool) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        let has_gpu_columns = plan.columns.iter().any(|column| column.gpu.is_some());
        let metric =
            |role: &Role| matches!(role, Role::Metric(scale) if scale.id.metric().table == Table::GpuEvents);
        let has_row = !has_gpu_columns
            && (plan.names_gpu() || plan.find(metric).is_some() || plan.form == CsvForm::Long);
        if has_row {
            parts.push(Self::of(Whose::Row));
        }
        for (index, column) in plan.columns.iter().enumerate() {
            let Role::Metric(scale) = column.role else { continue };
            let is_host = scale.id.metric().table == Table::SystemEvents && !(with_messages && has_row);
            let whose = match &column.gpu {
                _ if is_host => Whose::Host,
                Some(gpu) if gpu.starts_with('{') => Whose::Labels(Arc::clone(gpu)),
                Some(gpu) => Whose::Gpu(Arc::clone(gpu)),
                None => Whose::Row,
            };
            let part = Self::find(&mut parts, whose);
            let message = message(plan, index, &scale, &part.whose);
            let cell = MetricCell { column: index, scale, is_derived: false };
            part.add(cell, column.choice.unwrap_or(Choice::Largest), message);
        }
        for part in &mut parts {
            part.order(plan);
            part.derive(plan);
        }
        if plan.form == CsvForm::Wide {
            // What is said of nobody is said of the row's GPU, else of the host.
            let whose = if has_row { Whose::Row } else { Whose::Host };
            for (index, column) in plan.columns.iter().enumerate() {
                if let Role::Extra(name) = &column.role {
                    Self::find(&mut parts, whose.clone()).extras.push((index, Arc::clone(name)));
                }
            }
        }
        if with_messages {
            parts.retain(|part| part.whose != Whose::Host);
        }
        parts
    }

    fn find(parts: &mut Vec<Self>, whose: Whose) -> &mut Self {
        let at = parts.iter().position(|part| part.whose == whose).unwrap_or_else(|| {
            parts.push(Self::of(whose));
            parts.len() - 1
        });
        // It is there: it was found or pushed.
        #[expect(clippy::indexing_slicing, reason = "the position was found in this list")]
        &mut parts[at]
    }

    /// Adds a cell to those of its metric.
    fn add(&mut self, cell: MetricCell, choice: Choice, message: Option<&'static str>) {
        let scale = cell.scale;
        let of_metric = self.metrics.iter_mut().find(|cells| {
            cells.scale.id == scale.id && scale.second.is_none() && cells.scale.second.is_none()
        });
        match of_metric {
            Some(cells) => {
                cells.all.push(cell);
                cells.message = Some(scale.id.metric().column);
            }
            None => self.metrics.push(MetricCells { scale, all: vec![cell], choice, message }),
        }
    }

    /// Puts cells of which the first counts in their order.
    fn order(&mut self, plan: &Plan) {
        let rank = |cell: &MetricCell| match plan.columns.get(cell.column).and_then(|column| column.choice) {
            Some(Choice::First(rank)) => rank,
            _ => 0,
        };
        for cells in self.metrics.iter_mut().filter(|cells| matches!(cells.choice, Choice::First(_))) {
            cells.all.sort_by_key(rank);
        }
    }

    /// What a cell is beside its own metric. The main temperature is that of AMD's edge, else of its junction, where the
    /// file has no other.
    fn derive(&mut self, plan: &Plan) {
        let of = |metrics: &[MetricCells], id: MetricId| {
            metrics.iter().find(|cells| cells.scale.id == id).cloned()
        };
        let mut derived = Vec::new();
        for cell in self.metrics.iter().flat_map(|cells| &cells.all) {
            let name = plan.columns.get(cell.column).map_or("", |column| &column.name);
            let beside = plan.dialect.into_iter().flat_map(|dialect| dialect.beside(name));
            let scales = beside.map(|field| Scale::new(field.metric, 1.0, "").written_as(Some(field)));
            derived.extend(scales.map(|scale| MetricCell { scale, is_derived: true, ..*cell }));
        }
        let pairs = self.metrics.iter().flat_map(|cells| &cells.all).filter(|cell| cell.scale.is_of_pair());
        let limits = pairs.filter_map(|cell| {
            let (_, limit) = LIMITS.iter().find(|(of, _)| *of == cell.scale.id)?;
            let scale = Scale::new(*limit, 1.0, "").of_pair(PairSide::Second);
            Some(MetricCell { scale, is_derived: true, ..*cell })
        });
        derived.extend(limits);
        if of(&self.metrics, TEMPERATURE).is_none() {
            let sources = [EDGE, JUNCTION].into_iter().filter_map(|id| of(&self.metrics, id));
            let cells = sources.flat_map(|cells| cells.all);
            derived.extend(cells.map(|cell| MetricCell {
                scale: cell.scale.also(TEMPERATURE),
                is_derived: true,
                ..cell
            }));
        }
        for cell in derived {
            self.add(cell, Choice::First(0), Some(cell.scale.id.metric().column));
        }
    }
}

/// The name in messages of a column whose own name would be understood as something else.
fn message(plan: &Plan, index: usize, scale: &Scale, whose: &Whose) -> Option<&'static str> {
    let name = plan.columns.get(index).map_or("", |column| column.name.as_str());
    let is_understood = *whose == Whose::Row
        && !plan.is_of_processes
        && !scale.is_of_tool()
        && foreign::meaning(name) == Meaning::Metric(scale.id, scale.factor());
    (!is_understood).then_some(scale.id.metric().column)
}
