//! Incidents of jobs, as far as findings and GPUs tell of them.

use gpuvitals_flight::{FirstVictim, JobIncident, WindowPart};
use serde::Serialize;
use utoipa::ToSchema;

use super::Moment;

/// An incident of a job, of which each node keeps a part in its flight recorder; docs/flight.md says how to get all of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IncidentNote<'a> {
    /// Its id, as `gpuvitals flight fetch` takes it.
    #[schema(example = "20261130T031459Z-xid")]
    id: &'a str,
    /// The job or pod, as `cluster/namespace/name`.
    #[schema(example = "a/research/train-7")]
    job: &'a str,
    /// What set it off: `xid`, `lost`, `threshold` and so on, see docs/flight.md.
    #[schema(example = "xid")]
    kind: &'a str,
    /// The same in words.
    detail: &'a str,
    /// When that was.
    at: Moment,
    /// The first instant that its nodes are asked for.
    start: Moment,
    /// The last instant that they are asked for.
    end: Moment,
    /// How many nodes are asked.
    #[schema(example = 3)]
    nodes_asked: usize,
    /// How many of them have answered.
    #[schema(example = 2)]
    nodes_had: usize,
    /// The GPU that failed first, as far as is known now; null: none is known.
    first: Option<IncidentVictim<'a>>,
    /// Whether rows at the rate of the node's recorder are here, of the GPU, or of a finding's.
    has_rows: bool,
}

/// The GPU that failed first, by the clock of its node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IncidentVictim<'a> {
    /// The id of the GPU.
    gpu: &'a str,
    /// The name of its node.
    hostname: &'a str,
    /// When it failed.
    at: Moment,
    /// How it failed, in words.
    why: &'a str,
    /// Why another one may have been the first, as the clocks and readings of two nodes do not tell; null: nothing speaks for that.
    #[schema(
        example = "cannot tell which came first: how far the clocks of n1 and n2 are apart is not known"
    )]
    doubt: Option<&'a str>,
}

impl<'a> IncidentNote<'a> {
    /// An incident, as these GPUs have it.
    pub(crate) fn of<'g>(incident: &'a JobIncident, mut gpus: impl Iterator<Item = &'g str>) -> Self {
        let set_off = incident.triggers.first().map(|told| &told.trigger);
        let window = WindowPart::Window;
        Self {
            id: &incident.id,
            job: &incident.job,
            kind: set_off.map_or("", |trigger| trigger.kind.as_str()),
            detail: set_off.map_or("", |trigger| trigger.detail.as_str()),
            at: Moment(incident.at_ns()),
            start: Moment(incident.asked.from_ns),
            end: Moment(incident.asked.to_ns),
            nodes_asked: incident.nodes.len(),
            nodes_had: incident.nodes.iter().filter(|node| node.answer(window).is_some()).count(),
            first: incident.first.as_ref().map(IncidentVictim::of),
            has_rows: gpus.any(|gpu| incident.sender(gpu, window).is_some()),
        }
    }
}

impl<'a> IncidentVictim<'a> {
    fn of(first: &'a FirstVictim) -> Self {
        let hostname = first.node.split_once('/').map_or(first.node.as_str(), |(_, name)| name);
        Self {
            gpu: &first.gpu,
            hostname,
            at: Moment(first.at_ns),
            why: &first.why,
            doubt: first.doubt.as_deref(),
        }
    }
}
