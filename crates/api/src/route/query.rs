//! `/api/v1/query`: data for charts.

mod shown;
mod wide;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, BucketSeries, Buckets, Fleet, GpuState, GroupColumn, Part,
};
use gpuvitals_core::{Identity, IdentityColumn, MetricId, Table};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Count, Flag, FormatName, Instant, MetricTable, TimeRange, Where};
use crate::config::Limits;
use crate::dto::{GroupLabels, QueryAnswer, Series, Values};
use crate::error::{ApiError, ErrorBody};
use crate::format::{self, Format, TablePage};
use crate::parameter::{self, Asked, given};
use crate::selector::{self, Tests};

const AGGREGATES: [&str; 11] =
    ["mean", "min", "max", "p50", "p90", "p99", "last", "count", "rate", "increase", "delta"];
const NODE: GroupColumn = GroupColumn::Identity(IdentityColumn::Node);
/// Name of the group of all.
const ALL: &str = "all";
const MILLISECOND_NS: i64 = 1_000_000;
/// How long an answer serves that reaches up to now.
const UP_TO_NOW_NS: i64 = 2_000_000_000;

/// The values and their aggregates.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct QueryParams {
    /// The table of the metrics: `gpu_events`, or `system_events` for those of hosts.
    #[param(inline, example = "gpu_events")]
    table: Option<MetricTable>,
    /// Columns of the table's metrics, between commas, at most 64.
    #[param(value_type = String, required = true, pattern = "[^ ,]", example = "power_w,utilization_pct")]
    metrics: Option<String>,
    /// Ids or other names of the GPUs, between commas; all without it.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// Only GPUs of these hosts, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// The older name of `host`; both together name all of them.
    #[param(example = "sim-node-01")]
    hosts: Option<String>,
    /// First instant, inclusive: RFC 3339, or seconds, milliseconds or nanoseconds since 1970. An hour before the end
    /// without it.
    #[serde(alias = "start_time")]
    #[param(example = "2026-11-20T15:00:00Z")]
    start: Option<Instant>,
    /// Last instant, inclusive; now without it.
    #[serde(alias = "end_time")]
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// Width of a step: `500ms`, `10s`, `1m`, `1h`, `1d`, or a number of seconds. One that gives some 300 steps
    /// without it.
    #[param(pattern = "^ *(?:[0-9]+(?:\\.[0-9]+)? *(?:ms|s|m|min|h|d)?)? *$", example = "10s")]
    step: Option<String>,
    /// Aggregates of each step, between commas: `mean`, `min`, `max`, `p50`, `p90`, `p99`, `last`, `count`, and by how much
    /// the values moved since the step before: `delta`, `increase` (of a counter: after a fall it began anew at 0), `rate`
    /// (its increase over the time between the two values; null for a first value). A percentile is the smallest or largest value exactly, and within 1 % otherwise.
    #[param(
        pattern = "^ *(?:(?:mean|min|max|p50|p90|p99|last|count|rate|increase|delta)? *, *)*(?:mean|min|max|p50|p90|p99|last|count|rate|increase|delta)? *$",
        default = "mean",
        example = "mean"
    )]
    aggregate: Option<String>,
    /// Values with the same texts in these columns form one series: `gpu` and the identity columns, between commas, or `all` for
    /// one series. `gpu` without it; of `system_events` `node`.
    #[param(
        pattern = "^ *(?:all|(?:(?:gpu|cluster|node|uuid|vendor|model|pci|partition|driver|vbios|pod|namespace|container|job|source)? *, *)*(?:gpu|cluster|node|uuid|vendor|model|pci|partition|driver|vbios|pod|namespace|container|job|source)?)? *$",
        example = "gpu"
    )]
    group_by: Option<String>,
    /// Only rows whose identity passes these tests, between semicolons: `column=value,value`, `column!=value,value`,
    /// `column=~pattern`, `column!~pattern`. A row without a text in the column has the empty one.
    #[serde(rename = "where")]
    #[param(rename = "where", inline, example = "model=~NVIDIA.*;pod!=")]
    selector: Option<Where>,
    /// Of each metric and aggregate only so many series, those with the largest mean over the range, in that order.
    #[param(inline, example = 10)]
    top: Option<Count>,
    /// Of each metric and aggregate only so many series, those with the smallest mean over the range, in that order. `top` and
    /// `bottom` exclude each other.
    #[param(inline, example = 10)]
    bottom: Option<Count>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
    /// CSV or Arrow with a row a step and a column a series, instead of a row a value. Columns of GPUs are named `host:gpu6` and stand by
    /// host and index; before the name stand the metric and the aggregate, where there are several. JSON has a list a series either way.
    #[param(inline)]
    wide: Option<Flag>,
}

