//! `/api/v1/hosts`.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{Fleet, Part};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{Instant, Limit, Offset, Paging};
use crate::condition::StateRules;
use crate::dto::{Host, HostList, Moment, StateCounts};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::Asked;

/// Which hosts.
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
}

/// A question for hosts.
#[derive(Debug)]
pub(crate) struct HostsAsk {
    page: Paging,
}

/// The hosts, by name.
#[utoipa::path(
    get, path = "/api/v1/hosts", tag = "hosts", operation_id = "list_hosts", params(HostsParams),
    responses(
        (status = 200, description = "The hosts.", body = HostList<'static>,
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
    let page = Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?;
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, HostsAsk { page }, &headers).await
}

impl Ask for HostsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let Part { answer: fleet, missing } = view.history.fleet().await?;
        view.render(missing, move |view, _| self.list(&fleet, view.rules)).await
    }
}

impl HostsAsk {
    fn list(&self, fleet: &Fleet, rules: StateRules) -> Result<Body, ApiError> {
        let mut hosts: BTreeMap<&str, Host<'_>> = BTreeMap::new();
        for gpu in &fleet.gpus {
            let Some(hostname) = gpu.identity.node() else { continue };
            let host = hosts.entry(hostname).or_insert_with(|| Host {
                hostname,
                gpu_count: 0,
                models: BTreeSet::new(),
                vendors: BTreeSet::new(),
                states: StateCounts::default(),
                last_seen: Moment(gpu.last_seen_ns),
                simulated: true,
            });
            host.gpu_count += 1;
            host.models.extend(gpu.identity.get(IdentityColumn::Model));
            host.vendors.extend(gpu.identity.get(IdentityColumn::Vendor));
            host.states.add(rules.state(gpu));
            host.last_seen = Moment(host.last_seen.0.max(gpu.last_seen_ns));
            host.simulated &= gpu.identity.is_simulated();
        }
        let (hosts, total, pagination) = self.page.cut(hosts.into_values().collect());
        Body::until(rules.changes_at(fleet), &HostList { hosts, total, pagination })
    }
}
