//! Rows of a batch as entries of an answer.

use std::borrow::Cow;

use arrow_array::DictionaryArray;
use arrow_array::types::Int32Type;
use gpuvitals_core::batch::text_at;
use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::{Batch, IdentityColumn};

use crate::dto::{Columns, Moment, RowMetrics, TelemetryEntry};

/// The rows of a batch.
#[derive(Debug)]
pub(crate) struct GpuRows<'a> {
    batch: &'a Batch,
    times: &'a [i64],
    /// The GPUs, in a table without GPUs the hosts.
    subjects: &'a DictionaryArray<Int32Type>,
    partitions: Option<&'a DictionaryArray<Int32Type>>,
    nodes: Option<&'a DictionaryArray<Int32Type>>,
    sources: Option<&'a DictionaryArray<Int32Type>>,
    columns: Columns<'a>,
}

impl<'a> GpuRows<'a> {
    /// The rows with the columns in `wanted`, or all; none if the batch has no rows of its table.
    pub(crate) fn of(batch: &'a Batch, wanted: Option<&[String]>) -> Option<Self> {
        let subject = batch.table().subject();
        Some(Self {
            batch,
            times: batch.timestamps(),
            subjects: batch.identity_column(subject)?,
            partitions: Some(IdentityColumn::Partition)
                .filter(|_| subject == IdentityColumn::Uuid)
                .and_then(|column| batch.identity_column(column)),
            nodes: batch.identity_column(IdentityColumn::Node),
            sources: batch.identity_column(IdentityColumn::Source),
            columns: Columns::of(batch, wanted),
        })
    }

    /// Key of the GPU of a row, in a table without GPUs the name of the host.
    pub(crate) fn key(&self, row: usize) -> Cow<'a, str> {
        let subject = text_at(self.subjects, row).unwrap_or_default();
        match self.partitions.and_then(|partitions| text_at(partitions, row)) {
            None => Cow::Borrowed(subject),
            Some(partition) => Cow::Owned(format!("{subject}:{partition}")),
        }
    }

    /// Host of a row.
    pub(crate) fn hostname(&self, row: usize) -> Option<&'a str> {
        text_at(self.nodes?, row)
    }

    /// The text of a row in an identity column.
    pub(crate) fn text(&self, column: IdentityColumn, row: usize) -> Option<&'a str> {
        text_at(self.batch.identity_column(column)?, row)
    }

    fn simulated(&self, row: usize) -> bool {
        self.sources.and_then(|sources| text_at(sources, row)) == Some(SIMULATED)
    }

    /// The rows, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = TelemetryEntry<'_>> {
        self.times.iter().enumerate().map(|(row, time)| TelemetryEntry {
            gpu_id: self.key(row),
            hostname: self.hostname(row),
            metrics: RowMetrics { columns: &self.columns, row },
            timestamp: Moment(*time),
            simulated: self.simulated(row),
        })
    }
}
