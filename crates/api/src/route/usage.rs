//! `/api/v1/analysis/energy` and `/api/v1/analysis/idle`: what GPUs use, and what of it is for nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::energy::{EnergySource, JOULES_PER_KWH};
use gpuvitals_core::history::{GroupColumn, History, Part};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::usage::{GpuUse, HolderUse, ToldApart, UseQuery};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::telemetry;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Instant, Limit, Offset, Paging, TimeRange};
use crate::config::Limits;
use crate::dto::{EnergyGroup, EnergyList, IdleGroup, IdleList, Moment};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked, given};

/// How long an answer about the use up to now serves, nanoseconds: it is dear, and changes slowly.
pub(super) const USE_REUSED_NS: i64 = MINUTE_NS / 4;

/// What may be asked of the energy and of the idle hours.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
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
    /// Groups: `gpu`, `node`, `namespace`, `job` or `pod`; `namespace` unless given.
    #[param(pattern = "^ *(?:gpu|node|namespace|job|pod)? *$", example = "job")]
    by: Option<String>,
    /// Price of a GPU hour, in any currency, for the cost of idle hours.
    #[param(value_type = Option<f64>, minimum = 0, example = 2.5)]
    price: Option<String>,
    /// Most groups to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Groups to pass over.
    #[param(inline)]
    offset: Option<Offset>,
}

/// A question for use.
#[derive(Debug)]
struct UsageAsk {
    about: About,
    range: TimeRange,
    gpus: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    by: GroupColumn,
    price: Option<f64>,
    page: Paging,
}

/// What of the use is asked.
#[derive(Debug, Clone, Copy)]
enum About {
    Energy,
    Idle,
}

