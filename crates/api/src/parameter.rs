//! Reading parameters: if a function refuses one, it names the parameter and the allowed values.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use gpuvitals_core::history::{Fleet, Part};
use gpuvitals_core::time::{DAY_NS, SECOND_NS};
use gpuvitals_core::{MetricId, Table, catalogue};
use gpuvitals_listener::parameter::{self, ParameterError};
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Most entries to pass over or to ask for: the largest whole number that every JSON reader knows.
pub(crate) const WHOLE_MAX: usize = (1 << 53) - 1;
/// Most names in one list.
pub(crate) const LIST_LEN_MAX: usize = 1_000;
const STEPS: &str = "seconds, or a number with a unit (500ms, 10s, 1m, 1h, 1d), at least 1ms";
const MILLISECOND_NS: i64 = 1_000_000;

/// The parameters of a query string; an unknown one is refused by name.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Query(asked) = Query::try_from_uri(&parts.uri).map_err(ParameterError::from)?;
        Ok(Self(asked))
    }
}

/// A name in the path, decoded.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::from_request_parts(parts, state).await.map_err(ParameterError::from)?;
        Ok(Self(name))
    }
}

/// A body of JSON.
///
/// # Errors
/// When it is not called JSON, has not come whole, or is not as described.
pub(crate) fn json_body<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<T, ApiError> {
    let is_json = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|text| text.split(';').next().is_some_and(|it| it.trim() == "application/json"))
    };
    // A page of another site can send a form to this machine, but JSON only where CORS lets it.
    if !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(ApiError::Body("it must be of content-type: application/json".to_owned()));
    }
    let body = body.map_err(|error| ApiError::Body(error.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| ApiError::Body(error.to_string()))
}

/// Empty means not given: forms send empty fields. An empty number is none, as the document says. Blanks around a value do not count, other white space does.
pub(crate) fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim_matches(' ')).filter(|text| !text.is_empty())
}

/// A whole number; digits alone.
///
/// # Errors
/// When it is none, or out of the range.
pub(crate) fn whole(
    name: &'static str,
    text: Option<&String>,
    min: usize,
    max: usize,
) -> Result<Option<usize>, ApiError> {
    Ok(text.map(|text| parameter::whole(name, text, min..=max)).transpose()?)
}

/// A number of a range, which `allowed` says in words.
///
/// # Errors
/// When it is none, or out of the range.
pub(crate) fn number(
    name: &'static str,
    text: Option<&String>,
    range: RangeInclusive<f64>,
    allowed: &'static str,
) -> Result<Option<f64>, ApiError> {
    let Some(text) = text.map(|text| text.trim_matches(' ')) else { return Ok(None) };
    let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
    number.map(Some).ok_or_else(|| ApiError::parameter(name, text, allowed))
}

/// A span of time in nanoseconds, in whole milliseconds.
///
/// # Errors
/// When it is none, or shorter than a millisecond.
pub(crate) fn step(text: &str) -> Result<i64, ApiError> {
    let refused = || ApiError::parameter("step", text, STEPS);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).ok_or_else(refused)?;
    let unit_ms: f64 = match unit.trim_start_matches(' ') {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3_600e3,
        "d" => 86_400e3,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    let whole_ms = (number * unit_ms).round();
    if !(1.0..=1e12).contains(&whole_ms) {
        return Err(refused());
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within 1 and 10^12")]
    Ok(whole_ms as i64 * MILLISECOND_NS)
}

/// A step that gives some 300 points over a range.
pub(crate) fn step_for(range_ns: i64) -> i64 {
    const NICE_S: [i64; 14] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 86_400];
    let wanted = range_ns / 300;
    NICE_S
        .into_iter()
        .map(|seconds| seconds * SECOND_NS)
        .find(|step| *step >= wanted)
        .unwrap_or_else(|| wanted.saturating_add(DAY_NS - 1) / DAY_NS * DAY_NS)
}

/// Names separated by commas, in order, each once.
///
/// # Errors
/// If there are more than [`LIST_LEN_MAX`].
pub(crate) fn list(name: &'static str, text: Option<&String>) -> Result<Vec<Arc<str>>, ApiError> {
    let mut names: Vec<Arc<str>> = Vec::new();
    let Some(text) = given(text) else { return Ok(names) };
    let mut seen = std::collections::HashSet::new();
    for word in text.split(',').map(|word| word.trim_matches(' ')).filter(|word| !word.is_empty()) {
        if seen.insert(word) {
            names.push(Arc::from(word));
        }
    }
    if names.len() > LIST_LEN_MAX {
        return Err(ApiError::parameter(name, text, format!("at most {LIST_LEN_MAX} names")));
    }
    Ok(names)
}

