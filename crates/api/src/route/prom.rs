//! `/api/v1/prom/api/v1/…`: Prometheus' query API over the history, for Grafana and `promtool`.
//!
//! Parameters, shapes and errors are those of Prometheus (`{"status": "success", "data": …}`), by GET or by POST with a form.
//! `/api/v1/prom` is what a data source is pointed at. See `docs/promql.md`.

use std::collections::BTreeSet;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Path, Request, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use gpuvitals_core::figures::Number;
use gpuvitals_core::history::{Part, QueryError};
use gpuvitals_core::time;
use gpuvitals_promql::{
    FamilyInfo, Grid, Outcome, PromAnswer, PromError, PromLimits, PromSeries, SeriesLabels, families,
    label_names, label_values, query, series, spell,
};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::error::ApiError;

const MILLISECOND_NS: i64 = 1_000_000;
/// How long an answer serves whose question names no time.
const NOW_SERVES_NS: i64 = 1_000_000_000;
/// Earliest and latest instants that a question without a range asks for.
const ALWAYS: (i64, i64) = (i64::MIN / 2, i64::MAX / 2);

/// The paths.
pub(crate) fn paths() -> Router<Api> {
    let api = Router::new()
        .route("/query", get(at_once).post(at_once))
        .route("/query_range", get(by_steps).post(by_steps))
        .route("/series", get(list_series).post(list_series))
        .route("/labels", get(list_labels).post(list_labels))
        .route("/label/{name}/values", get(list_values))
        .route("/metadata", get(metadata))
        .fallback(nothing)
        .method_not_allowed_fallback(refuse_method);
    Router::new().nest("/api/v1/prom/api/v1", api)
}

/// Parameters of the query string, and of a form in the body.
#[derive(Debug)]
struct Parameters(Vec<(String, String)>);

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
struct PromFailure {
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
        (status, Json(json!({ "status": "error", "errorType": kind, "error": text }))).into_response()
    }
}

async fn nothing() -> PromFailure {
    let text =
        "there is nothing here; query, query_range, series, labels, label/NAME/values and metadata are"
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
}

async fn at_once(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    let grid = parameters.instant("time")?.map(Grid::at);
    let ask = PromAsk { text: parameters.need("query")?.to_owned(), grid, is_range: false };
    Ok(api.answer(ask, &headers).await?)
}

async fn by_steps(
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
    let ask = PromAsk { text: parameters.need("query")?.to_owned(), grid: Some(grid), is_range: true };
    Ok(api.answer(ask, &headers).await?)
}

