//! `/api/v1/analysis/findings` and `/api/v1/analysis/stragglers`: what is wrong now.

mod table;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::condition::Severity;
use gpuvitals_analysis::findings::{FleetFinding, HolderLoad, KINDS, Subject};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_flight::JobIncident;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{FormatName, Instant, Limit, Offset, Paging};
use crate::condition;
use crate::dto::{FindingEntry, FindingList, IncidentNote, JobSpread, Moment, StragglerList};
use crate::error::{ApiError, ErrorBody};
use crate::format::{Format, NextPage, TablePage};
use crate::parameter::{self, Asked};
use crate::watch::Judgement;

/// Most incidents that a finding names.
const INCIDENTS_MAX: usize = 8;

/// What may be asked of `GET /api/v1/analysis/findings`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FindingsParams {
    /// Most findings to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Findings to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// Only these severities, between commas.
    #[param(
        pattern = "^ *(?:(?:critical|warning|notice)? *, *)*(?:critical|warning|notice)? *$",
        example = "critical,warning"
    )]
    severity: Option<String>,
    /// Only these kinds, between commas.
    #[param(example = "xid,straggler")]
    kind: Option<String>,
    /// Only those about these hosts or their GPUs, between commas.
    #[serde(alias = "hosts")]
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Only those that concern these namespaces, between commas.
    #[param(example = "research")]
    namespace: Option<String>,
    /// Only those about these GPUs, by key, between commas.
    gpus: Option<String>,
    /// As of this instant, by the history up to it: what was wrong then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
}

/// A question for findings.
#[derive(Debug)]
struct FindingsAsk {
    page: Paging,
    severities: Vec<Arc<str>>,
    kinds: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    namespaces: Vec<Arc<str>>,
    gpus: Vec<Arc<str>>,
    format: Format,
}

/// What is wrong now, the worst first.
///
/// The fleet is judged every 15 seconds. A finding opens after it has held for a while and closes later than it opened;
/// docs/findings.md lists the kinds and their numbers.
#[utoipa::path(
    get, path = "/api/v1/analysis/findings", tag = "analysis", operation_id = "list_findings", params(FindingsParams),
    responses(
        (status = 200, description = "The findings. As CSV or Arrow each with the time at which it began; the header `x-next` says what to give as `offset`.",
         content((FindingList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "One of the hosts is unknown.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn findings(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<FindingsParams>,
) -> Answered {
    let limits = &api.config().limits;
    let severities = parameter::list("severity", params.severity.as_ref())?;
    known("severity", &severities, &Severity::ALL.map(Severity::name))?;
    let kinds = parameter::list("kind", params.kind.as_ref())?;
    known("kind", &kinds, &KINDS.iter().map(|kind| kind.id).collect::<Vec<_>>())?;
    let ask = FindingsAsk {
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        severities,
        kinds,
        hosts: parameter::list("host", params.host.as_ref())?,
        namespaces: parameter::list("namespace", params.namespace.as_ref())?,
        gpus: parameter::list("gpus", params.gpus.as_ref())?,
        format: Format::asked(params.format.as_ref(), &headers)?,
    };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

/// Refuses names that are none of these.
fn known(parameter: &'static str, names: &[Arc<str>], all: &[&str]) -> Result<(), ApiError> {
    let unknown = names.iter().find(|name| !all.contains(&name.as_ref()));
    unknown.map_or(Ok(()), |name| Err(ApiError::parameter(parameter, name, all.join(", "))))
}

impl Ask for FindingsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let judgement = judged(&view).await?;
        // A host that was read from outside has findings and no GPUs of the history.
        let has_finding =
            |host: &str| judgement.findings.iter().any(|(finding, _)| node_of(finding) == Some(host));
        let hosts: Vec<Arc<str>> = self.hosts.iter().filter(|host| !has_finding(host)).cloned().collect();
        if !hosts.is_empty() {
            telemetry::known_hosts(&view.history.fleet().await?, &hosts)?;
        }
        view.render(judgement.missing.clone(), move |view, partial| {
            let wanted: Vec<&(FleetFinding, String)> =
                judgement.findings.iter().filter(|(finding, _)| self.wants(finding)).collect();
            let (findings, total, pagination) = self.page.cut(wanted);
            let until_ns = view.judged_until(Some(&judgement));
            if self.format != Format::Json {
                let next = NextPage::of_list(pagination, findings.len(), total);
                let records = &table::of(&findings)?;
                return Body::table(until_ns, self.format, &TablePage { records, next, partial });
            }
            let kept = view.jobs.as_ref().map_or_else(Vec::new, |jobs| jobs.list());
            let list = FindingList {
                findings: findings
                    .iter()
                    .map(|(finding, name)| {
                        let incidents = incidents_of(finding, &kept, view.now_ns());
                        FindingEntry::of(finding, name, judgement.told_of(finding).as_ref(), incidents)
                    })
                    .collect(),
                judged_at: Moment(judgement.at_ns),
                total,
                pagination,
                partial,
            };
            Body::until(until_ns, &list)
        })
        .await
    }
}

impl FindingsAsk {
    fn wants(&self, finding: &FleetFinding) -> bool {
        let is_among = |wanted: &[Arc<str>], text: Option<&str>| {
            wanted.is_empty() || wanted.iter().any(|one| Some(one.as_ref()) == text)
        };
        let reach = &finding.reach;
        is_among(&self.severities, Some(finding.severity.name()))
            && is_among(&self.kinds, Some(finding.kind.id))
            && is_among(&self.hosts, node_of(finding))
            && is_among(&self.namespaces, reach.namespace.as_deref())
            && (self.gpus.is_empty() || self.gpus.iter().any(|gpu| reach.gpus.contains(gpu)))
    }
}

/// The incidents of jobs that a finding caused: about its GPU or job, from a minute before it was seen on.
fn incidents_of<'a>(
    finding: &FleetFinding,
    kept: &'a [Arc<JobIncident>],
    now_ns: i64,
) -> Vec<IncidentNote<'a>> {
    let times = finding.since_ns.saturating_sub(MINUTE_NS)..=now_ns;
    let is_its = |incident: &&Arc<JobIncident>| {
        let is_about = match &finding.subject {
            Subject::Gpu(gpu) => incident.names(gpu),
            Subject::Job(job) => incident.job.as_str() == job.as_ref(),
            Subject::Fleet | Subject::Node(_) | Subject::Model(_) => false,
        };
        is_about && times.contains(&incident.at_ns())
    };
    let gpus = || finding.reach.gpus.iter().map(|gpu| &**gpu);
    kept.iter()
        .filter(is_its)
        .take(INCIDENTS_MAX)
        .map(|incident| IncidentNote::of(incident, gpus()))
        .collect()
}

