//! A request's body that comes in gives its answer more time: a large one takes a while on a slow line.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

/// Bytes a second that a client has to send on average: then 8 MiB may take nine minutes.
const SEND_RATE_MIN: u64 = 16 << 10;

/// How much of a body came, and when.
#[derive(Debug)]
pub(crate) struct Upload {
    began: Instant,
    bytes: AtomicU64,
    /// When the last of it came, milliseconds since it began.
    last_ms: AtomicU64,
}

impl Upload {
    /// That of a request, which is watched from now on.
    pub(crate) fn watch(request: Request) -> (Arc<Self>, Request) {
        let upload =
            Arc::new(Self { began: Instant::now(), bytes: AtomicU64::new(0), last_ms: AtomicU64::new(0) });
        let watched = Arc::clone(&upload);
        (upload, request.map(|body| Body::new(WatchedBody { body, upload: watched })))
    }

    /// The answer, if it comes within this time: counted from the last byte that came, if they came fast enough.
    pub(crate) async fn answered<T>(&self, limit: Duration, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let until = self.until(limit);
            match timeout_at(until, answer.as_mut()).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.until(limit) > until => {}
                Err(_) => return None,
            }
        }
    }

    fn until(&self, limit: Duration) -> Instant {
        let earned_ms = self.bytes.load(Ordering::Relaxed).saturating_mul(1_000) / SEND_RATE_MIN;
        self.began + limit + Duration::from_millis(earned_ms.min(self.last_ms.load(Ordering::Relaxed)))
    }

    fn note(&self, len: usize) {
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }
}

/// A body whose bytes are counted.
struct WatchedBody {
    body: Body,
    upload: Arc<Upload>,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &next {
            self.upload.note(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// How many bytes are answered of a body that comes in pieces of this length with this time before each; none: it took too long.
    async fn received(pieces: usize, piece_len: usize, pause: Duration) -> Option<usize> {
        let body = stream::unfold(0, move |sent| async move {
            if sent == pieces {
                return None;
            }
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; piece_len])), sent + 1))
        });
        let (upload, request) = Upload::watch(Request::new(Body::from_stream(body)));
        let answer = async { request.into_body().collect().await.unwrap().to_bytes().len() };
        upload.answered(LIMIT, answer).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_as_long_as_it_comes_fast_enough() {
        // 20 KiB/s for some minutes.
        assert_eq!(received(40, 100 << 10, Duration::from_secs(5)).await, Some(40 * (100 << 10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_is_not_waited_for() {
        assert_eq!(received(2, 1 << 20, Duration::from_secs(31)).await, None);
        // 2 KiB/s.
        assert_eq!(received(40, 10 << 10, Duration::from_secs(5)).await, None);
    }
}
