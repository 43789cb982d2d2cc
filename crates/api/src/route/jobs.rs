//! `/api/v1/jobs`: what each holder of GPUs used, by the sums that nodes make of their samples.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::history::{Part, holdings};
use gpuvitals_core::usage::{Holding, HoldingSums};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use super::usage::USE_REUSED_NS;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Instant, Limit, Offset, Paging, TimeRange};
use crate::dto::{JobList, JobSums, JobUse, Moment};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};

/// Most rows of `gpu_usage` that are added up: 4,000 GPUs with ten holders an hour over a day.
const ROWS_MAX: usize = 1_000_000;

/// Whose use.
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
    /// Only GPUs that are in these hosts now, between commas.
    #[param(example = "sim-node-01")]
    host: Option<String>,
    /// Most jobs to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Jobs to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// A question for the use by holders.
#[derive(Debug)]
struct JobsAsk {
    range: TimeRange,
    hosts: Vec<Arc<str>>,
    page: Paging,
}

/// What each job and pod used of its GPUs, by the sums that agents make of every sample.
///
/// A job holds a GPU from its allocation on, also without a process. Of a GPU that several hold at once each has the same part.
/// GPUs that no agent samples, as those of files and of clusters read from outside, are not among them. Of the hours in which the
/// range begins and ends a part is taken that is as long: `interpolated`.
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "analysis", operation_id = "jobs", params(JobsParams),
    responses(
        (status = 200, description = "The jobs and pods, whoever held most GPU hours first.", body = JobList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "One of the hosts is unknown, or no rows are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn jobs(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<JobsParams>,
) -> Answered {
    let ask = JobsAsk {
        range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
        hosts: parameter::list("host", params.host.as_ref())?,
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), &api.config().limits)?,
    };
    api.answer(ask, &headers).await
}

impl Ask for JobsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let range = self.range.at(view.now_ns())?;
        let Part { answer: held, missing } = self.held(&view, range).await?;
        view.render(missing, move |view, _| {
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            Body::until(until_ns, &self.list(&held, range))
        })
        .await
    }
}

impl JobsAsk {
    async fn held(&self, view: &View, range: (i64, i64)) -> Result<Part<Vec<Holding>>, ApiError> {
        let history = view.history.as_ref();
        if self.hosts.is_empty() {
            return Ok(holdings(history, Vec::new(), range, ROWS_MAX).await?);
        }
        let fleet = history.fleet().await?;
        let Part { answer, missing } = match telemetry::selected(&fleet, &[], &self.hosts)? {
            Some(gpus) if gpus.is_empty() => Part::default(),
            gpus => holdings(history, gpus.unwrap_or_default(), range, ROWS_MAX).await?,
        };
        Ok(Part { answer, missing: ask::joined(fleet.missing, missing) })
    }

    fn list(&self, held: &[Holding], (start_ns, end_ns): (i64, i64)) -> JobList {
        let sums = |of: fn(&Holding) -> bool| {
            held.iter().filter(|one| of(one)).fold(HoldingSums::default(), |mut sums, one| {
                sums.add(&one.sums);
                sums
            })
        };
        let (all, nobody, unseen) =
            (sums(Holding::is_held), sums(Holding::is_nobody), sums(Holding::is_unobserved));
        let jobs: Vec<JobUse> = held.iter().filter(|one| one.is_held()).map(JobUse::of).collect();
        let (jobs, total, pagination) = self.page.cut(jobs);
        JobList {
            jobs,
            whole: JobSums::of(&all),
            nobody: JobSums::of(&nobody),
            unobserved_gpu_hours: unseen.held_s / 3_600.0,
            interpolated: [all, nobody, unseen].iter().any(|sums| sums.is_interpolated),
            start: Moment(start_ns),
            end: Moment(end_ns),
            total,
            pagination,
        }
    }
}
