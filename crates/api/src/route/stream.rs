//! `/api/v1/stream`: rows as they become durable, as server-sent events.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::Stream;
use gpuvitals_core::history::{Change, Fleet, NoGpu, Part, Selector};
use gpuvitals_core::{Batch, Table};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::answered::Answered;
use super::rows::GpuRows;
use crate::api::Api;
use crate::ask;
use crate::asked::{Columns, Where};
use crate::dto::{Moment, TelemetryEntry};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};
use crate::recent::{StreamFollower, StreamNext, StreamPlace};
use crate::selector::Tests;

/// Most rows of one event; a larger append comes as several.
const EVENT_ROWS_MAX: usize = 1_000;
/// Bytes after which an event takes no further row: so much is held for a client that reads nothing, and a part of it once more.
const EVENT_BYTES: usize = 512 << 10;
/// The beginning of a stream: how long to wait before reconnecting, and something to see at once.
const GREETING: &str = "retry: 3000\n: live\n";
const HEARTBEAT: &str = ": still here\n";
/// The id of the last event that a client got before it came back.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What may be asked of `GET /api/v1/stream`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Ids or other names of the GPUs, between commas; all without it. One that is not known yet may come later.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// Columns wanted, between commas; all without it. Rows without a value in any of them are left out.
    #[param(inline, example = "power_w,utilization_pct")]
    metrics: Option<Columns>,
    /// Only GPUs of these hosts, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// The older name of `host`; both together name all of them.
    #[param(example = "sim-node-01")]
    hosts: Option<String>,
    /// Only rows whose identity passes these tests, between semicolons: `column=value,value`, `column!=value,value`,
    /// `column=~pattern`, `column!~pattern`. A row without a text in the column has the empty one.
    #[serde(rename = "where")]
    #[param(rename = "where", inline, example = "namespace=research;job!=")]
    selector: Option<Where>,
}

/// New rows as they arrive.
///
/// Server-sent events. `samples`: the data is a JSON array of telemetry entries, at most 1,000. `lagged`: the client
/// was too slow; the data is `{"missed": n}`, the number of batches of rows that it did not get and can ask for with
/// `/api/v1/telemetry`. `partial`: comes first if part of the fleet could not be read; the data is a JSON array that says
/// what, in words. Events have ids: a client that comes back with the last one in the header `Last-Event-ID`, as browsers do by
/// themselves, first gets what came since, once and in order. The rows of the last five minutes are kept for that, as far as they fit
/// into 32 MiB and a stream was open; `gap` says that not all that came since is there; the data is `{"since": time}`, from where
/// `/api/v1/telemetry` has the rest. An id without event, and a comment, come after 15 s of silence. The stream ends when the
/// gateway stops; the setting `api.streams` says how many may be open at a time.
#[utoipa::path(
    get, path = "/api/v1/stream", tag = "telemetry", operation_id = "stream",
    params(
        StreamParams,
        ("last-event-id" = Option<String>, Header, description = "The id of the last event that the client got.",
         example = "1795190390000000-1-5c1d0a44"),
    ),
    responses(
        (status = 200, description = "The events; the schema is that of the data of a `samples` event.",
         content_type = "text/event-stream", body = Vec<TelemetryEntry<'static>>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too many streams are open, or a name may be in what could not be read (code `incomplete`).", body = ErrorBody),
    )
)]
pub(crate) async fn stream(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<StreamParams>,
) -> Answered {
    let fleet = api.history().fleet().await?;
    let filter = StreamFilter::parse(&params, &fleet).await?;
    let permit = api.stream_permit()?;
    let opening = Opening::of(&api, &headers, fleet.missing);
    let partial = ask::partial(&opening.missing);
    let body = Body::from_stream(events(api, opening, filter, permit));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok(ask::with_partial((headers, body).into_response(), partial))
}

/// How a stream begins.
struct Opening {
    follower: StreamFollower,
    /// What could not be read of the fleet.
    missing: Vec<String>,
    /// If not all that came since the client left is there: since when.
    gap: Option<Value>,
}

