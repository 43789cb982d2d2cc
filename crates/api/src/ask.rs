//! Questions to the store, in a form in which equal questions are equal.

use gpuvitals_core::time::SECOND_NS;
use gpuvitals_store::Store;

use crate::condition::StateRules;
use crate::config::ApiConfig;
use crate::dto::MetricList;
use crate::error::ApiError;
use crate::route::gpus::{GpuAsk, GpusAsk};
use crate::route::hosts::HostsAsk;
use crate::route::query::QueryAsk;
use crate::route::telemetry::TelemetryAsk;

/// A question, parsed. Equal questions share an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// A list of GPUs.
    Gpus(GpusAsk),
    /// One GPU.
    Gpu(GpuAsk),
    /// Rows.
    Telemetry(TelemetryAsk),
    /// A list of hosts.
    Hosts(HostsAsk),
    /// Values by step.
    Query(QueryAsk),
    /// The catalogue.
    Metrics,
}

/// The data that an answer is computed from.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The rows.
    pub(crate) store: &'a Store,
    /// Limits and rules.
    pub(crate) config: &'a ApiConfig,
    /// Now, nanoseconds UTC since 1970.
    pub(crate) now_ns: i64,
}

impl View<'_> {
    /// How GPUs look now.
    pub(crate) fn rules(&self) -> StateRules {
        let stale_after_ns = i64::try_from(self.config.stale_after.as_nanos()).unwrap_or(i64::MAX);
        StateRules { now_ns: self.now_ns, stale_after_ns }
    }
}

/// How long an answer serves that reaches up to now.
const UP_TO_NOW_NS: i64 = 2 * SECOND_NS;

impl Ask {
    /// Whether the answer is made from what is stored.
    pub(crate) fn is_of_store(&self) -> bool {
        !matches!(self, Self::Metrics)
    }

    /// When the time alone changes the answer, nanoseconds UTC since 1970.
    pub(crate) fn until_ns(&self, view: &View<'_>) -> i64 {
        match self {
            Self::Gpus(_) | Self::Gpu(_) | Self::Hosts(_) => view.rules().changes_at(&view.store.fleet()),
            Self::Query(ask) if ask.reaches_now() => view.now_ns.saturating_add(UP_TO_NOW_NS),
            Self::Query(_) | Self::Telemetry(_) | Self::Metrics => i64::MAX,
        }
    }

    /// The answer as JSON. Reads files; not for the threads that serve.
    ///
    /// # Errors
    /// When the question has no answer.
    pub(crate) fn answer(&self, view: &View<'_>) -> Result<Vec<u8>, ApiError> {
        match self {
            Self::Gpus(ask) => ask.answer(view),
            Self::Gpu(ask) => ask.answer(view),
            Self::Telemetry(ask) => ask.answer(view),
            Self::Hosts(ask) => ask.answer(view),
            Self::Query(ask) => ask.answer(view),
            Self::Metrics => Ok(serde_json::to_vec(&MetricList::whole())?),
        }
    }
}
