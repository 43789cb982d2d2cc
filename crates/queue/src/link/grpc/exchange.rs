//! The answers of a stream, read by whoever waits for one.
//!
//! There is no task that reads: of those who wait, one reads for all. So an answer comes to a lone caller without a
//! detour, and nothing runs that would have to be ended.

use std::pin::pin;

use tokio::sync::Mutex;
use tonic::{Status, Streaming};

/// The answers of a stream.
#[derive(Debug)]
pub(super) struct Answers<T>(Mutex<Streaming<T>>);

impl<T> Answers<T> {
    pub(super) fn new(stream: Streaming<T>) -> Self {
        Self(Mutex::new(stream))
    }

    /// The next answer, for a caller who alone waits; an error if the stream ended: why, unless it ended in order.
    /// Dropping the future loses none.
    pub(super) async fn next(&self) -> Result<T, Option<Status>> {
        match self.0.lock().await.message().await {
            Ok(answer) => answer.ok_or(None),
            Err(status) => Err(Some(status)),
        }
    }

    /// Waits for `wanted`, which some answer brings about; hands every answer to `on`. Dropping the future loses none.
    /// An error if the stream ended before: why, unless it ended in order.
    pub(super) async fn until<W>(
        &self,
        wanted: impl Future<Output = W>,
        mut on: impl FnMut(T),
    ) -> Result<W, Option<Status>> {
        let mut wanted = pin!(wanted);
        let mut stream = tokio::select! {
            biased;
            done = wanted.as_mut() => return Ok(done),
            stream = self.0.lock() => stream,
        };
        loop {
            tokio::select! {
                biased;
                done = wanted.as_mut() => return Ok(done),
                answer = stream.message() => match answer {
                    Ok(Some(answer)) => on(answer),
                    Ok(None) => return Err(None),
                    Err(status) => return Err(Some(status)),
                },
            }
        }
    }
}
