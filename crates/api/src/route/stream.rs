//! `/api/v1/stream`: rows as they become durable, as server-sent events.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::Stream;
use gpuvitals_core::history::{Change, Changes, Fleet, NoGpu, Part};
use gpuvitals_core::{Batch, Table};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use super::Answered;
use super::rows::GpuRows;
use crate::api::Api;
use crate::ask;
use crate::dto::TelemetryEntry;
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};

/// Rows of one event. A larger append comes as several, so that no event is larger than about a megabyte.
const EVENT_ROWS_MAX: usize = 1_000;
/// The beginning of a stream: how long to wait before reconnecting, and something to see at once.
const GREETING: &str = "retry: 3000\n: live\n\n";
const HEARTBEAT: &str = ": still here\n\n";

/// Which rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Ids or other names of the GPUs, between commas; all without it. One that is not known yet may come later.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// Columns wanted, between commas; all without it. Rows without a value in any of them are left out.
    #[param(example = "power_w,utilization_pct")]
    metrics: Option<String>,
    /// Only GPUs of these hosts, between commas.
    #[param(example = "sim-node-01")]
    hosts: Option<String>,
}

/// New rows as they arrive.
///
/// Server-sent events. `samples`: the data is a JSON array of telemetry entries, at most 1,000. `lagged`: the client
/// was too slow; the data is `{"missed": n}`, the number of batches of rows that it did not get and can ask for with
/// `/api/v1/telemetry`. `partial`: comes first if part of the fleet could not be read; the data is a JSON array that says
/// what, in words. A comment comes after 15 s of silence. The stream ends when the gateway stops; at most 256
/// streams (unless configured) are open at a time.
#[utoipa::path(
    get, path = "/api/v1/stream", tag = "telemetry", operation_id = "stream", params(StreamParams),
    responses(
        (status = 200, description = "The events; the schema is that of the data of a `samples` event.",
         content_type = "text/event-stream", body = Vec<TelemetryEntry<'static>>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too many streams are open, or a name may be in what could not be read (code `incomplete`).", body = ErrorBody),
    )
)]
pub(crate) async fn stream(Shared(api): Shared<Api>, Asked(params): Asked<StreamParams>) -> Answered {
    let fleet = api.history().fleet().await?;
    let filter = Filter::parse(&params, &fleet)?;
    let permit = api.stream_permit()?;
    let changes = api.history().changes();
    let partial = ask::partial(&fleet.missing);
    let body = Body::from_stream(events(api, changes, filter, fleet.missing, permit));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok(ask::with_partial((headers, body).into_response(), partial))
}

fn events(
    api: Api,
    mut changes: Box<dyn Changes>,
    mut filter: Filter,
    missing: Vec<String>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let _permit = permit;
        yield Ok(Bytes::from_static(GREETING.as_bytes()));
        if !missing.is_empty() && let Ok(event) = event("partial", &missing) {
            yield Ok(event);
        }
        loop {
            let received = tokio::select! {
                () = api.stopping().cancelled() => break,
                received = tokio::time::timeout(api.config().limits.heartbeat, changes.next()) => received,
            };
            match received {
                Err(_) => yield Ok(Bytes::from_static(HEARTBEAT.as_bytes())),
                Ok(None) => break,
                Ok(Some(Change::Missed(missed))) => {
                    api.meter().lagged(missed);
                    yield Ok(Bytes::from(format!("event: lagged\ndata: {{\"missed\":{missed}}}\n\n")));
                }
                Ok(Some(Change::Rows(appended))) => {
                    if !filter.names.is_empty() && let Ok(fleet) = api.history().fleet().await {
                        filter.resolve(&fleet.answer);
                    }
                    for event in appended.iter().flat_map(|batch| filter.events(batch)) {
                        yield Ok(event);
                    }
                }
            }
        }
    }
}

/// A client's filter.
#[derive(Debug)]
struct Filter {
    /// Keys of GPUs; none means all, if there are no names to resolve either.
    gpus: HashSet<Arc<str>>,
    /// Names that were no GPU's when the fleet was last looked at.
    names: Vec<Arc<str>>,
    hosts: HashSet<Arc<str>>,
    metrics: Option<Vec<String>>,
}

impl Filter {
    fn parse(params: &StreamParams, fleet: &Part<Arc<Fleet>>) -> Result<Self, ApiError> {
        let mut filter = Self {
            gpus: HashSet::new(),
            names: parameter::list("gpus", params.gpus.as_ref())?,
            hosts: parameter::list("hosts", params.hosts.as_ref())?.into_iter().collect(),
            metrics: parameter::columns(Table::GpuEvents, params.metrics.as_ref())?,
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

    /// The rows of a batch that are wanted, as events.
    fn events(&self, batch: &Batch) -> Vec<Bytes> {
        let Some(rows) =
            GpuRows::of(batch, self.metrics.as_deref()).filter(|_| batch.table() == Table::GpuEvents)
        else {
            return Vec::new();
        };
        let wanted: Vec<TelemetryEntry<'_>> = rows.entries().filter(|entry| self.wants(entry)).collect();
        wanted.chunks(EVENT_ROWS_MAX).filter_map(|rows| event("samples", rows).ok()).collect()
    }
}

/// An event with a list as its data.
fn event(name: &str, list: &[impl Serialize]) -> Result<Bytes, serde_json::Error> {
    let mut event = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut event, list)?;
    event.extend_from_slice(b"\n\n");
    Ok(Bytes::from(event))
}
