//! `/api/v1/flight/`: incidents of whole jobs, of which each node of the job keeps a part in its flight recorder.
//!
//! Every path needs the scope `flight`. A node is `CLUSTER/NODE` as its rows have them, in a path `CLUSTER%2FNODE`, or `NODE` if they
//! have no cluster; each name is 1 to 200 of `[A-Za-z0-9._-]` and begins with no dot. Times are nanoseconds UTC since 1970, in
//! fields that end in `_ns`.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET requests?node=NODE` | | server-sent events, see below |
//! | `POST requests` | `{"node", "incident", "trigger"}` | `{"id"}`: the job's incident; null: no job is known there (tell again) |
//! | `POST requests` | `{"rest": ID}` | `{"id"}`: all nodes of it are asked for the rest |
//! | `GET incidents` | | `{"incidents": [JobIncident]}`, the newest first |
//! | `GET incidents/{id}` | | a `JobIncident` of `gpuvitals_flight` |
//! | `GET incidents/{id}/rows?gpu=GPU&metrics=COLUMN,COLUMN[&part=window\|rest][&format=json\|csv\|arrow]` | | all values of one GPU |
//! | `POST incidents/{id}/nodes/{node}[?part=window\|rest][&cut=true][&times=ASKED,HEARD,ANSWERED]` | pieces | `{"is_new"}`: false for a second answer, which is left unread |
//! | `GET incidents/{id}/nodes/{node}[?part=window\|rest]` | | pieces, as they came |
//!
//! - `incident` of a told trigger is the id that the node's own recorder gave it; `trigger` is a `FlightTrigger` as JSON: `kind`,
//!   `gpu`, `code`, `detail`, `rule`, `at_ns`. Both bodies are `application/json`.
//! - Pieces are `application/octet-stream`: again and again `length u32, little-endian | gpuvitals_core::wire::pack(batch)`, batches of
//!   `gpu_events` with times within `asked`. No piece at all is an answer, too: the node has no rows. They are sent without
//!   `content-length` (chunked), as the listener refuses a longer announced body. `cut=true` says that rows were left out to
//!   fit into 1 MiB a GPU; a window is 64 MiB at most, and so is a rest. Without `part` it is the window.
//! - `times` says how far the node's clock is ahead: `sent_ns` of the event, when the node had it, and when it sends the answer, the
//!   last two by its own clock; nanoseconds UTC since 1970.
//! - All values of a GPU are `{"id", "gpu", "node", "part", "times": [MS], "values": {COLUMN: [NUMBER or null]}}`, the oldest first; `times` are
//!   milliseconds since 1970, as those of `/api/v1/query`. CSV and Arrow have a row a time. Metrics and values have the limits of that path.
//! - An event is `event: request`, `id: ID/PART`, and as data one line of JSON:
//!   `{"id", "part": "window"|"rest", "asked": {"from_ns", "to_ns"}, "trigger": {FlightTrigger}, "by": NODE, "sent_ns": NS}`. For a window `asked`
//!   is 60 s before to 30 s after the trigger: an answer waits until it is over. For a rest `from_ns` is an hour before and `to_ns`
//!   ten minutes after it, and the node sends what it has of it. All that stand for the node come when a stream begins, and each
//!   comes once a stream; `:` comments come every 15 s. `by` is the node that told of it, or
//!   `the gateway`, which has a finding (`flight.findings`).
//! - Statuses: 400 `bad_body`, `bad_parameter`; 404 `unknown_incident` (also: the node is not asked for this part); 413
//!   `body_too_large`; 503 `unavailable` (no directory here, or its disk), `too_many_streams`.

mod rows;

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State as Shared};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::{Stream, StreamExt as _};
use gpuvitals_core::clock::Clock;
use gpuvitals_flight::{
    FlightTrigger, JOB_REQUESTS_PATH, JobIncident, JobIncidents, JobMembers, JobRequest, JobTrigger,
    RoundTrip, StandingRequests, WindowPart,
};
use gpuvitals_listener::body::discard;
use gpuvitals_listener::parameter::{self, ParameterError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answered::Answered;
use super::gpus::NoParams;
use super::page;
use crate::api::Api;
use crate::error::ApiError;
use crate::job_members::FreshGpus;
use crate::jobs_kept::{FollowingNode, KeptJobs, on_disk};
use crate::parameter::{Asked, Named, json_body};

const NODES: &str = "/api/v1/flight/incidents/{id}/nodes/{node}";
/// The beginning of a stream: how long to wait before reconnecting, and something to see at once.
const GREETING: &str = "retry: 3000\n: asked here\n\n";
const HEARTBEAT: &str = ": still here\n\n";
/// Shortest wait for what begins to stand soon.
const SOON: Duration = Duration::from_millis(10);
/// Bytes that are read of a file at once.
const PIECE_LEN: usize = 1 << 20;
/// What the times of an answer may be.
const TIMES: &str = "ASKED,HEARD,ANSWERED: nanoseconds UTC since 1970";
/// What a name of a node may be.
const NODE: &str = "NODE or CLUSTER/NODE: 1 to 200 of letters, digits, -, _ and ., no . first";

/// The paths by which nodes and people reach the incidents of jobs.
pub(crate) fn paths() -> Router<Api> {
    Router::new()
        .route(JOB_REQUESTS_PATH, get(follow).post(ask).fallback(refused))
        .route("/api/v1/flight/incidents", get(list))
        .route("/api/v1/flight/incidents/{id}", get(one))
        .route("/api/v1/flight/incidents/{id}/rows", get(rows::rows))
        .route(NODES, get(answer).post(take).fallback(refused))
}

async fn refused(method: Method, uri: Uri) -> Response {
    page::refuse_method(&method, uri.path(), "GET, HEAD, POST")
}

/// The node that follows what it is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FollowParams {
    node: String,
}

