//! A link on which everything takes its time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Passes connections on to a port of this machine, each byte as much later; ends with its value.
pub(crate) struct SlowLink {
    pub(crate) port: u16,
    _task: JoinSet<()>,
}

impl SlowLink {
    pub(crate) async fn to(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                ways.spawn(pass(near_in, far_out, delay));
                ways.spawn(pass(far_in, near_out, delay));
            }
        });
        Self { port: own, _task: task }
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) {
    let mut under_way = VecDeque::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let due = under_way.front().map_or_else(Instant::now, |(due, _)| *due);
        tokio::select! {
            read = from.read(&mut bytes) => match read {
                Ok(count @ 1..) => under_way.push_back((Instant::now() + delay, bytes[..count].to_vec())),
                Ok(0) | Err(_) => return,
            },
            () = sleep_until(due), if !under_way.is_empty() => {
                let (_, late) = under_way.pop_front().unwrap();
                if to.write_all(&late).await.is_err() {
                    return;
                }
            }
        }
    }
}
