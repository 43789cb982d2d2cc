//! `/api/v1/gpus`, one GPU, and the GPUs of a host.

mod judged;
mod label;
mod order;
mod search;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::judgement::{GpuJudge, GpuJudgement};
use gpuvitals_core::history::{Fleet, GpuState, Part, Selector};
use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_flight::JobIncident;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::{analysis, telemetry};
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Columns, FormatName, Instant, Judgements, Limit, Offset, Paging, Where};
use crate::config::Limits;
use crate::dto::{
    Gpu, GpuDetail, GpuList, IncidentNote, JudgementCounts, Labels, LatestColumns, Moment, State,
};
use crate::error::{ApiError, ErrorBody};
use crate::format::{Format, NextPage, TablePage};
use crate::parameter::{self, Asked, Named, given};
use crate::selector::{self, Tests};
use crate::watch::Judgement;

pub(super) use label::Label;
use label::Latest;
use order::Sort;
use search::Search;

pub(crate) use judged::JudgedGpu;

/// What may be asked of `GET /api/v1/gpus`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GpusParams {
    /// Most GPUs to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// GPUs to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// A name of a GPU (`node-01 / GPU 6`, `node-01:gpu6`, its UUID), which finds that GPU alone; else words, each of which must be part
    /// of the GPU's name, id, model, host, PCI address, pod, namespace or job, also as findings and holders are called
    /// (`research/train-7`, `job:41`), or of the name or user of its batch job. Case does not count.
    #[param(example = "h100 node-01")]
    search: Option<String>,
    /// Only these states, between commas.
    #[param(
        pattern = "^ *(?:(?:active|idle|stale|unhealthy|unknown)? *, *)*(?:active|idle|stale|unhealthy|unknown)? *$",
        example = "active,idle"
    )]
    state: Option<String>,
    /// Only GPUs of these hosts, between commas.
    #[serde(alias = "hosts")]
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Order: a field (`id`, `name`, `hostname`, `index`, `model`, `vendor`, `driver_version`, `state`, `judgement`,
    /// `last_seen`, `memory_mb`) or a metric's column for its latest value; a leading `-` reverses it.
    /// Unknown values come last; by `state` comes what needs somebody first: unhealthy, stale, unknown, active, idle; so it does by
    /// `judgement`: critical, lost, unhealthy, warning, notice, unconfirmed, stale, unknown, active, idle.
    /// Without it: by host and index.
    #[param(pattern = "^ *(?:-?[a-z][a-z0-9_]*)? *$", example = "-power_w")]
    sort: Option<String>,
    /// `metrics`: with the latest values.
    #[param(pattern = "^ *(?:(?:metrics)? *, *)*(?:metrics)? *$", example = "metrics")]
    include: Option<String>,
    /// With the latest values of these columns alone, between commas.
    #[param(inline, example = "power_w,utilization_pct")]
    metrics: Option<Columns>,
    /// With the texts of these identity columns as `labels`, between commas. `rack` is the rack in the name of the host, if the
    /// setting `api.rack_pattern` says where it stands there.
    #[param(
        pattern = "^ *(?:(?:cluster|node|uuid|vendor|model|pci|partition|driver|vbios|pod|namespace|container|job|source|rack)? *, *)*(?:cluster|node|uuid|vendor|model|pci|partition|driver|vbios|pod|namespace|container|job|source|rack)? *$",
        example = "namespace,job"
    )]
    labels: Option<String>,
    /// Only GPUs whose identity passes these tests, between semicolons: `column=value,value`, `column!=value,value`,
    /// `column=~pattern`, `column!~pattern`. A GPU without a text in the column has the empty one.
    #[serde(rename = "where")]
    #[param(rename = "where", inline, example = "namespace=research;job!=")]
    selector: Option<Where>,
    /// As of this instant, by the history up to it: the GPUs that had reported, with their values and states then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
    /// Only these judgements, between commas.
    #[param(inline, example = "critical,lost")]
    judgement: Option<Judgements>,
    /// Only the GPUs that this open finding is about, by its id.
    #[param(example = "idle_held:/research/train-7")]
    finding: Option<String>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
}

