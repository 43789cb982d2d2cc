//! `/api/v1/jobs`: what each holder of GPUs used, by the sums that nodes make of their samples, or by rows where no node makes any.

mod advice;
mod steps;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::history::{History, Part, QueryError, all_holdings, job_texts};
use gpuvitals_core::integral::{rounded, seconds};
use gpuvitals_core::usage::{
    GpuUse, HOLDING_GROUPS, HOLDINGS_TRAIL_NS, Holding, HoldingGroup, HoldingSums, Holdings, HoldingsAnswer,
    HoldingsQuery, RankedGroup, ToldApart, UseQuery,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use super::usage::USE_REUSED_NS;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Flag, Instant, Limit, Offset, Paging, TimeRange};
use crate::config::ApiConfig;
use crate::dto::{JobCheck, JobDetail, JobGpu, JobList, JobSums, JobUse, Moment, Pagination};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked, Named, given};
use told::{JobGroup, LABEL_GROUP, ToldJobs};

/// The order by what they are put together by.
const BY_GROUP: &str = "group";

/// A number by which they are put in order; none: not known.
type Measure = fn(&HoldingSums) -> Option<f64>;

/// Orders by sums, in the order of [`JobSums`].
const ORDERS: [(&str, Measure); 3] = [
    ("held_gpu_hours", |sums| Some(sums.held_s)),
    ("wasted_gpu_hours", |sums| sums.wasted_s),
    ("energy_kwh", |sums| sums.joules),
];

/// What may be asked of `GET /api/v1/jobs`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsParams {
    /// First instant; an hour before the end unless given.
    #[param(example = "2026-11-20T15:50:00Z")]
    start: Option<Instant>,
    /// Last instant; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// Ids or other names of the GPUs, between commas; all without it.
    #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
    gpus: Option<String>,
    /// Only GPUs that are in these hosts now, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Groups: `holder`, `gpu`, `node`, `namespace`, `job`, `pod`, `model`, `cluster` or `day` (UTC); `user`, `account` or `queue`, as the
    /// batch system told of jobs, and `label:KEY` of a label that the setting `jobs.labels` names; `holder` unless given. Of each what was
    /// held; time of nobody is in none.
    #[param(
        pattern = "^ *(?:holder|gpu|node|namespace|job|pod|model|cluster|day|user|account|queue|label:[A-Za-z0-9._/-]{1,63})? *$",
        example = "namespace"
    )]
    by: Option<String>,
    /// Order: `held_gpu_hours`, `wasted_gpu_hours`, `energy_kwh` or `group`; a leading `-` reverses it. What is not known comes last.
    /// Without it: whoever held most first.
    #[param(
        pattern = "^ *(?:-?(?:held_gpu_hours|wasted_gpu_hours|energy_kwh|group))? *$",
        example = "-wasted_gpu_hours"
    )]
    sort: Option<String>,
    /// Only those that have a GPU at the end of the range.
    #[param(inline)]
    running: Option<Flag>,
    /// Whether `check` shall say how far the sums are from the GPUs' own hours and energy, which are read from the rows of their samples:
    /// it costs what `/api/v1/analysis/energy` does. What MIG instances have is in the sums of their card: whoever names GPUs names both.
    #[param(inline)]
    check: Option<Flag>,
    /// Most of them to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// How many to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// When, and where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobParams {
    /// First instant; an hour before the end unless given.
    #[param(example = "2026-11-20T15:50:00Z")]
    start: Option<Instant>,
    /// Last instant; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// The cluster, where several have a job or pod of this name.
    #[param(example = "east")]
    cluster: Option<String>,
}

/// A question for the use by holders.
#[derive(Debug)]
struct JobsAsk {
    range: TimeRange,
    gpus: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    by: JobGroup,
    is_checked: bool,
    shown: ShownJobs,
}

/// Which groups are shown, and in which order.
#[derive(Debug, Clone)]
struct ShownJobs {
    /// The name of an order, and whether it is reversed.
    sort: Option<(String, bool)>,
    only_running: bool,
    page: Paging,
}

/// Some of the groups of an answer.
struct JobsPage {
    /// With the groups of the page alone.
    held: HoldingsAnswer,
    /// All groups together.
    whole: HoldingSums,
    /// How many there are in all.
    total: usize,
    pagination: Pagination,
}

/// A question for one holder.
#[derive(Debug)]
struct JobAsk {
    /// As it was asked.
    id: String,
    cluster: Option<Arc<str>>,
    range: TimeRange,
}

