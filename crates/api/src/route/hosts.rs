//! `/api/v1/hosts`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::ArrowError;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::judgement::{GpuJudge, GpuJudgement};
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::history::{Fleet, Part};
use serde::Deserialize;
use utoipa::IntoParams;

use super::analysis;
use super::answered::Answered;
use super::gpus::JudgedGpu;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{FormatName, Instant, Judgements, Limit, Offset, Paging};
use crate::columns::{self, TableColumn};
use crate::condition::StateRules;
use crate::dto::{Host, HostList, JudgementCounts, Moment, StateCounts};
use crate::error::{ApiError, ErrorBody};
use crate::format::{Format, NextPage, TablePage};
use crate::parameter::{Asked, given};
use crate::watch::Judgement;

/// What hosts are put in order by.
type Order = fn(&JudgedHost<'_>, &JudgedHost<'_>) -> Ordering;

const ORDERS: [(&str, Order); 4] = [
    ("hostname", |a, b| a.host.hostname.cmp(b.host.hostname)),
    ("gpu_count", |a, b| a.host.gpu_count.cmp(&b.host.gpu_count)),
    ("judgement", |a, b| a.judgement.cmp(&b.judgement)),
    ("last_seen", |a, b| a.host.last_seen.0.cmp(&b.host.last_seen.0)),
];

/// What may be asked of `GET /api/v1/hosts`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HostsParams {
    /// Most hosts to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Hosts to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// As of this instant, by the history up to it: the hosts that had reported, with the states of their GPUs then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
    /// Only hosts of these judgements, between commas.
    #[param(inline, example = "critical,lost")]
    judgement: Option<Judgements>,
    /// Order: `hostname`, `gpu_count`, `judgement` (what needs somebody first) or `last_seen`; a leading `-` reverses it. Of equals, and
    /// without it: by name.
    #[param(pattern = "^ *(?:-?(?:hostname|gpu_count|judgement|last_seen))? *$", example = "judgement")]
    sort: Option<String>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
}

/// A question for hosts.
#[derive(Debug)]
pub(crate) struct HostsAsk {
    page: Paging,
    judgements: Vec<GpuJudgement>,
    /// The name of an order, and whether it is reversed.
    sort: Option<(String, bool)>,
    format: Format,
}

/// A host, and the judgement of that of its GPUs that needs somebody most.
struct JudgedHost<'a> {
    host: Host<'a>,
    judgement: GpuJudgement,
}