/// What a node tells of, or that somebody wants the rest of an incident.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRequest {
    node: Option<String>,
    incident: Option<String>,
    trigger: Option<FlightTrigger>,
    rest: Option<String>,
}

/// What of a node's answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartParams {
    part: Option<String>,
}

/// What a node sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SentParams {
    part: Option<String>,
    cut: Option<String>,
    times: Option<String>,
}

/// An answer that comes in.
struct ComingAnswer {
    id: String,
    node: String,
    part: WindowPart,
    is_cut: bool,
    /// By which it is known how far the node's clock is ahead.
    trip: Option<RoundTrip>,
}

/// The list of incidents.
#[derive(Debug, Serialize)]
struct JobIncidentList {
    incidents: Vec<Arc<JobIncident>>,
}

/// The requests that a node gets, as long as it listens.
async fn follow(Shared(api): Shared<Api>, Asked(FollowParams { node }): Asked<FollowParams>) -> Answered {
    let jobs = Arc::clone(api.jobs()?);
    if !JobIncidents::is_node(&node) {
        return Err(ApiError::parameter("node", &node, NODE));
    }
    let place = jobs.follower(&node)?;
    let body = Body::from_stream(events(api, jobs, node, place));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

fn events(
    api: Api,
    jobs: Arc<KeptJobs>,
    node: String,
    place: FollowingNode,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let _place = place;
        // What is asked for from here on wakes it.
        let mut changed = jobs.changes();
        let mut told: HashSet<(String, &'static str)> = HashSet::new();
        yield Ok(Bytes::from_static(GREETING.as_bytes()));
        loop {
            let now_ns = api.config().clock.now_ns();
            let StandingRequests { now, next_ns } = jobs.incidents.requests(&node, now_ns);
            let name = |request: &JobRequest| (request.id.clone(), request.part.name());
            // One that was not answered in time is told of again if somebody asks for it again.
            let standing: HashSet<_> = now.iter().map(name).collect();
            told.retain(|one| standing.contains(one));
            for request in now {
                if told.insert(name(&request)) {
                    let sent_ns = Some(api.config().clock.now_ns());
                    yield Ok(event(&JobRequest { sent_ns, ..request }));
                }
            }
            let heartbeat = api.config().limits.heartbeat;
            let until = |next_ns: i64| {
                let wait = Duration::from_nanos(next_ns.saturating_sub(now_ns).try_into().unwrap_or_default());
                wait.clamp(SOON.min(heartbeat), heartbeat)
            };
            let heard = tokio::select! {
                () = api.stopping().cancelled() => break,
                heard = tokio::time::timeout(next_ns.map_or(heartbeat, until), changed.changed()) => heard,
            };
            match heard {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    yield Ok(Bytes::from_static(HEARTBEAT.as_bytes()));
                }
            }
        }
    }
}

fn event(request: &JobRequest) -> Bytes {
    // Texts and numbers can always be written.
    let data = serde_json::to_string(request).unwrap_or_default();
    Bytes::from(format!("event: request\nid: {}/{}\ndata: {data}\n\n", request.id, request.part.name()))
}

/// A node tells of a trigger, or somebody wants the rest.
async fn ask(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(NoParams {}): Asked<NoParams>,
    body: Result<Bytes, BytesRejection>,
) -> Answered {
    let jobs = api.jobs()?;
    let incidents = Arc::clone(&jobs.incidents);
    let now_ns = api.config().clock.now_ns();
    let id = match json_body::<NewRequest>(&headers, body)? {
        NewRequest { node: Some(node), incident: Some(incident), trigger: Some(trigger), rest: None } => {
            let told = JobTrigger { node, incident, trigger };
            JobIncidents::check(&told, now_ns)?;
            let members = members(&api, &told).await?;
            on_disk(move || incidents.tell(&told, members.as_ref(), now_ns)).await?
        }
        NewRequest { node: None, incident: None, trigger: None, rest: Some(id) } => {
            on_disk(move || incidents.ask_rest(&id, now_ns).map(|()| Some(id))).await?
        }
        _ => return Err(ApiError::Body("give node, incident and trigger, or rest".to_owned())),
    };
    jobs.changed();
    Ok(Json(json!({ "id": id })).into_response())
}

