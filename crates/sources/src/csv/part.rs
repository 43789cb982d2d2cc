//! The parts of a record: what it says of the GPU that it names, of GPUs that its columns name, and of the host.

use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{self, Meaning};

use super::cell::Scale;
use super::plan::{CsvForm, Plan, Role};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const EDGE: MetricId = MetricId::of("temperature_edge_c");
const JUNCTION: MetricId = MetricId::of("temperature_junction_c");

/// Whose values they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// The GPU's that the record names, or the only one's of the file.
    Row,
    /// That GPU's, which the columns name.
    Gpu(Arc<str>),
    /// The host's.
    Host,
}

/// Cells of one metric: of several the largest counts, or the first that has a value.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    pub(super) columns: Vec<usize>,
    pub(super) scale: Scale,
    /// They are another metric's, too, and the first that has a value counts.
    pub(super) is_derived: bool,
    /// Name in messages, with the value in its unit, if the name in the file does not say what it is.
    pub(super) message: Option<&'static str>,
}

/// A part of every record.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) whose: Whose,
    pub(super) metrics: Vec<Cells>,
    pub(super) extras: Vec<(usize, Arc<str>)>,
}

impl Part {
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
                Some(gpu) => Whose::Gpu(Arc::clone(gpu)),
                None => Whose::Row,
            };
            let part = Self::find(&mut parts, whose);
            let message = message(plan, index, &scale, &part.whose);
            match part.metrics.iter_mut().find(|cells| {
                cells.scale.id == scale.id && scale.second.is_none() && cells.scale.second.is_none()
            }) {
                Some(cells) => {
                    cells.columns.push(index);
                    cells.message = Some(scale.id.metric().column);
                }
                None => part.metrics.push(Cells { columns: vec![index], scale, is_derived: false, message }),
            }
        }
        for part in &mut parts {
            part.derive_temperature();
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

    /// The main temperature is that of AMD's edge, else of its junction, where the file has no other.
    fn derive_temperature(&mut self) {
        let of = |id: MetricId| self.metrics.iter().find(|cells| cells.scale.id == id);
        if of(TEMPERATURE).is_some() {
            return;
        }
        let sources: Vec<&Cells> = [EDGE, JUNCTION].into_iter().filter_map(of).collect();
        if let Some(first) = sources.first() {
            let scale = Scale::new(TEMPERATURE, first.scale.factor(), "");
            let columns = sources.iter().flat_map(|cells| cells.columns.iter().copied()).collect();
            let message = Some(TEMPERATURE.metric().column);
            self.metrics.push(Cells { columns, scale, is_derived: true, message });
        }
    }
}

/// The name in messages of a column whose own name would be understood as something else.
fn message(plan: &Plan, index: usize, scale: &Scale, whose: &Whose) -> Option<&'static str> {
    let name = plan.columns.get(index).map_or("", |column| column.name.as_str());
    let is_understood =
        *whose == Whose::Row && foreign::meaning(name) == Meaning::Metric(scale.id, scale.factor());
    (!is_understood).then_some(scale.id.metric().column)
}
