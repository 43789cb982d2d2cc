//! `/api/v1/analysis/acknowledgements`: somebody looks after a finding.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Router, http};
use gpuvitals_listener::TokenScope;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::answered::Answered;
use super::page;
use crate::api::Api;
use crate::dto::FindingEntry;
use crate::error::{ApiError, ErrorBody};
use crate::parameter::Asked;

const PATH: &str = "/api/v1/analysis/acknowledgements";
/// Longest note, in characters.
const NOTE_MAX: usize = 500;

/// The paths.
pub(crate) fn paths() -> Router<Api> {
    let refused = async |method: Method| page::refuse_method(&method, PATH, "DELETE, POST");
    Router::new().route(PATH, post(acknowledge).delete(release).fallback(refused))
}

/// The scope that a request to the API itself needs: an acknowledgement becomes a row in the queue.
pub fn scope(method: &Method, path: &str) -> TokenScope {
    let only_asks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if path == PATH && !only_asks { TokenScope::Publish } else { TokenScope::Read }
}

/// Which finding somebody looks after.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAcknowledgement {
    /// Id of an open finding.
    #[schema(example = "xid:GPU-5c1d0a44")]
    finding: String,
    /// Who and why, in 500 characters at most.
    #[serde(default)]
    #[schema(max_length = 500, example = "Kim: drained, board ordered")]
    note: String,
}

/// Which finding nobody looks after any more.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReleaseParams {
    /// Id of an open finding.
    #[param(value_type = String, example = "xid:GPU-5c1d0a44")]
    finding: Option<String>,
}

/// Acknowledge a finding: somebody looks after it.
///
/// It stands behind those that nobody looks after until it closes. The acknowledgement is a row of `gpu_health_events`, by which other
/// gateways and this one after a restart know it. Needs the scope `publish`.
#[utoipa::path(
    post, path = "/api/v1/analysis/acknowledgements", tag = "analysis", operation_id = "acknowledge_finding",
    request_body = NewAcknowledgement,
    responses(
        (status = 200, description = "The finding.", body = FindingEntry<'static>),
        (status = 400, description = "The body is not as described.", body = ErrorBody),
        (status = 404, description = "No such finding is open.", body = ErrorBody),
        (status = 413, description = "The body is too long.", body = ErrorBody),
        (status = 503, description = "The fleet cannot be read now, or acknowledgements cannot be kept.", body = ErrorBody),
    )
)]
pub(crate) async fn acknowledge(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answered {
    let is_json = |value: &http::HeaderValue| {
        value
            .to_str()
            .is_ok_and(|text| text.split(';').next().is_some_and(|it| it.trim() == "application/json"))
    };
    // A page of another site can send a form to this machine, but JSON only where CORS lets it.
    if !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(ApiError::Body("it must be of content-type: application/json".to_owned()));
    }
    let body = body.map_err(|error| ApiError::Body(error.body_text()))?;
    let asked: NewAcknowledgement =
        serde_json::from_slice(&body).map_err(|error| ApiError::Body(error.to_string()))?;
    let note = asked.note.trim();
    if note.chars().count() > NOTE_MAX {
        return Err(ApiError::Body(format!("note: it has more than {NOTE_MAX} characters")));
    }
    change(&api, &asked.finding, Some(note.into())).await
}

/// Withdraw an acknowledgement: nobody looks after the finding any more.
///
/// Needs the scope `publish`.
#[utoipa::path(
    delete, path = "/api/v1/analysis/acknowledgements", tag = "analysis", operation_id = "release_finding", params(ReleaseParams),
    responses(
        (status = 200, description = "The finding.", body = FindingEntry<'static>),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such finding is open.", body = ErrorBody),
        (status = 503, description = "The fleet cannot be read now, or acknowledgements cannot be kept.", body = ErrorBody),
    )
)]
pub(crate) async fn release(Shared(api): Shared<Api>, Asked(params): Asked<ReleaseParams>) -> Answered {
    let missing = || ApiError::Missing { name: "finding", allowed: "the id of an open finding" };
    let finding = params.finding.filter(|id| !id.is_empty()).ok_or_else(missing)?;
    change(&api, &finding, None).await
}

async fn change(api: &Api, finding: &str, note: Option<Arc<str>>) -> Answered {
    let watch = api.watch();
    if !watch.keeps() {
        return Err(ApiError::NoLog);
    }
    let now_ns = api.config().clock.now_ns();
    let changed = watch.acknowledge(api.history(), now_ns, finding, note).await?;
    let (finding, name) = changed.ok_or_else(|| ApiError::unknown_finding(finding))?;
    Ok(Json(FindingEntry::of(&finding, &name)).into_response())
}
