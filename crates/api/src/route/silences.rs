//! `/api/v1/analysis/silences`: somebody looks after a finding, or after all that is found about a host or a job.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, Method};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use gpuvitals_analysis::findings::{SILENCE_MAX_NS, Silence, Silenced};
use gpuvitals_core::time;
use gpuvitals_listener::TokenScope;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::analysis::judged;
use super::answered::Answered;
use super::page;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::Instant;
use crate::dto::{Moment, SilenceEntry, SilenceList};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{Asked, json_body};

const PATH: &str = "/api/v1/analysis/silences";
/// Longest note, in characters.
const NOTE_MAX: usize = 500;

/// One path, three methods.
pub(crate) fn paths() -> Router<Api> {
    let refused = async |method: Method| page::refuse_method(&method, PATH, "DELETE, GET, HEAD, POST");
    Router::new().route(PATH, get(list).post(silence).delete(release).fallback(refused))
}

/// The scope that a request needs: a silence becomes a row in the queue.
pub(crate) fn scope(method: &Method, path: &str) -> TokenScope {
    let only_asks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if path == PATH && !only_asks { TokenScope::Publish } else { TokenScope::Read }
}

/// As of when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SilencesParams {
    /// As of this instant, by the history up to it: what was silenced then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// What to silence: a finding, a host or a job, one of them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSilence {
    /// Id of an open finding: it is acknowledged.
    #[serde(default)]
    #[schema(required = false, example = "xid:GPU-5c1d0a44")]
    finding: Option<String>,
    /// A host, by name or as `cluster/name`: all findings about it and its GPUs, also those that come.
    #[serde(default)]
    #[schema(required = false)]
    host: Option<String>,
    /// A job or pod that holds a GPU, as `cluster/namespace/name`: all findings about it and its GPUs, also those that come.
    #[serde(default)]
    #[schema(required = false)]
    job: Option<String>,
    /// Who and why, in 500 characters at most.
    #[serde(default)]
    #[schema(max_length = 500, example = "Kim: drained, board ordered")]
    note: String,
    /// When it ends by itself, in 30 days at most. A silence of a host or job needs it; without it that of a finding ends when the
    /// finding closes.
    #[serde(default)]
    #[schema(required = false, format = DateTime, example = "2026-11-21T09:00:00Z")]
    until: Option<String>,
}

/// Which silence ends: that of a finding, a host or a job, one of them.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReleaseParams {
    /// Id of the finding.
    #[param(value_type = String, required = false, example = "xid:GPU-5c1d0a44")]
    finding: Option<String>,
    /// The host, by name or as `cluster/name`.
    host: Option<String>,
    /// The job or pod, as `cluster/namespace/name`.
    job: Option<String>,
}

/// A question for silences.
#[derive(Debug)]
struct SilencesAsk;

/// What is silenced: findings, hosts and jobs that somebody looks after.
#[utoipa::path(
    get, path = "/api/v1/analysis/silences", tag = "analysis", operation_id = "list_silences", params(SilencesParams),
    responses(
        (status = 200, description = "The silences that hold.", body = SilenceList<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<SilencesParams>,
) -> Answered {
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, SilencesAsk, &headers).await
}

impl Ask for SilencesAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let judgement = judged(&view).await?;
        view.render(judgement.missing.clone(), move |view, _| {
            let list = SilenceList {
                silences: judgement.silences.iter().map(SilenceEntry::from).collect(),
                judged_at: Moment(judgement.at_ns),
            };
            Body::until(view.judged_until(Some(&judgement)), &list)
        })
        .await
    }
}

