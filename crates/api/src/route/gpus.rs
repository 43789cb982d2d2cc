//! `/api/v1/gpus`, one GPU, and the GPUs of a host.

mod label;
mod table;

use std::cmp::Ordering;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::history::{Fleet, GpuState, Part, Selector};
use gpuvitals_core::{IdentityColumn, MetricId, Table};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{Columns, Instant, Limit, Offset, Paging, Where};
use crate::condition;
use crate::config::Limits;
use crate::dto::{Gpu, GpuDetail, GpuList, Labels, LatestColumns, Moment, State};
use crate::error::{ApiError, ErrorBody};
use crate::format::Format;
use crate::parameter::{self, Asked, Named, given};
use crate::selector::Tests;

use label::{Label, Latest};

const FIELDS: [(&str, Field); 10] = [
    ("id", Field::Id),
    ("name", Field::Name),
    ("hostname", Field::Hostname),
    ("index", Field::Index),
    ("model", Field::Model),
    ("vendor", Field::Vendor),
    ("driver_version", Field::Driver),
    ("state", Field::State),
    ("last_seen", Field::LastSeen),
    ("memory_mb", Field::Memory),
];

/// Which GPUs.
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
    /// Words, each of which must be part of the GPU's name, id, model, host, PCI address, pod, namespace or job; case
    /// does not count.
    #[param(example = "h100 node-01")]
    search: Option<String>,
    /// Only these states, between commas.
    #[param(
        pattern = "^ *(?:(?:active|idle|stale|unhealthy|unknown)? *, *)*(?:active|idle|stale|unhealthy|unknown)? *$",
        example = "active,idle"
    )]
    state: Option<String>,
    /// Only GPUs of these hosts, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Order: a field (`id`, `name`, `hostname`, `index`, `model`, `vendor`, `driver_version`, `state`,
    /// `last_seen`, `memory_mb`) or a metric's column for its latest value; a leading `-` reverses it.
    /// Unknown values come last; by `state` comes what needs somebody first: unhealthy, stale, unknown, active, idle.
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
}

/// Of when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GpuParams {
    /// As of this instant, by the history up to it: the GPU's values and state then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// No parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// A question for GPUs.
