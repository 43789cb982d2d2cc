//! A client that says exactly what a test wants said.

use std::net::SocketAddr;

use gpuvitals_rig::waiting::soon;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
pub(crate) const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self
            .head
            .lines()
            .find(|line| line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name)))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    /// That it is an error of this status and code; answers its message.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{self:?}");
        assert!(!body["error"].as_str().unwrap().is_empty());
        assert_eq!(self.header("content-type"), Some("application/json"));
        body["message"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn ask(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut request = vec![format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")];
    request.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
    if method != "GET" {
        request.push(format!("content-length: {}\r\n", body.len()));
    }
    request.push("\r\n".to_owned());
    say(at, &[request.concat().as_bytes(), body].concat()).await
}

pub(crate) async fn get(at: SocketAddr, path: &str) -> Answer {
    ask(at, "GET", path, &[], &[]).await
}

pub(crate) async fn post(at: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    ask(at, "POST", path, headers, body).await
}

/// Writes all of `bytes`, and only then reads the answer.
pub(crate) async fn say(at: SocketAddr, bytes: &[u8]) -> Answer {
    let told = async {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let answer = String::from_utf8(soon("an answer and its end", told).await).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    assert!(!chunked, "the queue's answers have a length");
    Answer { status, head: head.to_owned(), text: body.to_owned() }
}
