//! Redis Streams: XADD one by one, pipelined; a consumer group that reads a hundred at a time, acknowledges and deletes.

use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{Outcome, row};

/// Entries that one read asks for.
const COUNT: &str = "1000";

/// A connection.
pub(crate) struct Redis {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

/// What Redis answers.
enum Reply {
    Text(Vec<u8>),
    Number,
    List(Vec<Reply>),
    Nothing,
}

impl Redis {
    pub(crate) async fn connect(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(1 << 20, stream), request: Vec::new() })
    }

    fn ask(&mut self, parts: &[&[u8]]) {
        self.request.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
        for part in parts {
            self.request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            self.request.extend_from_slice(part);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    async fn send(&mut self) -> Outcome<()> {
        self.stream.get_mut().write_all(&self.request).await?;
        self.request.clear();
        Ok(())
    }

    fn reply(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Reply>> + Send + '_>> {
        Box::pin(async move {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
                return Err("redis hung up".into());
            };
            match kind {
                "+" => Ok(Reply::Text(rest.into())),
                ":" => Ok(Reply::Number),
                "-" => Err(format!("redis: {rest}").into()),
                "$" | "*" if rest.starts_with('-') => Ok(Reply::Nothing),
                "$" => {
                    let mut text = vec![0; rest.parse::<usize>()? + 2];
                    self.stream.read_exact(&mut text).await?;
                    text.truncate(text.len() - 2);
                    Ok(Reply::Text(text))
                }
                "*" => {
                    let mut list = Vec::new();
                    for _ in 0..rest.parse::<usize>()? {
                        list.push(self.reply().await?);
                    }
                    Ok(Reply::List(list))
                }
                _ => Err(format!("redis answers {line:?}").into()),
            }
        })
    }

    pub(crate) async fn make_group(&mut self, key: &str) -> Outcome<()> {
        self.ask(&[b"XGROUP", b"CREATE", key.as_bytes(), b"bench", b"0", b"MKSTREAM"]);
        self.send().await?;
        self.reply().await.map(drop)
    }

    pub(crate) async fn publish(&mut self, key: &str, rows: &[Vec<u8>]) -> Outcome<()> {
        for row in rows {
            self.ask(&[b"XADD", key.as_bytes(), b"*", b"d", row]);
        }
        self.send().await?;
        for _ in rows {
            self.reply().await?;
        }
        Ok(())
    }

    /// Receives, acknowledges and deletes; answers when the rows were published.
    pub(crate) async fn take(&mut self, key: &str) -> Outcome<Vec<u64>> {
        let parts: [&[u8]; 11] = [
            b"XREADGROUP",
            b"GROUP",
            b"bench",
            b"c",
            b"COUNT",
            COUNT.as_bytes(),
            b"BLOCK",
            b"1000",
            b"STREAMS",
            key.as_bytes(),
            b">",
        ];
        self.ask(&parts);
        self.send().await?;
        let (mut ids, mut times) = (Vec::new(), Vec::new());
        let Reply::List(streams) = self.reply().await? else { return Ok(times) };
        for stream in streams {
            let Reply::List(stream) = stream else { continue };
            let Some(Reply::List(entries)) = stream.into_iter().nth(1) else { continue };
            for entry in entries {
                let Reply::List(entry) = entry else { continue };
                let mut entry = entry.into_iter();
                let (Some(Reply::Text(id)), Some(Reply::List(fields))) = (entry.next(), entry.next()) else {
                    continue;
                };
                let Some(Reply::Text(text)) = fields.into_iter().nth(1) else { continue };
                ids.push(id);
                times.extend(row::published_ns(&text));
            }
        }
        let mut ack: Vec<&[u8]> = vec![b"XACK", key.as_bytes(), b"bench"];
        ack.extend(ids.iter().map(Vec::as_slice));
        self.ask(&ack);
        let mut delete: Vec<&[u8]> = vec![b"XDEL", key.as_bytes()];
        delete.extend(ids.iter().map(Vec::as_slice));
        self.ask(&delete);
        self.send().await?;
        self.reply().await?;
        self.reply().await?;
        Ok(times)
    }
}
