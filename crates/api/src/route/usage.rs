//! `/api/v1/analysis/energy` and `/api/v1/analysis/idle`: what GPUs use, and what of it is for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::energy::EnergySource;
use gpuvitals_analysis::usage::{self, GpuUse};
use gpuvitals_core::history::{GroupColumn, POINTS_MAX, Part};
use gpuvitals_core::time::{HOUR_NS, MINUTE_NS};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Answered;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::config::Limits;
use crate::dto::{EnergyGroup, EnergyList, IdleGroup, IdleList, Moment};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked, Paging, given};

const JOULES_PER_KWH: f64 = 3.6e6;
/// Values of a GPU and step: four metrics, and room for GPUs that change hands.
const VALUES_OF_A_STEP: i64 = 8;

/// Which use.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// First instant; an hour before the end unless given.
    #[param(value_type = Option<crate::dto::Instant>, example = "2026-11-20T15:50:00Z")]
    start: Option<String>,
    /// Last instant; now unless given.
    #[param(value_type = Option<crate::dto::Instant>, example = "2026-11-20T16:00:00Z")]
    end: Option<String>,
    /// Groups: `gpu`, `node`, `namespace`, `job` or `pod`; `namespace` unless given.
    #[param(pattern = "^ *(?:gpu|node|namespace|job|pod)? *$", example = "job")]
    by: Option<String>,
    /// Price of a GPU hour, in any currency, for the cost of idle hours.
    #[param(value_type = Option<f64>, minimum = 0, example = 2.5)]
    price: Option<String>,
    /// Most groups to return.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Option<String>,
    /// Groups to pass over.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 9_007_199_254_740_991_i64, default = 0)]
    offset: Option<String>,
}

/// A question for use.
#[derive(Debug)]
struct UsageAsk {
    of_idle: bool,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    by: GroupColumn,
    price: Option<f64>,
    page: Paging,
}

/// Energy by GPU, node, namespace, job or pod.
///
/// A GPU's energy is its counter's if that agrees with integrated power within 10 %, otherwise integrated power; `source` says which.
/// Steps are a minute; they are longer for ranges of a day or more, and for large fleets. A step's energy belongs to its holders by
/// their shares of it.
#[utoipa::path(
    get, path = "/api/v1/analysis/energy", tag = "analysis", operation_id = "energy", params(UsageParams),
    responses(
        (status = 200, description = "The energy.", body = EnergyList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn energy(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<UsageParams>,
) -> Answered {
    api.answer(UsageAsk::parse(&params, &api.config().limits, false)?, &headers).await
}

/// GPU hours, energy and cost of GPUs that are held without work.
///
/// Held: a namespace, pod or job has the GPU. Without work: no sample of the utilisation in the step was 1 % or more.
#[utoipa::path(
    get, path = "/api/v1/analysis/idle", tag = "analysis", operation_id = "idle", params(UsageParams),
    responses(
        (status = 200, description = "The idle hours.", body = IdleList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "No values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn idle(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<UsageParams>,
) -> Answered {
    api.answer(UsageAsk::parse(&params, &api.config().limits, true)?, &headers).await
}

impl Ask for UsageAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        let end_ns = self.end_ns.unwrap_or(view.now_ns());
        let start_ns = self.start_ns.unwrap_or_else(|| end_ns.saturating_sub(HOUR_NS).max(0));
        if end_ns < start_ns {
            return Err(ApiError::EndBeforeStart);
        }
        let step_ns = step(end_ns.saturating_sub(start_ns), fleet.gpus.len());
        let query = usage::usage_query(start_ns, end_ns, step_ns);
        let Part { answer: buckets, missing: more } = view.history.buckets(query).await?;
        view.render(ask::joined(missing, more), move |view, _| {
            let uses = usage::usage(&buckets, start_ns, end_ns);
            let range = (Moment(start_ns), Moment(end_ns), step_ns / 1_000_000);
            let until_ns =
                self.end_ns.map_or_else(|| view.now_ns().saturating_add(MINUTE_NS / 4), |_| i64::MAX);
            if self.of_idle {
                Body::until(until_ns, &self.idle(&uses, range))
            } else {
                Body::until(until_ns, &self.energy(&uses, range))
            }
        })
        .await
    }
}

/// Steps of whole minutes by which the answer stays within its bounds.
fn step(range_ns: i64, gpus: usize) -> i64 {
    let gpus = i64::try_from(gpus.max(1)).unwrap_or(i64::MAX);
    let points = i64::try_from(POINTS_MAX).unwrap_or(i64::MAX);
    let steps = (points / gpus.saturating_mul(VALUES_OF_A_STEP)).clamp(1, 1_440);
    (range_ns / steps / MINUTE_NS + 1).saturating_mul(MINUTE_NS)
}

impl UsageAsk {
    fn parse(params: &UsageParams, limits: &Limits, of_idle: bool) -> Result<Self, ApiError> {
        const BY: [&str; 5] = ["gpu", "node", "namespace", "job", "pod"];
        let by = given(params.by.as_ref()).unwrap_or("namespace");
        let column = GroupColumn::by_name(by).filter(|_| BY.contains(&by));
        Ok(Self {
            of_idle,
            start_ns: parameter::instant("start", params.start.as_ref())?,
            end_ns: parameter::instant("end", params.end.as_ref())?,
            by: column.ok_or_else(|| ApiError::parameter("by", by, BY.join(", ")))?,
            price: parameter::number("price", params.price.as_ref(), 0.0..=f64::MAX, "a number from 0 on")?,
            page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        })
    }

    fn groups<'a>(&self, uses: impl Iterator<Item = &'a GpuUse>) -> Vec<(Option<String>, Vec<&'a GpuUse>)> {
        let mut groups: BTreeMap<Option<Arc<str>>, Vec<&GpuUse>> = BTreeMap::new();
        for one in uses {
            let name = match self.by {
                GroupColumn::Gpu => Some(Arc::clone(&one.gpu)),
                GroupColumn::Identity(column) => one.text(column).cloned(),
            };
            groups.entry(name).or_default().push(one);
        }
        groups.into_iter().map(|(name, uses)| (name.map(|name| name.to_string()), uses)).collect()
    }

    fn energy(&self, uses: &[GpuUse], (start, end, step_ms): (Moment, Moment, i64)) -> EnergyList {
        let mut groups: Vec<EnergyGroup> =
            self.groups(uses.iter()).into_iter().map(|(name, uses)| energy_of(name, &uses)).collect();
        let energy = |group: &EnergyGroup| group.energy_kwh.unwrap_or(-1.0);
        groups.sort_by(|a, b| energy(b).total_cmp(&energy(a)));
        let (groups, total, pagination) = self.page.cut(groups);
        EnergyList {
            groups,
            whole: energy_of(None, &uses.iter().collect::<Vec<_>>()),
            start,
            end,
            step_ms,
            total,
            pagination,
        }
    }

    fn idle(&self, uses: &[GpuUse], (start, end, step_ms): (Moment, Moment, i64)) -> IdleList {
        let held: Vec<&GpuUse> = uses.iter().filter(|one| one.is_held()).collect();
        let mut groups: Vec<IdleGroup> = self
            .groups(held.iter().copied())
            .into_iter()
            .map(|(name, uses)| idle_of(name, &uses, self.price))
            .filter(|group| group.idle_gpu_hours > 0.0)
            .collect();
        groups.sort_by(|a, b| b.idle_gpu_hours.total_cmp(&a.idle_gpu_hours));
        let (groups, total, pagination) = self.page.cut(groups);
        IdleList { groups, whole: idle_of(None, &held, self.price), start, end, step_ms, total, pagination }
    }
}