impl Opening {
    fn of(api: &Api, headers: &HeaderMap, missing: Vec<String>) -> Self {
        let asked = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
        let last: Option<StreamPlace> = asked.and_then(|id| id.to_str().ok()?.parse().ok());
        let follower = api.recent().follow(|| api.history().changes(), last);
        let has_gap = asked.is_some() && !follower.is_resumed;
        let gap = has_gap.then(|| json!({ "since": last.map(|last| Moment(last.at_ns())) }));
        Self { follower, missing, gap }
    }

    /// The first events, with the id from which a client that gets no others goes on.
    fn events(&self) -> String {
        let missing = Some(&self.missing).filter(|missing| !missing.is_empty());
        let partial = missing.map(|missing| format!("event: partial\ndata: {}\n\n", json!(missing)));
        let gap = self.gap.as_ref().map(|gap| format!("event: gap\ndata: {gap}\n\n"));
        let greeting = format!("{GREETING}id: {}\n\n", self.follower.place());
        greeting + &partial.unwrap_or_default() + &gap.unwrap_or_default()
    }
}

fn events(
    api: Api,
    opening: Opening,
    mut filter: StreamFilter,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let _permit = permit;
        yield Ok(Bytes::from(opening.events()));
        let Opening { mut follower, .. } = opening;
        let heartbeat = api.config().limits.heartbeat;
        let (mut place, mut silent_since) = (follower.place(), Instant::now());
        // Of the change that is being sent.
        let mut rows_passed = 0;
        loop {
            let received = tokio::select! {
                () = api.stopping().cancelled() => break,
                received = tokio::time::timeout_at(silent_since + heartbeat, follower.next()) => received,
            };
            let sent = match received {
                Err(_) => vec![Bytes::from(format!("{HEARTBEAT}id: {place}\n\n"))],
                Ok(None) => break,
                Ok(Some(StreamNext::Missed(missed))) => {
                    rows_passed = 0;
                    vec![lagged(&api, missed, None)]
                }
                Ok(Some(StreamNext::Change(at, Change::Missed(missed)))) => {
                    place = at.behind(1);
                    if at.events() > 0 { Vec::new() } else { vec![lagged(&api, missed, Some(place))] }
                }
                Ok(Some(StreamNext::Change(at, Change::Rows(appended)))) => {
                    if !filter.names.is_empty() && let Ok(fleet) = api.history().fleet().await {
                        filter.resolve(&fleet.answer);
                    }
                    // One at a time: for a client that reads nothing neither the others are made nor the change is held.
                    let event = filter.event(&appended, at, &mut rows_passed);
                    place = at.behind(at.events().saturating_add(u32::from(event.is_some())));
                    let of_gpus = appended.iter().filter(|batch| batch.table() == Table::GpuEvents);
                    if event.is_some() && rows_passed < of_gpus.map(Batch::rows).sum::<usize>() {
                        follower.stay(place);
                    } else {
                        rows_passed = 0;
                    }
                    event.map(|rows| samples(&rows, place)).into_iter().collect()
                }
            };
            for event in sent {
                silent_since = Instant::now();
                yield Ok(event);
            }
        }
    }
}

/// The event of rows that a client does not get.
fn lagged(api: &Api, missed: u64, place: Option<StreamPlace>) -> Bytes {
    api.meter().lagged(missed);
    let id = place.map(|place| format!("id: {place}\n")).unwrap_or_default();
    Bytes::from(format!("event: lagged\n{id}data: {{\"missed\":{missed}}}\n\n"))
}

/// A client's filter.
#[derive(Debug)]
struct StreamFilter {
    /// Keys of GPUs; none means all, if there are no names to resolve either.
    gpus: HashSet<Arc<str>>,
    /// Names that were no GPU's when the fleet was last looked at.
    names: Vec<Arc<str>>,
    hosts: HashSet<Arc<str>>,
    metrics: Option<Vec<String>>,
    /// Tests of the rows' identities.
    selector: Selector,
}

