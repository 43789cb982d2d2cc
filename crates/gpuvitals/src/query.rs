//! `gpuvitals query`: asks a running gpuvitals and prints tables for people, or the JSON as it came.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

pub(crate) mod flags;
mod print;
mod words;

use std::io::Write as _;

use gpuvitals_core::{clock, time};
use gpuvitals_queue::link::{BearerToken, Credentials};
use serde_json::Value;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Method, Request, StatusCode};

use crate::client::{self, reading_client};
use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::quantity;
use crate::table::{text, width};
use crate::terminal;

use flags::{Query, QueryWhat, Server};

const HEALTH: &str = "/health";
/// Largest answer that is read.
const ANSWER_LEN_MAX: u64 = 256 << 20;

/// Queries and prints.
///
/// # Errors
/// If the server cannot be reached, refuses the question, or reports something unhealthy.
pub(crate) fn run(query: &Query) -> Result<(), Failure> {
    let path = match &query.what {
        QueryWhat::Gpus { search, judgement, sort, limit, when } => {
            let filter = |name: &str, value: &Option<String>| {
                value.as_ref().map_or(String::new(), |value| format!("&{name}={}", escaped(value)))
            };
            let filters = filter("search", search) + &some("judgement", judgement) + &filter("sort", sort);
            format!("/api/v1/gpus?include=metrics&limit={limit}{filters}{}", when.parameter()?)
        }
        QueryWhat::Hosts { judgement, when } => {
            format!("/api/v1/hosts?limit=10000{}{}", some("judgement", judgement), when.parameter()?)
        }
        QueryWhat::Gpu { id, when } => {
            let parameters = when.parameter()?.replacen('&', "?", 1);
            format!("/api/v1/gpus/{}{parameters}", escaped(id))
        }
        QueryWhat::Range { .. } => range_path(&query.what)?,
        QueryWhat::Rows { .. } => rows_path(&query.what)?,
        QueryWhat::Health { .. } => HEALTH.to_owned(),
    };
    let answer = ask(&query.server, &path)?;
    let text =
        if query.server.json { format!("{answer:#}\n") } else { print::table(&query.what, &answer, width()) };
    let flag = match &query.what {
        QueryWhat::Gpus { when, .. } | QueryWhat::Hosts { when, .. } | QueryWhat::Gpu { when, .. } => {
            (when.is_now() && print::is_over(&answer)).then_some("--at")
        }
        QueryWhat::Range { end, .. } => (end.is_none() && print::has_no_values(&answer)).then_some("--end"),
        QueryWhat::Rows { .. } | QueryWhat::Health { .. } => None,
    };
    let hint = flag.filter(|_| !query.server.json).map(|flag| of_recording(&query.server, flag));
    terminal::print(&(text + &hint.unwrap_or_default()))?;
    let QueryWhat::Health { ready } = query.what else { return Ok(()) };
    let is_fine = answer["status"] == "healthy" || (ready && answer["status"] == "degraded");
    if !is_fine {
        return Err(Failure::new(Exit::Unavailable, format!("{} is {}", query.server.url, answer["status"])));
    }
    Ok(())
}

/// How to ask as of the end of a recording by this flag, where an answer of now has nothing that goes on; empty where the server
/// has no recording that ended.
pub(crate) fn of_recording(server: &Server, flag: &str) -> String {
    // The list was answered: without this hint it is still an answer.
    let health = ask(server, HEALTH).ok();
    let end = health.as_ref().map(|health| &health["recording_end"]).filter(|end| end.is_string()).map(text);
    let told = |end| format!("this is a recording that ended at {end}: {flag} {end} shows it as of then\n");
    end.map_or_else(String::new, told)
}

fn range_path(what: &QueryWhat) -> Result<String, Failure> {
    let QueryWhat::Range { metrics, table, gpu, last, end, step, aggregate, tests, top, bottom, .. } = what
    else {
        return Err(Failure::new(Exit::Bug, "the command does not ask for a range"));
    };
    let end_ns = match end {
        Some(text) => time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--end: {e}")))?,
        None => clock::now_ns(),
    };
    quantity::flag("--step", step)?;
    Ok(format!(
        "/api/v1/query?table={table}&metrics={}&start={}&end={}&step={}&aggregate={}&group_by={}{}{}{}{}",
        escaped(&metrics.join(",")),
        before(end_ns, last)?,
        escaped(&time::format(end_ns)),
        escaped(step),
        escaped(&aggregate.join(",")),
        escaped(&print::group_by(what).join(",")),
        some("gpus", gpu),
        selected(tests),
        count("top", *top),
        count("bottom", *bottom),
    ))
}

