//! The table of paths makes the routers and the document.

use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::Serialize;
use utoipa::openapi::PathItem;
use utoipa::{OpenApi, ToSchema};

use super::served::Served;
use super::{admin, dead, publish};

/// Makes routers and document from one table. A new path is a handler and a line here.
macro_rules! paths {
    ($($(#[$doc:meta])+ $name:ident { $($method:ident $path:literal => $module:ident::$handler:ident,)+ })+) => {
        $($(#[$doc])+
        pub(super) fn $name() -> Router<Served> {
            Router::new()$(.route($path, $method($module::$handler)))+
        })+

        /// The document of the handlers and the types they answer with.
        #[derive(OpenApi)]
        #[openapi(
            paths(
                $($($module::$handler,)+)+
                admin::health, admin::alive, admin::ready, admin::metrics,
            ),
            tags(
                (name = "messages", description = "Publishing."),
                (name = "topics", description = "What the queue holds."),
                (name = "dead letters", description = "What could not be delivered."),
                (name = "operation", description = "How the queue is."),
            )
        )]
        pub(super) struct Document;
    };
}

paths! {
    /// Paths of the queue's own port alone.
    own {
        get "/" => self::index,
        post "/publish/{topic}" => publish::publish,
    }
    /// Paths to look into the queue and to manage it.
    admin {
        get "/stats" => admin::stats,
        get "/stats/{topic}" => admin::topic_stats,
        get "/topics" => admin::topics,
        get "/topics/{topic}/groups" => admin::groups,
        delete "/topics/{topic}/groups/{group}" => admin::remove_group,
        get "/topics/{topic}/dead" => dead::list,
        delete "/topics/{topic}/dead" => dead::purge,
        post "/topics/{topic}/dead/replay" => dead::replay,
    }
}

/// What there is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Index {
    service: &'static str,
    version: &'static str,
    /// Methods and paths.
    paths: Vec<String>,
}

/// What there is.
#[utoipa::path(
    get, path = "/", tag = "operation", operation_id = "index",
    responses((status = 200, description = "The paths.", body = Index))
)]
pub(crate) async fn index() -> Json<Index> {
    let methods = |(path, item): (String, PathItem)| {
        let methods = [("GET", item.get), ("POST", item.post), ("DELETE", item.delete)];
        methods
            .into_iter()
            .filter_map(move |(method, operation)| operation.map(|_| format!("{method} {path}")))
    };
    let paths = Document::openapi().paths.paths.into_iter().filter(|(path, _)| path != "/");
    let paths = paths.flat_map(methods).collect();
    Json(Index { service: "gpuvitals-queue", version: env!("CARGO_PKG_VERSION"), paths })
}