fn gpus(uses: &[&GpuUse]) -> usize {
    uses.iter().map(|one| &one.gpu).collect::<BTreeSet<_>>().len()
}

fn energy_of(group: Option<String>, uses: &[&GpuUse]) -> EnergyGroup {
    let known: Vec<(f64, EnergySource)> =
        uses.iter().filter_map(|one| Some((one.joules?, one.source))).collect();
    let of = |source| known.iter().filter(move |one| one.1 == source).map(|one| one.0);
    let (counted, integrated) = (of(EnergySource::Counter), of(EnergySource::Integrated));
    let source = match (counted.clone().next().is_some(), integrated.clone().next().is_some()) {
        (true, true) => Some("both"),
        (true, false) => Some("counter"),
        (false, true) => Some("integrated"),
        (false, false) => None,
    };
    let counted_kwh = counted.sum::<f64>() / JOULES_PER_KWH;
    let all_kwh = counted_kwh + integrated.sum::<f64>() / JOULES_PER_KWH;
    EnergyGroup {
        group,
        energy_kwh: source.map(|_| all_kwh),
        counted_kwh,
        source,
        gpu_hours: uses.iter().map(|one| one.seconds).sum::<f64>() / 3_600.0,
        gpus: gpus(uses),
    }
}

fn idle_of(group: Option<String>, uses: &[&GpuUse], price: Option<f64>) -> IdleGroup {
    let hours = |of: fn(&GpuUse) -> f64| uses.iter().map(|one| of(one)).sum::<f64>() / 3_600.0;
    let idle_gpu_hours = hours(|one| one.idle_seconds);
    IdleGroup {
        group,
        held_gpu_hours: hours(|one| one.seconds),
        idle_gpu_hours,
        idle_energy_kwh: uses
            .iter()
            .filter_map(|one| one.idle_joules)
            .reduce(|sum, joules| sum + joules)
            .map(|joules| joules / JOULES_PER_KWH),
        idle_cost: price.map(|price| price * idle_gpu_hours),
        gpus: gpus(uses),
    }
}