/// What each job and pod used of its GPUs, by the sums that agents make of every sample.
///
/// A job holds a GPU from its allocation on, also without a process. Of a GPU that several hold at once each has its part, by `share` of
/// its rows of `gpu_usage`.
/// Of GPUs that no agent samples, as those of files and of clusters read from outside, the same is made from their rows: `gpus_by_rows`.
/// Of the hours in which the range begins and ends a part is taken that is as long: `interpolated`. Jobs, nobody and what was not observed
/// together are the time and energy of the GPUs; `check` measures that.
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "analysis", operation_id = "jobs", params(JobsParams),
    responses(
        (status = 200, description = "The jobs and pods, or what they are put together by.", body = JobList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "One of the GPUs or hosts is unknown, or no rows are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn jobs(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<JobsParams>,
) -> Answered {
    api.answer(JobsAsk::parse(&params, api.config())?, &headers).await
}

/// What one job or pod used, in all and of each of its GPUs.
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}", tag = "analysis", operation_id = "job",
    params(("id" = String, Path, description = "The holder as `/api/v1/jobs` names it, its slashes as `%2F`; or the id of a batch job, or its place in an array, `ARRAY_TASK`.", example = "pod:research/train-7/main"), JobParams),
    responses(
        (status = 200, description = "What it used.", body = JobDetail,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, `cluster` is missing, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No such job or pod held a GPU in the range, or no rows are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or it may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn one(
    Shared(api): Shared<Api>,
    Named(id): Named,
    headers: HeaderMap,
    Asked(params): Asked<JobParams>,
) -> Answered {
    let ask = JobAsk {
        id,
        cluster: given(params.cluster.as_ref()).map(Arc::from),
        range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
    };
    api.answer(ask, &headers).await
}

impl Ask for JobsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let range = self.range.at(view.now_ns())?;
        let is_current = is_current(range.1, view.now_ns());
        let history = view.history.as_ref();
        let Part { answer: (page, check), missing } = self.held(history, range).await?;
        let Part { answer: told, missing: unread } =
            ToldJobs::of_holders(history, &page.held.groups, range, view.now_ns()).await?;
        let told = told.showing(&view.job_labels);
        view.render(ask::joined(missing, unread), move |view, partial| {
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            let JobsPage { held, whole, total, pagination } = page;
            let of = |one: &Holding| JobUse::of(one, told.of(one).as_ref(), is_current, view.prices);
            let list = JobList {
                jobs: held.groups.iter().map(of).collect(),
                whole: JobSums::of(&whole, view.prices),
                nobody: JobSums::of(&held.nobody, view.prices),
                unobserved_gpu_hours: held.unobserved.held_s / 3_600.0,
                interpolated: [whole, held.nobody, held.unobserved].iter().any(HoldingSums::is_interpolated),
                gpus_by_rows: held.by_rows.len(),
                check,
                start: Moment(range.0),
                end: Moment(range.1),
                total,
                pagination,
                partial: partial.to_vec(),
            };
            Body::until(until_ns, &list)
        })
        .await
    }
}

impl JobsAsk {
    fn parse(params: &JobsParams, config: &ApiConfig) -> Result<Self, ApiError> {
        let by = given(params.by.as_ref()).unwrap_or("holder");
        let is_shown = |key: &str| config.job_labels.iter().any(|shown| **shown == *key);
        let is_known = HOLDING_GROUPS.contains(&by) || by.strip_prefix(LABEL_GROUP).is_some_and(is_shown);
        let group = JobGroup::by_name(by).filter(|_| is_known);
        let allowed =
            || format!("{}; label:KEY with a key of the setting jobs.labels", HOLDING_GROUPS.join(", "));
        Ok(Self {
            range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
            gpus: parameter::list("gpus", params.gpus.as_ref())?,
            hosts: parameter::list("host", params.host.as_ref())?,
            by: group.ok_or_else(|| ApiError::parameter("by", by, allowed()))?,
            is_checked: Flag::read("check", params.check.as_ref())?,
            shown: ShownJobs {
                sort: given(params.sort.as_ref()).map(sort).transpose()?,
                only_running: Flag::read("running", params.running.as_ref())?,
                page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &config.limits)?,
            },
        })
    }

    /// What was held of the GPUs that are asked for, and beside it their own hours and energy, if these are asked for.
    async fn held(
        &self,
        history: &dyn History,
        (start_ns, end_ns): (i64, i64),
    ) -> Result<Part<(JobsPage, Option<JobCheck>)>, ApiError> {
        let Part { answer: gpus, missing } = self.selected(history).await?;
        let Some(gpus) = gpus else {
            let query =
                HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by: self.by.held(), holder: None };
            let nothing = self.shown.page(Holdings::of(&query, None));
            let check = self.is_checked.then(|| check(&nothing.held, &[]));
            return Ok(Part { answer: (nothing, check), missing });
        };
        let Part { answer: told, missing: untold } = match self.by.told() {
            Some(text) => {
                let Part { answer, missing } = job_texts(history, text.clone(), (start_ns, end_ns)).await?;
                Part { answer: Some(Arc::new(answer)), missing }
            }
            None => Part::default(),
        };
        let query = HoldingsQuery { gpus: gpus.clone(), start_ns, end_ns, by: self.by.held(), holder: None };
        let Part { answer: held, missing: unread } = all_holdings(history, &query, told).await?;
        // Of a month of jobs it takes a while.
        let shown = self.shown.clone();
        let page = tokio::task::spawn_blocking(move || shown.page(held)).await.map_err(QueryError::failed)?;
        let missing = ask::joined(ask::joined(missing, untold), unread);
        if !self.is_checked {
            return Ok(Part { answer: (page, None), missing });
        }
        let query = UseQuery { gpus, told_apart: ToldApart::by([]), ..UseQuery::of(start_ns, end_ns) };
        let Part { answer: uses, missing: unread } = history.usage(query).await?;
        let check = check(&page.held, &uses);
        Ok(Part { answer: (page, Some(check)), missing: ask::joined(missing, unread) })
    }

    /// The keys of the GPUs that are asked for, without any all; none: there is no such GPU.
    async fn selected(&self, history: &dyn History) -> Result<Part<Option<Vec<Arc<str>>>>, ApiError> {
        if self.gpus.is_empty() && self.hosts.is_empty() {
            return Ok(Part { answer: Some(Vec::new()), missing: Vec::new() });
        }
        let fleet = history.fleet().await?;
        let gpus = telemetry::selected(&fleet, &self.gpus, &self.hosts)?.unwrap_or_default();
        Ok(Part { answer: Some(gpus).filter(|gpus| !gpus.is_empty()), missing: fleet.missing })
    }
}

