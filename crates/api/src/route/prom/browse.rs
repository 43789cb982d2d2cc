//! What a query editor asks for beside queries: series, labels, families, and what a Prometheus has and a history has not.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use axum::response::Response;
use gpuvitals_core::history::Part;
use gpuvitals_promql::{
    FamilyInfo, PromError, SeriesLabels, WantedSeries, families, format, is_label_name, label_names,
    label_values, series,
};
use serde_json::{Map, Value, json};

use super::answer::labels_of;
use super::{Parameters, PromFailure, TRUNCATED};
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::dto::{PromBody, PromErrorBody};
use crate::error::ApiError;

/// The version of Prometheus whose API and semantics these are: clients take from it what they may ask.
const LIKE_PROMETHEUS: &str = "3.0.0";

/// What a query editor asks for.
#[derive(Debug)]
struct BrowseAsk {
    what: BrowseQuestion,
    wanted: WantedSeries,
    limit: usize,
}

#[derive(Debug)]
enum BrowseQuestion {
    Series,
    Labels,
    Values(String),
}

/// The series that selectors match, with their present labels.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/series", tag = "PromQL", operation_id = "prom_series",
    params(
        ("match[]" = Vec<String>, Query, description = "Selectors of series.", example = json!(["gpu_power_watts"])),
        ("start" = Option<String>, Query, description = "Only of GPUs with rows from this instant on.", example = "2026-11-20T15:00:00Z"),
        ("end" = Option<String>, Query, description = "Only of GPUs with rows up to this instant.", example = "2026-11-20T16:00:00Z"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most entries of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "The labels of each.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong.", body = PromErrorBody),
        (status = 422, description = "Too many series match.", body = PromErrorBody),
        (status = 503, description = "Too busy, or a collector is away; try again.", body = PromErrorBody),
    )
)]
pub(crate) async fn list_series(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    if parameters.selectors().is_empty() {
        return Err(PromFailure::bad("no match[] parameter provided".to_owned()));
    }
    browse(&api, &headers, &parameters, BrowseQuestion::Series).await
}

/// The names of the labels that series have.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/labels", tag = "PromQL", operation_id = "prom_labels",
    params(
        ("match[]" = Option<Vec<String>>, Query, description = "Selectors of series; all series without one.", example = json!(["gpu_power_watts"])),
        ("start" = Option<String>, Query, description = "Only of GPUs with rows from this instant on.", example = "2026-11-20T15:00:00Z"),
        ("end" = Option<String>, Query, description = "Only of GPUs with rows up to this instant.", example = "2026-11-20T16:00:00Z"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most entries of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "The names.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong.", body = PromErrorBody),
        (status = 422, description = "Too many series match.", body = PromErrorBody),
        (status = 503, description = "Too busy, or a collector is away; try again.", body = PromErrorBody),
    )
)]
pub(crate) async fn list_labels(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    browse(&api, &headers, &parameters, BrowseQuestion::Labels).await
}

/// The texts that a label has.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/label/{name}/values", tag = "PromQL", operation_id = "prom_label_values",
    params(
        ("name" = String, Path, description = "The name of the label.", example = "node"),
        ("match[]" = Option<Vec<String>>, Query, description = "Selectors of series; all series without one.", example = json!(["gpu_power_watts"])),
        ("start" = Option<String>, Query, description = "Only of GPUs with rows from this instant on.", example = "2026-11-20T15:00:00Z"),
        ("end" = Option<String>, Query, description = "Only of GPUs with rows up to this instant.", example = "2026-11-20T16:00:00Z"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most entries of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "The texts.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong.", body = PromErrorBody),
        (status = 422, description = "Too many series match.", body = PromErrorBody),
        (status = 503, description = "Too busy, or a collector is away; try again.", body = PromErrorBody),
    )
)]
pub(crate) async fn list_values(
    Shared(api): Shared<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, PromFailure> {
    if !is_label_name(&name) {
        return Err(PromFailure::bad(format!("invalid label name: {name:?}")));
    }
    browse(&api, &headers, &parameters, BrowseQuestion::Values(name)).await
}

async fn browse(
    api: &Api,
    headers: &HeaderMap,
    parameters: &Parameters,
    what: BrowseQuestion,
) -> Result<Response, PromFailure> {
    let (start_ns, end_ns) = parameters.range()?;
    let wanted = WantedSeries { selectors: parameters.selectors(), start_ns, end_ns };
    let ask = BrowseAsk { what, wanted, limit: parameters.limit()? };
    Ok(api.answer(ask, headers).await?)
}

impl Ask for BrowseAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Self { what, wanted, limit } = self;
        let history = view.history.as_ref();
        let found = match &what {
            BrowseQuestion::Series => listed(series(history, &wanted).await, BrowseList::Series),
            BrowseQuestion::Labels => listed(label_names(history, &wanted).await, BrowseList::Texts),
            BrowseQuestion::Values(name) => {
                listed(label_values(history, name, &wanted).await, BrowseList::Texts)
            }
        };
        let Part { answer, missing } = found.map_err(ApiError::Prom)?;
        view.render(missing, move |_, partial| {
            let (data, count): (Vec<Value>, usize) = match answer {
                BrowseList::Series(all) => {
                    (all.iter().take(limit).map(labels_of).map(Value::Object).collect(), all.len())
                }
                BrowseList::Texts(all) => {
                    let count = all.len();
                    (all.into_iter().take(limit).map(Value::String).collect(), count)
                }
            };
            let mut warnings = partial.to_vec();
            if count > limit {
                warnings.push(TRUNCATED.to_owned());
            }
            let whole = PromBody { warnings, ..PromBody::of(data) };
            Body::until(i64::MAX, &whole)
        })
        .await
    }
}