/// A question for values by step.
#[derive(Debug)]
pub(crate) struct QueryAsk {
    table: Table,
    metrics: Vec<MetricId>,
    gpus: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    range: TimeRange,
    step_ns: Option<i64>,
    aggregates: Vec<Aggregate>,
    group_by: Vec<GroupColumn>,
    tests: Tests,
    best: Option<Best>,
    format: Format,
    wide: bool,
}

/// Which series of a metric and aggregate are wanted: so many, by their means.
#[derive(Debug, Clone, Copy)]
enum Best {
    Top(usize),
    Bottom(usize),
}

/// Values by step of time, in columns.
///
/// Steps begin at multiples of their width and have no gaps; if nothing was read the value is `null`. Too many
/// steps, or values (steps × metrics × aggregates × GPUs or groups), are refused with `too_large` and the advice
/// what to change. Values of 32-bit columns are rounded to 32 bits.
#[utoipa::path(
    get, path = "/api/v1/query", tag = "telemetry", operation_id = "query", params(QueryParams),
    responses(
        (status = 200, description = "The values; as CSV or Arrow a row for each: its time, metric, aggregate, texts of the group and value.",
         content((QueryAnswer<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the answer would be too large.", body = ErrorBody),
        (status = 404, description = "One of the GPUs or hosts is unknown, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn query(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<QueryParams>,
) -> Answered {
    let ask = QueryAsk::parse(&params, &api.config().limits, &headers)?;
    api.answer(ask, &headers).await
}

impl Ask for QueryAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let fleet = view.history.fleet().await?;
        let (start_ns, end_ns) = self.range.at(view.now_ns())?;
        let step_ns = self.step_ns.unwrap_or_else(|| parameter::step_for(end_ns - start_ns));
        let gpus = self.selected(&fleet)?;
        let steps = end_ns.div_euclid(step_ns) - start_ns.div_euclid(step_ns) + 1;
        self.check(gpus.as_deref(), &fleet.answer, steps, &view.limits)?;
        let selector = self.tests.selector().await?;
        let mut hosts = selector::named_hosts(&selector);
        let none_wanted = gpus.as_ref().is_some_and(Vec::is_empty);
        let query = BucketQuery {
            gpus: gpus.unwrap_or_default(),
            selector,
            aggregates: self.aggregates.clone(),
            group_by: self.group_by.clone(),
            ..BucketQuery::of(self.table, self.metrics.clone(), start_ns, end_ns, step_ns)
        };
        let Part { answer: buckets, missing } = if none_wanted {
            Part::whole(Buckets::new(query.steps()?, &self.metrics, &[]))
        } else {
            view.history.buckets(query).await?
        };
        if buckets.groups().is_empty() {
            hosts.extend_from_slice(&self.hosts);
            telemetry::hosts_with_rows(view.history.as_ref(), &fleet, &hosts, &missing).await?;
        }
        let Part { answer: fleet, missing: of_fleet } = fleet;
        view.render(ask::joined(of_fleet, missing), move |view, partial| {
            let simulated = self.simulated(&fleet);
            let mut series = self.best(buckets.series(&self.aggregates));
            series.iter_mut().for_each(in_shown_unit);
            let until_ns = self.range.until_ns(view.now_ns(), UP_TO_NOW_NS);
            if self.format != Format::Json {
                let steps = buckets.steps();
                let table = if self.wide {
                    if self.best.is_none() {
                        wide::by_place(&mut series, &self.group_by, &fleet);
                    }
                    wide::table(steps, &self.group_by, &series, &fleet)?
                } else {
                    series.iter_mut().for_each(shown::in_own_digits);
                    format::of_series(steps, &self.group_by, &series)?
                };
                let page = TablePage { records: &table, next: None, partial };
                return Body::table(until_ns, self.format, &page);
            }
            let answer = QueryAnswer {
                times: buckets.steps().times().map(|ns| ns.div_euclid(MILLISECOND_NS)).collect(),
                step_ms: step_ns / MILLISECOND_NS,
                rollup_ms: Some(buckets.rollup_ns() / MILLISECOND_NS).filter(|width| *width > 0),
                series: series.iter().map(|series| self.show(series, &fleet, &simulated)).collect(),
                partial,
            };
            Body::until(until_ns, &answer)
        })
        .await
    }
}

impl QueryAsk {
    fn parse(params: &QueryParams, limits: &Limits, headers: &HeaderMap) -> Result<Self, ApiError> {
        let columns = parameter::list("metrics", params.metrics.as_ref())?;
        if columns.is_empty() {
            let allowed = "columns of GPU metrics between commas, such as power_w,utilization_pct";
            return Err(ApiError::Missing { name: "metrics", allowed: allowed.into() });
        }
        if columns.len() > limits.metrics_max {
            let allowed = format!("at most {} metrics", limits.metrics_max);
            return Err(ApiError::parameter("metrics", &columns.join(","), allowed));
        }
        let format = Format::asked(params.format.as_ref(), headers)?;
        let wide = Flag::read("wide", params.wide.as_ref())?;
        let table = MetricTable::read(params.table.as_ref())?;
        let metrics: Result<_, _> =
            columns.iter().map(|column| parameter::metric_of(table, "metrics", column)).collect();
        let gpus = parameter::list("gpus", params.gpus.as_ref())?;
        if let Some(gpu) = gpus.first().filter(|_| table == Table::SystemEvents) {
            return Err(ApiError::parameter("gpus", gpu, "nothing: hosts are asked for with hosts"));
        }
        Ok(Self {
            table,
            metrics: metrics?,
            gpus,
            hosts: parameter::hosts(params.host.as_ref(), params.hosts.as_ref())?,
            range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
            step_ns: given(params.step.as_ref()).map(parameter::step).transpose()?,
            aggregates: aggregates(params.aggregate.as_ref())?,
            group_by: group_by(table, params.group_by.as_ref())?,
            tests: Tests::parse(params.selector.as_ref())?,
            best: best(params, limits)?,
            format,
            wide,
        })
    }

    /// Keys of the GPUs (or hosts) asked for; none means all.
    fn selected(&self, fleet: &Part<Arc<Fleet>>) -> Result<Option<Vec<Arc<str>>>, ApiError> {
        if self.table == Table::SystemEvents {
            return Ok((!self.hosts.is_empty()).then(|| self.hosts.clone()));
        }
        telemetry::selected(fleet, &self.gpus, &self.hosts)
    }

    /// Refuses ranges that would be too large, with the remedy.
    fn check(
        &self,
        gpus: Option<&[Arc<str>]>,
        fleet: &Fleet,
        buckets: i64,
        limits: &Limits,
    ) -> Result<(), ApiError> {
        let Limits { steps_max, values_max, .. } = *limits;
        let count = gpus.map_or(fleet.gpus.len(), <[_]>::len);
        // How many a selector leaves, the history finds out.
        let groups = match self.group_by.as_slice() {
            [] => 1,
            _ if !self.tests.is_empty() => 1,
            columns if columns.contains(&GroupColumn::Gpu) => count,
            columns => distinct(fleet, columns).min(count),
        };
        let series = groups.saturating_mul(self.metrics.len()).saturating_mul(self.aggregates.len());
        let steps = usize::try_from(buckets).unwrap_or(usize::MAX);
        if steps > steps_max {
            let advice = "take a larger step or a shorter range";
            return Err(ApiError::TooManyValues { buckets, series: 1, max: steps_max, advice });
        }
        if steps.saturating_mul(series) > values_max {
            let advice = "take a larger step, a shorter range, fewer GPUs or metrics, or another group_by";
            return Err(ApiError::TooManyValues { buckets, series, max: values_max, advice });
        }
        Ok(())
    }

    /// Groups that have a simulated GPU; none if every GPU has its own group.
    fn simulated<'a>(&self, fleet: &'a Fleet) -> HashSet<Vec<Option<&'a str>>> {
        let is_own = self.group_by.contains(&GroupColumn::Gpu);
        let simulated = fleet.gpus.iter().filter(|gpu| !is_own && gpu.identity.is_simulated());
        simulated.map(|gpu| texts(gpu, &self.group_by)).collect()
    }

    /// The series that are wanted, by metric and aggregate.
    fn best(&self, mut series: Vec<BucketSeries>) -> Vec<BucketSeries> {
        let Some(best) = self.best else { return series };
        let mut ranked = Vec::new();
        while let Some(first) = series.first() {
            let of_first = (first.metric, first.aggregate);
            let same = series.iter().take_while(|one| (one.metric, one.aggregate) == of_first).count();
            let mut same: Vec<(f64, BucketSeries)> =
                series.drain(..same).map(|series| (mean(&series.values), series)).collect();
            let count = match best {
                Best::Top(count) => {
                    same.sort_by(|a, b| b.0.total_cmp(&a.0));
                    count
                }
                Best::Bottom(count) => {
                    same.sort_by(|a, b| a.0.total_cmp(&b.0));
                    count
                }
            };
            ranked.extend(same.into_iter().take(count).map(|(_, series)| series));
        }
        ranked
    }

    fn show<'a>(
        &self,
        series: &'a BucketSeries,
        fleet: &'a Fleet,
        simulated: &HashSet<Vec<Option<&str>>>,
    ) -> Series<'a> {
        let metric = series.metric.metric();
        let texts: Vec<Option<&str>> = series.group.iter().map(Option::as_deref).collect();
        let labels: Vec<(&str, Option<&str>)> =
            self.group_by.iter().map(|column| column.name()).zip(texts.iter().copied()).collect();
        let label =
            |name: &str| labels.iter().find(|(column, _)| *column == name).and_then(|(_, text)| *text);
        let gpu = label(GroupColumn::Gpu.name());
        let state = gpu.and_then(|gpu| fleet.get(gpu));
        let identity = state.map(|gpu| &gpu.identity);
        let group = match texts.as_slice() {
            [] => Cow::Borrowed(ALL),
            [only] => Cow::Borrowed(only.unwrap_or_default()),
            several => {
                Cow::Owned(several.iter().map(|text| text.unwrap_or_default()).collect::<Vec<_>>().join(", "))
            }
        };
        Series {
            metric: metric.column,
            unit: shown::unit_of(series),
            aggregate: series.aggregate.name(),
            group,
            gpu,
            name: state.map(|gpu| gpu.name()),
            hostname: identity.and_then(Identity::node).or(label(IdentityColumn::Node.name())),
            simulated: identity.is_some_and(Identity::is_simulated) || simulated.contains(&texts),
            values: Values { of_steps: &series.values, single: shown::is_single(series) },
            labels: GroupLabels(labels),
        }
    }
}

