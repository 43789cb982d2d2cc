//! `/api/v1/analysis/trends` and `/api/v1/analysis/anomalies`: where a metric goes, and where it is unusual.

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::course::{self, DAYS_MIN, Trend, Unusual};
use gpuvitals_analysis::robust::Spread;
use gpuvitals_core::MetricId;
use gpuvitals_core::history::{Fleet, Part};
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Answered;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::condition;
use crate::dto::{AnomalyEntry, AnomalyList, Moment, TrendEntry, TrendList, UsualValues};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked, Paging, given};

/// Range of a trend without a start.
const TREND_DAYS: i64 = 7;
/// Days before that an hour is compared with.
const DAYS: i64 = 7;
/// Steadiness from which a trend is one.
const STEADY_FROM: f64 = 0.5;
/// Deviations from which a value is unusual.
const UNUSUAL_FROM: f64 = 4.0;
/// A line that needs longer to its limit says nothing.
const DAYS_TO_LIMIT_MAX: f64 = 3_650.0;
/// How long an answer serves whose end is now.
const SERVES_NS: i64 = MINUTE_NS;
const NANOSECONDS_PER_DAY: f64 = 86_400e9;

/// Which trends.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrendParams {
    /// The metric, by column.
    #[param(value_type = String, example = "temperature_c")]
    metric: Option<String>,
    /// First instant; seven days before the end unless given.
    #[param(value_type = Option<crate::dto::Instant>, example = "2026-11-20T15:50:00Z")]
    start: Option<String>,
    /// Last instant; now unless given.
    #[param(value_type = Option<crate::dto::Instant>, example = "2026-11-20T16:00:00Z")]
    end: Option<String>,
    /// How far the metric may go; unless given, what another metric of the GPU says.
    #[param(value_type = Option<f64>, example = 87)]
    limit_at: Option<String>,
    /// Steadiness from which a trend counts, 0 to 1.
    #[param(value_type = Option<f64>, minimum = 0, maximum = 1, default = 0.5)]
    steadiness: Option<String>,
    /// Most GPUs to return.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Option<String>,
    /// GPUs to pass over.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 9_007_199_254_740_991_i64, default = 0)]
    offset: Option<String>,
}

/// Which anomalies.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AnomalyParams {
    /// The metric, by column.
    #[param(value_type = String, example = "temperature_c")]
    metric: Option<String>,
    /// End of the hour that is looked at; now unless given.
    #[param(value_type = Option<crate::dto::Instant>, example = "2026-11-20T16:00:00Z")]
    end: Option<String>,
    /// Days before that it is compared with.
    #[param(value_type = Option<u32>, minimum = 3, maximum = 31, default = 7)]
    days: Option<String>,
    /// Deviations from which a value is unusual.
    #[param(value_type = Option<f64>, minimum = 0, default = 4)]
    score: Option<String>,
    /// Most GPUs to return.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Option<String>,
    /// GPUs to pass over.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 9_007_199_254_740_991_i64, default = 0)]
    offset: Option<String>,
}

/// A question for trends.
#[derive(Debug)]
struct TrendAsk {
    metric: MetricId,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    limit_at: Option<f64>,
    steadiness: f64,
    page: Paging,
}

/// A question for anomalies.
#[derive(Debug)]
struct AnomalyAsk {
    metric: MetricId,
    end_ns: Option<i64>,
    days: i64,
    score: f64,
    page: Paging,
}