/// Energy by GPU, node, namespace, job or pod.
///
/// A GPU's energy is its counter's while that agrees with integrated power within 10 %, otherwise integrated power; `source` says which.
/// Energy and time between two rows belong to the holder of the earlier one. Time goes from the first row in the range to the last,
/// without gaps: more than five times the usual distance of rows. Of a GPU that several hold at once rows name one, which has all of it:
/// `/api/v1/jobs` divides it.
#[utoipa::path(
    get, path = "/api/v1/analysis/energy", tag = "analysis", operation_id = "energy", params(UsageParams),
    responses(
        (status = 200, description = "The energy.", body = EnergyList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "One of the GPUs or hosts is unknown, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn energy(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<UsageParams>,
) -> Answered {
    api.answer(UsageAsk::parse(&params, &api.config().limits, About::Energy)?, &headers).await
}

/// GPU hours, energy and cost of GPUs that are held without work.
///
/// Held: a namespace, pod or job has the GPU. Idle: the utilisation of a sample is below 1 %; that lasts until the next sample.
#[utoipa::path(
    get, path = "/api/v1/analysis/idle", tag = "analysis", operation_id = "idle", params(UsageParams),
    responses(
        (status = 200, description = "The idle hours.", body = IdleList,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the range is too long.", body = ErrorBody),
        (status = 404, description = "One of the GPUs or hosts is unknown, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn idle(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<UsageParams>,
) -> Answered {
    api.answer(UsageAsk::parse(&params, &api.config().limits, About::Idle)?, &headers).await
}

impl Ask for UsageAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let (start_ns, end_ns) = self.range.at(view.now_ns())?;
        let query = UseQuery { told_apart: self.told_apart(), ..UseQuery::of(start_ns, end_ns) };
        let Part { answer: uses, missing } = self.uses(view.history.as_ref(), query).await?;
        view.render(missing, move |view, partial| {
            let range = (Moment(start_ns), Moment(end_ns));
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            match self.about {
                About::Energy => Body::until(until_ns, &self.energy(&uses, range, partial)),
                About::Idle => Body::until(until_ns, &self.idle(&uses, range, partial)),
            }
        })
        .await
    }
}

impl UsageAsk {
    fn parse(params: &UsageParams, limits: &Limits, about: About) -> Result<Self, ApiError> {
        const BY: [&str; 5] = ["gpu", "node", "namespace", "job", "pod"];
        let by = given(params.by.as_ref()).unwrap_or("namespace");
        let column = GroupColumn::by_name(by).filter(|_| BY.contains(&by));
        Ok(Self {
            about,
            range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
            gpus: parameter::list("gpus", params.gpus.as_ref())?,
            hosts: parameter::list("host", params.host.as_ref())?,
            by: column.ok_or_else(|| ApiError::parameter("by", by, BY.join(", ")))?,
            price: parameter::number("price", params.price.as_ref(), 0.0..=f64::MAX, "a number from 0 on")?,
            page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        })
    }

    /// Holders are told apart by the groups alone: a GPU that a thousand pods of a namespace had has one use.
    fn told_apart(&self) -> ToldApart {
        match self.by {
            GroupColumn::Gpu => ToldApart::by([]),
            GroupColumn::Identity(column) => ToldApart::by([column]),
        }
    }

    /// The use of the GPUs that are asked for.
    async fn uses(&self, history: &dyn History, query: UseQuery) -> Result<Part<Vec<GpuUse>>, ApiError> {
        if self.gpus.is_empty() && self.hosts.is_empty() {
            return Ok(history.usage(query).await?);
        }
        let fleet = history.fleet().await?;
        let Part { answer, missing } = match telemetry::selected(&fleet, &self.gpus, &self.hosts)? {
            Some(gpus) if gpus.is_empty() => Part::default(),
            gpus => history.usage(UseQuery { gpus: gpus.unwrap_or_default(), ..query }).await?,
        };
        Ok(Part { answer, missing: ask::joined(fleet.missing, missing) })
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

    fn energy(&self, uses: &[GpuUse], (start, end): (Moment, Moment), partial: &[String]) -> EnergyList {
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
            total,
            pagination,
            partial: partial.to_vec(),
        }
    }

    fn idle(&self, uses: &[GpuUse], (start, end): (Moment, Moment), partial: &[String]) -> IdleList {
        let held: Vec<&GpuUse> = uses.iter().filter(|one| one.is_held()).collect();
        let mut groups: Vec<IdleGroup> = self
            .groups(held.iter().copied())
            .into_iter()
            .map(|(name, uses)| idle_of(name, &uses, self.price))
            .filter(|group| group.idle_gpu_hours.is_some_and(|hours| hours > 0.0))
            .collect();
        let hours = |group: &IdleGroup| group.idle_gpu_hours.unwrap_or(0.0);
        groups.sort_by(|a, b| hours(b).total_cmp(&hours(a)));
        let (groups, total, pagination) = self.page.cut(groups);
        let mut whole = idle_of(None, &held, self.price);
        if held.is_empty() && uses.iter().any(|one| one.held.seconds > 0.0) {
            // Nobody held a GPU, which is known.
            (whole.held_gpu_hours, whole.idle_gpu_hours) = (Some(0.0), Some(0.0));
            whole.idle_cost = self.price.map(|_| 0.0);
        }
        IdleList { groups, whole, start, end, total, pagination, partial: partial.to_vec() }
    }
}

/// GPUs, without instances beside their card.
fn gpus(uses: &[&GpuUse]) -> usize {
    let keys: HashSet<&str> = uses.iter().map(|one| one.gpu.as_ref()).collect();
    keys.iter().filter(|key| !is_of_card_among(key, &keys)).count()
}

/// Hours of GPUs; none if each of them has only one row, which is no duration, or nothing is known of any. An instance of a card
/// whose own hours are known has none beside them.
fn hours(uses: &[&GpuUse], of: fn(&HolderUse) -> Option<f64>) -> Option<f64> {
    let known = || uses.iter().filter(|one| one.held.seconds > 0.0).filter(|one| of(&one.held).is_some());
    let keys: HashSet<&str> = known().map(|one| one.gpu.as_ref()).collect();
    let whole = known().filter(|one| !is_of_card_among(&one.gpu, &keys)).filter_map(|one| of(&one.held));
    whole.reduce(|sum, seconds| sum + seconds).map(|seconds| seconds / 3_600.0)
}

/// Whether a key is that of an instance whose card is among these.
fn is_of_card_among(key: &str, keys: &HashSet<&str>) -> bool {
    card_of(key).is_some_and(|card| keys.contains(card))
}

/// The card of an instance, by their keys.
pub(super) fn card_of(key: &str) -> Option<&str> {
    key.rsplit_once(':').map(|(card, _)| card)
}

/// From 0 on: the sum of nothing is not -0.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// The energy of some uses.
pub(super) fn energy_of(group: Option<String>, uses: &[&GpuUse]) -> EnergyGroup {
    let known: Vec<(f64, EnergySource)> =
        uses.iter().filter_map(|one| Some((one.held.joules?, one.source?))).collect();
    let of = |source| known.iter().filter(move |one| one.1 == source).map(|one| one.0);
    let (counted, integrated) = (of(EnergySource::Counter), of(EnergySource::Integrated));
    let source = match (counted.clone().next().is_some(), integrated.clone().next().is_some()) {
        (true, true) => Some("both"),
        (true, false) => Some(EnergySource::Counter.name()),
        (false, true) => Some(EnergySource::Integrated.name()),
        (false, false) => None,
    };
    let counted_kwh = sum(counted) / JOULES_PER_KWH;
    let all_kwh = counted_kwh + sum(integrated) / JOULES_PER_KWH;
    EnergyGroup {
        group,
        energy_kwh: source.map(|_| all_kwh),
        counted_kwh: source.map(|_| counted_kwh),
        source,
        gpu_hours: hours(uses, |held| Some(held.seconds)),
        busy_gpu_hours: hours(uses, |held| held.busy_s),
        throttled_gpu_hours: hours(uses, |held| held.throttled_s),
        gpus: gpus(uses),
    }
}

/// The idle hours of some uses, all of them by holders.
pub(super) fn idle_of(group: Option<String>, uses: &[&GpuUse], price: Option<f64>) -> IdleGroup {
    let idle_gpu_hours = hours(uses, |held| held.idle_s);
    let idle_joules = uses.iter().filter_map(|one| one.held.idle_joules).reduce(|sum, joules| sum + joules);
    IdleGroup {
        group,
        held_gpu_hours: hours(uses, |held| Some(held.seconds)),
        idle_gpu_hours,
        idle_energy_kwh: idle_joules.map(|joules| joules / JOULES_PER_KWH),
        idle_cost: price.zip(idle_gpu_hours).map(|(price, hours)| price * hours),
        gpus: gpus(uses),
    }
}
