//! `/api/v1/schedule/hints`: where work can go.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_analysis::hints::NodeHint;
use serde::Deserialize;
use utoipa::IntoParams;

use super::analysis::judged;
use super::answered::Answered;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::asked::{self, Instant, Limit, Offset, Paging, parameters};
use crate::config::PAGE_MAX;
use crate::dto::{HintList, HintTotals, Moment, NodeRoom};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{self, Asked};

parameters! {
    /// The fewest free GPUs of a node.
    FewestFree: asked::count(0..=PAGE_MAX, Some(0));
}

/// What may be asked of `GET /api/v1/schedule/hints`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HintsParams {
    /// Most nodes to return.
    #[param(inline)]
    limit: Option<Limit>,
    /// Nodes to pass over.
    #[param(inline)]
    offset: Option<Offset>,
    /// Only nodes with these models, between commas.
    #[param(example = "NVIDIA H100 80GB HBM3")]
    model: Option<String>,
    /// Only nodes with so many free GPUs.
    #[param(inline)]
    min_free: Option<FewestFree>,
    /// As of this instant, by the history up to it: what was free then. Without it: now.
    #[param(inline, example = "2026-11-20T16:00:00Z")]
    at: Option<Instant>,
}

/// A question where work can go.
#[derive(Debug)]
struct HintsAsk {
    page: Paging,
    models: Vec<Arc<str>>,
    min_free: usize,
}

/// Free, busy and unhealthy GPUs of each node, and how the free ones are scattered.
///
/// Unhealthy are GPUs with a critical finding or a warning, and those that report nothing; busy are those that a job or process
/// holds, that work, or that have more than 1,024 MiB of memory in use: `memory_in_use` says how much.
#[utoipa::path(
    get, path = "/api/v1/schedule/hints", tag = "analysis", operation_id = "schedule_hints", params(HintsParams),
    responses(
        (status = 200, description = "The nodes, by cluster and name.", body = HintList<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn hints(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<HintsParams>,
) -> Answered {
    let limits = &api.config().limits;
    let min_free = params.min_free.as_ref().map(|asked| &asked.0);
    let ask = HintsAsk {
        page: Paging::parse(params.limit.as_ref(), params.offset.as_ref(), limits)?,
        models: parameter::list("model", params.model.as_ref())?,
        min_free: parameter::whole("min_free", min_free, 0, limits.page_max)?.unwrap_or(0),
    };
    let at_ns = Instant::read("at", params.at.as_ref())?;
    api.answer_as_of(at_ns, ask, &headers).await
}

impl Ask for HintsAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let judgement = judged(&view).await?;
        view.render(judgement.missing.clone(), move |view, partial| {
            let nodes: Vec<&NodeHint> = judgement.hints.iter().filter(|hint| self.wants(hint)).collect();
            let totals = HintTotals::of(&nodes);
            let (nodes, total, pagination) = self.page.cut(nodes);
            let list = HintList {
                totals,
                nodes: nodes.into_iter().map(NodeRoom::of).collect(),
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

impl HintsAsk {
    fn wants(&self, hint: &NodeHint) -> bool {
        let is_model =
            self.models.is_empty() || self.models.iter().any(|model| hint.model.as_ref() == Some(model));
        is_model && hint.free.len() >= self.min_free
    }
}