impl Ask for PromAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let now_ns = view.now_ns();
        let grid = self.grid.unwrap_or_else(|| Grid::at(now_ns));
        let limits = PromLimits { values_max: view.limits.promql_values_max, ..PromLimits::default() };
        let answer = query(view.history.as_ref(), &self.text, grid, limits).await;
        let PromAnswer { result, missing, notes } = answer.map_err(ApiError::Prom)?;
        let until_ns = if self.grid.is_some() { i64::MAX } else { now_ns.saturating_add(NOW_SERVES_NS) };
        view.render(missing, move |_, partial| {
            let mut json = Vec::with_capacity(1 << 16);
            json.extend_from_slice(b"{\"status\":\"success\",\"data\":");
            if self.is_range {
                matrix(&mut json, result, grid)
            } else {
                instant(&mut json, result, grid.start_ns)
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

/// The result of a query by steps.
fn matrix(json: &mut Vec<u8>, result: Outcome, grid: Grid) -> Result<(), serde_json::Error> {
    let all = match result {
        Outcome::Vector(series) => series,
        Outcome::Scalar(numbers) => {
            vec![PromSeries {
                labels: SeriesLabels::default(),
                values: numbers.into_iter().map(Some).collect(),
            }]
        }
        Outcome::Text(_) | Outcome::Ranges(_) => Vec::new(),
    };
    json.extend_from_slice(b"{\"resultType\":\"matrix\",\"result\":[");
    for (at, PromSeries { labels, values }) in all.iter().enumerate() {
        separate(json, at);
        metric(json, labels)?;
        json.extend_from_slice(b",\"values\":[");
        let pairs = grid.times().zip(values).filter_map(|(time_ns, value)| Some((time_ns, (*value)?)));
        for (at, (time_ns, value)) in pairs.enumerate() {
            separate(json, at);
            pair(json, time_ns, value);
        }
        json.extend_from_slice(b"]}");
    }
    json.extend_from_slice(b"]}");
    Ok(())
}

/// The result of a query at one instant.
fn instant(json: &mut Vec<u8>, result: Outcome, time_ns: i64) -> Result<(), serde_json::Error> {
    let begin = |json: &mut Vec<u8>, kind: &str| {
        json.extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
    };
    match result {
        Outcome::Scalar(numbers) => {
            begin(json, "scalar");
            pair(json, time_ns, numbers.first().copied().unwrap_or(f64::NAN));
        }
        Outcome::Text(text) => {
            begin(json, "string");
            json.push(b'[');
            seconds(json, time_ns);
            json.push(b',');
            serde_json::to_writer(&mut *json, &text)?;
            json.push(b']');
        }
        Outcome::Vector(all) => {
            begin(json, "vector");
            json.push(b'[');
            let there = all.iter().filter_map(|one| Some((&one.labels, (*one.values.first()?)?)));
            for (at, (labels, value)) in there.enumerate() {
                separate(json, at);
                metric(json, labels)?;
                json.extend_from_slice(b",\"value\":");
                pair(json, time_ns, value);
                json.push(b'}');
            }
            json.push(b']');
        }
        Outcome::Ranges(all) => {
            begin(json, "matrix");
            json.push(b'[');
            for (at, (labels, points)) in all.iter().enumerate() {
                separate(json, at);
                metric(json, labels)?;
                json.extend_from_slice(b",\"values\":[");
                for (at, (time_ns, value)) in points.iter().enumerate() {
                    separate(json, at);
                    pair(json, *time_ns, *value);
                }
                json.extend_from_slice(b"]}");
            }
            json.push(b']');
        }
    }
    json.push(b'}');
    Ok(())
}

fn separate(json: &mut Vec<u8>, at: usize) {
    if at > 0 {
        json.push(b',');
    }
}

/// The beginning of a series: its labels.
fn metric(json: &mut Vec<u8>, labels: &SeriesLabels) -> Result<(), serde_json::Error> {
    json.extend_from_slice(b"{\"metric\":");
    serde_json::to_writer(json, &labels_of(labels))
}

fn labels_of(labels: &SeriesLabels) -> Map<String, Value> {
    labels.iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}

/// A time in seconds and a value.
fn pair(json: &mut Vec<u8>, time_ns: i64, value: f64) {
    json.push(b'[');
    seconds(json, time_ns);
    json.extend_from_slice(b",\"");
    spell(value, json);
    json.extend_from_slice(b"\"]");
}

/// Seconds to the millisecond.
fn seconds(json: &mut Vec<u8>, time_ns: i64) {
    Number::Nanoseconds(time_ns.div_euclid(MILLISECOND_NS) * MILLISECOND_NS).write(json);
}

/// What a query editor asks for.
#[derive(Debug)]
struct BrowseAsk {
    what: What,
    selectors: Vec<String>,
    start_ns: i64,
    end_ns: i64,
}

#[derive(Debug)]
enum What {
    Series,
    Labels,
    Values(String),
}

async fn list_series(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    if parameters.selectors().is_empty() {
        return Err(PromFailure::bad("no match[] parameter provided".to_owned()));
    }
    browse(&api, &headers, &parameters, What::Series).await
}

async fn list_labels(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    browse(&api, &headers, &parameters, What::Labels).await
}

async fn list_values(
    Shared(api): Shared<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    browse(&api, &headers, &parameters, What::Values(name)).await
}

async fn browse(
    api: &Api,
    headers: &HeaderMap,
    parameters: &Parameters,
    what: What,
) -> Result<Response, PromFailure> {
    let (start_ns, end_ns) = parameters.range()?;
    let ask = BrowseAsk { what, selectors: parameters.selectors(), start_ns, end_ns };
    Ok(api.answer(ask, headers).await?)
}

impl Ask for BrowseAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Self { what, selectors, start_ns, end_ns } = self;
        let history = view.history.as_ref();
        let found = match &what {
            What::Series => listed(series(history, &selectors, start_ns, end_ns).await, Listed::Series),
            What::Labels => listed(label_names(history, &selectors, start_ns, end_ns).await, Listed::Texts),
            What::Values(name) => {
                listed(label_values(history, name, &selectors, start_ns, end_ns).await, Listed::Texts)
            }
        };
        let Part { answer, missing } = found.map_err(ApiError::Prom)?;
        view.render(missing, move |_, partial| {
            let data: Value = match answer {
                Listed::Series(all) => all.iter().map(labels_of).map(Value::Object).collect(),
                Listed::Texts(all) => json!(all),
            };
            let whole = if partial.is_empty() {
                json!({ "status": "success", "data": data })
            } else {
                json!({ "status": "success", "data": data, "warnings": partial })
            };
            Body::until(i64::MAX, &whole)
        })
        .await
    }
}

/// What a query editor gets.
enum Listed {
    Series(Vec<SeriesLabels>),
    Texts(BTreeSet<String>),
}

fn listed<T>(found: Result<Part<T>, PromError>, of: fn(T) -> Listed) -> Result<Part<Listed>, PromError> {
    found.map(|Part { answer, missing }| Part { answer: of(answer), missing })
}

async fn metadata(parameters: Parameters) -> Result<Response, PromFailure> {
    let limit = parameters.get("limit").map(str::parse::<usize>).transpose();
    let limit =
        limit.map_err(|_| PromFailure::bad("limit must be a number".to_owned()))?.unwrap_or(usize::MAX);
    let wanted = parameters.get("metric");
    let all = families().into_iter().filter(|family| wanted.is_none_or(|wanted| wanted == family.name));
    let data: Map<String, Value> = all
        .take(limit)
        .map(|FamilyInfo { name, kind, help, unit }| {
            (name, json!([{ "type": kind, "help": help, "unit": unit }]))
        })
        .collect();
    Ok(Json(json!({ "status": "success", "data": data })).into_response())
}
