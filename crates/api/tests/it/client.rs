//! As much of an HTTP client as the tests need.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// All that came on a connection.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn unpacked(&self) -> Vec<u8> {
        let mut content = Vec::new();
        GzDecoder::new(self.body.as_slice()).read_to_end(&mut content).unwrap();
        content
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Longest wait for anything that comes by itself.
const PATIENCE: Duration = Duration::from_mins(2);

/// What comes of a future.
pub(crate) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// One request on a connection of its own.
pub(crate) async fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    soon(&format!("the answer to {path}"), stream.read_to_end(&mut bytes)).await.unwrap();
    Answer::of(&bytes)
}

/// An open stream of events. It speaks HTTP/1.0, so that the body comes as it is.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    pub(crate) head: String,
    /// The last id that came.
    pub(crate) id: Option<String>,
}

impl Events {
    /// Opens a stream and reads the head of the answer.
    pub(crate) async fn open(address: SocketAddr, path: &str) -> Self {
        Self::open_with(address, path, "").await
    }

    /// The same by a client that got the event with this id last.
    pub(crate) async fn resume(address: SocketAddr, path: &str, id: &str) -> Self {
        Self::open_with(address, path, &format!("last-event-id: {id}\r\n")).await
    }

    async fn open_with(address: SocketAddr, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut events = Self { reader: BufReader::new(stream), head: String::new(), id: None };
        events.head = events.block().await.expect("an answer has a head");
        events
    }

    /// Lines up to an empty one; none at the end of the stream.
    pub(crate) async fn block(&mut self) -> Option<String> {
        let mut block = String::new();
        loop {
            let mut line = String::new();
            let read = soon("an event, or the end of the stream", self.reader.read_line(&mut line)).await;
            if read.unwrap() == 0 {
                return None;
            }
            if line.trim().is_empty() {
                self.id = header(&block, "id").map(ToOwned::to_owned).or(self.id.take());
                return Some(block);
            }
            block.push_str(&line);
        }
    }

    /// The next event: its name and data. Comments are passed over.
    pub(crate) async fn event(&mut self) -> Option<(String, Value)> {
        loop {
            let block = self.block().await?;
            if let (Some(name), Some(data)) = (header(&block, "event"), header(&block, "data")) {
                return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
            }
        }
    }
}