/// Which GPUs of a host.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HostGpusParams {
    /// Most GPUs to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// GPUs to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// `metrics`: with the latest values.
    #[param(pattern = "^ *(?:(?:metrics)? *, *)*(?:metrics)? *$", example = "metrics")]
    include: Option<String>,
    /// With the latest values of these columns alone, between commas.
    #[param(inline, example = "power_w,utilization_pct")]
    metrics: Option<Columns>,
    /// As of this instant, by the history up to it: the GPUs that had reported, with their values and states then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
}

/// What may be asked of `GET /api/v1/gpus/{id}`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GpuParams {
    /// As of this instant, by the history up to it: the GPU's values and state then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// The query of a path that takes none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// A question for GPUs.
#[derive(Debug)]
pub(crate) struct GpusAsk {
    page: Paging,
    search: Search,
    states: Vec<State>,
    judgements: Vec<GpuJudgement>,
    /// Id of an open finding.
    finding: Option<String>,
    hosts: Vec<Arc<str>>,
    /// The host of the path, which must exist.
    of_host: Option<String>,
    sort: Option<Sort>,
    latest: Latest,
    labels: Vec<Label>,
    tests: Tests,
    format: Format,
}

/// A question for one GPU.
#[derive(Debug)]
pub(crate) struct GpuAsk(String);

