//! The values of one GPU of what a node has sent of an incident: all of them, at the rate of its recorder.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array};
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::batch::{MetricColumn, RowKeys, TIMESTAMP_COLUMN};
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::{Batch, MetricId};
use gpuvitals_flight::{JobError, WindowPart};
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::FormatName;
use crate::columns::{self, TableColumn};
use crate::config::Limits;
use crate::dto::Values;
use crate::error::ApiError;
use crate::format::{Format, TablePage};
use crate::parameter::{self, Asked, Named, given};
use crate::route::answered::Answered;

const MILLISECOND_NS: i64 = 1_000_000;

/// Which values of which GPU, and in which form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValuesParams {
    gpu: Option<String>,
    metrics: Option<String>,
    part: Option<String>,
    format: Option<FormatName>,
}

/// A question for the values of a GPU.
#[derive(Debug)]
struct ValuesAsk {
    id: String,
    gpu: String,
    metrics: Vec<MetricId>,
    part: WindowPart,
    format: Format,
}

/// The values of a GPU, by time.
#[derive(Debug, Serialize)]
struct IncidentValues<'a> {
    id: &'a str,
    gpu: &'a str,
    /// The node that has sent them.
    node: &'a str,
    part: WindowPart,
    /// Milliseconds since 1970.
    times: &'a [i64],
    values: BTreeMap<&'static str, Values<'a>>,
}

/// The values of metrics at some times, in nanoseconds UTC since 1970.
#[derive(Debug)]
struct ValuesByTime {
    times_ns: Vec<i64>,
    /// Of each metric one a time.
    columns: Vec<Vec<Option<f64>>>,
}

/// All values of one GPU.
pub(super) async fn rows(
    Shared(api): Shared<Api>,
    Named(id): Named,
    headers: HeaderMap,
    Asked(params): Asked<ValuesParams>,
) -> Answered {
    let ask = ValuesAsk::parse(id, &params, &api.config().limits, &headers)?;
    api.answer(ask, &headers).await
}

/// The part that is meant: the window unless it is named.
pub(super) fn read_part(text: Option<&str>) -> Result<WindowPart, ApiError> {
    let Some(text) = text else { return Ok(WindowPart::Window) };
    let known = WindowPart::ALL.into_iter().find(|part| part.name() == text);
    known.ok_or_else(|| ApiError::parameter("part", text, "window or rest"))
}

impl Ask for ValuesAsk {
    // What a node has sent does not change.
    const OF_HISTORY: bool = false;

    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        view.render(Vec::new(), move |view, _| {
            let jobs = view.jobs.as_ref().ok_or(ApiError::NoJobs)?;
            let (node, pieces) = jobs.rows(&self.id, &self.gpu, self.part)?;
            let found = self.found(pieces, view.limits.values_max)?;
            if self.format != Format::Json {
                let records = &columns::table(self.columns(&found))?;
                let whole = TablePage { records, next: None, partial: &[] };
                return Body::table(i64::MAX, self.format, &whole);
            }
            let times: Vec<i64> = found.times_ns.iter().map(|ns| ns.div_euclid(MILLISECOND_NS)).collect();
            let answer = IncidentValues {
                id: &self.id,
                gpu: &self.gpu,
                node: &node,
                part: self.part,
                times: &times,
                values: self.by_column(&found),
            };
            Body::until(i64::MAX, &answer)
        })
        .await
    }
}

impl ValuesAsk {
    fn parse(
        id: String,
        params: &ValuesParams,
        limits: &Limits,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        let gpu = given(params.gpu.as_ref());
        let gpu = gpu.ok_or(ApiError::Missing { name: "gpu", allowed: "the id of a GPU".into() })?;
        let names = parameter::list("metrics", params.metrics.as_ref())?;
        if names.is_empty() {
            let allowed = "columns of GPU metrics between commas, such as power_w,utilization_pct";
            return Err(ApiError::Missing { name: "metrics", allowed: allowed.into() });
        }
        if names.len() > limits.metrics_max {
            let allowed = format!("at most {} metrics", limits.metrics_max);
            return Err(ApiError::parameter("metrics", &names.join(","), allowed));
        }
        let metrics: Result<_, _> = names.iter().map(|name| parameter::gpu_metric("metrics", name)).collect();
        Ok(Self {
            id,
            gpu: gpu.to_owned(),
            metrics: metrics?,
            part: read_part(given(params.part.as_ref()))?,
            format: Format::asked(params.format.as_ref(), headers)?,
        })
    }

