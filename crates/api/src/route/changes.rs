//! `/api/v1/analysis/changes`: jobs that start and end on nodes, and drivers that change.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::Part;
use gpuvitals_core::usage::{GpuUse, UseDetail, UseQuery};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use super::usage::USE_REUSED_NS;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{Instant, Limit, Offset, Paging, TimeRange};
use crate::config::Limits;
use crate::dto::{Change, ChangeKind, ChangeList, Moment};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};

/// What may be asked of `GET /api/v1/analysis/changes`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesParams {
    /// First instant; an hour before the end unless given.
    #[param(example = "2026-11-20T15:00:00Z")]
    start: Option<Instant>,
    /// Last instant; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// Only changes on these hosts, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Only these kinds, between commas: `job_started`, `job_ended`, `driver_changed`, `vbios_changed`.
    #[param(
        pattern = "^ *(?:(?:job_started|job_ended|driver_changed|vbios_changed)? *, *)*(?:job_started|job_ended|driver_changed|vbios_changed)? *$",
        example = "driver_changed"
    )]
    kind: Option<String>,
    /// Most changes to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Changes to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// A question for changes.
#[derive(Debug)]
struct ChangesAsk {
    range: TimeRange,
    hosts: Vec<Arc<str>>,
    kinds: Vec<ChangeKind>,
    page: Paging,
}

/// Jobs that started or ended on a node, and drivers and VBIOSes that changed: the newest first.
///
/// They are found in the rows of the range, so they are known of recordings and of the time before the gateway ran, too. A job or pod
/// starts on a node with its first row there, if its GPUs reported before; it ends with its last row, if they report on. One change
/// is of all GPUs of the node that it concerns. A driver that came and went within the range, with nothing else changed, is told once.
#[utoipa::path(
    get, path = "/api/v1/analysis/changes", tag = "analysis", operation_id = "changes", params(ChangesParams),
    responses(
        (status = 200, description = "The changes.", body = ChangeList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "One of the hosts is unknown, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn changes(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<ChangesParams>,
) -> Answered {
    api.answer(ChangesAsk::parse(&params, &api.config().limits)?, &headers).await
}

impl Ask for ChangesAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let (start_ns, end_ns) = self.range.at(view.now_ns())?;
        // When who had a GPU is all that is asked: sums of a fleet's last hour are made of all of its rows.
        let query = UseQuery { detail: UseDetail::Times, ..UseQuery::of(start_ns, end_ns) };
        let Part { answer: uses, missing } = view.history.usage(query).await?;
        // A host that GPUs have left is told of all the same.
        let is_told =
            |host: &Arc<str>| uses.iter().any(|one| text(one, IdentityColumn::Node) == Some(host.as_ref()));
        let hosts: Vec<Arc<str>> = self.hosts.iter().filter(|host| !is_told(host)).cloned().collect();
        if !hosts.is_empty() {
            telemetry::known_hosts(&view.history.fleet().await?, &hosts)?;
        }
        view.render(missing, move |view, partial| {
            let mut changes = jobs(&uses);
            changes.extend(versions(&uses));
            changes.retain(|change| self.wants(change));
            changes.sort_by(|one, other| {
                let key = |change: &Change| {
                    (Reverse(change.at.0), change.hostname.clone(), change.kind, change.gpu.clone())
                };
                key(one).cmp(&key(other))
            });
            let (changes, total, pagination) = self.page.cut(changes);
            let (start, end) = (Moment(start_ns), Moment(end_ns));
            let list = ChangeList { changes, total, start, end, pagination, partial: partial.to_vec() };
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            Body::until(until_ns, &list)
        })
        .await
    }
}

impl ChangesAsk {
    fn parse(params: &ChangesParams, limits: &Limits) -> Result<Self, ApiError> {
        let kind = |name: &Arc<str>| {
            let known = ChangeKind::ALL.into_iter().find(|kind| kind.name() == name.as_ref());
            let allowed = || ChangeKind::ALL.map(ChangeKind::name).join(", ");
            known.ok_or_else(|| ApiError::parameter("kind", name, allowed()))
        };
        let kinds: Result<_, _> = parameter::list("kind", params.kind.as_ref())?.iter().map(kind).collect();
        Ok(Self {
            range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
            hosts: parameter::list("host", params.host.as_ref())?,
            kinds: kinds?,
            page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        })
    }

    fn wants(&self, change: &Change) -> bool {
        let is_host = |host: &Arc<str>| change.hostname.as_deref() == Some(host.as_ref());
        (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.kinds.is_empty() || self.kinds.contains(&change.kind))
    }
}