/// The GPUs of the fleet, with what each does and how it does.
#[utoipa::path(
    get, path = "/api/v1/gpus", tag = "GPUs", operation_id = "list_gpus", params(GpusParams),
    responses(
        (status = 200, description = "The GPUs that match. As CSV or Arrow each with the time of its newest row and the labels and metrics that were asked for alone; the header `x-next` says what to give as `offset`.",
         content((GpuList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such finding is open, or one of the hosts is unknown.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<GpusParams>,
) -> Answered {
    let ask = GpusAsk::parse(&params, &api.config().limits, &headers)?;
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

/// One GPU with its latest values.
#[utoipa::path(
    get, path = "/api/v1/gpus/{id}", tag = "GPUs", operation_id = "get_gpu",
    params(("id" = String, Path, description = "The GPU's id; also its UUID, PCI address, `host:gpuN` or name (`node-1 / GPU 6`) where only one GPU has it.", example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21"), GpuParams),
    responses(
        (status = 200, description = "The GPU.", body = GpuDetail<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such GPU.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn one(
    Shared(api): Shared<Api>,
    Named(id): Named,
    headers: HeaderMap,
    Asked(params): Asked<GpuParams>,
) -> Answered {
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, GpuAsk(id), &headers).await
}

/// The GPUs of a host.
#[utoipa::path(
    get, path = "/api/v1/hosts/{hostname}/gpus", tag = "hosts", operation_id = "list_host_gpus",
    params(("hostname" = String, Path, description = "The host.", example = "sim-node-01"), HostGpusParams),
    responses(
        (status = 200, description = "Its GPUs, by index; as CSV or Arrow as `/api/v1/gpus` has them.",
         content((GpuList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
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
    Asked(params): Asked<HostGpusParams>,
) -> Answered {
    let limits = &api.config().limits;
    let ask = GpusAsk {
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        search: Search::default(),
        states: Vec::new(),
        judgements: Vec::new(),
        finding: None,
        hosts: Vec::new(),
        of_host: Some(hostname),
        sort: None,
        latest: Latest::parse(params.include.as_ref(), params.metrics.as_ref())?,
        labels: Vec::new(),
        tests: Tests::default(),
        format: Format::asked(params.format.as_ref(), &headers)?,
    };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

impl Ask for GpusAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let fleet = view.history.fleet().await?;
        parameter::known_columns(Table::GpuEvents, self.latest.columns(), &fleet)?;
        let selector = self.tests.selector().await?;
        telemetry::known_hosts(&fleet, &self.hosts)?;
        telemetry::known_hosts(&fleet, &selector::named_hosts(&selector))?;
        let Part { answer: fleet, missing } = fleet;
        let knowing = self.search.knowing(view.history.as_ref(), &fleet.gpus, view.now_ns());
        let Part { answer: search, missing: untold } = knowing.await;
        let (ask, missing) = (Self { search, ..self }, ask::joined(missing, untold));
        let judgement = if ask.depends_on_judgement() {
            Some(analysis::judged(&view).await?)
        } else if ask.is_judged() {
            view.judgement().await
        } else {
            None
        };
        view.render(missing, move |view, missing| {
            ask.list(&fleet, &selector, judgement.as_deref(), missing, view)
        })
        .await
    }
}

impl GpusAsk {
    /// Whether it depends on how GPUs do which of them are in the answer: then it waits until that is known.
    fn depends_on_judgement(&self) -> bool {
        !self.judgements.is_empty() || self.finding.is_some() || self.sort.is_some_and(Sort::is_of_judgement)
    }

    /// Whether the answer says how GPUs do, or depends on it.
    fn is_judged(&self) -> bool {
        self.format == Format::Json
            || !self.states.is_empty()
            || self.depends_on_judgement()
            || (self.labels.is_empty() && matches!(self.latest, Latest::None))
    }

    fn list(
        &self,
        fleet: &Fleet,
        selector: &Selector,
        judgement: Option<&Judgement>,
        missing: &[String],
        view: &View,
    ) -> Result<Body, ApiError> {
        let (rules, unknown) = (view.rules, GpuJudge::default());
        let judge = judgement.map_or(&unknown, |judgement| &judgement.judge);
        let gpus = fleet.gpus.iter().filter(|gpu| self.wants(gpu, selector)).collect();
        let gpus = self.of_finding(self.search.among(gpus), judgement)?;
        if let Some(host) = self.of_host.as_deref().filter(|_| gpus.is_empty()) {
            return Err(ApiError::no_host(host, missing));
        }
        let is_judged = self.is_judged();
        let judged = gpus
            .into_iter()
            .map(|gpu| if is_judged { JudgedGpu::of(gpu, rules, judge) } else { JudgedGpu::unjudged(gpu) });
        let mut gpus: Vec<JudgedGpu<'_>> =
            judged.filter(|one| self.states.is_empty() || self.states.contains(&one.state)).collect();
        let judgements = JudgementCounts::of(gpus.iter().map(|one| one.judgement));
        gpus.retain(|one| self.judgements.is_empty() || self.judgements.contains(&one.judgement));
        if let Some(sort) = self.sort {
            gpus.sort_by(|a, b| sort.compare(a, b));
        }
        let (gpus, total, pagination) = self.page.cut(gpus);
        let until_ns = if is_judged { view.judged_until(judgement) } else { i64::MAX };
        let until_ns = until_ns.min(rules.changes_at(fleet));
        if self.format != Format::Json {
            let records = table::of(&gpus, &self.labels, &self.latest, view.racks.as_ref())?;
            let next = NextPage::of_list(pagination, gpus.len(), total);
            let page = TablePage { records: &records, next, partial: missing };
            return Body::table(until_ns, self.format, &page);
        }
        let gpus = gpus.into_iter().map(|gpu| self.show(gpu, view)).collect();
        Body::until(until_ns, &GpuList { gpus, judgements, total, pagination, partial: missing })
    }

    /// Those of them that the finding is about, if one is asked for.
    fn of_finding<'a>(
        &self,
        mut gpus: Vec<&'a Arc<GpuState>>,
        judgement: Option<&Judgement>,
    ) -> Result<Vec<&'a Arc<GpuState>>, ApiError> {
        let Some(id) = &self.finding else { return Ok(gpus) };
        let findings = judgement.map_or(&[][..], |judgement| &judgement.findings);
        let found = findings.iter().find(|(finding, _)| finding.id() == *id);
        let (finding, _) = found.ok_or_else(|| ApiError::unknown_finding(id))?;
        let about: HashSet<&str> = finding.reach.gpus.iter().map(AsRef::as_ref).collect();
        gpus.retain(|gpu| about.contains(gpu.key.as_ref()));
        Ok(gpus)
    }

    fn parse(params: &GpusParams, limits: &Limits, headers: &HeaderMap) -> Result<Self, ApiError> {
        let words = given(params.search.as_ref()).unwrap_or_default();
        Ok(Self {
            page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
            search: Search::of(words),
            states: states(params.state.as_ref())?,
            judgements: Judgements::read(params.judgement.as_ref())?,
            finding: given(params.finding.as_ref()).map(str::to_owned),
            hosts: parameter::list("host", params.host.as_ref())?,
            of_host: None,
            sort: given(params.sort.as_ref()).map(order::sort).transpose()?,
            latest: Latest::parse(params.include.as_ref(), params.metrics.as_ref())?,
            labels: labels(params.labels.as_ref())?,
            tests: Tests::parse(params.selector.as_ref())?,
            format: Format::asked(params.format.as_ref(), headers)?,
        })
    }

    fn show<'a>(&'a self, judged: JudgedGpu<'a>, view: &View) -> Gpu<'a> {
        let (gpu, racks) = (judged.gpu, view.racks.as_ref());
        let texts = || {
            self.labels
                .iter()
                .map(|label| (label.name(), label.text(|column| gpu.identity.get(column), racks)))
                .collect()
        };
        let shown = judged.show(view.rules, self.latest.of(gpu));
        Gpu { labels: (!self.labels.is_empty()).then(texts), ..shown }
    }

    fn wants(&self, gpu: &GpuState, selector: &Selector) -> bool {
        let node = gpu.identity.node();
        let host = |host: &str| node == Some(host);
        self.of_host.as_deref().is_none_or(host)
            && (self.hosts.is_empty() || self.hosts.iter().any(|name| host(name)))
            && selector.selects(|column| gpu.identity.get(column))
    }
}

impl Ask for GpuAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        let judgement = view.judgement().await;
        view.render(missing, move |view, missing| {
            let unknown = GpuJudge::default();
            let judge = judgement.as_deref().map_or(&unknown, |judgement| &judgement.judge);
            let gpu = fleet.find(&self.0).map_err(|why| ApiError::no_gpu(&self.0, why, missing))?;
            let kept = view.jobs.as_ref().map_or_else(Vec::new, |jobs| jobs.list());
            let is_its = |incident: &&Arc<JobIncident>| {
                incident.at_ns() <= view.now_ns() && incident.concerns(&gpu.key)
            };
            let detail = GpuDetail {
                gpu: JudgedGpu::of(gpu, view.rules, judge).show(view.rules, None),
                latest: LatestColumns(gpu),
                labels: Labels::of(gpu),
                first_seen: Moment(gpu.first_seen_ns),
                incidents: kept
                    .iter()
                    .filter(is_its)
                    .map(|incident| IncidentNote::of(incident, std::iter::once(gpu.key.as_ref())))
                    .collect(),
            };
            let until_ns = view.judged_until(judgement.as_deref()).min(view.rules.changes_at(&fleet));
            Body::until(until_ns, &detail)
        })
        .await
    }
}

fn states(text: Option<&String>) -> Result<Vec<State>, ApiError> {
    let mut states = Vec::new();
    for word in parameter::list("state", text)? {
        let state = State::ALL.into_iter().find(|state| state.name() == word.as_ref());
        states.push(state.ok_or_else(|| {
            ApiError::parameter("state", &word, "active, idle, stale, unhealthy and unknown, between commas")
        })?);
    }
    states.sort_unstable();
    Ok(states)
}

fn labels(text: Option<&String>) -> Result<Vec<Label>, ApiError> {
    let label = |name: &Arc<str>| {
        Label::by_name(name).ok_or_else(|| {
            let columns = IdentityColumn::ALL.map(IdentityColumn::name).join(", ");
            ApiError::parameter("labels", name, format!("{columns}, {}, between commas", Label::RACK))
        })
    };
    parameter::list("labels", text)?.iter().map(label).collect()
}