/// The host that a finding is about, or that its GPU is on.
fn node_of(finding: &FleetFinding) -> Option<&str> {
    // The subject has the cluster before the name, where one is known.
    let of_subject = match &finding.subject {
        Subject::Node(node) => Some(node.as_ref()),
        _ => None,
    };
    finding.reach.node.as_deref().or(of_subject)
}

/// The last judgement of the fleet; if it is too old the fleet is judged now.
///
/// # Errors
/// When the history gives no answer.
pub(crate) async fn judged(view: &View) -> Result<Arc<Judgement>, ApiError> {
    Ok(view.watch.judged(view.history.as_ref(), view.rules.fresh, 2 * view.limits.judge_every).await?)
}

/// What may be asked of `GET /api/v1/analysis/stragglers`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StragglersParams {
    /// Most jobs to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Jobs to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// As of this instant, by the history up to it: the jobs of that time. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// A question for stragglers.
#[derive(Debug)]
struct StragglersAsk {
    page: Paging,
}

/// The GPUs of each job beside each other.
///
/// Jobs with several GPUs over the last ten minutes: median and robust deviation of clock, power and utilisation, and the
/// distance of each GPU's clock from the median.
#[utoipa::path(
    get, path = "/api/v1/analysis/stragglers", tag = "analysis", operation_id = "list_stragglers", params(StragglersParams),
    responses(
        (status = 200, description = "The jobs.", body = StragglerList<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn stragglers(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<StragglersParams>,
) -> Answered {
    let limits = &api.config().limits;
    let ask = StragglersAsk { page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)? };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

impl Ask for StragglersAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let judgement = judged(&view).await?;
        let fleet = view.history.fleet().await?.answer;
        view.render(judgement.missing.clone(), move |view, partial| {
            let name = |key: &str| condition::name_of(&fleet, key);
            let is_straggler = |gpu: &str| {
                let mut findings = judgement.findings.iter();
                findings.any(|(finding, _)| {
                    finding.kind.id == "straggler"
                        && matches!(&finding.subject, Subject::Gpu(key) if key.as_ref() == gpu)
                })
            };
            let slowest = |job: &HolderLoad| {
                let distances = job.members.iter().filter_map(|member| job.clock_distance(member));
                distances.reduce(f64::min).unwrap_or(f64::INFINITY)
            };
            let mut jobs: Vec<&HolderLoad> = judgement.jobs.iter().collect();
            jobs.sort_by(|a, b| slowest(a).total_cmp(&slowest(b)));
            let (jobs, total, pagination) = self.page.cut(jobs);
            let list = StragglerList {
                jobs: jobs.into_iter().map(|job| JobSpread::of(job, is_straggler, name)).collect(),
                judged_at: Moment(judgement.at_ns),
                total,
                pagination,
                partial,
            };
            Body::until(view.judged_until(Some(&judgement)), &list)
        })
        .await
    }
}
