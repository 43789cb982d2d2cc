//! The queue by HTTP: publishing, what is held, dead letters, figures.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use gpuvitals_listener::body::Budget;
use gpuvitals_listener::{Partial, TokenScope, echo, vitals};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::admin::QueueVitals;
use super::config::ServerConfig;
use super::grpc::{Grpc, Limits};
use super::paths;
use super::refusal::Refusal;
use super::served::Served;
use crate::protocol::v1::queue_server::QueueServer;
use crate::service::Queue;

pub use super::config::HttpLimits;

/// What a frame's message has beside its payload, at most: topic, key, stamp.
const FRAME_HEADER_BYTES: usize = 64 << 10;
/// The calls of gRPC.
const PUBLISH: &str = "/gpuvitals.queue.v1.Queue/Publish";
const PUBLISH_STREAM: &str = "/gpuvitals.queue.v1.Queue/PublishStream";
const SUBSCRIBE: &str = "/gpuvitals.queue.v1.Queue/Subscribe";

/// The scope that a request needs.
pub fn scope(method: &Method, path: &str) -> TokenScope {
    let looks = matches!(*method, Method::GET | Method::HEAD);
    match path {
        PUBLISH | PUBLISH_STREAM => TokenScope::Publish,
        SUBSCRIBE => TokenScope::Subscribe,
        _ if path.starts_with("/publish/") => TokenScope::Publish,
        // Deeper than the groups of a topic are its dead letters, which are messages of anyone.
        _ if looks && path.starts_with("/topics/") && !path.ends_with("/groups") => TokenScope::Subscribe,
        _ if looks => TokenScope::Read,
        _ => TokenScope::Admin,
    }
}

/// Paths to look into the queue and to manage it, alone: for a port that serves something else beside them. [`scope`] says who may.
pub fn admin_router(queue: Queue, config: &ServerConfig) -> Router {
    let bodies = Budget::new(config.http.bodies_bytes);
    paths::admin().with_state(Served::new(queue, config, bodies))
}

/// The paths of clients and of admins, in one.
pub fn router(queue: Queue, config: &ServerConfig, stop: CancellationToken) -> Router {
    let meter = Arc::clone(&config.meter);
    let bodies = Budget::new(config.http.bodies_bytes);
    meter.watch(&bodies);
    let vitals = QueueVitals { queue: queue.clone(), meter: Arc::clone(&meter) };
    let grpc = grpc(&queue, config, &bodies, stop);
    let served = Served::new(queue, config, bodies);
    paths::own()
        .merge(paths::admin())
        .merge(vitals::routes(Arc::new(vitals)))
        .merge(grpc)
        .fallback(nothing_there)
        .method_not_allowed_fallback(unknown_method)
        .with_state(served)
}

/// The calls of gRPC. Long messages that have come in part share the budget of the bodies.
fn grpc(queue: &Queue, config: &ServerConfig, bodies: &Budget, stop: CancellationToken) -> Router<Served> {
    let limits = Limits { frame_bytes: config.max_frame_bytes };
    let calls = QueueServer::new(Grpc::new(queue.clone(), limits, Arc::clone(&config.meter), stop))
        .max_decoding_message_size(config.max_frame_bytes.saturating_add(FRAME_HEADER_BYTES));
    let (bodies, patience) = (bodies.clone(), config.http.request_time);
    let call = post(async move |request: Request| {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| matches!(kind, b"application/grpc" | b"application/grpc+proto")) {
            return Refusal::NotGrpc.into_response();
        }
        let request = request.map(|body| Body::new(Partial::new(body, &bodies, patience)));
        let Ok(response) = calls.oneshot(request).await;
        response.map(Body::new)
    });
    Router::new().route(PUBLISH, call.clone()).route(PUBLISH_STREAM, call.clone()).route(SUBSCRIBE, call)
}

async fn nothing_there(uri: Uri) -> Response {
    Refusal::NotFound(echo(uri.path())).into_response()
}

async fn unknown_method(method: Method, uri: Uri) -> Response {
    Refusal::Method { method: echo(method.as_str()), path: echo(uri.path()) }.into_response()
}
