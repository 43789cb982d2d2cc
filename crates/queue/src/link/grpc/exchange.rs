//! The answers of a stream, read by one of their waiters.
//!
//! No task reads them: of all waiters, one reads for all. So a lone caller gets its answer directly, and no
//! task has to be ended.

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

    /// The next answer, for the only waiter; an error if the stream ended: its status, unless it ended in
    /// order. Dropping the future loses none.
    pub(super) async fn next(&self) -> Result<T, Option<Status>> {
        match self.0.lock().await.message().await {
            Ok(answer) => answer.ok_or(None),
            Err(status) => Err(Some(status)),
        }
    }

    /// Waits for `wanted`, which some answer completes; passes every answer to `on`. Dropping the future
    /// loses none. An error if the stream ended before: its status, unless it ended in order.
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
