//! `/api/v1/analysis/trends` and `/api/v1/analysis/anomalies`: where metrics go, and where they are unusual.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::course::{self, DAYS_MIN, Trend, Unusual, WATCHED};
use gpuvitals_analysis::robust::Spread;
use gpuvitals_core::MetricId;
use gpuvitals_core::history::{BucketQuery, Fleet, GpuState, Part};
use gpuvitals_core::time::{DAY_NS, HOUR_NS, MINUTE_NS};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{self, Instant, Limit, Offset, Paging, parameters};
use crate::condition;
use crate::dto::{AnomalyEntry, AnomalyList, Moment, TrendEntry, TrendList, UsualValues};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};

/// Range of a trend without a start.
const TREND_DAYS: i64 = 7;
/// Days before that an hour is compared with, and the most of them.
const DAYS: usize = 7;
const DAYS_MAX: usize = 31;
/// Steadiness from which a trend is one.
const STEADY_FROM: f64 = 0.5;
/// Deviations from which a value is unusual.
const UNUSUAL_FROM: u8 = 4;
/// A line that needs longer to its limit says nothing.
const DAYS_TO_LIMIT_MAX: f64 = 3_650.0;
/// How long an answer serves whose end is now.
const SERVES_NS: i64 = MINUTE_NS;
const NANOSECONDS_PER_DAY: f64 = 86_400e9;

parameters! {
    /// How steady a trend is.
    Steadiness: asked::number().minimum(Some(0)).maximum(Some(1)).default(Some(STEADY_FROM.into()));
    /// How many deviations a value is off.
    Deviations: asked::number().minimum(Some(0)).default(Some(UNUSUAL_FROM.into()));
    /// How many days an hour is compared with.
    DayCount: asked::count(DAYS_MIN..=DAYS_MAX, Some(DAYS));
}

/// What may be asked of `GET /api/v1/analysis/trends`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrendParams {
    /// Columns of the metrics, between commas; without it those whose limit another metric says.
    #[param(example = "temperature_c")]
    metrics: Option<String>,
    /// Ids or other names of the GPUs, between commas; all without it.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// First instant; seven days before the end unless given.
    #[param(example = "2026-11-20T15:50:00Z")]
    start: Option<Instant>,
    /// Last instant; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// How far each of the metrics may go; unless given, what another metric of the GPU says.
    #[param(value_type = Option<f64>, example = 87)]
    limit_at: Option<String>,
    /// Steadiness from which a trend counts, 0 to 1.
    #[param(inline)]
    steadiness: Option<Steadiness>,
    /// Most entries to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Entries to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// What may be asked of `GET /api/v1/analysis/anomalies`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AnomalyParams {
    /// Columns of the metrics, between commas; `temperature_c,power_w` without it.
    #[param(example = "temperature_c")]
    metrics: Option<String>,
    /// Ids or other names of the GPUs, between commas; all without it. Their peers are compared with all the same.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// End of the hour that is looked at; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// Days before that it is compared with.
    #[param(inline)]
    days: Option<DayCount>,
    /// Deviations from which a value is unusual.
    #[param(inline)]
    score: Option<Deviations>,
    /// Most entries to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Entries to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// A question for trends.
#[derive(Debug)]
struct TrendAsk {
    metrics: Vec<MetricId>,
    gpus: Vec<Arc<str>>,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    limit_at: Option<f64>,
    steadiness: f64,
    page: Paging,
}

/// A question for anomalies.
#[derive(Debug)]
struct AnomalyAsk {
    metrics: Vec<MetricId>,
    gpus: Vec<Arc<str>>,
    end_ns: Option<i64>,
    days: usize,
    score: f64,
    page: Paging,
}

