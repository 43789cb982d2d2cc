//! Values by step as a wide table: a row a step, a column a series.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_schema::ArrowError;
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::history::{BucketSeries, Fleet, GroupColumn, TimeSteps};

use super::shown::{is_single, unit_of};
use crate::columns::{self, TableColumn};
use crate::condition;
use crate::format;

/// The series as columns, each with another name.
pub(super) fn table(
    steps: TimeSteps,
    group_by: &[GroupColumn],
    series: &[BucketSeries],
    fleet: &Fleet,
) -> Result<RecordBatch, ArrowError> {
    let heads = Heads::of(group_by, series, fleet);
    let mut counts: HashMap<String, usize> = HashMap::new();
    for one in series {
        *counts.entry(heads.by_address(one)).or_default() += 1;
    }
    let times: Int64Array = steps.times().map(Some).collect();
    let time = TableColumn::of(TIMESTAMP_COLUMN, format::START, Arc::new(times));
    let column = |one: &BucketSeries| {
        let head = heads.by_address(one);
        // A GPU and the one in its place have one address.
        let head = if counts.get(&head) == Some(&1) { head } else { heads.by_key(one) };
        TableColumn::measured(&head, unit_of(one), one.metric.metric().help, values(one))
    };
    columns::table(std::iter::once(time).chain(series.iter().map(column)).collect())
}

/// Puts the series of GPUs in the order of the fleet, by host and index, under each metric and aggregate.
pub(super) fn by_place(series: &mut [BucketSeries], group_by: &[GroupColumn], fleet: &Fleet) {
    let Some(column) = group_by.iter().position(|column| *column == GroupColumn::Gpu) else { return };
    let places: HashMap<&str, usize> =
        fleet.gpus.iter().enumerate().map(|(place, gpu)| (gpu.key.as_ref(), place)).collect();
    let place =
        |one: &BucketSeries| one.group.get(column)?.as_deref().and_then(|key| places.get(key)).copied();
    let is_same = |a: &BucketSeries, b: &BucketSeries| (a.metric, a.aggregate) == (b.metric, b.aggregate);
    for of_metric in series.chunk_by_mut(is_same) {
        of_metric.sort_by_key(|one| place(one).unwrap_or(usize::MAX));
    }
}

fn values(one: &BucketSeries) -> ArrayRef {
    if is_single(one) {
        #[expect(clippy::cast_possible_truncation, reason = "they were 32-bit floats")]
        let single = one.values.iter().map(|value| value.map(|value| value as f32));
        return Arc::new(single.collect::<Float32Array>());
    }
    Arc::new(one.values.iter().copied().collect::<Float64Array>())
}

/// The names of the columns: metric and aggregate where there are several, and the group: `no job` where it has none.
struct Heads<'a> {
    group_by: &'a [GroupColumn],
    fleet: &'a Fleet,
    has_metrics: bool,
    has_aggregates: bool,
}

impl<'a> Heads<'a> {
    fn of(group_by: &'a [GroupColumn], series: &[BucketSeries], fleet: &'a Fleet) -> Self {
        let metrics: HashSet<_> = series.iter().map(|one| one.metric).collect();
        let aggregates: HashSet<_> = series.iter().map(|one| one.aggregate.name()).collect();
        // A name has at least one word.
        let has_metrics = metrics.len() > 1 || group_by.is_empty();
        Self { group_by, fleet, has_metrics, has_aggregates: aggregates.len() > 1 }
    }

    /// GPUs by host and index.
    fn by_address(&self, one: &BucketSeries) -> String {
        self.joined(one, |key| self.fleet.get(key).and_then(|gpu| condition::address(gpu)))
    }

    /// GPUs by key.
    fn by_key(&self, one: &BucketSeries) -> String {
        self.joined(one, |_| None)
    }

    fn joined(&self, one: &BucketSeries, name: impl Fn(&str) -> Option<String>) -> String {
        let metric = self.has_metrics.then(|| one.metric.metric().column.to_owned());
        let aggregate = self.has_aggregates.then(|| one.aggregate.name().into_owned());
        let texts = self.group_by.iter().zip(one.group.iter()).map(|(column, text)| {
            match text.as_deref().unwrap_or_default() {
                "" => format!("no {}", column.name()),
                key if *column == GroupColumn::Gpu => name(key).unwrap_or_else(|| key.to_owned()),
                text => text.to_owned(),
            }
        });
        let words: Vec<String> = metric.into_iter().chain(aggregate).chain(texts).collect();
        words.join(" ")
    }
}