impl StreamFilter {
    async fn parse(params: &StreamParams, fleet: &Part<Arc<Fleet>>) -> Result<Self, ApiError> {
        let mut filter = Self {
            gpus: HashSet::new(),
            names: parameter::list("gpus", params.gpus.as_ref())?,
            hosts: parameter::hosts(params.host.as_ref(), params.hosts.as_ref())?.into_iter().collect(),
            metrics: Columns::read(Table::GpuEvents, params.metrics.as_ref())?,
            selector: Tests::parse(params.selector.as_ref())?.selector().await?,
        };
        parameter::known_columns(Table::GpuEvents, filter.metrics.as_deref(), fleet)?;
        for name in &filter.names {
            if let Err(why @ NoGpu::Ambiguous(_)) = fleet.answer.find(name) {
                return Err(ApiError::no_gpu(name, why, &fleet.missing));
            }
        }
        filter.resolve(&fleet.answer);
        Ok(filter)
    }

    /// Takes the keys of those names that are GPUs by now.
    fn resolve(&mut self, fleet: &Fleet) {
        let gpus = &mut self.gpus;
        self.names.retain(|name| match fleet.get(name) {
            Some(gpu) => {
                gpus.insert(Arc::clone(&gpu.key));
                false
            }
            None => true,
        });
    }

    fn wants(&self, entry: &TelemetryEntry<'_>) -> bool {
        (self.gpus.contains(entry.gpu_id.as_ref()) || (self.gpus.is_empty() && self.names.is_empty()))
            && (self.hosts.is_empty() || entry.hostname.is_some_and(|host| self.hosts.contains(host)))
            && (self.metrics.is_none() || !entry.metrics.is_empty())
    }

    /// The rows of the next event of a change, as JSON, if there are more that are wanted. The first `rows_passed` rows of the
    /// change have been looked at; without any, the events that have passed at `at` are passed over.
    fn event(&self, appended: &[Batch], at: StreamPlace, rows_passed: &mut usize) -> Option<Vec<u8>> {
        let passed = if *rows_passed == 0 { at.events() } else { 0 };
        for _ in 0..passed {
            self.next_event(appended, rows_passed)?;
        }
        self.next_event(appended, rows_passed)
    }

    fn next_event(&self, appended: &[Batch], rows_passed: &mut usize) -> Option<Vec<u8>> {
        let mut first = 0;
        for batch in appended.iter().filter(|batch| batch.table() == Table::GpuEvents) {
            let end = first + batch.rows();
            if *rows_passed < end
                && let Some(rows) = GpuRows::of(batch, self.metrics.as_deref())
                && let Some(event) = self.event_of(&rows, first, rows_passed)
            {
                return Some(event);
            }
            *rows_passed = end.max(*rows_passed);
            first = end;
        }
        None
    }

    /// An event of rows of a batch, the first of which is row `first` of the change.
    fn event_of(&self, rows: &GpuRows<'_>, first: usize, rows_passed: &mut usize) -> Option<Vec<u8>> {
        let (mut event, mut count) = (Vec::new(), 0);
        for (row, entry) in rows.entries().enumerate().skip(rows_passed.saturating_sub(first)) {
            *rows_passed = first + row + 1;
            if !self.wants(&entry) || !self.selector.selects(|column| rows.text(column, row)) {
                continue;
            }
            let len = event.len();
            event.push(if count == 0 { b'[' } else { b',' });
            if serde_json::to_writer(&mut event, &entry).is_err() {
                event.truncate(len);
                continue;
            }
            count += 1;
            if count == EVENT_ROWS_MAX || event.len() >= EVENT_BYTES {
                break;
            }
        }
        (count > 0).then(|| {
            event.push(b']');
            event
        })
    }
}

/// An event with rows.
fn samples(rows: &[u8], place: StreamPlace) -> Bytes {
    let mut event = format!("event: samples\nid: {place}\ndata: ").into_bytes();
    event.extend_from_slice(rows);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}
