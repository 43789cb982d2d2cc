//! Where a request goes: to gRPC or to HTTP, if it may.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service as _, ServiceExt as _};

use super::ServerConfig;
use super::body::Budget;
use super::connection::{Activity, Open};
use super::grpc::{Grpc, Limits};
use super::http::{self as web, Right};
use super::metrics::Meter;
use super::pace::Pace;
use super::partial::Partial;
use super::tokens::{Denied, Permission, Tokens};
use crate::protocol::v1::queue_server::QueueServer;
use crate::service::Queue;

/// What a frame's message has beside its payload, at most: topic, key, stamp.
const FRAME_HEADER_BYTES: usize = 64 << 10;
/// The calls that are over when they are answered once; the others are streams.
const PUBLISH: &str = "/gpuvitals.queue.v1.Queue/Publish";
const PUBLISH_STREAM: &str = "/gpuvitals.queue.v1.Queue/PublishStream";

/// Which port a request came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    /// HTTP and gRPC.
    Admin,
    /// gRPC.
    Grpc,
}

/// What a request needs to know of its connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The connection is to end.
    pub(super) stop: CancellationToken,
    /// How fast it may publish.
    pub(super) pace: Option<Arc<Pace>>,
    activity: Arc<Activity>,
}

impl Caller {
    pub(super) fn new(stop: CancellationToken, config: &ServerConfig, activity: Arc<Activity>) -> Self {
        let pace = config.messages_per_second.map(|rate| Arc::new(Pace::new(rate)));
        Self { stop, pace, activity }
    }
}

/// The same for all connections.
#[derive(Clone)]
pub(super) struct Door {
    grpc: QueueServer<Grpc>,
    http: Router,
    tokens: Option<Arc<Tokens>>,
    /// What is being received, over all connections.
    receiving: Budget,
    request_timeout: Duration,
}

impl Door {
    pub(super) fn new(queue: &Queue, config: &ServerConfig, meter: &Arc<Meter>) -> Self {
        let limits = Limits { frame_bytes: config.max_frame_bytes };
        let grpc = QueueServer::new(Grpc::new(queue.clone(), limits, Arc::clone(meter)))
            .max_decoding_message_size(config.max_frame_bytes.saturating_add(FRAME_HEADER_BYTES));
        let tokens = config.tokens.clone().map(Arc::new);
        let receiving = Budget::new(config.http.bodies_bytes);
        meter.watch(&receiving);
        let http = web::router_within(queue.clone(), config.http, Arc::clone(meter), receiving.clone());
        Self { grpc, http, tokens, receiving, request_timeout: config.http.request_time }
    }

    /// The door of one connection.
    pub(super) fn of(self, port: Port, caller: Caller) -> Entrance {
        Entrance { door: self, port, caller }
    }

    fn check<T>(&self, request: &Request<T>, permission: Permission) -> Result<(), Denied> {
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.check(request.headers(), permission))
    }

    async fn grpc(mut self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let needed = if matches!(path, PUBLISH | PUBLISH_STREAM) {
            Permission::Publish
        } else {
            Permission::Subscribe
        };
        if let Err(denied) = self.check(&request, needed) {
            let status = match denied {
                Denied::Forbidden => tonic::Status::permission_denied(denied.to_string()),
                Denied::NoToken | Denied::Unknown => tonic::Status::unauthenticated(denied.to_string()),
            };
            return status.into_http();
        }
        let is_stream = path != PUBLISH;
        let partial = |body| Partial::new(body, &self.receiving, self.request_timeout);
        let answer = self.grpc.call(request.map(partial));
        if is_stream {
            let Ok(response) = answer.await;
            return response;
        }
        match tokio::time::timeout(self.request_timeout, answer).await {
            Ok(Ok(response)) => response,
            Err(_) => tonic::Status::deadline_exceeded("the request took too long").into_http(),
        }
    }

    async fn http(self, request: Request<Incoming>) -> Response<Body> {
        let permission = match Right::needed(request.method(), request.uri().path()) {
            Right::Open => None,
            Right::Read => Some(Permission::Look),
            Right::ReadMessages => Some(Permission::Read),
            Right::Publish => Some(Permission::Publish),
            Right::Manage => Some(Permission::Administer),
        };
        match permission.map_or(Ok(()), |permission| self.check(&request, permission)) {
            Ok(()) => {
                let Ok(response) = self.http.oneshot(request).await;
                response.map(Body::new)
            }
            Err(denied) => denied_by_http(denied),
        }
    }
}

/// The door as one connection sees it.
pub(super) struct Entrance {
    door: Door,
    port: Port,
    caller: Caller,
}

impl hyper::service::Service<Request<Incoming>> for Entrance {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let open = self.caller.activity.begin();
        let door = self.door.clone();
        request.extensions_mut().insert(self.caller.clone());
        let port = self.port;
        // A stream is open until it ends. Other answers are to be read before the connection counts as idle.
        let is_stream = is_grpc(&request) && request.uri().path() != PUBLISH;
        async move {
            let response = match port {
                _ if is_grpc(&request) => door.grpc(request).await,
                Port::Admin => door.http(request).await,
                Port::Grpc => no_grpc(),
            };
            Ok(response.map(|body| Answer { body, _open: is_stream.then_some(open) }))
        }
        .boxed()
    }
}

fn is_grpc<T>(request: &Request<T>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let proto = |kind: &[u8]| matches!(kind, b"application/grpc" | b"application/grpc+proto");
    request.method() == Method::POST && kind.is_some_and(proto)
}

/// Answers what is no gRPC on a port for gRPC.
fn no_grpc() -> Response<Body> {
    let text = "this port speaks gRPC: POST with content-type application/grpc\n";
    let mut response =
        Response::new(Body::new(http_body_util::Full::new(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn denied_by_http(denied: Denied) -> Response<Body> {
    let (status, code) = match denied {
        Denied::NoToken | Denied::Unknown => (StatusCode::UNAUTHORIZED, "unauthorized"),
        Denied::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
    };
    let text = serde_json::json!({ "error": code, "message": denied.to_string(), "code": code }).to_string();
    let mut response = Response::new(Body::new(http_body_util::Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// An answer's body. The request of a stream is open as long as it lasts.
pub(super) struct Answer {
    body: Body,
    _open: Option<Open>,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
