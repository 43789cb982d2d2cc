//! The gateway on its listener.

use axum::Router;
use axum::http::Method;
use gpuvitals_listener::{AcceptError, Access, ListenerLimits, Terms, TokenScope};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::{found_jobs, route};

pub use crate::route::router::scope as own_scope;

/// Longest body of a request: a form with the longest query in PromQL, of which each byte may be written as three.
const FORM_BYTES: u64 = 64 << 10;

/// What is served on the port of the API beside it.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Paths that the API does not have itself.
    pub router: Router,
    /// The scope that a request to the port needs; those to the API itself need [`own_scope`].
    pub scope: fn(&Method, &str) -> TokenScope,
}

impl Beside {
    /// Paths for those who may read.
    pub fn reading(router: Router) -> Self {
        Self { router, scope: route::router::scope }
    }
}

/// Serves the API, the web page and what is `beside` them on a socket until the shutdown, and then until open requests have ended or
/// [`crate::Limits::drain`] has passed. Live streams end at once.
///
/// # Errors
/// When the socket fails.
pub async fn serve(
    socket: TcpListener,
    api: Api,
    beside: Beside,
    access: Access,
    shutdown: CancellationToken,
) -> Result<(), AcceptError> {
    let app = route::router::all().with_state(api.clone()).merge(beside.router);
    let own = &api.config().limits;
    let limits = ListenerLimits {
        request: own.request_timeout,
        drain: own.drain,
        body_bytes: FORM_BYTES,
        ..ListenerLimits::default()
    };
    let origins = api.config().cors.clone();
    let terms = Terms { access, limits, scope: beside.scope, origins, ..Terms::new(api.listener().clone()) };
    let streams_end = async {
        shutdown.cancelled().await;
        api.stopping().cancel();
        std::future::pending::<()>().await;
    };
    let watching = async {
        api.keep_watch().await;
        std::future::pending::<()>().await;
    };
    let asking = async {
        found_jobs::follow(&api).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = gpuvitals_listener::serve(socket, app, terms, shutdown.clone()) => served,
        () = streams_end => Ok(()),
        () = watching => Ok(()),
        () = asking => Ok(()),
    }
}
