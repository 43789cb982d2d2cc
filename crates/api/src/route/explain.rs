//! `/api/v1/gpus/{id}/explain`: why was this GPU slow?

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::explain::{self, Happened, Presence, SlowTime};
use gpuvitals_analysis::findings::{GpuWindow, Recent, holder_of};
use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::history::{BucketsInParts, Fleet, GpuState, History, Part, QueryError, RowsQuery};
use gpuvitals_core::time::{DAY_NS, MINUTE_NS};
use gpuvitals_core::{IdentityColumn, Table};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::Instant;
use crate::dto::{Explanation, Moment, PeerGroup};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{Asked, Named};

/// Range without a start.
const DEFAULT_NS: i64 = 10 * MINUTE_NS;
/// Longest range that is explained, nanoseconds: a day.
const LONGEST_NS: i64 = DAY_NS;
/// Most GPUs that one is compared with.
const PEERS_MAX: usize = 63;
/// Most GPUs of the same host that are read as neighbours.
const NEIGHBOURS_MAX: usize = 63;
/// Most events that are read.
const EVENTS_MAX: usize = 1_000;

/// What may be asked of `GET /api/v1/gpus/{id}/explain`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainParams {
    /// First instant; 10 minutes before the end unless given, 24 hours at most.
    #[param(example = "2026-11-20T15:50:00Z")]
    start: Option<Instant>,
    /// Last instant; unless given now, or 24 hours after the start if that is earlier.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
}

/// A question why a GPU was slow.
#[derive(Debug)]
struct ExplainAsk {
    id: String,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
}

/// Why a GPU was slow: what held it up, the heaviest first.
///
/// Whole minutes of the range: shares of time under each limit and whether the other GPUs of its host were held down as well, its
/// clock, load and links beside those of its job's other GPUs (or of others of its model), and events in its health.
#[utoipa::path(
    get, path = "/api/v1/gpus/{id}/explain", tag = "analysis", operation_id = "explain_gpu",
    params(
        ("id" = String, Path, description = "Id of the GPU: a key, UUID, PCI address, `host:gpuN` or name (`node-1 / GPU 6`).", example = "sim-node-0001:gpu1"),
        ExplainParams
    ),
    responses(
        (status = 200, description = "The causes.", body = Explanation<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No such GPU, or several, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or the GPU may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn explain(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Named(id): Named,
    Asked(params): Asked<ExplainParams>,
) -> Answered {
    let start_ns = Instant::read("start", params.start.as_ref())?;
    let end_ns = Instant::read("end", params.end.as_ref())?;
    api.answer(ExplainAsk { id, start_ns, end_ns }, &headers).await
}

impl ExplainAsk {
    /// First and last instant.
    fn range(&self, now_ns: i64) -> Result<(i64, i64), ApiError> {
        // Without an end it is as much as can be explained.
        let longest = self.start_ns.map_or(i64::MAX, |start_ns| start_ns.saturating_add(LONGEST_NS));
        let end_ns = self.end_ns.unwrap_or(now_ns.min(longest));
        let start_ns = self.start_ns.unwrap_or_else(|| end_ns.saturating_sub(DEFAULT_NS));
        if end_ns < start_ns {
            return Err(ApiError::EndBeforeStart);
        }
        if end_ns.saturating_sub(start_ns) > LONGEST_NS {
            let start = gpuvitals_core::time::format(start_ns);
            return Err(ApiError::parameter("start", &start, "at most 24 hours before the end"));
        }
        Ok((start_ns, end_ns))
    }
}

impl Ask for ExplainAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        let gpu = fleet.find(&self.id).map_err(|why| ApiError::no_gpu(&self.id, why, &missing))?;
        let gpu = Arc::clone(gpu);
        let (start_ns, end_ns) = self.range(view.now_ns())?;
        let peers = Peers::of(&gpu, &fleet);
        let neighbours = neighbours(&gpu, &fleet);
        let history = view.history.as_ref();
        let gpus = peers.gpus.iter().chain(&neighbours).chain([&gpu]);
        let Part { answer: recent, missing: more } = minutes(history, gpus, (start_ns, end_ns)).await?;
        let missing = ask::joined(missing, more);
        let Part { answer: buckets, missing: more } =
            history.buckets(Recent::presence_query(Arc::clone(&gpu.key), start_ns, end_ns)).await?;
        let missing = ask::joined(missing, more);
        let Part { answer: values, missing: more } =
            view.history.buckets(Happened::query(&gpu, start_ns, end_ns)).await?;
        let missing = ask::joined(missing, more);
        let of_gpu = RowsQuery {
            gpus: vec![Arc::clone(&gpu.key)],
            start_ns: Some(start_ns),
            end_ns: Some(end_ns),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, EVENTS_MAX)
        };
        let Part { answer: events, missing: more } =
            ask::health_events(view.history.as_ref(), of_gpu).await?;
        view.render(ask::joined(missing, more), move |view, _| {
            let windows_of =
                |gpus: &[Arc<GpuState>]| gpus.iter().filter_map(|gpu| recent.window(gpu)).collect();
            let windows: Vec<GpuWindow> = windows_of(&peers.gpus);
            let neighbours: Vec<GpuWindow> = windows_of(&neighbours);
            let happened = Happened::of(&values, &gpu, start_ns);
            let events = with_values(events, happened.events);
            let own = recent.window(&gpu);
            let time = SlowTime {
                gpu: &gpu,
                own,
                peers: &windows,
                neighbours: &neighbours,
                presence: Presence::of(&buckets, &gpu, end_ns, view.now_ns()),
                events: &events,
                xid_before: happened.xid_before,
                model_power_w: explain::model_power_w(&gpu, &fleet),
            };
            let causes = explain::explain(&time);
            let verdict = causes.first().map_or_else(
                || "nothing unusual is known about this time".to_owned(),
                |cause| cause.sentence.clone(),
            );
            let answer = Explanation {
                gpu: &gpu.key,
                name: gpu.name(),
                start: Moment(buckets.steps().time(1)),
                end: Moment(end_ns),
                verdict,
                causes: causes.iter().map(Into::into).collect(),
                peers: PeerGroup {
                    basis: peers.basis.filter(|_| !windows.is_empty()),
                    name: peers.name.as_deref().filter(|_| !windows.is_empty()),
                    count: windows.len(),
                },
                figures: own.filter(|own| own.minutes > 0).map(Into::into),
                events: events.iter().map(Into::into).collect(),
            };
            let up_to_now = || view.now_ns().saturating_add(MINUTE_NS / 4);
            Body::until(self.end_ns.map_or_else(up_to_now, |_| i64::MAX), &answer)
        })
        .await
    }
}

