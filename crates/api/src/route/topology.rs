//! `/api/v1/hosts/{hostname}/topology`.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::details::{self, NewestDetails};
use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Fleet, GpuState, Part, QueryError, Rows};
use gpuvitals_core::{IdentityColumn, MetricId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::Instant;
use crate::dto::{GpuLink, GpuPlace, Moment, Topology};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{Asked, Named};

const NUMA_NODE: MetricId = MetricId::of("numa_node");
const LINKS_UP: MetricId = MetricId::of("interconnect_links_up");
const LINKS: MetricId = MetricId::of("interconnect_links");
/// Most rows of details that are read: of a host with 16 GPUs of 18 links each, eleven minutes.
const ROWS_MAX: usize = 50_000;

/// What may be asked of `GET /api/v1/hosts/{hostname}/topology`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopologyParams {
    /// As of this instant, by the history up to it. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// A question for the topology of a host.
#[derive(Debug)]
struct TopologyAsk(String);

/// Where the GPUs of a host are plugged in, and what their links lead to.
///
/// As the drivers tell it: the NUMA node by the PCI device (AMD) or by NVML, the other ends of NVLinks by NVML, those of xGMI links by the
/// compute driver's topology.
#[utoipa::path(
    get, path = "/api/v1/hosts/{hostname}/topology", tag = "hosts", operation_id = "get_host_topology",
    params(("hostname" = String, Path, description = "The host.", example = "sim-node-01"), TopologyParams),
    responses(
        (status = 200, description = "Its GPUs and their links.", body = Topology<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such host.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn of_host(
    Shared(api): Shared<Api>,
    Named(hostname): Named,
    headers: HeaderMap,
    Asked(params): Asked<TopologyParams>,
) -> Answered {
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, TopologyAsk(hostname), &headers).await
}

impl Ask for TopologyAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Self(hostname) = self;
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        // Instances of a divided GPU have no place of their own.
        let is_its = |gpu: &&Arc<GpuState>| {
            gpu.identity.node() == Some(&hostname) && gpu.identity.get(IdentityColumn::Partition).is_none()
        };
        let mut gpus: Vec<Arc<GpuState>> = fleet.gpus.iter().filter(is_its).cloned().collect();
        gpus.sort_by(|a, b| (a.identity.index, &a.key).cmp(&(b.identity.index, &b.key)));
        // A host that is silent is shown as it last was.
        let Some(seen_ns) = gpus.iter().map(|gpu| gpu.last_seen_ns).max() else {
            return Err(ApiError::no_host(&hostname, &missing));
        };
        let keys = gpus.iter().map(|gpu| Arc::clone(&gpu.key)).collect();
        let rows = match view.history.rows(details::query(keys, seen_ns, ROWS_MAX)).await {
            Err(QueryError::NotKept { .. }) => Part::whole(Rows::default()),
            answered => answered?,
        };
        let missing = ask::joined(missing, rows.missing);
        let ends = rows.answer.batch.as_ref().map(|batch| details::newest(batch, LINKS)).unwrap_or_default();
        view.render(missing, move |_, partial| {
            Body::until(
                i64::MAX,
                &Topology {
                    hostname: &hostname,
                    as_of: Moment(seen_ns),
                    gpus: gpus.iter().map(|gpu| place(gpu)).collect(),
                    links: links(&gpus, &ends),
                    partial,
                },
            )
        })
        .await
    }
}

fn place(gpu: &GpuState) -> GpuPlace<'_> {
    let whole = |metric| match Fleet::latest(gpu, metric)?.value {
        Value::Int(value) => Some(value),
        _ => None,
    };
    GpuPlace {
        id: &gpu.key,
        name: gpu.name(),
        index: gpu.identity.index,
        pci: gpu.identity.get(IdentityColumn::Pci),
        numa_node: whole(NUMA_NODE),
        links_up: whole(LINKS_UP),
    }
}

/// What the links lead to, GPU by GPU.
fn links(gpus: &[Arc<GpuState>], ends: &NewestDetails) -> Vec<GpuLink> {
    let at = |peer: &str| {
        let has_address = |gpu: &&Arc<GpuState>| gpu.identity.get(IdentityColumn::Pci) == Some(peer);
        gpus.iter().find(has_address).map(|gpu| gpu.key.to_string())
    };
    let of = |gpu: &Arc<GpuState>| {
        let ends = ends.get(&gpu.key).into_iter().flatten();
        let key = gpu.key.to_string();
        ends.map(move |(peer, links)| GpuLink {
            gpu: key.clone(),
            to_gpu: at(peer),
            peer: peer.to_string(),
            links: whole(*links),
        })
        .collect::<Vec<_>>()
    };
    gpus.iter().flat_map(of).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a number of links, at most 256 by the catalogue")]
fn whole(links: f64) -> i64 {
    links as i64
}