/// Silence a finding, a host or a job: somebody looks after it.
///
/// What it covers stands behind all that nobody looks after. It ends at `until`, when it is withdrawn, and that of a finding when the
/// finding closes. A silence is a row of `gpu_health_events`, by which other gateways and this one after a restart know it. Needs
/// the scope `publish`.
#[utoipa::path(
    post, path = "/api/v1/analysis/silences", tag = "analysis", operation_id = "silence",
    request_body = NewSilence,
    responses(
        (status = 200, description = "The silence.", body = SilenceEntry<'static>),
        (status = 400, description = "The body is not as described.", body = ErrorBody),
        (status = 404, description = "No such finding is open, the host is unknown, or no GPU is held by the job.", body = ErrorBody),
        (status = 413, description = "The body is too long.", body = ErrorBody),
        (status = 503, description = "The fleet cannot be read now, or silences cannot be kept.", body = ErrorBody),
    )
)]
pub(crate) async fn silence(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answered {
    let asked: NewSilence = json_body(&headers, body)?;
    let note = asked.note.trim();
    if note.chars().count() > NOTE_MAX {
        return Err(ApiError::Body(format!("note: it has more than {NOTE_MAX} characters")));
    }
    let silenced = one_of(asked.finding, asked.host, asked.job)
        .ok_or_else(|| ApiError::Body("give one of finding, host and job".to_owned()))?;
    let now_ns = api.config().clock.now_ns();
    let until_ns = end(&silenced, asked.until.as_deref(), now_ns)?;
    check_log(&api)?;
    let silence = api.watch().silence(api.history(), &silenced, (now_ns, until_ns), note.into()).await?;
    Ok(shown(&silence))
}

/// Withdraw a silence: nobody looks after it any more.
///
/// Needs the scope `publish`.
#[utoipa::path(
    delete, path = "/api/v1/analysis/silences", tag = "analysis", operation_id = "release", params(ReleaseParams),
    responses(
        (status = 200, description = "The silence that was.", body = SilenceEntry<'static>),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "Nothing of this name is silenced.", body = ErrorBody),
        (status = 503, description = "The fleet cannot be read now, or silences cannot be kept.", body = ErrorBody),
    )
)]
pub(crate) async fn release(Shared(api): Shared<Api>, Asked(params): Asked<ReleaseParams>) -> Answered {
    let missing = || ApiError::Missing { name: "finding", allowed: "one of finding, host and job".into() };
    let silenced = one_of(params.finding, params.host, params.job).ok_or_else(missing)?;
    check_log(&api)?;
    let silence = api.watch().release(api.history(), &silenced, api.config().clock.now_ns()).await?;
    Ok(shown(&silence))
}

/// The one that is given; none if it is none or several.
fn one_of(finding: Option<String>, host: Option<String>, job: Option<String>) -> Option<Silenced> {
    type Named = fn(Arc<str>) -> Silenced;
    let named: [(Option<String>, Named); 3] =
        [(finding, Silenced::Finding), (host, Silenced::Host), (job, Silenced::Job)];
    let given = named.into_iter().filter_map(|(text, of)| Some((text.filter(|text| !text.is_empty())?, of)));
    let mut given = given.map(|(text, of)| of(text.into()));
    let one = given.next();
    one.filter(|_| given.next().is_none())
}

/// When a silence that begins now ends, nanoseconds UTC since 1970.
fn end(silenced: &Silenced, until: Option<&str>, now_ns: i64) -> Result<Option<i64>, ApiError> {
    let Some(text) = until else {
        let is_finding = matches!(silenced, Silenced::Finding(_));
        let why = format!("until is missing: a silence of a {} has an end", silenced.type_name());
        return if is_finding { Ok(None) } else { Err(ApiError::Body(why)) };
    };
    let until_ns = time::parse(text).map_err(|error| ApiError::Body(format!("until: {error}")))?;
    let last_ns = now_ns.saturating_add(SILENCE_MAX_NS);
    if !(now_ns + 1..=last_ns).contains(&until_ns) {
        let [now, last] = [now_ns, last_ns].map(time::format);
        return Err(ApiError::Body(format!("until: {text} is not after {now} and by {last}, in 30 days")));
    }
    Ok(Some(until_ns))
}

fn check_log(api: &Api) -> Result<(), ApiError> {
    if api.watch().keeps() { Ok(()) } else { Err(ApiError::NoLog) }
}

fn shown(silence: &Silence) -> axum::response::Response {
    Json(SilenceEntry::from(silence)).into_response()
}
