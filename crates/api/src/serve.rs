//! The gateway on its listener.

use axum::Router;
use axum::http::Method;
use axum::http::header::{HeaderName, HeaderValue, InvalidHeaderValue};
use gpuvitals_listener::{Access, ListenerLimits, Terms, TokenScope};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::cors::CorsLayer;

use crate::api::Api;
use crate::{ask, route};

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A configured origin is none.
    #[error("{origin:?} is no origin for CORS; write https://host or https://host:port")]
    Origin {
        /// As configured.
        origin: String,
        /// Cause.
        #[source]
        source: Option<InvalidHeaderValue>,
    },
    /// The listener failed.
    #[error(transparent)]
    Listener(#[from] gpuvitals_listener::AcceptError),
}

/// Serves the API, the web page and what is `beside` them on a socket until the shutdown, and then until open requests have ended or
/// [`crate::Limits::drain`] has passed. Live streams end at once.
///
/// # Errors
/// When an origin for CORS is none, or the socket fails.
pub async fn serve(
    socket: TcpListener,
    api: Api,
    beside: Router,
    access: Access,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let app = route::router().layer(cors(&api.config().cors)?).with_state(api.clone()).merge(beside);
    let own = &api.config().limits;
    let limits =
        ListenerLimits { request: own.request_timeout, drain: own.drain, ..ListenerLimits::default() };
    // A browser asks without a login whether a page of another origin may ask.
    let scope = |method: &Method, _: &str| (method != Method::OPTIONS).then_some(TokenScope::Read);
    let terms = Terms { access, limits, scope, ..Terms::new(api.listener().clone()) };
    let streams_end = async {
        shutdown.cancelled().await;
        api.stopping().cancel();
        std::future::pending::<()>().await;
    };
    let watching = async {
        api.keep_watch().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = gpuvitals_listener::serve(socket, app, terms, shutdown.clone()) => Ok(served?),
        () = streams_end => Ok(()),
        () = watching => Ok(()),
    }
}

fn cors(origins: &[String]) -> Result<CorsLayer, ServeError> {
    let parse = |origin: &String| {
        let refused = |source| ServeError::Origin { origin: origin.clone(), source };
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['/', '*', ' '])) {
            return Err(refused(None));
        }
        HeaderValue::from_str(origin).map_err(|source| refused(Some(source)))
    };
    let origins: Vec<HeaderValue> = origins.iter().map(parse).collect::<Result<_, _>>()?;
    if origins.is_empty() {
        return Ok(CorsLayer::new());
    }
    Ok(CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD])
        .expose_headers([HeaderName::from_static("x-cache"), ask::PARTIAL]))
}