    /// The values in some batches, the oldest first.
    fn found(
        &self,
        batches: impl Iterator<Item = Result<Batch, JobError>>,
        max: usize,
    ) -> Result<ValuesByTime, ApiError> {
        let series = self.metrics.len();
        let mut rows: Vec<(i64, Vec<Option<f64>>)> = Vec::new();
        for batch in batches {
            rows.extend(self.rows_of(&batch?));
            if rows.len().saturating_mul(series) > max {
                let buckets = i64::try_from(rows.len()).unwrap_or(i64::MAX);
                let advice = "ask for fewer metrics, or for the window alone";
                return Err(ApiError::TooManyValues { buckets, series, max, advice });
            }
        }
        rows.sort_by_key(|(at_ns, _)| *at_ns);
        let mut found = ValuesByTime { times_ns: Vec::new(), columns: vec![Vec::new(); series] };
        for (at_ns, values) in rows {
            found.times_ns.push(at_ns);
            for (column, value) in found.columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        Ok(found)
    }

    /// The rows of the GPU in a batch: of each its time, and a value a metric.
    fn rows_of(&self, batch: &Batch) -> Vec<(i64, Vec<Option<f64>>)> {
        // A row without a GPU was refused when it came.
        let keys = RowKeys::of(batch.records(), batch.table()).unwrap_or_default();
        let column = |metric: &MetricId| {
            let found = batch.metrics().find(|(id, _)| id == metric);
            found.map(|(_, column)| column)
        };
        let columns: Vec<Option<MetricColumn<'_>>> = self.metrics.iter().map(column).collect();
        let is_its = |id: u32| keys.keys.get(id as usize).is_some_and(|key| **key == *self.gpu);
        let own = keys.ids.iter().zip(batch.timestamps()).enumerate().filter(|(_, (id, _))| is_its(**id));
        own.map(|(row, (_, at_ns))| {
            let values = columns.iter().map(|column| Some(column.as_ref()?.value(row)?.as_f64()));
            (*at_ns, values.collect())
        })
        .collect()
    }

    /// The table of the values: times, and a column a metric.
    fn columns(&self, found: &ValuesByTime) -> Vec<TableColumn> {
        let times: ArrayRef = Arc::new(Int64Array::from(found.times_ns.clone()));
        let times = TableColumn::of(TIMESTAMP_COLUMN, "When the row was sampled.", times);
        let of_metrics = self.metrics.iter().zip(&found.columns).map(|(metric, values)| {
            let values: ArrayRef = if is_single(*metric) {
                #[expect(clippy::cast_possible_truncation, reason = "they were 32-bit floats")]
                let single = values.iter().map(|value| value.map(|value| value as f32));
                Arc::new(single.collect::<Float32Array>())
            } else {
                Arc::new(values.iter().copied().collect::<Float64Array>())
            };
            TableColumn::metric(metric.metric().column, *metric, values)
        });
        std::iter::once(times).chain(of_metrics).collect()
    }

    fn by_column<'a>(&self, found: &'a ValuesByTime) -> BTreeMap<&'static str, Values<'a>> {
        let pairs = self.metrics.iter().zip(&found.columns);
        pairs
            .map(|(metric, of_steps)| {
                (metric.metric().column, Values { of_steps, single: is_single(*metric) })
            })
            .collect()
    }
}

fn is_single(metric: MetricId) -> bool {
    metric.metric().column_type == ColumnType::F32
}