impl ShownJobs {
    /// The groups of the page that is asked for, in their order, and the sums of all.
    fn page(&self, held: Holdings) -> JobsPage {
        let mut groups = held.ranked();
        groups.retain(|one| one.is_last || !self.only_running);
        self.put_in_order(&mut groups);
        let mut whole = HoldingSums::default();
        for one in &groups {
            whole.add(&one.sums);
        }
        let (groups, total, pagination) = self.page.cut(groups);
        JobsPage { held: held.answer(&groups), whole, total, pagination }
    }

    fn put_in_order(&self, groups: &mut [RankedGroup]) {
        let Some((name, is_reversed)) = &self.sort else { return };
        let turned = |order: std::cmp::Ordering| if *is_reversed { order.reverse() } else { order };
        let Some((_, of)) = ORDERS.iter().find(|(known, _)| known == name) else {
            return groups.sort_by(|one, other| {
                let is_known = other.group.is_some().cmp(&one.group.is_some());
                is_known.then_with(|| turned(one.group.cmp(&other.group)))
            });
        };
        groups.sort_by(|one, other| match (of(&one.sums), of(&other.sums)) {
            // What is equal but for the last digits stays in the order of the answer.
            (Some(one), Some(other)) => turned(rounded(one).total_cmp(&rounded(other))),
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
    }
}

impl Ask for JobAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let (start_ns, end_ns) = self.range.at(view.now_ns())?;
        let is_current = is_current(end_ns, view.now_ns());
        let by = HoldingGroup::Gpu;
        let Part { answer: holder, missing: untold } =
            self.holder(view.history.as_ref(), (start_ns, end_ns), view.now_ns()).await?;
        let query = HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by, holder: Some(holder) };
        let Part { answer: held, missing } = all_holdings(view.history.as_ref(), &query, None).await?;
        let missing = ask::joined(missing, untold);
        let HoldingsAnswer { mut groups, .. } = held.finish();
        groups.retain(|one| self.cluster.is_none() || one.cluster == self.cluster);
        let Some(whole) = together(&groups) else { return Err(ApiError::no_holder(&self.id, &missing)) };
        if groups.iter().any(|one| one.cluster != whole.cluster) {
            let clusters: BTreeSet<&str> = groups.iter().filter_map(|one| one.cluster.as_deref()).collect();
            let named: Vec<&str> = clusters.into_iter().collect();
            let named = named.join(", ");
            let allowed = format!("one of the clusters with a job or pod of this name: {named}");
            return Err(ApiError::Missing { name: "cluster", allowed: allowed.into() });
        }
        groups.sort_by(|one, other| (&one.nodes, &one.group).cmp(&(&other.nodes, &other.group)));
        let Part { answer: told, missing: unread } = ToldJobs::of_holders(
            view.history.as_ref(),
            std::slice::from_ref(&whole),
            (start_ns, end_ns),
            view.now_ns(),
        )
        .await?;
        let Part { answer: fleet, missing: lost } = view.history.fleet().await?;
        let Part { answer: steps, missing: without_steps } =
            steps::of_job(&view, &whole, (start_ns, end_ns), &fleet).await?;
        let missing = ask::joined(ask::joined(ask::joined(missing, unread), lost), without_steps);
        view.render(missing, move |view, missing| {
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            let told = told.showing(&view.job_labels).of(&whole);
            // In what could not be read it may have worked.
            let told_whole = told.as_ref().filter(|_| missing.is_empty());
            let detail = JobDetail {
                job: JobUse::of(&whole, told.as_ref(), is_current, view.prices),
                advice: told_whole.and_then(|told| advice::advice(&groups, told, start_ns)),
                gpus: groups.iter().map(|one| JobGpu::of(one, &fleet, view.prices)).collect(),
                steps: steps.shown.iter().map(|step| step.shown(view.prices)).collect(),
                steps_total: steps.total,
                interpolated: whole.sums.is_interpolated(),
                start: Moment(start_ns),
                end: Moment(end_ns),
            };
            Body::until(until_ns, &detail)
        })
        .await
    }
}