/// The hosts, by name.
#[utoipa::path(
    get, path = "/api/v1/hosts", tag = "hosts", operation_id = "list_hosts", params(HostsParams),
    responses(
        (status = 200, description = "The hosts. As CSV or Arrow each with the time of its newest row; the header `x-next` says what to give as `offset`.",
         content((HostList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<HostsParams>,
) -> Answered {
    let limits = &api.config().limits;
    let ask = HostsAsk {
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        judgements: Judgements::read(params.judgement.as_ref())?,
        sort: given(params.sort.as_ref()).map(sort).transpose()?,
        format: Format::asked(params.format.as_ref(), &headers)?,
    };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

fn sort(text: &str) -> Result<(String, bool), ApiError> {
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    if ORDERS.iter().any(|(order, _)| *order == name) {
        return Ok((name.to_owned(), descending));
    }
    let names = ORDERS.map(|(order, _)| order).join(", ");
    Err(ApiError::parameter("sort", text, format!("{names}; - before it turns the order round")))
}

impl Ask for HostsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        // Which hosts are in the answer may depend on it: then it waits until it is known.
        let is_needed =
            !self.judgements.is_empty() || self.sort.as_ref().is_some_and(|(order, _)| order == "judgement");
        let judgement = if is_needed { Some(analysis::judged(&view).await?) } else { view.judgement().await };
        view.render(missing, move |view, partial| self.list(&fleet, judgement.as_deref(), partial, view))
            .await
    }
}

impl HostsAsk {
    fn list(
        &self,
        fleet: &Fleet,
        judgement: Option<&Judgement>,
        partial: &[String],
        view: &View,
    ) -> Result<Body, ApiError> {
        let (rules, unknown) = (view.rules, GpuJudge::default());
        let judge = judgement.map_or(&unknown, |judgement| &judgement.judge);
        let mut hosts: Vec<JudgedHost<'_>> = hosts(fleet, rules, judge);
        let judgements = JudgementCounts::of(hosts.iter().map(|host| host.judgement));
        hosts.retain(|host| self.judgements.is_empty() || self.judgements.contains(&host.judgement));
        if let Some((name, descending)) = &self.sort
            && let Some((_, order)) = ORDERS.iter().find(|(known, _)| known == name)
        {
            hosts.sort_by(|a, b| if *descending { order(b, a) } else { order(a, b) });
        }
        let (hosts, total, pagination) = self.page.cut(hosts);
        let until_ns = view.judged_until(judgement).min(rules.changes_at(fleet));
        if self.format != Format::Json {
            let next = NextPage::of_list(pagination, hosts.len(), total);
            let records = &table(&hosts)?;
            return Body::table(until_ns, self.format, &TablePage { records, next, partial });
        }
        let hosts = hosts.into_iter().map(|one| one.host).collect();
        Body::until(until_ns, &HostList { hosts, judgements, total, pagination, partial })
    }
}

/// The hosts of a fleet, by name.
fn hosts<'a>(fleet: &'a Fleet, rules: StateRules, judge: &'a GpuJudge) -> Vec<JudgedHost<'a>> {
    let mut hosts: BTreeMap<&str, JudgedHost<'_>> = BTreeMap::new();
    for gpu in &fleet.gpus {
        let Some(hostname) = gpu.identity.node() else { continue };
        let judged = JudgedGpu::of(gpu, rules, judge);
        let one = hosts.entry(hostname).or_insert_with(|| JudgedHost {
            host: Host {
                hostname,
                gpu_count: 0,
                models: BTreeSet::new(),
                vendors: BTreeSet::new(),
                states: StateCounts::default(),
                last_seen: Moment(gpu.last_seen_ns),
                simulated: true,
                judgement: judged.judgement.name(),
                judgements: JudgementCounts::default(),
            },
            judgement: judged.judgement,
        });
        one.judgement = one.judgement.min(judged.judgement);
        let host = &mut one.host;
        host.gpu_count += 1;
        host.models.extend(gpu.identity.get(IdentityColumn::Model));
        host.vendors.extend(gpu.identity.get(IdentityColumn::Vendor));
        host.states.add(judged.state);
        host.last_seen = Moment(host.last_seen.0.max(gpu.last_seen_ns));
        host.simulated &= gpu.identity.is_simulated();
        host.judgement = one.judgement.name();
        host.judgements.add(judged.judgement);
    }
    hosts.into_values().collect()
}

/// The hosts as a table.
fn table(hosts: &[JudgedHost<'_>]) -> Result<RecordBatch, ArrowError> {
    let seen: Int64Array = hosts.iter().map(|one| Some(one.host.last_seen.0)).collect();
    let joined = |of: fn(&Host<'_>) -> String| hosts.iter().map(|one| of(&one.host)).collect::<Vec<_>>();
    let models = joined(|host| host.models.iter().copied().collect::<Vec<_>>().join("; "));
    let vendors = joined(|host| host.vendors.iter().copied().collect::<Vec<_>>().join("; "));
    columns::table(vec![
        TableColumn::texts("hostname", "Its name.", hosts.iter().map(|one| Some(one.host.hostname))),
        TableColumn::of(TIMESTAMP_COLUMN, "Time of the newest row of its GPUs.", Arc::new(seen)),
        TableColumn::counts(
            "gpu_count",
            "How many GPUs were ever seen in it.",
            hosts.iter().map(|one| one.host.gpu_count),
        ),
        TableColumn::texts("models", "Their product names.", models.iter().map(|text| Some(text.as_str()))),
        TableColumn::texts("vendors", "Their vendors.", vendors.iter().map(|text| Some(text.as_str()))),
        TableColumn::texts(
            "judgement",
            "The judgement of that of its GPUs that needs somebody most.",
            hosts.iter().map(|one| Some(one.judgement.name())),
        ),
    ])
}
