//! A part of a service that runs elsewhere: its requests are passed on, its answers passed back.

use std::error::Error;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http_body_util::{BodyExt as _, Limited};
use tonic::transport::Channel;
use tower::{Service as _, ServiceExt as _};

use crate::answer::refuse;
use crate::client::first_cause;

/// Longest body of a request that is passed on, in bytes.
const BODY_BYTES: usize = 256 << 10;

/// Passes every request on to the service at the other end of a connection, with the token of the client that sent it and no
/// credentials of our own: who may do what, the service decides.
pub fn router(channel: Channel) -> Router {
    Router::new().fallback(pass_on).with_state(channel)
}

/// Refuses every request: there is no service to pass it on to.
pub fn refusing(message: String) -> Router {
    let refusal = async move || refuse(StatusCode::NOT_IMPLEMENTED, "no_broker", &message);
    Router::new().fallback(refusal)
}

async fn pass_on(State(mut channel): State<Channel>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES).collect().await else {
        let text = format!("the body broke off, or has more than {BODY_BYTES} bytes");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &text);
    };
    let mut onward = http::Request::builder().method(head.method).uri(head.uri);
    for name in [AUTHORIZATION, CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            onward = onward.header(name, value);
        }
    }
    let answer = match onward.body(tonic::body::Body::new(body)) {
        Ok(onward) => match channel.ready().await {
            Ok(ready) => ready.call(onward).await.map_err(|error| cause(&error)),
            Err(error) => Err(cause(&error)),
        },
        Err(error) => Err(cause(&error)),
    };
    match answer {
        Ok(answer) => passed_back(answer),
        Err(reason) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            &format!("the queue does not answer: {reason}"),
        ),
    }
}

fn passed_back(answer: http::Response<tonic::body::Body>) -> Response {
    let (head, body) = answer.into_parts();
    let mut response = (head.status, Body::new(body)).into_response();
    for name in [CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE] {
        for value in head.headers.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    response
}

fn cause(error: &(dyn Error + 'static)) -> String {
    first_cause(error).to_string()
}