/// Names of hosts by the parameter `host`, and by its older name.
///
/// # Errors
/// As [`list`].
pub(crate) fn hosts(host: Option<&String>, hosts: Option<&String>) -> Result<Vec<Arc<str>>, ApiError> {
    let mut names = list("host", host)?;
    for name in list("hosts", hosts)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Refuses names of columns that neither the table nor the catalogue nor any GPU has.
///
/// # Errors
/// If there is one.
pub(crate) fn known_columns(
    table: Table,
    names: Option<&[String]>,
    fleet: &Part<Arc<Fleet>>,
) -> Result<(), ApiError> {
    if table != Table::GpuEvents {
        let is_metric = |name: &str| catalogue::by_column(name).is_some_and(|id| id.metric().table == table);
        let mut names = names.unwrap_or_default().iter();
        let unknown = names.find(|name| table.column(name).is_none() && !is_metric(name));
        let allowed = |_: &String| format!("a column of {table}, see docs/metrics.md");
        return unknown.map_or(Ok(()), |name| Err(ApiError::parameter("metrics", name, allowed(name))));
    }
    let foreign = |name: &str| {
        let mut columns = fleet.answer.gpus.iter().flat_map(|gpu| &gpu.extras);
        columns.any(|(column, ..)| column.as_ref() == name)
    };
    let unknown = names.unwrap_or_default().iter().find(|name| {
        let known = catalogue::by_column(name).is_some_and(is_of_gpus);
        !known && !foreign(name)
    });
    match unknown {
        Some(name) if !fleet.missing.is_empty() => Err(ApiError::incomplete(name, &fleet.missing)),
        unknown => unknown.map_or(Ok(()), |name| gpu_metric("metrics", name).map(|_| ())),
    }
}

/// A metric of a table with metrics, by its column.
///
/// # Errors
/// If there is no such metric in it.
pub(crate) fn metric_of(table: Table, name: &'static str, column: &str) -> Result<MetricId, ApiError> {
    if table == Table::GpuEvents {
        return gpu_metric(name, column);
    }
    let found = catalogue::by_column(column).filter(|id| id.metric().table == table);
    found.ok_or_else(|| ApiError::parameter(name, column, "a metric of hosts, see GET /api/v1/metrics"))
}

/// A metric of GPUs, by its column.
///
/// # Errors
/// If there is no such metric, or it is one of hosts.
pub(crate) fn gpu_metric(name: &'static str, column: &str) -> Result<MetricId, ApiError> {
    if let Some(id) = catalogue::by_column(column).filter(|id| is_of_gpus(*id)) {
        return Ok(id);
    }
    let near = catalogue::suggest(column).filter(|near| catalogue::by_column(near).is_some_and(is_of_gpus));
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    Err(ApiError::parameter(name, column, format!("a metric of GPUs, see GET /api/v1/metrics{near}")))
}

fn is_of_gpus(id: MetricId) -> bool {
    id.metric().table == Table::GpuEvents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let check = |text: &str, ns: Option<i64>| assert_eq!(step(text).ok(), ns, "{text}");
        check("10s", Some(10 * SECOND_NS));
        check("10", Some(10 * SECOND_NS));
        check("250ms", Some(250 * MILLISECOND_NS));
        check("1.5m", Some(90 * SECOND_NS));
        check("1h", Some(3_600 * SECOND_NS));
        check("1d", Some(86_400 * SECOND_NS));
        check("0s", None);
        check("0.1ms", None);
        check("-5s", None);
        check("ten", None);
        check("10 parsecs", None);
        check("1e3s", None);
        check("99999999999999999d", None);
        check("", None);
        check("10µs", None);
    }

    #[test]
    fn a_step_is_chosen_that_draws_well() {
        let check = |range_s: i64, step_s: i64| assert_eq!(step_for(range_s * SECOND_NS), step_s * SECOND_NS);
        check(0, 1);
        check(60, 1);
        check(3_600, 15);
        check(86_400, 300);
        check(86_400 * 30, 10_800);
        check(86_400 * 3_650, 13 * 86_400);
        assert!(step_for(i64::MAX) > 0);
    }

    #[test]
    fn only_metrics_of_gpus_are_proposed() {
        let words = |column: &str| gpu_metric("metrics", column).unwrap_err().to_string();
        assert!(gpu_metric("metrics", "power_w").is_ok());
        assert!(words("powr_w").ends_with("did you mean power_w?"));
        assert!(!words("cpu_pct").contains("did you mean"));
    }

    #[test]
    fn lists() {
        let check = |text: &str, names: &[&str]| {
            let found = list("gpus", Some(&text.to_owned())).unwrap();
            assert_eq!(found.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), names, "{text}");
        };
        check("", &[]);
        check(",, ,", &[]);
        check("a, b,a,c", &["a", "b", "c"]);
        let many = (0..=LIST_LEN_MAX).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(list("gpus", Some(&many)).is_err());
    }
}