/// Where a metric goes, GPU by GPU: its slope, how steadily, and when it reaches its limit.
///
/// The line is robust (Theil and Sen) and made from 64 values at most: means of steps, of a counter the newest value of each.
#[utoipa::path(
    get, path = "/api/v1/analysis/trends", tag = "analysis", operation_id = "trends", params(TrendParams),
    responses(
        (status = 200, description = "The trends.", body = TrendList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn trends(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<TrendParams>,
) -> Answered {
    let steadiness =
        parameter::number("steadiness", params.steadiness.as_ref(), 0.0..=1.0, "a number from 0 to 1")?;
    let ask = TrendAsk {
        metric: metric(params.metric.as_ref())?,
        start_ns: parameter::instant("start", params.start.as_ref())?,
        end_ns: parameter::instant("end", params.end.as_ref())?,
        limit_at: parameter::number("limit_at", params.limit_at.as_ref(), f64::MIN..=f64::MAX, "a number")?,
        steadiness: steadiness.unwrap_or(STEADY_FROM),
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &api.config().limits)?,
    };
    api.answer(ask, &headers).await
}

/// Which GPUs have an unusual value in the last hour: beside themselves in the same hour of the days before, and beside their model.
///
/// Distances are robust: from the median, in median absolute deviations.
#[utoipa::path(
    get, path = "/api/v1/analysis/anomalies", tag = "analysis", operation_id = "anomalies", params(AnomalyParams),
    responses(
        (status = 200, description = "The GPUs.", body = AnomalyList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn anomalies(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<AnomalyParams>,
) -> Answered {
    let least = i64::try_from(DAYS_MIN).unwrap_or(i64::MAX);
    let days = match given(params.days.as_ref()) {
        Some(text) => text.parse().ok().filter(|days| (least..=31).contains(days)),
        None => Some(DAYS),
    };
    let score = parameter::number("score", params.score.as_ref(), 0.0..=f64::MAX, "a number from 0 on")?;
    let ask = AnomalyAsk {
        metric: metric(params.metric.as_ref())?,
        end_ns: parameter::instant("end", params.end.as_ref())?,
        days: days.ok_or_else(|| {
            ApiError::parameter("days", given(params.days.as_ref()).unwrap_or_default(), "3 to 31")
        })?,
        score: score.unwrap_or(UNUSUAL_FROM),
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &api.config().limits)?,
    };
    api.answer(ask, &headers).await
}

fn metric(text: Option<&String>) -> Result<MetricId, ApiError> {
    let missing = ApiError::Missing { name: "metric", allowed: "the column of a metric of GPUs" };
    parameter::gpu_metric("metric", given(text).ok_or(missing)?)
}

impl Ask for TrendAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        let end_ns = self.end_ns.unwrap_or(view.now_ns());
        let start_ns = self.start_ns.unwrap_or_else(|| end_ns.saturating_sub(TREND_DAYS * DAY_NS).max(0));
        if end_ns < start_ns {
            return Err(ApiError::EndBeforeStart);
        }
        let query = course::trend_query(self.metric, start_ns, end_ns);
        let Part { answer: buckets, missing: more } = view.history.buckets(query).await?;
        view.render(ask::joined(missing, more), move |view, _| {
            let mut trends: Vec<TrendEntry> = course::trends(&buckets, end_ns)
                .into_iter()
                .filter(|(_, trend)| trend.steadiness.abs() >= self.steadiness)
                .map(|(gpu, trend)| self.entry(&fleet, &gpu, trend, end_ns))
                .collect();
            let first = |entry: &TrendEntry| entry.reaches_limit_at.as_ref().map_or(i64::MAX, |at| at.0);
            trends.sort_by(|a, b| {
                let by_time = first(a).cmp(&first(b));
                by_time
                    .then_with(|| b.per_day.abs().total_cmp(&a.per_day.abs()))
                    .then_with(|| a.gpu.cmp(&b.gpu))
            });
            let (trends, total, pagination) = self.page.cut(trends);
            let until_ns = self.end_ns.map_or_else(|| view.now_ns().saturating_add(SERVES_NS), |_| i64::MAX);
            Body::until(
                until_ns,
                &TrendList {
                    trends,
                    metric: self.metric.metric().column,
                    unit: self.metric.metric().unit.as_str(),
                    start: Moment(start_ns),
                    end: Moment(end_ns),
                    total,
                    pagination,
                },
            )
        })
        .await
    }
}

impl TrendAsk {
    fn entry(&self, fleet: &Fleet, gpu: &str, trend: Trend, end_ns: i64) -> TrendEntry {
        let state = fleet.get(gpu);
        let own_limit = || state.and_then(|state| course::limit_of(self.metric, state));
        let limit = self.limit_at.or_else(own_limit);
        let days = limit.and_then(|limit| trend.days_to(limit)).filter(|days| *days <= DAYS_TO_LIMIT_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "ten years at most")]
        let at = |days: f64| Moment(end_ns.saturating_add((days * NANOSECONDS_PER_DAY) as i64));
        TrendEntry {
            gpu: gpu.to_owned(),
            name: condition::name_of(fleet, gpu),
            level: trend.level,
            per_day: trend.per_day,
            steadiness: trend.steadiness,
            points: trend.points,
            limit,
            reaches_limit_at: days.map(at),
        }
    }
}

impl Ask for AnomalyAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, mut missing } = view.history.fleet().await?;
        let end_ns = self.end_ns.unwrap_or(view.now_ns());
        let mut hours = Vec::new();
        for day in 0..=self.days {
            let query = course::hour_query(self.metric, end_ns, day);
            let Part { answer, missing: more } = view.history.buckets(query).await?;
            missing = ask::joined(missing, more);
            hours.push(answer);
        }
        view.render(missing, move |view, _| {
            let (hour, before) = hours.split_first().ok_or(ApiError::Crashed)?;
            let mut found = course::unusual(hour, before, &fleet);
            found.retain(|one| one.score() >= self.score && one.score() > 0.0);
            found.sort_by(|a, b| b.score().total_cmp(&a.score()).then_with(|| a.gpu.cmp(&b.gpu)));
            let (found, total, pagination) = self.page.cut(found);
            let until_ns = self.end_ns.map_or_else(|| view.now_ns().saturating_add(SERVES_NS), |_| i64::MAX);
            Body::until(
                until_ns,
                &AnomalyList {
                    anomalies: found.iter().map(|one| anomaly(&fleet, one)).collect(),
                    metric: self.metric.metric().column,
                    unit: self.metric.metric().unit.as_str(),
                    start: Moment(end_ns.saturating_sub(HOUR_NS)),
                    end: Moment(end_ns),
                    total,
                    pagination,
                },
            )
        })
        .await
    }
}

fn anomaly(fleet: &Fleet, one: &Unusual) -> AnomalyEntry {
    let usual = |known: Option<(Spread, usize)>, distance: Option<f64>| {
        let (Spread { median, deviation }, count) = known?;
        Some(UsualValues { median, deviation, count, distance: distance? })
    };
    AnomalyEntry {
        gpu: one.gpu.to_string(),
        name: condition::name_of(fleet, &one.gpu),
        value: one.value,
        score: one.score(),
        own: usual(one.own, one.own_distance()),
        peers: usual(one.peers, one.peer_distance()),
    }
}
