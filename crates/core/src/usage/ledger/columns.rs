//! What the ledger reads of a batch of samples.

use super::line::Peaks;
use crate::batch::{MetricColumn, Value};
use crate::usage::rows::UseColumns;
use crate::{Batch, MetricId};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const MEMORY: MetricId = MetricId::of("memory_used_mb");

/// The columns of a batch.
pub(super) struct Columns<'a> {
    pub(super) used: UseColumns<'a>,
    temperature: Option<MetricColumn<'a>>,
    memory: Option<MetricColumn<'a>>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        Self {
            used: UseColumns::of(batch.records()),
            temperature: batch.metric(TEMPERATURE),
            memory: batch.metric(MEMORY),
        }
    }

    pub(super) fn peaks(&self, row: usize) -> Peaks {
        Peaks { power_w: self.used.power_w(row), ..self.own_peaks(row) }
    }

    /// Those without the power, which is the whole GPU's.
    pub(super) fn own_peaks(&self, row: usize) -> Peaks {
        let number = |column: Option<MetricColumn<'_>>| column?.value(row).map(Value::as_f64);
        Peaks {
            samples: 1,
            power_w: None,
            temperature_c: number(self.temperature),
            memory_mb: number(self.memory),
        }
    }
}