/// What a query editor gets.
enum BrowseList {
    Series(Vec<SeriesLabels>),
    Texts(BTreeSet<String>),
}

fn listed<T>(
    found: Result<Part<T>, PromError>,
    of: fn(T) -> BrowseList,
) -> Result<Part<BrowseList>, PromError> {
    found.map(|Part { answer, missing }| Part { answer: of(answer), missing })
}

/// Type, help and unit of every family of series.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/metadata", tag = "PromQL", operation_id = "prom_metadata",
    params(
        ("metric" = Option<String>, Query, description = "The name of one family.", example = "gpu_power_watts"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Most families of the answer; 0: all.", example = 100),
    ),
    responses(
        (status = 200, description = "Lists of `type`, `help` and `unit`, by family.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is wrong.", body = PromErrorBody),
    )
)]
pub(crate) async fn metadata(parameters: Parameters) -> Result<Json<PromBody<Value>>, PromFailure> {
    let (limit, wanted) = (parameters.limit()?, parameters.get("metric"));
    let all = families().into_iter().filter(|family| wanted.is_none_or(|wanted| wanted == family.name));
    let data: Map<String, Value> = all
        .take(limit)
        .map(|FamilyInfo { name, kind, help, unit }| {
            (name, json!([{ "type": kind, "help": help, "unit": unit }]))
        })
        .collect();
    Ok(Json(PromBody::of(Value::Object(data))))
}

/// A query, laid out for people.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/format_query", tag = "PromQL", operation_id = "prom_format_query",
    params(("query" = String, Query, description = "The query in PromQL.", example = "sum(gpu_power_watts)by(node)")),
    responses(
        (status = 200, description = "The query.", body = PromBody<String>),
        (status = 400, description = "The query is missing or no PromQL.", body = PromErrorBody),
        (status = 422, description = "The query is too long, too deep or too large.", body = PromErrorBody),
    )
)]
pub(crate) async fn format_query(parameters: Parameters) -> Result<Json<PromBody<String>>, PromFailure> {
    Ok(Json(PromBody::of(format(parameters.need("query")?).await?)))
}

/// The exemplars of a query's series: there are none.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/query_exemplars", tag = "PromQL", operation_id = "prom_query_exemplars",
    params(
        ("query" = String, Query, description = "The query in PromQL.", example = "gpu_power_watts"),
        ("start" = Option<String>, Query, description = "The first instant.", example = "2026-11-20T15:00:00Z"),
        ("end" = Option<String>, Query, description = "The last instant.", example = "2026-11-20T16:00:00Z"),
    ),
    responses(
        (status = 200, description = "An empty list.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is missing or wrong, or the query is no PromQL.", body = PromErrorBody),
        (status = 422, description = "The query is too long, too deep or too large.", body = PromErrorBody),
    )
)]
pub(crate) async fn query_exemplars(
    parameters: Parameters,
) -> Result<Json<PromBody<Vec<Value>>>, PromFailure> {
    let (start_ns, end_ns) = parameters.range()?;
    if end_ns < start_ns {
        return Err(PromFailure::bad("end timestamp must not be before start timestamp".to_owned()));
    }
    format(parameters.need("query")?).await?;
    Ok(Json(PromBody::of(Vec::new())))
}

/// Groups of rules: there are none here. Those of `deploy/prometheus` are for a Prometheus.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/rules", tag = "PromQL", operation_id = "prom_rules",
    params(("type" = Option<String>, Query, description = "The type of the rules, `alert` or `record`; all without it.", example = "alert")),
    responses(
        (status = 200, description = "`groups`, an empty list.", body = PromBody<serde_json::Value>),
        (status = 400, description = "A parameter is wrong.", body = PromErrorBody),
    )
)]
pub(crate) async fn rules(parameters: Parameters) -> Result<Json<PromBody<Value>>, PromFailure> {
    if let Some(kind) = parameters.get("type")
        && !["alert", "record"].iter().any(|known| kind.eq_ignore_ascii_case(known))
    {
        return Err(PromFailure::bad(format!("invalid parameter \"type\": not supported value {kind:?}")));
    }
    Ok(Json(PromBody::of(json!({ "groups": [] }))))
}

/// Alerts of rules: there are none here. What is wrong is in `/api/v1/analysis/findings`.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/alerts", tag = "PromQL", operation_id = "prom_alerts",
    responses((status = 200, description = "`alerts`, an empty list.", body = PromBody<serde_json::Value>))
)]
pub(crate) async fn alerts() -> Json<PromBody<Value>> {
    Json(PromBody::of(json!({ "alerts": [] })))
}

/// The version of Prometheus whose query API this is like, and in `buildUser` that of gpuvitals.
#[utoipa::path(
    get, path = "/api/v1/prom/api/v1/status/buildinfo", tag = "PromQL", operation_id = "prom_build_info",
    responses((status = 200, description = "Texts; what does not apply is empty.", body = PromBody<serde_json::Value>))
)]
pub(crate) async fn build_info() -> Json<PromBody<Value>> {
    Json(PromBody::of(json!({
        "version": LIKE_PROMETHEUS,
        "revision": "",
        "branch": "",
        "buildUser": concat!("gpuvitals ", env!("CARGO_PKG_VERSION")),
        "buildDate": "",
        "goVersion": "",
    })))
}