fn text(one: &GpuUse, column: IdentityColumn) -> Option<&str> {
    one.text(column).map(AsRef::as_ref)
}

/// A job or pod on a node.
#[derive(Debug)]
struct HeldNode<'a> {
    /// One of its GPUs.
    first: &'a GpuUse,
    gpus: Vec<&'a str>,
    rows_ns: (i64, i64),
    /// Whether all GPUs reported before it, and report on after it.
    begins: bool,
    ends: bool,
}

/// Where each job or pod starts and ends.
fn jobs(uses: &[GpuUse]) -> Vec<Change> {
    const BY: [IdentityColumn; 5] = [
        IdentityColumn::Cluster,
        IdentityColumn::Node,
        IdentityColumn::Namespace,
        IdentityColumn::Pod,
        IdentityColumn::Job,
    ];
    let mut held: BTreeMap<[Option<&str>; BY.len()], HeldNode<'_>> = BTreeMap::new();
    for one in uses.iter().filter(|one| one.is_held()) {
        let (from_ns, until_ns) = one.rows_ns;
        let own = held.entry(BY.map(|column| text(one, column))).or_insert_with(|| HeldNode {
            first: one,
            gpus: Vec::new(),
            rows_ns: one.rows_ns,
            begins: true,
            ends: true,
        });
        own.rows_ns = (own.rows_ns.0.min(from_ns), own.rows_ns.1.max(until_ns));
        own.begins &= one.first_ns < from_ns;
        own.ends &= until_ns < one.last_ns;
        if own.gpus.last() != Some(&one.gpu.as_ref()) {
            own.gpus.push(&one.gpu);
        }
    }
    let mut changes = Vec::new();
    for held in held.into_values() {
        let (from_ns, until_ns) = held.rows_ns;
        let is_so =
            [(ChangeKind::JobStarted, held.begins, from_ns), (ChangeKind::JobEnded, held.ends, until_ns)];
        for (kind, _, at_ns) in is_so.into_iter().filter(|(_, is_known, _)| *is_known) {
            changes.push(change(kind, at_ns, held.first, held.gpus.len()));
        }
    }
    changes
}

/// Where drivers and VBIOSes change, by node: each GPU from one version to the next that its rows have.
fn versions(uses: &[GpuUse]) -> Vec<Change> {
    type Key<'a> = (ChangeKind, Option<&'a str>, Option<&'a str>, &'a str, &'a str);
    let kinds = [
        (ChangeKind::DriverChanged, IdentityColumn::Driver),
        (ChangeKind::VbiosChanged, IdentityColumn::Vbios),
    ];
    let mut found: BTreeMap<Key<'_>, (i64, &GpuUse, usize)> = BTreeMap::new();
    for of_gpu in uses.chunk_by(|one, next| one.gpu == next.gpu) {
        let mut in_time: Vec<&GpuUse> = of_gpu.iter().collect();
        in_time.sort_by_key(|one| one.rows_ns);
        for (kind, column) in kinds {
            let told: Vec<(&GpuUse, &str)> =
                in_time.iter().filter_map(|one| Some((*one, text(one, column)?))).collect();
            for pair in told.windows(2) {
                let &[(_, from), (next, to)] = pair else { continue };
                if from == to {
                    continue;
                }
                let (cluster, node) = (text(next, IdentityColumn::Cluster), text(next, IdentityColumn::Node));
                let own = found.entry((kind, cluster, node, from, to)).or_insert((next.rows_ns.0, next, 0));
                own.0 = own.0.min(next.rows_ns.0);
                own.2 += 1;
            }
        }
    }
    let found = found.into_iter().map(|((kind, _, _, from, to), (at_ns, one, gpus))| {
        let versions = (Some(from.to_owned()), Some(to.to_owned()));
        let (namespace, pod, job) = (None, None, None);
        Change { from: versions.0, to: versions.1, namespace, pod, job, ..change(kind, at_ns, one, gpus) }
    });
    found.collect()
}

fn change(kind: ChangeKind, at_ns: i64, one: &GpuUse, gpus: usize) -> Change {
    let text = |column| text(one, column).map(str::to_owned);
    Change {
        at: Moment(at_ns),
        kind,
        cluster: text(IdentityColumn::Cluster),
        hostname: text(IdentityColumn::Node),
        gpu: one.gpu.to_string(),
        gpus,
        namespace: text(IdentityColumn::Namespace),
        pod: text(IdentityColumn::Pod),
        job: text(IdentityColumn::Job),
        from: None,
        to: None,
    }
}
