//! The paths. A handler parses, asks and renders; its parameters and its place in the document stand beside it.
//! The table below makes the router and the document of all that only read.

pub(crate) mod analysis;
mod answered;
pub(crate) mod changes;
pub(crate) mod clusters;
pub(crate) mod course;
pub(crate) mod docs;
pub mod document;
pub(crate) mod explain;
pub(crate) mod fleet_use;
pub(crate) mod flight;
pub(crate) mod gpus;
pub(crate) mod health;
pub(crate) mod hints;
pub(crate) mod hosts;
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod prom;
pub(crate) mod query;
pub(crate) mod router;
pub(crate) mod rows;
pub(crate) mod silences;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod telemetry;
pub(crate) mod topology;
pub(crate) mod usage;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;

use crate::api::Api;

/// Makes both from one table. A new path is a handler and a line there.
macro_rules! routes {
    ($($path:literal => $module:ident::$handler:ident,)+) => {
        /// Paths that the document describes and that only read.
        fn paths() -> Router<Api> {
            Router::new()
                $(.route($path, get($module::$handler)))+
        }

        /// The document of the handlers and the types they answer with.
        #[derive(OpenApi)]
        #[openapi(
            paths(
                $($module::$handler,)+
                silences::list, silences::silence, silences::release,
                prom::at_once, prom::by_steps,
                prom::browse::list_series, prom::browse::list_labels, prom::browse::list_values, prom::browse::metadata,
                prom::browse::format_query, prom::browse::query_exemplars,
                prom::browse::rules, prom::browse::alerts, prom::browse::build_info,
            ),
            components(schemas(crate::asked::Instant)),
            tags(
                (name = "GPUs", description = "Which GPUs there are and how they do."),
                (name = "hosts", description = "Which hosts there are."),
                (name = "telemetry", description = "What was read from them."),
                (name = "analysis", description = "What is wrong, what it costs, and why."),
                (name = "PromQL", description = "Prometheus' query API over the history: `/api/v1/prom` is the URL of a data source."),
                (name = "clusters", description = "Clusters whose GPU nodes are read from outside, as they are now."),
                (name = "operation", description = "Health of the gateway and of the parts behind it."),
            )
        )]
        struct Document;
    };
}

routes! {
    "/api/v1/gpus" => gpus::list,
    "/api/v1/gpus/{id}" => gpus::one,
    "/api/v1/gpus/{id}/explain" => explain::explain,
    "/api/v1/gpus/{id}/telemetry" => telemetry::of_one,
    "/api/v1/telemetry" => telemetry::of_several,
    "/api/v1/hosts" => hosts::list,
    "/api/v1/hosts/{hostname}/gpus" => gpus::of_host,
    "/api/v1/hosts/{hostname}/topology" => topology::of_host,
    "/api/v1/jobs" => jobs::jobs,
    "/api/v1/jobs/{id}" => jobs::one,
    "/api/v1/metrics" => metrics::catalogue,
    "/api/v1/query" => query::query,
    "/api/v1/analysis/findings" => analysis::findings,
    "/api/v1/analysis/stragglers" => analysis::stragglers,
    "/api/v1/analysis/energy" => usage::energy,
    "/api/v1/analysis/idle" => usage::idle,
    "/api/v1/analysis/usage" => fleet_use::over_time,
    "/api/v1/analysis/changes" => changes::changes,
    "/api/v1/analysis/trends" => course::trends,
    "/api/v1/analysis/anomalies" => course::anomalies,
    "/api/v1/schedule/hints" => hints::hints,
    "/api/v1/stream" => stream::stream,
    "/api/v1/gpu/clusters" => clusters::list,
    "/api/v1/gpu/nodes" => clusters::nodes,
    "/api/v1/gpu/nodes/{node}" => clusters::node,
    "/api/v1/gpu/nodes/{cluster}/{node}" => clusters::node_of_cluster,
    "/api/v1/gpu/processes" => clusters::processes,
    "/api/v1/gpu/summary" => clusters::summary,
    "/health" => health::health,
    "/healthz" => health::alive,
    "/readyz" => health::ready,
    "/stats" => stats::stats,
    "/metrics" => metrics::gateway,
}