/// Where metrics go, GPU by GPU: the slope, how steadily, and when the limit is reached.
///
/// The line is robust (Theil and Sen) and made from 64 values at most: means of steps, of a counter the newest value of each.
#[utoipa::path(
    get, path = "/api/v1/analysis/trends", tag = "analysis", operation_id = "trends", params(TrendParams),
    responses(
        (status = 200, description = "The trends.", body = TrendList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No values are kept, or no such GPU.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn trends(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<TrendParams>,
) -> Answered {
    let steadiness = params.steadiness.as_ref().map(|asked| &asked.0);
    let steadiness = parameter::number("steadiness", steadiness, 0.0..=1.0, "a number from 0 to 1")?;
    let ask = TrendAsk {
        metrics: metrics(params.metrics.as_ref(), course::limited())?,
        gpus: parameter::list("gpus", params.gpus.as_ref())?,
        start_ns: Instant::read("start", params.start.as_ref())?,
        end_ns: Instant::read("end", params.end.as_ref())?,
        limit_at: parameter::number("limit_at", params.limit_at.as_ref(), f64::MIN..=f64::MAX, "a number")?,
        steadiness: steadiness.unwrap_or(STEADY_FROM),
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &api.config().limits)?,
    };
    api.answer(ask, &headers).await
}

/// Which GPUs have an unusual value in the last hour: beside themselves on the days before, and beside GPUs of their model under like load.
///
/// Like load: held or not, utilisation and memory in the same third. Distances are robust: from the median, in median absolute
/// deviations. GPUs that have reported for less than an hour are not judged.
#[utoipa::path(
    get, path = "/api/v1/analysis/anomalies", tag = "analysis", operation_id = "anomalies", params(AnomalyParams),
    responses(
        (status = 200, description = "The GPUs.", body = AnomalyList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No values are kept, or no such GPU.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn anomalies(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<AnomalyParams>,
) -> Answered {
    let asked_days = params.days.as_ref().map(|asked| asked.0.trim_matches(' '));
    let days = match asked_days {
        Some(text) => text.parse().ok().filter(|days| (DAYS_MIN..=DAYS_MAX).contains(days)),
        None => Some(DAYS),
    };
    let score = params.score.as_ref().map(|asked| &asked.0);
    let score = parameter::number("score", score, 0.0..=f64::MAX, "a number from 0 on")?;
    let ask = AnomalyAsk {
        metrics: metrics(params.metrics.as_ref(), WATCHED)?,
        gpus: parameter::list("gpus", params.gpus.as_ref())?,
        end_ns: Instant::read("end", params.end.as_ref())?,
        days: days.ok_or_else(|| {
            let allowed = format!("{DAYS_MIN} to {DAYS_MAX}");
            ApiError::parameter("days", asked_days.unwrap_or_default(), allowed)
        })?,
        score: score.unwrap_or(UNUSUAL_FROM.into()),
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &api.config().limits)?,
    };
    api.answer(ask, &headers).await
}

/// The metrics that are named, or else the usual ones.
fn metrics(
    text: Option<&String>,
    usual: impl IntoIterator<Item = MetricId>,
) -> Result<Vec<MetricId>, ApiError> {
    let columns = parameter::list("metrics", text)?;
    if columns.is_empty() {
        return Ok(usual.into_iter().collect());
    }
    columns.iter().map(|column| parameter::gpu_metric("metrics", column)).collect()
}

impl Ask for TrendAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let known = view.history.fleet().await?;
        let gpus = telemetry::keys(&known, &self.gpus)?;
        let Part { answer: fleet, mut missing } = known;
        let end_ns = self.end_ns.unwrap_or(view.now_ns());
        let start_ns = self.start_ns.unwrap_or_else(|| end_ns.saturating_sub(TREND_DAYS * DAY_NS).max(0));
        if end_ns < start_ns {
            return Err(ApiError::EndBeforeStart);
        }
        let mut found = Vec::new();
        // One after the other: the steps of all GPUs are large, their trends are not.
        for metric in self.metrics.iter().copied() {
            let query = BucketQuery { gpus: gpus.clone(), ..course::trend_query(metric, start_ns, end_ns) };
            let Part { answer: buckets, missing: more } = view.history.buckets(query).await?;
            missing = ask::joined(missing, more);
            let trends = tokio::task::spawn_blocking(move || course::trends(&buckets, end_ns));
            let trends = trends.await.map_err(|_| ApiError::Crashed)?;
            found.extend(trends.into_iter().map(|(gpu, trend)| GpuTrend { metric, gpu, trend }));
        }
        view.render(missing, move |view, partial| {
            let mut trends: Vec<TrendEntry> = found
                .into_iter()
                .filter(|one| one.trend.steadiness.abs() >= self.steadiness)
                .map(|one| self.entry(&fleet, &one, end_ns))
                .collect();
            let first = |entry: &TrendEntry| entry.reaches_limit_at.as_ref().map_or(i64::MAX, |at| at.0);
            trends.sort_by(|a, b| {
                let by_time = first(a).cmp(&first(b));
                by_time
                    .then_with(|| b.per_day.abs().total_cmp(&a.per_day.abs()))
                    .then_with(|| (&a.gpu, a.metric).cmp(&(&b.gpu, b.metric)))
            });
            let (trends, total, pagination) = self.page.cut(trends);
            let until_ns = self.end_ns.map_or_else(|| view.now_ns().saturating_add(SERVES_NS), |_| i64::MAX);
            let (start, end) = (Moment(start_ns), Moment(end_ns));
            let partial = partial.to_vec();
            Body::until(until_ns, &TrendList { trends, start, end, total, pagination, partial })
        })
        .await
    }
}

/// Where a metric of a GPU goes.
struct GpuTrend {
    metric: MetricId,
    gpu: Arc<str>,
    trend: Trend,
}

