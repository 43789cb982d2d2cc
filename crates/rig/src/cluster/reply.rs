//! Questions and replies as the API spells them.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

pub(super) type Reply = Response<Full<Bytes>>;

pub(super) fn status(status: &str, reason: &str, message: &str, code: u16) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": status, "reason": reason, "message": message, "code": code,
    })
}

pub(super) fn json_reply(status: u16, value: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(value.to_string())));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap();
    reply.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    reply
}

pub(super) fn failure(code: u16, reason: &str, message: &str) -> Reply {
    json_reply(code, &status("Failure", reason, message, code))
}

/// The pairs of a query, decoded.
pub(super) fn params(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte.unwrap_or(b'0')).to_digit(16).unwrap_or_default();
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next()) * 16 + digit(rest.next())).unwrap(),
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