/// The minutes of some GPUs. Many over a day, or one that often changes hands, are more than one answer may have.
async fn minutes(
    history: &dyn History,
    gpus: impl Iterator<Item = &Arc<GpuState>>,
    (start_ns, end_ns): (i64, i64),
) -> Result<Part<Recent>, QueryError> {
    let keys: HashSet<&Arc<str>> = gpus.map(|gpu| &gpu.key).collect();
    let keys = keys.into_iter().cloned().collect();
    let mut parts = BucketsInParts::new(Recent::range_query(keys, start_ns, end_ns));
    let mut found = Part::whole(Recent::of_range());
    while let Some(Part { answer, missing }) = parts.next(history).await? {
        let taking = move || {
            found.answer.take(&answer);
            found.missing = ask::joined(found.missing, missing);
            found
        };
        found = tokio::task::spawn_blocking(taking).await.map_err(QueryError::failed)?;
    }
    Ok(found)
}

/// Events that an agent wrote, and those that the values show of the kinds that it did not write.
fn with_values(mut written: Vec<HealthEvent>, shown: Vec<HealthEvent>) -> Vec<HealthEvent> {
    let kinds: HashSet<Arc<str>> = written.iter().map(|event| Arc::clone(&event.kind)).collect();
    written.extend(shown.into_iter().filter(|event| !kinds.contains(&event.kind)));
    written.sort_by_key(|event| event.at_ns);
    written
}

/// The other GPUs of its host.
fn neighbours(gpu: &GpuState, fleet: &Fleet) -> Vec<Arc<GpuState>> {
    let place = |gpu: &GpuState| {
        [IdentityColumn::Cluster, IdentityColumn::Node].map(|column| gpu.identity.shared(column).cloned())
    };
    let own = place(gpu);
    let others = fleet
        .gpus
        .iter()
        // Partitions of one GPU share its limits.
        .filter(|other| other.identity.uuid() != gpu.identity.uuid())
        .filter(|other| other.identity.node().is_some() && place(other) == own);
    others.take(NEIGHBOURS_MAX).cloned().collect()
}

/// The GPUs that one is compared with.
#[derive(Debug)]
struct Peers {
    basis: Option<&'static str>,
    name: Option<Arc<str>>,
    gpus: Vec<Arc<GpuState>>,
}

impl Peers {
    /// The others of its job if there are three at least, else others of its model.
    fn of(gpu: &Arc<GpuState>, fleet: &Fleet) -> Self {
        const OF_JOB_MIN: usize = 3;
        let others = |is_peer: &dyn Fn(&GpuState) -> bool| {
            let others = fleet.gpus.iter().filter(|other| other.key != gpu.key && is_peer(other));
            others.take(PEERS_MAX).cloned().collect::<Vec<_>>()
        };
        if let Some(holder) = holder_of(gpu) {
            let gpus = others(&|other| holder_of(other).as_ref() == Some(&holder));
            if gpus.len() >= OF_JOB_MIN {
                return Self { basis: Some("job"), name: Some(holder), gpus };
            }
        }
        let model = gpu.identity.shared(IdentityColumn::Model).cloned();
        let is_alike = |other: &GpuState| {
            model.is_some() && other.identity.shared(IdentityColumn::Model) == model.as_ref()
        };
        Self { basis: Some("model"), name: model.clone(), gpus: others(&is_alike) }
    }
}
