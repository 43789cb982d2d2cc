//! `/api/v1/prom/api/v1/…`: Prometheus' query API over the history, for Grafana and `promtool`.
//!
//! Parameters, shapes and errors are those of Prometheus (`{"status": "success", "data": …}`), by GET or by POST with a form.
//! `/api/v1/prom` is what a data source is pointed at. See `docs/promql.md`.

pub(crate) mod answer;
pub(crate) mod browse;
mod failure;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::get;
use gpuvitals_promql::{Grid, PromAnswer, PromLimits, duration, query};

use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::dto::{PromBody, PromErrorBody};
use crate::error::ApiError;

use failure::{TRUNCATED, nanoseconds};

pub(crate) use failure::{Parameters, PromFailure};

/// How long an answer serves whose question names no time.
const NOW_SERVES_NS: i64 = 1_000_000_000;

/// Below it are the paths.
const ROOT: &str = "/api/v1/prom/api/v1";
/// Those that take their parameters by POST with a form as well.
pub(crate) const FORMS: [&str; 6] = [
    "/api/v1/prom/api/v1/query",
    "/api/v1/prom/api/v1/query_range",
    "/api/v1/prom/api/v1/series",
    "/api/v1/prom/api/v1/labels",
    "/api/v1/prom/api/v1/format_query",
    "/api/v1/prom/api/v1/query_exemplars",
];

/// The paths of Prometheus's API that Grafana asks.
pub(crate) fn paths() -> Router<Api> {
    let api = Router::new()
        .route("/query", get(at_once).post(at_once))
        .route("/query_range", get(by_steps).post(by_steps))
        .route("/series", get(browse::list_series).post(browse::list_series))
        .route("/labels", get(browse::list_labels).post(browse::list_labels))
        .route("/label/{name}/values", get(browse::list_values))
        .route("/metadata", get(browse::metadata))
        .route("/format_query", get(browse::format_query).post(browse::format_query))
        .route("/query_exemplars", get(browse::query_exemplars).post(browse::query_exemplars))
        .route("/rules", get(browse::rules))
        .route("/alerts", get(browse::alerts))
        .route("/status/buildinfo", get(browse::build_info))
        .fallback(nothing)
        .method_not_allowed_fallback(refuse_method);
    Router::new().nest(ROOT, api)
}

async fn nothing() -> PromFailure {
    let text =
        "there is nothing here; query, query_range, series, labels, label/NAME/values, metadata, format_query, query_exemplars, \
         rules, alerts and status/buildinfo are"
            .to_owned();
    PromFailure { status: StatusCode::NOT_FOUND, kind: "not_found", text }
}

async fn refuse_method(method: Method) -> PromFailure {
    let text = format!("this path does not know {method}");
    PromFailure { status: StatusCode::METHOD_NOT_ALLOWED, kind: "bad_data", text }
}

/// A question in PromQL.
#[derive(Debug)]
struct PromAsk {
    text: String,
    /// The instants; none: now.
    grid: Option<Grid>,
    is_range: bool,
    limit: usize,
}

/// The value of a query at one instant.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/query", tag = "PromQL", operation_id = "prom_query",
    params(
        ("query" = String, Query, description = "The query in PromQL.", example = "topk(3, gpu_power_watts)"),
        ("time" = Option<String>, Query, description = "The instant: RFC 3339, or seconds since 1970. Now without it.", example = "2026-11-20T16:00:00Z"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most series of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "The result: `resultType` and `result` as Prometheus writes them.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong, or the query is no PromQL.", body = PromErrorBody),
        (status = 422, description = "The query cannot be evaluated, or would be too much.", body = PromErrorBody),
        (status = 503, description = "Too busy, or a collector is away; try again.", body = PromErrorBody),
    )
)]
pub(crate) async fn at_once(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    let grid = parameters.instant("time")?.map(Grid::at);
    parameters.check_timeout()?;
    let (text, limit) = (parameters.need("query")?.to_owned(), parameters.limit()?);
    let ask = PromAsk { text, grid, is_range: false, limit };
    Ok(api.answer(ask, &headers).await?)
}

/// The values of a query at equal distances over a range.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/query_range", tag = "PromQL", operation_id = "prom_query_range",
    params(
        ("query" = String, Query, description = "The query in PromQL: a scalar or an instant vector.", example = "sum by (node) (gpu_power_watts)"),
        ("start" = String, Query, description = "The first instant.", example = "2026-11-20T15:00:00Z"),
        ("end" = String, Query, description = "The last instant, at most.", example = "2026-11-20T16:00:00Z"),
        ("step" = String, Query, description = "The distance: `30s`, or a number of seconds.", example = "30s"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most series of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "The result, a `matrix`.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong, or the query is no PromQL.", body = PromErrorBody),
        (status = 422, description = "The query cannot be evaluated, or would be too much.", body = PromErrorBody),
        (status = 503, description = "Too busy, or a collector is away; try again.", body = PromErrorBody),
    )
)]
pub(crate) async fn by_steps(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    let needed = |name: &str| {
        parameters.need(name)?;
        parameters.instant(name).map(Option::unwrap_or_default)
    };
    let (start_ns, end_ns) = (needed("start")?, needed("end")?);
    let step = parameters.need("step")?;
    let step_ns = nanoseconds(step).or_else(|| crate::parameter::step(step).ok()).or_else(|| duration(step));
    let step_ns = step_ns.filter(|ns| *ns > 0);
    let step_ns = step_ns.ok_or_else(|| {
        let text = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        PromFailure::bad(format!("invalid parameter \"step\": {step:?}: {text}"))
    })?;
    let Some(grid) = Grid::between(start_ns, end_ns, step_ns) else {
        return Err(PromFailure::bad("end timestamp must not be before start time".to_owned()));
    };
    let max = api.config().limits.steps_max;
    // Prometheus counts the steps between the points.
    if grid.count > max.saturating_add(1) {
        return Err(PromFailure::bad(format!(
            "exceeded maximum resolution of {max} points per timeseries. Try decreasing the query resolution (?step=XX)"
        )));
    }
    parameters.check_timeout()?;
    let (text, limit) = (parameters.need("query")?.to_owned(), parameters.limit()?);
    let ask = PromAsk { text, grid: Some(grid), is_range: true, limit };
    Ok(api.answer(ask, &headers).await?)
}

impl Ask for PromAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let now_ns = view.now_ns();
        let grid = self.grid.unwrap_or_else(|| Grid::at(now_ns));
        let limits = PromLimits { values_max: view.limits.promql_values_max, ..PromLimits::default() };
        let answer = query(view.history.as_ref(), &self.text, grid, limits).await;
        let PromAnswer { mut result, missing, mut notes } = answer.map_err(ApiError::Prom)?;
        if answer::cut(&mut result, self.limit) {
            notes.push(TRUNCATED.to_owned());
        }
        let until_ns = if self.grid.is_some() { i64::MAX } else { now_ns.saturating_add(NOW_SERVES_NS) };
        view.render(missing, move |_, partial| {
            let mut json = Vec::with_capacity(1 << 16);
            json.extend_from_slice(b"{\"status\":\"success\",\"data\":");
            if self.is_range {
                answer::matrix(&mut json, result, grid)
            } else {
                answer::instant(&mut json, result, grid.start_ns)
            }?;
            let warnings: Vec<&String> = partial.iter().chain(&notes).collect();
            if !warnings.is_empty() {
                json.extend_from_slice(b",\"warnings\":");
                serde_json::to_writer(&mut json, &warnings)?;
            }
            json.push(b'}');
            Ok(Body::written(until_ns, json))
        })
        .await
    }
}