/// The rate of an energy is shown in watts, in every form of an answer.
fn in_shown_unit(series: &mut BucketSeries) {
    let per_second = series.metric.metric().unit.per_second();
    if let Some((_, factor)) = per_second.filter(|_| series.aggregate == Aggregate::Rate) {
        series.values.iter_mut().flatten().for_each(|value| *value *= factor);
    }
}

/// Mean of the values that there are.
fn mean(values: &[Option<f64>]) -> f64 {
    let (sum, count) =
        values.iter().flatten().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The texts of a GPU in some columns.
fn texts<'a>(gpu: &'a GpuState, columns: &[GroupColumn]) -> Vec<Option<&'a str>> {
    let text = |column: &GroupColumn| match column {
        GroupColumn::Gpu => Some(gpu.key.as_ref()),
        GroupColumn::Identity(column) => gpu.identity.get(*column),
    };
    columns.iter().map(text).collect()
}

fn distinct(fleet: &Fleet, columns: &[GroupColumn]) -> usize {
    fleet.gpus.iter().map(|gpu| texts(gpu, columns)).collect::<HashSet<_>>().len()
}

fn best(params: &QueryParams, limits: &Limits) -> Result<Option<Best>, ApiError> {
    let count = |name, asked: Option<&Count>| Count::read(name, asked, limits);
    match (count("top", params.top.as_ref())?, count("bottom", params.bottom.as_ref())?) {
        (Some(_), Some(bottom)) => {
            Err(ApiError::parameter("bottom", &bottom.to_string(), "top or bottom, not both"))
        }
        (top, bottom) => Ok(top.map(Best::Top).or(bottom.map(Best::Bottom))),
    }
}

