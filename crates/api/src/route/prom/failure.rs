//! A query of Prometheus' API fails in the words of Prometheus.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use gpuvitals_core::history::QueryError;
use gpuvitals_core::time;
use gpuvitals_promql::{PromError, duration};

use crate::dto::PromErrorBody;
use crate::error::ApiError;
use crate::parameter::WHOLE_MAX;

pub(super) const MILLISECOND_NS: i64 = 1_000_000;
/// What is added to the warnings of an answer that `limit` has cut.
pub(super) const TRUNCATED: &str = "results truncated due to limit";
/// Earliest and latest instants that a question without a range asks for.
const ALWAYS: (i64, i64) = (i64::MIN / 2, i64::MAX / 2);

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
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, text)| key == name && !text.is_empty()).map(|(_, text)| text.as_str())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, PromFailure> {
        self.get(name).ok_or_else(|| PromFailure::bad(format!("invalid parameter {name:?}: it is missing")))
    }

    pub(super) fn selectors(&self) -> Vec<String> {
        let all = self.0.iter().filter(|(key, text)| key == "match[]" && !text.is_empty());
        all.map(|(_, text)| text.clone()).collect()
    }

    /// An instant, nanoseconds UTC since 1970.
    pub(super) fn instant(&self, name: &str) -> Result<Option<i64>, PromFailure> {
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
    pub(super) fn limit(&self) -> Result<usize, PromFailure> {
        let Some((_, text)) = self.0.iter().find(|(key, _)| key == "limit") else { return Ok(usize::MAX) };
        let limit = text.parse().ok().filter(|limit| *limit <= WHOLE_MAX);
        let limit = limit.ok_or_else(|| {
            PromFailure::bad(format!("invalid parameter \"limit\": {text:?} is no whole number of 0 or more"))
        })?;
        Ok(if limit == 0 { usize::MAX } else { limit })
    }

    /// Refuses a time to wait that is none. It bounds nothing: every request has its own.
    pub(super) fn check_timeout(&self) -> Result<(), PromFailure> {
        let is_time = |text: &str| nanoseconds(text).is_some() || duration(text).is_some();
        match self.get("timeout").filter(|text| !is_time(text)) {
            Some(text) => Err(PromFailure::bad(format!(
                "invalid parameter \"timeout\": cannot parse {text:?} to a valid duration"
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn range(&self) -> Result<(i64, i64), PromFailure> {
        let (start, end) = (self.instant("start")?, self.instant("end")?);
        Ok((start.unwrap_or(ALWAYS.0), end.unwrap_or(ALWAYS.1)))
    }
}

/// Why a request has no answer, as Prometheus says it.
#[derive(Debug)]
pub(crate) struct PromFailure {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl PromFailure {
    pub(super) fn bad(text: String) -> Self {
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

/// Seconds as nanoseconds, in whole milliseconds as in Prometheus.
#[expect(clippy::cast_possible_truncation, reason = "checked before")]
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let seconds: f64 = text.parse().ok()?;
    let millis = (seconds * 1e3).round();
    (millis.abs() < 9.2e12).then(|| millis as i64 * MILLISECOND_NS)
}