#[derive(Debug)]
pub(crate) struct GpusAsk {
    page: Paging,
    /// Lower case.
    words: Vec<String>,
    states: Vec<State>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sort {
    by: Field,
    descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Field {
    Id,
    Name,
    Hostname,
    Index,
    Model,
    Vendor,
    Driver,
    State,
    LastSeen,
    Memory,
    Metric(MetricId),
}

/// The GPUs.
#[utoipa::path(
    get, path = "/api/v1/gpus", tag = "GPUs", operation_id = "list_gpus", params(GpusParams),
    responses(
        (status = 200, description = "The GPUs that match. As CSV or Arrow each with the time of its newest row and the labels and metrics that were asked for alone; the header `x-next` says what to give as `offset`.",
         content((GpuList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
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
    params(("id" = String, Path, description = "The GPU's id; also its UUID, PCI address or `host:gpuN` where only one GPU has it.", example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21"), GpuParams),
    responses(
        (status = 200, description = "The GPU.", body = GpuDetail<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
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
        (status = 200, description = "Its GPUs, by index.", body = GpuList<'static>,
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
        words: Vec::new(),
        states: Vec::new(),
        hosts: Vec::new(),
        of_host: Some(hostname),
        sort: None,
        latest: Latest::parse(params.include.as_ref(), params.metrics.as_ref())?,
        labels: Vec::new(),
        tests: Tests::default(),
        format: Format::Json,
    };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

impl Ask for GpusAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let fleet = view.history.fleet().await?;
        parameter::known_columns(Table::GpuEvents, self.latest.columns(), &fleet)?;
        let Part { answer: fleet, missing } = fleet;
        let selector = self.tests.selector().await?;
        view.render(missing, move |view, missing| self.list(&fleet, &selector, missing, view)).await
    }
}

impl GpusAsk {
    fn list(
        &self,
        fleet: &Fleet,
        selector: &Selector,
        missing: &[String],
        view: &View,
    ) -> Result<Body, ApiError> {
        let rules = view.rules;
        let mut gpus: Vec<&Arc<GpuState>> =
            fleet.gpus.iter().filter(|gpu| self.wants(gpu, selector)).collect();
        if let Some(host) = self.of_host.as_deref().filter(|_| gpus.is_empty()) {
            return Err(ApiError::no_host(host, missing));
        }
        if !self.states.is_empty() {
            gpus.retain(|gpu| self.states.contains(&rules.state(gpu)));
        }
        match self.sort {
            Some(Sort { by: Field::State, descending }) => {
                gpus.sort_by_cached_key(|gpu| rules.state(gpu).urgency());
                if descending {
                    gpus.reverse();
                }
            }
            Some(sort) => gpus.sort_by(|a, b| sort.compare(a, b)),
            None => {}
        }
        let (gpus, total, pagination) = self.page.cut(gpus);
        if self.format != Format::Json {
            let records = table::of(&gpus, &self.labels, &self.latest, view.racks.as_ref())?;
            let next = pagination.has_next.then(|| (pagination.offset + gpus.len()).to_string());
            return Body::table(rules.changes_at(fleet), self.format, &records, next.as_deref());
        }
        let gpus = gpus.into_iter().map(|gpu| self.show(gpu, view)).collect();
        let list = GpuList { gpus, total, pagination };
        Body::until(rules.changes_at(fleet), &list)
    }

    fn parse(params: &GpusParams, limits: &Limits, headers: &HeaderMap) -> Result<Self, ApiError> {
        let words = given(params.search.as_ref()).unwrap_or_default();
        Ok(Self {
            page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
            words: words.split_whitespace().map(str::to_lowercase).collect(),
            states: states(params.state.as_ref())?,
            hosts: parameter::list("host", params.host.as_ref())?,
            of_host: None,
            sort: given(params.sort.as_ref()).map(sort).transpose()?,
            latest: Latest::parse(params.include.as_ref(), params.metrics.as_ref())?,
            labels: labels(params.labels.as_ref())?,
            tests: Tests::parse(params.selector.as_ref())?,
            format: Format::accepted(headers),
        })
    }

    fn show<'a>(&'a self, gpu: &'a GpuState, view: &View) -> Gpu<'a> {
        let racks = view.racks.as_ref();
        let texts = || self.labels.iter().map(|label| (label.name(), label.text(gpu, racks))).collect();
        Gpu { labels: (!self.labels.is_empty()).then(texts), ..view.rules.show(gpu, self.latest.of(gpu)) }
    }

    fn wants(&self, gpu: &GpuState, selector: &Selector) -> bool {
        let node = gpu.identity.node();
        let host = |host: &str| node == Some(host);
        self.of_host.as_deref().is_none_or(host)
            && (self.hosts.is_empty() || self.hosts.iter().any(|name| host(name)))
            && selector.selects(|column| gpu.identity.get(column))
            && (self.words.is_empty() || self.is_found_in(gpu))
    }

    fn is_found_in(&self, gpu: &GpuState) -> bool {
        const SEARCHED: [IdentityColumn; 6] = [
            IdentityColumn::Node,
            IdentityColumn::Model,
            IdentityColumn::Pci,
            IdentityColumn::Pod,
            IdentityColumn::Namespace,
            IdentityColumn::Job,
        ];
        let mut text = format!("{}\n{}", gpu.key, condition::name(gpu));
        for column in SEARCHED {
            text.push('\n');
            text.push_str(gpu.identity.get(column).unwrap_or_default());
        }
        let text = text.to_lowercase();
        self.words.iter().all(|word| text.contains(word.as_str()))
    }
}

impl Sort {
    fn compare(self, a: &GpuState, b: &GpuState) -> Ordering {
        let text = |gpu: &GpuState, column| gpu.identity.shared(column).cloned();
        match self.by {
            Field::Id => self.known(Some(&a.key), Some(&b.key)),
            Field::Name => {
                let hosts = self.known(text(a, IdentityColumn::Node), text(b, IdentityColumn::Node));
                let indices = || self.known(a.identity.index, b.identity.index);
                hosts.then_with(indices).then_with(|| self.known(Some(&a.key), Some(&b.key)))
            }
            Field::Hostname => self.known(text(a, IdentityColumn::Node), text(b, IdentityColumn::Node)),
            Field::Index => self.known(a.identity.index, b.identity.index),
            Field::Model => self.known(text(a, IdentityColumn::Model), text(b, IdentityColumn::Model)),
            Field::Vendor => self.known(text(a, IdentityColumn::Vendor), text(b, IdentityColumn::Vendor)),
            Field::Driver => self.known(text(a, IdentityColumn::Driver), text(b, IdentityColumn::Driver)),
            Field::LastSeen => self.known(Some(a.last_seen_ns), Some(b.last_seen_ns)),
            Field::Memory => self.known(condition::memory_mb(a), condition::memory_mb(b)),
            Field::Metric(id) => {
                let value = |gpu| Fleet::latest(gpu, id).map(|latest| latest.value.as_f64());
                self.known_by(value(a), value(b), f64::total_cmp)
            }
            Field::State => Ordering::Equal,
        }
    }

    fn known<T: Ord>(self, a: Option<T>, b: Option<T>) -> Ordering {
        self.known_by(a, b, T::cmp)
    }

    /// Unknown values come last in either direction.
    fn known_by<T>(self, a: Option<T>, b: Option<T>, cmp: impl Fn(&T, &T) -> Ordering) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.descending => cmp(&b, &a),
            (Some(a), Some(b)) => cmp(&a, &b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

impl Ask for GpuAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        view.render(missing, move |view, missing| {
            let gpu = fleet.find(&self.0).map_err(|why| ApiError::no_gpu(&self.0, why, missing))?;
            let detail = GpuDetail {
                gpu: view.rules.show(gpu, None),
                latest: LatestColumns(gpu),
                labels: Labels::of(gpu),
                first_seen: Moment(gpu.first_seen_ns),
            };
            Body::until(view.rules.changes_at(&fleet), &detail)
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

fn sort(text: &str) -> Result<Sort, ApiError> {
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    if let Some((_, by)) = FIELDS.iter().find(|(field, _)| *field == name) {
        return Ok(Sort { by: *by, descending });
    }
    let metric = parameter::gpu_metric("sort", name).map_err(|_| {
        let fields = FIELDS.map(|(field, _)| field).join(", ");
        ApiError::parameter(
            "sort",
            text,
            format!("{fields}, or a metric's column; - before it turns the order round"),
        )
    });
    Ok(Sort { by: Field::Metric(metric?), descending })
}