fn rows_path(what: &QueryWhat) -> Result<String, Failure> {
    let QueryWhat::Rows { table, gpu, metrics, kind, tests, last, after, limit } = what else {
        return Err(Failure::new(Exit::Bug, "the command does not ask for rows"));
    };
    let start = match last {
        Some(last) => format!("&start_time={}", before(clock::now_ns(), last)?),
        None => String::new(),
    };
    let (gpus, columns, tests) = (some("gpus", gpu), some("metrics", metrics), selected(tests));
    let kinds = some("kind", kind);
    let after = after.as_ref().map_or(String::new(), |after| format!("&after={}", escaped(after)));
    Ok(format!("/api/v1/telemetry?table={table}&limit={limit}{start}{gpus}{columns}{kinds}{tests}{after}"))
}

/// Tests of identity columns, if there are some.
fn selected(tests: &[String]) -> String {
    if tests.is_empty() { String::new() } else { format!("&where={}", escaped(&tests.join(";"))) }
}

/// A parameter with a number, if it is given.
fn count(name: &str, count: Option<usize>) -> String {
    count.map_or(String::new(), |count| format!("&{name}={count}"))
}

/// The time so long before another, for a URL.
pub(crate) fn before(end_ns: i64, last: &str) -> Result<String, Failure> {
    let back_ns = i64::try_from(quantity::flag("--last", last)?.as_nanos()).unwrap_or(i64::MAX);
    Ok(escaped(&time::format(end_ns.saturating_sub(back_ns))))
}

/// A parameter with a list, if there is something in it.
pub(crate) fn some(name: &str, list: &[String]) -> String {
    if list.is_empty() { String::new() } else { format!("&{name}={}", escaped(&list.join(","))) }
}

/// The answer of the server at a path. `/health` answers with 503 when it has something to say.
///
/// # Errors
/// If the URL is none, the server cannot be reached or refuses the question.
pub(crate) fn ask(server: &Server, path: &str) -> Result<Value, Failure> {
    send(server, Method::GET, path, None)
}

/// The answer of the server to a request, with a body if it has one.
///
/// # Errors
/// As [`ask`].
pub(crate) fn send(
    server: &Server,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let (status, body) = answered(server, method, path, body)?;
    let answer = json_of(server, &body)?;
    if status.is_success() || path == HEALTH { Ok(answer) } else { Err(refused(status, &answer)) }
}

/// The answer of the server at a path that does not answer in JSON.
///
/// # Errors
/// As [`ask`].
pub(crate) fn bytes(server: &Server, path: &str) -> Result<Vec<u8>, Failure> {
    let (status, body) = answered(server, Method::GET, path, None)?;
    if status.is_success() { Ok(body) } else { Err(refused(status, &json_of(server, &body)?)) }
}

fn json_of(server: &Server, body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|e| {
        Failure::caused(Exit::Data, format!("{} did not answer in JSON; is it a gpuvitals?", server.url), e)
    })
}

fn refused(status: StatusCode, answer: &Value) -> Failure {
    let message = answer["message"].as_str().unwrap_or("no reason given");
    Failure::new(client::exit(status), words::for_people(message))
}

fn answered(
    server: &Server,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Vec<u8>), Failure> {
    if !["http://", "https://"].iter().any(|scheme| server.url.starts_with(scheme)) {
        let text =
            format!("--url (GPUVITALS_URL): {:?} is no server's URL; write http://HOST:8081", server.url);
        return Err(Failure::new(Exit::Usage, text));
    }
    let url = server.url.as_str();
    let unreachable = |error: ureq::Error| {
        Failure::caused(
            Exit::Unavailable,
            format!(
                "no gpuvitals answers at {url}; start one with `gpuvitals up` or name another with --url"
            ),
            error,
        )
    };
    let access = Credentials { ca: server.ca.clone(), ..Credentials::default() };
    let agent = reading_client(url.starts_with("https://"), &access, client::PATIENCE)?;
    let mut request = Request::builder().method(method).uri(format!("{}{path}", url.trim_end_matches('/')));
    if let Some(path) = &server.token_file {
        request = request.header(AUTHORIZATION, BearerToken::read(path, "--token-file")?.header());
    }
    let sent = match body {
        None => request.body(()).map_err(Into::into).and_then(|request| agent.run(request)),
        Some(body) => {
            let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
            request.map_err(Into::into).and_then(|request| agent.run(request))
        }
    };
    let mut response = sent.map_err(unreachable)?;
    let status = response.status();
    if let Some(missing) = response.headers().get("x-partial").and_then(|text| text.to_str().ok()) {
        // If this cannot be written, nobody is left to report to.
        let _unwritten = writeln!(std::io::stderr(), "not read: {missing}");
    }
    let body = response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec().map_err(unreachable)?;
    Ok((status, body))
}