fn aggregates(text: Option<&String>) -> Result<Vec<Aggregate>, ApiError> {
    let names = parameter::list("aggregate", text)?;
    if names.is_empty() {
        return Ok(vec![Aggregate::Mean]);
    }
    let known = |name: &Arc<str>| {
        let found = Aggregate::by_name(name).filter(|_| AGGREGATES.contains(&name.as_ref()));
        found.ok_or_else(|| ApiError::parameter("aggregate", name, AGGREGATES.join(", ")))
    };
    names.iter().map(known).collect()
}

fn group_by(table: Table, text: Option<&String>) -> Result<Vec<GroupColumn>, ApiError> {
    let of_hosts = table == Table::SystemEvents;
    let names = parameter::list("group_by", text)?;
    if names.iter().any(|name| name.as_ref() == ALL) {
        let alone = names.len() == 1;
        return if alone { Ok(Vec::new()) } else { Err(ApiError::parameter("group_by", ALL, "all alone")) };
    }
    if names.is_empty() {
        return Ok(vec![if of_hosts { NODE } else { GroupColumn::Gpu }]);
    }
    let column = |name: &Arc<str>| match GroupColumn::by_name(name) {
        Some(column) if column != GroupColumn::Gpu || !of_hosts => Ok(column),
        _ if of_hosts => Err(ApiError::parameter(
            "group_by",
            name,
            "node or all, or another column that says where a host is",
        )),
        _ => {
            let columns = IdentityColumn::ALL.map(IdentityColumn::name).join(", ");
            Err(ApiError::parameter("group_by", name, format!("gpu, {columns} between commas, or all")))
        }
    };
    names.iter().map(column).collect()
}
