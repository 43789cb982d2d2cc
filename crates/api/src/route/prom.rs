//! `/api/v1/prom/api/v1/…`: Prometheus' query API over the history, for Grafana and `promtool`.
//!
//! Parameters, shapes and errors are those of Prometheus (`{"status": "success", "data": …}`), by GET or by POST with a form.
//! `/api/v1/prom` is what a data source is pointed at. See `docs/promql.md`.

pub(crate) mod answer;
pub(crate) mod browse;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use gpuvitals_core::history::QueryError;
use gpuvitals_core::time;
use gpuvitals_promql::{Grid, PromAnswer, PromError, PromLimits, query};

use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::dto::{PromBody, PromErrorBody};
use crate::error::ApiError;
use crate::parameter::WHOLE_MAX;

const MILLISECOND_NS: i64 = 1_000_000;
/// How long an answer serves whose question names no time.
const NOW_SERVES_NS: i64 = 1_000_000_000;
/// Earliest and latest instants that a question without a range asks for.
const ALWAYS: (i64, i64) = (i64::MIN / 2, i64::MAX / 2);

/// What is added to the warnings of an answer that `limit` has cut.
const TRUNCATED: &str = "results truncated due to limit";
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

/// The paths.
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

/// Parameters of the query string, and of a form in the body.
#[derive(Debug)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = PromFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, PromFailure> {
        let parse = |text: &[u8]| form_urlencoded::parse(text).into_owned().collect::<Vec<_>>();
        let mut all = parse(request.uri().query().unwrap_or_default().as_bytes());
        if request.method() == Method::POST {
            let form = axum::body::Bytes::from_request(request, state).await;
            all.extend(parse(&form.map_err(|error: BytesRejection| PromFailure::bad(error.to_string()))?));
        }
        Ok(Self(all))
    }
}

impl Parameters {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, text)| key == name && !text.is_empty()).map(|(_, text)| text.as_str())
    }

    fn need(&self, name: &str) -> Result<&str, PromFailure> {
        self.get(name).ok_or_else(|| PromFailure::bad(format!("invalid parameter {name:?}: it is missing")))
    }

    fn selectors(&self) -> Vec<String> {
        let all = self.0.iter().filter(|(key, text)| key == "match[]" && !text.is_empty());
        all.map(|(_, text)| text.clone()).collect()
    }

    /// An instant, nanoseconds UTC since 1970.
    fn instant(&self, name: &str) -> Result<Option<i64>, PromFailure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = nanoseconds(text).or_else(|| time::parse(text).ok());
        let text = || {
            PromFailure::bad(format!(
                "invalid parameter {name:?}: cannot parse {text:?} to a valid timestamp"
            ))
        };
        found.map(Some).ok_or_else(text)
    }

    /// The most entries that are wanted; 0 is no limit.
    fn limit(&self) -> Result<usize, PromFailure> {
        let Some((_, text)) = self.0.iter().find(|(key, _)| key == "limit") else { return Ok(usize::MAX) };
        let limit = text.parse().ok().filter(|limit| *limit <= WHOLE_MAX);
        let limit = limit.ok_or_else(|| {
            PromFailure::bad(format!("invalid parameter \"limit\": {text:?} is no whole number of 0 or more"))
        })?;
        Ok(if limit == 0 { usize::MAX } else { limit })
    }

    fn range(&self) -> Result<(i64, i64), PromFailure> {
        let (start, end) = (self.instant("start")?, self.instant("end")?);
        Ok((start.unwrap_or(ALWAYS.0), end.unwrap_or(ALWAYS.1)))
    }
}

/// Seconds as nanoseconds, in whole milliseconds as in Prometheus.
#[expect(clippy::cast_possible_truncation, reason = "checked before")]
fn nanoseconds(text: &str) -> Option<i64> {
    let seconds: f64 = text.parse().ok()?;
    let millis = (seconds * 1e3).round();
    (millis.abs() < 9.2e12).then(|| millis as i64 * MILLISECOND_NS)
}

/// Why a request has no answer, as Prometheus says it.
#[derive(Debug)]
pub(crate) struct PromFailure {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl PromFailure {
    fn bad(text: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "bad_data", text }
    }
}

impl From<PromError> for PromFailure {
    fn from(error: PromError) -> Self {
        let unprocessable = (StatusCode::UNPROCESSABLE_ENTITY, "execution");
        let (status, kind) = match &error {
            PromError::Syntax(_) | PromError::Unsupported(_) | PromError::NotKept(_) => {
                (StatusCode::BAD_REQUEST, "bad_data")
            }
            PromError::History(QueryError::Away { .. }) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            PromError::History(QueryError::Failed(cause)) => {
                tracing::error!(error = %error, %cause, "a request failed on a defect");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal")
            }
            PromError::TooMuch(_) | PromError::Execution(_) | PromError::History(_) => unprocessable,
        };
        Self { status, kind, text: error.to_string() }
    }
}

impl From<ApiError> for PromFailure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Prom(error) => error.into(),
            other => {
                let text = other.to_string();
                let status = other.into_response().status();
                let kind = match status {
                    StatusCode::SERVICE_UNAVAILABLE => "unavailable",
                    StatusCode::NOT_FOUND => "not_found",
                    status if status.is_server_error() => "internal",
                    _ => "bad_data",
                };
                Self { status, kind, text }
            }
        }
    }
}

impl IntoResponse for PromFailure {
    fn into_response(self) -> Response {
        let Self { status, kind, text } = self;
        (status, Json(PromErrorBody { status: "error", error_type: kind, error: text })).into_response()
    }
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
    let step_ns = nanoseconds(step).or_else(|| crate::parameter::step(step).ok()).filter(|ns| *ns > 0);
    let step_ns = step_ns.ok_or_else(|| {
        let text = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        PromFailure::bad(format!("invalid parameter \"step\": {step:?}: {text}"))
    })?;
    let Some(grid) = Grid::between(start_ns, end_ns, step_ns) else {
        return Err(PromFailure::bad("end timestamp must not be before start time".to_owned()));
    };
    let max = api.config().limits.steps_max;
    if grid.count > max {
        return Err(PromFailure::bad(format!(
            "exceeded maximum resolution of {max} points per timeseries. Try decreasing the query resolution (?step=XX)"
        )));
    }
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