impl JobAsk {
    /// The holder, as its rows name it: an id without a kind is that of a batch job, or its place in an array.
    async fn holder(
        &self,
        history: &dyn History,
        range: (i64, i64),
        now_ns: i64,
    ) -> Result<Part<Arc<str>>, ApiError> {
        let of = |answer: Arc<str>| Part { answer, missing: Vec::new() };
        if self.id.contains(':') {
            return Ok(of(Arc::from(self.id.as_str())));
        }
        if !is_array_task(&self.id) {
            return Ok(of(format!("job:{}", self.id).into()));
        }
        let Part { answer: told, missing } = ToldJobs::of_range(history, range, now_ns).await?;
        let number = told.of_array_task(self.cluster.as_deref(), &self.id);
        let number = number.map_or(self.id.as_str(), AsRef::as_ref);
        Ok(Part { answer: format!("job:{number}").into(), missing })
    }
}

/// Whether a text is a place in an array of jobs: `ARRAY_TASK`.
fn is_array_task(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('_').is_some_and(|(array, task)| is_number(array) && is_number(task))
}

/// All that a holder had as one; none: nothing.
fn together(gpus: &[Holding]) -> Option<Holding> {
    let (first, rest) = gpus.split_first()?;
    let mut whole = Holding { group: first.holder.clone(), ..first.clone() };
    for one in rest {
        whole.and(&Holding { group: one.holder.clone(), ..one.clone() });
    }
    Some(whole)
}

/// Whether a range that ends there ends now, as far as the sums go.
fn is_current(end_ns: i64, now_ns: i64) -> bool {
    end_ns >= now_ns.saturating_sub(HOLDINGS_TRAIL_NS)
}

fn sort(text: &str) -> Result<(String, bool), ApiError> {
    let (name, is_reversed) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    if name == BY_GROUP || ORDERS.iter().any(|(order, _)| *order == name) {
        return Ok((name.to_owned(), is_reversed));
    }
    let names: Vec<&str> = ORDERS.iter().map(|(order, _)| *order).chain([BY_GROUP]).collect();
    Err(ApiError::parameter("sort", text, format!("{}; - before it turns the order round", names.join(", "))))
}

/// The sums of GPUs beside their own seconds and joules, of those that have both. The uses of a GPU lie side by side.
fn check(held: &HoldingsAnswer, uses: &[GpuUse]) -> JobCheck {
    let (mut sums, mut own_s, mut own_joules) = (HoldingSums::default(), 0.0, None);
    let (mut gpus, mut without_sums) = (0, 0);
    for of_gpu in uses.chunk_by(|one, next| one.gpu == next.gpu) {
        // What an instance has is in the sums of its card.
        let Some(one) = of_gpu.first().filter(|one| !held.instances.contains(&one.gpu)) else { continue };
        let lines = held.gpus.get(&one.gpu).filter(|_| !held.by_rows.contains(&one.gpu));
        let Some(lines) = lines else {
            without_sums += 1;
            continue;
        };
        gpus += 1;
        own_s += seconds(one.last_ns.saturating_sub(one.first_ns));
        let own = of_gpu.iter().filter_map(|one| one.held.joules).reduce(|one, other| one + other);
        let both = lines.joules.zip(own);
        sums.add(&HoldingSums { joules: both.map(|(joules, _)| joules), ..*lines });
        if let Some((_, own)) = both {
            *own_joules.get_or_insert(0.0) += own;
        }
    }
    JobCheck::of(&sums, (own_s, own_joules), (gpus, without_sums))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobPrices;

    #[test]
    fn orders_stand_as_the_sums_do() {
        let sums =
            serde_json::to_string(&JobSums::of(&HoldingSums::default(), JobPrices::default())).unwrap();
        let places = ORDERS.map(|(name, _)| sums.find(&format!("\"{name}\"")).unwrap());
        assert!(places.is_sorted(), "{sums}");
    }
}