/// The job that a trigger's GPU was in, or if its rows do not say it, as those of a lost GPU, another of its node.
async fn members(api: &Api, told: &JobTrigger) -> Result<Option<JobMembers>, ApiError> {
    let fleet = api.history().fleet().await?.answer;
    let fresh = FreshGpus::of(&fleet, told.trigger.at_ns);
    let here = fresh.of_node(&told.node);
    let its = here.iter().filter(|gpu| told.trigger.gpu.as_deref() == Some(&*gpu.key));
    Ok(its.chain(&here).find_map(|gpu| fresh.job_of(gpu)))
}

/// All incidents, the newest first.
async fn list(Shared(api): Shared<Api>, Asked(NoParams {}): Asked<NoParams>) -> Answered {
    let incidents = api.jobs()?.incidents.list();
    Ok(Json(JobIncidentList { incidents }).into_response())
}

/// An incident with what each node has answered.
async fn one(Shared(api): Shared<Api>, Named(id): Named, Asked(NoParams {}): Asked<NoParams>) -> Answered {
    let incident = api.jobs()?.incidents.one(&id)?;
    Ok(Json(incident).into_response())
}

/// What a node has sent.
async fn answer(
    Shared(api): Shared<Api>,
    path: Result<Path<(String, String)>, PathRejection>,
    Asked(PartParams { part }): Asked<PartParams>,
) -> Answered {
    let Path((id, node)) = path.map_err(ParameterError::from)?;
    let (incidents, part) = (Arc::clone(&api.jobs()?.incidents), rows::read_part(part.as_deref())?);
    let (file, len) = on_disk(move || incidents.answer(&id, &node, part)).await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(bytes_of(file, len))).into_response())
}

/// A file in pieces, each read when the one before it has gone.
fn bytes_of(file: File, len: u64) -> impl Stream<Item = io::Result<Bytes>> {
    async_stream::stream! {
        let (file, mut at) = (Arc::new(file), 0);
        while at < len {
            let file = Arc::clone(&file);
            let piece_len = usize::try_from(len - at).unwrap_or(PIECE_LEN).min(PIECE_LEN);
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; piece_len];
                file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
            });
            let piece = read.await.unwrap_or_else(|crashed| Err(io::Error::other(crashed)));
            let is_over = piece.is_err();
            at += piece_len as u64;
            yield piece;
            if is_over {
                break;
            }
        }
    }
}

/// Takes what a node answers.
async fn take(
    Shared(api): Shared<Api>,
    path: Result<Path<(String, String)>, PathRejection>,
    Asked(SentParams { part, cut, times }): Asked<SentParams>,
    body: Body,
) -> Answered {
    let came_ns = api.config().clock.now_ns();
    let Path((id, node)) = path.map_err(ParameterError::from)?;
    let (jobs, part) = (api.jobs()?, rows::read_part(part.as_deref())?);
    let is_cut = cut.map_or(Ok(false), |cut| parameter::flag("cut", &cut))?;
    let trip = times.map(|times| round_trip(&times, came_ns)).transpose()?;
    let mut pieces = body.into_data_stream();
    let coming = ComingAnswer { id, node, part, is_cut, trip };
    let taken = received(jobs, coming, &mut pieces, &api.config().clock).await;
    if !matches!(taken, Ok(true)) {
        // The client reads the answer when it has sent all.
        discard(&mut Body::from_stream(pieces)).await;
    }
    // Nobody is woken: an answer asks nobody for anything.
    let is_new = taken?;
    Ok(Json(json!({ "is_new": is_new })).into_response())
}

/// The times that a node sends, as `ASKED,HEARD,ANSWERED`, and when the first of its answer came.
fn round_trip(text: &str, came_ns: i64) -> Result<RoundTrip, ApiError> {
    let times: Option<Vec<i64>> = text.split(',').map(|time| time.parse().ok()).collect();
    match times.as_deref() {
        Some(&[asked_ns, heard_ns, answered_ns]) => {
            Ok(RoundTrip { asked_ns, heard_ns, answered_ns, came_ns })
        }
        _ => Err(ApiError::parameter("times", text, TIMES)),
    }
}

async fn received(
    jobs: &KeptJobs,
    ComingAnswer { id, node, part, is_cut, trip }: ComingAnswer,
    pieces: &mut BodyDataStream,
    clock: &Clock,
) -> Result<bool, ApiError> {
    let _permit = jobs.arrival().await?;
    let incidents = Arc::clone(&jobs.incidents);
    let Some(mut incoming) = on_disk(move || incidents.receive(&id, &node, part)).await? else {
        return Ok(false);
    };
    if let Some(trip) = trip {
        incoming.timed(trip);
    }
    let mut room = jobs.room();
    while let Some(bytes) = pieces.next().await {
        let bytes = bytes.map_err(|_| ApiError::Body("it ended early".to_owned()))?;
        room.grow(bytes.len()).map_err(|_| ApiError::Overloaded)?;
        incoming = on_disk(move || incoming.take(&bytes).map(|()| incoming)).await?;
    }
    let _turn = jobs.turn().await?;
    // On a slow line it is minutes since the first byte came.
    let (incidents, came_ns) = (Arc::clone(&jobs.incidents), clock.now_ns());
    on_disk(move || incidents.keep(incoming, is_cut, came_ns)).await
}