impl TrendAsk {
    fn entry(&self, fleet: &Fleet, of: &GpuTrend, end_ns: i64) -> TrendEntry {
        let (metric, gpu, trend) = (of.metric, of.gpu.as_ref(), of.trend);
        let state = fleet.get(gpu);
        let own_limit = || state.and_then(|state| course::limit_of(metric, state));
        let limit = self.limit_at.or_else(own_limit);
        let days = limit.and_then(|limit| trend.days_to(limit)).filter(|days| *days <= DAYS_TO_LIMIT_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "ten years at most")]
        let at = |days: f64| Moment(end_ns.saturating_add((days * NANOSECONDS_PER_DAY) as i64));
        TrendEntry {
            gpu: gpu.to_owned(),
            name: condition::name_of(fleet, gpu),
            metric: metric.metric().column,
            unit: metric.metric().unit.as_str(),
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
        let known = view.history.fleet().await?;
        let gpus = telemetry::keys(&known, &self.gpus)?;
        let Part { answer: fleet, mut missing } = known;
        let end_ns = self.end_ns.unwrap_or(view.now_ns());
        let is_asked = |gpu: &GpuState| gpus.is_empty() || gpus.contains(&gpu.key);
        let asked: Vec<Arc<GpuState>> = fleet.gpus.iter().filter(|gpu| is_asked(gpu)).cloned().collect();
        let young = asked.iter().filter(|gpu| course::is_young(gpu, end_ns)).count();
        let is_young = young == asked.len();
        let mut found = Vec::new();
        for metric in self.metrics.iter().copied().filter(|_| !is_young) {
            let mut days = Vec::new();
            for day in (0..).take(self.days + 1) {
                let mut query = course::hour_query(metric, end_ns, day);
                if day > 0 {
                    query.gpus.clone_from(&gpus);
                }
                let Part { answer, missing: more } = view.history.buckets(query).await?;
                missing = ask::joined(missing, more);
                days.push(answer);
            }
            let fleet = Arc::clone(&fleet);
            let unusual = tokio::task::spawn_blocking(move || course::unusual(&days, &fleet));
            found.push((metric, unusual.await.map_err(|_| ApiError::Crashed)?));
        }
        view.render(missing, move |view, partial| {
            let each =
                found.into_iter().flat_map(|(metric, all)| all.into_iter().map(move |one| (metric, one)));
            let mut found: Vec<(MetricId, Unusual)> = each
                .filter(|(_, one)| gpus.is_empty() || gpus.contains(&one.gpu))
                .filter(|(_, one)| fleet.get(&one.gpu).is_some_and(|gpu| !course::is_young(gpu, end_ns)))
                .filter(|(_, one)| one.score() >= self.score && one.score() > 0.0)
                .collect();
            found.sort_by(|(a_metric, a), (b_metric, b)| {
                let by_score = b.score().total_cmp(&a.score());
                by_score.then_with(|| (&a.gpu, a_metric).cmp(&(&b.gpu, b_metric)))
            });
            let (found, total, pagination) = self.page.cut(found);
            let until_ns = self.end_ns.map_or_else(|| view.now_ns().saturating_add(SERVES_NS), |_| i64::MAX);
            Body::until(
                until_ns,
                &AnomalyList {
                    anomalies: found.iter().map(|(metric, one)| anomaly(&fleet, *metric, one)).collect(),
                    note: is_young.then(|| too_young(&asked)).flatten(),
                    too_young: young,
                    start: Moment(end_ns.saturating_sub(HOUR_NS)),
                    end: Moment(end_ns),
                    total,
                    pagination,
                    partial: partial.to_vec(),
                },
            )
        })
        .await
    }
}

/// Says that nothing can be judged yet.
fn too_young(gpus: &[Arc<GpuState>]) -> Option<String> {
    let first_ns = gpus.iter().map(|gpu| gpu.first_seen_ns).min()?;
    let first = gpuvitals_core::time::format(first_ns);
    Some(format!("the history is too young: its first row is of {first}, and an hour is needed"))
}

fn anomaly(fleet: &Fleet, metric: MetricId, one: &Unusual) -> AnomalyEntry {
    let usual = |known: Option<(Spread, usize)>, distance: Option<f64>| {
        let (Spread { median, deviation }, count) = known?;
        Some(UsualValues { median, deviation, count, distance: distance? })
    };
    AnomalyEntry {
        gpu: one.gpu.to_string(),
        name: condition::name_of(fleet, &one.gpu),
        metric: metric.metric().column,
        unit: metric.metric().unit.as_str(),
        value: one.value,
        score: one.score(),
        sentence: one.sentence(metric),
        own: usual(one.own, one.own_distance()),
        peers: usual(one.peers, one.peer_distance()),
    }
}
